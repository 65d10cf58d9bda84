"""What is written to Milvus: seen at once by who wrote it, sent once, in parts, with labels to search for."""

import json
import threading
import time

import numpy as np
import pytest

from commands import dmuh, refused
from dmuh.codes import Codes
from dmuh.errors import DataError, EngineError, InputError
from dmuh.index import HammingIndex, MilvusIndex
from extras import needs
from milvus_server import SERVED

needs("milvus-lite", "milvus", "milvus_lite")
# a process of its own stands behind each of these; the warnings are of pymilvus and what it imports
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
on_a_server = pytest.mark.skipif(not SERVED, reason="needs a server: see test_all_of_this_on_a_server")


def random_codes(n, n_bits=64, seed=0, ids=None):
    return Codes.from_outputs(np.random.default_rng(seed).standard_normal((n, n_bits)), ids=ids)


@pytest.fixture
def opened(opened_milvus):
    return opened_milvus


@on_a_server
def test_a_search_right_after_a_write_sees_it(opened):
    """Four write and search at once, so that each meets the others' ticks of the server at other times."""
    opened().add(random_codes(100, ids=np.arange(100)))
    missed = []

    def try_it(own):
        index, codes = opened(), random_codes(10, seed=own + 1, ids=np.arange(10) + 1000 * (own + 1))
        for row, code in enumerate(codes):
            if index.add(code).search(code, 1).ids[0].tolist() != code.ids.tolist():
                missed.append(("added", own, row))
            if row % 2 and index.remove(code.ids).search(code, 1).ids[0].tolist() == code.ids.tolist():
                missed.append(("removed", own, row))

    threads = [threading.Thread(target=try_it, args=[own]) for own in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []
    assert len(opened()) == 100 + 4 * 5


@on_a_server
@pytest.mark.parametrize("consistency", ["session", "strong"])
def test_who_opens_an_index_sees_what_was_acknowledged_before(opened, consistency):
    codes = random_codes(12)
    writer = opened()
    for row, code in enumerate(codes):
        writer.add(code)
        assert opened(consistency=consistency).search(code, 1).ids.tolist() == [[row]]


@on_a_server
def test_what_others_write_later_is_seen_in_a_moment_and_at_once_where_that_is_chosen(opened):
    codes = random_codes(30)
    writer = opened().add(codes[:10])
    session, bounded, strong = (opened(consistency=name) for name in ("session", "bounded", "strong"))
    writer.add(codes[10:20])
    assert strong.search(codes[15], 1).ids.tolist() == [[15]]
    for index in (session, bounded):
        deadline = time.monotonic() + 60
        while index.search(codes[15], 1).ids.tolist() != [[15]] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert index.search(codes[15], 1).ids.tolist() == [[15]]
    bounded.add(codes[20:])
    assert len(bounded) == 30  # only its searches may be behind
    with pytest.raises(InputError, match="id 20 is in the index already"):
        bounded.add(codes[20:21])


@on_a_server
def test_no_search_but_the_first_waits(opened, monkeypatch):
    """By what is asked, not by the time it takes: all name the timestamp of the write, which is reached once."""
    index, asked = opened().add(random_codes(10)), []
    search = index._client.search

    def noting(*words, **options):
        asked.append((options["consistency_level"], options["guarantee_timestamp"]))
        return search(*words, **options)

    monkeypatch.setattr(index._client, "search", noting)
    before = index._now()
    for _ in range(3):
        index.search(random_codes(1), 1)
    index.add(random_codes(1, ids=[99])).search(random_codes(1), 1)
    level, first = asked[0]
    assert asked[:3] == [("Customized", first)] * 3
    assert level == "Customized"
    assert first < before < asked[3][1]


def test_an_add_after_a_write_that_got_no_answer_asks_what_is_there(opened, monkeypatch):
    codes, index = random_codes(20), opened()
    index.add(codes[:5])
    inserted = index._inserted

    def unheard(request):
        inserted(request)
        raise OSError("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(index, "_inserted", unheard)
        with pytest.raises(EngineError, match="the answer was lost"):
            index.add(codes[5:10])
    with pytest.raises(InputError, match="id 5 is in the index already"):
        index.add(codes[5:10])
    index.add_missing(codes)
    assert len(index) == 20
    assert index.ids.tolist() == list(range(20))


def test_a_part_that_fails_is_an_error_that_says_what_is_in(opened, monkeypatch):
    for name in ("_ROWS", "_FILE_ROWS"):
        monkeypatch.setattr(f"dmuh.index.milvus_loading.{name}", 10)
    codes, index, sent = random_codes(200), opened(), []
    inserted, lock = index._inserted, threading.Lock()

    def breaking(request):
        with lock:
            sent.append(request.num_rows)
            if len(sent) == 4:
                raise OSError("the cable was pulled")
        return inserted(request)

    monkeypatch.setattr(index, "_inserted", breaking)
    with pytest.raises(
        EngineError, match=r"cable was pulled; \d+ of 200 codes are in: add_missing sends the rest"
    ) as raised:
        index.add(codes)
    n_in = len(index)
    assert f"; {n_in} of 200 codes" in str(raised.value)
    assert 30 <= n_in < 100  # what was on its way with it, and no more
    index.add_missing(codes)
    assert index.ids.tolist() == list(range(200))
    np.testing.assert_array_equal(index.search(codes, 1).distances, 0)


def test_a_server_that_is_asked_for_too_much_is_asked_again_and_one_that_fails_is_not(opened, monkeypatch):
    index, calls = opened(timeout=20), []
    failure = index._library.MilvusException
    inserted = index._inserted

    def busy(request):
        calls.append(request.num_rows)
        if len(calls) < 3:
            raise failure(8, "request is rejected by rate limiter")
        return inserted(request)

    with monkeypatch.context() as patch:
        patch.setattr(index, "_inserted", busy)
        index.add(random_codes(5))
    assert calls == [5, 5, 5]
    assert len(index) == 5

    def failing(*_, **__):
        calls.append("sent")
        raise failure(1, "no more room")

    calls.clear()
    with monkeypatch.context() as patch:
        patch.setattr(type(index._handler), "batch_insert", failing)
        with pytest.raises(EngineError, match="no more room"):
            index.add(random_codes(5, seed=1, ids=range(10, 15)))
    assert calls == ["sent"]


NAMED = [
    "plain",
    'qu"ote',
    "back\\slash",
    "it's",
    "Bär 🐻",
    "new\nline",
    "tab\t",
    "per%cent_",
    "",
    "a" * 256,
    "ä" * 200,
    "ä" * 201,
]


def test_every_label_can_be_searched_for(opened):
    codes = random_codes(len(NAMED) + 1)
    index = opened().add(codes, [*([name, "all"] for name in NAMED), []])
    for row, name in enumerate(NAMED):
        assert index.search(codes[:1], 5, label=name).ids.tolist() == [[row]], name
    assert sorted(index.search(codes[:1], 50, label="all").ids[0].tolist()) == list(range(len(NAMED)))
    assert index.search(codes[:1], 5, label="none").ids.shape == (1, 0)
    with pytest.raises(InputError, match="at most 64 labels, got 65: 'x' and more"):
        index.add(random_codes(1, ids=[99]), [["x"] * 65])
    assert len(index) == len(codes)


@on_a_server
def test_settled_codes_are_compared_by_the_index_of_the_collection(opened):
    codes, queries = random_codes(5000), random_codes(20, seed=1)
    index = opened(kind="BIN_IVF_FLAT", lists=64, probes=64)
    assert index.settle()  # there is nothing yet
    index.add(codes)
    assert index.settle()
    wanted = HammingIndex().add(codes)
    few = opened(probes=1)  # the kind is that of the collection
    assert few._lists == 64
    assert not np.array_equal(few.search(queries, 50).distances, wanted.search(queries, 50).distances)
    np.testing.assert_array_equal(index.search(queries, 50).distances, wanted.search(queries, 50).distances)
    found = few.within(queries, 18)  # which looks into all cells
    np.testing.assert_array_equal(found.ids, wanted.within(queries, 18).ids)
    with pytest.raises(DataError, match="has the index BIN_IVF_FLAT, got kind BIN_FLAT: leave it out"):
        opened(kind="BIN_FLAT")


@on_a_server
def test_much_that_was_added_is_sealed_by_itself(opened, monkeypatch):
    monkeypatch.setattr("dmuh.index.milvus_loading._SEAL", 3000)
    index, flushed = opened(), []
    flush = type(index._handler).flush
    monkeypatch.setattr(type(index._handler), "flush", lambda *a, **o: (flushed.append(o), flush(*a, **o))[1])
    codes = random_codes(12_000)
    index.add(codes[:2000])
    assert flushed == []
    index.add(codes[2000:4000])
    assert len(flushed) == 1
    index.add(codes[4000:])  # not again so soon
    assert len(flushed) == 1
    np.testing.assert_array_equal(index.search(codes[:50], 1).distances, 0)


def test_commands_take_options_in_the_address(digit_run, photos, milvus_address, tmp_path):
    folder, query = tmp_path / "photos.index", photos / "ones" / "03.png"
    dmuh("index", digit_run.path, photos, "--dataset", "folder", "--out", folder)
    options = "collection=own" + ("&kind=BIN_IVF_FLAT&lists=4&probes=4&consistency=bounded" if SERVED else "")
    address = f"{milvus_address}?{options}"
    assert "20 images indexed" in dmuh("index", folder, "--index", address).stdout
    alone, by_milvus = (
        json.loads(dmuh("search", folder, query, "-k", 20, "--json", *engine).stdout)[0]["matches"]
        for engine in ([], ["--index", address])
    )
    assert by_milvus == alone
    index = MilvusIndex(milvus_address, collection="own")
    assert len(index) == 20
    assert index.search(index.codes([3]), 20, label="ones").ids.shape == (1, 10)
    index.close()
    assert "got 'nprobe'" in refused("search", folder, query, "--index", f"{milvus_address}?nprobe=3")
