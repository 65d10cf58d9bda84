"""How dmuh writes files, whole or not at all, opens those of others, and keeps arrays in one checked format.

Arrays are kept in the safetensors format (a JSON header, then raw bytes: nothing in it can run). To that dmuh adds a
kind, a version and a checksum, so that a file that was cut short, altered or made for something else is refused.
"""

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from dmuh.errors import FormatError

Array = np.ndarray[Any, np.dtype[Any]]
_TEMPORARY = re.compile(r"\..+\.dmuh-[a-z0-9_]{8}(\.[^.]*)?")  # names that `written_whole` gives, and nobody else
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DTYPES = {
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
    "F32": np.float32,
    "F64": np.float64,
    "BOOL": np.bool_,
}


@contextmanager
def written_whole(path: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; what was written there replaces `path` in one step, or never.

    The bytes are on the disk before the name is: a crash leaves the old file or the new one. Without `replace`, a file
    that is there by then stays, and FileExistsError is raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.dmuh-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        temporary.chmod(mode & 0o777)
        if not replace:
            _sync(temporary)
            path.hardlink_to(temporary)  # fails where there is one, whoever else tries at the same time
        else:
            move_into_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def clear_torn(folder: Path, name: str = "") -> None:
    """Remove what `written_whole` was writing in a folder when its process was killed, of all files or of one.

    The caller must hold the lock by which no other process writes there now.
    """
    for file in folder.glob(f".{name}*.dmuh-*"):
        if _TEMPORARY.fullmatch(file.name) and file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)


class NotRegularError(OSError):
    """A file to be read is a pipe, a device or a socket."""


def open_regular(file: str | Path, *, follow_links: bool = True) -> int:
    """Return a handle of a regular file, to read; anything else is an OSError, and a pipe is not waited for.

    Without `follow_links` a link is an OSError too.
    """
    no_link = 0 if follow_links else os.O_NOFOLLOW
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_link)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        raise NotRegularError("not a regular file")
    return handle


def no_room(error: OSError) -> bool:
    """Return whether writing failed because the disk, or what one may use of it, is full."""
    return error.errno in _NO_ROOM


def move_into_place(temporary: Path, path: Path) -> None:
    """Give a finished file beside `path` its name: first its bytes are on the disk, then its name is."""
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


@contextmanager
def locked(file: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a lock, which ends with the process, however it ends.

    `busy` is called where another process holds it: what it raises goes on, else this one waits for the other.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            busy()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a text file whole or not at all."""
    with written_whole(path, replace=replace) as temporary:
        temporary.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class ArrayFile:
    """What `load_arrays` returns: arrays by name, the metadata saved with them, the checksum over both, the version."""

    arrays: dict[str, Array]
    metadata: dict[str, Any]
    checksum: str
    version: int


def save_arrays(
    path: Path,
    kind: str,
    version: int,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write named arrays and JSON metadata to one file, atomically, with a checksum over both."""
    # little-endian and contiguous, so that the bytes hashed here are the bytes in the file
    flat = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in sorted(arrays.items())}
    about = json.dumps(dict(metadata or {}), sort_keys=True)
    header = {"kind": kind, "version": str(version), "metadata": about, "checksum": _checksum(flat, about)}
    with written_whole(path) as temporary:
        try:
            save_file(flat, temporary, metadata=header)
        except SafetensorError as error:  # which has the system's error as text alone
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def load_arrays(
    path: Path, kind: str, version: int, *, memory_map: bool = False, older: tuple[int, ...] = ()
) -> ArrayFile:
    """Read a file made by `save_arrays`, checked against its kind, version and checksum; `older` versions will do too.

    With `memory_map` the arrays are read-only views of the file; only the pages that are used take memory.
    """
    if not path.is_file():
        raise FormatError(f"{path} does not exist, expected a file of kind {kind}")
    try:
        with safe_open(path, framework="np") as file:  # checks the header and the file's length
            header = dict(file.metadata() or {})
            arrays = _views(path) if memory_map else {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise FormatError(f"{path} is cut short or not a dmuh file: {error}") from error
    if header.get("kind") != kind:
        found = header.get("kind")
        raise FormatError(f"{path} holds {found or 'something that dmuh did not write'}, expected {kind}")
    known = {str(number): number for number in (version, *older)}
    if header.get("version") not in known:
        raise FormatError(
            f"{path} is version {header.get('version')} of {kind}, this dmuh reads version {version}: write it again"
        )
    arrays = dict(sorted(arrays.items()))
    about = header.get("metadata", "")
    checksum = _checksum(arrays, about)
    if header.get("checksum") != checksum:
        raise FormatError(f"{path} was altered after it was written: its checksum does not fit")
    return ArrayFile(arrays, json.loads(about), checksum, known[header["version"]])


def saved_checksum(path: Path) -> str:
    """Return the checksum that stands in a file made by `save_arrays`, without reading the arrays."""
    try:
        with safe_open(path, framework="np") as file:
            return str((file.metadata() or {}).get("checksum"))
    except (SafetensorError, OSError, ValueError) as error:
        raise FormatError(f"{path} is missing, cut short or not a dmuh file: {error}") from error


def saved_kind(path: Path) -> str | None:
    """Return the kind of a file made by `save_arrays`; None for any other file."""
    try:
        with safe_open(path, framework="np") as file:
            return (file.metadata() or {}).get("kind")
    except (SafetensorError, OSError, ValueError):
        return None


def saved_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that stand in a file made by `save_arrays`, unchecked, without reading the arrays."""
    try:
        with safe_open(path, framework="np") as file:
            found = json.loads((file.metadata() or {}).get("metadata", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise FormatError(f"{path} is missing, cut short or not a dmuh file: {error}") from error
    return found if isinstance(found, dict) else {}


def _views(path: Path) -> dict[str, Array]:
    whole = np.memmap(path, dtype=np.uint8, mode="r")
    start = 8 + int(whole[:8].view("<u8")[0])
    entries = json.loads(bytes(whole[8:start]))
    views: dict[str, Array] = {}
    for name, entry in entries.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat: Array = whole[start + begin : start + end].view(_DTYPES[entry["dtype"]])
            views[name] = flat.reshape(entry["shape"])
    return views


def _checksum(arrays: Mapping[str, Array], metadata: str) -> str:
    digest = hashlib.sha256(metadata.encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
