"""What a Milvus collection of codes is: its fields, its description, and codes as its rows.

A row has the id, the bits as a binary vector, the labels, and since version 2 of the layout

    graded    the bits and behind them the planes of levels, in hexadecimal digits: a search can return texts alone, and
              with these the answers are weighed here
    contents  the digest by which identical images are found, 0 where there is none

What the levels are worth stands in the description. A collection of the first layout has neither field, so it is
searched by Hamming distance alone.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes

_ABOUT = re.compile(r"dmuh codes of (\d+) bits(?: of (\w+))?(?: with levels worth ([\w+/=]+))?")
_LABELS, _LABEL_LENGTH = 64, 256  # labels per image at most, and bytes per label


@dataclass(frozen=True, eq=False)
class Layout:
    """What the rows of a collection hold.

    worth     float32 (n_bits, 2 or 4), or None: what the levels are worth
    of        a word for what the collection belongs to, or nothing
    weighs    whether rows have what soft ranking needs, as all but those of the first layout have
    """

    n_bits: int
    worth: NDArray[np.float32] | None = None
    of: str = ""
    weighs: bool = True

    @classmethod
    def described(cls, description: str, fields: Iterable[str]) -> "Layout | None":
        """Return the layout of a collection by its description and the names of its fields, None if it is not ours."""
        found = _ABOUT.fullmatch(description)
        if found is None:
            return None
        n_bits = int(found[1])
        try:
            worth = None if found[3] is None else np.frombuffer(base64.b64decode(found[3], validate=True), "<f4")
            levels = None if worth is None else worth.astype(np.float32).reshape(n_bits, -1)
        except (binascii.Error, ValueError):
            return None
        return cls(n_bits, levels, found[2] or "", "graded" in fields)

    def description(self) -> str:
        """Return the text that `described` reads."""
        of = f" of {self.of}" if self.of else ""
        worth = "" if self.worth is None else base64.b64encode(self.worth.astype("<f4").tobytes()).decode()
        return f"dmuh codes of {self.n_bits} bits{of}" + (f" with levels worth {worth}" if worth else "")

    def add_fields(self, schema: Any, types: Any) -> None:
        """Add the fields of a row to a schema of pymilvus, whose types these are."""
        width = -(-self.n_bits // 8)
        schema.add_field("id", types.INT64, is_primary=True)
        schema.add_field("code", types.BINARY_VECTOR, dim=8 * width)
        schema.add_field(
            "labels", types.ARRAY, element_type=types.VARCHAR, max_capacity=_LABELS, max_length=_LABEL_LENGTH
        )
        schema.add_field("graded", types.VARCHAR, max_length=2 * width * (1 + self.sure))
        schema.add_field("contents", types.INT64)

    @property
    def sure(self) -> int:
        """How many bits say how sure each bit is."""
        return 0 if self.worth is None else int(self.worth.shape[1]).bit_length() - 1

    def rows(self, codes: Codes, labels: Sequence[Sequence[str]] | None, chosen: Iterable[int]) -> list[dict[str, Any]]:
        """Return the chosen codes as rows."""
        return [self._row(codes, row, [] if labels is None else list(labels[row])) for row in chosen]

    def _row(self, codes: Codes, row: int, labels: list[str]) -> dict[str, Any]:
        found = {"id": int(codes.ids[row]), "code": codes.bits[row].tobytes(), "labels": labels}
        if self.weighs:
            levels = b"" if codes.levels is None else codes.levels[row].tobytes()
            found["graded"] = (codes.bits[row].tobytes() + levels).hex()
            found["contents"] = 0 if codes.contents is None else int(codes.contents[row])
        return found

    def codes(self, ids: Sequence[int], graded: Iterable[str]) -> Codes:
        """Return the codes of rows by their ids, which are unique, and by what the field `graded` has."""
        packed = np.frombuffer(bytes.fromhex("".join(graded)), np.uint8)
        planes = packed.reshape(len(ids), 1 + self.sure, -(-self.n_bits // 8))
        levels = np.ascontiguousarray(planes[:, 1:]) if self.sure else None
        bits = np.ascontiguousarray(planes[:, 0])
        return Codes(bits, self.n_bits, None, np.asarray(ids, np.int64), levels, self.worth)
