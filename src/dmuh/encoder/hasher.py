"""Hasher, the one public encoder from images to codes."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmuh.codes import Codes
from dmuh.datasets import Dataset, load_images
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.calibration import DEFAULT_SURE, Calibration
from dmuh.encoder.loading import on_gpu, onnx_of, text_hasher_of
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.encoder.text_hasher import TextHasher
from dmuh.encoder.windows import Window, windows
from dmuh.errors import ConfigError, InputError
from dmuh.images import ImageLike, ImageReader, Images, OnBadImage, Pixels, Preprocess, Reading
from dmuh.progress import counting_bar
from dmuh.runs import Run

if TYPE_CHECKING:
    from dmuh.network import TorchNetwork

log = logging.getLogger(__name__)

_BATCH = 64


class Hasher:
    """A trained network that gives images their codes.

    What an image gets never depends on the images beside it. On a CPU ONNX Runtime runs the network, without torch. A
    hasher can be pickled, to be sent to other processes; one on a GPU is loaded again there from the same folder.

    >>> hasher = dmuh.Hasher.load(run)
    >>> hasher
    Hasher(dmuh, 20 bits, smallconv on the CPU, takes images)
    >>> hasher.encode(photos)
    Codes(20 × 20 bits, each with 1 of sureness: ..., ..., ..., …)
    """

    def __init__(
        self,
        network: "OnnxNetwork | TorchNetwork",
        preprocess: Preprocess | None,
        about: dict[str, Any],
        digest: str,
        loaded_from: tuple[str, str] | None = None,
        texts: TextHasher | None = None,
    ) -> None:
        self._network = network
        self._preprocess = preprocess  # None where it takes feature vectors
        self.about = about  # method, classes, backbone, where the weights come from
        self.digest = digest  # which weights these are
        self._loaded_from = loaded_from  # model and device, where it is on a GPU
        self.calibration = Calibration.of_card(about)  # what the outputs say about how sure the bits are
        self.texts = texts  # the part for texts, of a model for both; else None

    @classmethod
    def load(cls, model: str | Path, device: str = "auto") -> "Hasher":
        """Load the network of a finished run folder, or of a folder that `dmuh export` wrote, which needs no torch.

        `auto` takes a GPU where there is one; an exported network runs on the CPU.

        >>> dmuh.Hasher.load(run, device="cpu")
        Hasher(dmuh, 20 bits, smallconv on the CPU, takes images)
        """
        bundle, run = Bundle(Path(model)), Run(Path(model))
        network: OnnxNetwork | TorchNetwork | None
        loaded_from = None
        if bundle.exists:
            if device not in ("auto", "cpu"):
                raise ConfigError(f"{model} was exported for the CPU, got device {device!r}: load the run instead")
            network, about, digest = bundle.load()
            texts = (
                TextHasher(bundle.load_texts(), about, bundle.path, bundle.known_texts()) if "texts" in about else None
            )
        else:
            weights = run.load_model()
            about, digest = weights.metadata, weights.checksum
            texts = text_hasher_of(run, weights) if "texts" in about else None
            network = on_gpu(weights, device)
            if network is None:
                network = OnnxNetwork(onnx_of(run, weights))
            else:
                loaded_from = str(run.path.absolute()), device
        preprocess = Preprocess(**about["preprocess"]) if about["preprocess"] else None
        return cls(network, preprocess, about, digest, loaded_from, texts)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Pickle the network in the ONNX format with what is known of it; one on a GPU by where it was loaded from."""
        if self._loaded_from is not None:
            return Hasher.load, self._loaded_from
        return Hasher, (self._network, self._preprocess, self.about, self.digest, None, self.texts)

    def __repr__(self) -> str:
        place = "the CPU" if self._loaded_from is None else "a GPU"
        takes = "images" if self.takes_images else f"feature vectors of {self._network.shape[0]} numbers"
        method, backbone = (self.about.get(key, "unknown") for key in ("method", "backbone"))
        takes += "" if self.texts is None else " and texts"
        return f"Hasher({method}, {self.n_bits} bits, {backbone} on {place}, takes {takes})"

    @property
    def n_bits(self) -> int:
        """Length of the codes.

        >>> dmuh.Hasher.load(run).n_bits
        20
        """
        return int(self.about["n_bits"])

    @property
    def takes_images(self) -> bool:
        """Whether it encodes images, rather than feature vectors.

        >>> dmuh.Hasher.load(run).takes_images
        True
        """
        return self._preprocess is not None

    @property
    def no_texts(self) -> str | None:
        """Why it encodes no sentences, in one; None if it does.

        >>> dmuh.Hasher.load(run).no_texts
        'this model (dmuh) learned from images alone: train one for texts by dmuh train --texts'
        """
        if self.texts is None:
            method = self.about.get("method", "unknown")
            return f"this model ({method}) learned from images alone: train one for texts by dmuh train --texts"
        return None if self.texts.takes_sentences else "this model takes features of texts, and no sentences"

    def encode(
        self,
        images: ImageLike | Iterable[ImageLike] | Dataset | NDArray[np.float32],
        *,
        ids: Sequence[int] | NDArray[np.int64] | None = None,
        on_bad_image: OnBadImage | None = None,
        progress: bool = False,
        reading: Reading | None = None,
        sure: int = DEFAULT_SURE,
    ) -> Codes:
        """Return the codes of images; their ids are positions, unless `ids` are given.

        images        a folder, whose images are taken in the order of `dmuh.load_dataset("images", folder)`; a data
                      set; a list or any other iterable of paths, Pillow images, file contents or uint8 arrays, of which
                      some are in memory at a time; or one of these alone. A network for feature vectors takes a matrix
                      float32 (n, n_features) instead.
        on_bad_image  "skip" leaves out images that cannot be read: the ids tell which are there
        progress      show a bar on a terminal and in a notebook
        reading       all that can be said of how images are read: `dmuh.images.Reading`
        sure          bits that say how sure each bit is, 0, 1 or 2, in what is kept of the codes

        >>> hasher = dmuh.Hasher.load(run)
        >>> photo_set = dmuh.load_dataset("images", photos)
        >>> codes = hasher.encode(photo_set)
        >>> codes == hasher.encode(photos) == hasher.encode(path for path in photo_set.images)
        True
        >>> photo_set.images[codes[3].ids[0]].name
        '03.png'
        >>> hasher.encode([photo_set.images[0], "not there.jpg"], on_bad_image="skip").ids
        array([0])
        """
        how = reading or Reading()
        if on_bad_image is not None:
            how = replace(how, on_bad_image=on_bad_image)
        if progress:
            how = replace(how, progress=counting_bar)
        many = self._as_many(images)
        n_known = len(many) if isinstance(many, Sequence | np.ndarray) else None
        if ids is not None and n_known is not None:
            _check_number(ids, n_known)
        n_expected = n_known if n_known is not None else length_hint(many) or None
        codes, n_images = self._encode(many, how, n_expected, sure)
        if reading is None and len(how.bad):  # nobody else can say it
            log.warning(how.bad.summary())
        if ids is None:
            return codes
        _check_number(ids, n_images)
        return codes.with_ids(np.asarray(ids, np.int64)[codes.ids])

    def encode_texts(
        self,
        texts: str | Sequence[str] | NDArray[np.float32],
        *,
        ids: Sequence[int] | NDArray[np.int64] | None = None,
        sure: int = DEFAULT_SURE,
    ) -> Codes:
        """Return the codes of sentences, which lie where images of what they say lie; ids as in `encode`.

        For models of methods for images and texts, such as dmuh-x. What a text gets never depends on the texts beside
        it. One trained on two matrices of features takes features of texts (n, n_features) instead.

        >>> dmuh.Hasher.load(run).encode_texts(["two dogs on a beach"])
        Traceback (most recent call last):
        dmuh.errors.ConfigError: this model (dmuh) learned from images alone: train one for texts by dmuh train --texts
        """
        if self.texts is None:
            raise ConfigError(self.no_texts)
        many = [texts] if isinstance(texts, str) else texts
        if ids is not None:
            _check_number(ids, len(many))
        return self.texts.encode(many, None if ids is None else np.asarray(ids, np.int64), sure)

    def _encode(
        self, images: Images | Iterable[ImageLike], reading: Reading, n_expected: int | None, sure: int
    ) -> tuple[Codes, int]:
        """Return the codes of the images that can be read, whose ids are their positions, and how many images came."""
        parts = [self.calibration.codes(self._nothing(), np.empty(0, np.int64), sure)]
        n_images = 0
        with reading.progress("encoding", n_expected) as advance:
            for read, rows, n_asked in self._batches(images, reading):
                if len(read):
                    parts.append(self.calibration.codes(self._network.run(rows), read, sure))
                n_images += n_asked
                advance(n_asked)
        return Codes.concatenated(parts), n_images

    def _nothing(self) -> dict[str, NDArray[np.float32]]:
        """Return what the network gives for no image."""
        return {name: np.empty((0, self.n_bits), np.float32) for name in self._network.outputs}

    @property
    def preprocess(self) -> Preprocess:
        """How the pixels that `encode_pixels` takes are read.

        >>> dmuh.Hasher.load(run).preprocess
        Preprocess(size=16, resize=18)
        """
        if self._preprocess is None:
            raise InputError("this network takes feature vectors, which have no pixels")
        return self._preprocess

    def encode_pixels(self, pixels: Pixels, sure: int = DEFAULT_SURE) -> Codes:
        """Return the codes of images that were read before, by `read_pixels` and `preprocess`: (n, size, size, 3).

        >>> hasher = dmuh.Hasher.load(run)
        >>> pixels = dmuh.images.read_pixels(photos / "ones" / "03.png", hasher.preprocess)
        >>> hasher.encode_pixels(pixels[None]) == hasher.encode(photos / "ones" / "03.png")
        True
        """
        return self.calibration.codes(self._network.run(pixels), sure=sure)

    def rows(self, images: Images) -> NDArray[Any]:
        """Return what the network takes for each image (n, …).

        >>> dmuh.Hasher.load(run).rows([photos / "ones" / "03.png"]).shape
        (1, 16, 16, 3)
        """
        return np.concatenate([rows for _, rows, _ in self._batches(images, Reading())])

    def _as_many(self, images: Any) -> Images | Iterable[ImageLike]:
        """Return what can be encoded, of whatever a user gave, as several images."""
        if isinstance(images, Dataset):
            return images.images
        if self.takes_images and isinstance(images, str | Path) and Path(images).is_dir():
            folder = load_images([Path(images)])
            for note in folder.notes:
                log.warning("%s: %s", images, note)
            return folder.images
        if isinstance(images, str | Path | bytes | Image.Image):
            return [images]
        if self.takes_images:
            is_one = isinstance(images, np.ndarray) and _is_one_image(images)
            return [images] if is_one else cast(Images | Iterable[ImageLike], images)
        vectors = np.asarray(images if hasattr(images, "__len__") else list(images))
        return vectors[None] if vectors.ndim == 1 and vectors.size else vectors

    def _batches(
        self, images: Images | Iterable[ImageLike], reading: Reading
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], int]]:
        """Yield positions, what the network takes for them, and how many images were asked for, batch by batch."""
        if self._preprocess is None:
            yield from self._vectors(np.asarray(images))
            return
        for part in [images] if isinstance(images, Sequence | np.ndarray) else windows(images):
            first = part.first if isinstance(part, Window) else 0
            positions = np.arange(first, first + len(part), dtype=np.int64)
            batches = [positions[n : n + _BATCH] for n in range(0, len(positions), _BATCH)]
            with ImageReader(part, self._preprocess, reading) as reader:
                for read, asked in zip(reader.batches(batches), batches, strict=True):
                    yield read.positions, read.pixels, len(asked)

    def _vectors(self, vectors: NDArray[Any]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], int]]:
        """Yield the same of feature vectors (n, n_features)."""
        if len(vectors) and (vectors.dtype.kind not in "fiu" or vectors.shape[1:] != self._network.shape):
            raise InputError(
                f"this network takes feature vectors (n, {self._network.shape[0]}), with --dataset features on the "
                f"command line, got {vectors.dtype} of shape {vectors.shape}"
            )
        for first in range(0, len(vectors), _BATCH):
            batch = np.asarray(vectors[first : first + _BATCH], np.float32)
            yield np.arange(first, first + len(batch), dtype=np.int64), batch, len(batch)


def _is_one_image(array: NDArray[Any]) -> bool:
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))


def _check_number(ids: Sequence[int] | NDArray[np.int64], n_images: int) -> None:
    if len(ids) != n_images:
        raise InputError(f"ids must be as many as the images, {n_images}, got {len(ids)}")
