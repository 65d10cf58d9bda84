"""From image files to pixels: the one path that training and encoding share.

An image is a path, a Pillow image, the bytes of a file or a uint8 array (H, W), (H, W, 3) or (H, W, 4). It is turned
upright, stretched to a square and cropped, in one pass over its pixels. Nothing here knows about networks: pixels stay
uint8, the network normalises them itself.
"""

from dmuh.images.augment import AUGMENTS, Augment, Preprocess
from dmuh.images.folder import (
    FolderImage,
    ImageFolder,
    check_folder,
    find_images,
    folder_images,
    ignored_note,
    inside_of,
    look_through,
)
from dmuh.images.formats import FORMATS, SUFFIXES, open_image
from dmuh.images.pixels import (
    GREY_SIDE,
    ImageLike,
    Images,
    Pixels,
    name_of,
    read_pixels,
    small_greys,
    upright,
)
from dmuh.images.reader import Batch, ImageReader
from dmuh.images.reading import BadImages, OnBadImage, Reading

__all__ = [
    "AUGMENTS",
    "FORMATS",
    "GREY_SIDE",
    "SUFFIXES",
    "Augment",
    "BadImages",
    "Batch",
    "FolderImage",
    "ImageFolder",
    "ImageLike",
    "ImageReader",
    "Images",
    "OnBadImage",
    "Pixels",
    "Preprocess",
    "Reading",
    "check_folder",
    "find_images",
    "folder_images",
    "ignored_note",
    "inside_of",
    "look_through",
    "name_of",
    "open_image",
    "read_pixels",
    "small_greys",
    "upright",
]
