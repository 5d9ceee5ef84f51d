"""Small untrained runs of models that formats can represent."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harken.run import Run, load
from small_models import add_noise
from untrained import task_recipe, untrained_run

GPT = (
    "model.layers=2",
    "model.width=24",
    "model.max_length=90",
    "model.attention.heads=3",
    "search.max_tokens=11",
)
ROTARY = ("model.position={kind='rotary'}",)
LLAMA = (
    "model.position={kind='rotary',base=500.0}",
    "model.norm.kind='rms'",
    "model.feedforward.activation='swiglu'",
    "model.attention.heads=4",
    "model.attention.kv_heads=2",
    "model.attention.head_width=10",
    "model.attention.key_width=10",
)
TRANSLATE = (
    "encode.vocab_size=280",
    "model.encoder.layers=2",
    "model.encoder.max_length=70",
    "model.encoder.attention.heads=3",
    "model.decoder.layers=3",
    "model.decoder.width=24",
    "model.decoder.attention.heads=2",
    "model.decoder.max_length=19",
)
SINUSOID = (
    "model.encoder.position={kind='sinusoid'}",
    "model.decoder.position={kind='sinusoid'}",
)
POST = ("model.encoder.norm.place='post'", "model.decoder.norm.place='post'")
BERT = (
    "model.encoder={kind='transformer',layers=2,max_length=70,embedding_norm=true}",
    "model.encoder.norm.place='post'",
    "model.encoder.feedforward.activation='gelu'",
    "model.encoder.attention.heads=3",
)

# name: task and overrides of the recipe
CASES: dict[str, tuple[str, Sequence[str]]] = {
    "lm gpt2": ("lm", GPT),
    "lm gpt2 biases": (
        "lm",
        (
            *GPT,
            "encode={kind='bpe',vocab_size=283}",
            "model.attention.bias=true",
            "model.tie_embeddings=false",
            "model.feedforward={activation='relu',inner=31,bias=false}",
        ),
    ),
    "answer gpt2": (
        "answer",
        (*GPT, "model.position={kind='learned'}", "encode.vocab_size=291"),
    ),
    "answer neox": ("answer", (*GPT, *ROTARY, "encode.vocab_size=291")),
    "answer neox parallel": (
        "answer",
        (*GPT, "model.position={kind='rotary',fraction=0.25}", "model.norm.place='parallel'"),
    ),
    "answer llama": ("answer", (*GPT, *LLAMA, "encode={kind='words',vocab_size=50}")),
    "lm llama": ("lm", (*GPT, *LLAMA, "encode={kind='unigram',vocab_size=300}")),
    "translate marian": ("translate", (*TRANSLATE, *SINUSOID, *POST)),
    "translate pegasus": ("translate", (*TRANSLATE, *SINUSOID)),
    "translate rotary": ("translate", TRANSLATE),
    "translate learned": (
        "translate",
        (
            *TRANSLATE,
            "model.encoder.position={kind='learned'}",
            "model.decoder.position={kind='learned'}",
            "model.share_embeddings=false",
        ),
    ),
    "classify bert": (
        "classify",
        (
            "encode={kind='tokens'}",
            "model={kind='tokens',width=24}",
            "encode.tokenizer.vocab_size=277",
            *BERT,
        ),
    ),
    "fill bert": ("fill", ("model={kind='masked',width=24}", *BERT)),
}


SUPPORTED = {
    "hf": [name for name in CASES if name not in ("translate rotary", "translate learned")],
    "ctranslate2": [name for name in CASES if name.split()[0] in ("lm", "answer", "translate")],
}


def small_run(name: str, folder: Path) -> Run:
    """Return a run of `CASES` with random weights, whose outputs differ between inputs."""
    task, overrides = CASES[name]
    path = folder / name.replace(" ", "-")
    if not path.exists():
        recipe: Any = task_recipe(task, folder, overrides)
        strength = 3.0 if "marian" in name else 2.0
        untrained_run(recipe, path, partial(add_noise, seed=3, strength=strength))
    return load(path, "cpu")
