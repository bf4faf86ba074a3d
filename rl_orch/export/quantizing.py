"""ONNX graphs with weights of 8 bits.

What flows into a layer is rounded as it comes, to 256 steps between the least and the greatest
number of the whole batch. So actions depend a little on which rows are asked about together. And
the layers that read observations stay as they are: components of very different size would share
those steps, which costs policies their balance, while these layers are the smallest.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rl_orch.export.formats import quietly
from rl_orch.export.graph import FRAMES, OBSERVATION
from rl_orch.io.policies.requests import refuse_missing

LAYERS = ("Gemm", "MatMul", "Conv")
RENAMED = {"Gemm": "_MatMul"}
"""What onnxruntime adds to the name of a Gemm, which it makes a MatMul before it looks at names."""


def quantized(data: bytes) -> bytes:
    """The graph with the weights of its matrix products in 8 bits, but for those of the layers
    that read observations. Convolutions stay as they are."""
    refuse_missing()
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    spared = list(_reading_observations(onnx.load_from_string(data).graph))
    with TemporaryDirectory() as folder, quietly():
        before, after = Path(folder) / "before.onnx", Path(folder) / "after.onnx"
        before.write_bytes(data)
        quantize_dynamic(
            before,
            after,
            op_types_to_quantize=["MatMul"],
            nodes_to_exclude=spared,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
        return after.read_bytes()


def _reading_observations(graph: Any) -> Iterator[str]:
    """The names of layers that no other layer stands before, seen from the observations."""
    raw = {port.name for port in graph.input if port.name.startswith((OBSERVATION, FRAMES))}
    for node in graph.node:  # In an order in which each comes after what it reads.
        if raw.isdisjoint(node.input):
            continue
        if node.op_type in LAYERS:
            yield node.name + RENAMED.get(node.op_type, "")
        else:
            raw.update(node.output)
