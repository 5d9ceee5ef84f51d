"""Load a Hugging Face folder as a model of Harken, with its tokenizer.

No code of the folder is run. The settings of its tokenizer for padding and truncation are ignored:
texts are not padded, and are truncated to the maximum length of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import torch
from tokenizers import Encoding, Tokenizer

from harken.encode.pretrained import TOKENIZER_FILE, load_folder_tokenizer
from harken.encode.tokenizer_file import tokenizer_errors
from harken.errors import UserError
from harken.inputs import is_file
from harken.models.encoders import TextEncoder
from harken.models.gpt import GPT
from harken.models.huggingface import LoadedModel, read_text_folder
from harken.models.huggingface_files import CONFIG
from harken.tasks.attention_view import AttentionExample, next_token_example, self_attention_view
from harken.tasks.prediction import truncation_of
from harken.training.runtime import Device, choose_device, configure_process

MAX_CHARACTERS = 2**20  # characters, more than any of these models reads
WORD_START = "▁"  # a space, in the tokens of SentencePiece


@dataclass(frozen=True, kw_only=True, slots=True)
class HuggingFaceModel:
    """A Hugging Face model with its tokenizer."""

    folder: Path
    contents: LoadedModel = field(repr=False)
    model: GPT | TextEncoder = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)

    def attention(self, text: str) -> AttentionExample:
        """Return the attention over a text; a language model also predicts the next token."""
        encoded, model = self._encoded(text), self.model
        # If the text is truncated, `overflowing` has the rest of its tokens.
        windows = (encoded, *encoded.overflowing)
        counts = [window.special_tokens_mask.count(0) for window in windows]
        truncation = truncation_of(kept=counts[0], total=sum(counts), part="first")
        if isinstance(model, GPT):
            return next_token_example(model, encoded.ids, self.token_texts, text, truncation)
        device = model.embedding.weight.device
        tokens = torch.tensor([encoded.ids], device=device)
        type_ids = torch.tensor([encoded.type_ids], device=device)
        segments = None if model.segment is None else type_ids
        return AttentionExample(
            title=text,
            run=lambda: model(tokens, segments=segments),
            views=[self_attention_view("tokens", self.token_texts(encoded.ids))],
            truncation=truncation,
        )

    def token_texts(self, tokens: Sequence[int]) -> list[str]:
        """Return the text of each token."""
        return [self._token_text(token) for token in tokens]

    def _token_text(self, token: int) -> str:
        name = self.tokenizer.id_to_token(token)
        if name is None:  # the embedding may be larger than the tokenizer's vocabulary
            return f"<{token}>"
        if name.startswith(WORD_START):
            return name.replace(WORD_START, " ")
        with tokenizer_errors(f"{self.folder / TOKENIZER_FILE}: token {token} cannot be decoded"):
            text = str(self.tokenizer.decode([token], skip_special_tokens=False))
        # A part of a character decodes to the replacement character.
        return str(name) if "�" in text or not text else text

    def _encoded(self, text: str) -> Encoding:
        """Encode a text with special tokens, truncated to the length of the model."""
        with tokenizer_errors(f"{self.folder / TOKENIZER_FILE}: {text[:60]!r} cannot be encoded"):
            encoded = self.tokenizer.encode(text[:MAX_CHARACTERS])
        segment = self.model.segment if isinstance(self.model, TextEncoder) else None
        for ids, size in (
            (encoded.ids, self.contents.vocabulary),
            (encoded.type_ids, segment.num_embeddings if segment is not None else None),
        ):
            if size is not None and max(ids, default=0) >= size:
                raise UserError(
                    f"{self.folder / TOKENIZER_FILE}: token or segment {max(ids)} is too large for "
                    f"the model (expected numbers below {size}, as in {CONFIG})",
                    fix="use the tokenizer that belongs to this model",
                )
        if not encoded.ids:
            raise UserError(f"{text[:60]!r}: the text has no tokens", fix="give at least one word")
        return encoded


def is_huggingface(folder: Path) -> bool:
    """Whether a folder is a Hugging Face folder, not a run."""
    return is_file(folder / CONFIG)


def load_huggingface(folder: str | PathLike[str], device: Device = "auto") -> HuggingFaceModel:
    """Load the model and the tokenizer of a Hugging Face folder; none of its code is run.

    Arguments:
        folder: a folder of type bert, gpt2, gpt_neox or llama, with config.json,
            model.safetensors and tokenizer.json.
        device: "auto", "cpu", "cuda" or "mps".

    Returns a `HuggingFaceModel` with `model`, a Harken module in evaluation mode that maps tokens
    (batch, time) to logits (gpt2, gpt_neox, llama) or hidden states (bert), and `tokenizer`.

        loaded = harken.load_huggingface("models/gpt2")
        loaded.model(torch.tensor([loaded.tokenizer.encode("The bank of the river").ids]))
    """
    folder, chosen = Path(folder), choose_device(device)
    tokenizer = load_folder_tokenizer(folder)
    configure_process(chosen)
    contents, model = read_text_folder(folder)
    model.to(chosen).eval()
    assert model.max_length is not None, f"{CONFIG} has the maximum length"
    tokenizer.enable_truncation(model.max_length)
    return HuggingFaceModel(folder=folder, contents=contents, model=model, tokenizer=tokenizer)
