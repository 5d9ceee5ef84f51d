"""Write `predict.py`, config.json and vocabulary.json from the recipe of a run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from harken.encode.filterbank import (
    LEVEL_RANGE,
    LEVEL_SCALE,
    MIN_DEVIATION,
    FilterbankConfig,
    mel_triangles,
    window_function,
)
from harken.encode.pixels import PixelsConfig
from harken.encode.stream import StreamEncoder
from harken.encode.vocabulary import END, SPECIAL, Vocabulary
from harken.encode.words import WordVocabulary
from harken.export.onnx_vocabulary import PlainVocabulary, plain_vocabulary
from harken.files import json_text, write_text
from harken.formats.entity_tags import OUTSIDE, can_follow
from harken.formats.labels import join_labels
from harken.models.seq2seq import MAX_SOURCE
from harken.run import Run
from harken.tasks import classify_text, fill, tag
from harken.tasks.seq2seq import max_tokens
from harken.tasks.transcribe_predictor import MAX_TOKENS

SCRIPT, TOKENIZER, FEATURES, CONFIG, VOCABULARY, FILTERBANK = (
    "predict.py",
    "tokenizer.py",
    "features.py",
    "config.json",
    "vocabulary.json",
    "filterbank.npz",
)
LINES = "< lines.txt"


@dataclass(kw_only=True, slots=True)
class Script:
    """The templates and options of `predict.py`, and its files."""

    summary: str
    usage: str = LINES
    parts: list[str] = field(default_factory=list)
    tokenizer_parts: list[str] = field(default_factory=list)
    tokenizer_modules: set[str] = field(default_factory=lambda: {"json"})
    names: list[str] = field(default_factory=list)  # that predict.py imports from tokenizer.py
    options: dict[str, object] = field(default_factory=dict)
    modules: set[str] = field(default_factory=lambda: {"json", "sys"})
    config: dict[str, Any] = field(default_factory=dict)
    vocabulary: object = None
    arrays: dict[str, Any] = field(default_factory=dict)

    def add_vocabulary(self, plain: PlainVocabulary, *names: str) -> None:
        """Encode or decode with a tokenizer, whose functions `names` are used."""
        self.vocabulary = plain.content
        self.tokenizer_parts += plain.parts
        self.options |= plain.options
        self.tokenizer_modules |= set(plain.modules)
        self.names = [*names]

    def add_words(self, words: WordVocabulary) -> None:
        self.vocabulary = {
            "lowercase": words.lowercase,
            "rows": dict(words.rows),
            "characters": dict(words.characters),
        }
        self.tokenizer_parts.append("words")
        self.names.append("word_inputs")

    def add_whole_words(self) -> None:
        """Split texts into words and punctuation marks."""
        self.tokenizer_parts.append("whole_words")
        self.tokenizer_modules |= {"re", "unicodedata"}
        self.names.append("split_words")

    def add_filterbank(self, bank: FilterbankConfig) -> None:
        """Store the window and the weights of the bands, which do not depend on the sound."""
        size = bank.window_samples
        fft_size = 1 << (size - 1).bit_length()
        self.arrays = {
            "window": window_function(bank.window, size).numpy().astype(np.float32),
            "bands": mel_triangles(bank, fft_size).numpy().astype(np.float32),
        }
        self.config |= {
            "sample_rate": bank.sample_rate,
            "window": size,
            "hop": bank.hop_samples,
            "fft_size": fft_size,
            "preemphasis": bank.preemphasis,
            "floor": bank.floor,
        }
        self.options |= {
            "snip_edges": bank.snip_edges,
            "remove_dc": bank.remove_dc,
            "normalize": bank.normalize,
            "level_range": LEVEL_RANGE,
            "level_scale": LEVEL_SCALE,
            "min_deviation": MIN_DEVIATION,
        }

    def write(self, folder: Path) -> None:
        """Write the script and its files."""
        loader = PackageLoader("harken.export")
        environment = Environment(
            loader=loader, keep_trailing_newline=True, undefined=StrictUndefined, autoescape=False
        )
        files = {SCRIPT: "onnx_predict.py.jinja"}
        if self.tokenizer_parts:
            files[TOKENIZER] = "onnx_tokenizer.py.jinja"
        if self.arrays:
            files[FEATURES] = "onnx_features.py.jinja"
        for name, template in files.items():
            text = environment.get_template(template).render(
                summary=self.summary,
                usage=self.usage,
                by_line=self.usage == LINES,
                modules=sorted(self.modules),
                has_features=bool(self.arrays),
                names=sorted(self.names),
                parts=template_names(self.parts),
                tokenizer_summary="The vocabulary of the model.",
                tokenizer_modules=sorted(self.tokenizer_modules),
                tokenizer_parts=template_names(self.tokenizer_parts),
                **self.options,
            )
            write_text(folder / name, re.sub("\n{4,}", "\n\n\n", text).rstrip("\n") + "\n")
        write_text(folder / CONFIG, json_text(self.config, indent=1))
        if self.vocabulary is not None:
            write_text(folder / VOCABULARY, json_text(self.vocabulary))
        if self.arrays:
            np.savez(folder / FILTERBANK, **self.arrays)


def template_names(parts: Sequence[str]) -> list[str]:
    """Return the names of the templates of these parts."""
    return [f"onnx_{part}.py.jinja" for part in parts]


def write_script(run: Run, folder: Path) -> None:
    """Write the script of a run, which decodes greedily."""
    writers = {
        "answer": answer_script,
        "caption": caption_script,
        "classify": classify_script,
        "fill": fill_script,
        "lm": lm_script,
        "tag": tag_script,
        "transcribe": transcribe_script,
        "translate": translate_script,
    }
    script: Script = writers[run.recipe.task](run)
    script.options["task"] = run.recipe.task
    script.write(folder)


def lm_script(run: Run) -> Script:
    """Return the script of a language model."""
    predictor: Any = run.predictor
    vocabulary: Vocabulary = predictor.vocabulary
    stream: StreamEncoder = predictor.stream
    limit, max_prompt = predictor.limits
    script = Script(summary="Continue each line of text.")
    script.add_vocabulary(plain_vocabulary(vocabulary), "decode", "encode", "token_text")
    script.parts += ["generate", "lm"]
    script.config = {
        "start": stream.start,
        "end": stream.end,
        "max_prompt": max_prompt or 0,
        "max_tokens": limit,
    }
    return script


def answer_script(run: Run) -> Script:
    """Return the script of a model that answers questions."""
    predictor: Any = run.predictor
    special = predictor.vocabulary.special
    script = Script(summary="Answer the question in each line.")
    script.add_vocabulary(plain_vocabulary(predictor.vocabulary), "decode", "encode")
    script.parts += ["generate", "answer"]
    limit = predictor.max_answer_tokens
    script.config = {
        "mask": special.mask,
        "end": special.end,
        "max_prompt": predictor.model.max_length - limit - 1,
        "max_tokens": limit,
    }
    return script


def translate_script(run: Run) -> Script:
    """Return the script of a translator."""
    predictor: Any = run.predictor
    script = Script(summary="Translate each line of text.")
    names = ("decode", "encode", "token_text")
    script.add_vocabulary(plain_vocabulary(predictor.vocabulary), *names)
    script.parts += ["generate", "translate"]
    script.config = {
        "end": END,
        "max_source": predictor.model.max_source or MAX_SOURCE,
        "max_tokens": max_tokens(predictor.model, predictor.recipe.search),
    }
    return script


def caption_script(run: Run) -> Script:
    """Return the script of a captioner."""
    predictor: Any = run.predictor
    images = predictor.recipe.encode.images
    script = Script(summary="Describe images.", usage="FILE.npy ...")
    script.add_vocabulary(decoder_only(plain_vocabulary(predictor.vocabulary)), "decode")
    script.parts += ["pixels", "generate", "caption"]
    script.options["pixels"] = isinstance(images, PixelsConfig)
    script.config = {"end": END, "max_tokens": max_tokens(predictor.model, predictor.recipe.search)}
    return script


def transcribe_script(run: Run) -> Script:
    """Return the script of a speech recognizer, which uses CTC if the model has it."""
    predictor: Any = run.predictor
    model, search = predictor.model, predictor.recipe.search
    has_ctc, has_decoder = model.ctc is not None, model.decoder is not None
    limits = [limit for limit in (model.max_target, search.max_tokens) if limit]
    script = Script(summary="Transcribe speech.", usage="FILE.wav ...")
    script.add_vocabulary(decoder_only(plain_vocabulary(predictor.vocabulary)), "decode")
    script.add_filterbank(predictor.filterbank)
    script.parts += ["transcribe"] if has_ctc else ["generate", "transcribe"]
    script.modules |= {"itertools"} if has_ctc else set()
    script.options |= {"ctc": has_ctc, "encoder": "encoder" if has_decoder else "model"}
    script.config |= {
        "end": END,
        "max_frames": model.max_frames,
        "max_tokens": min(limits, default=MAX_TOKENS),
    }
    return script


def decoder_only(plain: PlainVocabulary) -> PlainVocabulary:
    """Return the vocabulary of a model that does not read text."""
    parts = [part for part in plain.parts if part.startswith("decode")]
    modules = ("itertools",) if "decode_fallback" in parts else ()
    return PlainVocabulary(
        content={"tokens": plain.content["tokens"]},
        parts=("tokens", *parts),
        options=plain.options,
        modules=modules,
    )


def tag_script(run: Run) -> Script:
    """Return the script of a tagger."""
    predictor: Any = run.predictor
    vocabulary: WordVocabulary = predictor.vocabulary
    model, scheme = predictor.recipe.model, vocabulary.scheme
    script = Script(summary="Tag the words of each line.")
    script.config = {"tags": list(vocabulary.tags)}
    pieces = vocabulary.pieces
    if pieces is None:
        script.add_words(vocabulary)
        script.config["max_words"] = model.max_length or tag.MAX_LENGTH
    else:
        rows = dict(vocabulary.rows)
        script.config |= {"cls": pieces.cls, "sep": pieces.sep, "cases": rows}
    is_constrained = bool(predictor.recipe.decode.constrained and scheme)
    script.options |= {
        "pieces": pieces is not None,
        "follow": is_constrained and OUTSIDE in vocabulary.tags,
    }
    if script.options["follow"]:
        assert scheme is not None
        script.config["follow"] = [
            [can_follow(scheme, name, last) for name in vocabulary.tags] for last in vocabulary.tags
        ]
    script.parts.append("tag")
    return script


def fill_script(run: Run) -> Script:
    """Return the script of a cloze model."""
    predictor: Any = run.predictor
    vocabulary: Vocabulary = predictor.vocabulary
    script = Script(summary="Fill the blanks ___ of each line.")
    script.add_whole_words()
    script.tokenizer_parts.append("tokens")
    script.names.append("TOKENS")
    script.modules.add("re")
    script.parts.append("fill")
    script.options["blank"] = fill.BLANK.pattern
    script.vocabulary = {"tokens": vocabulary.token_texts(range(len(vocabulary)))}
    script.config = {
        "max_words": predictor.recipe.model.max_length or fill.MAX_LENGTH,
        "specials": len(SPECIAL),
    }
    return script


def classify_script(run: Run) -> Script:
    """Return the script of a classifier."""
    predictor: Any = run.predictor
    recipe, vocabulary = predictor.recipe, predictor.vocabulary
    kind, max_length = recipe.encode.kind, recipe.model.max_length
    usage = {"sound": "FILE.wav ...", "image": "FILE.npy ..."}.get(kind, LINES)
    script = Script(summary="Classify inputs.", usage=usage)
    if kind == "words":
        script.add_whole_words()
        script.add_words(vocabulary.inputs.words)
        max_length = max_length or classify_text.MAX_LENGTH
    elif kind == "tokens":
        tokens: Vocabulary = vocabulary.inputs.tokens
        script.add_vocabulary(plain_vocabulary(tokens), "encode")
        end = tokens.special.end
        script.config |= {"end": end, "start": end if tokens.start is None else tokens.start}
        max_length = max_length or classify_text.MAX_LENGTH
    elif kind == "sound":
        script.add_filterbank(recipe.encode.filterbank)
    else:
        script.parts.append("pixels")
        script.options["pixels"] = True
    script.options |= {
        "input": kind,
        "multiple": recipe.is_multiple,
        "separator": repr(join_labels(["", ""])),
    }
    script.config |= {"labels": vocabulary.names, "max_length": max_length}
    script.parts.append("classify")
    return script
