"""Find the heads or layers that carry the difference between two texts (activation patching).

The model reads the corrupted text, once for each part, with the output of this part copied from the
clean text. Parts that restore the clean prediction are listed first.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harken.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from harken.inspection.patching import PatchingResult
    from harken.models.gpt import GPT

EPILOG = """restored:
  100 %  the part alone restores the clean prediction; 0 %: it changes nothing; below 0 %: it moves
  the prediction away from the clean one. Shares need not sum to 100 %.

The prediction is the next token after the text (after the question, for the task answer). It is
measured as the logit difference between the most probable tokens after both texts, or, if these are
the same, as the log-probability of this token. Both texts must have the same number of tokens.

Works with runs of GPT models (tasks lm and answer) and with Hugging Face folders (gpt2, llama).

examples:
  harken patch runs/gpt "the king of France" "the king of Sweden"
  harken patch models/gpt2 "Ann gave Bob a book. Bob" "Ann gave Tom a book. Bob" --what layers
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of `harken patch`."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="or a Hugging Face folder")
    parser.add_argument("clean", metavar="CLEAN", help="text with the prediction to restore")
    parser.add_argument("corrupted", metavar="CORRUPTED", help="text of the same length in tokens")
    parser.add_argument("--what", choices=("heads", "layers"), default="heads")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the share of the difference that each part restores, the largest first."""
    from harken.api.inspection import patch
    from harken.cli.output import remark, result_json, table

    model, read, pieces = _load(options)
    clean, corrupted = (_prompt(model, read, text) for text in (options.clean, options.corrupted))
    if clean.shape != corrupted.shape:
        raise UserError(
            f"{options.corrupted[:60]!r}: expected as many tokens as {options.clean[:60]!r} has "
            f"({clean.shape[1]}), got {corrupted.shape[1]}",
            fix="change single words for others of the same number of tokens",
        )
    result = patch(model, clean, corrupted, parts=options.what)
    order = result.shares.argsort(descending=True, stable=True).tolist()
    parts = [(result.parts[index], float(result.shares[index])) for index in order]
    if options.json:
        record = {"clean": result.clean, "corrupted": result.corrupted, "metric": result.metric}
        shares = [{**part.to_json(), "share": share} for part, share in parts]
        result_json({**record, "what": options.what, "parts": shares})
        return 0
    table(("part", "restored"), [(part.label, f"{100 * share:.1f} %") for part, share in parts])
    remark(_summary(model, clean, corrupted, result, pieces))
    return 0


def _load(
    options: argparse.Namespace,
) -> "tuple[GPT, Callable[[str], object], Callable[[Sequence[int]], list[str]]]":
    """Return the model, a function that makes it read a text, and the texts of tokens."""
    from harken.foreign import is_huggingface, load_huggingface
    from harken.models.gpt import GPT
    from harken.run import load

    if is_huggingface(options.folder):
        subject: Any = load_huggingface(options.folder, options.device)
        tokenizer = subject
    else:
        subject = load(options.folder, options.device)
        tokenizer = subject.vocabulary
    model = subject.model
    if not isinstance(model, GPT):
        raise UserError(
            f"{options.folder}: expected a GPT model, got {type(model).__name__}",
            fix="name a run of task lm or answer whose model is a GPT",
        )
    return model, subject.attention, tokenizer.pieces


def _prompt(model: "GPT", read: "Callable[[str], object]", text: str) -> "Tensor":
    """Return the tokens of a prompt: the first that the model reads."""
    prompts: list[Tensor] = []
    hook = model.embedding.register_forward_hook(
        lambda _, inputs, output: prompts.append(inputs[0])
    )
    try:
        read(text)
    finally:
        hook.remove()
    if not prompts:
        raise UserError(f"{text[:60]!r}: expected a text with tokens", fix="write some words")
    return prompts[0]


def _summary(
    model: "GPT",
    clean: "Tensor",
    corrupted: "Tensor",
    result: "PatchingResult",
    pieces: "Callable[[Sequence[int]], list[str]]",
) -> str:
    import torch

    with torch.inference_mode():
        tokens = [int(model(rows)[0, -1].argmax()) for rows in (clean, corrupted)]
    right, wrong = (repr(piece) for piece in pieces(tokens))
    return (
        f"{result.metric}: {result.clean:.3f} clean (predicts {right}), "
        f"{result.corrupted:.3f} corrupted (predicts {wrong})"
    )
