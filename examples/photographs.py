"""Write a folder of photographs to try dmuh on: parts of ten photographs, one folder each.

python examples/photographs.py FOLDER [PARTS]

The photographs come with scikit-image and scikit-learn, and may be shown: "temple" (danielbuechele) and "flower"
(vultilion) are CC BY 2.0, the others CC0 or in the public domain. A part is cut out at random, turned a little,
mirrored or not, darkened or lightened, so that no two are alike. Needs `pip install scikit-image scikit-learn`.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

SIDE, MARGIN = 256, 20  # pixels of a part before its edges go, which turning leaves black


def photographs() -> dict[str, NDArray[np.uint8]]:
    """Return the photographs by name: uint8 (height, width, 3), or (height, width) if they are grey."""
    from skimage import data
    from sklearn.datasets import load_sample_image

    return {
        "astronaut": data.astronaut(),
        "bricks": data.brick(),
        "camera": data.camera(),
        "cat": data.chelsea(),
        "coffee": data.coffee(),
        "eye": data.retina(),
        "flower": load_sample_image("flower.jpg"),
        "galaxies": data.hubble_deep_field(),
        "rocket": data.rocket(),
        "temple": load_sample_image("china.jpg"),
    }


def part_of(whole: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Return a random part of a photograph."""
    side = int(min(whole.size) * rng.uniform(0.35, 0.9))
    left, top = (int(rng.integers(0, length - side + 1)) for length in whole.size)
    part = whole.crop((left, top, left + side, top + side)).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    part = part.rotate(float(rng.uniform(-8, 8)), Image.Resampling.BICUBIC)
    part = part.crop((MARGIN, MARGIN, SIDE - MARGIN, SIDE - MARGIN))
    if rng.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return ImageEnhance.Brightness(part).enhance(float(rng.uniform(0.7, 1.3)))


def write_parts(folder: Path, parts: int = 40, seed: int = 0) -> None:
    """Write parts of each photograph to a folder of its name."""
    rng = np.random.default_rng(seed)
    for name, pixels in photographs().items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        whole = Image.fromarray(pixels).convert("RGB")
        for number in range(parts):
            part_of(whole, rng).save(folder / name / f"{name}-{number:02}.jpg", quality=88)


if __name__ == "__main__":
    write_parts(Path(sys.argv[1]), *map(int, sys.argv[2:]))
