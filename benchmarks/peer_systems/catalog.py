"""The rows of `peers.py` and the systems of each row. Imports no library that is compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# What to install for a package that a system needs.
PACKAGES = {
    "transformers": "transformers",
    "x_transformers": "x-transformers",
    "ctranslate2": "ctranslate2",
    "kaldi_native_fbank": "kaldi-native-fbank",
}


@dataclass(frozen=True)
class System:
    """One of the systems of a `Row`, which runs in a process of its own.

    `start` names a function, such as "gpt.plain": a file of this folder and a function in it. It
    gets the sizes of the row and `options`, and returns a function that does one piece of work and
    returns the number of units done.
    """

    name: str
    start: str
    options: Mapping[str, object] = field(default_factory=dict)
    heap: bool = False  # use the allocator settings of `harken.training.runtime`, as Harken does
    requires: tuple[str, ...] = ()  # packages
    pytorch: bool = True  # whether the process uses PyTorch


@dataclass(frozen=True)
class Row:
    """Systems that do the same work; the first one is Harken."""

    name: str
    title: str
    unit: str  # of work
    systems: tuple[System, ...]
    sizes: Mapping[str, object]
    small: Mapping[str, object]  # sizes of a quick test


# An encoder-decoder; `layers` of the encoder, and of the decoder.
TRANSLATOR = {"layers": 6, "width": 512, "heads": 8, "inner": 2048, "entries": 8000}
SMALL_TRANSLATOR = {"layers": 1, "width": 32, "heads": 2, "inner": 64, "entries": 400}

MACHINE = {
    "gflops": System("matrix product", "machine.matmul"),
    "gb_per_s": System("copy", "machine.copy"),
}


def with_heap(*systems: System) -> tuple[System, ...]:
    """Return each system twice: as it is, and with Harken's allocator settings."""
    return tuple(
        replace(system, name=system.name + suffix, heap=heap)
        for system in systems
        for suffix, heap in (("", False), (" + allocator", True))
    )


def gpt_row(dropout: float) -> Row:
    options = {"dropout": dropout}
    only_residual = {**options, "attention_dropout": 0.0}
    both = {**options, "attention_dropout": dropout}
    variants: tuple[System, ...] = ()
    if dropout:
        variants = (
            System("Harken, attention dropout", "gpt.harken", both, heap=True),
            *with_heap(System("plain PyTorch, no attention dropout", "gpt.plain", only_residual)),
        )
    return Row(
        name=f"gpt-dropout-{dropout}",
        title=f"GPT training step, dropout {dropout}",
        unit="step",
        systems=(
            System("Harken", "gpt.harken", only_residual, heap=True),
            *variants,
            *with_heap(
                System("plain PyTorch", "gpt.plain", both),
                System("Hugging Face GPT-2", "gpt.gpt2", options, requires=("transformers",)),
                System(
                    "x-transformers", "gpt.x_transformers", options, requires=("x_transformers",)
                ),
                System("nn.TransformerEncoder", "gpt.encoder", options),
            ),
        ),
        sizes={"layers": 4, "width": 256, "heads": 4, "length": 128, "batch": 128, "entries": 65},
        small={"layers": 1, "width": 64, "heads": 1, "length": 16, "batch": 4, "entries": 65},
    )


def decoding_row(beam: int, batch: int) -> Row:
    search = {"beam": beam, "batch": batch}
    transformers, ctranslate2 = ("transformers",), ("transformers", "ctranslate2")
    return Row(
        name=f"decode-beam-{beam}-batch-{batch}",
        title=f"Decoding with {f'beam {beam}' if beam > 1 else 'greedy search'}, batch {batch}",
        unit="step",
        systems=(
            System("Harken", "decoding.harken", search, heap=True),
            *with_heap(
                System(
                    "Hugging Face generate",
                    "decoding.generate_marian",
                    search,
                    requires=transformers,
                )
            ),
            *(
                System(
                    f"CTranslate2 {precision}",
                    "ctranslate2_search.search",
                    {**search, "precision": precision},
                    requires=ctranslate2,
                    pytorch=False,
                )
                for precision in ("float32", "int8")
            ),
        ),
        sizes={**TRANSLATOR, "steps": 64},
        small={**SMALL_TRANSLATOR, "steps": 4},
    )


