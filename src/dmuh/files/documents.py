"""JSON files that say what they are: documents with a checksum, and journals whose lines are sealed one to the next.

A checksum tells a file that was altered by accident from one that was not. It proves nothing about who wrote it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmuh.errors import DataError, FormatError
from dmuh.files import write_text

_KIND, _CHECKSUM = "kind", "checksum"
_SEAL, _CLOSED = "seal", "closed"


def write_document(path: Path, kind: str, content: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write a JSON object, whole or not at all, with its kind and a checksum over all of it.

    Without `replace`, FileExistsError is raised where there is a file by then.
    """
    value = json.loads(json.dumps({_KIND: kind, **content}))  # as it will be read: keys are texts
    write_text(path, json.dumps({**value, _CHECKSUM: digest_of(value)}, indent=2) + "\n", replace=replace)


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Read what `write_document` wrote; whatever is of another kind, cut short or altered is refused."""
    value = _parsed(path, kind)
    if value.get(_KIND) != kind:
        raise FormatError(
            f"{path} holds {value.get(_KIND) or 'something that this version of dmuh did not write'}, expected {kind}"
        )
    if value.pop(_CHECKSUM, None) != digest_of(value):
        raise FormatError(f"{path} was altered after it was written: its checksum does not fit")
    del value[_KIND]
    return value


def is_document(path: Path, kind: str) -> bool:
    """Return whether a file is a document of this kind, unchecked; raise if it is there and no JSON at all."""
    return path.is_file() and _parsed(path, kind).get(_KIND) == kind


def refuse_foreign(folder: Path, document: str, kind: str, others: Iterable[str] = ()) -> None:
    """Raise if files of these names are in a folder that dmuh did not write, so that they are not replaced.

    `document` is the file that says that a folder is dmuh's, and `others` are those that go with it.
    """
    try:
        if _parsed(folder / document, kind).get(_KIND) == kind:
            return
    except FormatError:
        pass
    taken = [name for name in (document, *others) if (folder / name).exists()]
    if taken:
        raise DataError(
            f"{folder} has {' and '.join(taken)}, but not as this dmuh writes them: nothing is replaced, so choose "
            "another folder"
        )


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Journal:
    """A file of JSON lines that grows; each is sealed with all before it, and the first with what the file is of.

    So a line that was altered, left out or taken from another journal is noticed. Lines that are missing at the end are
    noticed once the journal is closed.
    """

    path: Path
    of: str

    def append(self, value: Mapping[str, Any]) -> None:
        """Append a line."""
        seal = self._sealed()[1]
        with self.path.open("a", encoding="utf-8") as file:
            file.write(self._line(value, seal)[0])

    def close(self) -> None:
        """Say that no line follows."""
        self.append({_CLOSED: len(self.lines())})

    def lines(self, *, closed: bool = False) -> list[dict[str, Any]]:
        """Return the lines; one at the end that a crash cut short is left out. With `closed`, none may be missing."""
        lines = self._sealed()[0]
        is_closed = bool(lines) and lines[-1].keys() == {_CLOSED}
        if closed and not is_closed:
            raise FormatError(f"{self.path} is missing or cut short: lines are missing at its end")
        return lines[:-1] if is_closed else lines

    def write(self, values: Iterable[Mapping[str, Any]]) -> None:
        """Replace all lines."""
        text, seal = "", self.of
        for value in values:
            line, seal = self._line(value, seal)
            text += line
        write_text(self.path, text)

    def _line(self, value: Mapping[str, Any], before: str) -> tuple[str, str]:
        """Return a line and its seal."""
        plain = json.loads(json.dumps(value))
        seal = digest_of([before, plain])[:16]
        return json.dumps({**plain, _SEAL: seal}) + "\n", seal

    def _sealed(self) -> tuple[list[dict[str, Any]], str]:
        """Return the whole lines, checked, and the last seal."""
        lines: list[dict[str, Any]] = []
        seal = self.of
        *whole, _ = (self.path.read_bytes() if self.path.is_file() else b"").split(b"\n")
        for number, text in enumerate(whole, start=1):
            try:
                line = json.loads(text)
                found = line.pop(_SEAL, None)
            except (ValueError, RecursionError, AttributeError, TypeError) as error:
                raise FormatError(
                    f"{self.path}, line {number} was altered: it is not a line that dmuh wrote"
                ) from error
            seal = digest_of([seal, line])[:16]
            if found != seal:
                raise FormatError(
                    f"{self.path}, line {number} was altered, or is not of this run: its checksum does not fit"
                )
            lines.append(line)
        return lines, seal


def _parsed(path: Path, kind: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise FormatError(f"{path} does not exist, expected {kind}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is cut short or altered: it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path} is not {kind}")
    return value
