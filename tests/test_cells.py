"""Search in cells, compiled, against plain sorting: lengths, ties, levels, filters, removals, files and threads."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import test_index_at_size as hamming
import test_soft_search as soft
from dmuh import Codes, HammingIndex
from dmuh.errors import FormatError
from dmuh.files import load_arrays, save_arrays
from dmuh.index import cells, shells, shuffled
from dmuh.index.kernel_use import only


@pytest.fixture
def many_cells(monkeypatch):
    """Cells also of few codes, and whether they pay or not; shells of few rows, around all centres."""
    monkeypatch.setattr(cells, "FEWEST", 2)
    monkeypatch.setattr(cells, "_PAYS", 10.0)
    monkeypatch.setattr(shells, "_ALONE", 70)
    monkeypatch.setattr(shells, "_FULL", 20)
    monkeypatch.setattr(shells, "_CENTRES", 1.0)
    with only(compiled=True):
        yield


def in_cells(index):
    return [part.cells is not None and part.cells.centres.shape[1] > 1 for part in index._segments]


@given(case=hamming.cases())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_give_the_same_as_sorting(many_cells, case):
    database, queries, k, rng = case
    index = HammingIndex().add(database)
    assert hamming.answers(index.search(queries, k)) == hamming.oracle(database, queries, k)
    some = rng.choice(database.ids, max(1, len(database) // 3), replace=False)
    assert hamming.answers(index.search(queries, k, among=some)) == hamming.oracle(
        database, queries, k, set(some.tolist())
    )
    gone = rng.choice(database.ids, len(database) // 4, replace=False)
    kept = database[~np.isin(database.ids, gone)]
    assert hamming.answers(index.remove(gone).search(queries, k)) == hamming.oracle(kept, queries, k)
    radius = int(rng.integers(0, database.n_bits + 1))
    near = index.within(queries, radius)
    for row, pairs in enumerate(hamming.oracle(kept, queries, len(kept))):
        own = slice(near.offsets[row], near.offsets[row + 1])
        found = list(zip(near.distances[own].tolist(), near.ids[own].tolist(), strict=True))
        assert found == [pair for pair in pairs if pair[0] <= radius]


@given(case=soft.cases())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_soft_search_in_cells_equals_the_definition(many_cells, case, tmp_path_factory):
    database, queries, k, rng = case
    gone = rng.choice(database.ids, len(database) // 4, replace=False)
    kept = database[~np.isin(database.ids, gone)]
    some = rng.choice(kept.ids, max(1, len(kept) // 3), replace=False)
    path = tmp_path_factory.mktemp("index") / "index"
    index = HammingIndex().add(database)
    assert soft.answers(index.search(queries, k)) == soft.oracle(database, queries, k)
    index.save(path)
    for changed in (index, HammingIndex.load(path)):
        changed.remove(gone)
        assert soft.answers(changed.search(queries, k)) == soft.oracle(kept, queries, k)
        found = changed.search(queries, k, among=some)
        assert soft.answers(found) == soft.oracle(kept, queries, k, set(some.tolist()))


@pytest.mark.parametrize("n_bits", [24, 48])
@pytest.mark.parametrize("equal", [0, 40])
def test_codes_with_levels_that_hardly_equal_each_other_stand_in_cells_and_shells(many_cells, n_bits, equal, tmp_path):
    rng = np.random.default_rng(n_bits + equal)
    outputs = rng.standard_normal((300, n_bits))
    outputs[:equal] = outputs[-1]
    unsure = rng.random((300, n_bits), np.float32) / 2
    codes, asked = soft.graded(outputs, unsure, 1, rng), Codes.from_outputs(outputs[200:203], unsure[:3])
    HammingIndex().add(codes).save(tmp_path / "index")
    for index in (HammingIndex().add(codes), HammingIndex.load(tmp_path / "index")):
        assert in_cells(index) == [True]
        assert index._segments[0].words.shape[1] == (300 if not equal else 300 - equal)
        assert index._segments[0].graded.words.shape[1] == 300
        assert soft.answers(index.search(asked, 50)) == soft.oracle(codes, asked, 50)
        found = index.search(asked, 50, ranking="hamming")
        assert hamming.answers(found) == hamming.oracle(codes, asked, 50)


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
        wanted = hamming.answers(plain.search(asked, k))
        assert hamming.answers(index.search(asked, k)) == hamming.answers(loaded.search(asked, k)) == wanted
    wanted = hamming.answers(plain.remove(gone).add(new).search(asked, 100))
    for part in (index, loaded):
        assert hamming.answers(part.remove(gone).add(new).search(asked, 100)) == wanted
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
        assert hamming.answers(index.search(codes[:500], 5)) == hamming.answers(found)
        gone = codes.ids[::3]
        assert hamming.answers(index.remove(gone).search(codes[:9], 50)) == hamming.answers(
            plain.remove(gone).search(codes[:9], 50)
        )
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
    arrays = dict(load_arrays(tmp_path / "whole", "dmuh index", 4).arrays)
    arrays |= {name: alter(arrays[name]) for name, alter in change.items()}
    save_arrays(tmp_path / "crafted", "dmuh index", 4, arrays, {"n_bits": 64})
    with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
        HammingIndex.load(tmp_path / "crafted")
