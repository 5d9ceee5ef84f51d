"""A tiny Hugging Face folder of GPT-2, with random weights and a tokenizer of words."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

WORDS = ["[UNK]", "the", "bank", "of", "a", "river", "duck", "walks", "in", "old", "new"]


def save_gpt2(folder: Path) -> Path:
    """Weights are large enough that heads differ."""
    config = GPT2Config(
        vocab_size=29,
        n_positions=17,
        n_embd=12,
        n_layer=2,
        n_head=3,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * parameter.shape[-1] ** -0.5, generator=generator)
    model.save_pretrained(folder)
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
