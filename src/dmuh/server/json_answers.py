"""Answers as JSON text, formatted here for speed: ten images per search, dozens of numbers per image."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Row
from dmuh.codes import Codes
from dmuh.encoder.matching import likely
from dmuh.server.map.collection_map import Places

_DIGITS = 10_000  # probabilities and distances are rounded to four places
_NUMBERS = [f"{n / _DIGITS:g}" for n in range(_DIGITS + 1)]
_BYTES = [f"{byte:08b}"[::-1] for byte in range(256)]  # bit 0 first, as in Codes


class CodeWriter:
    """Writes images and codes of a catalogue; `worth` is what the levels of its codes stand for, as in Codes."""

    def __init__(self, n_bits: int, worth: NDArray[np.float32] | None) -> None:
        self._n_bits = n_bits
        self._of_levels = [] if worth is None else _texts((1 - worth) / 2)

    def image(self, row: Row) -> str:
        """Return the members of an image's JSON object, without the braces."""
        path = quoted(shown_path(row.path.decode("utf-8", "backslashreplace"), added=bool(row.added)))
        bits = None
        if row.levels is not None:
            levels = _halves(row.levels[: len(row.code)])
            if len(row.levels) > len(row.code):  # a second plane
                levels = [one | two << 4 for one, two in zip(levels, _halves(row.levels[len(row.code) :]), strict=True)]
            bits = [texts[own] for texts, own in zip(self._of_levels, levels, strict=False)]  # half a byte may be spare
        return (
            f'"id":{row.id},"path":{path},"labels":{row.labels},"metadata":{row.metadata},'
            f"{self._code(row.code, row.uncertainty, bits)}"
        )

    def sent(self, code: Codes, text: str | None = None) -> str:
        """Return the members of a JSON object for one code, with the exact uncertainty of its bits, and its text."""
        of_image, of_bits = code.image_uncertainty, code.uncertainty
        bits = None if of_bits is None else _rounded(of_bits[0])
        own = self._code(code.bits[0].tobytes(), None if of_image is None else float(of_image[0]), bits)
        return own if text is None else f'"text":{quoted(text)},{own}'

    def _code(self, code: bytes, uncertainty: float | None, bit_uncertainty: Sequence[str] | None) -> str:
        bits = "".join([_BYTES[byte] for byte in code])[: self._n_bits]
        of_image = "null" if uncertainty is None else f"{uncertainty:.6f}"
        of_bits = "null" if bit_uncertainty is None else f"[{','.join(bit_uncertainty)}]"
        return f'"uncertainty":{of_image},"bits":"{bits}","bit_uncertainty":{of_bits}'


def match_json(distance: float, hamming: int, match: float | None) -> str:
    """Return how far what was found is, and what that means; distance and probability are rounded already."""
    said = '"match":null,"likely":null' if match is None else f'"match":{match},"likely":"{likely(match)}"'
    return f'"distance":{distance},"hamming":{hamming},{said}'


def caption_json(text: str, images: Sequence[int], match: str) -> str:
    """Return a sentence that was found, the images that it is about, and what `match_json` says of it."""
    return f'{{"text":{quoted(text)},"images":[{",".join(map(str, images))}],{match}}}'


def answer_json(about: str, ranking: str, name: str, found: Sequence[str], left_out: int, best: float | None) -> str:
    """Return an answer: what is said of the query, what was found under its name, and what is known of the rest."""
    return (
        f'{{"query":{{{about}}},"ranking":"{ranking}","{name}":[{",".join(found)}],"left_out":{left_out},'
        f'"best":{"null" if best is None else best}}}'
    )


def map_json(
    places: Places, working: bool, outline: Sequence[tuple[int, str, float | None]], counts: Mapping[str, int]
) -> str:
    """Return a map as JSON, column by column; `outline` has id, labels and uncertainty of every image.

    Of an image with several labels the rarest stands there, by `counts`: it says most.
    """
    rarest = lru_cache(4096)(lambda text: min(json.loads(text), key=lambda label: counts.get(label, 0), default=None))
    known = {id_: (rarest(labels), unsure) for id_, labels, unsure in outline}
    there = [n for n, id_ in enumerate(places.ids.tolist()) if id_ in known]  # others were deleted a moment ago
    own = [known[id_] for id_ in places.ids[there].tolist()]
    names = sorted({label for label, _ in own if label is not None})
    position = {label: n for n, label in enumerate(names)}
    return json.dumps(
        {
            "working": working,
            "how": places.how,
            "ids": places.ids[there].tolist(),
            "x": np.round(places.places[there, 0].astype(np.float64), 1).tolist(),
            "y": np.round(places.places[there, 1].astype(np.float64), 1).tolist(),
            "names": names,
            "label": [-1 if label is None else position[label] for label, _ in own],
            "uncertainty": [None if unsure is None else round(unsure, 4) for _, unsure in own],
        }
    )


def rounded(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as answers show them."""
    result: NDArray[np.float64] = np.rint(numbers.astype(np.float64) * _DIGITS) / _DIGITS
    return result


def shown_path(path: str, *, added: bool) -> str:
    """Return the path of an image in answers, by which a search may name it."""
    return f"added/{path}" if added else path


def _texts(of_levels: NDArray[Any]) -> list[list[str]]:
    """Return the numbers of every four bits (n_bits / 4) for all that half a byte of each plane may hold (16 or 256).

    of_levels  (n_bits, 2 or 4): the number for each level of each bit
    """
    numbers = [_rounded(row) for row in of_levels]
    n_planes = of_levels.shape[1].bit_length() - 1
    return [
        [
            ",".join([own[(held >> bit & 1) | (held >> 4 + bit & 1) << 1] for bit, own in enumerate(some)])
            for held in range(16**n_planes)
        ]
        for some in (numbers[first : first + 4] for first in range(0, len(numbers), 4))
    ]


def _halves(packed: bytes) -> list[int]:
    """Return the halves of bytes, that of the lower bits first."""
    return [half for byte in packed for half in (byte & 15, byte >> 4)]


def _rounded(probabilities: NDArray[Any]) -> list[str]:
    return [_NUMBERS[n] for n in np.rint(probabilities * _DIGITS).astype(np.int64).tolist()]
