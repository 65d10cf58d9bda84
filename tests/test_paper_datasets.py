"""NUS-WIDE, MS-COCO and Clothing1M, each on a small tree in the layout of its release that the test writes."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from dmuh import configure, load_dataset, train
from dmuh.config import DataSettings
from dmuh.datasets import nuswide
from dmuh.errors import ConfigError, DataError
from dmuh.protocols import PROTOCOLS
from dmuh.trainer.evaluation import evaluate_run


@pytest.fixture(scope="module")
def picture(photos) -> bytes:
    return (photos / "ones" / "00.png").read_bytes()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(name: str, data: Path, **settings):
    return load_dataset(DataSettings(dataset=name, data=str(data), **settings))


# -- NUS-WIDE --------------------------------------------------------------------------------------------------------


@pytest.fixture
def nus(tmp_path, picture) -> Path:
    """Four images, 23 concepts: concept k is in the first images so that the first concepts are the most frequent."""
    names = ["actor\\0001.jpg", "actor\\0002.jpg", "zoo\\0003.jpg", "zoo\\0004.jpg"]
    put(tmp_path / "ImageList" / "Imagelist.txt", "\n".join(names) + "\n")
    for k in range(23):
        flags = [1, int(k < 12), int(k < 4), 0] if k < 21 else [0, 0, 0, int(k == 22)]
        put(tmp_path / "Groundtruth" / "AllLabels" / f"Labels_c{k:02}.txt", "\n".join(map(str, flags)) + "\n")
    for name in names:
        put(tmp_path / "Flickr" / name.replace("\\", "/"), picture)
    return tmp_path


def test_nuswide_keeps_the_21_most_frequent_concepts(nus):
    data = read("nuswide", nus)
    assert data.classes == tuple(f"c{k:02}" for k in range(21))
    assert [Path(data.path(i)).name for i in range(len(data))] == ["0001.jpg", "0002.jpg", "0003.jpg"]
    assert data.labels.sum(axis=1).tolist() == [21, 12, 4]
    assert data.notes == ("1 of 4 images have none of the 21 concepts",)


def test_nuswide_list_file(tmp_path, picture):
    for name in ("a.jpg", "b.jpg"):
        put(tmp_path / "images" / name, picture)
    listing = put(tmp_path / "database.txt", "images/a.jpg 1 0 0\n\nimages/b.jpg 0 1 1\n")
    data = read("nuswide", listing)
    assert data.labels.tolist() == [[1, 0, 0], [0, 1, 1]]
    put(listing, "images/a.jpg 1 0 0\nimages/b.jpg 0 1\n")
    with pytest.raises(DataError, match="line 2: expected a path and 3 columns of 0 and 1"):
        read("nuswide", listing)
    put(listing, "\n")
    with pytest.raises(DataError, match="lists no images"):
        read("nuswide", listing)


@pytest.mark.parametrize(("gone", "sentence"), [
    ("ImageList/Imagelist.txt", r"lacks ImageList/Imagelist\.txt of NUS-WIDE: ask"),
    ("Flickr/actor/0002.jpg", r"names 1 images that do not exist, the first is .*0002\.jpg; ask"),
])  # fmt: skip
def test_nuswide_says_what_is_missing(nus, gone, sentence):
    (nus / gone).unlink()
    with pytest.raises(DataError, match=sentence):
        read("nuswide", nus)


def test_nuswide_skips_missing_images_and_refuses_short_truth(nus):
    (nus / "Flickr/zoo/0004.jpg").unlink()  # has no concept, so it does not matter
    (nus / "Flickr/actor/0001.jpg").unlink()
    assert len(read("nuswide", nus, on_bad_image="skip")) == 2
    put(nus / "Groundtruth/AllLabels/Labels_c05.txt", "1\n0\n")
    with pytest.raises(DataError, match=r"Labels_c05\.txt does not hold a 0 or 1 for each of the 4 images"):
        read("nuswide", nus)


# -- MS-COCO ---------------------------------------------------------------------------------------------------------


def annotations(images: dict[int, str], marked: list[tuple[int, int]]) -> str:
    categories = [{"id": 1, "name": "person"}, {"id": 90, "name": "toothbrush"}, {"id": 17, "name": "cat"}]
    return json.dumps(
        {
            "images": [{"id": number, "file_name": name} for number, name in images.items()],
            "annotations": [{"image_id": image, "category_id": category} for image, category in marked],
            "categories": categories,
        }
    )


@pytest.fixture
def coco(tmp_path, picture) -> Path:
    parts = {"train2014": {9: "t9.jpg", 3: "t3.jpg"}, "val2014": {5: "v5.jpg", 7: "v7.jpg"}}
    marked = {"train2014": [(3, 1), (9, 90), (3, 1), (3, 17)], "val2014": [(7, 17)]}
    for part, images in parts.items():
        put(tmp_path / "annotations" / f"instances_{part}.json", annotations(images, marked[part]))
        for name in images.values():
            put(tmp_path / part / name, picture)
    return tmp_path


def test_coco_joins_both_parts(coco):
    data = read("coco", coco)
    assert data.classes == ("person", "cat", "toothbrush")  # by the numbers of the annotations
    assert [Path(data.path(i)).name for i in range(4)] == ["t9.jpg", "t3.jpg", "v5.jpg", "v7.jpg"]
    assert data.labels.tolist() == [[0, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert data.notes == ("3 of 4 images have a label",)


def test_coco_says_what_is_missing(coco):
    (coco / "val2014" / "v5.jpg").unlink()
    with pytest.raises(DataError, match=r"names 1 images that do not exist, the first is .*v5\.jpg; download"):
        read("coco", coco)
    assert len(read("coco", coco, on_bad_image="skip")) == 3
    file = coco / "annotations" / "instances_train2014.json"
    whole = file.read_text()
    for content, sentence in (
        (whole[:50], "not a whole JSON file"),
        ("{}", "'categories' is missing"),
        (whole.replace('"image_id": 9', '"image_id": 4'), "4 is missing"),
        (whole.replace('"name": "cat"', '"name": "dog"'), "different categories"),
    ):
        put(file, content)
        with pytest.raises(DataError, match=sentence):
            read("coco", coco, on_bad_image="skip")
    file.unlink()
    with pytest.raises(DataError, match=r"lacks annotations/instances_train2014\.json: download"):
        read("coco", coco)


def test_coco_has_captions(coco):
    assert read("coco", coco).texts is None
    with pytest.raises(DataError, match=r"lacks annotations/captions_train2014\.json: download"):
        read("coco", coco, texts="captions")
    said = {"train2014": [(3, "A cat."), (9, "A brush."), (3, "a man and a cat\n")], "val2014": [(7, "Two cats.")]}
    for part, captions in said.items():
        content = {"annotations": [{"image_id": image, "caption": text} for image, text in captions]}
        put(coco / "annotations" / f"captions_{part}.json", json.dumps(content))
    data = read("coco", coco, texts="captions")
    assert [Path(data.path(i)).name for i in range(3)] == ["t9.jpg", "t3.jpg", "v7.jpg"]
    assert data.texts == (("A brush.",), ("A cat.", "a man and a cat"), ("Two cats.",))
    assert data.labels.tolist() == [[0, 0, 1], [1, 1, 0], [0, 1, 0]]
    assert data.notes == ("1 images have no text and are left out", "3 of 3 images have a label")
    with pytest.raises(ConfigError, match="texts must be captions, got 'caption'"):
        read("coco", coco, texts="caption")
    for broken in ("{}", '{"annotations": [{"image_id": 6, "caption": ""}]}', '{"annotations": [7]}'):
        put(coco / "annotations" / "captions_val2014.json", broken)
        with pytest.raises(DataError, match="the captions of val2014 are not MS-COCO's"):
            read("coco", coco, texts="captions")


# -- Clothing1M ------------------------------------------------------------------------------------------------------


@pytest.fixture
def clothing(tmp_path, picture) -> Path:
    put(tmp_path / "category_names_eng.txt", "T-Shirt\nShirt\nKnitwear\n")
    put(tmp_path / "noisy_label_kv.txt", "images/0/a 1.jpg 2\nimages/0/b.jpg 0\n")
    put(tmp_path / "clean_label_kv.txt", "images/0/b.jpg 1\n")
    for name in ("a 1.jpg", "b.jpg"):
        put(tmp_path / "images" / "0" / name, picture)
    return tmp_path


def test_clothing1m_keeps_noisy_and_clean_labels_apart(clothing):
    noisy, clean = read("clothing1m", clothing), read("clothing1m", clothing, clothing_labels="clean")
    assert noisy.labels.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert Path(noisy.path(0)).name == "a 1.jpg"
    assert clean.labels.tolist() == [[0, 1, 0]]
    assert noisy.notes == ("labels are the noisy ones",)
    assert noisy.classes == ("T-Shirt", "Shirt", "Knitwear")


def test_clothing1m_says_what_is_wrong(clothing):
    put(clothing / "clean_label_kv.txt", "images/0/b.jpg 7\n")
    with pytest.raises(DataError, match="line 1: expected a path and a class number below 3"):
        read("clothing1m", clothing, clothing_labels="clean")
    (clothing / "images/0/b.jpg").unlink()
    with pytest.raises(DataError, match=r"names 1 images that do not exist, the first is .*b\.jpg; ask"):
        read("clothing1m", clothing)
    assert len(read("clothing1m", clothing, on_bad_image="skip")) == 1
    (clothing / "noisy_label_kv.txt").unlink()
    with pytest.raises(DataError, match=r"lacks noisy_label_kv\.txt of Clothing1M: ask"):
        read("clothing1m", clothing)


# -- protocols -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n", "sizes", "topk"), [
    ("nuswide", 195_834, [2_100, 10_500, 183_234], 5_000),
    ("coco", 122_218, [5_000, 10_000, 107_218], None),
    ("clothing1m", 60_000, [7_000, 14_000, 39_000], None),
])  # fmt: skip
def test_the_papers_protocols(name, n, sizes, topk):
    n_classes = {"nuswide": 21, "coco": 80, "clothing1m": 14}[name]
    rng = np.random.default_rng(0)
    labels = np.eye(n_classes, dtype=np.uint8)[rng.integers(0, n_classes, n)]
    if name != "clothing1m":
        labels |= rng.random(labels.shape) < 0.05
    split = PROTOCOLS[name].split(labels, 0)
    assert [len(part) for part in (split.query, split.train, split.database)] == sizes
    assert PROTOCOLS[name].topk == topk
    assert not set(split.query) & set(split.database)


def test_clothing1m_is_drawn_per_class_alike():
    """However many images a class has: 500 queries and 1,000 training images of each of the 14."""
    sizes = 1_600 + 300 * np.arange(14)
    labels = np.eye(14, dtype=np.uint8)[np.random.default_rng(0).permutation(np.repeat(np.arange(14), sizes))]
    split = PROTOCOLS["clothing1m"].split(labels, 0)
    assert labels[split.query].sum(axis=0, dtype=int).tolist() == [500] * 14
    assert labels[split.train].sum(axis=0, dtype=int).tolist() == [1_000] * 14
    assert labels[split.database].sum(axis=0, dtype=int).tolist() == (sizes - 1_500).tolist()


def test_the_protocols_cut_off_is_used(digits, tmp_path):
    settings = {"protocol": "nuswide", "query": 5, "train": 16, "epochs": 1, "image_size": 16, "bits": 8}
    run = train(configure(settings), tmp_path / "run", dataset=digits)
    assert evaluate_run(run, digits).metrics.topk == 5_000
    assert run.evaluation()["topk"] == 5_000
    assert evaluate_run(run, digits, topk=3).metrics.topk == 3
    assert nuswide.N_CONCEPTS == 21


def test_counts_in_all_are_checked():
    labels = np.eye(2, dtype=np.uint8)[np.arange(100) % 2]
    coco = PROTOCOLS["coco"]
    with pytest.raises(DataError, match="100 images are left, but query=5000 asks for more"):
        coco.split(labels, 0)
    split = dataclasses.replace(coco, query=0.1, train=30).split(labels, 0)
    assert [len(part) for part in (split.query, split.train, split.database)] == [10, 30, 60]
    with pytest.raises(DataError, match=r"whole number of images or a fraction below 1, got 2\.5"):
        dataclasses.replace(coco, query=2.5, train=30).split(labels, 0)
