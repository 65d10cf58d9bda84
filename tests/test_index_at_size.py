"""Every way through the index against a plain sort, over lengths, sizes, duplicates, filters and removals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, HammingIndex
from dmuh.errors import DtypeError, InputError
from dmuh.index import shuffled, turns
from routes import route  # noqa: F401

LENGTHS = [1, 12, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, 256]


@st.composite
def cases(draw):
    n_bits = draw(st.sampled_from(LENGTHS))
    n = draw(st.sampled_from([1, 2, 5, 40, 400, 2000]))
    n_codes = draw(st.sampled_from([1, 3, 60, 6000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    centre = rng.integers(0, 2, n_bits)
    spread = draw(st.sampled_from([0.05, 0.5]))  # near each other, as learned codes are, or anywhere
    pool = centre ^ (rng.random((n_codes, n_bits)) < spread)
    rows = pool[rng.integers(0, n_codes, n)]
    queries = pool[rng.integers(0, n_codes, 3)] ^ (rng.random((3, n_bits)) < 0.02)
    ids = rng.permutation(3 * n)[:n] - n
    k = draw(st.sampled_from([1, 3, 10, 100, 5000]))
    return Codes.from_outputs(rows - 0.5, ids=ids), Codes.from_outputs(queries - 0.5), k, rng


def oracle(database, queries, k, among=None):
    """(distance, id) of the nearest, by sorting all."""
    answers, bits, keys = [], database.unpack(), shuffled(database.ids)
    for query, turn in zip(queries.unpack(), turns(queries, "hamming"), strict=True):
        distances = (bits != query).sum(axis=1)
        order = np.lexsort((keys - turn, distances))
        pairs = zip(distances[order].tolist(), database.ids[order].tolist(), strict=True)
        answers.append([pair for pair in pairs if among is None or pair[1] in among][:k])
    return answers


def answers(matches):
    return [list(zip(d.tolist(), i.tolist(), strict=True)) for d, i in zip(matches.distances, matches.ids, strict=True)]


@given(case=cases())
@settings(max_examples=120, deadline=None)
def test_search_equals_sorting(case):
    database, queries, k, _ = case
    assert answers(HammingIndex().add(database).search(queries, k)) == oracle(database, queries, k)


@given(case=cases(), radius=st.integers(0, 260))
@settings(max_examples=60, deadline=None)
def test_within_equals_sorting_also_after_changes(case, radius):
    database, queries, _, rng = case
    index = HammingIndex()
    for part in np.array_split(np.arange(len(database)), 3):
        index.add(database[part])
    gone = rng.choice(database.ids, len(database) // 2, replace=False)
    index.remove(gone)
    kept = database[~np.isin(database.ids, gone)]
    assert index.ids.tolist() == sorted(kept.ids.tolist())
    assert len(index) == len(kept)
    found = index.within(queries, radius)
    wanted = oracle(kept, queries, len(kept))
    for row, all_pairs in enumerate(wanted):
        own = slice(found.offsets[row], found.offsets[row + 1])
        pairs = list(zip(found.distances[own].tolist(), found.ids[own].tolist(), strict=True))
        assert pairs == [pair for pair in all_pairs if pair[0] <= radius]
    assert answers(index.search(queries, 7)) == [pairs[:7] for pairs in wanted]


@given(case=cases(), share=st.sampled_from([0.0, 0.1, 0.9, 1.0]))
@settings(max_examples=60, deadline=None)
def test_filters_by_ids_and_by_mask(case, share):
    database, queries, k, rng = case
    index = HammingIndex().add(database[: len(database) // 2]).add(database[len(database) // 2 :])
    mask = rng.random(len(index)) < share
    chosen = set(index.ids[mask].tolist())
    wanted = oracle(database, queries, k, chosen)
    for among in (mask, [*chosen, 10**9]):
        assert answers(index.search(queries, k, among=among)) == wanted
    near = index.within(queries, database.n_bits, among=mask)
    assert near.offsets.tolist() == [row * len(chosen) for row in range(len(queries) + 1)]


def test_wrong_filters_are_refused():
    index = HammingIndex().add(Codes.from_outputs(np.eye(4) - 0.5))
    with pytest.raises(InputError, match="a mask must have one entry for each of the 4 ids, got shape"):
        index.search(Codes.from_outputs(np.eye(4)), 1, among=np.ones(3, bool))
    with pytest.raises(DtypeError, match="whole numbers"):
        index.search(Codes.from_outputs(np.eye(4)), 1, among=[0.5])


def test_many_small_additions_keep_few_segments():
    rng = np.random.default_rng(0)
    index = HammingIndex()
    for n in range(200):
        index.add(Codes.from_outputs(rng.standard_normal((3, 20)), ids=np.arange(3 * n, 3 * n + 3)))
    assert len(index._segments) < 10
    assert len(index) == 600


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_a_saved_index_answers_the_same(case, tmp_path_factory):
    database, queries, k, rng = case
    index = HammingIndex().add(database[: len(database) // 2]).add(database[len(database) // 2 :])
    index.remove(rng.choice(database.ids, len(database) // 4, replace=False))
    path = tmp_path_factory.mktemp("index") / "index.safetensors"
    index.save(path)
    loaded = HammingIndex.load(path)
    assert answers(loaded.search(queries, k)) == answers(index.search(queries, k))
    assert loaded.ids.tolist() == index.ids.tolist()
    more = Codes.from_outputs(rng.standard_normal((4, database.n_bits)), ids=10**6 + np.arange(4))
    assert len(loaded.add(more)) == len(index) + 4
