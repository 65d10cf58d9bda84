"""From torch to the ONNX format."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dmuh.errors import MissingExtraError
from dmuh.network import HashNetwork, MomentumCopy


class Lower(nn.Module):
    """What of a network does not train: pixels → `activations`."""

    outputs = ("activations",)

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the activations."""
        return self.network.lower(pixels)


class Both(nn.Module):
    """A network and its momentum copy, if it has one: pixels → `outputs` and `uncertainty`, (B, n_bits) each."""

    def __init__(self, network: HashNetwork, momentum: MomentumCopy | None) -> None:
        super().__init__()
        self.network = network
        self.momentum = momentum
        self.outputs = ("outputs",) if momentum is None else ("outputs", "uncertainty")

    def forward(self, pixels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Compute both."""
        activations = self.network.lower(pixels)
        outputs = self.network.upper(activations)
        if self.momentum is None:
            return outputs
        return outputs, (outputs - self.momentum.upper(activations)).abs()


def to_onnx(module: Lower | Both) -> bytes:
    """Return the module as an ONNX file that takes one row (1, …) at a time."""
    row = module.network.backbone.example().to(module.network.device)
    try:
        import onnxscript  # noqa: F401  # what torch's exporter is written in
    except ModuleNotFoundError as error:
        raise MissingExtraError("exporting a network", "train") from error
    with _quiet("torch.onnx", "onnxscript", "onnx_ir"):
        program = torch.onnx.export(
            module, (row,), dynamo=True, verbose=False, input_names=["pixels"],
            output_names=list(module.outputs), external_data=False,
        )  # fmt: skip
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence what the exporter says of itself."""
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
