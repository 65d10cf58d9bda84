"""Functions compiled to machine code, which is kept for the next process where it can be."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import FunctionCache

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function at its first call, as numba's njit does; it releases the lock.

    The machine code is kept beside the source, else in the user's cache folder, else nowhere. It is trusted like the
    source: it goes to no folder but those of numba's choice, and the one that NUMBA_CACHE_DIR names.
    """

    def decorate(function: Function) -> Function:
        made = njit(nogil=True, **options)(function)
        with suppress(RuntimeError, OSError):  # where numba finds no folder, as on a read-only disk without a home
            made._cache = _Cache(function)
        return made  # type: ignore[no-any-return]

    return decorate


class _Cache(FunctionCache):  # type: ignore[misc]
    """A cache that nothing depends on: what cannot be read is compiled anew, what cannot be written is not kept."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the machine code for a signature, None if it is not there."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a file that a crash left cut short raises nearly anything
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the machine code for a signature, unless the disk is full or may not be written any more."""
        with suppress(OSError):
            super().save_overload(sig, data)
