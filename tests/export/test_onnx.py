"""ONNX graphs and `predict.py` of every task, compared with PyTorch."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jaxtyping
import onnx
import pytest
import torch
from torch import Tensor

from harken.encode.words import case_pattern
from harken.export.format import Precision
from harken.export.onnx import ONNXFormat, image_sizes
from harken.export.onnx_engine import load_sessions, with_sessions
from harken.export.onnx_graphs import EXAMPLE_SIZES, Graph, TensorSpec
from harken.export.onnx_models import model_graphs
from harken.export.parity import compare_outputs, logit_difference, searches, split_batches
from harken.recipe import task_of
from harken.run import Run
from harken.start import fit_vocabulary
from onnx_runs import CASES, inputs_of, onnx_run
from small_files import write_files
from small_huggingface import write_bert
from small_models import add_noise
from untrained import bound_run, task_recipe

FAST = {"answer kv_heads", "tag"}
BLOCKED = "torch,harken,tokenizers,onnx,onnxscript,transformers,safetensors,einops,jaxtyping,PIL"
RUN_SCRIPT = """
import runpy, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def case_params(cases: dict[str, object] | tuple[str, ...]) -> list[object]:
    return [
        pytest.param(case, marks=[] if case in FAST else pytest.mark.slow, id=case)
        for case in cases
    ]


@pytest.mark.parametrize("case", case_params(CASES))
def test_export_equals_torch(case: str, runs: Path) -> None:
    run = onnx_run(case, runs)
    folder = runs / f"export {case}"
    folder.mkdir()
    export(run, folder)
    check_graphs(run, folder)
    check_outputs(run, folder)
    check_script(run, folder)


@pytest.mark.slow
def test_a_tagger_of_word_pieces(tmp_path: Path) -> None:
    """Its `predict.py` reads case patterns and ids of word pieces."""
    write_files(tmp_path)
    write_bert(tmp_path / "bert")
    recipe = task_recipe("tag", tmp_path, [f"model={{kind='pieces',start_from='{tmp_path}/bert'}}"])
    task = task_of(recipe)
    vocabulary: Any = fit_vocabulary(recipe, task.read_splits(recipe)["train"])
    model: Any = task.build(recipe, vocabulary.sizes).eval()
    add_noise(model, seed=3, strength=2.0)
    run, folder = bound_run(recipe, vocabulary, model), tmp_path / "export"
    folder.mkdir()
    export(run, folder)
    check_axes(model_graphs(model)[0], folder / "model.onnx")
    texts = ["they DUCK and Swim here", "1 Duck", "swim " * 17, "They"]
    exported = with_sessions(model, load_sessions(folder))
    assert logit_difference(run, exported, texts) <= 1e-4
    assert compare_outputs(run, exported, [texts, texts[:1]])["predict"].share == 1
    kept = [texts[0], texts[1], texts[3]]  # the other one is tagged in windows
    lines = [
        json.dumps(
            [
                (case_pattern(word), ids.tolist())
                for word, ids in zip(
                    text.split(), vocabulary.pieces.encode(text.split()), strict=True
                )
            ]
        )
        for text in kept
    ]
    assert script_output(folder, lines, []).splitlines() == [
        item.output for item in run.predict(kept)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["fill", "translate", "transcribe", "classify"])
def test_int8_is_close(case: str, runs: Path) -> None:
    """Also for weights that an embedding shares with a product (`fill`)."""
    run = onnx_run(case, runs, "int8")
    folder = runs / f"export {case} int8"
    folder.mkdir()
    export(run, folder, "int8")
    inputs = inputs_of(run, 23)
    exported = with_sessions(run.model, load_sessions(folder))
    zeroed = onnx_run(case, runs, "zeroed")
    with torch.no_grad():
        for parameter in zeroed.model.parameters():
            parameter.zero_()
    scale = logit_difference(run, zeroed.model, inputs)  # the largest logit
    assert 1e-4 < logit_difference(run, exported, inputs) < 0.1 * scale


