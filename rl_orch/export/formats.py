"""Graphs as files: ONNX, TorchScript and torch's own `pt2`; written, and loaded back to be checked.

What is loaded back was written by this process a moment ago. Files of others are never loaded here:
TorchScript and pt2 may bring code along.
"""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from rl_orch.errors import RlctlError
from rl_orch.export.graph import Arrays, PolicyGraph
from rl_orch.export.parity import Run, in_torch
from rl_orch.io.policies.requests import FILES, refuse_missing

LARGEST = 2**31 - 1
"""Bytes that one ONNX file can have; more would need data outside it."""

EXAMPLE_ROWS = 3
"""Of the example that graphs are traced with: a number that stands for nothing else."""


@dataclass(frozen=True, slots=True)
class Written:
    """A graph as bytes, and how to run it."""

    data: bytes
    run: Run


class Writer:
    """Writes one graph in any format, and loads it back from its own bytes."""

    def __init__(self, graph: PolicyGraph) -> None:
        self.graph = graph

    def write(self, form: str) -> Written:
        """The graph in one format; `RlctlError` if it cannot be written so."""
        writers = {"onnx": self._onnx, "torchscript": self._torchscript, "pt2": self._pt2}
        with quietly():
            try:
                return writers[form]()
            except RlctlError:
                raise
            # Encoders may be somebody else's code, and exporters fail in ways of their own.
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                raise RlctlError(
                    f"the policy cannot be written as {form}: {type(error).__name__}: {first}",
                    hint=f"Another format may work: {', '.join(FILES)}.",
                ) from error

    def _onnx(self) -> Written:
        refuse_missing()
        program = torch.onnx.export(
            self._program,
            input_names=[port.name for port in self.graph.inputs],
            output_names=[port.name for port in self.graph.outputs],
            dynamo=True,
            external_data=False,
            optimize=True,
            verbose=False,
        )
        assert program is not None
        model: Any = program.model_proto
        _tidy(model)
        if model.ByteSize() > LARGEST:
            raise RlctlError(f"the policy has more than the {LARGEST:,} bytes of one ONNX file")
        data: bytes = model.SerializeToString(deterministic=True)
        return Written(data, session_run(data))

    def _torchscript(self) -> Written:
        buffer = io.BytesIO()
        with torch.no_grad():
            trace: Any = torch.jit.trace
            traced = trace(self.graph, self._example(), check_trace=False)
            torch.jit.save(traced, buffer)
        data = buffer.getvalue()
        load: Any = torch.jit.load
        return Written(data, in_torch(self.graph, load(io.BytesIO(data))))

    def _pt2(self) -> Written:
        buffer = io.BytesIO()
        torch.export.save(self._program, buffer)
        data = buffer.getvalue()
        return Written(data, in_torch(self.graph, torch.export.load(io.BytesIO(data)).module()))

    @cached_property
    def _program(self) -> torch.export.ExportedProgram:
        rows = torch.export.Dim("batch", min=1)
        shapes = {"tensors": tuple({0: rows} for _ in self.graph.inputs)}
        # Strictly: layers that keep their weights in lists share them with the graph's own names.
        with torch.no_grad():
            program = torch.export.export(
                self.graph, self._example(), dynamic_shapes=shapes, strict=True
            )
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # Paths of the machine that wrote it.
        return program

    def _example(self) -> tuple[torch.Tensor, ...]:
        ports = self.graph.inputs
        rows = (np.ones((EXAMPLE_ROWS, *port.shape), port.dtype) for port in ports)
        return tuple(map(torch.from_numpy, rows))


def session_run(data: bytes) -> Run:
    """An ONNX graph as onnxruntime runs it, in one thread."""
    refuse_missing()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = {given.name for given in session.get_inputs()}

    def run(inputs: Arrays) -> Arrays:
        given = {name: array for name, array in inputs.items() if name in wanted}
        return dict(zip(names, session.run(names, given), strict=True))

    return run


def _tidy(model: Any) -> None:
    """Leave out what tells of the machine that wrote it, and call the batch by its name."""
    model.producer_name, model.producer_version = "rl-orch", ""
    model.doc_string = model.graph.doc_string = ""
    del model.metadata_props[:]
    del model.graph.value_info[:]
    graph = model.graph
    for part in (model.graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        part.doc_string = ""
        del part.metadata_props[:]
    for port in (*graph.input, *graph.output):
        shape = port.type.tensor_type.shape
        if shape.dim:
            shape.dim[0].dim_param = "batch"


@contextmanager
def quietly() -> Iterator[None]:
    """Exporters warn of what they cannot know: of deprecations, and of packages they can do
    without."""
    loud = logging.getLogger("torch.onnx"), logging.getLogger()
    levels = [logger.level for logger in loud]
    for logger in loud:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loud, levels, strict=True):
            logger.setLevel(level)
