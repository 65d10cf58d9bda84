"""The export of a run: its network in a folder that needs neither torch nor the run."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from dmuh.encoder.bundle import KNOWN_TEXTS, TEXT_NETWORK, Bundle
from dmuh.encoder.hasher import Hasher
from dmuh.encoder.known_texts import KNOWN
from dmuh.encoder.loading import onnx_of, text_onnx_of
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import ConfigError, InputError, needs_torch
from dmuh.files import ArrayFile
from dmuh.images import Images
from dmuh.runs import Run


@dataclass(frozen=True)
class Int8:
    """What 8-bit numbers change, on images that they were not fitted to.

    images                   how many these are
    flip_rate                fraction of their bits that differ
    uncertainty_correlation  rank correlation of the images' uncertainty before and after, where there is one
    """

    images: int
    flip_rate: float
    uncertainty_correlation: float | None


def export_run(run: str | Path, out: str | Path, images: Images | None = None) -> Int8 | None:
    """Write a finished run's network to the folder `out`, which `Hasher.load` takes without torch.

    With `images`, such as it was trained on, the network gets 8-bit numbers: half of the images say in which ranges,
    the other half how many bits change by it.
    """
    source, bundle = Run(Path(run)), Bundle(Path(out))
    model = source.load_model()
    if bundle.path.resolve() == source.path.resolve():
        raise ConfigError(f"{out} is the run itself: export it to a folder of its own")
    content, texts = onnx_of(source, model), _text_files(source, model)
    if images is None:
        bundle.write(content, model.metadata, model.checksum, texts)
        return None
    if len(images) < 2:
        raise InputError(f"8-bit numbers are fitted to images: give two or more, got {len(images)}")
    with needs_torch("exporting 8-bit numbers"):
        from dmuh.encoder.onnx_export import to_int8
    rows = Hasher.load(run, "cpu").rows(images)
    smaller = to_int8(content, rows[::2])
    changes = _compared(OnnxNetwork(content).run(rows[1::2]), OnnxNetwork(smaller).run(rows[1::2]))
    about = {**model.metadata, "int8": asdict(changes)}
    bundle.write(smaller, about, hashlib.sha256(smaller).hexdigest(), texts)
    return changes


def _text_files(run: Run, model: ArrayFile) -> dict[str, bytes]:
    """Return the files that a model for images and texts needs for texts, by name; none for one of images alone."""
    if "texts" not in model.metadata:
        return {}
    from dmuh.texts import load_text_encoder

    card = model.metadata["texts"]["encoder"]
    encoder_files = {} if card is None else load_text_encoder(card).files()
    known = {KNOWN_TEXTS: save({"vectors": model.arrays[KNOWN]})} if KNOWN in model.arrays else {}
    return {TEXT_NETWORK: text_onnx_of(run, model), **known, **encoder_files}


def _compared(before: dict[str, NDArray[np.float32]], after: dict[str, NDArray[np.float32]]) -> Int8:
    flipped = (before["outputs"] >= 0) != (after["outputs"] >= 0)
    correlation = None
    if "uncertainty" in before:
        ranks = [result["uncertainty"].mean(axis=1).argsort().argsort() for result in (before, after)]
        correlation = round(float(np.corrcoef(*ranks)[0, 1]), 4)
    return Int8(len(flipped), round(float(flipped.mean()), 6), correlation)
