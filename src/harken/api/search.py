"""Greedy search, beam search and sampling with any model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from harken.api.arguments import build_config, check_integers
from harken.decode.search import SearchConfig, generate
from harken.decode.stepper import FunctionStepper, LMStepper, TokenHypothesis
from harken.errors import UserError
from harken.inspection.activations import check_module
from harken.inspection.search_attention import AttendedHypothesis, search_with_attention
from harken.models.gpt import GPT


def search(
    model: nn.Module | Callable[[Tensor], Any],
    prompts: Tensor | Sequence[Sequence[int]],
    *,
    end: int,
    max_tokens: int,
    beam: int = 1,
    nbest: int = 1,
    length_penalty: float = 1.0,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    attention: bool = False,
) -> list[list[TokenHypothesis]] | list[list[AttendedHypothesis]]:
    """Continue prompts by greedy search, beam search or sampling.

    Arguments:
        model: a `harken.GPT`, or any function or module from tokens (batch, time) to logits (batch,
            time, vocabulary), which is called on the whole sequence at every step.
        prompts: tokens as a tensor (batch, time), or as lists of different lengths.
        end: the token that ends a sequence.
        max_tokens: maximum number of tokens to generate.
        beam: beam size; 1 is greedy search.
        nbest: number of hypotheses to return per prompt.
        length_penalty: exponent in the ranking by log-probability / length ** length_penalty.
        temperature: if given, sample at this temperature instead of searching.
        top_k, top_p: sample only from the `top_k` most probable tokens, and from the fewest tokens
            with a total probability of at least `top_p`.
        seed: random seed for sampling.
        attention: also return the attention weights of the step that predicted each token. The
            model must be a module that `harken.record` can record.

    Returns a list of hypotheses for each prompt, best first: `tokens` without the prompt and `end`,
    `log_probability`, and with `attention=True` also `attention`, a list of (name, weights), where
    weights have the shape (heads, queries, keys). There is a query for each generated token, and
    one for `end` if the hypothesis ended; keys are the tokens of the prompt, then those generated.

        hypotheses = harken.search(model, [[5, 3, 9]], beam=4, nbest=2, end=0, max_tokens=20)
        hypotheses[0][0].tokens, hypotheses[0][0].log_probability
    """
    where = "harken.search"
    check_integers(where, end=(end, 0), max_tokens=(max_tokens, 1), nbest=(nbest, 1))
    if not callable(model):
        problem = f"{where}: expected a module or a function, got {type(model).__name__}"
        raise UserError(problem, fix="pass a function from tokens to logits")
    settings: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "seed": seed}
    settings |= {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    settings = {name: value for name, value in settings.items() if value is not None}
    config = build_config(SearchConfig, settings, where)
    rows = _token_rows(prompts)
    stepper: Any = LMStepper(model) if isinstance(model, GPT) else FunctionStepper(model)
    search_rows: Callable[..., Any] = partial(generate, stepper)
    if attention:
        check_module(model)
        search_rows = partial(search_with_attention, stepper, cast(nn.Module, model))
    if isinstance(model, GPT):
        _check_limits(model, rows, end, max_tokens)
    parameters = model.parameters() if isinstance(model, nn.Module) else iter(())
    tensor = prompts if isinstance(prompts, Tensor) else next(parameters, None)
    device = None if tensor is None else tensor.device
    options = {"search": config, "end": end, "max_tokens": max_tokens, "nbest": nbest}
    hypotheses: list[Any] = [None] * len(rows)
    for length in sorted({len(row) for row in rows}):  # a batch per length needs no padding
        indices = [index for index, row in enumerate(rows) if len(row) == length]
        tokens = torch.tensor([rows[index] for index in indices], device=device)
        present = torch.ones_like(tokens, dtype=torch.bool)
        # Keyed by its index, a prompt gets the same samples in any batch.
        sample_keys = [(index,) for index in indices]
        results = search_rows(tokens, present, sample_keys=sample_keys, **options)
        for index, result in zip(indices, results, strict=True):
            hypotheses[index] = result
    return hypotheses


def _token_rows(prompts: Any) -> list[list[int]]:
    rows = prompts.tolist() if isinstance(prompts, Tensor) else prompts
    valid = isinstance(rows, Sequence) and not isinstance(rows, str)
    rows = [row.tolist() if isinstance(row, Tensor) else row for row in rows] if valid else []
    for row in rows:
        valid = valid and isinstance(row, Sequence) and len(row) > 0
        valid = valid and all(type(token) is int and token >= 0 for token in row)
    if not valid:
        problem = f"prompts: expected rows of one or more integers >= 0, got {str(prompts)[:60]}"
        raise UserError(problem, fix="pass for example [[5, 3, 9]]")
    return [list(row) for row in rows]


def _check_limits(model: GPT, rows: Sequence[Sequence[int]], end: int, max_tokens: int) -> None:
    vocabulary = model.embedding.num_embeddings
    largest = max(end, *map(max, rows)) if rows else end
    if largest >= vocabulary:
        problem = f"prompts, end: expected tokens below {vocabulary} (vocabulary), got {largest}"
        raise UserError(problem, fix="use the tokenizer of the model")
    longest = max(map(len, rows), default=0)
    if longest > model.max_length:
        problem = f"prompts: expected at most {model.max_length} tokens, got {longest}"
        raise UserError(problem, fix="shorten the prompts")
    if longest + max_tokens - 1 > model.max_length:
        raise UserError(
            f"max_tokens: expected at most {model.max_length + 1 - longest} after a prompt of "
            f"{longest} tokens (the model accepts {model.max_length}), got {max_tokens}",
            fix="shorten the prompts, or generate fewer tokens",
        )
