"""Codes for the images of one folder, from their ImageNet features: by their look, fitted to the folder itself.

A model is written as two bundles: the whole network, from pixels, for what is uploaded, and in `head` the part above
the features, for images whose features are kept. Both give an image the same code, to the last bit.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.backbones import Backbone
from dmuh.datasets import multi_hot
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.onnx_export import TrainedPart, WholeNetwork, to_onnx
from dmuh.methods.itq import ITQ
from dmuh.network import HashNetwork, UncertaintySource
from dmuh.network.uncertainty.margin import Margin
from dmuh.trainer.calibrating import calibrated, near_by_angle, share_a_label, with_match
from dmuh.trainer.measuring import spread

LOOK_BITS = 64
_MOST = 20_000  # images at most that codes are fitted to
_CALIBRATED = 1000  # images at most that say how sure bits are
_CLASSES = 0.5  # share of the nearest images with the same label, from which on labels are taken for what images show


@dataclass(frozen=True)
class FolderCodes:
    """A network for the images of one folder, where its uncertainty comes from, and its card."""

    network: HashNetwork
    source: UncertaintySource
    card: dict[str, Any]


def fit_look(
    backbone: Backbone,
    name: str,
    activations: NDArray[np.float32],
    labels: list[list[str]],
    n_bits: int = LOOK_BITS,
    seed: int = 0,
) -> FolderCodes:
    """Return codes by look for images with these activations of a backbone (n, n_features): ITQ, without labels.

    How sure bits are is measured by the ten nearest images of each. Where most of those share a label, as where the
    folders are classes, the labels also say what a distance means.
    """
    rows = activations[spread(np.arange(len(activations)), _MOST)]
    if len(rows) < 2:  # a single image has no spread of its own
        rows = np.concatenate([rows, np.zeros_like(rows)])
    network = HashNetwork(backbone, n_bits, "all")
    network.hash_layer = ITQ(n_bits, seed=seed).fit(rows).head_
    source = Margin()
    calibration = _calibrated(network, source, activations, labels)
    return FolderCodes(network, source, _card("itq", name, network, source, len(activations), seed, calibration))


def write_model(folder: Path, codes: FolderCodes) -> None:
    """Write a model of a folder's codes; one that is there is replaced."""
    whole = to_onnx(WholeNetwork(codes.network, codes.source))
    digest = hashlib.sha256(whole).hexdigest()
    head = codes.card | {"preprocess": None}
    Bundle(folder / "head").write(to_onnx(TrainedPart(codes.network, codes.source)), head, digest)
    Bundle(folder).write(whole, codes.card, digest)


@torch.inference_mode()
def _calibrated(
    network: HashNetwork, source: UncertaintySource, activations: NDArray[np.float32], labels: list[list[str]]
) -> Calibration:
    """Return how sure the bits are, by some of the images."""
    chosen = spread(np.arange(len(activations)), _CALIBRATED)
    rows = torch.from_numpy(np.ascontiguousarray(activations[chosen]))
    outputs = network.upper(rows)
    unsure = source.uncertainty(network, rows, outputs)
    near = near_by_angle(activations[chosen])
    found = replace(calibrated(outputs.numpy(), unsure.numpy(), near, has_labels=False), part="training")
    names = [labels[n] for n in chosen.tolist()]
    alike = share_a_label(multi_hot(names, sorted({name for image in names for name in image})))
    agreeing = (near * alike).sum() / max(near.sum(), 1)
    return with_match(found, outputs.numpy(), unsure.numpy(), alike) if agreeing >= _CLASSES else found


def _card(
    method: str,
    backbone: str,
    network: HashNetwork,
    source: UncertaintySource,
    n_images: int,
    seed: int,
    calibration: Calibration,
) -> dict[str, Any]:
    return {
        "method": method,
        "uncertainty": source.name,
        "alpha": source.alpha,
        "backbone": backbone,
        "freeze": "all",
        "image_size": None,
        "preprocess": vars(network.backbone.preprocess),
        "n_bits": network.n_bits,
        "classes": [],
        "dataset": "folder",
        "split": "",
        "seed": seed,
        "images": n_images,
        "calibration": calibration.to_dict(),
    }
