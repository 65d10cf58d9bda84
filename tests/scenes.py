"""Made photographs, and how they look without a network."""

import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from dmuh.duplicates import Looks
from dmuh.features import FolderFeatures
from dmuh.images import Preprocess, find_images, read_pixels, small_greys


def scene(seed: int, width: int = 160, height: int = 120) -> Image.Image:
    """Return a picture with detail at several scales."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for side, strength in ((5, 60), (12, 40), (40, 15)):
        layer = rng.normal(128, strength, (side, side, 3)).clip(0, 255).astype(np.uint8)
        pixels += np.asarray(Image.fromarray(layer).resize((width, height), Image.Resampling.BICUBIC), float) - 128
    return Image.fromarray((pixels + 128).clip(0, 255).astype(np.uint8))


def grey(image: Image.Image) -> np.ndarray:
    return small_greys(read_pixels(image, Preprocess(224, 224))[None])[0]


def looks_of(images: list[Image.Image]) -> Looks:
    """Return how images look; their features are the same whether they are turned or mirrored."""
    greys = np.stack([grey(image) for image in images])
    ordered = np.sort(greys.reshape(len(images), -1).astype(np.float32), axis=1)
    ordered -= ordered.mean(axis=1, keepdims=True)
    return Looks(ordered / np.linalg.norm(ordered, axis=1, keepdims=True), greys)


def features_of(root: Path) -> FolderFeatures:
    """Return features of a folder that need no network: the pixels of the small pictures, without their mean."""
    files = find_images(root)
    greys = np.stack([small_greys(read_pixels(file, Preprocess(224, 224))[None])[0] for file in files])
    flat = greys.reshape(len(files), -1).astype(np.float32)
    about = [file.stat() for file in files]
    return FolderFeatures(
        root, [file.relative_to(root) for file in files], flat - flat.mean(axis=1, keepdims=True), greys,
        np.array([each.st_mtime_ns for each in about]), np.array([each.st_size for each in about]),
    )  # fmt: skip


def write_album(root: Path) -> Path:
    """Write a folder with four photographs, and copies of the first of many kinds; return it."""
    (root / "more").mkdir(parents=True)
    for seed in range(4):
        scene(seed).save(root / f"{seed}.png")
    shutil.copy(root / "0.png", root / "more" / "copy.png")
    scene(0).save(root / "more" / "pixels.bmp")
    scene(0).resize((80, 60)).save(root / "more" / "half.jpg", quality=85)
    scene(0).crop((10, 8, 152, 115)).save(root / "more" / "crop.jpg", quality=90)
    return root
