"""One name for each head: the same in every command, in JSON, in Python and on the pages."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from command_line import Cli
from harken.errors import UserError
from harken.inspection.ablation import mean_activations
from harken.inspection.record import Selection, record
from harken.inspection.refs import HeadRef, parse_patterns, select_heads
from harken.run import load
from untrained import task_recipe, untrained_run

KEYS = {"label", "layer", "head", "module", "attention"}


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of two heads in the encoder, one layer of three heads in the decoder."""
    folder = tmp_path_factory.mktemp("translator")
    sizes = ["encode.vocab_size=300", "model.encoder={layers=2,attention={heads=2}}"]
    sizes += ["model.decoder={layers=1,width=24,attention={heads=3}}", "search.max_tokens=5"]
    return untrained_run(task_recipe("translate", folder, sizes), folder / "run")


def heads_of(cli: Cli, run: Path, out: Path, text: str) -> dict[str, Any]:
    """Every head as each command names it, sorted."""
    views = cli.json("inspect", run, text, "--out", out)["inputs"][0]["views"]
    attentions = [layer for view in views for layer in view["attentions"]]
    result = {
        "heads": cli.json("heads", run, "--inputs", 2)["heads"],
        "inspect": [head for layer in attentions for head in layer["heads"]],
        "ablate": cli.json("ablate", run, "--examples", 2)["parts"],
    }
    return {
        command: sorted(({key: head[key] for key in KEYS} for head in heads), key=str)
        for command, heads in result.items()
    }


@pytest.mark.parametrize("kind", ["answer", "translate"])
def test_a_head_has_one_name_in_every_command(
    kind: str, small_run: Path, translator: Path, tmp_path: Path, cli: Cli
) -> None:
    run = small_run if kind == "answer" else translator
    result = heads_of(cli, run, tmp_path, "the old duck walks .")
    assert result["heads"] == result["inspect"] == result["ablate"]
    heads = [HeadRef(head["module"], head["head"]) for head in result["heads"]]
    assert [head.to_json() for head in heads] == result["heads"]
    labels = Counter(head.label for head in heads)
    if kind == "answer":
        expected = {f"L{layer}.H{head}" for layer in (1, 2) for head in (1, 2)}
    else:
        expected = {f"encoder.L{layer}.H{head}" for layer in (1, 2) for head in (1, 2)}
        expected |= {f"{name}.L1.H{head}" for name in ("decoder", "cross") for head in (1, 2, 3)}
    assert labels == Counter(expected)


def test_python_counts_as_the_commands_do(translator: Path) -> None:
    run = load(translator)
    text = run.inputs(1)[0]
    example = run.attention(text)
    assert example is not None
    with record(run.model) as records:
        example.run()
    means, _ = mean_activations(run.model, example.run)
    recorded = {HeadRef(call.name, head) for call in records for head in call.heads}
    assert recorded == set(means.heads())
    with record(run.model, Selection(layers=(1,), paths=("*.cross",), heads=(3,))) as chosen:
        example.run()
    (call,) = chosen
    assert (call.layer, list(call.heads)) == (1, [3])
    whole = next(whole for whole in records if whole.name == call.name)
    assert call.weights.equal(whole.weights[:, 2:3])


@pytest.mark.parametrize(
    ("layers", "heads", "expected"),
    [
        ("", "", "encoder.L1.H1 encoder.L1.H2 encoder.L2.H1 encoder.L2.H2 cross.L1.H1 cross.L1.H2"),
        ("1", "2", "encoder.L1.H2 cross.L1.H2"),
        ("encoder.L2", "", "encoder.L2.H1 encoder.L2.H2"),
        ("", "L1.H2", "encoder.L1.H2 cross.L1.H2"),
        ("", "cross.L1.H1, encoder.L2.H2", "encoder.L2.H2 cross.L1.H1"),
        ("L2", "1,L2.H2", "encoder.L2.H1 encoder.L2.H2"),
    ],
)
def test_options_select_by_these_names(layers: str, heads: str, expected: str) -> None:
    modules = [f"encoder.stack.blocks.{block}.attention" for block in (0, 1)]
    result = [
        HeadRef(module, head).label
        for module in [*modules, "decoder.stack.blocks.0.cross"]
        for head in select_heads(
            module, 2, parse_patterns("layers", layers), parse_patterns("heads", heads)
        )
    ]
    assert result == expected.split()


@pytest.mark.parametrize("text", ["0", "L0", "1-2", "head 3", "L1.3", "9" * 5000, "L1.", "L1,,L2"])
def test_other_names_are_refused(text: str) -> None:
    for part in ("layers", "heads"):
        with pytest.raises(UserError, match="expected a number from 1 or a name such as L1"):
            parse_patterns(part, text)


def test_pages_and_figures_use_these_names(translator: Path, tmp_path: Path, cli: Cli) -> None:
    options = ("--out", tmp_path, "--heads", "encoder.L2.H2,encoder.L1.H1,cross.L1.H3")
    printed = cli("inspect", translator, "the old duck walks .", *options).out
    files = [Path(line) for line in printed.splitlines()]
    texts = [path.read_text() for path in files if path.suffix in (".html", ".svg")]
    page, cross, encoder = texts
    named = set(re.findall(r'data-name="([^"]*)"', page))
    assert named == {"encoder.L2.H2", "encoder.L1.H1", "cross.L1.H3"}
    assert {"H1", "H2", "encoder.L1", "encoder.L2"} <= set(re.findall(r">([^<]*)</text>", encoder))
    assert {"cross.L1.H3", "cross.L1", "H3"} <= set(re.findall(r">([^<]*)</text>", cross))
