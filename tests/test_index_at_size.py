"""Every way through the index against a plain sort, over lengths, sizes, duplicates, filters and removals."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmuh import Codes, HammingIndex
from dmuh.errors import DtypeError, FormatError, InputError
from dmuh.files import load_arrays, save_arrays
from dmuh.index import cells, shuffled, turns
from dmuh.index.kernel_use import only
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


@pytest.fixture
def many_cells(monkeypatch):
    """Cells also of few codes, and whether they pay or not."""
    monkeypatch.setattr(cells, "FEWEST", 2)
    monkeypatch.setattr(cells, "_PAYS", 2.0)
    with only(compiled=True):
        yield


def in_cells(index):
    return [part.cells is not None and part.cells.centres.shape[1] > 1 for part in index._segments]


@given(case=cases())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_give_the_same_as_sorting(many_cells, case):
    database, queries, k, rng = case
    index = HammingIndex().add(database)
    assert answers(index.search(queries, k)) == oracle(database, queries, k)
    some = rng.choice(database.ids, max(1, len(database) // 3), replace=False)
    assert answers(index.search(queries, k, among=some)) == oracle(database, queries, k, set(some.tolist()))
    gone = rng.choice(database.ids, len(database) // 4, replace=False)
    kept = database[~np.isin(database.ids, gone)]
    assert answers(index.remove(gone).search(queries, k)) == oracle(kept, queries, k)
    radius = int(rng.integers(0, database.n_bits + 1))
    near = index.within(queries, radius)
    for row, pairs in enumerate(oracle(kept, queries, len(kept))):
        own = slice(near.offsets[row], near.offsets[row + 1])
        found = list(zip(near.distances[own].tolist(), near.ids[own].tolist(), strict=True))
        assert found == [pair for pair in pairs if pair[0] <= radius]


@pytest.mark.parametrize("n_bits", [32, 48, 64, 128, 200])
def test_codes_in_clusters_stand_in_cells_and_others_do_not(n_bits, tmp_path):
    """Clusters are found, and all is as in a scan, from a file and after changes too."""
    rng = np.random.default_rng(n_bits)
    centres = rng.choice([-1.0, 1.0], (9, n_bits))
    near = Codes.from_outputs(np.repeat(centres, 4000, axis=0) + 0.7 * rng.standard_normal((36_000, n_bits)))
    far = Codes.from_outputs(rng.standard_normal((36_000, n_bits)))
    asked = Codes.from_outputs(np.repeat(centres, 5, axis=0) + 0.8 * rng.standard_normal((45, n_bits)))
    with only(compiled=False):
        plain = HammingIndex().add(near)
    assert in_cells(plain) == [False]
    with only(compiled=True):
        assert in_cells(HammingIndex().add(far)) == [False]
        index = HammingIndex().add(near)
        index.save(tmp_path / "index")
        loaded = HammingIndex.load(tmp_path / "index")
    gone, new = np.arange(0, 36_000, 7), Codes(near.bits[:50], n_bits, ids=np.arange(10**6, 10**6 + 50))
    for part in (index, loaded):
        assert in_cells(part) == [True]
    for k in (1, 30, 9000):
        wanted = answers(plain.search(asked, k))
        assert answers(index.search(asked, k)) == answers(loaded.search(asked, k)) == wanted
    wanted = answers(plain.remove(gone).add(new).search(asked, 100))
    for part in (index, loaded):
        assert answers(part.remove(gone).add(new).search(asked, 100)) == wanted
        assert in_cells(part) == [True, False]


def test_cells_are_made_beside_many_searches():
    """Codes that were added while numpy did the work come into cells later; what is removed meanwhile stays so."""
    rng = np.random.default_rng(0)
    outputs = np.repeat(rng.choice([-1.0, 1.0], (4, 64)), 5000, axis=0) + 0.7 * rng.standard_normal((20_000, 64))
    codes = Codes.from_outputs(outputs)
    with only(compiled=False):
        index, plain = HammingIndex().add(codes), HammingIndex().add(codes)
    with only(compiled=True):
        for _ in range(2):
            found = index.search(codes[:500], 5)
        segment = index._segments[0]
        segment._later.wait()
        assert segment.quickest().cells is not None
        assert answers(index.search(codes[:500], 5)) == answers(found)
        gone = codes.ids[::3]
        assert answers(index.remove(gone).search(codes[:9], 50)) == answers(plain.remove(gone).search(codes[:9], 50))
        assert in_cells(index) == [True]
        segment = segment.without(shuffled(gone[:5]))  # of what was made before
        assert segment.quickest().n_living == segment.n_living == 19_995


CRAFTED = {
    "rings beyond the codes": {"rings": lambda a: a + 1},
    "rings that fall": {"rings": lambda a: a[:, ::-1].copy()},
    "rings of other cells": {"rings": lambda a: a[:-1]},
    "cells that overlap": {"rings": lambda a: np.where(np.arange(a.shape[1]) == 0, 0, a)},
    "too few rings": {"rings": lambda a: a[:, 1:].copy()},
    "rings that are fractions": {"rings": lambda a: a.astype(np.float64)},
    "no cells": {"rings": lambda a: a[:0], "centres": lambda a: a[:, :0]},
    "centres of another length": {"centres": lambda a: np.concatenate([a, a])},
    "centres of other words": {"centres": lambda a: a.astype(np.int32)},
    "centres in one dimension": {"centres": lambda a: a[0]},
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_cells_with_a_fitting_checksum_that_would_crash_are_refused(many_cells, tmp_path, change):
    rng = np.random.default_rng(0)
    HammingIndex().add(Codes.from_outputs(rng.standard_normal((300, 64)))).save(tmp_path / "whole")
    arrays = dict(load_arrays(tmp_path / "whole", "dmuh index", 2).arrays)
    arrays |= {name: alter(arrays[name]) for name, alter in change.items()}
    save_arrays(tmp_path / "crafted", "dmuh index", 2, arrays, {"n_bits": 64})
    with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
        HammingIndex.load(tmp_path / "crafted")


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
