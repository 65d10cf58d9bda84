"""Answers as JSON text, formatted here for speed: ten images per search, dozens of numbers per image."""

from json.encoder import encode_basestring_ascii as quoted

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Row

_DIGITS = 10_000  # uncertainty is rounded to four places
_NUMBERS = [f"{n / _DIGITS:g}" for n in range(_DIGITS)]
_BYTES = [f"{byte:08b}"[::-1] for byte in range(256)]  # bit 0 first, as in Codes


def image_json(row: Row, n_bits: int) -> str:
    """Return the members of an image's JSON object, without the braces."""
    path = quoted(shown_path(row.path.decode("utf-8", "backslashreplace"), added=bool(row.added)))
    unsure = None if row.bit_uncertainty is None else np.frombuffer(row.bit_uncertainty, np.float32)
    return (
        f'"id":{row.id},"path":{path},"labels":{row.labels},"metadata":{row.metadata},'
        f"{code_json(row.code, n_bits, row.uncertainty, unsure)}"
    )


def code_json(code: bytes, n_bits: int, uncertainty: float | None, unsure: NDArray[np.float32] | None) -> str:
    """Return the members for a code: uncertainty of the image, bits, uncertainty per bit; without the braces."""
    bits = "".join([_BYTES[byte] for byte in code])[:n_bits]
    if unsure is None or uncertainty is None:
        return f'"uncertainty":null,"bits":"{bits}","bit_uncertainty":null'
    ten_thousandths = np.rint(unsure * _DIGITS).astype(np.int64).tolist()
    numbers = [_NUMBERS[n] if n < _DIGITS else str(n / _DIGITS) for n in ten_thousandths]
    return f'"uncertainty":{uncertainty:.6f},"bits":"{bits}","bit_uncertainty":[{",".join(numbers)}]'


def shown_path(path: str, *, added: bool) -> str:
    """Return the path of an image in answers, by which a search may name it."""
    return f"added/{path}" if added else path
