import copy
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmuh.codes import Codes, less_certain_than, uncertainty_percentiles
from dmuh.errors import DtypeError, FormatError, InputError, MissingPackageError
from dmuh.files import save_arrays
from extras import needs

WIDTHS = (1, 12, 63, 64, 65, 128)
reals = st.floats(allow_nan=False, width=32) | st.sampled_from([0.0, -0.0, np.inf, -np.inf])
outputs_of_any_width = st.sampled_from(WIDTHS).flatmap(
    lambda width: hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(width)), elements=reals)
)


def codes(n=4, n_bits=12, *, uncertainty=True, ids=None):
    rng = np.random.default_rng(0)
    unsure = rng.random((n, n_bits), np.float32) / 2 if uncertainty else None
    return Codes.from_outputs(rng.standard_normal((n, n_bits)), unsure, ids)


def graded(n=4, n_bits=12, sure=1, ids=None):
    """Codes with levels, digests and their exact uncertainty."""
    rng = np.random.default_rng(1)
    thresholds = -np.sort(-rng.random((n_bits, 2**sure - 1), np.float32) / 2, axis=1)
    worth = np.sort(rng.random((n_bits, 2**sure), np.float32), axis=1)
    made = codes(n, n_bits, ids=ids)
    return made.graded(thresholds, worth).with_contents(rng.standard_normal((n, n_bits)).astype(np.float32))


def assert_same(a, b):
    assert a.n_bits == b.n_bits
    np.testing.assert_array_equal(a.bits, b.bits)
    np.testing.assert_array_equal(a.ids, b.ids)
    assert (a.uncertainty is None) == (b.uncertainty is None)
    if a.uncertainty is not None:
        np.testing.assert_array_equal(a.uncertainty, b.uncertainty)
    assert a.sure == b.sure
    np.testing.assert_array_equal(a.level(), b.level())
    for name in ("worth", "contents"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@given(outputs=outputs_of_any_width)
@settings(deadline=None, max_examples=60)
def test_a_bit_is_one_where_the_output_is_not_negative_and_stands_at_its_place(outputs):
    made = Codes.from_outputs(outputs)
    n, width = outputs.shape
    assert made.bits.shape == (n, (width + 7) // 8)
    assert made.bits.dtype == np.uint8
    for row in range(n):
        for place in range(8 * made.bits.shape[1]):
            bit = int(made.bits[row, place // 8]) >> (place % 8) & 1
            assert bit == (place < width and outputs[row, place] >= 0)
    np.testing.assert_array_equal(made.unpack(), outputs >= 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.uint16])
def test_outputs_may_be_any_real_numbers(dtype):
    assert Codes.from_outputs(np.array([[0, 1, 0]], dtype)).unpack().tolist() == [[1, 1, 1]]


def test_ids_are_positions_unless_given():
    assert codes(4).ids.tolist() == [0, 1, 2, 3]
    assert codes(4).ids.dtype == np.int64
    assert codes(3, ids=[7, -2, 5]).ids.tolist() == [7, -2, 5]
    assert codes(3, ids=np.array([9, 8, 1], np.uint8)).ids.dtype == np.int64


def test_no_codes_may_come_with_an_empty_list_of_ids():
    assert Codes.from_outputs(np.empty((0, 12)), ids=[]).ids.dtype == np.int64


@pytest.mark.parametrize("with_uncertainty", [True, False])
def test_the_uncertainty_of_an_image_is_the_mean_over_its_bits(with_uncertainty):
    made = codes(5, 65, uncertainty=with_uncertainty)
    if with_uncertainty:
        assert made.uncertainty.dtype == np.float32
        np.testing.assert_allclose(
            made.image_uncertainty, [sum(row) / 65 for row in made.uncertainty.tolist()], rtol=1e-5
        )
    else:
        assert made.uncertainty is None
        assert made.image_uncertainty is None


def test_the_uncertainty_of_an_image_may_be_known_better_than_by_its_bits(tmp_path):
    known = np.array([0.9, 0.1, 0.5], np.float32)
    made = Codes.from_outputs(np.ones((3, 9)), np.full((3, 9), 0.25, np.float32)).with_image_uncertainty(known)
    np.testing.assert_array_equal(made.image_uncertainty, known)
    levels = made.graded(np.full((9, 1), 0.2, np.float32), np.array([[0.3, 0.9]] * 9, np.float32))
    for same in (levels, made.with_ids([4, 5, 6]), made.with_contents(np.ones((3, 9), np.float32))):
        np.testing.assert_array_equal(same.image_uncertainty, known)
    np.testing.assert_array_equal(made[[2, 0]].image_uncertainty, known[[2, 0]])
    np.testing.assert_array_equal(Codes.concatenated([made[1:], made[:1]]).image_uncertainty, np.roll(known, -1))
    assert made.plain().image_uncertainty is None
    np.testing.assert_allclose(levels.stored().image_uncertainty, (1 - 0.3) / 2)  # a catalogue has it beside the codes
    made.save(tmp_path / "codes.safetensors")
    assert Codes.load(tmp_path / "codes.safetensors") == made
    by_bits = Codes.from_outputs(np.ones((3, 9)), np.full((3, 9), 0.25, np.float32), ids=[7, 8, 9])
    mixed = Codes.concatenated([made, by_bits])  # of some it is not known
    np.testing.assert_allclose(mixed.image_uncertainty, 0.25)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [([0.5], "one entry per code"), ([0.5, 1.5], "from 0 to 1"), ([0.5, np.nan], "from 0 to 1"), ([[0.5]] * 2, "1")],
)
def test_an_image_has_one_uncertainty_from_0_to_1(wrong, said):
    with pytest.raises(InputError, match=said):
        Codes.from_outputs(np.ones((2, 9))).with_image_uncertainty(np.array(wrong, np.float32))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        (slice(1, 3), [1, 2]),
        (slice(None, None, -1), [3, 2, 1, 0]),
        ([3, 0], [3, 0]),
        (np.array([2, 1]), [2, 1]),
        (np.array([True, False, False, True]), [0, 3]),
        ([], []),
    ],
    ids=["slice", "reversed", "list", "positions", "mask", "none"],
)
def test_indexing_keeps_each_codes_id_and_uncertainty(rows, wanted):
    whole = graded(4, ids=[40, 10, 30, 20])
    part = whole[rows]
    assert len(part) == len(wanted)
    np.testing.assert_array_equal(part.bits, whole.bits[wanted])
    np.testing.assert_array_equal(part.ids, whole.ids[wanted])
    np.testing.assert_array_equal(part.uncertainty, whole.uncertainty[wanted])
    np.testing.assert_array_equal(part.level(), whole.level()[wanted])
    np.testing.assert_array_equal(part.contents, whole.contents[wanted])
    assert part.worth is whole.worth


