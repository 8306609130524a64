"""ONNX graphs that are not recorded: the module that would be recorded computes instead of onnxruntime.

Recording a graph takes seconds, which was half of the time of the tests of exports. What is written, read and
computed around the graphs is tested for every kind of model with these; three tests with the mark `records` record
theirs, and `make test-all` records all.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

MARK = b"no graph, but module "
SIZES = {"batch": 2, "length": 7, "words": 4, "most": 9}


class TorchGraph:
    """A module with the interface of an `onnxruntime.InferenceSession`."""

    def __init__(self, module: nn.Module, shapes: dict[str, tuple[Any, ...]], outputs: tuple[str, ...]) -> None:
        self.module, self.shapes = module, shapes
        example = {name: np.ones([SIZES.get(size, size) for size in shape], np.int64) for name, shape in shapes.items()}
        assert len(self.run(None, example)) == len(outputs)

    def run(self, names: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert names is None and inputs.keys() == self.shapes.keys()
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.compiler, "is_exporting", lambda: True)  # parts stand in for others, as while recording
            found = self.module(**{name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in inputs.items()})
        return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]


graphs: dict[bytes, TorchGraph] = {}


def put_in_place(patch: pytest.MonkeyPatch) -> None:
    """Let nothing be recorded, and what was written instead be read by the engine and by the lines of a card."""
    import onnxruntime

    from glassformer.interop import onnx_engine, onnx_writer

    opened, checked = onnxruntime.InferenceSession, onnx_engine.check_graph

    def not_recorded(module: nn.Module, shapes: dict[str, tuple[Any, ...]], outputs: tuple[str, ...]) -> bytes:
        name = MARK + str(len(graphs)).encode()
        graphs[name] = TorchGraph(module, shapes, outputs)
        return name

    def session(source: Any, *args: Any, **kwargs: Any) -> Any:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        return graphs[data] if data in graphs else opened(source, *args, **kwargs)

    def check(data: bytes, file: Path) -> None:
        None if data in graphs else checked(data, file)

    patch.setattr(onnx_writer, "_graph", not_recorded)
    patch.setattr(onnx_engine, "check_graph", check)
    patch.setattr(onnxruntime, "InferenceSession", session)
