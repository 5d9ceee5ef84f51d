"""`harken patch` on a run of questions and answers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from command_line import Cli
from harken.api.inspection import patch
from harken.inspection.refs import HeadRef
from harken.run import load

CLEAN, CORRUPTED = "Where was Ann Low born?", "Where was Bob Low born?"


def prompt(run: Path, text: str) -> torch.Tensor:
    """The first tokens that a prediction reads."""
    loaded, prompts = load(run), []
    loaded.model.embedding.register_forward_pre_hook(lambda _, inputs: prompts.append(inputs[0]))
    loaded.predict([text])
    return prompts[0]


def test_shares_are_those_of_the_python_api(small_run: Path, cli: Cli) -> None:
    message = cli.json("patch", small_run, CLEAN, CORRUPTED)
    texts = [prompt(small_run, text) for text in (CLEAN, CORRUPTED)]
    expected = patch(load(small_run).model, *texts)
    shares = dict(zip(expected.parts, expected.shares.tolist(), strict=True))
    heads = {HeadRef(part["module"], part["head"]): part["share"] for part in message["parts"]}
    assert heads == pytest.approx(shares)
    assert (message["clean"], message["corrupted"]) == pytest.approx(
        (expected.clean, expected.corrupted)
    )
    order = [part["share"] for part in message["parts"]]
    assert order == sorted(order, reverse=True)


def test_layers_as_a_table(small_run: Path, cli: Cli) -> None:
    printed = cli("patch", small_run, CLEAN, CORRUPTED, "--parts", "layers")
    labels = [line.split()[0] for line in printed.out.splitlines() if "%" in line]
    assert sorted(labels) == ["L1", "L2"]
    assert "clean (predicts" in printed.err


def test_other_lengths_and_other_models_are_errors(
    small_run: Path, untrained_run: Callable[[str], Path], cli: Cli
) -> None:
    longer = CLEAN + " Or when?"
    assert "expected as many tokens as" in cli.error("patch", small_run, CLEAN, longer)
    assert "the model has no attention" in cli.error("patch", untrained_run("tag"), "a", "b")