def test_repr_says_how_many_codes_of_what_there_are():
    rows = Codes(np.array([[0x01, 0x0F], [0xAB, 0x02], [0, 0], [3, 3]], np.uint8), 12)
    assert repr(rows) == "Codes(4 × 12 bits: 010f, ab02, 0000, …)"
    assert repr(rows[:3]) == "Codes(3 × 12 bits: 010f, ab02, 0000)"
    assert repr(rows[:0]) == "Codes(0 × 12 bits)"
    assert repr(codes(1)).startswith("Codes(1 × 12 bits, with uncertainty: ")
    assert repr(graded(1, sure=2)).startswith("Codes(1 × 12 bits, each with 2 of sureness: ")


def test_one_position_gives_codes_of_length_one():
    whole = codes(4, ids=[7, 5, 3, 1])
    for position in (2, np.int64(2), -2):
        assert_same(whole[position], whole[2:3])
    for outside in (4, -5):
        with pytest.raises(IndexError, match=f"there are 4 codes, got position {outside}"):
            whole[outside]


def test_iteration_gives_every_code_by_itself():
    whole = codes(4, ids=[7, 5, 3, 1])
    parts = list(whole)
    assert [len(part) for part in parts] == [1, 1, 1, 1]
    assert [part.ids[0] for part in parts] == [7, 5, 3, 1]
    np.testing.assert_array_equal(np.concatenate([part.uncertainty for part in parts]), whole.uncertainty)


def test_numpy_sees_a_matrix_of_bits():
    whole = codes(3)
    np.testing.assert_array_equal(np.asarray(whole), whole.unpack())
    assert np.asarray(whole).dtype == np.uint8
    assert np.asarray(whole, np.float32).dtype == np.float32
    assert np.array(whole, copy=True).sum() == whole.unpack().sum()
    with pytest.raises(ValueError, match="always a copy"):
        np.array(whole, copy=False)


