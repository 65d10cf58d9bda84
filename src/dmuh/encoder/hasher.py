"""Hasher, the one public encoder from images to codes."""

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmuh.codes import Codes
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import ConfigError, InputError, MissingExtraError, needs_torch
from dmuh.files import ArrayFile, write_text, written_whole
from dmuh.images import ImageLike, ImageReader, Images, OnBadImage, Pixels, Preprocess, Reading
from dmuh.machine import may_have_gpu
from dmuh.runs import Run

if TYPE_CHECKING:
    from dmuh.network import TorchNetwork

log = logging.getLogger(__name__)

_BATCH = 64


class Hasher:
    """A trained network that gives images their codes.

    What an image gets never depends on the images beside it. On a CPU ONNX Runtime runs the network, without torch.
    """

    def __init__(
        self, network: "OnnxNetwork | TorchNetwork", preprocess: Preprocess | None, about: dict[str, Any], digest: str
    ) -> None:
        self._network = network
        self._preprocess = preprocess  # None where it takes feature vectors
        self.about = about  # method, classes, backbone, where the weights come from
        self.digest = digest  # which weights these are

    @classmethod
    def load(cls, model: str | Path, device: str = "auto") -> "Hasher":
        """Load the network of a finished run folder, or of a folder that `dmuh export` wrote, which needs no torch.

        `auto` takes a GPU where there is one; an exported network runs on the CPU.
        """
        bundle, run = Bundle(Path(model)), Run(Path(model))
        network: OnnxNetwork | TorchNetwork
        if bundle.exists:
            if device not in ("auto", "cpu"):
                raise ConfigError(f"{model} was exported for the CPU, got device {device!r}: load the run instead")
            network, about, digest = bundle.load()
        else:
            weights = run.load_model()
            about, digest = weights.metadata, weights.checksum
            network = _on_gpu(weights, device) or OnnxNetwork(onnx_of(run, weights))
        return cls(network, Preprocess(**about["preprocess"]) if about["preprocess"] else None, about, digest)

    @property
    def n_bits(self) -> int:
        """Length of the codes."""
        return int(self.about["n_bits"])

    @property
    def takes_images(self) -> bool:
        """Whether it encodes images, rather than feature vectors."""
        return self._preprocess is not None

    def encode(
        self,
        images: ImageLike | Images | NDArray[np.float32],
        *,
        ids: Sequence[int] | NDArray[np.int64] | None = None,
        on_bad_image: OnBadImage | None = None,
        reading: Reading | None = None,
    ) -> Codes:
        """Return the codes of images: paths, Pillow images, file contents or uint8 arrays; one alone is fine too.

        A network for feature vectors takes a matrix float32 (n, n_features) instead. Ids are `ids` or positions; with
        `on_bad_image="skip"` unreadable images are left out. `reading` has all that can be said of how images are read.
        """
        how = reading or Reading()
        if on_bad_image is not None:
            how = replace(how, on_bad_image=on_bad_image)
        many = cast(Images, [images] if self._is_one(images) else images)
        if ids is not None and len(ids) != len(many):
            raise InputError(f"ids must be as many as the images, {len(many)}, got {len(ids)}")
        kept, outputs, unsure = [np.empty(0, np.int64)], [np.empty((0, self.n_bits), np.float32)], []
        with how.progress("encoding", len(many)) as advance:
            for positions, rows, n_asked in self._rows(many, how):
                if len(positions):
                    result = self._network.run(rows)
                    kept.append(positions)
                    outputs.append(result["outputs"])
                    if "uncertainty" in result:
                        unsure.append(result["uncertainty"])
                advance(n_asked)
        found = np.concatenate(kept)
        with_uncertainty = "uncertainty" in self._network.outputs
        return Codes.from_outputs(
            np.concatenate(outputs),
            np.concatenate([outputs[0], *unsure]) if with_uncertainty else None,
            found if ids is None else np.asarray(ids, np.int64)[found],
        )

    @property
    def preprocess(self) -> Preprocess:
        """How the pixels that `encode_pixels` takes are read."""
        if self._preprocess is None:
            raise InputError("this network takes feature vectors, which have no pixels")
        return self._preprocess

    def encode_pixels(self, pixels: Pixels) -> Codes:
        """Return the codes of images that were read before, by `read_pixels` and `preprocess`: (n, size, size, 3)."""
        result = self._network.run(pixels)
        return Codes.from_outputs(result["outputs"], result.get("uncertainty"))

    def rows(self, images: Images) -> NDArray[Any]:
        """Return what the network takes for each image (n, …)."""
        return np.concatenate([rows for _, rows, _ in self._rows(images, Reading())])

    def _is_one(self, images: object) -> bool:
        """Whether this is one image or vector rather than several."""
        if not isinstance(images, np.ndarray):
            return isinstance(images, str | Path | bytes | Image.Image)
        if self._preprocess is None:
            return images.ndim == 1
        return images.ndim == 2 or (images.ndim == 3 and images.shape[2] in (3, 4))

    def _rows(self, images: Images, reading: Reading) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], int]]:
        """Yield positions, what the network takes for them, and how many were asked for, batch by batch."""
        positions = np.arange(len(images), dtype=np.int64)
        batches = [positions[n : n + _BATCH] for n in range(0, len(positions), _BATCH)]
        if self._preprocess is None:
            vectors = np.asarray(images)
            if vectors.dtype.kind not in "fiu" or vectors.shape[1:] != self._network.shape:
                raise InputError(
                    f"this network takes feature vectors (n, {self._network.shape[0]}), with --dataset features on the "
                    f"command line, got {vectors.dtype} of shape {vectors.shape}"
                )
            for batch in batches:
                yield batch, np.asarray(vectors[batch], np.float32), len(batch)
            return
        with ImageReader(images, self._preprocess, reading) as reader:
            for read, asked in zip(reader.batches(batches), batches, strict=True):
                yield read.positions, read.pixels, len(asked)


def _on_gpu(model: ArrayFile, device: str) -> "TorchNetwork | None":
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
    """Return the networks in the ONNX format; the file is made when first asked for, and again if it does not fit."""
    digest_file = run.onnx_file.with_suffix(".onnx.sha256")
    if run.onnx_file.is_file() and digest_file.is_file():
        kept = run.onnx_file.read_bytes()
        if digest_file.read_bytes().split() == [hashlib.sha256(kept).hexdigest().encode(), model.checksum.encode()]:
            return kept
    with needs_torch(f"the first use of {run.path}"):
        from dmuh.encoder.onnx_export import WholeNetwork, to_onnx
        from dmuh.network import load_networks
    content = to_onnx(WholeNetwork(*load_networks(model)))
    try:
        with written_whole(run.onnx_file) as temporary:
            temporary.write_bytes(content)
        write_text(digest_file, f"{hashlib.sha256(content).hexdigest()} {model.checksum}\n")
    except OSError as error:
        log.info("the network for ONNX Runtime cannot be kept in %s: %s", run.path, error.strerror)
    return content
