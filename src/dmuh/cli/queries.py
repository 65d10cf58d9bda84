"""What `dmuh search` begins from: images, ids of images of the index, codes, or sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dmuh.codes import Codes
from dmuh.errors import ConfigError, InputError

if TYPE_CHECKING:
    from dmuh.cli.answers import Answers, Stored
    from dmuh.collection import Item
    from dmuh.encoder import Hasher
    from dmuh.encoder.calibration import Calibration
    from dmuh.images import Reading


@dataclass(frozen=True)
class Queries:
    """Codes to search with, what each is called, and the ids of those that are in the index themselves.

    calibration  what their distances to images mean, where they are no images
    """

    codes: Codes
    names: Sequence[str]
    own: Sequence[int] = ()
    calibration: "Calibration | None" = None

    def without_themselves(self, answers: "list[Answers]", k: int | None) -> "list[Answers]":
        """Return the answers without the queries that found themselves, k of each if that is a number."""
        from dmuh.cli.answers import Answers

        if not self.own:
            return answers
        pairs = zip(answers, self.own, strict=True)
        return [Answers([answer for answer in one.found if answer.id != own][:k], one.best) for one, own in pairs]


def of_images(hasher: "Hasher", images: list[Path], reading: "Reading") -> Queries:
    """Return images as queries, or the feature vectors that stand in for them."""
    from dmuh.datasets import load_images
    from dmuh.datasets.features import load_features
    from dmuh.hashes import HashModel

    if isinstance(hasher, HashModel):
        name = hasher.about["method"]
        raise ConfigError(
            f"images cannot be searched with here, as their {name} is computed by another program: give --id, or the "
            f"{name} by --code"
        )
    if hasher.takes_images:
        data = load_images(images)
    elif len(images) > 1:
        raise ConfigError(f"this index was made from feature vectors: give one .npy file, got {len(images)} files")
    else:
        data = load_features(images[0])
    codes = hasher.encode(data.images, reading=reading)
    return Queries(codes, [data.path(position) for position in codes.ids.tolist()])


def of_ids(
    stored: "Stored", items_of: "Callable[[list[int]], dict[int, Item]]", folder: Path, ids: list[int]
) -> Queries:
    """Return images of the index in a folder as queries, each once."""
    wanted = sorted(set(ids))
    codes, items = stored.codes(wanted), items_of(wanted)
    missing = sorted(set(wanted) - set(codes.ids.tolist()))
    if missing:
        raise ConfigError(f"there is no image {missing[0]} in {folder}")
    return Queries(codes, [items[id_].path for id_ in wanted], wanted)


def of_codes(texts: list[str], n_bits: int) -> Queries:
    """Return codes in hexadecimal digits as queries."""
    plain = [text.strip().lower().removeprefix("0x") for text in texts]
    digits = 2 * -(-n_bits // 8)
    wrong = next((text for text in plain if len(text) != digits), None)
    if wrong is not None:
        raise ConfigError(
            f"--code must have {digits} hexadecimal digits, for codes of {n_bits} bits, got {len(wrong)}: {wrong[:100]}"
        )
    try:
        return Queries(Codes.from_hex(plain, n_bits, np.arange(len(plain))), plain)
    except InputError as error:
        raise ConfigError(f"--code: {error}") from error


def of_texts(hasher: "Hasher", texts: list[str]) -> Queries:
    """Return sentences as queries, which a model for images and texts gives codes beside those of images."""
    if hasher.no_texts is not None or hasher.texts is None:
        raise ConfigError(f"--text cannot be used: {hasher.no_texts}")
    if not all(text.strip() for text in texts):
        raise ConfigError("--text must say what to look for, got an empty one")
    return Queries(hasher.encode_texts(texts), texts, calibration=hasher.texts.calibration)