def translation_row() -> Row:
    options = {"dropout": 0.1}
    return Row(
        name="translation",
        title="Training of an encoder-decoder on sentences of unequal lengths",
        unit="target token",
        systems=(
            System("Harken", "translation.harken", options, heap=True),
            *with_heap(
                *(
                    System(
                        f"Hugging Face Marian, {order}",
                        "translation.train_marian",
                        {**options, "order": order},
                        requires=("transformers",),
                    )
                    for order in ("random", "buckets")
                )
            ),
        ),
        sizes={**TRANSLATOR, "batch_tokens": 1024, "batches": 2},
        small={**SMALL_TRANSLATOR, "batch_tokens": 256, "batches": 1},
    )


def conformer_row() -> Row:
    requires = ("transformers",)
    return Row(
        name="conformer",
        title="Forward and backward pass of a Conformer block",
        unit="pass",
        systems=(
            System("Harken", "layers.conformer", {"of_harken": True}, heap=True, requires=requires),
            *with_heap(
                System(
                    "Wav2Vec2ConformerEncoderLayer",
                    "layers.conformer",
                    {"of_harken": False},
                    requires=requires,
                )
            ),
        ),
        sizes={"batch": 16, "length": 200, "width": 256, "heads": 4},
        small={"batch": 2, "length": 12, "width": 16, "heads": 2},
    )


def tagger_row() -> Row:
    return Row(
        name="tagger",
        title="Training of an LSTM tagger on sentences of unequal lengths",
        unit="word",
        systems=(
            System("Harken", "layers.harken_tagger", heap=True),
            *with_heap(
                *(
                    System(f"nn.LSTM, {order}", "layers.plain_tagger", {"order": order})
                    for order in ("random", "buckets")
                )
            ),
        ),
        sizes={"entries": 8000, "width": 256, "hidden": 256, "batch_tokens": 2048, "batches": 4},
        small={"entries": 50, "width": 16, "hidden": 8, "batch_tokens": 256, "batches": 1},
    )


def predict_row(task: str) -> Row:
    return Row(
        name=f"predict-{task}",
        title=f"harken predict, {task}: lines of a model trained for a few steps",
        unit="line",
        systems=(System("Harken", "commands.predict_lines", {"task": task}),),
        sizes={"steps": 200, "lines": 256},
        small={"steps": 1, "lines": 5},
    )


COMMAND_ROWS = (
    Row(
        name="start",
        title="harken predict: from process start to the first answer",
        unit="start",
        systems=(
            System("Harken", "commands.predict_line", {"task": "translate"}),
            System(
                "import torch, read the weights", "commands.load_weights", {"task": "translate"}
            ),
        ),
        sizes={"steps": 200},
        small={"steps": 1},
    ),
    Row(
        name="help",
        title="harken --help: from process start to the first line",
        unit="start",
        systems=(
            System("Harken", "commands.show_help", pytorch=False),
            System("python", "commands.start_python", pytorch=False),
        ),
        sizes={},
        small={},
    ),
    predict_row("translate"),
    predict_row("answer"),
)

ENCODING_ROWS = (
    Row(
        name="tokenization",
        title="Tokenization with byte-pair encoding",
        unit="line",
        systems=(
            System("Harken", "encoding.harken_tokens"),
            System("tokenizers.encode_batch", "encoding.tokenizers_tokens"),
        ),
        sizes={"lines": 20_000},
        small={"lines": 100},
    ),
    Row(
        name="filterbank",
        title="Log-mel features, 16 kHz, 80 bands",
        unit="second of audio",
        systems=(
            System(
                "Harken",
                "encoding.features",
                {"library": "harken"},
                heap=True,
                requires=("kaldi_native_fbank",),
            ),
            System(
                "kaldi-native-fbank, one thread",
                "encoding.features",
                {"library": "kaldi"},
                requires=("kaldi_native_fbank",),
            ),
        ),
        sizes={"utterances": 48},
        small={"utterances": 2},
    ),
)

ROWS = {
    row.name: row
    for row in (
        gpt_row(0.0),
        gpt_row(0.1),
        translation_row(),
        conformer_row(),
        tagger_row(),
        *(decoding_row(beam, batch) for beam in (1, 5) for batch in (1, 8, 64)),
        *COMMAND_ROWS,
        *ENCODING_ROWS,
    )
}
