"""Hashes of other programs: files of them become an index that is searched without a model."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import dmuh, refused
from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.errors import InputError
from dmuh.handover import hand_over
from dmuh.hashes import HashModel, hash_name
from dmuh.hashes.values import hash_bytes
from dmuh.index import HammingIndex
from extras import needs

WIDTHS = [64, 128, 144, 256, 1024]


def digits(n: int, n_bits: int, seed: int = 0) -> list[str]:
    return [row.tobytes().hex() for row in np.random.default_rng(seed).integers(0, 256, (n, n_bits // 8), np.uint8)]


def written(file: Path, columns: dict[str, list]) -> Path:
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([columns, *zip(*columns.values(), strict=True)])
    return file


def indexed(file: Path, *options: object) -> Collection:
    out = file.with_suffix(".index")
    dmuh("index", file, "--hash", "phash", "--out", out, *options)
    return Collection(out)


def found(collection: Collection, *options: object) -> list[dict]:
    (answer,) = json.loads(dmuh("search", collection.path, *options, "--json").stdout)
    return answer["matches"]


@given(st.integers(0, 2**64 - 1))
def test_digits_bytes_and_numbers_give_the_same_bytes(number):
    whole = number.to_bytes(8, "big")
    for value in (f"{number:016x}", f" 0x{number:016X}", whole, number):
        assert hash_bytes(value) == whole
    assert hash_bytes(str(number), integers=True) == whole
    assert hash_bytes(number - 2**64 if number >= 2**63 else number) == whole  # as a database with signs keeps it


@pytest.mark.parametrize("value", [None, "", "8f3", "8f 37", "no hash", 1.5, True, 2**64, -(2**63) - 1, "ab", b"abc"])
def test_what_is_no_hash(value):
    with pytest.raises(InputError, match="a hash"):
        hash_bytes(value)


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_every_width_is_searched_as_a_plain_count_finds_it(n_bits, tmp_path):
    texts = digits(60, n_bits)
    collection = indexed(written(tmp_path / "hashes.csv", {"phash": texts}))
    codes = collection.load_codes()
    assert codes.hex() == texts
    assert codes.n_bits == n_bits
    bits = codes.unpack().astype(int)
    expected = np.abs(bits[:, None] - bits[None]).sum(axis=2)
    matches = collection.load_index().search(codes, 60)
    for row in range(60):
        assert np.array_equal(matches.distances[row], expected[row, matches.ids[row]])
        assert np.array_equal(np.sort(matches.ids[row]), np.arange(60))
    near = HammingIndex().add(codes).within(codes, n_bits // 2)
    assert len(near.ids) == int((expected <= n_bits // 2).sum())


def test_what_is_known_of_images_is_kept(tmp_path):
    texts = digits(3, 64)
    file = written(
        tmp_path / "hashes.csv",
        {
            "ID": [7, 9, 8], "filename": ["a/1.jpg", "https://shop/2.jpg", ""], "pHash": texts,
            "label": ["cats;dogs", "", "cats"], "quality": [100, 50, ""],
        },
    )  # fmt: skip
    found = indexed(file).items()
    assert list(found) == [7, 8, 9]
    items = {id_: found[id_] for id_ in (7, 9, 8)}
    assert [item.path for item in items.values()] == [f"{tmp_path}/a/1.jpg", "https://shop/2.jpg", texts[2]]
    assert [item.labels for item in items.values()] == [["cats", "dogs"], [], ["cats"]]
    assert [item.metadata for item in items.values()] == [{"quality": "100"}, {"quality": "50"}, {}]


def test_ids_that_are_no_numbers_are_metadata(tmp_path):
    collection = indexed(written(tmp_path / "hashes.csv", {"id": ["x7", "x9"], "hash": digits(2, 64)}))
    assert [(item.id, item.metadata) for item in collection.items().values()] == [(0, {"id": "x7"}), (1, {"id": "x9"})]


def test_parquet_of_bytes_numbers_and_digits(tmp_path):
    pa = needs("pyarrow", "scale")
    from pyarrow import parquet

    texts = digits(5, 64)
    raw = [bytes.fromhex(text) for text in texts]
    numbers = [int(text, 16) for text in texts]
    for name, column in {
        "digits": pa.array(texts),
        "fixed": pa.array(raw, pa.binary(8)),
        "bytes": pa.array(raw, pa.binary()),
        "unsigned": pa.array(numbers, pa.uint64()),
        "signed": pa.array([number - 2**64 if number >= 2**63 else number for number in numbers], pa.int64()),
    }.items():
        labels = pa.array([["a", "b"], [], None, ["c"], ["a"]])
        vectors = pa.array([[1.0, 2.0]] * 5)  # not kept
        table = pa.table({"id": range(3, 8), "phash": column, "labels": labels, "shop": ["s"] * 5, "vector": vectors})
        parquet.write_table(table, tmp_path / f"{name}.parquet")
        collection = indexed(tmp_path / f"{name}.parquet")
        assert collection.load_codes() == Codes.from_hex(texts, ids=range(3, 8))
        assert [item.labels for item in collection.items().values()] == [["a", "b"], [], [], ["c"], ["a"]]
        assert collection.items([3])[3].metadata == {"shop": "s"}


def test_columns_and_numbers_by_name(tmp_path):
    texts = digits(4, 64)
    file = written(
        tmp_path / "hashes.csv",
        {"fingerprint": [int(text, 16) for text in texts], "where": ["a.jpg"] * 4, "what": ["x|y"] * 4},
    )
    options = ["--hash-column", "fingerprint", "--hash-integers", "--path-column", "where", "--label-column", "what"]
    collection = indexed(file, *options, "--label-separator", "|")
    assert collection.load_codes().hex() == texts
    assert collection.items([0])[0].labels == ["x", "y"]
    assert collection.items([0])[0].path == f"{tmp_path}/a.jpg"


def test_search_by_id_and_by_value(tmp_path):
    texts = digits(200, 256)
    collection = indexed(written(tmp_path / "hashes.csv", {"id": range(10, 210), "hash": texts}))
    codes = collection.load_codes()
    expected = HammingIndex().add(codes).search(codes[:1], 6)
    near = found(collection, "--id", 10, "-k", 5)
    assert [match["id"] for match in near] == expected.ids[0, 1:].tolist()
    assert [match["distance"] for match in near] == expected.distances[0, 1:].tolist()
    by_value = found(collection, "--code", f"0x{texts[0].upper()}", "-k", 6)
    assert [match["distance"] for match in by_value] == expected.distances[0].tolist()
    assert by_value[0]["id"] == 10
    assert all(match["match"] is None for match in near)
    assert found(collection, "--code", texts[0], "--radius", 0) == by_value[:1]
    assert found(collection, "--id", 10, "--radius", 0) == []
    both = json.loads(dmuh("search", collection.path, "--id", 12, "--id", 11, "-k", 1, "--json").stdout)
    assert [answer["query"] for answer in both] == [texts[1], texts[2]]
    assert dmuh("search", collection.path, "--id", 10, "-k", 2).stdout.startswith(texts[0])


def test_images_of_a_trained_index_are_searched_by_id_and_code_too(digit_run, photos, tmp_path):
    dmuh("index", digit_run.path, photos, "--out", tmp_path / "index")
    collection = Collection(tmp_path / "index")
    codes = collection.load_codes()
    expected = [id_ for id_ in collection.load_index().search(codes[3:4], 5).ids[0].tolist() if id_ != 3]
    near = found(collection, "--id", 3, "-k", 4)
    assert [match["id"] for match in near] == expected
    assert all(match["likely"] for match in near)
    (first,) = found(collection, "--code", codes[3].hex()[0], "-k", 1)
    assert first["hamming"] == 0


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"hash": ["8f373714acfcf4d0", "8f37"]}, [], "row 2: a hash must have 32 to 1024 bits, got 16: '8f37'"),
        ({"hash": ["8f373714acfcf4d0", "8f373714"]}, [], "row 2: all hashes must have 64 bits, as the first has"),
        ({"hash": ["8f373714acfcf4d0", ""]}, [], "row 2: a hash must be hexadecimal digits, two per byte, got nothing"),
        ({"hash": ["12345678901", "3"]}, [], "got '12345678901' (for whole numbers give --hash-integers)"),
        ({"hash": ["8f373714acfcf4d0"]}, ["--hash-integers"], "row 1: a hash must be a whole number, got '8f37"),
        ({"id": [1, 1], "hash": ["8f373714acfcf4d0"] * 2}, [], "ids must be unique, but some occur twice"),
        ({"id": [1, -1], "hash": ["8f373714acfcf4d0"] * 2}, [], "row 2: an id must be a whole number from 0 to 2^63"),
        ({"path": ["a.jpg"]}, [], "has no column phash or hash or code or value: say which has the hashes by"),
        ({"hash": ["8f373714acfcf4d0"]}, ["--hash-column", "hsh"], "unknown column 'hsh': did you mean hash?"),
        ({"hash": ["8f373714acfcf4d0"]}, ["--sure", "1"], "is a table: give it and --out, without images and --sure"),
        ({"hash": ["8f373714acfcf4d0"]}, ["--path-format", "{id}"], "hashes are read with --path-column"),
        ({"hash": ["8f373714acfcf4d0"]}, ["--texts", "id"], "hashes are read with --path-column"),
        ({"hash": []}, [], "lists no hashes"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_a_sentence(columns, options, said, tmp_path):
    file = written(tmp_path / "hashes.csv", columns)
    assert said in refused("index", file, "--hash", "phash", "--out", tmp_path / "index", *options)
    assert not (tmp_path / "index").exists()


def test_what_is_asked_wrongly_is_said_in_a_sentence(tmp_path):
    file = written(tmp_path / "hashes.csv", {"hash": digits(3, 64)})
    assert "pdq has, got 64" in refused("index", file, "--hash", "pdq", "--out", tmp_path / "index")
    assert "by --hash NAME" in refused("index", file, "--out", tmp_path / "index")
    assert "name of small letters" in refused("index", file, "--hash", "a b", "--out", tmp_path / "index")
    collection = indexed(file)
    assert "holds an index already" in refused("index", file, "--hash", "phash", "--out", collection.path)
    search = ["search", collection.path]
    assert "give query images, or ids of images by --id, or codes by --code" in refused(*search)
    assert "give query images" in refused(*search, "--id", 1, "--code", "00")
    assert "their phash is computed by another program: give --id" in refused(*search, file)
    assert "there is no image 3 in" in refused(*search, "--id", 1, "--id", 3)
    assert "--code must have 16 hexadecimal digits, for codes of 64 bits, got 2: 00" in refused(*search, "--code", "00")
    assert "--code: a code must be hexadecimal digits" in refused(*search, "--code", "x" * 16)
    assert "which have no model: leave out --model" in refused(*search, "--id", 1, "--model", tmp_path)
    assert "leave out --at-least" in refused(*search, "--id", 1, "--at-least", 0.5)


def test_rows_without_a_hash_are_left_out_on_demand(tmp_path):
    texts = digits(3, 64)
    file = written(tmp_path / "hashes.csv", {"hash": [texts[0], "", texts[2]], "path": ["a", "b", "c"]})
    result = dmuh("index", file, "--hash", "phash", "--out", tmp_path / "index", "--on-bad-image", "skip")
    assert "1 rows of" in result.stderr
    items = Collection(tmp_path / "index").items()
    assert [(item.id, Path(item.path).name) for item in items.values()] == [(0, "a"), (2, "c")]
    assert Collection(tmp_path / "index").load_codes().hex() == [texts[0], texts[2]]


def test_hashes_are_handed_over_and_come_back(tmp_path):
    needs("pyarrow", "scale")
    collection = indexed(written(tmp_path / "hashes.csv", {"hash": digits(9, 256), "label": ["a"] * 9}))
    file = hand_over(collection.path, "parquet").file
    dmuh("index", file, "--out", tmp_path / "again")
    again = Collection(tmp_path / "again")
    assert again.load_codes() == collection.load_codes()
    assert again.items() == collection.items()
    assert hash_name(again.model()[1]) == "phash"
    assert repr(HashModel.of(again)) == "HashModel(phash, 256 bits)"
    with pytest.raises(InputError, match="their phash is computed by another program"):
        HashModel.of(again).encode(tmp_path)
