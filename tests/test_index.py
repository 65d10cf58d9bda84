import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.codes import Codes
from dmuh.errors import FormatError, InputError
from dmuh.files import load_arrays, save_arrays
from dmuh.index import HammingIndex, shuffled
from routes import route  # noqa: F401
from ties import key, turned

WIDTHS = (1, 12, 63, 64, 65, 128, 200)
EXTREMES = st.sampled_from([-(2**63), 2**63 - 1, 0, -1])


def to_codes(numbers, n_bits, ids=None):
    """Codes from whole numbers: bit k of a code is bit k of its number."""
    packed = b"".join(number.to_bytes((n_bits + 7) // 8, "little") for number in numbers)
    return Codes(np.frombuffer(packed, np.uint8).reshape(len(numbers), -(-n_bits // 8)), n_bits, None, ids)


def ranking(query, numbers, ids, n_bits):
    """The plain oracle: (distance, id) of all codes, in order."""
    away = [((query ^ number).bit_count(), id_) for number, id_ in zip(numbers, ids, strict=True)]
    places = dict(zip(ids, turned(ids, to_codes([query], n_bits), "hamming"), strict=True))
    return sorted(away, key=lambda pair: (pair[0], places[pair[1]]))


def pairs(distances, ids):
    return list(zip(distances.tolist(), ids.tolist(), strict=True))


@st.composite
def databases(draw):
    """A width, database codes (few different ones, so that distances tie), their ids, and query codes."""
    n_bits = draw(st.sampled_from(WIDTHS))
    number = st.integers(0, 2**n_bits - 1)
    pool = draw(st.lists(number, min_size=1, max_size=6))
    numbers = draw(st.lists(st.sampled_from(pool), max_size=60))
    n = len(numbers)
    ids = draw(st.lists(EXTREMES | st.integers(-100, 100), min_size=n, max_size=n, unique=True))
    queries = draw(st.lists(number | st.sampled_from(pool), max_size=4))
    return n_bits, numbers, np.array(ids, np.int64), queries


@given(ids=st.lists(EXTREMES | st.integers(-(2**63), 2**63 - 1), unique=True))
def test_the_shuffle_of_ids(ids):
    assert shuffled(np.array(ids, np.int64)).tolist() == [key(id_) for id_ in ids]
    assert len(set(shuffled(np.array(ids, np.int64)).tolist())) == len(ids)


def test_no_image_is_first_for_all_queries():
    """Of a thousand equal codes, queries that are unsure in other ways see other ones first; equal queries the same."""
    unsure = np.random.default_rng(0).random((200, 12)).astype(np.float32) / 2
    queries = Codes.from_outputs(np.ones((200, 12)), unsure)
    index = HammingIndex().add(Codes.from_outputs(np.ones((1000, 12))))
    first = index.search(queries, 1).ids
    assert len(np.unique(first)) > 100
    np.testing.assert_array_equal(index.search(queries, 1).ids, first)
    assert len(np.unique(index.search(queries, 1, ranking="hamming").ids)) == 1  # of one code


def test_the_shuffle_favours_no_ids():
    """Of equal codes, those that are found say nothing of the order of ids, whether these are small, far or spaced."""
    for ids in (np.arange(20_000), np.arange(20_000) + 10**12, np.arange(20_000) * 1000):
        codes = to_codes([5] * len(ids), 12, ids)
        found = HammingIndex().add(codes).search(codes[:1], 20_000).ids[0]
        place = np.searchsorted(ids, found)
        assert sorted(found.tolist()) == ids.tolist()
        assert abs(np.corrcoef(place, np.arange(len(place)))[0, 1]) < 0.03
        assert abs(np.corrcoef(place[1:], place[:-1])[0, 1]) < 0.03
        assert 0.4 < (place[:1000] < 10_000).mean() < 0.6


@given(case=databases(), k=st.integers(1, 80))
@settings(deadline=None, max_examples=120)
def test_search_finds_the_nearest_by_distance_then_shuffle(case, k):
    n_bits, numbers, ids, queries = case
    found = HammingIndex().add(to_codes(numbers, n_bits, ids)).search(to_codes(queries, n_bits), k)
    assert found.distances.dtype == np.int32
    assert found.ids.dtype == np.int64
    assert found.ids.shape == found.distances.shape == (len(queries), min(k, len(numbers)))
    for row, query in enumerate(queries):
        assert pairs(found.distances[row], found.ids[row]) == ranking(query, numbers, ids.tolist(), n_bits)[:k]


@given(case=databases(), radius=st.integers(0, 210))
@settings(deadline=None, max_examples=120)
def test_within_finds_all_up_to_and_including_the_radius(case, radius):
    n_bits, numbers, ids, queries = case
    found = HammingIndex().add(to_codes(numbers, n_bits, ids)).within(to_codes(queries, n_bits), radius)
    assert found.offsets.tolist()[0] == 0
    assert found.offsets.dtype == found.ids.dtype == np.int64
    assert len(found.offsets) == len(queries) + 1
    assert found.offsets[-1] == len(found.ids) == len(found.distances)
    for row, query in enumerate(queries):
        own = slice(found.offsets[row], found.offsets[row + 1])
        wanted = [pair for pair in ranking(query, numbers, ids.tolist(), n_bits) if pair[0] <= radius]
        assert pairs(found.distances[own], found.ids[own]) == wanted


@given(case=databases(), data=st.data())
@settings(deadline=None, max_examples=60)
def test_adding_in_parts_and_removing_leaves_the_same_as_adding_the_rest_at_once(case, data):
    n_bits, numbers, ids, queries = case
    cut = data.draw(st.integers(0, len(numbers)))
    gone = data.draw(st.lists(st.sampled_from(ids.tolist()), unique=True) if len(ids) else st.just([]))
    index = HammingIndex().add(to_codes(numbers[:cut], n_bits, ids[:cut]))
    index.add(to_codes(numbers[cut:], n_bits, ids[cut:])).remove(gone)
    left = [(number, id_) for number, id_ in zip(numbers, ids.tolist(), strict=True) if id_ not in gone]
    assert index.ids.tolist() == sorted(id_ for _, id_ in left)
    found = index.search(to_codes(queries, n_bits), 100)
    for row, query in enumerate(queries):
        wanted = ranking(query, [number for number, _ in left], [id_ for _, id_ in left], n_bits)
        assert pairs(found.distances[row], found.ids[row]) == wanted


@pytest.fixture
def small():
    return HammingIndex().add(to_codes([0, 1, 3, 7], 12, np.array([5, -3, 9, 2])))


def content(index):
    found = index.search(to_codes([0, 4095], 12), 100)
    return index.n_bits, index.ids.tolist(), found.distances.tolist(), found.ids.tolist()


def test_an_id_that_is_there_already_is_refused_and_nothing_changes(small):
    before = content(small)
    with pytest.raises(InputError, match="id 9 is in the index already"):
        small.add(to_codes([2, 4], 12, np.array([1, 9])))
    assert content(small) == before


def test_an_id_that_is_not_there_cannot_be_removed_and_nothing_changes(small):
    before = content(small)
    with pytest.raises(InputError, match="id 4 is not in the index"):
        small.remove([5, 4])
    assert content(small) == before


@pytest.mark.parametrize("ids", [[5.5], ["5"]], ids=["fraction", "text"])
def test_ids_to_remove_must_be_whole_numbers(small, ids):
    before = content(small)
    with pytest.raises(InputError, match="id"):
        small.remove(ids)
    assert content(small) == before


def test_a_removed_id_can_be_added_again(small):
    small.remove([5, 5]).add(to_codes([4095], 12, np.array([5])))
    assert small.search(to_codes([4095], 12), 1).ids.tolist() == [[5]]
    assert len(small) == 4


@pytest.mark.parametrize("n", [0, 1, 40])
@pytest.mark.parametrize("n_bits", WIDTHS)
def test_an_index_comes_back_from_its_file(tmp_path, n_bits, n):
    rng = np.random.default_rng(n)
    codes = Codes.from_outputs(rng.standard_normal((n, n_bits)), ids=rng.permutation(n) - n // 2)
    queries = Codes.from_outputs(rng.standard_normal((3, n_bits)))
    index = HammingIndex().add(codes)
    index.save(tmp_path / "index.safetensors")
    back = HammingIndex.load(str(tmp_path / "index.safetensors"))
    assert (len(back), back.n_bits) == (n, n_bits)
    for one, other in zip(
        vars(index.search(queries, 50)).values(), vars(back.search(queries, 50)).values(), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert len(back.add(Codes.from_outputs(np.ones((1, n_bits)), ids=[1000]))) == n + 1


CRAFTED = {
    "starts beyond the ids": {"starts": lambda a: a * 1000},
    "starts that fall": {"starts": lambda a: a[::-1].copy()},
    "starts before the first": {"starts": lambda a: a - 5},
    "too few starts": {"starts": lambda a: a[:-1]},
    "no starts": {"starts": lambda a: a[:0]},
    "fewer ids": {"keys": lambda a: a[:-1]},
    "ids that are fractions": {"keys": lambda a: a.astype(np.float64)},
    "starts in two dimensions": {"starts": lambda a: a.reshape(1, -1)},
    "words of another width": {"words": lambda a: a.astype(np.int64)},
    "one row of words too many": {"words": lambda a: np.concatenate([a, a])},
    "ones beyond the code": {"words": lambda a: a | np.int32(1 << 20)},
    "words in one dimension": {"words": lambda a: a[0]},
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_an_index_with_a_fitting_checksum_that_would_crash_is_refused(tmp_path, change):
    """Kernels trust what is in an index: what `save` could not have written must not come to them."""
    HammingIndex().add(to_codes([1, 1, 2, 3, 3, 3], 12)).save(tmp_path / "whole")
    arrays = dict(load_arrays(tmp_path / "whole", "dmuh index", 4).arrays)
    arrays |= {name: alter(arrays[name]) for name, alter in change.items()}
    save_arrays(tmp_path / "crafted", "dmuh index", 4, arrays, {"n_bits": 12})
    with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
        HammingIndex.load(tmp_path / "crafted")
    arrays["ids"] = arrays.pop("keys")  # as version 1 named them
    save_arrays(tmp_path / "crafted", "dmuh index", 1, arrays, {"n_bits": 12})
    with pytest.raises(FormatError, match="does not hold an index as this dmuh writes it"):
        HammingIndex.load(tmp_path / "crafted")


@pytest.mark.parametrize("n_bits", [None, 0, -3, 1.5, "12", 13, 40])
def test_an_index_whose_length_is_made_up_is_refused(tmp_path, n_bits):
    words = np.array([[1, 4095]], np.int32) if n_bits != 13 else np.array([[1, 1 << 14]], np.int32)
    arrays = {"words": words, "keys": np.arange(2), "starts": np.empty(0, np.int64)}
    save_arrays(tmp_path / "crafted", "dmuh index", 4, arrays, {"n_bits": n_bits})
    with pytest.raises(FormatError, match="does not hold an index"):
        HammingIndex.load(tmp_path / "crafted")
    save_arrays(tmp_path / "without", "dmuh index", 4, {"words": words}, {"n_bits": 12})
    with pytest.raises(FormatError, match="does not hold an index"):
        HammingIndex.load(tmp_path / "without")


@pytest.mark.parametrize("n_bits", [12, 65])
def test_a_file_of_version_1_still_opens(tmp_path, n_bits):
    """There the ids themselves stood code after code, and codes in the order of their smallest ids."""
    codes = to_codes([7, 1, 7, 2, 7, 1], n_bits, np.array([3, 4, 8, 9, 20, 21]))
    words = np.zeros((1, 3), np.int32) if n_bits == 12 else np.zeros((2, 3), np.int64)
    words[0] = [7, 1, 2]
    arrays = {"words": words, "ids": np.array([3, 8, 20, 4, 21, 9]), "starts": np.array([0, 3, 5, 6])}
    save_arrays(tmp_path / "old", "dmuh index", 1, arrays, {"n_bits": n_bits, "of": "these"})
    old, new = HammingIndex.load(tmp_path / "old", of="these"), HammingIndex().add(codes)
    assert (len(old), old.n_bits, old.ids.tolist()) == (6, n_bits, codes.ids.tolist())
    queries = to_codes([0, 3, 7], n_bits)
    assert old.search(queries, 6).ids.tolist() == new.search(queries, 6).ids.tolist()
    old.save(tmp_path / "new")
    assert HammingIndex.load(tmp_path / "new").search(queries, 4).ids.tolist() == new.search(queries, 4).ids.tolist()
    save_arrays(tmp_path / "empty", "dmuh index", 1, {}, {"n_bits": None})
    assert len(HammingIndex.load(tmp_path / "empty")) == 0


def test_an_index_of_other_codes_is_refused(tmp_path):
    HammingIndex().add(to_codes([1], 12)).save(tmp_path / "index", of="these codes")
    assert len(HammingIndex.load(tmp_path / "index", of="these codes")) == len(HammingIndex.load(tmp_path / "index"))
    with pytest.raises(FormatError, match="an index of other codes"):
        HammingIndex.load(tmp_path / "index", of="others")


def test_an_index_that_was_never_filled_finds_nothing_at_any_width(tmp_path):
    HammingIndex().save(tmp_path / "index")
    for index in (HammingIndex(), HammingIndex.load(tmp_path / "index")):
        assert (len(index), index.n_bits) == (0, None)
        assert index.search(to_codes([1, 2], 12), 3).ids.shape == (2, 0)
        assert index.within(to_codes([1, 2], 65), 3).offsets.tolist() == [0, 0, 0]
        assert index.remove([]).add(to_codes([3], 65)).n_bits == 65


def test_an_emptied_index_finds_nothing_and_keeps_its_width(small):
    small.remove(small.ids)
    assert (len(small), small.n_bits) == (0, 12)
    assert small.search(to_codes([1], 12), 3).distances.shape == (1, 0)
    assert small.within(to_codes([1], 12), 12).offsets.tolist() == [0, 0]


@pytest.mark.parametrize("action", [lambda i, c: i.add(c), lambda i, c: i.search(c, 1), lambda i, c: i.within(c, 1)])
def test_codes_of_another_width_are_refused(small, action):
    with pytest.raises(InputError, match="holds 12-bit codes, got 13-bit ones"):
        action(small, to_codes([1], 13, np.array([100])))


def test_impossible_k_and_radius_are_refused(small):
    with pytest.raises(InputError, match="k must be at least 1, got 0"):
        small.search(to_codes([1], 12), 0)
    with pytest.raises(InputError, match="radius must be at least 0, got -1"):
        small.within(to_codes([1], 12), -1)


def test_an_index_says_what_it_holds(small):
    assert repr(small) == "HammingIndex(4 codes of 12 bits)"
    assert repr(HammingIndex()) == "HammingIndex(0 codes)"
    assert repr(HammingIndex().add(Codes.from_outputs(np.ones((2500, 32))))) == "HammingIndex(2,500 codes of 32 bits)"