def test_codes_are_equal_if_bits_ids_and_uncertainty_are():
    whole = codes(3)
    assert whole == codes(3)
    assert whole != codes(3, uncertainty=False)
    assert whole != codes(3, ids=[0, 1, 3])
    assert whole != whole[:2]
    assert whole != Codes(whole.bits, 11 + 1, whole.uncertainty / 2, whole.ids)
    assert graded() == graded()
    assert graded() != whole
    assert graded() != graded().stored()
    assert graded(sure=2) != graded(sure=1)
    assert graded().with_contents(np.zeros((4, 12), np.float32)) != graded()
    assert Codes(np.zeros((1, 1), np.uint8), 7) != Codes(np.zeros((1, 1), np.uint8), 8)
    assert whole != "codes"
    with pytest.raises(TypeError, match="unhashable"):
        hash(whole)


def test_codes_are_pickled_and_copied():
    whole = graded(3, ids=[4, 6, 8])
    for made in (pickle.loads(pickle.dumps(whole)), copy.copy(whole), copy.deepcopy(whole)):
        assert_same(made, whole)
    assert copy.deepcopy(whole).bits is not whole.bits


def test_a_table_has_one_row_per_code():
    needs("pandas", "dev")
    table = codes(3, ids=[4, 6, 8]).to_pandas()
    assert list(table.columns) == ["id", "code", "uncertainty"]
    assert table.id.tolist() == [4, 6, 8]
    assert [bytes.fromhex(code) for code in table.code] == [row.tobytes() for row in codes(3).bits]
    np.testing.assert_array_equal(table.uncertainty, codes(3).image_uncertainty)
    assert list(codes(3, uncertainty=False).to_pandas().columns) == ["id", "code"]


def test_without_pandas_a_table_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="a table needs pandas: pip install pandas"):
        codes(3).to_pandas()


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("known", ["nothing", "uncertainty", "1 level", "2 levels", "stored"])
@pytest.mark.parametrize("n_bits", WIDTHS)
@pytest.mark.parametrize("n", [0, 5])
def test_codes_come_back_from_their_file(tmp_path, n, n_bits, known, memory_map):
    ids = np.arange(n)[::-1] - 2
    made = {
        "nothing": lambda: codes(n, n_bits, uncertainty=False, ids=ids),
        "uncertainty": lambda: codes(n, n_bits, ids=ids),
        "1 level": lambda: graded(n, n_bits, 1, ids),
        "2 levels": lambda: graded(n, n_bits, 2, ids),
        "stored": lambda: graded(n, n_bits, 2, ids).stored(),
    }[known]()
    made.save(tmp_path / "codes.safetensors")
    back = Codes.load(str(tmp_path / "codes.safetensors"), memory_map=memory_map)
    assert_same(back, made)
    assert back == made
    assert back.bits.flags.writeable != memory_map


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "codes").write_text("not codes")
    with pytest.raises(FormatError, match="not a dmuh file"):
        Codes.load(tmp_path / "codes")


@pytest.mark.parametrize(
    ("outputs", "options", "words"),
    [
        ([[1.0, np.nan], [1, 1]], {}, "row 0 has a NaN"),
        ([[1.0, 1], [np.nan, 1]], {}, "row 1 has a NaN"),
        ([1.0, 2.0], {}, r"shape \(images, bits\), got \(2,\)"),
        (np.zeros((2, 0)), {}, r"got \(2, 0\)"),
        (np.zeros((2, 3, 4)), {}, r"got \(2, 3, 4\)"),
        (np.ones((2, 3)), {"ids": [1, 1]}, "unique"),
        (np.ones((2, 3)), {"ids": [1, 2, 3]}, "got 3 for 2 codes"),
        (np.ones((2, 3)), {"ids": [[1], [2]]}, r"ids must have 1 dimensions, got shape \(2, 1\)"),
        (np.ones((2, 3)), {"uncertainty": np.zeros((2, 2))}, r"shape \(2, 3\), got \(2, 2\)"),
        (np.ones((2, 3)), {"uncertainty": np.zeros(2)}, "uncertainty must have 2 dimensions"),
        (np.ones((1, 3)), {"ids": np.array([2**63], np.uint64)}, "ids"),
    ],
)
def test_wrong_values_and_shapes_are_refused(outputs, options, words):
    with pytest.raises(InputError, match=words):
        Codes.from_outputs(outputs, **options)


