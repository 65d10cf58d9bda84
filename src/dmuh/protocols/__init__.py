"""Protocols: named, seeded splits into training, query and database images.

Counts are per class. Classes are served rarest first and without replacement, so a multi-label image is drawn once, for
the rarest of its classes. Images without a label take no part.
"""

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.config import ProtocolSettings
from dmuh.datasets import DATASETS, Labels
from dmuh.errors import ConfigError, DataError, FormatError, unknown
from dmuh.files import load_arrays, save_arrays

Positions = NDArray[np.int64]
_KIND, _VERSION = "dmuh split", 1


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of the images that train, that watch the training (validation), that are queries and are searched."""

    train: Positions
    validation: Positions
    query: Positions
    database: Positions

    def save(self, path: Path, fingerprint: str) -> None:
        """Write the split, and the fingerprint of the data set it belongs to."""
        save_arrays(path, _KIND, _VERSION, vars(self), {"dataset": fingerprint})

    @classmethod
    def load(cls, path: Path, fingerprint: str) -> "Split":
        """Read a split; one that was made for other data is refused."""
        file = load_arrays(path, _KIND, _VERSION)
        if file.metadata["dataset"] != fingerprint:
            raise FormatError(f"{path} belongs to other images or labels than the data set now has")
        return cls(**file.arrays)

    def digest(self) -> str:
        """Return a short name for this very split, to be written beside results."""
        sha = hashlib.sha256()
        for name, positions in sorted(vars(self).items()):
            sha.update(name.encode() + positions.astype("<i8").tobytes())
        return sha.hexdigest()[:12]


@dataclass(frozen=True)
class Protocol:
    """How many images are queries and how many train (1 or more: a count, below 1: a fraction); what is searched.

    query, train  of each class, or in all unless `per_class`
    topk          where MAP cuts the ranking
    tuning        fraction of the training images that are queries and database in place of the test images
    unseen        share of the classes, drawn by the seed, of which no image trains, and which alone are searched; an
                  image of several classes is searched if one of them is unseen, and only these make images relevant
    """

    query: float
    train: float
    about: str
    database: str = "rest"
    validation: float = 0.0
    tuning: float = 0.0
    topk: int | None = None
    official: bool = False
    per_class: bool = True
    unseen: float = 0.0

    def split(self, labels: Labels, seed: int, test: NDArray[np.bool_] | None = None) -> Split:
        """Draw the split of the images with these labels (N, classes).

        The queries of an `official` protocol are the images that the data set's makers set aside, `test` (N,); all
        others train and are searched.
        """
        n_classes = int(labels.any(axis=0).sum())
        if n_classes < 2:
            raise DataError(f"hashing learns to tell classes apart and needs two or more, got {n_classes}")
        rng = np.random.default_rng((seed, 0x5711))  # other random numbers than those of the weights and the order
        if self.official:
            query, train, rest = _official(labels, test)
        else:
            query, train, rest = (self._drawn_unseen if self.unseen else self._drawn)(labels, rng)
        training = np.zeros(len(labels), bool)  # which images train, less those that are drawn from them below
        training[train] = True
        per_class = labels[training].sum(axis=0, dtype=np.int64)
        if self.tuning:
            query = _draw(labels, training, per_class, self.tuning / 3, "query", rng)
            rest = _draw(labels, training, per_class, self.tuning * 2 / 3, "database", rng)
            per_class = labels[training].sum(axis=0, dtype=np.int64)
        validation = rest[:0]
        if self.validation:
            validation = _draw(labels, training, per_class, self.validation, "validation", rng)
        train = np.flatnonzero(training)
        database = np.union1d(rest, np.union1d(train, validation)) if self.database == "rest+train" else rest
        self._refuse_empty_parts(labels, n_classes, {"training": train, "query": query, "database": database})
        return Split(train, validation, query, database)

    def _drawn(self, labels: Labels, rng: np.random.Generator) -> tuple[Positions, Positions, Positions]:
        """Draw the query and training images; return them and the remaining ones."""
        free: NDArray[np.bool_] = np.asarray(labels.any(axis=1))
        per_class = labels.sum(axis=0, dtype=np.int64)
        draw = _draw if self.per_class else _draw_in_all
        query = draw(labels, free, per_class, self.query, "query", rng)
        train = draw(labels, free, per_class, self.train, "train", rng)
        return query, train, np.flatnonzero(free)

    def _drawn_unseen(self, labels: Labels, rng: np.random.Generator) -> tuple[Positions, Positions, Positions]:
        """Draw the classes that do not train, queries among their images and training images among the others."""
        classes = np.flatnonzero(labels.any(axis=0))
        n_unseen = max(math.ceil(self.unseen * len(classes)), 2)
        if len(classes) - n_unseen < 2:
            raise DataError(
                f"two classes to train and two or more that are unseen, a share of {self.unseen:g}, need more than the "
                f"{len(classes)} of this data set"
            )
        order = rng.permutation(classes)
        unseen, seen = np.sort(order[:n_unseen]), np.sort(order[n_unseen:])
        searched: NDArray[np.bool_] = np.asarray(labels[:, unseen].any(axis=1))
        trained: NDArray[np.bool_] = np.asarray(labels.any(axis=1)) & ~searched
        parts = []
        for free, among, amount, part in (
            (searched, unseen, self.query, "query"),
            (trained, seen, self.train, "train"),
        ):
            per_class = labels[free].sum(axis=0, dtype=np.int64)
            parts.append(_draw(labels, free, per_class, amount, part, rng, among))
        return parts[0], parts[1], np.flatnonzero(searched)

    def counted(self, labels: Labels, split: Split) -> Labels:
        """Return the labels (N, classes) that make images relevant to one another: those of unseen classes, or all."""
        if not self.unseen or self.tuning:
            return labels
        training = np.concatenate([split.train, split.validation])
        return np.where(labels[training].any(axis=0), 0, labels).astype(labels.dtype)

    def _refuse_empty_parts(self, labels: Labels, n_classes: int, parts: dict[str, Positions]) -> None:
        """Raise if a part that every training needs has no image."""
        for name, positions in parts.items():
            if len(positions) == 0:
                raise DataError(
                    f"{int(labels.any(axis=1).sum())} labelled images in {n_classes} classes leave none for the {name} "
                    f"part with query={self.query:g}, train={self.train:g}, database={self.database} and "
                    f"tuning={self.tuning:g}: change these or add images"
                )


PROTOCOLS: dict[str, Protocol] = {
    "stratified": Protocol(0.1, 0.5, "any data: of each class a tenth are queries, half train, the rest is searched"),
    "cifar10": Protocol(100, 500, "100 queries and 500 training images per class, the other 54,000 are searched"),
    "cifar10-59k": Protocol(100, 500, "the same, but training images are searched too: 59,000", database="rest+train"),
    "cifar10-full": Protocol(0, 0, "10,000 test images are queries, 50,000 train and are searched", official=True),
    "clothing1m": Protocol(500, 1_000, "500 queries and 1,000 training images per class: 7,000 and 14,000"),
    "coco": Protocol(5_000, 10_000, "5,000 queries and 10,000 training images in all", per_class=False),
    "nuswide": Protocol(100, 500, "100 queries and 500 training images per concept, MAP of the first 5000", topk=5_000),
    "unseen": Protocol(
        0.1,
        0.5,
        "any data: a quarter of the classes never trains and alone is searched, by a tenth of "
        "its images; of each other class half trains",
        unseen=0.25,
    ),
    "mnist5k": Protocol(50, 200, "50 queries and 200 training images per digit, the other 2,500 are searched"),
}


def protocol_of(settings: ProtocolSettings, dataset: str) -> Protocol:
    """Return the protocol that the settings name, or that of the data set, with the settings' changes."""
    name = settings.protocol or DATASETS[dataset].protocol
    if not name:
        raise ConfigError(f"the data set {dataset} has no labels, so nothing can be trained or measured on it")
    if name not in PROTOCOLS:
        raise ConfigError(unknown("protocol", name, PROTOCOLS))
    protocol = PROTOCOLS[name]
    if protocol.official and (settings.query or settings.train or settings.database):
        raise ConfigError(f"the protocol {name} is fixed by the data set: leave out query, train and database")
    if protocol.unseen and settings.database == "rest+train":
        raise ConfigError(f"the protocol {name} searches classes that did not train: database must be rest")
    return replace(
        protocol,
        query=settings.query or protocol.query,
        train=settings.train or protocol.train,
        database=settings.database or protocol.database,
        validation=settings.validation,
        tuning=settings.tuning,
    )


