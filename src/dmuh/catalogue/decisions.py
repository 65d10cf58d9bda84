"""Decisions: what a person said of the labels of images, as `dmuh review` and the page ask for it."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Literal, get_args

from dmuh.catalogue.integrity import is_intact
from dmuh.catalogue.schema import ROWS, decision_checksum
from dmuh.errors import InputError

Kind = Literal["accept", "skip", "own"]


@dataclass(frozen=True)
class Decision:
    """What a person said of the labels of one image.

    kind    accept: the labels that were suggested are right; skip: those that it has; own: others
    labels  the labels that the image shall have; left out for skip
    """

    kind: Kind
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise InputError(f"a decision is one of {', '.join(get_args(Kind))}, got {self.kind!r}")


def write_decision(
    connection: sqlite3.Connection, path: bytes, added: int, given: str, decision: Decision | None
) -> None:
    """Write a decision on the image with this path, whose labels are `given` in JSON; None removes it."""
    if decision is None:
        connection.execute("DELETE FROM decisions WHERE path = ? AND added = ?", (path, added))
        return
    labels = given if decision.kind == "skip" else json.dumps(list(decision.labels))
    row = (path, added, decision.kind, given, labels)
    connection.execute("INSERT OR REPLACE INTO decisions VALUES (?, ?, ?, ?, ?, ?)", (*row, decision_checksum(*row)))


def read_decisions(connection: sqlite3.Connection) -> tuple[dict[int, Decision], bool]:
    """Return the decisions on images whose labels are what they were, by id, and whether all rows are intact."""
    columns = ", ".join(f"decisions.{column}" for column in ROWS.decision.split(", "))
    query = (
        f"SELECT id, {columns} FROM decisions JOIN images USING (path, added) WHERE images.labels = given ORDER BY id"
    )
    found = {}
    for id_, *row in connection.execute(query):
        if not is_intact(decision_checksum, row):
            return {}, False
        found[id_] = Decision(row[2], tuple(json.loads(row[4])))
    return found, True
