"""Bundles: what `dmuh export` writes, a trained network in a folder that needs neither torch nor the run.

model.onnx      the network and its momentum copy, if it has one: pixels or feature vectors → outputs and uncertainty
model.json      the card: method, bits, classes, how an image is prepared, what comes in and out, and the checksums
text_head.onnx  of a model for images and texts: features of a text → outputs and uncertainty; beside it stands what
                gives a text its features, under names of the text encoder's own, and known_texts.safetensors, which
                tells texts that are like none the model learned from

The card covers itself and all files, so that a folder that was cut short or altered is refused.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load

from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import FormatError
from dmuh.files import written_whole
from dmuh.files.documents import read_document, refuse_foreign, write_document

_KIND, _VERSION = "dmuh bundle", 1
TEXT_NETWORK, KNOWN_TEXTS = "text_head.onnx", "known_texts.safetensors"
_IMAGES = (
    "Turn the image upright by its EXIF tag, stretch it to `resize` × `resize` pixels (bilinear), take the centre of "
    "`size` × `size`: RGB, uint8, (1, size, size, 3). The network normalises it itself."
)
_VECTORS = "One feature vector, float32, as it was trained on."


@dataclass(frozen=True)
class Bundle:
    """A bundle's folder."""

    path: Path

    @property
    def exists(self) -> bool:
        """Whether the folder holds a bundle."""
        return self._card_file.is_file()

    @property
    def onnx_file(self) -> Path:
        """The networks."""
        return self.path / "model.onnx"

    @property
    def _card_file(self) -> Path:
        return self.path / "model.json"

    def write(
        self, content: bytes, about: dict[str, Any], digest: str, texts: Mapping[str, bytes] | None = None
    ) -> None:
        """Write a network in the ONNX format, what is known of it, which weights it has, and the files for texts."""
        network = OnnxNetwork(content)
        files = {self.onnx_file.name: content, **(texts or {})}
        card = {
            "version": _VERSION,
            "input": {
                "name": network.input,
                "dtype": str(network.dtype),
                "shape": [1, *network.shape],
                "prepared": _IMAGES if about["preprocess"] else _VECTORS,
            },
            "outputs": network.outputs,
            "bit": "1 where outputs ≥ 0",
            "model": about,
            "digest": digest,
            "sha256": {name: hashlib.sha256(one).hexdigest() for name, one in files.items()},
        }
        refuse_foreign(self.path, self._card_file.name, _KIND, list(files))
        write_document(self._card_file, _KIND, card)  # first: a folder with a card is known to be ours
        for name, one in files.items():
            with written_whole(self.path / name) as temporary:
                temporary.write_bytes(one)

    def load(self) -> tuple[OnnxNetwork, dict[str, Any], str]:
        """Return the network, what is known of it, and the digest of its weights."""
        card = self._card()
        return OnnxNetwork(self._checked(self.onnx_file.name, card)), card["model"], card["digest"]

    def load_texts(self) -> OnnxNetwork:
        """Return the network of texts; all files for texts are checked."""
        card = self._card()
        contents = {name: self._checked(name, card) for name in card["sha256"] if name != self.onnx_file.name}
        return OnnxNetwork(contents[TEXT_NETWORK])

    def known_texts(self) -> NDArray[np.float32] | None:
        """Return the vectors of training texts that the model keeps, if it does."""
        card = self._card()
        if KNOWN_TEXTS not in card["sha256"]:
            return None
        vectors: NDArray[np.float32] = load(self._checked(KNOWN_TEXTS, card))["vectors"]
        return vectors

    def _card(self) -> dict[str, Any]:
        card = read_document(self._card_file, _KIND)
        if card.get("version") != _VERSION:
            raise FormatError(
                f"{self.path} is version {card.get('version')} of a {_KIND}, this dmuh reads version {_VERSION}: "
                "export it again"
            )
        return card

    def _checked(self, name: str, card: Mapping[str, Any]) -> bytes:
        """Return the content of a file, if it is the one that was written."""
        file = self.path / name
        content = file.read_bytes() if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != card["sha256"][name]:
            raise FormatError(f"{file} is missing, cut short or altered: its checksum does not fit")
        return content
