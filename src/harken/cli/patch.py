"""`harken patch`: print the share of the clean prediction that each patched part restores."""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from harken.api.inspection import patch
from harken.cli.inspected import load_for_inspection
from harken.cli.output import print_json_or_table, print_note
from harken.errors import UserError
from harken.models.gpt import GPT


def run(options: argparse.Namespace) -> None:
    """Print a row for each part of the model, sorted by share."""
    inspected = load_for_inspection(options.folder, options.device)
    model = inspected.model
    if not isinstance(model, GPT):
        problem = f"{options.folder}: expected a GPT model, got {type(model).__name__}"
        fix = "name a run of task lm or answer, or a gpt2, gpt_neox or llama folder"
        raise UserError(problem, fix=fix)
    texts = (options.clean, options.corrupted)
    clean, corrupted = (_tokens(model, inspected.attention, text) for text in texts)
    if clean.shape != corrupted.shape:
        raise UserError(
            f"{options.corrupted[:60]!r}: expected as many tokens as in {options.clean[:60]!r} "
            f"({clean.shape[1]}), got {corrupted.shape[1]}",
            fix="let the texts differ in words of equally many tokens",
        )
    result = patch(model, clean, corrupted, parts=options.parts)
    order = result.shares.argsort(descending=True, stable=True).tolist()
    parts = [(result.parts[index], float(result.shares[index])) for index in order]
    record = {"clean": result.clean, "corrupted": result.corrupted, "metric": result.metric}
    shares = [{**part.to_json(), "share": share} for part, share in parts]
    record |= {"what": options.parts, "parts": shares}
    rows = [(part.label, f"{100 * share:.1f} %") for part, share in parts]
    print_json_or_table(options, record, ("part", "restored"), rows)
    if not options.json:
        with torch.inference_mode():
            tokens = [int(model(prompt)[0, -1].argmax()) for prompt in (clean, corrupted)]
        predicted = inspected.tokenizer.token_texts(tokens)
        print_note(
            f"{result.metric}: {result.clean:.3f} clean (predicts {predicted[0]!r}), "
            f"{result.corrupted:.3f} corrupted (predicts {predicted[1]!r})"
        )


def _tokens(model: GPT, run_model: Callable[[str], object], text: str) -> Tensor:
    """Run the model on a text and return the tokens of its first embedding lookup."""
    embedded: list[Tensor] = []
    hook = model.embedding.register_forward_pre_hook(lambda _, inputs: embedded.extend(inputs))
    try:
        run_model(text)
    finally:
        hook.remove()
    if not embedded:
        raise UserError(f"{text[:60]!r}: expected text, got no tokens", fix="write some words")
    return embedded[0]
