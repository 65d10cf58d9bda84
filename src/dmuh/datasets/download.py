"""Fetching an archive: it goes on where it stopped, and gets its name once its checksum is right."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import closing
from http.client import HTTPException, HTTPResponse
from io import BufferedRandom
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from dmuh.errors import DataError, InputError
from dmuh.files import move_into_place

Progress = Callable[[int, int | None], None]  # told the bytes that are there, and of how many where that is known

TIMEOUT = 60.0  # seconds without a byte
_PIECE = 1 << 18


def fetch(url: str, target: Path, sha256: str, progress: Progress) -> None:
    """Download a file to `target`, which appears whole or not at all; a file that is there is never replaced.

    What has come so far is in `<target>.dmuh-part`; a later call asks for the rest only.
    """
    _check(url)
    part = target.with_name(f"{target.name}.dmuh-part")  # browsers and other programs write to .part
    _check_free(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise DataError(f"another process is fetching {target}") from error
            try:
                found = _complete(url, file, sha256, progress)
                if found != sha256:
                    file.truncate(0)
                    raise DataError(
                        f"{url} gave a file with sha256 {found}, expected {sha256}: it is removed, try the same "
                        f"command again or put the right file at {target}"
                    )
                file.flush()
                _check_free(target)
                move_into_place(part, target)
            except _BrokenOffError as error:
                file.flush()
                n = os.fstat(file.fileno()).st_size
                goes_on = f"{part} keeps the {n:,} bytes that came and the same command goes on from there"
                advice = goes_on if n else "the same command tries again"
                raise DataError(f"cannot fetch {url}: {error}; {advice}") from error
            finally:
                if not os.fstat(file.fileno()).st_size:
                    part.unlink(missing_ok=True)
    except OSError as error:  # those of the network are a _BrokenOffError
        raise DataError(f"cannot write {error.filename or part}: {error.strerror}") from error


class _BrokenOffError(Exception):
    """The server or the way to it failed; the message is the reason."""


def _check(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and (parts.scheme, parts.hostname) != ("http", "127.0.0.1"):
        raise InputError(f"only https addresses are fetched, got {url}")


def _check_free(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise DataError(f"{target} is there already, and is not what would be fetched to that place: move it away")


def _complete(url: str, file: BufferedRandom, sha256: str, progress: Progress) -> str:
    """Append what is missing to the file; return the digest of the whole."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256")
    if digest.hexdigest() == sha256:  # it all came, but it was stopped before the file got its name
        return sha256
    with closing(_pieces(url, file.tell())) as pieces:
        for at, total, piece in pieces:
            if at < file.tell():  # the server sends it from the beginning
                file.truncate(0)
                file.seek(0)
                digest = hashlib.sha256()
            file.write(piece)
            digest.update(piece)
            progress(at + len(piece), total)
    return digest.hexdigest()


def _pieces(url: str, start: int) -> Generator[tuple[int, int | None, bytes]]:
    """Yield each piece with its place in the file and the file's length, from `start` or, if need be, from 0."""
    try:
        with _ask(url, start) as response:
            at = start if response.status == 206 else 0
            total = None if response.length is None else at + response.length
            yield at, total, b""
            while piece := response.read1(_PIECE):
                yield at, total, piece
                at += len(piece)
            if total is not None and at < total:
                raise _BrokenOffError(f"the connection was closed after {at:,} of {total:,} bytes")
    except (OSError, HTTPException) as error:
        raise _BrokenOffError(_reason(error)) from error


def _ask(url: str, start: int) -> HTTPResponse:
    """Return the server's answer: 206 is what comes from `start` on, 200 all of it."""
    ranged = {"Range": f"bytes={start}-"} if start else {}
    try:
        response: HTTPResponse = urlopen(Request(url, headers={"User-Agent": "dmuh", **ranged}), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if start and error.code == 416:  # there is nothing behind `start`: the part is not of this file
            return _ask(url, 0)
        raise
    if start and response.status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        response.close()
        return _ask(url, 0)
    return response


def _reason(error: object) -> str:
    if isinstance(error, HTTPError):
        return f"the server answered {error.code} {error.reason}"
    if isinstance(error, URLError):
        return _reason(error.reason)
    if isinstance(error, TimeoutError):
        return f"the server said nothing for {TIMEOUT:g} s"
    if isinstance(error, HTTPException):
        return "the connection was closed early"
    return str(getattr(error, "strerror", None) or error)
