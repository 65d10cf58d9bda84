"""The sentences about the images of a collection, and their codes: what an image is answered with, in words.

The catalogue has the sentences, in columns of the list that its images came from, and so they come and go with the
images. `texts.safetensors` beside it has the codes of those that were there when `dmuh index` wrote it, with the digest
of the model. It can be made again: whoever reads it encodes what it lacks.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmuh.catalogue import Catalogue
from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.collection.folder import sources_of
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.hasher import Hasher
from dmuh.errors import ConfigError, DataError, FormatError, InputError
from dmuh.files import load_arrays, save_arrays

_FILE, _KIND, _VERSION = "texts.safetensors", "texts of a collection", 1
_NONE = "there are no sentences about the images: index a list of them with --texts, which names their column"


@dataclass(frozen=True, eq=False)
class Captions:
    """Sentences, each once.

    images  the ids of the images that each is about
    codes   of each, as an index keeps codes; ids are positions
    by      what the distance from an image to them means
    kept    whether the file beside the catalogue had all codes
    """

    sentences: list[str]
    images: list[list[int]]
    codes: Codes
    by: Calibration
    kept: bool


def no_captions(catalogue: Catalogue, hasher: Hasher) -> str | None:
    """Return why images cannot be answered in words, in a sentence; None if they can, for all that is known."""
    if hasher.texts is None or hasher.no_texts is not None:
        return f"captions cannot be searched: {hasher.no_texts}"
    return None if _columns(catalogue) else _NONE


def read_captions(catalogue: Catalogue, hasher: Hasher) -> Captions:
    """Return the sentences about the images of a collection, by its catalogue, with codes of its model."""
    if hasher.texts is None or hasher.no_texts is not None:
        raise ConfigError(no_captions(catalogue, hasher))
    about = _about(catalogue)
    if not about:
        raise DataError(_NONE)
    sentences, sure = list(about), catalogue.sure or 0
    known, codes = _kept(catalogue.file.parent / _FILE, hasher, sure)
    missing = sorted(about.keys() - known.keys())
    if missing:
        new = hasher.encode_texts(missing, ids=range(len(known), len(known) + len(missing)), sure=sure).stored()
        codes = new if codes is None else Codes.concatenated([codes, new])
        known |= dict(zip(missing, new.ids.tolist(), strict=True))
    assert codes is not None, "there is a sentence"
    codes = codes[[known[sentence] for sentence in sentences]].with_ids(np.arange(len(sentences)))
    by = replace(hasher.calibration, match=hasher.texts.match_of_images)
    return Captions(sentences, list(about.values()), codes, by, kept=not missing)


def keep_captions(collection: Collection, hasher: Hasher) -> None:
    """Write the codes of the sentences about a collection's images beside it, where the model has texts."""
    with collection.reading() as catalogue:
        if hasher.no_texts is not None or not _about(catalogue):
            return
        write_captions(read_captions(catalogue, hasher), catalogue, hasher)


def write_captions(captions: Captions, catalogue: Catalogue, hasher: Hasher) -> None:
    """Write the codes of sentences beside the catalogue that has these."""
    file, codes = catalogue.file.parent / _FILE, captions.codes
    if file.exists():
        load_arrays(file, _KIND, _VERSION)  # raises where it is not one of ours
    arrays: dict[str, NDArray[Any]] = {"bits": codes.bits}
    if codes.levels is not None and codes.worth is not None:
        arrays |= {"levels": codes.levels, "worth": codes.worth}
    about = {"model": hasher.digest, "sentences": captions.sentences}
    save_arrays(file, _KIND, _VERSION, arrays, about)


def _columns(catalogue: Catalogue) -> list[str]:
    """Return the columns that may have sentences, by the lists that the images came from."""
    given = {str(source.options.get("texts") or "") for source in sources_of(catalogue)}
    return sorted({name.strip() for texts in given for name in (texts, *re.split("[;,]", texts))} - {""})


def _about(catalogue: Catalogue) -> dict[str, list[int]]:
    """Return the ids of the images that each sentence is about."""
    names = _columns(catalogue)
    about: dict[str, list[int]] = {}
    for row in catalogue.images() if names else ():
        columns = json.loads(row.metadata)
        for sentence in _lines(columns.get(name, "") for name in names):
            about.setdefault(sentence, []).append(row.id)
    return about


def _lines(values: Iterable[str]) -> list[str]:
    """Return the sentences of an image, each once; those of several rows stand below each other."""
    return list(dict.fromkeys(line.strip() for value in values for line in value.splitlines() if line.strip()))


def _kept(file: Path, hasher: Hasher, sure: int) -> tuple[dict[str, int], Codes | None]:
    """Return the codes that the file has, and the row of each sentence; none if it is of another model or not there."""
    if not file.is_file():
        return {}, None
    read = load_arrays(file, _KIND, _VERSION)
    arrays, sentences = read.arrays, read.metadata.get("sentences", [])
    if read.metadata.get("model") != hasher.digest:
        return {}, None
    try:
        codes = Codes(arrays["bits"], hasher.n_bits, levels=arrays.get("levels"), worth=arrays.get("worth"))
    except (KeyError, InputError) as error:
        raise FormatError(f"{file} has no codes of {hasher.n_bits} bits: {error}") from error
    if len(codes) != len(sentences):
        raise FormatError(f"{file} has {len(sentences):,} sentences and {len(codes):,} codes")
    return ({}, None) if codes.sure != sure else ({sentence: row for row, sentence in enumerate(sentences)}, codes)
