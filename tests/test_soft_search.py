"""Soft ranking in HammingIndex against the plain definition, over lengths, levels, ties, filters, changes and files."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, HammingIndex
from dmuh.errors import FormatError, InputError
from dmuh.files import load_arrays, save_arrays
from dmuh.index.kernel_use import only
from routes import route  # noqa: F401
from ties import turned

UNITS = 31
LENGTHS = [1, 12, 31, 32, 33, 63, 64, 65, 128, 200]


def graded(outputs, unsure, sure, rng, ids=None):
    """Codes with levels of sureness, whose worth is made up; without them for sure = 0."""
    n_bits, n_levels = outputs.shape[1], 2**sure
    if not sure:
        return Codes.from_outputs(outputs, ids=ids)
    thresholds = np.tile(np.linspace(0.5, 0, n_levels + 1, dtype=np.float32)[1:-1], (n_bits, 1))
    worth = np.sort(rng.random((n_bits, n_levels), np.float32), axis=1)
    return Codes.from_outputs(outputs, unsure, ids=ids).graded(thresholds, worth).stored()


@st.composite
def cases(draw):
    """Database codes with 0, 1 or 2 bits of sureness, all different or few, and queries with their uncertainty."""
    n_bits, sure = draw(st.sampled_from(LENGTHS)), draw(st.sampled_from([0, 1, 2]))
    n, n_codes = draw(st.sampled_from([1, 2, 40, 700, 3000])), draw(st.sampled_from([1, 3, 60, 9000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = draw(st.booleans())  # uncertainties: few, so that much ties, or any
    pool = rng.integers(0, 2, n_bits) ^ (rng.random((n_codes, n_bits)) < draw(st.sampled_from([0.05, 0.5])))

    def unsure(rows):
        drawn = rng.random((rows, n_bits), np.float32) / 2
        return np.float32([0, 0.1, 0.5])[rng.integers(0, 3, (rows, n_bits))] if few else drawn

    outputs = pool[rng.integers(0, n_codes, n)] - 0.5
    codes = graded(outputs, unsure(n), sure, rng, rng.permutation(3 * n)[:n] - n)
    near = pool[rng.integers(0, n_codes, 3)] ^ (rng.random((3, n_bits)) < 0.02)
    queries = Codes.from_outputs(near - 0.5, unsure(3))
    return codes, queries, draw(st.sampled_from([1, 3, 10, 100, 5000])), rng


def units(query, uncertainty, code, level, worth):
    """The soft distance of two codes, bit by bit: UNITS less or plus the rounded product of what both are worth."""
    total = 0
    for k in range(len(query)):
        own = np.float32(1) if uncertainty is None else 1 - 2 * uncertainty[k]
        other = np.float32(1) if worth is None else worth[k, level[k]]
        both = int(np.rint(np.float32(UNITS) * own * other))
        total += UNITS - both if query[k] == code[k] else UNITS + both
    return total


def oracle(database, queries, k, among=None):
    """(distance in units, id) of the nearest, by sorting all; the distances of each pair of bits come from a table."""
    n_levels, ids, answers = 2**database.sure, database.ids.tolist(), []
    entries = np.ascontiguousarray((database.unpack().astype(np.intp) * n_levels + database.level()).T)
    for row, query in enumerate(queries.unpack()):
        unsure = None if queries.uncertainty is None else queries.uncertainty[row]
        away = np.zeros(len(database), np.int64)
        for bit in range(database.n_bits):
            own = None if unsure is None else unsure[bit : bit + 1]
            worth = None if database.worth is None else database.worth[bit : bit + 1]
            table = [
                units(query[bit : bit + 1], own, [value], [level], worth)
                for value in (0, 1)
                for level in range(n_levels)
            ]
            away += np.array(table)[entries[bit]]
        order = np.lexsort((turned(ids, queries[row], "soft"), away))
        pairs = zip(away[order].tolist(), database.ids[order].tolist(), strict=True)
        answers.append([pair for pair in pairs if among is None or pair[1] in among][:k])
    return answers


def answers(found, offsets=None):
    """(distance in units, id) of what was found for each query."""
    assert found.distances.dtype == np.float32
    edges = range(0, found.ids.size + 1, max(1, found.ids.shape[-1])) if offsets is None else offsets
    exact = np.rint(found.distances.ravel() * 2 * UNITS).astype(int)
    np.testing.assert_array_equal((exact / np.float32(2 * UNITS)).astype(np.float32), found.distances.ravel())
    pairs = list(zip(exact.tolist(), found.ids.ravel().tolist(), strict=True))
    return [pairs[a:b] for a, b in pairwise(edges)]


@given(case=cases())
@settings(max_examples=120, deadline=None)
def test_search_equals_the_definition(case):
    database, queries, k, _ = case
    assert answers(HammingIndex().add(database).search(queries, k)) == oracle(database, queries, k)


@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_one_pair_is_the_sum_over_its_bits(case):
    database, queries, _, _ = case
    found = HammingIndex().add(database[:1]).search(queries, 1)
    worth, level = database.worth, database[0].level()[0]
    for row in range(len(queries)):
        query, unsure, code = queries.unpack()[row], queries.uncertainty[row], database.unpack()[0]
        assert answers(found)[row] == [(units(query, unsure, code, level, worth), database.ids[0])]


@given(case=cases(), radius=st.floats(0, 210))
@settings(max_examples=60, deadline=None)
def test_within_finds_all_up_to_and_including_the_radius_also_after_changes(case, radius):
    database, queries, k, rng = case
    index = HammingIndex()
    for part in np.array_split(np.arange(len(database)), 3):
        index.add(database[part])
    gone = rng.choice(database.ids, len(database) // 2, replace=False)
    kept = database[~np.isin(database.ids, gone)]
    index.remove(gone)
    wanted = oracle(kept, queries, len(kept))
    reach = np.float32(wanted[0][len(kept) // 2][0] / np.float32(2 * UNITS))  # exactly what one of them is shown as
    for limit in (np.float32(radius), reach):
        found = index.within(queries, float(limit), ranking="soft")
        near = [[p for p in pairs if np.float32(p[0] / np.float32(2 * UNITS)) <= limit] for pairs in wanted]
        assert answers(found, found.offsets.tolist()) == near
    assert answers(index.search(queries, k)) == [pairs[:k] for pairs in wanted]


@given(case=cases(), share=st.sampled_from([0.0, 0.02, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_filters_by_ids_and_by_mask(case, share):
    database, queries, k, rng = case
    index = HammingIndex().add(database[: len(database) // 2]).add(database[len(database) // 2 :])
    mask = rng.random(len(index)) < share
    chosen = set(index.ids[mask].tolist())
    wanted = oracle(database, queries, k, chosen)
    for among in (mask, [*chosen, 10**9]):
        found = index.search(queries, k, among=among)
        assert found.ids.shape == (3, min(k, len(chosen)))
        assert answers(found) == (wanted if chosen else [])
    near = index.within(queries, database.n_bits, among=mask, ranking="soft")
    assert near.offsets.tolist() == [row * len(chosen) for row in range(4)]


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_a_saved_index_answers_the_same_and_takes_more(case, tmp_path_factory):
    database, queries, k, rng = case
    index = HammingIndex().add(database[: len(database) // 2]).add(database[len(database) // 2 :])
    gone = rng.choice(database.ids, len(database) // 4, replace=False)
    index.remove(gone)
    path = tmp_path_factory.mktemp("index") / "index.safetensors"
    index.save(path)
    loaded = HammingIndex.load(path)
    kept = database[~np.isin(database.ids, gone)]
    assert answers(loaded.search(queries, k)) == oracle(kept, queries, k)
    assert (
        loaded.search(queries, k, ranking="hamming").ids.tolist()
        == index.search(queries, k, ranking="hamming").ids.tolist()
    )
    loaded.add(database[np.isin(database.ids, gone)])
    assert answers(loaded.search(queries, k)) == oracle(database, queries, k)


def clustered(n, n_bits, sure, seed):
    """Codes near a few centres, some of them thousands of times, others once: what learned ones are like."""
    rng = np.random.default_rng(seed)
    centres = rng.choice([-1.0, 1.0], (4, n_bits))
    noise = rng.standard_normal((n, n_bits)) * rng.choice([0.2, 1.0], n, p=[0.6, 0.4])[:, None]
    outputs = centres[rng.integers(0, 4, n)] + noise
    unsure = np.float32(0.5) * np.exp(-np.abs(outputs)).astype(np.float32)
    codes = graded(outputs, unsure, sure, rng, rng.permutation(n))
    asked = outputs[:4] + 0.3 * rng.standard_normal((4, n_bits))
    return codes, Codes.from_outputs(asked, np.float32(0.5) * np.exp(-np.abs(asked)).astype(np.float32))


@pytest.mark.parametrize("sure", [0, 1, 2])
@pytest.mark.parametrize("n_bits", [12, 40, 128])
def test_many_codes_in_clusters(n_bits, sure):
    """More codes than are weighed together, runs that are passed over, and codes with more rows than that."""
    codes, queries = clustered(30_000, n_bits, sure, seed=n_bits)
    index = HammingIndex().add(codes)
    wanted = oracle(codes, queries, len(codes))
    for k in (1, 100, 9000):
        assert answers(index.search(queries, k)) == [pairs[:k] for pairs in wanted]
    some = set(codes.ids[::50].tolist())
    near = [[pair for pair in pairs if pair[1] in some][:100] for pairs in wanted]
    assert answers(index.search(queries, 100, among=list(some))) == near


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("sure", [0, 1])
def test_more_ties_than_there_is_room_for(sure, alike):
    """All at one distance, whatever their codes and levels: of the ties the first by the shuffle are found."""
    rng = np.random.default_rng(0)
    n, n_bits = 30_000, 40
    bits = rng.integers(0, 256, (n, n_bits // 8), np.uint8)
    bits = np.repeat(bits[:5], n // 5, axis=0) if alike else bits
    levels = rng.integers(0, 256, (n, 1, n_bits // 8), np.uint8)
    worth = np.full((n_bits, 2), 0.5, np.float32)
    codes = Codes(bits, n_bits, None, rng.permutation(n), levels, worth) if sure else Codes(bits, n_bits)
    queries = Codes(bits[:2], n_bits, np.full((2, n_bits), 0.5, np.float32))  # coin tosses: all are as far
    index = HammingIndex().add(codes)
    wanted = oracle(codes, queries, n)
    for k in (1, 50, n):
        assert answers(index.search(queries, k)) == [pairs[:k] for pairs in wanted]
    gone = codes.ids[::3]
    kept = codes[~np.isin(codes.ids, gone)]
    assert answers(index.remove(gone).search(queries, 50)) == oracle(kept, queries, 50)


def test_both_routes_arrange_codes_alike():
    codes, queries = clustered(5000, 24, 1, seed=3)
    found = []
    for compiled in (True, False):
        with only(compiled=compiled):
            found.append(HammingIndex().add(codes).search(queries, 5000))
    np.testing.assert_array_equal(found[0].ids, found[1].ids)
    np.testing.assert_array_equal(found[0].distances, found[1].distances)


def test_sure_bits_give_the_hamming_distance():
    rng = np.random.default_rng(0)
    codes = Codes.from_outputs(rng.standard_normal((500, 20)))
    queries = Codes.from_outputs(rng.standard_normal((5, 20)), np.zeros((5, 20), np.float32))
    index = HammingIndex().add(codes)
    soft, hamming = index.search(queries, 500), index.search(queries, 500, ranking="hamming")
    assert (soft.distances.dtype, hamming.distances.dtype) == (np.float32, np.int32)
    np.testing.assert_array_equal(soft.distances, hamming.distances)
    np.testing.assert_array_equal(soft.ids, hamming.ids)
    for radius in (0, 7, 7.5):
        near, wanted = index.within(queries, radius, ranking="soft"), index.within(queries, radius)
        np.testing.assert_array_equal(near.ids, wanted.ids)
        np.testing.assert_array_equal(near.offsets, wanted.offsets)


def test_ranking_is_soft_where_queries_know_how_sure_they_are():
    codes, queries = clustered(300, 20, 1, seed=0)
    index = HammingIndex().add(codes)
    assert index.search(queries, 5).distances.dtype == np.float32
    assert index.search(queries.plain(), 5).distances.dtype == np.int32
    assert index.search(codes[:3], 5).distances.dtype == np.float32  # stored levels
    assert answers(index.search(queries.plain(), 300, ranking="soft")) == oracle(codes, queries.plain(), 300)
    assert answers(index.search(codes[:3], 300)) == oracle(codes, codes[:3], 300)
    assert index.within(queries, 3).distances.dtype == np.int32
    assert index.within(queries, 3, ranking=None).distances.dtype == np.float32
    with pytest.raises(InputError, match="ranking must be hamming or soft, got 'cosine'"):
        index.search(queries, 5, ranking="cosine")
    assert HammingIndex().search(queries, 5).distances.shape == (4, 0)
    assert HammingIndex().within(queries, 5, ranking="soft").offsets.tolist() == [0] * 5


def test_a_notebook_shows_expected_numbers_of_differing_bits():
    index = HammingIndex().add(Codes.from_outputs([[1, 1, 1, 1], [-1, -1, 1, 1]], ids=[7, 9]))
    unsure = Codes.from_outputs([[1, 1, 1, 1]], [[0.0, 0.2, 0.0, 0.0]])
    shown = index.search(unsure, 2)._repr_html_()
    assert "<td>7<br><small>0.2</small></td><td>9<br><small>1.8</small></td>" in shown
    assert "<small>2</small>" in index.search(unsure, 2, ranking="hamming")._repr_html_()


def test_levels_that_are_worth_something_else_are_refused(tmp_path):
    codes, _ = clustered(40, 20, 1, seed=0)
    again = Codes(codes.bits, 20, None, codes.ids + 1000, codes.levels, codes.worth * np.float32(0.5))
    index = HammingIndex().add(codes)
    index.save(tmp_path / "index")
    for searched in (index, index.remove(codes.ids), HammingIndex.load(tmp_path / "index")):
        with pytest.raises(InputError, match="worth something else than those in the index"):
            searched.add(again)
        with pytest.raises(InputError, match="holds codes with 1 bits of sureness per bit, got codes with 0"):
            searched.add(again.plain())
    with pytest.raises(InputError, match="holds codes with 0 bits of sureness per bit, got codes with 2"):
        HammingIndex().add(codes.plain()).add(clustered(40, 20, 2, seed=0)[0].with_ids(range(1000, 1040)))
    index.save(tmp_path / "emptied")
    with pytest.raises(InputError, match="worth something else"):
        HammingIndex.load(tmp_path / "emptied").add(again)


def test_a_radius_that_is_no_number_is_refused():
    codes, queries = clustered(40, 20, 1, seed=0)
    with pytest.raises(InputError, match="radius must be at least 0, got nan"):
        HammingIndex().add(codes).within(queries, float("nan"), ranking="soft")


def shifted(by):
    return lambda a: a + by


CRAFTED = {
    "levels": [
        lambda a: a | np.int32(2**20),
        lambda a: a[:, :-1],
        lambda a: a.astype(np.int64),
        lambda a: np.concatenate([a, a]),
        lambda a: a[0],
    ],
    "row_words": [lambda a: a[:, :-1], lambda a: a.astype(np.int64), lambda a: a[0], lambda a: a | np.int32(2**20)],
    "shell_centres": [lambda a: a[:, :-1], lambda a: a.astype(np.int64), lambda a: a[0]],
    "shell_begins": [shifted(1), lambda a: a[:-1], lambda a: a[::-1].copy(), lambda a: a.astype(np.float64)],
    "shell_shortest": [shifted(-99), lambda a: a[:-1], lambda a: a.astype(np.int64)],
    "shell_longest": [shifted(99), lambda a: a[:-1], lambda a: a.astype(np.int64)],
    "row_starts": [shifted(-1), lambda a: a[:-1], lambda a: a * 7, lambda a: a[None]],
    "row_keys": [lambda a: a[:-1], lambda a: a.astype(np.int32)],
    "worth": [lambda a: a[:, ::-1].copy(), lambda a: a * 3, lambda a: a[:-1], lambda a: a * np.float32("nan")],
}


@pytest.mark.parametrize(("name", "alter"), [(name, alter) for name, alters in CRAFTED.items() for alter in alters])
def test_levels_with_a_fitting_checksum_that_would_crash_are_refused(tmp_path, name, alter):
    rng = np.random.default_rng(0)
    outputs = rng.choice([-1.0, 1.0], (8, 12))[rng.integers(0, 8, 400)]
    codes = graded(outputs, np.tile(np.float32([0.1, 0.4]), (400, 6)), 1, rng)  # alike: rows have several ids
    HammingIndex().add(codes).save(tmp_path / "whole")
    arrays = dict(load_arrays(tmp_path / "whole", "dmuh index", 4).arrays)
    arrays[name] = alter(arrays[name])
    save_arrays(tmp_path / "crafted", "dmuh index", 4, arrays, {"n_bits": 12})
    with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
        HammingIndex.load(tmp_path / "crafted")


def by_code(arrays):
    """The arrays of a file as version 3 had them: rows of levels code after code, in no shells."""
    arrays = {name: array for name, array in arrays.items() if not name.startswith("shell_")}
    code = {word: number for number, word in enumerate(arrays["words"][0].tolist())}
    of = np.array([code[word] for word in arrays.pop("row_words")[0].tolist()])
    order, starts = np.argsort(of, kind="stable"), arrays["row_starts"]
    if len(starts):
        keys = [arrays["row_keys"][starts[row] : starts[row + 1]] for row in order]
        arrays |= {"row_keys": np.concatenate(keys), "row_starts": np.cumsum([0, *map(len, keys)])}
    else:
        arrays["row_keys"] = arrays["row_keys"][order]
    arrays["levels"] = np.ascontiguousarray(arrays["levels"][:, order])
    return arrays | {"rows": np.concatenate([[0], np.cumsum(np.bincount(of))])}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alike", [False, True])
def test_levels_of_a_file_of_an_older_version_still_open(tmp_path, alike, version):
    """In version 2 rows of one id each stood in the order of keys, which no file names."""
    rng = np.random.default_rng(0)
    outputs = rng.choice([-1.0, 1.0], (8, 12))[rng.integers(0, 8, 400)]
    unsure = np.tile(np.float32([0.1, 0.4]), (400, 6)) if alike else rng.random((400, 12), np.float32) / 2
    codes = graded(outputs, unsure, 1, rng)
    index = HammingIndex().add(codes)
    index.save(tmp_path / "new")
    arrays = by_code(load_arrays(tmp_path / "new", "dmuh index", 4).arrays)
    if not alike and version == 2:
        own = np.lexsort((arrays["row_keys"], np.repeat(np.arange(8), np.diff(arrays["rows"]))))
        arrays["levels"] = np.ascontiguousarray(arrays["levels"][:, own])
        del arrays["row_keys"], arrays["row_starts"]
    save_arrays(tmp_path / "old", "dmuh index", version, arrays, {"n_bits": 12})
    queries = Codes.from_outputs(outputs[:20] + 0.1, unsure[:20])
    old = HammingIndex.load(tmp_path / "old")
    assert answers(old.search(queries, 50)) == answers(index.search(queries, 50)) == oracle(codes, queries, 50)
    for crafted in (arrays["rows"] + 1, arrays["rows"] * 2**40, arrays["rows"][::-1]):  # also more than memory holds
        save_arrays(tmp_path / "crafted", "dmuh index", version, arrays | {"rows": crafted}, {"n_bits": 12})
        with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
            HammingIndex.load(tmp_path / "crafted")


def test_an_index_file_keeps_levels_as_bits(tmp_path):
    """A code of 32 bits takes 4 bytes, its levels as many, beside the 8 of its id."""
    rng = np.random.default_rng(0)
    codes = graded(rng.standard_normal((5000, 32)), rng.random((5000, 32), np.float32) / 2, 1, rng)
    HammingIndex().add(codes).save(tmp_path / "index")
    assert (tmp_path / "index").stat().st_size < 5000 * (4 + 4 + 8) + 4000
