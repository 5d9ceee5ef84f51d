"""Export to a Hugging Face folder: config.json, model.safetensors and a tokenizer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.encode.vocabulary import Vocabulary
from harken.export.format import ExportFormat, FormatName, Precision, replace_methods
from harken.export.huggingface_engine import causal_methods, seq2seq_methods
from harken.export.huggingface_models import HuggingFaceClass, bert_model, gpt_model
from harken.export.huggingface_seq2seq import seq2seq_model, seq2seq_weights
from harken.export.requirements import Requirements
from harken.export.tokenizer_json import write_pieces, write_tokenizer
from harken.files import write_tensors, write_text
from harken.models.classifier import TokenClassifier
from harken.models.cloze import END_TOKENS, MaskedLM, add_end_tokens
from harken.models.gpt import GPT
from harken.models.huggingface_files import CONFIG, WEIGHTS
from harken.models.huggingface_types import ARCHITECTURES
from harken.models.piece_tagger import PieceTagger
from harken.models.seq2seq import EncoderDecoder
from harken.run import Run

GENERATION = "generation_config.json"
TANH_SCALE = 2.0**-14  # tanh(x * TANH_SCALE) / TANH_SCALE = x, up to rounding


class ExportedModel(NamedTuple):
    """The class of a run's model, its weights and the special tokens around an input."""

    hugging_face: HuggingFaceClass
    weights: dict[str, Tensor]
    vocabulary: Vocabulary | None = None
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    generation: Mapping[str, Any] | None = None


class HuggingFaceFormat(ExportFormat):
    """Folders that `transformers` loads with its Auto classes."""

    name: ClassVar[FormatName] = "hf"
    precisions: ClassVar[tuple[Precision, ...]] = ("float32", "float16")
    packages: ClassVar[tuple[str, ...]] = ("transformers",)

    def check(self, run: Run, precision: Precision) -> None:
        exported_model(run)

    def write(self, run: Run, folder: Path, precision: Precision) -> None:
        recipe: Any = run.recipe
        vocabulary: Any = run.vocabulary
        exported = exported_model(run)
        cls = exported.hugging_face
        settings = {
            "model_type": cls.model_type,
            "architectures": [cls.class_name],
            "dtype": precision,
            **cls.settings,
            **_token_ids(run, exported),
        }
        write_text(folder / CONFIG, json.dumps(settings, ensure_ascii=False, indent=1))
        if exported.generation is not None:
            generation = {**_token_ids(run, exported), **exported.generation}
            write_text(folder / GENERATION, json.dumps(generation, indent=1))
        dtype = torch.float16 if precision == "float16" else torch.float32
        weights = {name: tensor.to(dtype).contiguous() for name, tensor in exported.weights.items()}
        write_tensors(folder / WEIGHTS, weights)
        if exported.vocabulary is not None:
            write_tokenizer(
                folder,
                exported.vocabulary,
                before=list(exported.before),
                after=list(exported.after),
                max_length=_max_length(cls),
                pad_left=isinstance(run.model, GPT),
                without_space=recipe.task == "lm" and recipe.encode.kind == "characters",
            )
        elif isinstance(run.model, PieceTagger):
            write_pieces(folder, vocabulary.pieces, _max_length(cls))

    def load(self, folder: Path, run: Run) -> nn.Module:
        import transformers

        logging: Any = transformers.utils.logging
        logging.disable_progress_bar()
        cls = getattr(transformers, exported_model(run).hugging_face.class_name)
        loaded: Any = cls.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
        return replace_methods(run.model, **_methods(run.model, loaded))

    def usage(self, run: Run, name: str) -> str:
        cls = exported_model(run).hugging_face
        return f"""from transformers import {AUTO_CLASSES[cls.class_name]}, AutoTokenizer

model = {AUTO_CLASSES[cls.class_name]}.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")"""


AUTO_CLASSES = {
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "GPTNeoXForCausalLM": "AutoModelForCausalLM",
    "LlamaForCausalLM": "AutoModelForCausalLM",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "MarianMTModel": "AutoModelForSeq2SeqLM",
    "PegasusForConditionalGeneration": "AutoModelForSeq2SeqLM",
}


