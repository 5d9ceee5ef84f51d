"""What `harken new` knows of each task: the files that it takes and the keys that a recipe shows.

A template follows the lines of [data] that name the files. `{model.…}` is the task's own default,
so that it is written in one place; a plain number is one that differs on purpose.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harken.cli.suggest import (
    check_sentences,
    check_translations,
    suggest_pairs,
    suggest_speech,
    suggest_text,
)

ANSWER = """
[encode]
kind = "words"    # or "bpe", "unigram", "characters"
size = 20000    # so many that a name is a token or two; leave out with "characters"

[model]
layers = {model.layers}
width = {model.width}
length = {model.length}    # tokens of a text that the model sees at once
position.kind = "rotary"    # or "learned", "sinusoid", "none"
attention.heads = 4
attention.score.kind = "{model.attention.score.kind}"    # or "dot", "synthesizer" (not with rotary)

[training.pretrain]
steps = 1000
batch_tokens = 2048
questions = 0.02    # share of each batch that is training questions
views.corrupted = 0.0    # share of texts with a hole to fill
views.turned = 1.0    # of those that start anywhere behind their head
views.hidden = 0.5    # of the tokens behind the head that are hidden
optimiser.rate = 0.01
optimiser.rest.rate = 0.003
evaluate_every = 70    # steps; the best on dev is kept; 0: the last

[training.finetune]
steps = 0    # on questions alone, after the reading
"""

TAG = """\
column = "{data.column}"    # or "xpos", the language's own tags

[model]
width = {model.width}
body.kind = "{model.body.kind}"    # or "stride2", "gated", "transformer", or
# "gru", "tanh" with body.direction = "both"
dropout = {model.dropout}

[training.tags]
steps = {training.tags.steps}
batch_tokens = {training.tags.batch_tokens}    # words of one step
evaluate_every = {training.tags.evaluate_every}    # steps; the best on dev is kept; 0: the last
"""

FILL = """
[encode]
least = {encode.least}    # times that a word must be met to be known
size = {encode.size}    # words at most

[model]
kind = "{model.kind}"    # an RNN from each side; or "masked": a Transformer
width = {model.width}
dropout = {model.dropout}

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}    # words of one step
evaluate_every = {training.evaluate_every}    # steps; the best on dev is kept; 0: the last
"""

LM = """\
documents = "{data.documents}"    # or "lines": every line is a text of its own

[encode]
kind = "{encode.kind}"    # or "bpe", "unigram", "words"

[model]
kind = "{model.kind}"    # or "rnn", "cnn": these take only width and dropout of what follows
layers = {model.layers}
width = {model.width}
length = {model.length}    # tokens that the model sees at once
dropout = {model.dropout}
position.kind = "{model.position.kind}"    # or "rotary", "sinusoid", "alibi", "none"

