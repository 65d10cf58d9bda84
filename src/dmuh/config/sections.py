"""The settings by section: each with its default, one line about it and what it may be."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


def setting(
    default: Any,
    about: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare one setting: its default, one line about it, and what it may be.

    Bounds are inclusive (`low`, `high`) or exclusive (`above`, `below`).
    """
    limits = {"low": low, "high": high, "above": above, "below": below}
    return field(default=default, metadata={"about": about, "choices": choices, **limits})


@dataclass(frozen=True)
class DataSettings:
    """Where the images and labels come from."""

    dataset: str = setting("mnist5k", "name of the data set, see `dmuh list`")
    data: str = setting("", "folder or file the data set is read from; empty for embedded ones")
    on_bad_image: str = setting("fail", "what an unreadable image does", choices=("fail", "skip"))
    class_folder: str = setting(
        "top",
        "folder: the class is the first folder below the root, or the image's own",
        choices=("top", "own"),
    )
    path_column: str = setting("", "csv: column with the image path; empty looks for image, path, file, filename")
    path_format: str = setting("", "csv: builds the path from columns, e.g. images/{image_id}.jpg")
    label_column: str = setting(
        "", "csv: column with the labels; empty looks for labels, label, class, then 0/1 columns"
    )
    label_separator: str = setting("", "csv: what separates labels in that column; empty means ;")
    texts: str = setting(
        "",
        "csv: column with a sentence about each image, or several with ; between them, where rows of one image count "
        "together; coco: captions; empty reads no texts",
    )
    clothing_labels: str = setting("noisy", "clothing1m: which labels are read", choices=("noisy", "clean"))


@dataclass(frozen=True)
class ProtocolSettings:
    """Which images train, which are queries and which are searched."""

    protocol: str = setting("", "name of the split; empty takes that of the data set")
    query: float | None = setting(None, "query images per class (1 or more), or their fraction (below 1)", above=0)
    train: float | None = setting(None, "training images per class (1 or more), or their fraction (below 1)", above=0)
    database: str | None = setting(None, "what is searched: the remaining images, or those and the training images",
                                   choices=("rest", "rest+train"))  # fmt: skip
    validation: float = setting(
        0.1, "fraction of the training images that the training is watched with instead", low=0, high=0.5
    )
    tuning: float = setting(
        0.0,
        "fraction of the training images that are queries (a third of it) and database (the rest) in place of the test "
        "images, to choose settings by",
        low=0,
        high=0.9,
    )
    label_noise: float = setting(
        0.0, "fraction of the training images that learn with the labels of an image unlike them", low=0, high=1
    )


@dataclass(frozen=True)
class NetworkSettings:
    """The hashing network."""

    bits: int = setting(32, "length of the code", low=1, high=1024)
    backbone: str = setting("", "name of the backbone, see `dmuh list`; empty chooses one that suits the data set")
    freeze: str = setting(
        "",
        "what of the backbone does not train: all, none, or the name of the last part that does not; empty takes the "
        "backbone's default",
    )
    head: str = setting(
        "given",
        "auto lets images that are held out choose, before the training, what of kernel and weight_decay is not given, "
        "for a deep method on a frozen backbone; dmuh train does so without --config and --preset",
        choices=("given", "auto"),
    )
    kernel: int | None = setting(
        None,
        "training images whose similarities stand between the features of a frozen backbone and the hash layer of a "
        "deep method; 0 for none, which it is where it is not given",
        low=0,
        high=20_000,
    )
    standardize: bool = setting(
        True,
        "before the first step, the features of a learned backbone are standardised and fresh layers are scaled, by "
        "training images; no paper does so",
    )
    hidden: int = setting(
        0, "units of a hidden layer (ReLU) below the hash layer of a deep method; 0 for none", low=0, high=16_384
    )
    dropout: float = setting(
        0.0,
        "share of units that each step sets to 0 at random, other ones in the network than in its copy: of the hidden "
        "layer, or else of the features of efficientnet-lite and cnnf, and of cnnf's full6; own is the rate of the "
        "network's authors, 0.5 with a hidden layer and 0 where there is no place for it",
        low=0,
        below=1,
    )
    text_encoder: str = setting(
        "minilm",
        "what gives texts the features that a method for images and texts learns from: minilm, a small language model, "
        "or words, which counts those of the training texts",
        choices=("minilm", "words"),
    )
    weights: str = setting("", "file with the backbone's weights, for backbones that read one")
    image_size: int | None = setting(None, "side of the square input in pixels; not given, the backbone's default",
                                     low=8, high=1024)  # fmt: skip


