"""Codes that are handed over to other engines, and what these then find."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dmuh
from commands import dmuh as command
from commands import refused
from dmuh.collection import Item
from dmuh.handover import open_source
from extras import needs
from graded import graded_codes

WIDTHS = [8, 20, 63, 64, 100, 256]


def codes_of(n: int, n_bits: int, sure: int = 1, seed: int = 0) -> dmuh.Codes:
    rng = np.random.default_rng(seed)
    return graded_codes(rng.normal(size=(n, n_bits)), sure, np.sort(rng.choice(10**12, n, replace=False)))


def collection_of(folder: Path, codes: dmuh.Codes) -> Path:
    items = [
        Item(id_, f"/photos/a\tb\\{n}.jpg", ["cats", 'a "b", \\c'][: n % 3], 0.25, {"shop": f"s{n}"} if n % 2 else {})
        for n, id_ in enumerate(codes.ids.tolist())
    ]
    dmuh.Collection(folder).write_items(codes, items, folder / "model", "d" * 64)
    return folder


def distances(codes: dmuh.Codes, queries: dmuh.Codes) -> dict[tuple[int, int], int]:
    """The Hamming distance of every pair, by query's row and id, as HammingIndex has it."""
    found = dmuh.HammingIndex().add(codes).search(queries, len(codes), ranking="hamming")
    rows = zip(found.ids.tolist(), found.distances.tolist(), strict=True)
    return {(n, id_): away for n, row in enumerate(rows) for id_, away in zip(*row, strict=True)}


@settings(max_examples=30)
@given(n=st.integers(0, 40), n_bits=st.sampled_from(WIDTHS), sure=st.integers(0, 2), seed=st.integers(0, 99))
def test_faiss_reads_what_it_would_have_written_and_finds_the_same(tmp_path_factory, n, n_bits, sure, seed):
    faiss = needs("faiss-cpu", "dev", "faiss")
    folder, codes = tmp_path_factory.mktemp("faiss"), codes_of(n, n_bits, sure, seed)
    written = dmuh.hand_over(collection_of(folder / "photos.index", codes), "faiss")
    assert (written.file, written.n) == (folder / "photos.faiss", n)
    theirs = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(8 * codes.bits.shape[1]))
    theirs.add_with_ids(codes.bits, codes.ids)
    assert written.file.read_bytes() == faiss.serialize_index_binary(theirs).tobytes()
    if n:
        away, ids = faiss.read_index_binary(str(written.file)).search(codes.bits[:3], n)
        found = {(row, id_): a for row in range(len(ids)) for id_, a in zip(ids[row], away[row], strict=True)}
        assert found == distances(codes, codes[:3])


@pytest.mark.parametrize("sure", [0, 1, 2])
def test_parquet_comes_back_as_it_was(tmp_path, sure):
    pa = needs("pyarrow", "scale")
    from pyarrow import parquet

    folder = collection_of(tmp_path / "photos.index", codes := codes_of(50, 20, sure))
    file = dmuh.hand_over(folder, "parquet", tmp_path / "codes.parquet").file
    table = parquet.read_table(file)
    assert table.schema.field("code").type == pa.binary(3)
    assert ("levels" in table.column_names) == bool(sure)
    assert table.schema.metadata[b"dmuh.model_digest"] == b"d" * 64
    assert table.schema.metadata[b"dmuh.n_bits"] == b"20"
    assert table["code"].to_pylist() == [row.tobytes() for row in codes.bits]
    said = json.loads(command("index", file, "--out", tmp_path / "again", "--json").stdout)
    assert (said["images"], said["n_bits"]) == (50, 20)
    one, other = dmuh.Collection(folder), dmuh.Collection(tmp_path / "again")
    assert other.load_codes() == one.load_codes()
    assert other.items() == one.items()
    assert other.model() == one.model()
    assert len(other.load_index()) == 50
    assert "holds an index already" in refused("index", file, "--out", tmp_path / "again")
    command("index", file, "--out", tmp_path / "again", "--replace")


