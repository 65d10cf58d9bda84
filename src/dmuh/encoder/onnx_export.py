"""From torch to the ONNX format, and from there to 8-bit numbers."""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmuh.errors import ConfigError, MissingExtraError
from dmuh.network import HashNetwork, UncertaintySource, outputs_and_uncertainty

log = logging.getLogger(__name__)

_LAYERS = {"Conv", "Gemm", "MatMul"}
_BETWEEN = {"Add", "Clip", "MaxPool", "Relu"}  # what stands between layers and need not leave 8 bits


class FrozenPart(nn.Module):
    """The part of a network that does not train: pixels → `activations`."""

    outputs = ("activations",)

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the activations."""
        return self.network.lower(pixels)


class TrainedPart(nn.Module):
    """The rest of the network and where its uncertainty comes from: activations → `outputs` and `uncertainty`."""

    def __init__(self, network: HashNetwork, source: UncertaintySource | None) -> None:
        super().__init__()
        self.network = network
        self.source = source
        self.outputs = ("outputs",) if source is None else ("outputs", "uncertainty")

    def forward(self, activations: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the outputs (B, n_bits), and their uncertainty (B, n_bits) where it has a source."""
        outputs, uncertainty = outputs_and_uncertainty(self.network, self.source, activations)
        return outputs if uncertainty is None else (outputs, uncertainty)


class WholeNetwork(TrainedPart):
    """Both parts: pixels → `outputs` and `uncertainty`, (B, n_bits) each."""

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the outputs, and their uncertainty where it has a source."""
        return super().forward(self.network.lower(pixels))


def to_onnx(module: FrozenPart | TrainedPart) -> bytes:
    """Return the module as an ONNX file that takes one row (1, …) at a time."""
    try:
        from dmuh.encoder.onnx_operators import OPERATORS
        from dmuh.encoder.onnx_recorder import Recorder, UnknownOperatorError
    except ModuleNotFoundError as error:
        raise MissingExtraError("exporting a network", "train") from error
    row = module.network.backbone.example().to(module.network.device)
    takes_pixels = isinstance(module, FrozenPart | WholeNetwork)
    if not takes_pixels:
        row = module.network.lower(row)
    name = "pixels" if takes_pixels else "activations"
    recorder = Recorder(module, OPERATORS)
    recorder.start(row, name)
    try:
        with torch.no_grad(), recorder:
            results = module(row)
        return recorder.finish(
            row, dict(zip(module.outputs, results if isinstance(results, tuple) else (results,), strict=True))
        )
    except UnknownOperatorError as missing:
        log.info("torch's exporter writes the network, which takes seconds: %s", missing)
        return by_torch(module, row, name)


def by_torch(module: FrozenPart | TrainedPart, row: Tensor, name: str) -> bytes:
    """Return the module as torch's exporter writes it, with this row as an example of its input."""
    try:
        import onnxscript  # noqa: F401  # what torch's exporter is written in
    except ModuleNotFoundError as error:
        raise MissingExtraError("exporting a network", "train") from error
    with _quiet("torch.onnx", "onnxscript", "onnx_ir"):
        program = torch.onnx.export(
            module, (row,), dynamo=True, verbose=False, input_names=[name], output_names=list(module.outputs),
            external_data=False,
        )  # fmt: skip
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


def to_int8(content: bytes, rows: NDArray[Any]) -> bytes:
    """Return an ONNX file with weights and activations of 8 bits, in ranges that suit these rows (n, …).

    The first layer and the hash layer stay as they are: both are small, and change the most bits. Weights have 7 bits
    in truth, because processors without 8-bit dot products would overflow otherwise and give other codes.
    """
    try:
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
    except ModuleNotFoundError as error:
        raise MissingExtraError("exporting 8-bit numbers", "train") from error

    class Rows(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rows = iter(rows)

        def get_next(self) -> dict[str, Any] | None:
            row = next(self._rows, None)
            return None if row is None else {"pixels": row[None]}

    with tempfile.TemporaryDirectory() as folder, _quiet("root"):
        folded, smaller = Path(folder, "folded.onnx"), Path(folder, "int8.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)  # weights that a network computes from others become constants
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        proto = onnx.load(folded)
        as_floats = _first_layers(proto.graph) | {
            node.name
            for node in proto.graph.node
            if any(".hash_layer." in name or name.startswith("source.") for name in node.input)
        }
        if all(node.name in as_floats for node in proto.graph.node if node.op_type in _LAYERS):
            raise ConfigError("this network has no layer below its hash layer to quantise: export it without int8")
        quantize_static(
            proto, smaller, Rows(), per_channel=True, reduce_range=True, activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8, op_types_to_quantize=[*_LAYERS, *_BETWEEN], nodes_to_exclude=list(as_floats),
        )  # fmt: skip
        return smaller.read_bytes()


def _first_layers(graph: Any) -> set[str]:
    """Return the names of the layers with no other layer between them and the pixels."""
    maker = {name: node for node in graph.node for name in node.output}

    def first(node: Any) -> bool:
        before = maker.get(node.input[0])
        return before is None or (before.op_type not in _LAYERS and first(before))

    return {node.name for node in graph.node if node.op_type in _LAYERS and first(node)}


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence the exporter's messages."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