@dataclass(frozen=True)
class TrainingSettings:
    """The training loop."""

    epochs: int = setting(30, "passes over the training images", low=1)
    batch_size: int = setting(128, "images per step", low=2)
    optimizer: str = setting("sgd", "the optimiser", choices=("sgd", "adamw"))
    lr: float = setting(0.1, "learning rate at the start", above=0)
    lr_final: float = setting(0.001, "learning rate at the end", above=0)
    schedule: str = setting("log", "how it gets there: log-spaced, cosine, or divided by 10 in equal steps",
                            choices=("log", "cosine", "step"))  # fmt: skip
    warmup_epochs: float = setting(0.0, "epochs in which the rate rises from zero", low=0)
    backbone_lr: float = setting(
        1.0, "factor on the backbone's learning rate; the hash layer keeps the full one", low=0
    )
    sgd_momentum: float = setting(0.9, "momentum of SGD", low=0, below=1)
    weight_decay: float | None = setting(
        None,
        "weight decay; not given, 0.03 where only the hash layer trains, 0.003 if that has a hidden layer, else 0.0001",
        low=0,
    )
    clip: float = setting(
        1.0, "largest norm of the gradient of a step; longer ones are shortened, 0 leaves them", low=0
    )
    augment: str = setting(
        "",
        "random changes of the training images; empty is flip above a frozen part, none with all of it frozen, else "
        "the backbone's default; those that crop read the images in every epoch",
        choices=("", "none", "flip", "crop", "crop+flip", "resized-crop+flip", "resized-crop+flip+colour"),
    )
    wrong_labels: str = setting(
        "",
        "what becomes of training images whose labels are probably wrong by what other images say (dmuh review): they "
        "train as all others, or are left out, for a frozen backbone; empty leaves them out where head is auto",
        choices=("", "keep", "leave-out"),
    )
    uncertainty: str = setting(
        "margin",
        "what the probability that a bit turns over is read from: the margin, how far an output is from 0, which all "
        "methods have; the copy, how far the averaged copy's output is from the network's, as in the paper; or the "
        "classes, how probable those are whose images have another bit, by a layer that learns them beside the codes",
        choices=("margin", "copy", "classes"),
    )
    uncertainty_alpha: float | None = setting(
        None,
        "momentum coefficient of a second copy that takes no part in the training, for uncertainty = copy; not given, "
        "that takes the copy of the method, if it has one",
        low=0,
        below=1,
    )
    recode: str = setting(
        "never",
        "whether codes are placed around those of classes by how sure an image is of its class, where validation "
        "images are found better by that (auto), or are the signs of the outputs (never); for collections of the "
        "classes that trained",
        choices=("never", "auto"),
    )
    encoder: str = setting(
        "network",
        "what makes the codes after the training: the network, or its averaged copy",
        choices=("network", "copy"),
    )
    evaluate_every: int = setting(1, "epochs between two measurements of the validation MAP", low=1)
    seed: int = setting(0, "seed of the split, the weights and the order of the images", low=0, high=2**63 - 1)
    device: str = setting("auto", "auto, cpu, cuda or cuda:N")
    precision: str = setting("auto", "arithmetic below the hash layer; auto is bfloat16 on a GPU that has it",
                             choices=("auto", "float32", "bfloat16"))  # fmt: skip
    workers: int | None = setting(
        None,
        "processes that read images, 0 reads in the main one; not given, chosen by images and cores",
        low=0,
        high=256,
    )


SECTIONS: dict[str, type[Any]] = {
    "data": DataSettings,
    "protocol": ProtocolSettings,
    "network": NetworkSettings,
    "training": TrainingSettings,
}


def keys_of(cls: type[Any]) -> list[str]:
    """Return the names of a section's settings."""
    return [item.name for item in dataclasses.fields(cls)]


def describe(cls: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, default, about) of each setting of a section."""
    for item in dataclasses.fields(cls):
        choices = item.metadata["choices"]
        yield (
            item.name,
            item.default,
            item.metadata["about"] + (f" ({' | '.join(choices)})" if choices else ""),
        )
