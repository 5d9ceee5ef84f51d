"""The format `onnx`: graphs for ONNX Runtime, and a script that predicts with them.

model.onnx                    inputs -> logits
encoder.onnx, decoder.onnx    of models that generate text (`onnx_graphs.py`)
config.json, vocabulary.json  what `predict.py` needs, as plain JSON
predict.py                    greedy prediction with onnxruntime and numpy only
"""

from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from harken.export.format import FormatName, Precision
from harken.export.onnx_files import quantize_graph, write_graph
from harken.export.onnx_models import model_graphs
from harken.export.onnx_script import write_script
from harken.layers.frontends import ImageSizes
from harken.run import Run


class ONNXFormat:
    """ONNX graphs, which any model of Harken can be exported to."""

    name: ClassVar[FormatName] = "onnx"
    precisions: ClassVar[tuple[Precision, ...]] = ("float32", "int8")
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxscript", "onnxruntime")

    def check(self, run: Run, precision: Precision) -> None:
        """Every model has graphs."""

    def write(self, run: Run, folder: Path, precision: Precision) -> None:
        for graph in model_graphs(run.model, image_sizes(run.recipe)):
            path = folder / f"{graph.name}.onnx"
            write_graph(graph, path)
            if precision == "int8":
                quantize_graph(path)

        write_script(run, folder)

    def load(self, folder: Path, run: Run) -> nn.Module:
        from harken.export.onnx_engine import load_sessions, with_sessions

        return with_sessions(run.model, load_sessions(folder))

    def usage(self, run: Run, name: str) -> str:
        inputs = {"lines": "< lines.txt", "sounds": "FILE.wav", "images": "FILE.npy"}
        return f"pip install onnxruntime numpy\npython {name}/predict.py {inputs[run.input_form]}"


def image_sizes(recipe: Any) -> ImageSizes | None:
    """Return the size of the images of a recipe, if it has any."""
    images = getattr(recipe.encode, "images", None)
    if images is None:
        return None
    return ImageSizes(channels=images.channels, columns=images.columns, rows=images.rows)
