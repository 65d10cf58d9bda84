"""Images of a generator or another iterable, some in memory at a time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from dmuh.images import ImageLike

_AT_A_TIME = 512


class Window(Sequence[ImageLike]):
    """Some images of a longer row, each known by its position there."""

    def __init__(self, images: list[ImageLike], first: int) -> None:
        self._images = images
        self.first = first

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, position: Any) -> Any:
        return self._images[position - self.first]

    def __iter__(self) -> Iterator[ImageLike]:
        return iter(self._images)


def windows(images: Iterable[ImageLike]) -> Iterator[Window]:
    """Yield the images of an iterable, some at a time."""
    iterator, first = iter(images), 0
    while part := list(islice(iterator, _AT_A_TIME)):
        if all(isinstance(image, str | Path) for image in part):
            part += iterator  # paths are small, and so the processes that read them are started once
        yield Window(part, first)
        first += len(part)
