"""Duplicates in a folder, and images of one folder that are in another too."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dmuh.duplicates.about import About, about_file, same_pixels
from dmuh.duplicates.groups import Edges, Group, Kind, age_and_name, make_groups
from dmuh.duplicates.pairs import AT_LEAST, Compared, Looks, compare
from dmuh.errors import ConfigError
from dmuh.features import FolderFeatures
from dmuh.progress import Counting, uncounted
from dmuh.protocols.checks import find_duplicates as find_identical

_SAME_COSINE, _SAME_ALIGNED = 0.999, 0.995  # of images that may have the same pixels: their files are decoded
_READERS = 8  # threads that look at files


@dataclass(frozen=True)
class Match:
    """An image of a folder, at `position` among its images, and one of another folder that is a duplicate of it."""

    position: int
    path: Path
    other: Path
    kind: Kind
    likeness: float


def find_groups(
    features: FolderFeatures, *, at_least: float = AT_LEAST, count: Counting = uncounted
) -> list[Group]:  # fmt: skip
    """Return the groups of exact and near duplicates among the images of a folder, those that free most bytes first.

    at_least  how alike near duplicates are at least, 0 to 1: the more, the fewer and the surer
    count     what opens a progress bar

    Links are passed over: they are no copies.
    """
    _check(at_least)
    files = np.array([not (features.root / path).is_symlink() for path in features.paths], np.bool_)
    edges = Edges({}, _identical(features, np.flatnonzero(files).tolist()))
    rows, compared = _near(features, np.flatnonzero(files), edges, at_least, count)
    about = _look_at(features, edges.positions)
    for (one, other), maybe in zip(rows[compared.pairs].tolist(), _may_be_same(compared).tolist(), strict=True):
        sides = [(about[position].width, about[position].height) for position in (one, other)]
        if maybe and sides[0] == sides[1]:
            paths = features.root / features.paths[one], features.root / features.paths[other]
            if same_pixels(*paths):
                edges.add(one, other, 1.0, "same pixels")
    return make_groups(edges, features.root, features.paths, about)


def find_matches(
    features: FolderFeatures, others: FolderFeatures, *, at_least: float = AT_LEAST, count: Counting = uncounted
) -> list[Match]:
    """Return the images of a folder that are in another one too, each with the most alike of the other, by path."""
    _check(at_least)
    own = [position for position, path in enumerate(features.paths) if not (features.root / path).is_symlink()]
    kept = np.array(own, np.int64)
    best: dict[int, tuple[float, int, Kind]] = {}
    compared = compare(_looks(features, kept), _looks(others), count=count)
    for (row, other), likeness in zip(compared.pairs.tolist(), compared.likeness.tolist(), strict=True):
        position = own[row]
        if likeness >= at_least and likeness > best.get(position, (0.0,))[0]:
            best[position] = likeness, other, "near"
    paths = [features.root / path for path in features.paths] + [others.root / path for path in others.paths]
    files = set(own)
    for copies in find_identical(paths):
        there = [position - len(features) for position in copies if position >= len(features)]
        best |= {position: (1.0, there[0], "same file") for position in copies if position in files and there}
    return [
        Match(position, features.paths[position], others.paths[other], kind, likeness)
        for position, (likeness, other, kind) in sorted(best.items())
    ]


def _near(
    features: FolderFeatures, files: NDArray[np.int64], edges: Edges, at_least: float, count: Counting
) -> tuple[NDArray[np.int64], Compared]:
    """Add the edges of near images; return which images were compared, and the pairs that are near."""
    repeated = {position for group in edges.copies.values() for position in group[1:]}
    rows = np.array([position for position in files.tolist() if position not in repeated], np.int64)
    compared = compare(_looks(features, rows), count=count)
    compared = compared[compared.likeness >= at_least]
    for (one, other), likeness in zip(rows[compared.pairs].tolist(), compared.likeness.tolist(), strict=True):
        edges.add(one, other, likeness, "near")
    return rows, compared


def _identical(features: FolderFeatures, files: list[int]) -> dict[int, list[int]]:
    """Return the groups of identical files, by the one that stands for them all, which is their first."""
    groups = find_identical([features.root / features.paths[position] for position in files])
    ordered = [
        sorted((files[row] for row in group), key=lambda n: age_and_name(int(features.stamps[n]), features.paths[n]))
        for group in groups
    ]
    return {group[0]: group for group in ordered}


def _looks(features: FolderFeatures, rows: NDArray[np.int64] | None = None) -> Looks:
    looks = Looks(features.vectors, features.greys)
    return looks if rows is None or len(rows) == len(looks) else Looks(looks.vectors[rows], looks.greys[rows])


def _look_at(features: FolderFeatures, positions: Sequence[int]) -> dict[int, About]:
    def look(position: int) -> About:
        path = features.root / features.paths[position]
        return about_file(path, int(features.sizes[position]), int(features.stamps[position]))

    with ThreadPoolExecutor(_READERS) as pool:
        return dict(zip(positions, pool.map(look, positions), strict=True))


def _may_be_same(compared: Compared) -> NDArray[np.bool_]:
    return (compared.cosine >= _SAME_COSINE) & (compared.aligned >= _SAME_ALIGNED)


def _check(at_least: float) -> None:
    if not 0 < at_least <= 1:
        raise ConfigError(f"at_least must be above 0 and at most 1, got {at_least}")
