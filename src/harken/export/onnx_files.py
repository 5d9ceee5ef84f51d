"""Write graphs as ONNX files."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from harken.errors import Failure
from harken.export.onnx_graphs import Graph

if TYPE_CHECKING:
    import onnx

OPSET = 20


def write_graph(graph: Graph, path: Path) -> None:
    """Trace a graph and write it as an ONNX file; named axes have any length."""
    generator = torch.Generator().manual_seed(0)
    shapes = [
        {index: axis for index, axis in enumerate(spec.axes) if isinstance(axis, str)}
        for spec in graph.inputs
    ]
    try:
        with quiet():
            torch.onnx.export(
                graph.module,
                tuple(spec.example(generator) for spec in graph.inputs),
                path,
                input_names=[spec.name for spec in graph.inputs],
                output_names=list(graph.outputs),
                dynamic_shapes=grouped(graph, shapes),
                opset_version=OPSET,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise Failure(
            f"format onnx: PyTorch cannot write the graph {graph.name!r} of this model ({reason})",
            fix="report this as a bug of Harken, with the recipe of the run",
        ) from error


def grouped(graph: Graph, shapes: list[Any]) -> tuple[Any, ...]:
    """Return the shapes in the form of the arguments: those of `*arguments` are one tuple."""
    parameters = signature(graph.module.forward).parameters.values()
    fixed = sum(parameter.kind is not Parameter.VAR_POSITIONAL for parameter in parameters)
    if fixed == len(parameters):
        return tuple(shapes)
    return (*shapes[:fixed], tuple(shapes[fixed:]))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the notes of the exporter; its errors are exceptions."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def quantize_graph(path: Path) -> None:
    """Store the weights as int8; activations are quantized at run time."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    transpose_weights(model.graph)
    with quiet():
        quantize_dynamic(model, path, weight_type=QuantType.QInt8)


def transpose_weights(graph: "onnx.GraphProto") -> None:
    """Store the weight of each Gemm transposed, under a name of its own.

    ONNX Runtime would transpose it in place, also for an embedding with the same weight.
    """
    from onnx import numpy_helper

    weights = {weight.name: weight for weight in graph.initializer}
    for node in graph.node:
        flags = [attribute for attribute in node.attribute if attribute.name == "transB"]
        if node.op_type == "Gemm" and flags and flags[0].i and node.input[1] in weights:
            matrix = numpy_helper.to_array(weights[node.input[1]]).T.copy()
            node.input[1], flags[0].i = f"{node.input[1]}_{node.name}", 0
            graph.initializer.append(numpy_helper.from_array(matrix, node.input[1]))
    used = {name for node in graph.node for name in node.input}
    for name, weight in weights.items():
        if name not in used:
            graph.initializer.remove(weight)
    del graph.value_info[:]  # has the shapes before the transposition
