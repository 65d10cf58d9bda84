"""clothing1m: Clothing1M's photographs of clothes in 14 classes, with noisy or with clean labels.

The folder holds category_names_eng.txt, noisy_label_kv.txt and clean_label_kv.txt (a path and a class number in each
line) and the images at those paths. The two kinds of labels are kept apart: about a million images have a noisy label,
some 72,000 a clean one; `clothing_labels` says which are read.
"""

from pathlib import Path
from typing import Literal

from dmuh.datasets.base import Dataset, existing, one_hot
from dmuh.errors import DataError
from dmuh.images import OnBadImage

HOW = "ask the Clothing1M authors for access, see github.com/Cysu/noisy_label"


def load_clothing1m(
    root: Path, labels: Literal["noisy", "clean"] = "noisy", on_bad_image: OnBadImage = "fail"
) -> Dataset:
    """Read the images that have a label of that kind."""
    listing, categories = root / f"{labels}_label_kv.txt", root / "category_names_eng.txt"
    for wanted in (listing, categories):
        if not wanted.is_file():
            raise DataError(f"{root} lacks {wanted.name} of Clothing1M: {HOW}")
    classes = tuple(line.strip() for line in categories.read_text(encoding="utf-8").splitlines() if line.strip())
    paths, numbers = [], []
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        name, _, label = line.strip().rpartition(" ")
        if not name or not label.isdigit() or int(label) >= len(classes):
            raise DataError(f"{listing}, line {number}: expected a path and a class number below {len(classes)}")
        paths.append(root / name)
        numbers.append(int(label))
    if not paths:
        raise DataError(f"{listing} lists no images")
    there, notes = existing(paths, listing, on_bad_image, HOW)
    paths, numbers = [paths[n] for n in there], [numbers[n] for n in there]
    return Dataset(
        "clothing1m", paths, one_hot(numbers, len(classes)), classes, notes=(f"labels are the {labels} ones", *notes)
    )
