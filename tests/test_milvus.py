"""MilvusIndex gives what HammingIndex gives: on the engine that runs in this process."""

import json
import socket
import sys
import time

import numpy as np
import pytest

from commands import dmuh, refused
from dmuh.codes import Codes
from dmuh.errors import ConfigError, EngineError, InputError, MissingExtraError
from dmuh.index import HammingIndex, MilvusIndex

pytest.importorskip("milvus_lite", reason="milvus-lite is not installed: pip install 'dmuh[milvus]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # of pymilvus and what it imports


def random_codes(n, n_bits=20, seed=0, ids=None):
    return Codes.from_outputs(np.random.default_rng(seed).standard_normal((n, n_bits)), ids=ids)


@pytest.fixture
def index(tmp_path):
    opened = MilvusIndex(f"milvus:{tmp_path / 'codes.db'}")
    yield opened
    opened.close()


def same_up_to_the_last_distance(found, wanted):
    """Distances are equal; ids too, but for those at the distance of the last one."""
    np.testing.assert_array_equal(found.distances, wanted.distances)
    inner = wanted.distances < wanted.distances[:, -1:]
    np.testing.assert_array_equal(found.ids[inner], wanted.ids[inner])


@pytest.mark.parametrize("n_bits", [12, 20, 64])
def test_finds_the_same_distances(n_bits, index):
    codes, queries = random_codes(2000, n_bits), random_codes(30, n_bits, seed=1)
    assert (len(index), index.n_bits) == (0, None)
    assert index.search(queries, 3).ids.shape == (30, 0)
    assert index.add(codes) is index
    exact = HammingIndex().add(codes)
    assert (len(index), index.n_bits) == (2000, n_bits)
    np.testing.assert_array_equal(index.ids, exact.ids)
    same_up_to_the_last_distance(index.search(queries, 50), exact.search(queries, 50))
    found, wanted = (searched.within(queries, n_bits // 4) for searched in (index, exact))
    for name in ("offsets", "distances", "ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert index.search(queries, 3000).ids.shape == (30, 2000)


def test_what_was_written_is_read_and_what_was_removed_is_gone(index):
    codes = random_codes(300)
    index.add(codes[:100]).add(codes[100:])
    index.remove([5, 7])
    exact = HammingIndex().add(codes).remove([5, 7])
    same_up_to_the_last_distance(index.search(codes, 5), exact.search(codes, 5))
    index.add(codes[[5]])
    assert index.search(codes[[5]], 1).ids.tolist() == [[5]]
    assert len(index) == 299


def test_search_among_ids_masks_and_labels(index):
    codes = random_codes(200)
    labels = [["even" if id_ % 2 == 0 else 'o"dd'] for id_ in range(200)]
    index.add(codes, labels)
    exact = HammingIndex().add(codes)
    for among in ([3, 4, 5, 10], np.arange(200) < 30):
        same_up_to_the_last_distance(index.search(codes, 4, among=among), exact.search(codes, 4, among=among))
    odd = exact.search(codes, 10, among=np.arange(1, 200, 2))
    same_up_to_the_last_distance(index.search(codes, 10, label='o"dd'), odd)
    assert index.search(codes, 10, among=[]).ids.shape == (200, 0)


def test_another_process_finds_what_was_added(tmp_path):
    first = MilvusIndex(f"milvus:{tmp_path / 'codes.db'}").add(random_codes(50))
    first.close()
    again = MilvusIndex(f"milvus:{tmp_path / 'codes.db'}")
    assert (len(again), again.n_bits) == (50, 20)
    with pytest.raises(InputError, match="holds 20-bit codes, got 24-bit ones"):
        again.add(random_codes(3, 24))
    again.close()


def test_mistakes_leave_nothing_behind(index):
    index.add(random_codes(10))
    with pytest.raises(InputError, match=r"id 9 is in the index already \(1 such ids\)"):
        index.add(random_codes(2, ids=[9, 10]))
    with pytest.raises(InputError, match="id 11 is not in the index"):
        index.remove([1, 11])
    with pytest.raises(InputError, match="holds 20-bit codes, got 12-bit ones"):
        index.search(random_codes(1, 12), 1)
    with pytest.raises(InputError, match="labels must be as many"):
        index.add(random_codes(1, ids=[20]), [])
    with pytest.raises(InputError, match="k must be at least 1"):
        index.search(random_codes(1), 0)
    with pytest.raises(InputError, match="a mask must have one entry"):
        index.search(random_codes(1), 1, among=np.ones(3, bool))
    assert len(index) == 10


def test_wrong_addresses_and_kinds(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"milvus:FILE.db or milvus:http://HOST:PORT"):
        MilvusIndex("milvus:codes")
    with pytest.raises(ConfigError, match="BIN_IVF_FLAT needs a server"):
        MilvusIndex("milvus:codes.db", kind="BIN_IVF_FLAT")
    with pytest.raises(ConfigError, match="must be BIN_FLAT or BIN_IVF_FLAT"):
        MilvusIndex("milvus:codes.db", kind="HNSW")
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dmuh\[milvus\]'"):
        MilvusIndex(f"milvus:{tmp_path / 'codes.db'}")


def test_a_server_that_is_down_is_one_sentence_in_bounded_time():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"milvus:http://127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"failed \(timeout 2 s\)"):
        MilvusIndex(address, timeout=2)
    assert time.monotonic() - began < 30


def test_a_server_that_never_answers_is_one_sentence_in_bounded_time():
    with socket.socket() as mute:  # it listens, and accepts nobody
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        began = time.monotonic()
        with pytest.raises(EngineError, match=r"failed \(timeout 2 s\)"):
            MilvusIndex(f"milvus:http://127.0.0.1:{mute.getsockname()[1]}", timeout=2)
        assert time.monotonic() - began < 30


def test_commands(digit_run, photos, tmp_path):
    folder, address = tmp_path / "photos.index", f"milvus:{tmp_path / 'codes.db'}"
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", folder)
    for _ in range(2):  # the second time nothing is missing
        assert "20 images indexed" in dmuh("index", folder, "--index", address).stdout
    query = photos / "ones" / "03.png"
    alone, by_milvus = (
        json.loads(dmuh("search", folder, query, "-k", 20, "--json", *engine).stdout)[0]["matches"]
        for engine in ([], ["--index", address])
    )
    assert [match["distance"] for match in by_milvus] == [match["distance"] for match in alone]
    assert {match["path"] for match in by_milvus} == {match["path"] for match in alone}
    assert "milvus:FILE.db" in refused("search", folder, query, "--index", "codes")