def noisy_labels(labels: Labels, train: Positions, fraction: float, seed: int) -> Labels:
    """Return the labels (N, classes) with a fraction of the training images' rows taken from images unlike them.

    Such a row is that of a training image which shares no label; where there is none, it stays.
    """
    rng = np.random.default_rng((seed, 0x4015E))
    noisy = labels.copy()
    for position in rng.permutation(train)[: round(fraction * len(train))]:
        unlike = train[~labels[train][:, labels[position] == 1].any(axis=1)]
        if len(unlike):
            noisy[position] = labels[rng.choice(unlike)]
    return noisy


def _official(labels: Labels, test: NDArray[np.bool_] | None) -> tuple[Positions, Positions, Positions]:
    """Return the query, training and remaining images as the makers of the data set split them."""
    if test is None:
        raise DataError("the queries of this protocol are the test images of the data set, but it sets none aside")
    labelled = np.asarray(labels.any(axis=1))
    others = np.flatnonzero(~test & labelled)
    return np.flatnonzero(test & labelled), others, others


def _draw_in_all(
    labels: Labels, free: NDArray[np.bool_], per_class: Positions, amount: float, part: str, rng: np.random.Generator
) -> Positions:
    """Take `amount` images of all, whatever their class; marks them as no longer free."""
    del per_class
    n = int(amount) if amount >= 1 else round(amount * int(labels.any(axis=1).sum()))
    candidates = np.flatnonzero(free)
    if n != amount and amount >= 1:
        raise DataError(f"{part} must be a whole number of images or a fraction below 1, got {amount:g}")
    if n > len(candidates):
        raise DataError(f"{len(candidates):,} images are left, but {part}={n} asks for more")
    chosen = np.sort(rng.permutation(candidates)[:n])
    free[chosen] = False
    return chosen


