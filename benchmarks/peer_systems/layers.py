"""A Conformer block, and an LSTM tagger on sentences of unequal lengths."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from layer_comparisons import Sizes, transformers_comparisons
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from peer_systems.ragged_text import BATCHES, pad, random_tokens, sentence_lengths
from peer_systems.steps import adamw, harken_step, plain_step, read_recipe

SENTENCES, TAGS, IGNORE_INDEX = 4000, 17, -100


def conformer(
    *, of_harken: bool, batch: int, length: int, width: int, heads: int
) -> Callable[[], float]:
    """Run the forward and backward pass of a block of Harken or of Hugging Face."""
    comparisons = transformers_comparisons(Sizes(batch, length, width, heads))
    comparison = next(c for c in comparisons if c.title == "Conformer block")
    module, forward = comparison.reference, comparison.run_reference
    if of_harken:
        module, forward = comparison.layer, comparison.run
    inputs = torch.randn(batch, length, width, requires_grad=True)

    def run() -> float:
        forward(inputs).sum().backward()
        module.zero_grad(set_to_none=True)
        return 1.0

    return run


def harken_tagger(*, batch_tokens: int, batches: int, **sizes: int) -> Callable[[], float]:
    """Train with the recipe for tagging; the units are words."""
    folder = Path(tempfile.mkdtemp())
    path = folder / "train.conllu"
    path.write_text("\n".join(map(conllu, tagged_sentences(sizes["entries"]))))
    settings = [
        f"data.train={path}",
        "data.dev=0.001",
        f"model.width={sizes['width']}",
        "model.characters={ kind = 'none' }",
        f"model.encoder.hidden={sizes['hidden']}",
        f"training.tags.batch_tokens={batch_tokens}",
        "training.tags.unk_dropout=0.0",
        *adamw("training.tags"),
    ]
    recipe, task = read_recipe("tag", settings)
    splits = task.read_splits(recipe)
    vocabulary = task.fit(recipe, splits["train"])
    (stage,) = task.stages(recipe, splits, vocabulary, folder)
    step = harken_step(recipe, task.build(recipe, vocabulary.sizes), stage)
    return lambda: float(sum(step().tokens for _ in range(batches)))


def tagged_sentences(entries: int) -> list[tuple[np.ndarray, np.ndarray]]:
    lengths = sentence_lengths(SENTENCES)
    words = random_tokens(lengths, 1, entries, 0)
    return list(zip(words, random_tokens(lengths, 0, TAGS, 1), strict=True))


def conllu(sentence: tuple[np.ndarray, np.ndarray]) -> str:
    rows = zip(*sentence, strict=True)
    return "".join(f"w{word}\tT{tag}\n" for word, tag in rows)


class PlainTagger(nn.Module):
    """Embeddings, a bidirectional LSTM over packed sequences, and a linear layer."""

    def __init__(self, entries: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(entries, width)
        self.lstm = nn.LSTM(width, hidden, 2, batch_first=True, bidirectional=True, dropout=0.4)
        self.classifier = nn.Linear(2 * hidden, TAGS)
        self.dropout = nn.Dropout(0.5)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        inputs = self.dropout(self.embedding(words))
        packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.classifier(self.dropout(states))


def plain_tagger(
    *, order: str, batch_tokens: int, batches: int, **sizes: int
) -> Callable[[], float]:
    """Train an `nn.LSTM`; the units are words."""
    model = PlainTagger(**sizes)
    sentences = tagged_sentences(sizes["entries"])
    next_batch = BATCHES[order](sentence_lengths(SENTENCES), batch_tokens)
    trained = 0

    def loss() -> Tensor:
        nonlocal trained
        words, tags = zip(*(sentences[index] for index in next_batch()), strict=True)
        lengths = torch.tensor([len(row) for row in words])
        trained += int(lengths.sum())
        logits = model(pad(words, 0), lengths)
        return F.cross_entropy(logits.flatten(0, 1), pad(tags, IGNORE_INDEX).flatten())

    step = plain_step(model, loss)

    def run() -> float:
        before = trained
        for _ in range(batches):
            step()
        return float(trained - before)

    return run
