"""Groups of duplicates: each with its best image, and why that is the best."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from dmuh.duplicates.about import About, sharpness

Kind = Literal["best", "same file", "same pixels", "near"]


@dataclass(frozen=True)
class Member:
    """One image of a group.

    position  its place among the images that were looked through
    path      below the folder
    kind      the best of the group, or what it is to the best: the same file or the same pixels, or near
    likeness  to the best, 0 to 1
    about     its size and date
    """

    position: int
    path: Path
    kind: Kind
    likeness: float
    about: About


@dataclass(frozen=True)
class Group:
    """Images that are duplicates of the first, which is the best, and the reason for that."""

    members: tuple[Member, ...]
    reason: str

    @property
    def best(self) -> Member:
        """The image that is worth keeping."""
        return self.members[0]

    @property
    def others(self) -> tuple[Member, ...]:
        """The duplicates of the best."""
        return self.members[1:]


@dataclass(frozen=True, eq=False)
class Edges:
    """Which images are duplicates of which, by position.

    near    likeness and kind to each neighbour, both ways; of identical files one stands for all
    copies  the identical files that such a one stands for, itself first
    """

    near: dict[int, dict[int, tuple[float, Kind]]]
    copies: dict[int, list[int]]

    def add(self, one: int, other: int, likeness: float, kind: Kind) -> None:
        """Note that two images are duplicates."""
        self.near.setdefault(one, {})[other] = self.near.setdefault(other, {})[one] = likeness, kind

    @property
    def positions(self) -> list[int]:
        """All images that have a duplicate."""
        return sorted({*self.near, *(position for group in self.copies.values() for position in group)})

    def components(self) -> list[list[int]]:
        """Return those that stand for images which hang together, ordered by the first of each."""
        seen: set[int] = set()
        found = []
        for start in sorted({*self.near, *self.copies}):
            if start in seen:
                continue
            reached, ahead = {start}, [start]
            while ahead:
                fresh = self.near.get(ahead.pop(), {}).keys() - reached
                reached |= fresh
                ahead += fresh
            seen |= reached
            found.append(sorted(reached))
        return found


def make_groups(edges: Edges, root: Path, paths: Sequence[Path], about: Mapping[int, About]) -> list[Group]:
    """Return the groups, those that free the most bytes first.

    Every image of a group is a duplicate of its best: what hangs together by a chain of others alone is another group.
    """
    groups = []
    for component in edges.components():
        ranks = _ranked(component, root, paths, about)
        left = dict.fromkeys(ranks)
        for best in ranks:
            if best not in left:
                continue
            others = [other for other in left if other in edges.near.get(best, {})]
            for used in (best, *others):
                del left[used]
            if others or best in edges.copies:
                groups.append(_group(best, others, edges, ranks, paths, about))
    return sorted(groups, key=lambda group: -sum(member.about.n_bytes for member in group.others))


@dataclass(frozen=True, order=True)
class _Rank:
    """What decides which image is better: the smaller one is."""

    size: tuple[int, ...]
    blur: float
    stamp: int
    name: tuple[int, str]


def age_and_name(stamp: int, path: Path) -> tuple[int, int, str]:
    """Return what decides between files that look the same: the older is better, then the shorter name."""
    return stamp, len(str(path)), str(path)


def _ranked(
    component: Sequence[int], root: Path, paths: Sequence[Path], about: Mapping[int, About]
) -> dict[int, _Rank]:  # fmt: skip
    """Return the images of a component from the best to the worst: pixels, bytes, sharpness, age, and then the name."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position in component:
        alike[about[position].size_class].append(position)
    blur = {
        position: -round(sharpness(root / paths[position]), 3)
        for tied in alike.values()
        for position in tied
        if len(tied) > 1
    }
    ranks = {}
    for position in component:
        stamp, length, name = age_and_name(about[position].stamp, paths[position])
        size = tuple(-number for number in about[position].size_class)
        ranks[position] = _Rank(size, blur.get(position, 0.0), stamp, (length, name))
    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def _group(
    best: int,
    others: Sequence[int],
    edges: Edges,
    ranks: Mapping[int, _Rank],
    paths: Sequence[Path],
    about: Mapping[int, About],
) -> Group:
    members = [Member(best, paths[best], "best", 1.0, about[best])]
    copies = edges.copies.get(best, [best])[1:]
    members += [Member(copy, paths[copy], "same file", 1.0, about[copy]) for copy in copies]
    for other in others:
        likeness, kind = edges.near[best][other]
        alike = edges.copies.get(other, [other])
        members += [Member(each, paths[each], kind, likeness, about[each]) for each in alike]
    if others:
        reason = _reason(about[best], ranks[best], ranks[others[0]])
    else:
        older = about[best].stamp < about[copies[0]].stamp
        reason = _oldest(about[best]) if older else _SHORTEST
    return Group(tuple(members), reason)


_SHORTEST = "shortest name, all else being equal"


def _reason(best: About, rank: _Rank, next_rank: _Rank) -> str:
    """Return why an image is better than the next in rank."""
    sides = f"{best.width:,} × {best.height:,}"
    if rank.size[0] != next_rank.size[0]:
        return f"most pixels: {sides}"
    if rank.size != next_rank.size:
        return f"most bytes at {sides} pixels: {in_bytes(best.n_bytes)}"
    if rank.blur != next_rank.blur:
        return f"sharpest at {sides} pixels"
    return _oldest(best) if rank.stamp != next_rank.stamp else _SHORTEST


def _oldest(best: About) -> str:
    return f"oldest, of {datetime.fromtimestamp(best.stamp / 1e9, UTC).date()}"


def in_bytes(n: int) -> str:
    """Return a number of bytes as a person reads it.

    >>> in_bytes(999), in_bytes(12_300), in_bytes(4_560_000_000)
    ('999 bytes', '12 kB', '4.6 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n / 1000:.0f} kB" if n >= 1000 else f"{n} bytes"
