"""Images of a folder in the catalogue: those that are gone or were changed leave it, others are new."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from dmuh.catalogue.catalogue import Catalogue
from dmuh.catalogue.paths import as_path, as_text, displayed
from dmuh.catalogue.rows import Entry
from dmuh.errors import DataError
from dmuh.images import FolderImage, check_folder, folder_images

log = logging.getLogger(__name__)

FROM_FOLDER = "folder"  # the note `source` of such a catalogue; that of an index has another
_MANY = 10  # images of which some should be found again in the same folder


def remove_outdated(catalogue: Catalogue, root: Path, images: Sequence[FolderImage] | None = None) -> list[FolderImage]:
    """Remove images from the catalogue whose files are gone or were changed; return those that it does not have.

    `images` are what `folder_images` found in the folder, where that was asked already.

    Images that were deleted through the service do not come back, and links that lead out of the folder are left out.
    The folder may have moved; one in which none of the images is found is another folder, or is not mounted.
    """
    check_folder(root)
    if catalogue.about("source") not in (None, FROM_FOLDER):
        raise DataError(f"{catalogue.file} is of an index, not of a folder: give --index, or another --state")
    images = folder_images(root) if images is None else images
    found, listed = {str(image.path): image for image in images}, catalogue.files()
    before, now = catalogue.about("folder"), as_text(Path(os.path.realpath(root)))
    if not found.keys() & listed.keys() and len(listed) >= (_MANY if before in (None, now) else 1):
        raise DataError(
            f"none of the {len(listed):,} images that {catalogue.file} knows is in {root}: mount it, give the folder "
            f"that was served{f' ({displayed(str(as_path(before)))})' if before else ''}, or give another --state"
        )
    catalogue.note(source=FROM_FOLDER, folder=now)
    outdated = [id_ for name, (id_, stamp) in listed.items() if name not in found or found[name].stamp != stamp]
    if outdated:
        log.info("%s images are gone from %s, or were changed", f"{len(outdated):,}", root)
        with catalogue.transaction():
            for id_ in outdated:
                catalogue.remove(id_, forget=False)
    present = catalogue.files().keys() | catalogue.forgotten()
    return [image for name, image in found.items() if name not in present]


def folder_entry(image: FolderImage) -> Entry:
    """Return what is stored of an image of a folder; its label is the first folder below the root."""
    return Entry(str(image.path), folder_labels(image.path), stamp=image.stamp)


def folder_labels(path: Path) -> list[str]:
    """Return the labels of an image by its path below the root: the first folder, if it lies in one."""
    return [displayed(name) for name in path.parts[:-1][:1]]
