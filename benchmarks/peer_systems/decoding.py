"""Decoding with an encoder-decoder of random weights: all systems run the same number of steps.

The architecture is that of Marian: post-norm, ReLU, sinusoids, biases, one embedding table. The
weights are random and the end token has a probability of almost 0, so that no search ends early.
"""

import atexit
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import Seq2SeqStepper
from harken.encode.vocabulary import END, VocabularySizes
from harken.layers.inference import optimized_for_inference
from peer_systems.steps import read_recipe

FIRST = 4  # of the tokens in sources
END_OF_MARIAN = 0


class Sizes(NamedTuple):
    layers: int  # of the encoder, and of the decoder
    width: int
    heads: int
    inner: int  # of the feed-forward layers
    entries: int  # of the vocabulary, with the end token
    steps: int


def random_sources(batch: int, entries: int) -> list[list[int]]:
    """Return sentences of 10 to 40 tokens, the longest first, as Harken sorts them."""
    generator = np.random.default_rng(0)
    lengths = sorted(generator.integers(10, 41, size=batch).tolist(), reverse=True)
    return [generator.integers(FIRST, entries, size=length).tolist() for length in lengths]


def padded(sources: list[list[int]], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [torch.tensor(source) for source in sources]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
    lengths = torch.tensor([len(source) for source in sources])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


def model_settings(sizes: Sizes, dropout: float) -> list[str]:
    """Return the recipe settings for the architecture of Marian."""
    stack = [
        f"layers={sizes.layers}",
        "max_length=512",
        f"attention.heads={sizes.heads}",
        "attention.bias=true",
        "position.kind=sinusoid",
        "feedforward.activation=relu",
        f"feedforward.inner={sizes.inner}",
        "norm.place=post",
        f"dropout={dropout}",
    ]
    return [
        *(f"model.{side}.{setting}" for side in ("encoder", "decoder") for setting in stack),
        f"model.decoder.width={sizes.width}",
        "model.share_embeddings=true",
        "model.dropout=0.0",
    ]


def forbid_end(model: Any) -> None:
    """Give the end token a logit of about -30, by the offset of the last norm of the decoder.

    The states are x + 1, where x has mean 0. The embedding of the end token is a negative constant;
    those of all other tokens get mean 0, so that the offset does not change their logits.
    """
    last_norm = [m for m in model.decoder.modules() if isinstance(m, nn.LayerNorm)][-1]
    table = model.decoder.embedding.weight
    with torch.no_grad():
        last_norm.bias.fill_(1.0)
        table -= table.mean(dim=1, keepdim=True)
        table[END] = -30.0 / table.shape[1]


def harken(*, beam: int, batch: int, **numbers: int) -> Callable[[], float]:
    sizes = Sizes(**numbers)
    recipe, task = read_recipe("translate", model_settings(sizes, 0.0))
    model = task.build(recipe, VocabularySizes(sizes.entries)).eval()
    forbid_end(model)
    stepper, search = Seq2SeqStepper(model, END), SearchConfig(beam=beam)
    source, present = padded(random_sources(batch, sizes.entries), 0)
    # As in `Run.predict`; like CTranslate2, pack the weights once, before the first search.
    packed = ExitStack()
    packed.enter_context(optimized_for_inference(model))
    atexit.register(packed.close)

    def run() -> float:
        outputs = generate(stepper, source, present, search=search, end=END, max_tokens=sizes.steps)
        assert all(len(beams[0].tokens) == sizes.steps for beams in outputs)
        return sizes.steps

    return run


def marian(sizes: Sizes, dropout: float) -> Any:
    """Return a model of Hugging Face with random weights."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=sizes.entries + 1,  # Marian has a padding token
        d_model=sizes.width,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        encoder_ffn_dim=sizes.inner,
        decoder_ffn_dim=sizes.inner,
        activation_function="relu",
        dropout=dropout,
        max_position_embeddings=512,
        scale_embedding=True,
        pad_token_id=sizes.entries,
        decoder_start_token_id=sizes.entries,
        eos_token_id=END_OF_MARIAN,
        forced_eos_token_id=None,
        num_beams=1,
    )
    return MarianMTModel(config)


def marian_without_end(sizes: Sizes) -> Any:
    model = marian(sizes, 0.0).eval()
    for token in (END_OF_MARIAN, sizes.entries):
        model.final_logits_bias[0, token] = -1e4
    return model


def generate_marian(*, beam: int, batch: int, **numbers: int) -> Callable[[], float]:
    """Run `generate` of Hugging Face."""
    sizes = Sizes(**numbers)
    model = marian_without_end(sizes)
    source, present = padded(random_sources(batch, sizes.entries), sizes.entries)
    inputs = {"input_ids": source, "attention_mask": present.long()}

    def run() -> float:
        with torch.inference_mode():
            output = model.generate(
                **inputs, max_new_tokens=sizes.steps, num_beams=beam, do_sample=False
            )
        assert output.shape == (batch, sizes.steps + 1)
        return sizes.steps

    return run


def print_for_ctranslate2() -> None:
    """Convert the model of `generate_marian` for CTranslate2; print its folder and the sources."""
    from ctranslate2.converters.transformers import MarianMTLoader

    arguments = json.loads(sys.argv[1])
    sizes = Sizes(**arguments["sizes"])
    torch.manual_seed(0)
    loader = MarianMTLoader()
    spec = loader.get_model_spec(marian_without_end(sizes))
    tokens = ["</s>", "<unk>", *(f"t{number}" for number in range(2, sizes.entries))]
    loader.set_vocabulary(spec, tokens)
    spec.config.eos_token = spec.config.decoder_start_token = "</s>"
    spec.config.unk_token = "<unk>"
    spec.validate()
    spec.optimize()
    folder = tempfile.mkdtemp()
    spec.save(folder)
    sources = random_sources(arguments["batch"], sizes.entries)
    print(json.dumps([folder, [[tokens[token] for token in source] for source in sources]]))
