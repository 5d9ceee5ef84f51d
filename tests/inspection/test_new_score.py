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
from small_recipe import SMALL

multihead.MultiHeadConfig.__annotations__["score"] |= CosineConfig
people, folder = Path(sys.argv[1]), sys.argv[2]
recipe = people / "cosine.toml"
recipe.write_text(
    'task="answer"\\n[data]\\nread="people.txt"\\ntrain="questions.train.tsv"\\n'
    'dev="questions.test.tsv"\\n[model.attention.score]\\nkind="cosine"\\n'
)
sets = [part for value in (*SMALL, "model.layers=1") for part in ("--set", value)]
scaled = ["--set", "model.attention.score.kind=scaled"]
found = {}
for name, *arguments in (
    ("train", str(recipe), "--run", folder, *sets, "--json"),
    ("heads", folder, "--inputs", "2", "--json"),
    ("inspect", folder, "Where was Ada born?", "--json", "--save", "--out", f"{folder}/out"),
    ("ablate", folder, "--examples", "2", "--json"),
    ("cost", str(recipe), *sets, "--json"),
    ("scaled", str(recipe), *sets, *scaled, "--json"),
):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["cost" if name == "scaled" else name, *arguments]) == 0
    found[name] = json.loads(out.getvalue())
print(json.dumps(found))
"""


def test_the_score_of_the_documentation(people, tmp_path: Path) -> None:
    """In a process of its own: the type checks of the tests do not know a new score."""
    (block, *_) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "class Cosine(" in block
    (tmp_path / "script.py").write_text(block + SCRIPT, encoding="utf-8")
    command = [sys.executable, "script.py", str(people.read.parent), str(tmp_path / "run")]
    paths = f"{ROOT / 'src'}:{ROOT / 'tests'}"
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={"PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    labels = ["L1.H1", "L1.H2"]
    assert [head["label"] for head in found["heads"]["heads"]] == labels
    for head in found["heads"]["heads"]:
        assert head["score"] == "cosine" and "query_key_rank" not in head
        # The read-out evaluates the score itself: two unit vectors, times ten.
        assert head["output_value_rank"] > 1 and head["entropy"] > 0
    (note,) = found["heads"]["notes"]
    assert "score 'cosine'" in note and "synthesizer" not in done.stdout
    (view,) = found["inspect"]["inputs"][0]["views"]
    assert [head["label"] for head in view["attentions"][0]["heads"]] == labels
    assert sorted(part["label"] for part in found["ablate"]["parts"]) == labels
    assert found["train"]["metrics"]
    (cost,), (scaled,) = found["cost"]["lengths"], found["scaled"]["lengths"]
    # The same projections and products, and a normalization of queries and keys besides.
    assert cost["parameters"] == scaled["parameters"]
    assert scaled["forward"] <= cost["forward"] < 1.1 * scaled["forward"]


@pytest.mark.parametrize("config", EVERY_SCORE, ids=name)
def test_a_score_states_its_kind_and_factors_or_why_it_has_none(config) -> None:
    merged = config.kind == "merged"
    attention = MultiHeadConfig(
        heads=3, score=config, head_width=5, key_width=None if merged else 7
    ).build(width=11, length=13)
    assert (attention.score_kind, attention.heads) == (config.kind, 3)
    factors = attention.score.factors()
    if factors is None:
        assert attention.score.not_a_product
        with pytest.raises(
            Exception, match=f"score '{config.kind}'.*{attention.score.not_a_product}"
        ):
            query_key(attention)
        return
    # Without positions and offsets the score of two tokens is their product with W~.
    tokens = torch.randn(1, 1, 11)
    queries = attention.score.queries(tokens)
    first = torch.zeros(1, 1).long()
    inputs = ScoreInputs(tokens, queries, attention.score.keys(tokens), first, first)
    terms = attention.score.terms(inputs)
    expected = (terms.queries * terms.scale * terms.keys).sum(dim=-1)[0, :, 0]
    found = torch.einsum("J,kJK,K->k", tokens[0, 0], factors.left.mT @ factors.right, tokens[0, 0])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