@pytest.mark.parametrize(
    ("outputs", "ids", "words"),
    [
        (np.ones((2, 3), bool), None, "real numbers, got dtype bool"),
        (np.ones((2, 3), complex), None, "got dtype complex"),
        (np.full((2, 3), "1"), None, "got dtype <U1"),
        (np.ones((2, 3)), [1.0, 2.0], "ids must be int64, got float64"),
        (np.ones((2, 3)), ["a", "b"], "ids must be int64"),
    ],
)
def test_wrong_element_types_are_refused(outputs, ids, words):
    with pytest.raises(DtypeError, match=words):
        Codes.from_outputs(outputs, ids=ids)


@pytest.mark.parametrize(
    ("bits", "n_bits", "error", "words"),
    [
        (np.zeros((2, 3), np.uint8), 12, InputError, "12-bit codes must have 2 columns, got 3"),
        (np.zeros((2, 1), np.uint8), 12, InputError, "must have 2 columns, got 1"),
        (np.zeros((2, 1), np.uint8), 0, InputError, "n_bits must be at least 1, got 0"),
        (np.zeros(2, np.uint8), 12, InputError, "bits must have 2 dimensions"),
        (np.zeros((2, 2), np.int8), 12, DtypeError, "bits must be uint8, got int8"),
        (np.array([[0, 0], [0, 16]], np.uint8), 12, InputError, "beyond bit 12"),
    ],
)
def test_bits_that_do_not_fit_are_refused(bits, n_bits, error, words):
    with pytest.raises(error, match=words):
        Codes(bits, n_bits)


def test_the_highest_used_bit_is_no_padding():
    assert Codes(np.array([[0, 8]], np.uint8), 12).unpack().tolist() == [[0] * 11 + [1]]


def test_uncertainty_of_the_wrong_element_type_is_refused():
    with pytest.raises(DtypeError, match="uncertainty must be float32, got float64"):
        Codes(codes().bits, 12, uncertainty=np.zeros((4, 12)))