[training]
steps = {training.steps}
batch_tokens = {training.batch_tokens}
evaluate_every = {training.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
temperature = {search.temperature}    # below 1 likelier, above 1 bolder; or beam = 4 in its place
most = {search.most}    # tokens of a continuation
"""

CAPTION = """
[encode.pictures]
kind = "{encode.pictures.kind}"
columns = {encode.pictures.columns}    # files are scaled to this size, an array has it
rows = {encode.pictures.rows}
channels = {encode.pictures.channels}    # 1 for grey

[encode.units]
kind = "{encode.units.kind}"    # or "bpe", "unigram", "characters"

[model]
front.kind = "{model.front.kind}"    # or "patch"
encoder.layers = {model.encoder.layers}    # of attention between places: 2 or more where the
decoder.kind = "{model.decoder.kind}"    # is "transformer"
width = {model.width}

[training.captions]
steps = {training.captions.steps}
batch_captions = {training.captions.batch_captions}
evaluate_every = {training.captions.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
beam = {search.beam}
"""

TRANSCRIBE = """
[encode.filterbank]
rate = {encode.filterbank.rate}    # samples per second, as most files have; others are resampled
bins = {encode.filterbank.bins}    # mel bands; 40 are enough for a rate of 8000
normalise = "{encode.filterbank.normalise}"    # "level" for short words

[encode.units]
kind = "{encode.units.kind}"    # "words" for a closed vocabulary; or "characters", "bpe", "unigram"

[model]
encoder.kind = "{model.encoder.kind}"    # or "transformer", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
encoder.layers = {model.encoder.layers}
width = {model.width}
front.channels = {model.front.channels}
# decoder.kind = "transformer"    # or "rnn": write by attention too, or alone with ctc = false

[training.speech]
steps = {training.speech.steps}
batch_frames = {training.speech.batch_frames}    # frames of one step
evaluate_every = {training.speech.evaluate_every}    # steps; the best on dev is kept; 0: the last
speeds = [0.9, 1.0, 1.1]    # speed perturbation; [1.0] for none
masks.time_masks = {training.speech.masks.time_masks}    # SpecAugment, for sounds of 2 s or more
masks.frequency_masks = {training.speech.masks.frequency_masks}

[search]
beam = {search.beam}
"""

TRANSLATE = """\
target_language = "{data.target_language}"    # whose rules part words where BLEU is counted

[encode]
kind = "{encode.kind}"    # or "unigram", "words", "characters"
size = {encode.size}    # of both languages together; leave out with "characters"

[model]
encoder.kind = "{model.encoder.kind}"    # or "stride2", "gated", or
# "lstm", "gru", "tanh" with encoder.direction = "both"
decoder.kind = "{model.decoder.kind}"    # or "rnn", which looks back by attention too
decoder.width = {model.decoder.width}

[training.pairs]
steps = {training.pairs.steps}
batch_tokens = {training.pairs.batch_tokens}
evaluate_every = {training.pairs.evaluate_every}    # steps; the best on dev is kept; 0: the last

[search]
beam = {search.beam}
length_penalty = {search.length_penalty}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """One task."""

    calls: Mapping[str, Sequence[str]]  # how the files of a call are named -> their keys of [data]
    template: str
    examples: str  # what a split holds, in words
    stage: str | None = None  # whose `evaluate_every` depends on its steps
    count: Callable[[Any], int] = len  # of them in a split
    guess: Callable[[Sequence[Path]], Mapping[str, str]] = lambda files: {}  # keys from file names
    check: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # notes for the user
    overrides: Callable[[Sequence[Path]], Sequence[str]] = lambda files: ()  # from the files
    suggest: Callable[[Any, Mapping[str, Any]], Mapping[str, object]] = (
        lambda recipe, splits: {}
    )  # overrides from the examples


def _language(files: Sequence[Path]) -> Mapping[str, str]:
    """The `de` of a second file `train.de`; other names say nothing."""
    found = re.search(r"\.([a-z]{2})(\.gz|\.zst)?$", files[1].name) if len(files) > 1 else None
    return {"target_language": found[1]} if found else {}


def _sizes(files: Sequence[Path]) -> list[str]:
    """Those of the array that stands beside the captions; without one, pictures are scaled."""
    from harken.formats.arrays import read_pictures

    beside = files[0].with_suffix(".npz")
    if not beside.is_file():
        return []
    array = read_pictures(beside)
    sizes = {"columns": array.columns, "rows": array.rows, "channels": array.channels}
    return [f"encode.pictures.{name}={size}" for name, size in sizes.items()]


LAYOUTS = {
    "answer": Layout(
        calls={
            "texts.txt questions.tsv": ("read", "train"),
            "texts.txt train.tsv dev.tsv": ("read", "train", "dev"),
            "texts.txt train.tsv dev.tsv test.tsv": ("read", "train", "dev", "test"),
        },
        template=ANSWER,
        examples="questions",
    ),
    "tag": Layout(
        calls={
            "train.conllu": ("train",),
            "train.conllu dev.conllu": ("train", "dev"),
            "train.conllu dev.conllu test.conllu": ("train", "dev", "test"),
        },
        template=TAG,
        examples="sentences",
        stage="training.tags",
        check=check_sentences,
    ),
    "fill": Layout(
        calls={
            "text.txt": ("train",),
            "train.txt dev.txt": ("train", "dev"),
            "train.txt dev.txt test.txt": ("train", "dev", "test"),
        },
        template=FILL,
        examples="lines",
        stage="training",
    ),
    "lm": Layout(
        calls={
            "text.txt": ("train",),
            "train.txt dev.txt": ("train", "dev"),
            "train.txt dev.txt test.txt": ("train", "dev", "test"),
        },
        template=LM,
        examples="characters",
        stage="training",
        suggest=suggest_text,
        count=lambda pieces: sum(map(len, pieces)) + len(pieces) - 1,  # with what parts them
    ),
    "caption": Layout(
        calls={
            "captions.jsonl": ("train",),
            "captions.jsonl dev-captions.jsonl": ("train", "dev"),
            "captions.jsonl dev-captions.jsonl test-captions.jsonl": ("train", "dev", "test"),
        },
        template=CAPTION,
        examples="pictures",
        stage="training.captions",
        overrides=_sizes,
    ),
    "transcribe": Layout(
        calls={
            "train.jsonl": ("train",),
            "train.jsonl dev.jsonl": ("train", "dev"),
            "train.jsonl dev.jsonl test.jsonl": ("train", "dev", "test"),
        },
        template=TRANSCRIBE,
        examples="utterances",
        stage="training.speech",
        suggest=suggest_speech,
    ),
    "translate": Layout(
        calls={
            "pairs.tsv": ("train",),
            "train.en train.de": ("train.source", "train.target"),
            "train.en train.de dev.en dev.de": (
                "train.source",
                "train.target",
                "dev.source",
                "dev.target",
            ),
            "train.en train.de dev.en dev.de test.en test.de": (
                "train.source",
                "train.target",
                "dev.source",
                "dev.target",
                "test.source",
                "test.target",
            ),
        },
        template=TRANSLATE,
        examples="pairs",
        stage="training.pairs",
        guess=_language,
        check=check_translations,
        suggest=suggest_pairs,
    ),
}
