"""Parquet lists and tar files as people have them: columns of any type, missing values, broken files."""

import io
import tarfile
from datetime import date

import numpy as np
import pytest
from PIL import Image

from dmuh.errors import DataError
from dmuh.shards.sources import ListSource, TarSource
from extras import needs

pa = needs("pyarrow", "scale")
parquet = needs("pyarrow", "scale", "pyarrow.parquet")


def listed(folder, **columns):
    """The rows of a list: names and labels."""
    parquet.write_table(pa.table(columns), folder / "list.parquet")
    (batch,) = ListSource([folder / "list.parquet"]).batches(0, 1)
    assert len(batch.images) == len(batch.names) == len(batch.labels) == len(batch.ids)
    return batch


@pytest.mark.parametrize(("labels", "texts"), [
    (pa.array([3, None, 7]), [["3"], [], ["7"]]),
    (pa.array([[1, 2], None, []], pa.list_(pa.int64())), [["1", "2"], [], []]),
    (pa.array([["a", None], [None], ["b"]]), [["a"], [], ["b"]]),
    (pa.array([[1.5], [2.0], [None]]), [["1.5"], ["2.0"], []]),
    (pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)), [["1", "2"], ["3", "4"], ["5", "6"]]),
    (pa.array([b"cat", b"\xff", None]), [["cat"], ["\ufffd"], []]),
    (pa.array(["cat", None, "dog"]).dictionary_encode(), [["cat"], [], ["dog"]]),
    (pa.array([True, False, None]), [["True"], ["False"], []]),
    (pa.array([date(2020, 1, 2), None, None]), [["2020-01-02"], [], []]),
    (pa.nulls(3), [[], [], []]),
])  # fmt: skip
def test_labels_of_every_type_become_texts(tmp_path, labels, texts):
    batch = listed(tmp_path, path=["a.png", "b.png", "c.png"], labels=labels)
    assert batch.labels == texts
    assert batch.names == [str(tmp_path / name) for name in ("a.png", "b.png", "c.png")]


@pytest.mark.parametrize("labels", [pa.array([{"x": 1}, None]), pa.array([[[1]], []]), pa.array([[{"x": 1}], []])])
def test_labels_within_labels_are_refused(tmp_path, labels):
    with pytest.raises(DataError, match=r"list\.parquet, row 0 has a (dict|list) for a label, expected a text"):
        listed(tmp_path, path=["a.png", "b.png"], label=labels)


@pytest.mark.parametrize(("images", "sentence"), [
    (pa.array(["a.png", None]), "row 1 has nothing for its image, expected a path or the content of a file"),
    (pa.array([None, "a.png"]), "row 0 has nothing"),
    (pa.array([b"png", None]), "row 1 has nothing"),
    (pa.nulls(2), "row 0 has nothing"),
    (pa.array(["a.png", ""]), "row 1 has an empty text"),
    (pa.array([1, 2]), "row 0 has int for its image"),
    (pa.array([{"bytes": b"x", "path": "a"}, None]), "row 0 has dict"),
    (pa.array([["a.png"], []]), "row 0 has list"),
])  # fmt: skip
def test_a_row_without_an_image_is_named(tmp_path, images, sentence):
    with pytest.raises(DataError, match=sentence):
        listed(tmp_path, image=images)


def test_contents_and_no_labels(tmp_path):
    batch = listed(tmp_path, image=[b"one", b"two"])
    assert (batch.images, batch.labels) == ([b"one", b"two"], [[], []])
    assert batch.names == [f"{tmp_path / 'list.parquet'}, row {row}" for row in range(2)]


def test_texts_that_are_not_utf8_are_a_sentence(tmp_path):
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe"))
    with pytest.raises(DataError, match=r"list\.parquet is cut short or not a Parquet file: 'utf-8' codec"):
        listed(tmp_path, path=broken)


def test_a_list_with_broken_pages_is_a_sentence(tmp_path):
    listed(tmp_path, path=[f"{n}.png" for n in range(1000)])
    content = bytearray((tmp_path / "list.parquet").read_bytes())
    content[40:400] = bytes(360)
    (tmp_path / "list.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"list\.parquet is cut short or not a Parquet file"):
        list(ListSource([tmp_path / "list.parquet"]).batches(0, 1))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tar_file_with_any_byte_wrong_is_read_or_refused(tmp_path, mode):
    picture = io.BytesIO()
    Image.new("L", (8, 8)).save(picture, "png")
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name in ("a.png", "ä" * 60 + ".png", "b.cls"):
            about = tarfile.TarInfo(name)
            about.size = len(picture.getvalue())
            archive.addfile(about, io.BytesIO(picture.getvalue()))
    rng = np.random.default_rng(0)
    file, refused = tmp_path / "some.tar", 0
    for _ in range(300):
        content = bytearray(whole.getvalue())
        content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
        file.write_bytes(content[: rng.integers(1, len(content) + 1)] if rng.integers(2) else content)
        try:
            list(TarSource([file]).batches(0, 1))
        except DataError:
            refused += 1
    assert refused > 50


def test_names_that_are_not_utf8_can_be_written(tmp_path):
    with tarfile.open(tmp_path / "some.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("caf\udce9.png"))  # as Latin-1 has it
    (batch,) = TarSource([tmp_path / "some.tar"]).batches(0, 1)
    assert batch.names == [f"{tmp_path / 'some.tar'}/caf\ufffd.png"]
