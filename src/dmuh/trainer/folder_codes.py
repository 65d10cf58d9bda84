"""Codes for the images of one folder, from their ImageNet features: by their look, and trained on its classes.

A model is written as two bundles: the whole network, from pixels, for what is uploaded, and in `head` the part above
the features, for images whose features are kept. Both give an image the same code, to the last bit.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from dmuh.backbones import Backbone
from dmuh.datasets import Dataset, multi_hot
from dmuh.encoder.bundle import Bundle
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.onnx_export import TrainedPart, WholeNetwork, to_onnx
from dmuh.images import Images
from dmuh.methods import configure
from dmuh.network import HashNetwork, UncertaintySource, load_networks
from dmuh.network.uncertainty.margin import Margin
from dmuh.protocols import Split
from dmuh.trainer.calibrating import calibrated, near_by_angle, share_a_label, with_match
from dmuh.trainer.measuring import spread
from dmuh.trainer.training import train

LOOK_BITS = 64
_MOST = 20_000  # images at most that codes are fitted to
_HELD_OUT = 10  # of so many images one says how sure bits by class are
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
    from dmuh.methods.itq import ITQ  # which imports scikit-learn

    rows = activations[spread(np.arange(len(activations)), _MOST)]
    if len(rows) < 2:  # a single image has no spread of its own
        rows = np.concatenate([rows, np.zeros_like(rows)])
    network = HashNetwork(backbone, n_bits, "all")
    network.hash_layer = ITQ(n_bits, seed=seed).fit(rows).head_
    source = Margin()
    calibration = _calibrated(network, source, activations, labels)
    return FolderCodes(network, source, _card("itq", name, network, source, len(activations), seed, calibration))


def train_class(
    backbone: Backbone, name: str, activations: NDArray[np.float32], labels: list[list[str]], settings: dict[str, Any]
) -> FolderCodes:
    """Return codes by class for images with these activations of a backbone, by the method that `dmuh train` takes.

    `settings` are those that differ from its defaults. A tenth of the images says how sure bits are; none is held out
    to be measured.
    """
    classes = sorted({label for own in labels for label in own})
    data = Dataset("features", cast(Images, activations), multi_hot(labels, classes), tuple(classes))
    labelled = np.flatnonzero(data.labels.any(axis=1))
    held_out, none = labelled[::_HELD_OUT], np.empty(0, np.int64)
    split = Split(np.setdiff1d(labelled, held_out), held_out, none, none)
    config = configure({"dataset": "features", **settings})
    with TemporaryDirectory() as folder:
        model = train(config, Path(folder) / "run", dataset=data, split=split, progress=False).load_model()
    trained, source = load_networks(model)
    assert source is not None, "every method has a source of uncertainty"
    network = HashNetwork(backbone, trained.n_bits, "all")
    network.hash_layer = trained.hash_layer
    network.feature_mean.copy_(trained.feature_mean)
    network.feature_scale.copy_(trained.feature_scale)
    about = {"backbone": name, "image_size": None, "preprocess": vars(backbone.preprocess), "images": len(activations)}
    return FolderCodes(network, source, {**model.metadata, **about})


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
