"""What is stored of an image: rows as they are read, entries as they are given, and how one becomes the other."""

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue.schema import code_checksum, image_checksum
from dmuh.codes import Codes


class ImageRow(NamedTuple):
    """What is stored of an image beside its code: path by os.fsencode, labels and metadata in JSON."""

    id: int
    path: bytes
    added: int
    stamp: int | None
    labels: str
    metadata: str
    uncertainty: float | None


class Row(NamedTuple):
    """One image as it is stored: path by os.fsencode, labels and metadata in JSON, code and levels packed."""

    id: int
    path: bytes
    added: int
    stamp: int | None
    labels: str
    metadata: str
    uncertainty: float | None
    code: bytes
    levels: bytes | None
    contents: int | None


@dataclass(frozen=True)
class Entry:
    """What is stored of a new image beside its code; without an id it gets the next one.

    `uncertainty` is how unsure it is as a whole, where that is known better than by its code.
    """

    path: str
    labels: Sequence[str] = ()
    metadata: dict[str, str] = field(default_factory=dict)
    id: int | None = None
    added: bool = False
    stamp: int | None = None
    uncertainty: float | None = None


def worth_note(worth: NDArray[np.float32] | None) -> str:
    """Return the note of what the levels of codes stand for."""
    return json.dumps(None if worth is None else worth.tolist())


def image_row(id_: int, entry: Entry, unsure: float | None) -> tuple[Any, ...]:
    """Return the row of `images` that an image gets, without its checksum; `unsure` is its uncertainty by its code."""
    return (
        id_, os.fsencode(entry.path), int(entry.added), entry.stamp, _list(tuple(entry.labels)),
        _object(tuple(entry.metadata.items())), unsure if entry.uncertainty is None else entry.uncertainty,
    )  # fmt: skip


@lru_cache(4096)
def _list(texts: tuple[str, ...]) -> str:
    """Return texts in JSON; many images have the same labels."""
    return json.dumps(texts)


@lru_cache(4096)
def _object(pairs: tuple[tuple[str, str], ...]) -> str:
    """Return names and values in JSON; many images have the same metadata, or none."""
    return json.dumps(dict(pairs))


def code_row(id_: int, codes: Codes, row: int) -> tuple[int, bytes, bytes | None, int | None, int]:
    """Return the row of `codes` that an image gets, with its checksum."""
    code = (
        id_, codes.bits[row].tobytes(), None if codes.levels is None else codes.levels[row].tobytes(),
        None if codes.contents is None else int(codes.contents[row]),
    )  # fmt: skip
    return (*code, code_checksum(*code))


def code_rows(codes: Codes, ids: Iterable[int]) -> Iterator[tuple[int, bytes, bytes | None, int | None, int]]:
    """Yield what `code_row` returns for all codes, of images with these ids: a few times as quick for many."""
    n = len(codes)
    bits, levels = _pieces(codes.bits), [None] * n if codes.levels is None else _pieces(codes.levels)
    contents: list[Any] = [None] * n if codes.contents is None else codes.contents.tolist()
    for code in zip(ids, bits, levels, contents, strict=True):
        yield (*code, code_checksum(*code))


def _pieces(packed: NDArray[np.uint8]) -> list[bytes]:
    """Return the bytes of each row of an array."""
    whole, width = packed.tobytes(), math.prod(packed.shape[1:])
    return [whole[first : first + width] for first in range(0, len(whole), width)]


def insert(
    connection: sqlite3.Connection, image: tuple[Any, ...], code: tuple[Any, ...], labels: Iterable[str]
) -> None:
    """Insert the row of an image, that of its code with its checksum, and its labels."""
    connection.execute(f"INSERT INTO images VALUES ({'?, ' * 7}?)", (*image, image_checksum(*image)))
    connection.execute(f"INSERT INTO codes VALUES ({'?, ' * 4}?)", code)
    connection.executemany("INSERT INTO labels VALUES (?, ?)", sorted({(label, image[0]) for label in labels}))


def sure_bits(worth: NDArray[np.float32] | None) -> int:
    """Return how many bits say how sure each bit is, by what their levels are worth."""
    return 0 if worth is None else int(worth.shape[1]).bit_length() - 1
