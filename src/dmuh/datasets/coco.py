"""coco: MS-COCO 2014 with the 80 categories of its instance annotations, several per image.

The folder holds train2014, val2014 and annotations/instances_train2014.json and instances_val2014.json. The annotations
number their 80 categories from 1 to 90. Of 123,287 images 122,218 have a category; the others take no part in a split.
Five or more sentences about each image stand in annotations/captions_train2014.json and captions_val2014.json.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dmuh.datasets.base import Dataset, Texts, existing, having_texts, multi_hot, texts_of
from dmuh.errors import DataError
from dmuh.images import OnBadImage

HOW = "download train2014, val2014 and the 2014 train/val annotations from cocodataset.org"


def load_coco(root: Path, on_bad_image: OnBadImage = "fail", *, captions: bool = False) -> Dataset:
    """Read both parts; an image's labels are the categories of the objects marked in it.

    With `captions` its texts are the sentences about it, and images without one are left out.
    """
    paths: list[Path] = []
    names: list[list[str]] = []
    said: list[tuple[str, ...]] = []
    categories: dict[int, str] = {}
    for part in ("train2014", "val2014"):
        content = _annotations(root, f"instances_{part}")
        try:
            known = {entry["id"]: entry["name"] for entry in content["categories"]}
            labels_of: dict[int, set[str]] = {entry["id"]: set() for entry in content["images"]}
            for entry in content["annotations"]:
                labels_of[entry["image_id"]].add(known[entry["category_id"]])
            paths += [root / part / entry["file_name"] for entry in content["images"]]
        except (KeyError, TypeError) as error:
            raise DataError(f"the annotations of {part} are not MS-COCO's instances: {error} is missing") from error
        if captions:
            said += _captions(root, part, labels_of)
        names += [sorted(labels) for labels in labels_of.values()]
        if categories and known != categories:
            raise DataError("the two annotation files name different categories: are both of the 2014 release?")
        categories = known
    there, notes = existing(paths, root, on_bad_image, HOW)
    texts: Texts | None = None
    if captions:
        there = having_texts(there, said, root, notes)
        texts = tuple(said[n] for n in there)
    paths, names = [paths[n] for n in there], [names[n] for n in there]
    unlabelled = sum(not image_names for image_names in names)
    notes.append(f"{len(paths) - unlabelled:,} of {len(paths):,} images have a label")
    classes = tuple(categories[number] for number in sorted(categories))
    metadata = {} if texts is None else {"captions": ["\n".join(own) for own in texts]}
    return Dataset("coco", paths, multi_hot(names, classes), classes, metadata, tuple(notes), texts=texts)


def _captions(root: Path, part: str, images: Iterable[int]) -> list[tuple[str, ...]]:
    """Return the sentences about each of these images."""
    content = _annotations(root, f"captions_{part}")
    said: dict[int, list[str]] = {image: [] for image in images}
    try:
        for entry in content["annotations"]:
            said[entry["image_id"]].append(entry["caption"])
        return [texts_of(sentences) for sentences in said.values()]
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the captions of {part} are not MS-COCO's captions: {error} is missing") from error


def _annotations(root: Path, name: str) -> Any:
    for file in (root / "annotations" / f"{name}.json", root / f"{name}.json"):
        if file.is_file():
            try:
                return json.loads(file.read_bytes())
            except ValueError as error:
                raise DataError(f"{file} is not a whole JSON file: {error}") from error
    raise DataError(f"{root} lacks annotations/{name}.json: {HOW}")
