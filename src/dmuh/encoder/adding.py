"""Images of a folder that are new, into the catalogue."""

from collections.abc import Sequence
from pathlib import Path

from dmuh.catalogue import Catalogue, folder_entry
from dmuh.encoder.calibration import DEFAULT_SURE
from dmuh.encoder.hasher import Hasher
from dmuh.images import FolderImage, Reading

PART = 4096  # images that are encoded and kept together: what an interruption costs at most


def add_images(
    catalogue: Catalogue,
    root: Path,
    images: Sequence[FolderImage],
    hasher: Hasher,
    reading: Reading,
    sure: int | None = None,
) -> None:
    """Encode images of a folder and add them to the catalogue; `reading` says what becomes of unreadable ones.

    An image's label is the first folder below the root. `sure` bits say how sure each bit is; by default as many as in
    the catalogue.
    """
    if sure is None:
        sure = DEFAULT_SURE if catalogue.sure is None else catalogue.sure
    catalogue.settle(hasher.encode([], sure=sure).worth)  # before all images are encoded, of which there may be none
    with reading.under_one_bar("encoding", len(images)) as part_reading:
        for first in range(0, len(images), PART):
            part = images[first : first + PART]
            codes = hasher.encode([root / image.path for image in part], reading=part_reading, sure=sure)
            readable = [part[position] for position in codes.ids.tolist()]
            catalogue.add(map(folder_entry, readable), codes)