def _draw(
    labels: Labels,
    free: NDArray[np.bool_],
    per_class: Positions,
    amount: float,
    part: str,
    rng: np.random.Generator,
    among: Positions | None = None,
) -> Positions:
    """Take `amount` images of each class from the free ones, rarest class first; marks them as no longer free.

    The classes are all, or those `among` which they are drawn.

    A count is taken anew for every class; of a fraction, images that came with a rarer class count already. Of a class
    with two or more images a fraction takes at least one as a query and one to train.
    """
    available = labels[free].sum(axis=0, dtype=np.int64)
    drawn = np.zeros(len(labels), bool)
    classes = np.arange(labels.shape[1]) if among is None else among
    for k in classes[np.argsort(available[classes], kind="stable")]:
        members = labels[:, k] == 1
        candidates = np.flatnonzero(free & members)
        if amount >= 1:
            n = int(amount)
            if n != amount:
                raise DataError(
                    f"{part} must be a whole number of images per class or a fraction below 1, got {amount:g}"
                )
            if n > len(candidates):
                raise DataError(f"class number {k} has {len(candidates)} images left, but {part}={n} asks for more")
        else:
            least = 1 if available[k] > 1 and part != "validation" else 0
            n = max(round(amount * int(per_class[k])), least) - int((drawn & members).sum())
        chosen = rng.permutation(candidates)[: max(n, 0)]
        free[chosen] = False
        drawn[chosen] = True
    return np.flatnonzero(drawn)