def export(run: Run, folder: Path, precision: Precision = "float32") -> None:
    """Write an export without the checks of shapes, which would make sizes constant."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        ONNXFormat().write(run, folder, precision)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def check_graphs(run: Run, folder: Path) -> None:
    """Compare each graph with the unchanged model, at batch 1, 3 and 64 and at three lengths."""
    sessions, sizes = load_sessions(folder), image_sizes(run.recipe)
    graphs = model_graphs(run.model, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harken.export.onnx_models.prepared", lambda model: copy.deepcopy(model))
        originals = {graph.name: graph.module for graph in model_graphs(run.model, sizes)}
    assert {graph.name for graph in graphs} == set(sessions)
    generator = torch.Generator().manual_seed(1)
    longest = max_factor(run, graphs)
    for graph in graphs:
        check_axes(graph, folder / f"{graph.name}.onnx")
        for batch, factor in ((1, 0.1), (3, 1.0), (64, longest), (1, longest)):
            arguments = [sized(spec, batch, factor, generator) for spec in graph.inputs]
            with torch.inference_mode():
                expected = originals[graph.name](*arguments)
            expected = expected if isinstance(expected, tuple) else (expected,)
            names = (spec.name for spec in graph.inputs)
            actual = sessions[graph.name](**dict(zip(names, arguments, strict=True)))
            for name, tensor in zip(graph.outputs, expected, strict=True):
                assert actual[name].shape == tensor.shape, name
                difference = (actual[name].double() - tensor.double()).abs()
                assert difference.isfinite().all()
                assert not difference.numel() or difference.max() <= 1e-4, name


def max_factor(run: Run, graphs: list[Graph]) -> float:
    """Return by how much lengths can exceed those of the export."""
    limit = getattr(run.model, "max_length", None) if run.recipe.task in ("answer", "lm") else None
    if "decoder" in {graph.name for graph in graphs} and limit is None:
        limit = getattr(run.model, "max_target", None)
    used = EXAMPLE_SIZES["length"] + EXAMPLE_SIZES["past"]
    return 3.0 if limit is None else min(3.0, limit / used - 0.1)


def sized(spec: TensorSpec, batch: int, factor: float, generator: torch.Generator) -> Tensor:
    """Return a random argument whose lengths are those of the export times `factor`."""
    lengths = {name: max(1, round(size * factor)) for name, size in EXAMPLE_SIZES.items()}
    lengths |= {"batch": batch, "past": lengths["past"] if batch > 1 else 0}
    shape = [lengths[axis] if isinstance(axis, str) else axis for axis in spec.axes]
    if spec.dtype == torch.bool:
        kept = torch.randint(1, max(2, shape[1] + 1), (shape[0], 1), generator=generator)
        return torch.arange(shape[1]) < kept
    if spec.dtype == torch.int64:
        return torch.randint(spec.limit, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def check_axes(graph: Graph, path: Path) -> None:
    """Named axes must be named in the file, since PyTorch makes some of them constants."""
    nodes = {node.name: node for node in onnx.load(path).graph.input}
    for spec in graph.inputs:
        axes = nodes[spec.name].type.tensor_type.shape.dim
        assert tuple(axis.dim_param or axis.dim_value for axis in axes) == spec.axes


def check_outputs(run: Run, folder: Path) -> None:
    """Greedy search and a beam of 5 must give the same outputs, in batches of 1, 3 and 64."""
    exported = with_sessions(run.model, load_sessions(folder))
    inputs = inputs_of(run, 68)
    for agreement in compare_outputs(run, exported, split_batches(inputs)).values():
        assert agreement.inputs == len(inputs)
        assert agreement.share >= 0.99


def check_script(run: Run, folder: Path) -> None:
    """`predict.py` must give the outputs of greedy search without PyTorch and Harken."""
    script = folder / "predict.py"
    for file in (script, folder / "tokenizer.py", folder / "features.py"):
        assert not file.exists() or len(file.read_text("utf-8").splitlines()) <= 80
    greedy = run if run.search is None else searches(run)["greedy"]
    if "ctc" in getattr(run.model, "modes", ()):
        greedy = greedy.with_search(type(greedy.search)(mode="ctc"))
    inputs = inputs_of(run, 23)
    expected = [prediction.output for prediction in greedy.predict(inputs)]
    names, lines = ([], inputs) if run.input_form == "lines" else (inputs, [])
    output = "".join(f"{line}\n" for line in expected)
    assert script_output(folder, lines, names) == output


def script_output(folder: Path, lines: list[str], names: list[str]) -> str:
    """Run `predict.py` in a process that cannot import PyTorch, Harken and other packages."""
    process = subprocess.run(
        [sys.executable, "-c", RUN_SCRIPT, BLOCKED, str(folder / "predict.py"), *names],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        cwd=folder.parent,
        check=False,
    )
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode()
