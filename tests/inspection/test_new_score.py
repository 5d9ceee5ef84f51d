"""The `Cosine` score of the documentation in every command that trains or inspects a model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from choices import EVERY_SCORE, name
from harken.attention.multihead import MultiHeadConfig
from harken.attention.query_key import ScoreInputs
from harken.inspection.circuits import query_key

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SCRIPT = """
import contextlib, io, json, sys
from pathlib import Path

import harken.attention.multihead as multihead
from harken.cli.main import main
from harken.cost.workload import trace_workload, workload
from harken.recipe import load_recipe
from small_recipe import SMALL

multihead.MultiHeadConfig.__annotations__["score"] |= CosineConfig
people, folder = Path(sys.argv[1]), sys.argv[2]
recipe, dev = people / "cosine.toml", people / "cosine.tsv"
dev.write_text("".join((people / "questions.test.tsv").open().readlines()[:3]))
recipe.write_text(
    'task="answer"\\n[data]\\npretrain="people.txt"\\ntrain="questions.train.tsv"\\n'
    'dev="cosine.tsv"\\n[model.attention.score]\\nkind="cosine"\\n'
)
values = (*SMALL, "model.layers=1", "training.pretrain.steps=1", "training.finetune.steps=1")
sets = [part for value in values for part in ("--set", value)]
printed = {}
for name, *arguments in (
    ("train", str(recipe), "--run", folder, *sets, "--json"),
    ("heads", folder, "--inputs", "2", "--json"),
    ("inspect", folder, "Where was Ada born?", "--json", "--save", "--out", f"{folder}/out"),
    ("ablate", folder, "--examples", "2", "--json"),
    ("cost", str(recipe), *sets, "--length", "8", "--batch", "1"),  # formulas for JSON take longer
):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([name, *arguments]) == 0
    printed[name] = json.loads(out.getvalue()) if "--json" in arguments else out.getvalue()
for kind in ("cosine", "scaled"):
    chosen = load_recipe(recipe, [*values, f"model.attention.score.kind={kind}"])
    cost = trace_workload(workload(chosen, length=8, batch=1))
    printed[kind] = cost.parameters, cost.forward
print(json.dumps(printed))
"""


def test_the_score_of_the_documentation(people, tmp_path: Path) -> None:
    """Run in a new process: the type checks of the tests do not know a new score."""
    (block, *_) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "class Cosine(" in block
    (tmp_path / "script.py").write_text(block + SCRIPT, encoding="utf-8")
    command = [sys.executable, "script.py", str(people.texts.parent), str(tmp_path / "run")]
    paths = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    labels = ["L1.H1", "L1.H2"]
    assert [head["label"] for head in printed["heads"]["heads"]] == labels
    for head in printed["heads"]["heads"]:
        assert head["score"] == "cosine" and "query_key_rank" not in head
        assert head["output_value_rank"] > 1 and head["entropy"] > 0
    (note,) = printed["heads"]["notes"]
    assert "score 'cosine'" in note and "synthesizer" not in done.stdout
    (view,) = printed["inspect"]["inputs"][0]["views"]
    assert [head["label"] for head in view["attentions"][0]["heads"]] == labels
    assert sorted(part["label"] for part in printed["ablate"]["parts"]) == labels
    assert printed["train"]["metrics"]
    # The same projections and products as the scaled dot product, and a normalization.
    (parameters, forward), (scaled_parameters, scaled_forward) = (
        printed[kind] for kind in ("cosine", "scaled")
    )
    assert parameters == scaled_parameters and f"{parameters:,}" in printed["cost"]
    assert scaled_forward <= forward < 1.1 * scaled_forward


@pytest.mark.parametrize("config", EVERY_SCORE, ids=name)
def test_a_score_states_its_kind_and_factors_or_why_it_has_none(config) -> None:
    merged = config.kind == "merged"
    attention = MultiHeadConfig(
        heads=3, score=config, head_width=5, key_width=None if merged else 7
    ).build(width=11, max_length=13)
    assert (attention.score_kind, attention.heads) == (config.kind, 3)
    factors = attention.score.factors()
    if factors is None:
        assert attention.score.not_bilinear
        with pytest.raises(
            Exception, match=f"score '{config.kind}'.*{attention.score.not_bilinear}"
        ):
            query_key(attention)
        return
    # Without positions and offsets, the score of two tokens is their product with W_QK.
    tokens = torch.randn(1, 1, 11)
    queries = attention.score.queries(tokens)
    first = torch.zeros(1, 1).long()
    inputs = ScoreInputs(tokens, queries, attention.score.keys(tokens), first, first)
    terms = attention.score.terms(inputs)
    expected = (terms.queries * terms.scale * terms.keys).sum(dim=-1)[0, :, 0]
    result = torch.einsum("J,kJK,K->k", tokens[0, 0], factors.left.mT @ factors.right, tokens[0, 0])
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
