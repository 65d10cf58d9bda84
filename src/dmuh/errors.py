"""Every error that dmuh raises on purpose.

    DmuhError                 something a user can mend; the message is one sentence that says how
    ├── ConfigError           a setting is unknown, of the wrong type or out of range
    ├── InputError            an array, a label matrix or a code has the wrong shape or value (also a ValueError)
    │   └── DtypeError        … or the wrong element type (also a TypeError)
    ├── DataError             a data set is missing, incomplete or does not fit its protocol
    │   └── ImageError        one image cannot be read
    ├── FormatError           a file written by dmuh is cut short, altered or of another version
    ├── RunError              a run folder is in use, unfinished or does not match
    │   └── PeerError         another process of the same training stopped; that one says why
    ├── TrainingError         the training itself went wrong
    │   ├── DivergenceError   the loss ran away or is no longer a number
    │   └── CollapseError     all images got the same code
    ├── RequestError          the service cannot do what a request asks for; it has the status of the answer
    │   └── CatalogueError    … because its catalogue is damaged (also a FormatError)
    ├── EngineError           another program that dmuh asks, such as Milvus, is down, slow or refuses
    ├── MissingPackageError   a package that dmuh does not depend on is not installed (also an ImportError)
    ├── MissingExtraError     an optional dependency is not installed (also an ImportError)
    └── StoppedError          a command was stopped by Ctrl-C; the message says how to go on

The command line turns a DmuhError into its sentence and exit code 2, or 130 if it was stopped; anything else is a bug
and keeps its traceback.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class DmuhError(Exception):
    """Base of all errors that dmuh raises on purpose.

    >>> try:
    ...     dmuh.Hasher.load("nowhere")
    ... except dmuh.DmuhError as error:
    ...     print(error)
    nowhere does not exist...
    """


class ConfigError(DmuhError):
    """A setting is unknown, of the wrong type or out of range."""


class InputError(DmuhError, ValueError):
    """An argument has the wrong shape or value."""


class DtypeError(InputError, TypeError):
    """An array has the wrong element type."""


class DataError(DmuhError):
    """A data set is missing, incomplete or does not fit its protocol."""


class ImageError(DataError):
    """One image cannot be read."""


class FormatError(DmuhError):
    """A file written by dmuh is cut short, altered or of another version."""


class RunError(DmuhError):
    """A run folder is in use, unfinished or does not match."""


class PeerError(RunError):
    """Another process of the same training stopped, and says why."""


class TrainingError(DmuhError):
    """The training itself went wrong."""


class DivergenceError(TrainingError):
    """The loss ran away or is no longer a number."""


class CollapseError(TrainingError):
    """All images got the same code."""


class RequestError(DmuhError):
    """The service cannot do what a request asks for; `status` is that of the HTTP answer."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status

    def __reduce__(self) -> tuple[type["RequestError"], tuple[int, str]]:
        return type(self), (self.status, str(self))


class CatalogueError(FormatError, RequestError):
    """The catalogue of a service is damaged, or cannot be read or written."""

    def __init__(self, status: int, sentence: str) -> None:
        RequestError.__init__(self, status, sentence)


class EngineError(DmuhError):
    """Another program that dmuh asks is down, slow or refuses."""


class MissingPackageError(DmuhError, ImportError):
    """A package that dmuh does not depend on, such as pandas, is not installed."""


class MissingExtraError(DmuhError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part of dmuh: pip install 'dmuh[{extra}]'")
        self._about = what, extra

    def __reduce__(self) -> tuple[type["MissingExtraError"], tuple[str, str]]:
        return type(self), self._about


class StoppedError(DmuhError):
    """A command was stopped by Ctrl-C."""


@contextmanager
def needs_torch(what: str) -> Iterator[None]:
    """Turn a missing torch into the sentence that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError(what, "train") from error


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a name that is not in the table: its near misses, and all names if few."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hints = [f"did you mean {' or '.join(near)}?"] if near else []
    if len(names) <= 20 or not near:
        hints.append(f"known are {', '.join(names) or 'none'}")
    return f"unknown {kind} {name!r}: {' '.join(hints)}"