@given(n_bits=st.sampled_from(WIDTHS), sure=st.sampled_from([1, 2]), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_a_bits_level_is_how_many_thresholds_its_uncertainty_is_below(n_bits, sure, seed):
    rng = np.random.default_rng(seed)
    unsure = rng.choice(np.linspace(0, 0.5, 6, dtype=np.float32), (3, n_bits))  # with values at the thresholds
    thresholds = -np.sort(-rng.choice(np.linspace(0, 0.5, 6, dtype=np.float32), (n_bits, 2**sure - 1)), axis=1)
    worth = np.sort(rng.random((n_bits, 2**sure), np.float32), axis=1)
    made = Codes.from_outputs(rng.standard_normal((3, n_bits)), unsure).graded(thresholds, worth)
    assert made.levels.shape == (3, sure, (n_bits + 7) // 8)
    np.testing.assert_array_equal(made.uncertainty, unsure)
    kept = made.stored()
    for row in range(3):
        for bit in range(n_bits):
            level = sum(unsure[row, bit] < threshold for threshold in thresholds[bit])
            assert made.level()[row, bit] == level
            planes = [int(kept.levels[row, plane, bit // 8]) >> (bit % 8) & 1 for plane in range(sure)]
            assert sum(one << plane for plane, one in enumerate(planes)) == level
            assert kept.uncertainty[row, bit] == pytest.approx((1 - worth[bit, level]) / 2, abs=1e-7)
    np.testing.assert_allclose(kept.image_uncertainty, kept.uncertainty.mean(axis=1), rtol=1e-5)


def test_parts_are_put_together():
    whole = graded(5, sure=2)
    assert Codes.concatenated([whole[:2], whole[2:2], whole[2:]]) == whole
    assert Codes.concatenated([whole[:2], whole[2:].stored()]) == whole.stored()
    assert Codes.concatenated([whole[:1].plain(), whole[1:].plain()]) == whole.plain()
    for other in (graded(1, sure=1, ids=[9]), codes(1, ids=[9]), codes(1, 11, ids=[9])):
        with pytest.raises(InputError, match="of different models"):
            Codes.concatenated([whole, other])


def test_what_is_known_of_codes_can_be_left_out():
    whole = graded(sure=2)
    assert whole.knows_uncertainty
    assert not whole.plain().knows_uncertainty
    assert whole.plain().level().tolist() == np.zeros((4, 12), int).tolist()
    assert codes().stored() == codes()
    with pytest.raises(InputError, match="graded by their exact uncertainty"):
        whole.stored().graded(np.zeros((12, 1), np.float32), np.zeros((12, 2), np.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"levels": None}, "levels and worth come together"),
        ({"worth": None}, "levels and worth come together"),
        ({"levels": np.zeros((4, 3, 2), np.uint8)}, "levels must have shape"),
        ({"levels": np.zeros((3, 1, 2), np.uint8)}, "levels must have shape"),
        ({"levels": np.full((4, 1, 2), 16, np.uint8)}, "levels has ones beyond bit 12"),
        ({"worth": np.zeros((12, 4), np.float32)}, r"worth must have shape \(12, 2\)"),
        ({"worth": np.tile(np.float32([0.9, 0.1]), (12, 1))}, "must not fall"),
        ({"worth": np.full((12, 2), 1.5, np.float32)}, "from 0 to 1"),
        ({"contents": np.zeros(3, np.int64)}, "contents must have one entry per code, got 3 for 4 codes"),
        ({"uncertainty": np.full((4, 12), 0.6, np.float32)}, "uncertainty must be from 0 to 0.5, got numbers from 0.6"),
        ({"uncertainty": np.full((4, 12), np.nan, np.float32)}, "uncertainty must be from 0 to 0.5"),
    ],
)
def test_levels_that_do_not_fit_are_refused(change, words):
    made = graded()
    given = {"levels": made.levels, "worth": made.worth, "contents": made.contents, **change}
    with pytest.raises(InputError, match=words):
        Codes(made.bits, 12, **given)


def test_codes_of_version_1_open_without_their_uncertainty_which_was_no_probability(tmp_path):
    made = codes(3)
    arrays = {"bits": made.bits, "ids": made.ids, "uncertainty": np.full((3, 12), 7, np.float32)}
    save_arrays(tmp_path / "codes", "dmuh codes", 1, arrays, {"n_bits": 12, "of": ""})
    assert Codes.load(tmp_path / "codes") == made.plain()


def test_less_certain_than_is_the_share_of_images_below():
    unsure = np.random.default_rng(0).random(1000)
    percentiles = uncertainty_percentiles(unsure)
    assert len(percentiles) == 101
    for value in (0.0, *unsure[:50].tolist(), 2.0):
        assert less_certain_than(value, percentiles) == pytest.approx(100 * (unsure < value).mean(), abs=1.01)
    assert [less_certain_than(value, [0.5] * 101) for value in (0.4, 0.5, 0.6)] == [0, 0, 99]
    assert uncertainty_percentiles(None) is uncertainty_percentiles([]) is None


def test_codes_of_something_else_and_crafted_ones_are_refused(tmp_path):
    made = Codes.from_outputs([[1.0, -1.0]])
    made.save(tmp_path / "codes", of="a model")
    assert len(Codes.load(tmp_path / "codes", of="a model")) == len(Codes.load(tmp_path / "codes")) == 1
    with pytest.raises(FormatError, match="holds codes of another model or of other images"):
        Codes.load(tmp_path / "codes", of="another")
    bits, ids = np.zeros((2, 1), np.uint8), np.arange(2)
    for arrays, about in (
        ({"bits": bits}, {"n_bits": 2}),
        ({"bits": bits, "ids": ids}, {}),
        ({"bits": bits, "ids": ids}, {"n_bits": "2"}),
        ({"bits": bits, "ids": ids}, {"n_bits": 200}),
        ({"bits": bits, "ids": ids[:1]}, {"n_bits": 2}),
        ({"bits": bits, "ids": ids, "uncertainty": np.zeros((2, 9), np.float32)}, {"n_bits": 2}),
        ({"bits": bits, "ids": ids, "levels": np.zeros((2, 1, 1), np.uint8)}, {"n_bits": 2}),
        ({"bits": bits, "ids": ids, "contents": np.zeros(1, np.int64)}, {"n_bits": 2}),
    ):
        save_arrays(tmp_path / "crafted", "dmuh codes", 2, arrays, about)
        with pytest.raises(FormatError, match="does not hold codes as this dmuh writes them"):
            Codes.load(tmp_path / "crafted")
