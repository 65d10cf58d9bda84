"""MilvusIndex gives what HammingIndex gives: on the engine of one file, and again on a real server.

The test that starts a server runs this file once more beside it, in a network of its own.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import dmuh, refused
from dmuh.codes import Codes
from dmuh.collection import Collection
from dmuh.errors import ConfigError, EngineError, InputError, MissingExtraError
from dmuh.images import Reading
from dmuh.index import HammingIndex, MilvusIndex
from dmuh.index.milvus_rows import Layout
from dmuh.shards import encode_shard
from dmuh.shards.sources import DatasetSource
from extras import needs
from graded import graded_codes
from milvus_server import ADDRESS, CANNOT, SERVED, in_own_network, why_none
from sharded import begun, noisy_images, projecting_hasher

needs("milvus-lite", "milvus", "milvus_lite")
schema_pb2 = needs("pymilvus", "milvus", "pymilvus.grpc_gen.schema_pb2")
# a process of its own stands behind each of these; the warnings are of pymilvus and what it imports
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

on_a_server = pytest.mark.skipif(not SERVED, reason="needs a server: see test_all_of_this_on_a_server")
KINDS = ["BIN_FLAT", pytest.param("BIN_IVF_FLAT", marks=on_a_server)]


def random_codes(n, n_bits=20, seed=0, ids=None):
    return Codes.from_outputs(np.random.default_rng(seed).standard_normal((n, n_bits)), ids=ids)


@pytest.fixture
def opened(opened_milvus):
    return opened_milvus


@pytest.fixture
def index(opened):
    return opened()


def same_up_to_the_last_distance(found, wanted):
    """Distances are equal; ids too, but for those at the distance of the last one."""
    np.testing.assert_array_equal(found.distances, wanted.distances)
    inner = wanted.distances < wanted.distances[:, -1:]
    np.testing.assert_array_equal(found.ids[inner], wanted.ids[inner])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_bits", [12, 20, 64])
def test_finds_the_same_distances(n_bits, kind, opened):
    index = opened(kind=kind, lists=16, probes=16)
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


def test_many_queries_are_asked_in_parts(index, monkeypatch):
    codes = random_codes(300)
    index.add(codes)
    monkeypatch.setattr("dmuh.index.milvus._RESULTS", 70)
    same_up_to_the_last_distance(index.search(codes, 10), HammingIndex().add(codes).search(codes, 10))


def equal(found, wanted):
    np.testing.assert_array_equal(found.distances, wanted.distances)
    np.testing.assert_array_equal(found.ids, wanted.ids)
    assert found.distances.dtype == wanted.distances.dtype


@pytest.mark.parametrize("sure", [0, 1, 2])
@pytest.mark.parametrize("n_bits", [12, 64, 65])
def test_soft_search_of_a_whole_shortlist_is_exact(n_bits, sure, opened):
    """The shortlist holds all codes here, so even ties are in the order that HammingIndex gives them."""
    outputs = np.random.default_rng(n_bits).standard_normal((600, n_bits)).repeat(2, axis=0)
    codes = graded_codes(outputs, sure)
    index, exact = opened().add(codes), HammingIndex().add(codes.stored() if sure else codes.plain())
    queries = codes[::100]
    assert index.search(queries, 5).distances.dtype == np.float32
    for options in ({}, {"ranking": "soft"}, {"among": np.arange(0, 1200, 3)}, {"among": [7, 8, 1100]}):
        equal(index.search(queries, 50, **options), exact.search(queries, 50, **options))
    equal(opened().search(queries, 50), exact.search(queries, 50))  # which reads what the levels are worth
    same_up_to_the_last_distance(
        index.search(queries, 9, ranking="hamming"), exact.search(queries, 9, ranking="hamming")
    )
    assert index.search(queries, 50, among=[]).ids.shape == (12, 0)
    with pytest.raises(InputError, match="within a radius by ranking hamming alone, got soft"):
        index.within(queries, 3, ranking="soft")


@pytest.mark.parametrize(("shortlist", "weighed"), [(1, 20), (20, 20), (70, 70)])
def test_soft_search_weighs_the_shortlist_alone(opened, monkeypatch, shortlist, weighed):
    monkeypatch.setattr("dmuh.index.milvus._PER_ANSWER", 4)
    codes = graded_codes(np.random.default_rng(0).standard_normal((500, 20)))
    index, exact = opened(shortlist=shortlist).add(codes), HammingIndex().add(codes.stored())
    for row, found in enumerate(index.search(codes[:20], 5)):
        near = index.search(codes[row], weighed, ranking="hamming").ids[0]
        equal(found, exact.search(codes[row], 5, among=near))


def test_codes_and_identical_images_are_read_back(index):
    outputs = np.random.default_rng(0).standard_normal((50, 20)).astype(np.float32)
    outputs[7] = outputs[3]
    codes = graded_codes(outputs, 2, ids=np.arange(50) * 2)
    assert index.identical(codes.contents) == {}
    index.add(codes)
    kept = index.codes([40, 6, 6, 999])
    assert kept.ids.tolist() == [6, 40]
    wanted = codes.stored()[[3, 20]]
    for name in ("bits", "levels", "worth"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(wanted, name))
    assert {key: sorted(ids) for key, ids in index.identical(codes.contents[[3, 5]]).items()} == {
        int(codes.contents[3]): [6, 14],
        int(codes.contents[5]): [10],
    }
    unknown = Codes(codes.bits[:1], 20, None, [1000], codes.levels[:1], codes.worth)
    assert index.add(unknown).identical(np.array([0])) == {}  # no digest is not one that images share


def test_levels_that_do_not_fit_are_refused(index):
    codes = graded_codes(np.random.default_rng(0).standard_normal((10, 20)))
    index.add(codes[:5])
    with pytest.raises(InputError, match=r"holds codes with 1 .* got codes with 0"):
        index.add(codes[5:].plain())
    other = Codes(codes.bits[5:], 20, None, codes.ids[5:], codes.levels[5:], codes.worth / 2)
    with pytest.raises(InputError, match="worth something else"):
        index.add_missing(other)
    assert len(index) == 5


def test_a_collection_of_the_first_layout_opens_without_levels(opened, milvus_address):
    """As earlier versions made it: id, bits and labels, and a description without levels."""
    maker = opened()
    types, schema = maker._library.DataType, maker._client.create_schema(description="dmuh codes of 20 bits of d1e5")
    schema.add_field("id", types.INT64, is_primary=True)
    schema.add_field("code", types.BINARY_VECTOR, dim=24)
    schema.add_field("labels", types.ARRAY, element_type=types.VARCHAR, max_capacity=64, max_length=256)
    maker._client.create_collection(maker._name, schema=schema, consistency_level="Strong")
    codes = graded_codes(np.random.default_rng(0).standard_normal((60, 20)))
    old = opened(of="d1e5")
    assert (len(old), old.n_bits) == (0, 20)
    old.add(codes, [["a"] if row % 2 else ["b"] for row in range(60)])
    exact = HammingIndex().add(codes.stored())
    same_up_to_the_last_distance(old.search(codes, 9), exact.search(codes, 9, ranking="hamming"))
    assert old.search(codes[:1], 30, label="a").ids.shape == (1, 30)
    assert old.identical(codes.contents) == {}
    with pytest.raises(InputError, match="of an earlier version has no levels of sureness: rank by hamming"):
        old.search(codes, 9, ranking="soft")
    with pytest.raises(InputError, match="holds no codes that can be read"):
        old.codes([1])


@given(st.integers(1, 70), st.sampled_from([0, 1, 2]), st.sampled_from(["", "d1e5"]), st.integers(0, 2**32 - 1))
def test_layouts_and_rows_come_back(n_bits, sure, of, seed):
    codes = graded_codes(np.random.default_rng(seed).standard_normal((5, n_bits)), sure, ids=[9, 3, 2**40, -4, 0])
    layout = Layout(n_bits, codes.worth, of)
    again = Layout.described(layout.description(), ["id", "code", "labels", "graded", "contents"])
    assert (again.n_bits, again.of, again.sure, again.weighs) == (n_bits, of, sure, True)
    named = [["a"], ["no"], ["b", "c"], ["no"], []]
    columns = {column.field_name: column for column in again.columns(codes, named, np.array([4, 0, 2]), schema_pb2)}
    ids, graded = columns["id"].scalars.long_data.data, columns["graded"].scalars.string_data.data
    kept = codes[[4, 0, 2]]
    assert again.codes(ids, graded) == Codes(kept.bits, n_bits, None, kept.ids, kept.levels, kept.worth)
    assert list(columns["contents"].scalars.long_data.data) == kept.contents.tolist()
    assert columns["code"].vectors.binary_vector == kept.bits.tobytes()
    labels = [list(row.string_data.data) for row in columns["labels"].scalars.array_data.data]
    assert labels == [[], ["a"], ["b", "c"]]


@pytest.mark.parametrize("text", ["", "dmuh codes of bits", "dmuh codes of 8 bits with levels worth AAA",
                                  "dmuh codes of 8 bits with levels worth AAAAAAA="])  # fmt: skip
def test_descriptions_of_others_are_no_layouts(text):
    assert Layout.described(text, ["id"]) is None


@on_a_server
def test_an_index_of_cells_compares_those_it_is_asked_to(milvus_server):
    codes, queries = random_codes(5000, 64), random_codes(20, 64, seed=1)
    wanted = HammingIndex().add(codes).search(queries, 50).distances
    with_all, with_few = (
        MilvusIndex(ADDRESS, collection="cells", kind="BIN_IVF_FLAT", lists=64, probes=probes) for probes in (64, 1)
    )
    with_all.add(codes)
    assert with_all.settle()  # what is not settled yet is compared as a whole
    assert (with_few.search(queries, 50).distances >= wanted[:, : with_few.search(queries, 50).ids.shape[1]]).all()
    assert not np.array_equal(with_few.search(queries, 50).distances, wanted)
    np.testing.assert_array_equal(with_all.search(queries, 50).distances, wanted)


def test_opened_again_it_holds_what_was_added(opened):
    opened().add(random_codes(50)).close()
    again = opened()
    assert (len(again), again.n_bits) == (50, 20)
    np.testing.assert_array_equal(again.known([3, 60, 49]), [3, 49])
    with pytest.raises(InputError, match="holds 20-bit codes, got 24-bit ones"):
        again.add(random_codes(3, 24))
    assert len(again) == 50


def test_a_collection_that_was_begun_is_made_ready(opened, monkeypatch):
    def stopped(self) -> None:
        raise OSError("the cable was pulled")

    codes = random_codes(50)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusIndex, "_make_ready", stopped)
        with pytest.raises(EngineError, match="the cable was pulled"):
            opened().add(codes)
    assert opened().add(codes).search(codes, 1).ids.ravel().tolist() == list(range(50))


def test_a_collection_of_another_maker_is_refused(opened, index):
    index._client.create_collection(index._name, dimension=8)
    with pytest.raises(EngineError, match="was not made by dmuh: name another"):
        opened()


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
    with pytest.raises(ConfigError, match="shortlist must be at least 1, got 0"):
        MilvusIndex("milvus:codes.db", shortlist=0)
    with pytest.raises(ConfigError, match="must be BIN_FLAT or BIN_IVF_FLAT"):
        MilvusIndex("milvus:codes.db", kind="HNSW")
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dmuh\[milvus\]'"):
        MilvusIndex(f"milvus:{tmp_path / 'codes.db'}")


@pytest.mark.parametrize("listening", [False, True], ids=["down", "mute"])
def test_a_server_that_does_not_answer_is_one_sentence_in_bounded_time(listening):
    with socket.socket() as mute:  # nobody accepts, even where it listens
        mute.bind(("127.0.0.1", 0))
        if listening:
            mute.listen()
        began = time.monotonic()
        with pytest.raises(EngineError, match=r"failed \(timeout 2 s\)") as raised:
            MilvusIndex(f"milvus:http://127.0.0.1:{mute.getsockname()[1]}", timeout=2)
        assert "\n" not in str(raised.value)
        assert time.monotonic() - began < 30


@on_a_server
def test_a_server_that_stops_answering_is_one_sentence_in_bounded_time(milvus_server, opened):
    codes = random_codes(200)
    index = opened().add(codes[:100])
    index._timeout = 1  # no sooner: what was just started takes its time
    milvus_server.signal(signal.SIGSTOP)
    try:
        for work in (lambda: index.search(codes, 1), lambda: index._insert(codes, None, np.arange(100, 200))):
            began = time.monotonic()
            with pytest.raises(EngineError, match=r"failed \(timeout \d+ s\)") as raised:
                work()
            assert "\n" not in str(raised.value)
            assert time.monotonic() - began < 20
    finally:
        milvus_server.signal(signal.SIGCONT)
    again = opened()
    rest = codes[~np.isin(codes.ids, again.known(codes.ids))]
    assert len(rest) in (0, 100)  # of what was sent together all is there, or nothing
    again.add(rest)
    np.testing.assert_array_equal(again.search(codes, 1).distances, 0)
    assert again.ids.tolist() == list(range(200))


@on_a_server
def test_killed_under_inserts_the_server_loses_nothing_that_it_acknowledged(milvus_server, opened):
    codes, acknowledged = random_codes(100_000, 64), []
    index = opened(timeout=5)

    def insert() -> None:
        for first in range(0, len(codes), 500):
            index.add(codes[first : first + 500])
            acknowledged.append(first)

    def insert_until_it_fails() -> None:
        with pytest.raises(EngineError, match="failed"):
            insert()

    inserting = threading.Thread(target=insert_until_it_fails)
    inserting.start()
    while len(acknowledged) < 10 and inserting.is_alive():
        time.sleep(0.01)
    milvus_server.kill()
    inserting.join(60)
    assert not inserting.is_alive()
    milvus_server.start()
    again = opened(timeout=120)
    kept = again.ids
    sent = [id_ for first in acknowledged for id_ in range(first, first + 500)]
    assert set(sent) <= set(kept.tolist())
    assert len(kept) - len(sent) in (0, 500)  # what was on its way is there as a whole, or not at all
    np.testing.assert_array_equal(again.search(codes[kept], 1).distances, 0)


@pytest.mark.slow
@pytest.mark.skipif(SERVED, reason="this is the run beside a server")
def test_all_of_this_on_a_server():
    reason = why_none()
    if reason:
        pytest.skip(reason)
    here = Path(__file__)
    files = [here, here.with_name("test_milvus_loading.py"), here.parent / "server" / "test_milvus_mirror.py"]
    command = in_own_network(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *files)
    own = os.environ | {"DMUH_TEST_MILVUS_SERVER": "1"}
    done = subprocess.run(command, env=own, capture_output=True, text=True, timeout=1200)
    if done.returncode == CANNOT:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout


def test_shards_are_loaded_one_by_one_and_a_load_that_broke_off_goes_on(opened, tmp_path, monkeypatch):
    source = DatasetSource(noisy_images(60))
    shards = begun(tmp_path / "shards", source, 3)
    for shard in range(3):
        encode_shard(projecting_hasher(), source, shards, shard, Reading(0))
    index = opened()
    insert, sent = index._inserted, []

    def breaking(request):
        if len(sent) == 2:
            raise OSError("the cable was pulled")
        sent.append(request.num_rows)
        return insert(request)

    with monkeypatch.context() as patch:
        patch.setattr(index, "_inserted", breaking)
        with pytest.raises(EngineError, match="the cable was pulled"):
            shards.fill(index)
    assert (len(index), sent) == (40, [20, 20])
    done = []
    shards.fill(index, done.append)
    assert done == [20, 20, 20]
    wanted = HammingIndex()
    for _ in range(2):  # the second time there is nothing to add
        shards.fill(wanted)
    assert len(index) == len(wanted) == 60
    codes = projecting_hasher().encode(noisy_images(60).images)
    same_up_to_the_last_distance(index.search(codes, 5), wanted.search(codes, 5))


def test_commands_on_shards(digit_run, photos, milvus_address, tmp_path):
    milvus_address += "?collection=of_shards"
    folder, query = tmp_path / "shards", photos / "ones" / "03.png"
    dmuh("encode", digit_run.path, photos, "--dataset", "folder", "--shards", 3, "--out", folder)
    assert "20 images indexed" in dmuh("index", folder, "--index", milvus_address).stdout
    assert not Collection(folder).exists  # the codes are not gathered in one file first
    search = ["search", folder, query, "-k", 20, "--json"]
    by_milvus = json.loads(dmuh(*search, "--index", milvus_address).stdout)[0]["matches"]
    dmuh("index", folder)
    assert by_milvus == json.loads(dmuh(*search).stdout)[0]["matches"]
    assert by_milvus[0]["path"] == str(query)
    assert by_milvus[0]["identical"]


def test_commands(digit_run, photos, milvus_address, tmp_path):
    folder = tmp_path / "photos.index"
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", folder)
    for _ in range(2):  # the second time nothing is missing
        assert "20 images indexed" in dmuh("index", folder, "--index", milvus_address).stdout
    query, other = photos / "ones" / "03.png", tmp_path / "other"
    dmuh("index", digit_run.path, photos / "ones", "--out", other)
    for command in (("index", other), ("search", other, query)):
        assert "holds the codes of another index: give another address" in refused(*command, "--index", milvus_address)
    alone, by_milvus = (
        json.loads(dmuh("search", folder, query, "-k", 20, "--json", *engine).stdout)[0]["matches"]
        for engine in ([], ["--index", milvus_address])
    )
    assert [match["distance"] for match in by_milvus] == [match["distance"] for match in alone]
    assert by_milvus == alone
    assert "by ranking hamming alone" in refused("search", folder, query, "--index", milvus_address, "--radius", 3,
                                                 "--ranking", "soft")  # fmt: skip
    assert "milvus:FILE.db" in refused("search", folder, query, "--index", "codes")
