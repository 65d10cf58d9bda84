"""What Ctrl-C does: the command ends with exit code 130 and says how to go on."""

import functools
from collections.abc import Callable
from typing import Any

from dmuh.errors import StoppedError

AGAIN = "give the same command again"
GOES_ON = "the same command goes on from here"


def stoppable(advice: str | Callable[..., str] = AGAIN) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what has a command answer Ctrl-C with advice; a function gives it, by the arguments of the command."""

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*arguments: Any, **options: Any) -> None:
            try:
                command(*arguments, **options)
            except KeyboardInterrupt:
                what = advice if isinstance(advice, str) else advice(*arguments, **options)
                raise StoppedError(f"stopped; {what}") from None

        return run

    return wrap
