"""Networks in the ONNX format, run by ONNX Runtime: the way a CPU encodes images. No torch.

Every row is run by itself, one per core at a time. That is also the fastest way for convolutions on a CPU, and what a
row gives cannot depend on the rows beside it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from dmuh.errors import FormatError, InputError
from dmuh.machine.workers import over_cores


class OnnxNetwork:
    """A network with one input, one row at a time, and one or more outputs."""

    def __init__(self, model: bytes | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # the rows share the cores instead
        options.log_severity_level = 3
        self._model = model
        source = model if isinstance(model, bytes) else str(model)
        try:
            self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has a class of its own for each way a file can be broken
            name = "this" if isinstance(model, bytes) else model
            raise FormatError(f"{name} is not a network in the ONNX format: {error}") from error
        wanted = self._session.get_inputs()[0]
        self.input = wanted.name
        self.shape = tuple(wanted.shape[1:])  # of one row
        self.dtype = np.dtype({"tensor(uint8)": np.uint8, "tensor(float)": np.float32}[wanted.type])
        self.outputs = [output.name for output in self._session.get_outputs()]

    def __reduce__(self) -> tuple[type["OnnxNetwork"], tuple[bytes | Path]]:
        """Pickle the network by its file: what ONNX Runtime made of it stays in this process."""
        return OnnxNetwork, (self._model,)

    def run(self, rows: NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        """Return what each row (n, …) gives, by the name of the output: float32 (n, …)."""
        if rows.dtype != self.dtype or rows.shape[1:] != self.shape:
            raise InputError(f"rows must be {self.dtype} (n, {self.shape}), got {rows.dtype} {rows.shape}")
        shapes = [tuple(output.shape[1:]) for output in self._session.get_outputs()]
        results = [np.empty((len(rows), *shape), np.float32) for shape in shapes]

        def work(first: int, last: int) -> None:
            for n in range(first, last):
                for result, value in zip(results, self._session.run(None, {self.input: rows[n : n + 1]}), strict=True):
                    result[n] = value[0]

        over_cores(work, len(rows))
        return dict(zip(self.outputs, results, strict=True))
