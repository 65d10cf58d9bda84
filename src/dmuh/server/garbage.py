"""What a service does so that its answers do not wait for Python's garbage collector."""

import gc


def leave_to_stay() -> None:
    """Have the collector leave out all objects that there are now: those that a start makes stay to the end.

    Else it looks through them again and again, while all requests wait: the catalogue's take 100 ms, the compiler's 30.
    """
    gc.collect()
    gc.freeze()
