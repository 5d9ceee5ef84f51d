"""Small untrained runs of models that formats can represent."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harken.run import Run, load
from small_models import add_noise
from untrained import task_recipe, untrained_run

GPT = ("model.layers=2", "model.width=24", "model.max_length=90", "model.attention.heads=3")
LM = (*GPT, "search.max_tokens=12")
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
    "model.decoder.max_length=30",
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

# name: task, overrides
CASES: dict[str, tuple[str, Sequence[str]]] = {
    "lm gpt2": ("lm", LM),
    "lm gpt2 biases": (
        "lm",
        (
            *LM,
            "encode={kind='bpe',vocab_size=283}",
            "model.attention.bias=true",
            "model.tie_embeddings=false",
            "model.feedforward={activation='relu',inner=31,bias=false}",
        ),
    ),
    "answer gpt2": ("answer", (*GPT, "encode.vocab_size=291")),
    "answer neox": ("answer", (*GPT, *ROTARY, "encode.vocab_size=291")),
    "answer neox parallel": (
        "answer",
        (*GPT, "model.position={kind='rotary',fraction=0.25}", "model.norm.place='parallel'"),
    ),
    "answer llama": ("answer", (*GPT, *LLAMA, "encode={kind='words',vocab_size=50}")),
    "lm llama": ("lm", (*LM, *LLAMA, "encode={kind='unigram',vocab_size=300}")),
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


def noise(model: nn.Module) -> None:
    """Set large random weights, so that logits and outputs differ between inputs."""
    add_noise(model, seed=3, strength=1.0)


@cache
def small_run(name: str, folder: Path) -> Run:
    """Return a run of `CASES`."""
    task, overrides = CASES[name]
    path = folder / name.replace(" ", "-")
    if not path.exists():
        recipe: Any = task_recipe(task, folder, overrides)
        untrained_run(recipe, path, noise)
    torch.manual_seed(0)
    return load(path, "cpu")
