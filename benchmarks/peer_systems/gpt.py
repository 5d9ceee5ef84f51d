"""A training step of a GPT with learned positions and tied embeddings, on a fixed random batch.

All systems use fused AdamW and clip the gradients. Harken runs its training loop.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harken.encode.vocabulary import VocabularySizes
from peer_systems.steps import adamw, harken_step, plain_step, read_recipe, repeat_batch


class Sizes(NamedTuple):
    layers: int
    width: int
    heads: int
    length: int
    batch: int
    entries: int  # of the vocabulary


def harken(*, dropout: float, attention_dropout: float, **sizes: int) -> Callable[[], float]:
    layers, width, heads, length, batch, entries = Sizes(**sizes)
    settings = [
        "model.kind=gpt",
        f"model.layers={layers}",
        f"model.width={width}",
        f"model.max_length={length}",
        f"model.attention.heads={heads}",
        f"model.attention.dropout={attention_dropout}",
        f"model.dropout={dropout}",
        *adamw("training"),
    ]
    recipe, task = read_recipe("lm", settings)
    vocabulary = VocabularySizes(entries)
    model = task.build(recipe, vocabulary)
    micro_batch = task.dummy_batch(recipe, vocabulary, {"B": batch, "T": length})
    step = harken_step(recipe, model, repeat_batch(recipe.training, micro_batch))

    def run() -> float:
        step()
        return 1.0

    return run


class Block(nn.Module):
    """A block of nanoGPT without biases, its default in training."""

    def __init__(self, sizes: Sizes, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        width = sizes.width
        self.heads, self.attention_dropout = sizes.heads, attention_dropout
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.feedforward_norm = nn.LayerNorm(width, bias=False)
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)
        self.up_proj = nn.Linear(width, 4 * width, bias=False)
        self.down_proj = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor) -> Tensor:
        batch, length, width = states.shape
        projections = self.qkv_proj(self.attention_norm(states)).split(width, dim=2)
        qkv = [rows.view(batch, length, self.heads, -1).transpose(1, 2) for rows in projections]
        heads = F.scaled_dot_product_attention(
            *qkv, is_causal=True, dropout_p=self.attention_dropout if self.training else 0.0
        )
        attended = heads.transpose(1, 2).contiguous().view(batch, length, width)
        states = states + self.dropout(self.out_proj(attended))
        hidden = F.gelu(self.up_proj(self.feedforward_norm(states)))
        return states + self.dropout(self.down_proj(hidden))


class PlainGPT(nn.Module):
    """The architecture of nanoGPT."""

    def __init__(self, sizes: Sizes, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.entries, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.dropout = nn.Dropout(dropout)
        blocks = (Block(sizes, dropout, attention_dropout) for _ in range(sizes.layers))
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(sizes.width, bias=False)
        self.lm_head = nn.Linear(sizes.width, sizes.entries, bias=False)
        self.lm_head.weight = self.embedding.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                is_residual = name.endswith(("out_proj.weight", "down_proj.weight"))
                std = 0.02 / math.sqrt(2 * sizes.layers) if is_residual else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, tokens: Tensor) -> Tensor:
        order = torch.arange(tokens.shape[1])
        states = self.dropout(self.embedding(tokens) + self.positions(order))
        return self.lm_head(self.norm(self.blocks(states)))


class EncoderGPT(nn.Module):
    """`nn.TransformerEncoder` with a causal mask, as in PyTorch's tutorial."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.entries, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.dropout = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(
            sizes.width,
            sizes.heads,
            4 * sizes.width,
            dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(sizes.width)
        self.encoder = nn.TransformerEncoder(layer, sizes.layers, norm, enable_nested_tensor=False)
        self.lm_head = nn.Linear(sizes.width, sizes.entries, bias=False)
        self.lm_head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        states = self.dropout(self.embedding(tokens) + self.positions(torch.arange(length)))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.lm_head(self.encoder(states, mask=mask, is_causal=True))


def step_on_random_batch(model: nn.Module, sizes: Sizes) -> Callable[[], float]:
    """Train a model from tokens to logits."""
    tokens = torch.randint(sizes.entries, (sizes.batch, sizes.length + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return plain_step(
        model, lambda: F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    )


def plain(*, dropout: float, attention_dropout: float, **numbers: int) -> Callable[[], float]:
    sizes = Sizes(**numbers)
    return step_on_random_batch(PlainGPT(sizes, dropout, attention_dropout), sizes)


def encoder(*, dropout: float, **numbers: int) -> Callable[[], float]:
    sizes = Sizes(**numbers)
    return step_on_random_batch(EncoderGPT(sizes, dropout), sizes)


def x_transformers(*, dropout: float, **numbers: int) -> Callable[[], float]:
    from x_transformers import Decoder, TransformerWrapper

    sizes = Sizes(**numbers)
    layers = Decoder(
        dim=sizes.width,
        depth=sizes.layers,
        heads=sizes.heads,
        attn_dim_head=sizes.width // sizes.heads,
        attn_flash=True,
        attn_dropout=dropout,
        ff_dropout=dropout,
    )
    model = TransformerWrapper(
        num_tokens=sizes.entries,
        max_seq_len=sizes.length,
        attn_layers=layers,
        emb_dropout=dropout,
        tie_embedding=True,
    )
    return step_on_random_batch(model, sizes)


def gpt2(*, dropout: float, **numbers: int) -> Callable[[], float]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = Sizes(**numbers)
    config = GPT2Config(
        vocab_size=sizes.entries,
        n_positions=sizes.length,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        resid_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(sizes.entries, (sizes.batch, sizes.length))
    return plain_step(model, lambda: model(input_ids=tokens, labels=tokens).loss)
