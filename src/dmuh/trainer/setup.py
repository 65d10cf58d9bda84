"""What stands before and after a training: the split, the fresh network, its inputs, and the card of its model."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dmuh.backbones import create_backbone
from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.errors import ConfigError, DataError
from dmuh.methods import METHODS
from dmuh.network import HashNetwork, UncertaintySource
from dmuh.protocols import Split, protocol_of
from dmuh.trainer.context import TrainingContext
from dmuh.trainer.inputs import CACHED, Inputs, open_inputs


def draw_split(config: Config, data: Dataset) -> Split:
    """Return the split by the protocol; images without labels all train, where the method needs none."""
    if data.classes:
        return protocol_of(config.protocol, config.data.dataset).split(data.labels, config.training.seed, data.test)
    if METHODS[config.method].needs_labels:
        raise DataError(f"the data set {data.name} has no labels, which {config.method} learns from; itq needs none")
    none = np.empty(0, np.int64)
    return Split(np.arange(len(data)), none, none, none)


def check_texts(config: Config, data: Dataset) -> None:
    """Raise if the method learns from texts and the data set has none."""
    if METHODS[config.method].takes_texts and data.texts is None:
        raise DataError(
            f"{config.method} learns from images and texts, but none are read of the data set {data.name}: say where "
            "they stand by --texts, a column of a list (--dataset csv) or captions (--dataset coco)"
        )


def fresh_network(config: Config, data: Dataset, device: torch.device) -> HashNetwork:
    """Return the network that the settings name: with weights learned elsewhere, or random ones by the seed."""
    settings = config.network
    if (settings.backbone.partition(":")[0] == "features") != (data.vectors is not None):
        raise ConfigError(
            "the backbone features is for the data set features and for that alone, got backbone "
            f"{settings.backbone} and data set {data.name}"
        )
    of_images = (settings.backbone, settings.freeze, settings.image_size, config.training.augment)
    if data.vectors is not None and of_images != ("features", "all", None, "none"):
        raise ConfigError(
            "feature vectors are taken as they are: leave out freeze, image_size and augment, and the backbone or name "
            f"it features, got {settings.backbone}"
        )
    torch.manual_seed(config.training.seed)
    backbone = create_backbone(_backbone_name(config, data), settings.image_size)
    backbone.load_pretrained(Path(settings.weights) if settings.weights else None)
    network = HashNetwork(backbone, settings.bits, settings.freeze, hidden=settings.hidden, dropout=settings.dropout)
    return network.to(device)


def training_inputs(context: TrainingContext, network: HashNetwork) -> AbstractContextManager[Inputs]:
    """Open the activations of the training and validation images."""
    split, augment = context.split, context.settings.augment
    return open_inputs(
        network,
        context.data,
        np.union1d(split.train, split.validation),
        keep=context.config.network.freeze != "none" and augment in CACHED,
        mirrored=split.train if augment == "flip" else split.train[:0],
        reading=context.reading,
    )


def model_card(context: TrainingContext, network: HashNetwork, source: UncertaintySource | None) -> dict[str, Any]:
    """Return what is written beside the weights: all that is needed to use them, and where they come from."""
    config, data = context.config, context.data
    return {
        "method": config.method,
        "uncertainty": None if source is None else source.name,
        "alpha": None if source is None else source.alpha,
        "backbone": _backbone_name(config, data),
        "freeze": config.network.freeze,
        "image_size": config.network.image_size,
        "preprocess": None if data.vectors is not None else vars(network.backbone.preprocess),
        "n_bits": config.network.bits,
        "classes": list(data.classes),
        "dataset": config.data.dataset,
        "split": context.run.split_digest,
        "seed": config.training.seed,
    }


def _backbone_name(config: Config, data: Dataset) -> str:
    return config.network.backbone if data.vectors is None else f"features:{data.vectors.shape[1]}"
