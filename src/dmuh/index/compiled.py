"""Functions compiled to machine code, which is kept for the next process where it can be.

Importing this module imports numba, which takes half a second: modules of kernels are imported when they are used.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from numba import njit, types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

from dmuh.files import locked

Function = TypeVar("Function", bound=Callable[..., Any])
_only_kept: ContextVar[bool] = ContextVar("only_kept", default=False)


class NotKeptError(Exception):
    """The machine code of a function is not there, and here it shall not be compiled."""


@contextmanager
def only_kept() -> Iterator[None]:
    """Load machine code of this thread's functions inside, but compile none: a NotKeptError where it would have to be.

    Where it cannot be kept at all, it is compiled as ever.
    """
    token = _only_kept.set(True)
    try:
        yield
    finally:
        _only_kept.reset(token)


def compiled(*, allocates: bool = True, **options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function at its first call, as numba's njit does; it releases the lock.

    One that makes no arrays can say so: numba then does not count who holds those that it is given, which takes longer
    than the work of a small function.

    The machine code is kept beside the source, else in the user's cache folder, else nowhere. It is trusted like the
    source: it goes to no folder but those of numba's choice, and the one that NUMBA_CACHE_DIR names.
    """

    def decorate(function: Function) -> Function:
        made = njit(nogil=True, _nrt=allocates, **options)(function)
        with suppress(RuntimeError, OSError):  # where numba finds no folder, as on a read-only disk without a home
            made._cache = _Cache(function)
        return made  # type: ignore[no-any-return]

    return decorate


def kept_in(function: Callable[..., Any]) -> Path | None:
    """Return the folder with the machine code of a compiled function, None where it could not be kept."""
    folder = function._cache.cache_path  # type: ignore[attr-defined]
    return Path(folder) if folder and any(Path(folder).glob(f"*.{function.__name__}-*.nbi")) else None


@intrinsic  # type: ignore[untyped-decorator]
def popcount(typing_context: Any, number: Any) -> Any:
    """Return the ones of an integer, inside a compiled function: one machine instruction."""
    del typing_context
    if not isinstance(number, types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.ctpop(arguments[0])

    return number(number), generate


@intrinsic  # type: ignore[untyped-decorator]
def lowest_one(typing_context: Any, number: Any) -> Any:
    """Return the place of the lowest one of an integer that is not zero, inside a compiled function."""
    del typing_context
    if not isinstance(number, types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

    return number(number), generate


class _Cache(FunctionCache):  # type: ignore[misc]
    """A cache that nothing depends on: what cannot be read is compiled anew, what cannot be written is not kept."""

    _cache_file: Any

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name = self._cache_file._index_name.removesuffix(".nbi")
        stamps = [_stamp(Path(file).parent) for file in (inspect.getfile(function), __file__)]
        self._cache_file = _Files(self.cache_path, name, (self._cache_file._source_stamp, *stamps))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, None if it is not there."""
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # a file that a crash left cut short raises nearly anything
            with suppress(OSError):
                self.flush()
        if found is None and _only_kept.get():
            raise NotKeptError
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for a signature, unless the disk is full or may not be written any more."""
        with suppress(OSError):
            super().save_overload(sig, data)


@lru_cache
def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return what changes with any source in a folder: a function has in it the machine code of those that it calls."""
    files = [(file.name, file.stat()) for file in sorted(folder.glob("*.py"))]
    return tuple((name, about.st_mtime_ns, about.st_size) for name, about in files)


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """The files with one function's machine code: one for each signature, and an index of them.

    numba itself gives them numbers, from 1 on, and writes the index first. Two processes that compile a function for
    different types at once would both take the next number; one that reads the index before its file is written would
    find there what an older source gave. Either would run the wrong machine code. Here a file is named by what it
    holds, is written before the index tells of it, and only one process writes at a time.
    """

    def save(self, key: Any, data: Any) -> None:
        """Keep the machine code of a signature, and none of an older source."""
        digest = sha256(self._dump((self._source_stamp, key))).digest()
        name = self._data_name(int.from_bytes(digest[:8]))
        folder = Path(self._cache_path)
        with locked(folder / ".writing", lambda: None):
            self._save_data(name, data)
            known = self._load_index() | {key: name}
            self._save_index(known)
            for file in folder.glob(self._data_name_pattern.replace("{number:d}", "*")):
                if file.name not in known.values():
                    file.unlink(missing_ok=True)
