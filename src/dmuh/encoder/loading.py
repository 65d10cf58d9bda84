"""The network of a run, made ready to encode: on a GPU by torch, else in the ONNX format."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dmuh.encoder.known_texts import KNOWN
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.encoder.text_hasher import TextHasher
from dmuh.errors import MissingExtraError, needs_torch
from dmuh.files import ArrayFile, write_text, written_whole
from dmuh.machine import may_have_gpu
from dmuh.runs import Run

if TYPE_CHECKING:
    from dmuh.network import TorchNetwork

log = logging.getLogger(__name__)


def on_gpu(model: ArrayFile, device: str) -> "TorchNetwork | None":
    """Return the network on the GPU that is meant by `device`, or None if that is the CPU."""
    if device == "cpu" or (device == "auto" and not may_have_gpu()):
        return None
    try:
        from dmuh.network import TorchNetwork, choose_device, load_networks
    except ModuleNotFoundError as error:
        if device == "auto" and error.name == "torch":
            return None
        raise MissingExtraError(f"encoding on {device}", "train") from error
    place = choose_device(device)
    return None if place.type == "cpu" else TorchNetwork(*load_networks(model, place))


def onnx_of(run: Run, model: ArrayFile) -> bytes:
    """Return the network in the ONNX format; the file is made when first asked for, and again if it does not fit."""

    def made() -> bytes:
        from dmuh.encoder.onnx_export import WholeNetwork, to_onnx
        from dmuh.network import load_networks

        return to_onnx(WholeNetwork(*load_networks(model)))

    return _kept(run, run.onnx_file, model, made)


def text_onnx_of(run: Run, model: ArrayFile) -> bytes:
    """Return the texts' network of a cross-modal model, from features to outputs, in the same way."""

    def made() -> bytes:
        from dmuh.encoder.onnx_export import WholeNetwork, to_onnx
        from dmuh.network import load_text_networks

        return to_onnx(WholeNetwork(*load_text_networks(model)))

    return _kept(run, run.text_onnx_file, model, made)


def text_hasher_of(run: Run, model: ArrayFile) -> TextHasher:
    """Return the part of a cross-modal model that encodes texts, whose encoder is installed."""
    known = model.arrays.get(KNOWN)
    return TextHasher(OnnxNetwork(text_onnx_of(run, model)), model.metadata, None, known)


def _kept(run: Run, file: Path, model: ArrayFile, made: Callable[[], bytes]) -> bytes:
    """Return the content of a run's ONNX file, if it is of this model; else make it, and keep it."""
    digest_file = file.with_suffix(".onnx.sha256")
    if file.is_file() and digest_file.is_file():
        content = file.read_bytes()
        if digest_file.read_bytes().split() == [hashlib.sha256(content).hexdigest().encode(), model.checksum.encode()]:
            return content
    with needs_torch(f"the first use of {run.path}"):
        content = made()
    try:
        with written_whole(file) as temporary:
            temporary.write_bytes(content)
        write_text(digest_file, f"{hashlib.sha256(content).hexdigest()} {model.checksum}\n")
    except OSError as error:
        log.info("the network for ONNX Runtime cannot be kept in %s: %s", run.path, error.strerror)
    return content
