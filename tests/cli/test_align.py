"""`harken align` on small translation models."""

from pathlib import Path

import pytest
import torch

from command_line import Cli
from harken.cli.align import word_tokens
from harken.encode.vocabulary import END
from harken.inspection.record import record
from harken.measure.alignment import cross_attention
from harken.run import Run, load
from untrained import task_recipe, untrained_run

SMALL = ("encode.vocab_size=300", "model.encoder={layers=1,max_length=80,attention={heads=2}}")
DECODERS = {
    "transformer": "model.decoder={layers=2,width=24,attention={heads=3}}",
    "rnn": "model.decoder={kind='rnn',width=24,hidden=24}",
}


@pytest.fixture(scope="module", params=DECODERS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("translate")
    recipe = task_recipe("translate", folder, [*SMALL, DECODERS[request.param]])
    return load(untrained_run(recipe, folder / "run"))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Three pairs, the last too long for the model."""
    texts = {
        "source": ["they swim here", "a duck walks and swims", "long " * 300],
        "target": ["sie schwimmen hier", "eine Ente geht und schwimmt", "kurz"],
        "links": ["1-1", "1-1 1p2", "1-1"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return [part for name in texts for part in (f"--{name}", str(tmp_path / name))]


@pytest.mark.parametrize("how", ["argmax", "intersection", "union", "grow-diag-final", "threshold"])
def test_every_head_has_its_metrics(run: Run, files: list[str], how: str, cli: Cli) -> None:
    result = cli.json("align", run.folder, *files, "--method", how)
    assert (result["n"], result["skipped"]) == (2, 1)
    heads = [name for name in result["attention"] if ".H" in name]
    several = len(heads) > 1
    assert len(heads) == (6 if several else 1)
    assert result["best"] in heads
    others = {"diagonal, no model"}
    if several:
        means = {f"cross.L{layer} mean" for layer in (1, 2)}
        others |= means | {"all heads", "best head, cross-validated"}
    assert result["attention"].keys() - set(heads) == others
    for metrics in result["attention"].values():
        assert metrics.keys() == {"aer", "precision", "recall"}
        assert 0 <= metrics["aer"]["low"] <= metrics["aer"]["value"] <= metrics["aer"]["high"] <= 1


def test_a_row_is_the_step_that_predicts_the_word_or_the_next_one(run: Run) -> None:
    source, target = [5, 6, 7, 8, 9], [10, 11, 12]
    decided, after = (
        cross_attention(run.model, source, target, END, after_input=flag) for flag in (False, True)
    )
    read = torch.tensor([source])
    state = run.model.init_state(read, torch.ones_like(read).bool())
    for step, token in enumerate([END, *target]):
        with torch.inference_mode(), record(run.model) as seen:
            item = torch.tensor([[token]])
            _, state = run.model.step(item, torch.ones_like(item).bool(), state)
        for name, weights in decided.items():
            assert weights.shape[1:] == (3, 5)
            (row,) = [call.weights[0, :, 0].numpy() for call in seen if call.name == name]
            if step < 3:
                assert weights[:, step] == pytest.approx(row, abs=1e-5)
            if step > 0:
                assert after[name][:, step - 1] == pytest.approx(row, abs=1e-5)


def test_the_tokens_of_the_words_are_those_of_the_text(run: Run) -> None:
    text = "an unheard-of word , isn't it ? ünïcode 3.5"
    result = word_tokens(run, text)
    assert result.tokens == run.vocabulary.encode([text])[0].tolist()
    assert result.words == sorted(result.words)
    assert set(result.words) == set(range(len(text.split())))


def test_remarks_and_errors(small_run: Path, run: Run, files: list[str], cli: Cli) -> None:
    assert "1 of 3 pairs skipped" in cli("align", run.folder, *files).err
    assert "expected a run of task 'translate'" in cli.error("align", small_run, *files)
    for arguments, message in (
        ([*files, "--min-weight", "0"], "expected more than 0"),
        ([*files[:4], "--links", files[1]], "expected links such as"),
    ):
        assert message in cli.error("align", run.folder, *arguments)
