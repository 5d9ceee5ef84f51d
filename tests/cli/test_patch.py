"""`harken patch` on a run of questions and answers."""

import json
from pathlib import Path

import pytest
import torch

from harken.api.inspection import patch
from harken.cli.main import main
from harken.inspection.refs import HeadRef
from harken.run import load

CLEAN, CORRUPTED = "Where was Ann Low born?", "Where was Bob Low born?"


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["patch", *map(str, arguments)])
    message = capsys.readouterr()
    return code, message.out, message.err


def prompt(run: Path, text: str) -> torch.Tensor:
    """The first tokens that a prediction reads."""
    loaded, prompts = load(run), []
    loaded.model.embedding.register_forward_pre_hook(lambda _, inputs: prompts.append(inputs[0]))
    loaded.predict([text])
    return prompts[0]


def test_shares_are_those_of_python(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, small_run, CLEAN, CORRUPTED, "--json")
    assert code == 0
    message = json.loads(out)
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


def test_texts_of_different_lengths_are_refused(
    small_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, small_run, CLEAN, CLEAN + " Or when?")
    assert code == 2 and "expected as many tokens as" in err


def test_layers_as_a_table(small_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, small_run, CLEAN, CORRUPTED, "--what", "layers")
    assert code == 0
    assert sorted(line.split()[0] for line in out.splitlines() if "%" in line) == ["L1", "L2"]
    assert "clean (predicts" in err


def test_a_model_that_writes_no_next_token_is_refused(
    untrained_run: object, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, untrained_run("tag"), "a", "b")  # type: ignore[operator]
    assert code == 2 and "the model has no attention" in err