def exported_model(run: Run) -> ExportedModel:
    """Return the class and the weights of a run; raise `UserError` if no class is equal."""
    model: Any = run.model
    recipe: Any = run.recipe
    vocabulary: Any = run.vocabulary
    if isinstance(model, GPT):
        return _gpt(run, model)
    if isinstance(model, TokenClassifier):
        return _classifier(run, model)
    if isinstance(model, MaskedLM):
        return _masked(run, model)
    if isinstance(model, PieceTagger):
        return _tagger(run, model)
    if isinstance(model, EncoderDecoder):
        cls = seq2seq_model(recipe.model, vocabulary.sizes.entries)
        limit = {"max_new_tokens": model.max_target, "num_beams": max(1, recipe.search.beam)}
        return ExportedModel(
            cls, seq2seq_weights(model, recipe.model), vocabulary, generation=limit
        )
    raise Requirements("hf").refuse(
        f"task = {recipe.task!r} with model.kind = {recipe.model.kind!r}"
    )


def _gpt(run: Any, model: GPT) -> ExportedModel:
    vocabulary, special = run.vocabulary, run.vocabulary.special
    cls = gpt_model(run.recipe.model, vocabulary.sizes.entries)
    weights = stored_weights(cls, vocabulary.sizes.entries, model.state_dict())
    if run.recipe.task == "answer":
        limit = run.predictor.max_answer_tokens
        generation = {"max_new_tokens": limit, "min_new_tokens": 1}
        return ExportedModel(cls, weights, vocabulary, (), (special.mask,), generation)
    start = run.predictor.stream.start
    generation = {"max_new_tokens": run.search.max_tokens or model.max_length // 2}
    return ExportedModel(cls, weights, vocabulary, (start,), (), generation)


def _classifier(run: Any, model: TokenClassifier) -> ExportedModel:
    config, vocabulary = run.recipe.model, run.vocabulary.inputs.tokens
    needs = Requirements("hf")
    needs.require("model.pooling.kind", config.pooling.kind, "first", where="BERT")
    size, width, labels = vocabulary.sizes.entries, config.width, run.vocabulary.names
    cls = bert_model(
        config.encoder,
        "model.encoder",
        width,
        size,
        max(1, config.segments),
        "BertForSequenceClassification",
    )
    state = model.state_dict()
    weights = stored_weights(cls, size, state)
    # The pooler of BERT has a tanh, which Harken's does not have; it is linear near 0.
    weights["bert.pooler.dense.weight"] = TANH_SCALE * torch.eye(width)
    weights["bert.pooler.dense.bias"] = torch.zeros(width)
    weights["classifier.weight"] = state["classifier.weight"] / TANH_SCALE
    weights["classifier.bias"] = state["classifier.bias"]
    kind = "multi_label_classification" if run.recipe.is_multiple else "single_label_classification"
    cls = with_labels(cls, labels, problem_type=kind)
    end = vocabulary.special.end
    start = end if vocabulary.start is None else vocabulary.start
    return ExportedModel(cls, weights, vocabulary, (start,), (end,))


def _masked(run: Any, model: MaskedLM) -> ExportedModel:
    """Return a token classifier whose labels are words.

    The head of `BertForMaskedLM` has an activation and a norm, which Harken's does not have.
    """
    config, vocabulary = run.recipe.model, run.vocabulary
    size = vocabulary.sizes.entries
    cls = bert_model(
        config.encoder, "model.encoder", config.width, size, 1, "BertForTokenClassification"
    )
    state = model.state_dict()
    weights = stored_weights(cls, size, state)
    weights["classifier.weight"] = state["embedding.weight"] @ state["out.weight"]
    weights["classifier.bias"] = torch.zeros(size)
    names = vocabulary.token_texts(range(size))
    end = vocabulary.special.end
    return ExportedModel(with_labels(cls, names), weights, vocabulary, (end,), (end,))


def _tagger(run: Any, model: PieceTagger) -> ExportedModel:
    """Return a token classifier; its segments are the case patterns of words, 0 is none."""
    config, words = run.recipe.model, run.vocabulary
    state = model.state_dict()
    cases = state["cases.weight"]
    cls = bert_model(
        config.encoder,
        "model.encoder",
        config.encoder.width,
        words.pieces.rows,
        1 + len(cases),
        "BertForTokenClassification",
    )
    encoder = {name.removeprefix("encoder."): tensor for name, tensor in state.items()}
    segment = encoder.get("segment.weight", cases.new_zeros(1, cases.shape[1]))[:1]
    encoder["segment.weight"] = torch.cat((segment, segment + cases))
    weights = stored_weights(cls, words.pieces.rows, encoder)
    weights |= {name: state[name] for name in ("classifier.weight", "classifier.bias")}
    return ExportedModel(with_labels(cls, words.tags), weights)


def with_labels(cls: HuggingFaceClass, labels: Any, **settings: Any) -> HuggingFaceClass:
    """Return the class with the names of its labels."""
    id2label = {str(index): label for index, label in enumerate(labels)}
    label2id = {label: index for index, label in enumerate(labels)}
    named = {"id2label": id2label, "label2id": label2id, **settings}
    return replace(cls, settings={**cls.settings, **named})


def stored_weights(
    cls: HuggingFaceClass, vocabulary: int, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors of the file; biases and segments that the model lacks are zeros."""
    assert cls.config is not None
    architecture = ARCHITECTURES[cls.model_type]
    stored: dict[str, Tensor] = {}
    for name, source in architecture.sources(cls.config, vocabulary):
        head = source.name.startswith("lm_head")
        file_name = source.name if head else architecture.prefix + source.name
        tensor = stored.setdefault(file_name, torch.zeros(source.shape))
        if name in state:
            source.write(state[name], tensor)
    return stored


def _methods(model: Any, loaded: Any) -> dict[str, Callable[..., Any]]:
    """Return the methods of `model`, computed by a class of `transformers`."""
    if isinstance(model, GPT):
        return causal_methods(loaded)
    if isinstance(model, EncoderDecoder):
        return seq2seq_methods(loaded)

    def tokens_to_logits(tokens: Tensor, present: Tensor, segments: Tensor | None = None) -> Tensor:
        output = loaded(tokens, attention_mask=present.long(), token_type_ids=segments)
        logits: Tensor = output.logits
        return logits

    def blanks_to_logits(tokens: Tensor, present: Tensor, blanks: Tensor) -> Tensor:
        masked = add_end_tokens(tokens.masked_fill(blanks, model.mask), present, model.end)
        padded = F.pad(present, (END_TOKENS, 0), value=True)
        return tokens_to_logits(masked, padded)[:, 1:-1][blanks]

    def words_to_logits(words: Tensor, *spelled: Tensor) -> Tensor:
        rows = model.join_pieces(*spelled)
        cases = F.pad(words + 1, (0, 1)).gather(1, rows.word_of)
        logits = tokens_to_logits(rows.tokens, rows.present, cases)
        return logits.gather(1, rows.first[..., None].expand(-1, -1, logits.shape[-1]))

    if isinstance(model, MaskedLM):
        return {"forward": blanks_to_logits}
    if isinstance(model, PieceTagger):
        return {"forward": words_to_logits}
    return {"forward": tokens_to_logits}


def _token_ids(run: Any, exported: ExportedModel) -> dict[str, int]:
    if exported.vocabulary is None:
        return {"pad_token_id": run.vocabulary.pieces.sep}
    special, start = exported.vocabulary.special, exported.vocabulary.start
    ids = {
        "pad_token_id": special.pad,
        "eos_token_id": special.end,
        "bos_token_id": special.end if start is None else start,
    }
    if isinstance(run.model, EncoderDecoder):
        ids["decoder_start_token_id"] = special.end
    return ids


def _max_length(cls: HuggingFaceClass) -> int:
    names = ("n_positions", "max_position_embeddings")
    return next(int(cls.settings[name]) for name in names if name in cls.settings)