def test_parquet_that_was_altered_is_refused(tmp_path):
    needs("pyarrow", "scale")
    file = dmuh.hand_over(collection_of(tmp_path / "photos.index", codes_of(500, 64)), "parquet").file
    whole = bytearray(file.read_bytes())
    for at in (len(whole) // 3, len(whole) // 2):
        changed = whole.copy()
        changed[at] ^= 0x10
        file.write_bytes(changed)
        assert "cut short, altered" in refused("index", file, "--out", tmp_path / "again")
    file.write_bytes(whole[:-20])
    assert "cut short, altered" in refused("index", file, "--out", tmp_path / "again")


def test_numpy_has_codes_levels_and_ids(tmp_path):
    codes = codes_of(50, 20, 2)
    arrays = np.load(dmuh.hand_over(collection_of(tmp_path / "photos", codes), "numpy").file, allow_pickle=False)
    assert set(arrays) == {"codes", "ids", "n_bits", "levels", "worth"}
    again = dmuh.Codes(
        arrays["codes"], int(arrays["n_bits"]), ids=arrays["ids"], levels=arrays["levels"], worth=arrays["worth"]
    )
    assert again == dmuh.Codes(codes.bits, 20, ids=codes.ids, levels=codes.levels, worth=codes.worth)
    plain = np.load(dmuh.hand_over(collection_of(tmp_path / "plain", codes.plain()), "numpy").file)
    assert set(plain) == {"codes", "ids", "n_bits"}


def test_a_file_of_codes_and_shards_are_handed_over_too(digit_run, photos, tmp_path):
    needs("pyarrow", "scale")
    codes = codes_of(9, 20)
    codes.save(tmp_path / "some.safetensors")
    file = dmuh.hand_over(tmp_path / "some.safetensors", "numpy").file
    assert file == tmp_path / "some.npz"
    assert np.array_equal(np.load(file)["ids"], codes.ids)
    command("encode", digit_run.path, photos, "--shards", "3", "--out", tmp_path / "sharded")
    for to, suffix in (("numpy", "npz"), ("pgvector", "sql"), ("faiss", "faiss"), ("parquet", "parquet")):
        said = command("index", tmp_path / "sharded", "--to", to).stdout
        assert said == f"20 codes of 20 bits: {tmp_path}/sharded.{suffix}\n"
    command("index", tmp_path / "sharded")
    merged = dmuh.Collection(tmp_path / "sharded").load_codes()
    assert np.array_equal(np.load(tmp_path / "sharded.npz")["codes"], merged.bits)
    back = open_source(tmp_path / "sharded.parquet")
    assert (back.n, back.n_bits, back.sure) == (20, 20, 1)
    assert next(back.codes()) == merged


def test_what_is_there_is_replaced_on_demand_alone_and_only_if_it_is_ours(tmp_path):
    folder = collection_of(tmp_path / "photos.index", codes_of(9, 20))
    file = tmp_path / "photos.faiss"
    ask = ["index", folder, "--to", "faiss"]
    command(*ask)
    before = file.read_bytes()
    assert refused(*ask) == f"dmuh: {file} is there already: replace it by --replace, or give another --out"
    assert json.loads(command(*ask, "--replace", "--json").stdout)["replaced"] is True
    assert file.read_bytes() == before
    file.write_text("a letter")
    assert "is not replaced" in refused(*ask, "--replace")
    assert file.read_text() == "a letter"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--to", "fais"], "unknown format 'fais': did you mean faiss?"),
        (["--to", "numpy", "--sure", "1"], "codes are handed over as they are"),
        (["--to", "pgvector", "--out", f"{'x' * 70}.sql"], "the table is called as its file, in at most 63 bytes"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(given, said, tmp_path):
    folder = collection_of(tmp_path / "photos.index", codes_of(9, 20))
    assert said in refused("index", folder, *given)
    assert "holds no codes" in refused("index", tmp_path, "--to", "numpy")
    assert [file.name for file in tmp_path.iterdir()] == ["photos.index"]


def test_a_file_whose_writing_fails_leaves_nothing(tmp_path, monkeypatch):
    folder = collection_of(tmp_path / "photos.index", codes_of(9, 20))

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dmuh.handover.pgvector._foot", broken)
    with pytest.raises(OSError, match="No space"):
        dmuh.hand_over(folder, "pgvector")
    assert [file.name for file in tmp_path.iterdir()] == ["photos.index"]


@pytest.mark.parametrize("to", ["pgvector", "parquet"])
def test_what_is_known_of_images_is_in_memory_for_some_of_them_at_a_time(to, tmp_path, monkeypatch):
    if to == "parquet":
        needs("pyarrow", "scale")
    monkeypatch.setattr("dmuh.handover.sources._TOGETHER", 200)
    peaks = []
    for n in (1_000, 8_000):
        dmuh.Codes(np.zeros((n, 8), np.uint8), 64).save(tmp_path / f"{n}.safetensors")
        tracemalloc.start()
        dmuh.hand_over(tmp_path / f"{n}.safetensors", to)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 7_000 * 100  # bytes; an item alone takes several hundred
