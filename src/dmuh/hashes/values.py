"""A hash as bytes, of hexadecimal digits, bytes or a whole number.

Digits and bytes are taken as they are: the first two digits are the first byte of a code, so that a code is shown by
the same digits. Which bit of the image is which does not matter to a Hamming distance, as long as all hashes agree.
"""

import re
from typing import Any

from dmuh.errors import InputError

LEAST, MOST = 32, 1024  # bits of a hash
_DIGITS = re.compile("([0-9a-fA-F]{2})+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_WORD = 8  # bytes of a whole number


def hash_bytes(value: Any, *, integers: bool = False) -> bytes:
    """Return the bytes of a hash; a text is hexadecimal digits or, with `integers`, a whole number of 64 bits."""
    if isinstance(value, bytes):
        found = value
    elif isinstance(value, int) and not isinstance(value, bool):
        found = _of_number(value)
    elif isinstance(value, str) and integers and _NUMBER.fullmatch(value.strip()):
        found = _of_number(int(value))
    elif isinstance(value, str) and not integers and _DIGITS.fullmatch(_plain(value)):
        found = bytes.fromhex(_plain(value))
    else:
        expected = "a whole number" if integers else "hexadecimal digits, two per byte"
        hint = " (for whole numbers give --hash-integers)" if not integers and _is_number(value) else ""
        raise InputError(f"a hash must be {expected}, got {_shown(value)}{hint}")
    if not LEAST <= 8 * len(found) <= MOST:
        raise InputError(f"a hash must have {LEAST} to {MOST} bits, got {8 * len(found)}: {_shown(value)}")
    return found


def _plain(text: str) -> str:
    return text.strip().removeprefix("0x").removeprefix("0X")


def _of_number(number: int) -> bytes:
    """Return a number of 64 bits, with or without a sign, as bytes whose digits are those of the number."""
    if not -(2**63) <= number < 2**64:
        raise InputError(f"a hash that is a whole number must have at most 64 bits, got {number}")
    return (number % 2**64).to_bytes(_WORD, "big")


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and bool(_NUMBER.fullmatch(value.strip()))


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "nothing"
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
