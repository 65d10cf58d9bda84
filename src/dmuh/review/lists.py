"""Suspects as a list that a person goes through: what it says, how it is written, and what comes back decided.

A list is a CSV file: path, labels, suggested, probability, in_words, decision. The last column is empty; a person
writes `accept`, `skip` or the right labels into it, several with a semicolon between them.
"""

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dmuh.catalogue import Catalogue, Decision
from dmuh.catalogue.paths import as_path, displayed, named
from dmuh.errors import DataError
from dmuh.files import write_text
from dmuh.progress import Counting, uncounted
from dmuh.review.sources import Labelled
from dmuh.wrong_labels import find_suspects

COLUMNS = ("path", "labels", "suggested", "probability", "in_words", "decision")
_WORDS = {0.95: "almost certainly wrong", 0.8: "very probably wrong", 0.5: "probably wrong", 0.2: "possibly wrong"}


@dataclass(frozen=True)
class Suspect:
    """An image whose labels are wrong with a probability, and the labels that the others suggest."""

    id: int
    path: str
    labels: tuple[str, ...]
    suggested: tuple[str, ...]
    probability: float

    @property
    def missing(self) -> tuple[str, ...]:
        """The labels that it should have and has not."""
        return tuple(name for name in self.suggested if name not in self.labels)

    @property
    def too_much(self) -> tuple[str, ...]:
        """The labels that it has and should not have."""
        return tuple(name for name in self.labels if name not in self.suggested)

    @property
    def in_words(self) -> str:
        """The probability in words."""
        return next((words for least, words in _WORDS.items() if self.probability >= least), "probably right")


def suspects_of(
    labelled: Labelled, *, seed: int = 0, at_least: float = 0.0, count: Counting = uncounted
) -> list[Suspect]:
    """Return the images whose labels are wrong with at least a probability, the most probable first."""
    found = find_suspects(labelled.vectors, labelled.labels, seed=seed, count=count).at_least(at_least)
    return [
        Suspect(
            int(labelled.ids[position]), labelled.paths[position], labelled.names(labelled.labels[position]),
            labelled.names(suggested), round(probability, 4),
        )
        for position, suggested, probability in zip(
            found.positions.tolist(), found.suggested, found.probability.tolist(), strict=True
        )
    ]  # fmt: skip


def write_suspects(file: Path, suspects: Iterable[Suspect], decisions: Mapping[str, Decision] | None = None) -> None:
    """Write suspects to a file that is not there yet, with decisions by path where there are some."""
    decided = decisions or {}
    rows = (
        (
            _shown(suspect.path, file), _joined(suspect.labels), _joined(suspect.suggested),
            f"{suspect.probability:.4f}", suspect.in_words, _decision_text(decided.get(suspect.path)),
        )
        for suspect in suspects
    )  # fmt: skip
    _write(file, COLUMNS, rows)


def write_labels(file: Path, labelled: Labelled, decisions: Mapping[str, Decision]) -> int:
    """Write the list of all images with their labels as they were decided; return how many labels were changed."""
    rows, changed = [], 0
    for path, row in zip(labelled.paths, labelled.labels, strict=True):
        given = labelled.names(row)
        labels = decisions[path].labels if path in decisions else given
        changed += set(labels) != set(given)
        rows.append((_shown(path, file), _joined(labels)))
    _write(file, ("path", "labels"), rows)
    return changed


def read_decisions(file: Path, labelled: Labelled) -> dict[str, Decision]:
    """Read a list of suspects whose decisions were written in; return those by path."""
    given = {path: labelled.names(row) for path, row in zip(labelled.paths, labelled.labels, strict=True)}
    decisions = {}
    for number, row in enumerate(_rows(file), start=2):
        said = row["decision"].strip()
        if not said:
            continue
        path = _path(row["path"], file, given)
        if path is None:
            raise DataError(f"{file}, line {number}: {row['path']} is no image of what is reviewed")
        if said == "accept":
            if "suggested" not in row:
                raise DataError(f"{file}, line {number}: accept needs a column suggested, which this file has not")
            decisions[path] = Decision("accept", _split(row["suggested"]))
        elif said == "skip":
            decisions[path] = Decision("skip", given[path])
        else:
            decisions[path] = Decision("own", _split(said))
    return decisions


def kept_decisions(catalogue: Catalogue) -> dict[str, Decision]:
    """Return the decisions that were made on the page, by the path of the image."""
    root = as_path(catalogue.about("root") or catalogue.about("folder") or "/")
    decisions = catalogue.decisions()
    rows = [row for row in catalogue.rows(decisions) if not row.added]
    return {str(root / os.fsdecode(row.path)): decisions[row.id] for row in rows}


def keep_decisions(catalogue: Catalogue, decisions: Mapping[str, Decision]) -> int:
    """Keep decisions by path in the catalogue; return how many were of its images."""
    root = as_path(catalogue.about("root") or catalogue.about("folder") or "/")
    kept = 0
    with catalogue.transaction():
        for path, decision in decisions.items():
            below = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
            id_ = catalogue.id_of(below, added=False)
            kept += id_ is not None and catalogue.decide(id_, decision)
    return kept


def _write(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    try:
        write_text(file, text.getvalue(), replace=False)
    except FileExistsError as error:
        raise DataError(f"{file} exists already: nothing is replaced, so give another --out") from error


def _rows(file: Path) -> list[dict[str, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as lines:
            header = lines.readline()
            lines.seek(0)
            reader = csv.DictReader(lines, delimiter=max(",;\t", key=header.count), strict=True)
            missing = {"path", "decision"} - set(reader.fieldnames or ())
            if missing:
                raise DataError(
                    f"{file} has no column {' and '.join(sorted(missing))}: give a list that dmuh review wrote"
                )
            rows = list(reader)
    except OSError as error:
        raise DataError(f"cannot read the decisions {file}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is not a CSV file in UTF-8: {error}") from error
    cut = next((number for number, row in enumerate(rows, start=2) if None in row or None in row.values()), None)
    if cut is not None:
        raise DataError(f"{file}, line {cut}: not as many columns as the header has")
    return rows


def _shown(path: str, file: Path) -> str:
    """Return a path as it stands in a list: from the folder of the list on, if it is below that."""
    folder = f"{file.parent.absolute()}{os.sep}"
    return displayed(path.removeprefix(folder))


def _path(shown: str, file: Path, known: Mapping[str, object]) -> str | None:
    """Return which of the known paths a list means, or None: from its own folder on, else the one that ends so."""
    for name in (shown, named(shown)):
        for path in (name, os.path.normpath(file.parent.absolute() / name)):
            if path in known:
                return path
        ending = [path for path in known if path.endswith(f"{os.sep}{name}")]  # as the page names its images
        if len(ending) == 1:
            return ending[0]
    return None


def _joined(labels: Sequence[str]) -> str:
    wrong = next((label for label in labels if ";" in label), None)
    if wrong is not None:
        raise DataError(f"labels stand in a list with semicolons between them, so none may have one: got {wrong!r}")
    return ";".join(labels)


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))


def _decision_text(decision: Decision | None) -> str:
    if decision is None:
        return ""
    return f"{_joined(decision.labels)};" if decision.kind == "own" else decision.kind
