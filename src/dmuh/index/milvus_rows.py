"""What a Milvus collection of codes is: its fields, its description, and codes as its columns.

A row has the id, the bits as a binary vector, the labels, and since version 2 of the layout

    graded    the bits and behind them the planes of levels, in hexadecimal digits: a search can return texts alone, and
              with these the answers are weighed here
    contents  the digest by which identical images are found, 0 where there is none

What the levels are worth stands in the description. A collection of the first layout has neither field, so it is
searched by Hamming distance alone.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.codes import Codes
from dmuh.errors import InputError

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

    def columns(
        self, codes: Codes, labels: Sequence[Sequence[str]] | None, chosen: NDArray[np.intp], schema: Any
    ) -> list[Any]:
        """Return the chosen codes as the columns of a request, which are messages of pymilvus's module schema_pb2."""
        n, part = len(chosen), codes[chosen]

        def scalars(name: str, kind: int, **values: Any) -> Any:
            return schema.FieldData(type=kind, field_name=name, scalars=schema.ScalarField(**values))

        bits = schema.VectorField(dim=8 * part.bits.shape[1], binary_vector=part.bits.tobytes())
        own = [()] * n if labels is None else [tuple(labels[row]) for row in chosen.tolist()]
        made = {  # many images have the same labels
            one: schema.ScalarField(string_data=schema.StringArray(data=_stored(one))) for one in dict.fromkeys(own)
        }
        texts = [made[one] for one in own]
        found = [
            scalars("id", schema.Int64, long_data=schema.LongArray(data=part.ids.tolist())),
            schema.FieldData(type=schema.BinaryVector, field_name="code", vectors=bits),
            scalars("labels", schema.Array, array_data=schema.ArrayArray(data=texts, element_type=schema.VarChar)),
        ]
        if self.weighs:
            digests = [0] * n if part.contents is None else part.contents.tolist()
            found += [
                scalars("graded", schema.VarChar, string_data=schema.StringArray(data=_graded(part))),
                scalars("contents", schema.Int64, long_data=schema.LongArray(data=digests)),
            ]
        return found

    def codes(self, ids: Sequence[int], graded: Iterable[str]) -> Codes:
        """Return the codes of rows by their ids, which are unique, and by what the field `graded` has."""
        packed = np.frombuffer(bytes.fromhex("".join(graded)), np.uint8)
        planes = packed.reshape(len(ids), 1 + self.sure, -(-self.n_bits // 8))
        levels = np.ascontiguousarray(planes[:, 1:]) if self.sure else None
        bits = np.ascontiguousarray(planes[:, 0])
        return Codes(bits, self.n_bits, None, np.asarray(ids, np.int64), levels, self.worth)


def having(label: str) -> str:
    """Return the condition of Milvus on the rows that have a label.

    >>> from dmuh.index.milvus_rows import having
    >>> having("robin")
    'array_contains(labels, "robin")'
    """
    return f"array_contains(labels, {json.dumps(*_stored([label]), ensure_ascii=False)})"


def _stored(labels: Sequence[str]) -> list[str]:
    """Return labels as they are stored: one that is too long, or cannot stand in a condition, as its digest."""
    if len(labels) > _LABELS:
        raise InputError(f"in Milvus an image has at most {_LABELS} labels, got {len(labels)}: {labels[0]!r} and more")
    return [
        label
        if label.isprintable() and len(label.encode()) <= _LABEL_LENGTH
        else f"sha256:{hashlib.sha256(label.encode()).hexdigest()}"
        for label in labels
    ]


def _graded(codes: Codes) -> list[str]:
    """Return the bits and behind them the planes of levels of each code, in hexadecimal digits."""
    planes = codes.bits if codes.levels is None else np.hstack([codes.bits, codes.levels.reshape(len(codes), -1)])
    text, width = np.ascontiguousarray(planes).tobytes().hex(), 2 * planes.shape[1]
    return [text[first : first + width] for first in range(0, width * len(codes), width)]
