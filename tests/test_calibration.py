"""How sure bits are: counted on images that did not train, kept in the card of the model, used without torch."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, Hasher, configure, evaluate, train
from dmuh.encoder.calibration import SURE, Calibration
from dmuh.encoder.curve import Curve
from dmuh.encoder.kinds import Kinds
from dmuh.encoder.matching import match_of
from dmuh.errors import ConfigError, FormatError
from dmuh.index.soft import UNITS, pair_weights
from dmuh.trainer.calibrating import (
    _distances,
    _helpful,
    _precision,
    _surely_below_0,
    _turned_over,
    calibrated,
    near_by_angle,
    share_a_label,
)
from dmuh.trainer.grades import at_share, best_grades, least_squares, unsure_together

N_BITS = 16


def drawn(n=600, n_classes=6, noise=1.0, seed=0):
    """Outputs of classes whose bits are known: the class's sign, plus noise; and the labels."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, n_classes, n)
    centres = np.where(rng.random((n_classes, N_BITS)) < 0.5, -1.0, 1.0)
    outputs = (centres[classes] + noise * rng.standard_normal((n, N_BITS))).astype(np.float32)
    return outputs, np.eye(n_classes, dtype=np.uint8)[classes], centres[classes]


def by_margin(outputs, labels):
    return calibrated(outputs, 1 / (1 + np.abs(outputs)), share_a_label(labels), has_labels=True)


@given(n=st.integers(1, 7), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_a_bit_turned_over_where_most_similar_images_have_the_other_one(n, seed):
    rng = np.random.default_rng(seed)
    outputs = rng.standard_normal((n, 3)).astype(np.float32)
    similar = (rng.random((n, n)) < 0.5).astype(float)
    np.fill_diagonal(similar, 0)
    turned = _turned_over(outputs, similar)
    for i in range(n):
        others = [j for j in range(n) if similar[i, j]]
        for bit in range(3):
            differ = sum((outputs[j, bit] >= 0) != (outputs[i, bit] >= 0) for j in others)
            if not others:
                assert np.isnan(turned[i, bit])
            else:
                assert turned[i, bit] == (0.5 if 2 * differ == len(others) else float(2 * differ > len(others)))


def test_the_probability_is_that_of_images_that_were_not_seen():
    outputs, labels, centres = drawn()
    found = by_margin(outputs[300:], labels[300:])
    unsure = found.uncertainty({"outputs": outputs[:300], "uncertainty": 1 / (1 + np.abs(outputs[:300]))}).ravel()
    turned = ((outputs[:300] >= 0) != (centres[:300] > 0)).ravel()  # not the bit of its class
    for part in np.array_split(np.argsort(unsure), 5):
        # a bit that is rather another kind's turns over more often than not: a coin toss is the most that is said
        assert unsure[part].mean() == pytest.approx(min(turned[part].mean(), 0.5), abs=0.05)
    assert 0.1 < turned.mean() < 0.2


@given(n=st.integers(1, 4), n_kinds=st.integers(1, 4), n_bits=st.sampled_from([1, 12, 65]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_what_the_kind_of_an_image_says_of_its_bits_is_that_of_the_definition(n, n_kinds, n_bits, seed):
    rng = np.random.default_rng(seed)
    kinds = Kinds(
        rng.integers(-1, 2, (n_kinds, n_bits)).astype(np.int8), rng.dirichlet(np.ones(n_kinds)), 0.25,
        Curve(np.array([-9.0, 9.0]), np.array([0.0, 0.5])),
    )  # fmt: skip
    outputs, alone = rng.standard_normal((n, n_bits)).astype(np.float32), rng.uniform(0.02, 0.48, (n, n_bits))
    found = kinds.scores(outputs, alone)
    for i in range(n):
        chance = kinds.share.copy()
        for kind in range(n_kinds):
            for bit in range(n_bits):
                p, sign = alone[i, bit], kinds.signs[kind, bit]
                same = sign == (1 if outputs[i, bit] >= 0 else -1)
                chance[kind] *= np.sqrt(p * (1 - p)) if sign == 0 else (1 - p if same else p)
        chance /= chance.sum()
        for bit in range(n_bits):
            own = 1 if outputs[i, bit] >= 0 else -1
            share = sum(c * (1 - own * s) / 2 for c, s in zip(chance, kinds.signs[:, bit].tolist(), strict=True))
            p, share = alone[i, bit], np.clip(share, 0.004, 0.996)
            expected = np.log(2 * p / (1 - 2 * p)) + 0.25 * (1 - 2 * p) * np.log(share / (1 - share))
            assert found[i, bit] == pytest.approx(expected, abs=1e-6)
    assert (np.diff(kinds.uncertainty(outputs, alone).ravel()[np.argsort(found, axis=None)]) >= 0).all()


def test_a_bit_that_images_of_its_kind_do_not_have_is_less_sure():
    outputs, labels, centres = drawn()
    found = by_margin(outputs, labels)
    assert len(found.kinds.signs) == labels.shape[1]  # with one label per image the kinds are the classes
    usual = centres[0].astype(np.float32)
    unusual = usual.copy()
    unusual[3] *= -1  # as far from 0, on the other side
    rows = np.stack([usual, unusual])
    unsure = found.uncertainty({"outputs": rows, "uncertainty": 1 / (1 + np.abs(rows))})
    assert unsure[1, 3] > unsure[0, 3] + 0.02
    without = calibrated(outputs, 1 / (1 + np.abs(outputs)), share_a_label(labels), has_labels=False)
    assert without.kinds is None
    alone = without.uncertainty({"outputs": rows, "uncertainty": 1 / (1 + np.abs(rows))})
    assert alone[1, 3] == alone[0, 3]


def test_levels_are_worth_their_mean_sureness_and_the_surer_of_two_has_seven_tenths_of_the_bits():
    outputs, labels, _ = drawn()
    found = by_margin(outputs, labels)
    results = {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}
    for sure in SURE[1:]:
        codes = found.codes(results, sure=sure)
        assert codes.sure == sure
        for level in range(2**sure):
            chosen = codes.level() == level
            for bit in range(N_BITS):
                of_level = 1 - 2 * codes.uncertainty[chosen[:, bit], bit]
                if len(of_level):
                    assert codes.worth[bit, level] == pytest.approx(of_level.mean(), abs=1e-4)
    assert (found.codes(results, sure=1).level() == 1).mean() == pytest.approx(0.7, abs=0.02)


def test_most_bits_may_be_as_sure_as_can_be():
    """Such bits are of the surer level, or none would be."""
    assert at_share(np.array([0.1] * 8 + [0.4] * 2)) == pytest.approx([0.25])
    assert at_share(np.array([0.1] * 2 + [0.4] * 8)) == pytest.approx([0.25])
    assert at_share(np.array([0.1] * 3 + [0.2] * 3 + [0.4] * 4)) == pytest.approx([0.3])
    assert at_share(np.full(5, 0.3)).tolist() == [0.3]  # none is below it


@given(
    values=st.lists(st.integers(0, 12).map(lambda n: n / 25), min_size=1, max_size=12),
    n_levels=st.sampled_from([2, 4]),
)
@settings(max_examples=60)
def test_levels_part_with_the_least_squares(values, n_levels):
    values = np.array(values)
    thresholds = least_squares(values, n_levels)
    assert thresholds.shape == (n_levels - 1,)
    assert (np.diff(thresholds) <= 0).all()
    different = np.unique(values)
    within = [
        squares_within(values, np.searchsorted(ends, values, side="right"))
        for ends in itertools.combinations(different[1:], min(n_levels, len(different)) - 1)
    ]
    level = (values[:, None] < thresholds).sum(axis=1)
    assert squares_within(values, level) == pytest.approx(min(within), abs=1e-12)


def test_levels_of_very_many_values_part_nearly_so():
    values = np.random.default_rng(0).beta(0.5, 3, 3000) / 2
    thresholds = least_squares(values, 4)
    found = squares_within(values, (values[:, None] < thresholds).sum(axis=1))
    centres = np.quantile(values, [0.2, 0.4, 0.6, 0.8])
    for _ in range(300):  # Lloyd's way there
        level = np.abs(values[:, None] - centres).argmin(axis=1)
        centres = np.array([values[level == number].mean() for number in range(4)])
    assert found <= 1.01 * squares_within(values, level)


def squares_within(values, level):
    return sum(np.square(values[level == number] - values[level == number].mean()).sum() for number in np.unique(level))


def test_soft_ranking_by_what_was_found_is_better_than_hamming_distance():
    outputs, labels, _ = drawn(noise=1.5)
    found = by_margin(outputs[:200], labels[:200])
    codes = found.codes({"outputs": outputs[200:], "uncertainty": 1 / (1 + np.abs(outputs[200:]))})
    query, database, of_query, of_database = codes[:100], codes[100:], labels[200:300], labels[300:]
    plain, soft, graded = (
        evaluate(query, part, of_query, of_database, ranking=ranking).map
        for part, ranking in ((database.plain(), "hamming"), (database.plain(), "soft"), (database, "soft"))
    )
    assert plain + 0.02 < soft < graded - 0.02


def test_a_distance_says_how_likely_two_imagesshare_a_label():
    outputs, labels, _ = drawn()
    found = by_margin(outputs[:300], labels[:300])
    results = {"outputs": outputs[300:], "uncertainty": 1 / (1 + np.abs(outputs[300:]))}
    similar = share_a_label(labels[300:])
    apart = ~np.eye(len(similar), dtype=bool)
    for sure, ranking in ((0, "soft"), (1, "soft"), (2, "soft"), (1, "hamming")):
        codes = found.codes(results, sure=sure)
        ranked = codes if ranking == "soft" else codes.plain()
        distances = _distances(ranked, ranked)
        chance = match_of(found, ranking, distances, sure)[apart]
        for part in np.array_split(np.argsort(chance), 8):
            assert chance[part].mean() == pytest.approx(similar[apart][part].mean(), abs=0.08)
        assert chance.max() > 0.9
        assert chance.min() < 0.1


@given(n_bits=st.sampled_from([1, 12, 65]), sure=st.sampled_from(SURE), seed=st.integers(0, 20))
@settings(max_examples=20)
def test_distances_are_those_of_the_definition(n_bits, sure, seed):
    rng = np.random.default_rng(seed)
    outputs = rng.standard_normal((6, n_bits)).astype(np.float32)
    similar = np.ones((6, 6)) - np.eye(6)
    codes = calibrated(outputs, 1 / (1 + np.abs(outputs)), similar, has_labels=False).codes(
        {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}, sure=sure
    )
    weights, bits, level = pair_weights(codes, codes.worth), codes.unpack(), codes.level()
    found = _distances(codes, codes)
    for i in range(6):
        for j in range(6):
            total = 0
            for bit in range(n_bits):
                s = int(weights[i, bit, level[j, bit]])
                total += UNITS + s if bits[i, bit] != bits[j, bit] else UNITS - s
            assert found[i, j] == pytest.approx(total / (2 * UNITS), rel=1e-6)


def test_images_without_labels_are_similar_to_their_nearest():
    rng = np.random.default_rng(0)
    features = np.concatenate([rng.normal(5, 0.1, (12, 4)), rng.normal(-5, 0.1, (12, 4))]).astype(np.float32)
    similar = near_by_angle(features)
    assert similar.sum(axis=1).tolist() == [10] * 24
    assert similar[:12, 12:].sum() == similar[12:, :12].sum() == similar.trace() == 0
    assert near_by_angle(features[:1]).tolist() == [[0]]


def test_a_card_keeps_all_that_was_found():
    outputs, labels, _ = drawn(60)
    found = by_margin(outputs, labels)
    card = {"n_bits": N_BITS, "calibration": json.loads(json.dumps(found.to_dict()))}
    back = Calibration.of_card(card)
    results = {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}
    np.testing.assert_allclose(back.uncertainty(results), found.uncertainty(results), atol=1e-5)
    assert back.to_dict() == found.to_dict()
    assert set(back.match) == {"hamming", "soft-0", "soft-1", "soft-2"}


def test_a_network_that_was_never_calibrated_is_taken_by_its_margin_and_has_no_levels():
    results = {"outputs": np.array([[0.0, -3.0, 1.0]], np.float32)}
    assumed = Calibration.of_card({"n_bits": 3})
    np.testing.assert_allclose(assumed.uncertainty(results), 1 / (1 + np.exp([[0.0, 6.0, 2.0]])), atol=1e-6)
    assert assumed.codes(results, sure=2).sure == 0
    assert assumed.match == {}


def test_of_all_alike_nothing_can_be_learned_and_the_margin_is_taken():
    outputs = np.ones((20, 4), np.float32)
    for similar in (np.ones((20, 20)) - np.eye(20), np.zeros((20, 20))):
        found = calibrated(outputs, 1 / (1 + outputs), similar, has_labels=True)
        assert found.turnover is None
        codes = found.codes({"outputs": outputs, "uncertainty": 1 / (1 + outputs)}, sure=2)
        assert codes.uncertainty.max() < 0.5
        assert (np.diff(codes.worth, axis=1) >= 0).all()


@pytest.mark.parametrize(
    "change",
    [
        {"turnover": {"at": [1, 0], "probability": [0, 1]}},
        {"turnover": {"at": [0, 1], "probability": [0, 2]}},
        {"turnover": {"at": [], "probability": []}},
        {"turnover": {"at": [0, 1]}},
        {"turnover": 7},
        {"grades": {"1": {"thresholds": [[0.1]], "worth": [[0.1, 0.2]]}}},
        {"grades": {"3": {"thresholds": [[0.1] * 7] * 16, "worth": [[0.1] * 8] * 16}}},
        {"images": None},
        {"kinds": 7},
        {"kinds": {"signs": ["+-"], "share": [1.0], "weight": 0.2, "turnover": {"at": [0], "probability": [0]}}},
        {
            "kinds": {
                "signs": ["+" * 15 + "x"],
                "share": [1.0],
                "weight": 0.2,
                "turnover": {"at": [0], "probability": [0]},
            }
        },
        {"kinds": {"signs": ["+" * 16], "share": [0.0], "weight": 0.2, "turnover": {"at": [0], "probability": [0]}}},
        {"kinds": {"signs": ["+" * 16], "share": [1.0], "weight": 0.2, "turnover": {"at": [0], "probability": [2]}}},
    ],
)
def test_a_crafted_card_is_refused(change):
    outputs, labels, _ = drawn(60)
    card = {"n_bits": N_BITS, "calibration": by_margin(outputs, labels).to_dict() | change}
    with pytest.raises(FormatError, match="the model's card has a calibration that cannot be used"):
        Calibration.of_card(card)


def test_only_0_1_or_2_bits_of_sureness_are_given():
    with pytest.raises(ConfigError, match="sure must be 0, 1 or 2, got 3"):
        Calibration.assumed().codes({"outputs": np.ones((1, 3), np.float32)}, sure=3)


def test_between_its_points_a_curve_is_straight_and_beyond_them_constant():
    curve = Curve(np.array([1.0, 2.0]), np.array([0.5, 0.1]))
    np.testing.assert_allclose(curve([[0, 1], [1.5, 9]]), [[0.5, 0.5], [0.3, 0.1]])


def test_a_training_leaves_its_calibration_by_validation_images(digits, tmp_path, caplog):
    caplog.set_level("INFO")
    small = {"epochs": 2, "batch_size": 24, "bits": 12, "query": 5, "train": 40, "image_size": 16}
    held_out = train(configure(small, {"validation": 0.2}), tmp_path / "held out", dataset=digits)
    assert "look surer" not in caplog.text
    few = train(configure(small, {"validation": 0.05}), tmp_path / "few", dataset=digits)
    assert "8 images are held out, and it takes 16" in caplog.text
    none = train(configure(small, {"validation": 0.0}), tmp_path / "none", dataset=digits)
    cards = [run.load_model().metadata["calibration"] for run in (held_out, few, none)]
    assert [card["part"] for card in cards] == ["validation", "training", "training"]
    assert [card["images"] for card in cards] == [32, 152, 160]
    hasher = Hasher.load(held_out.path, device="cpu")
    for sure in SURE:
        codes = hasher.encode(digits.images[:5], sure=sure)
        assert codes.sure == sure
        assert codes.knows_uncertainty
        assert codes.contents is not None
    twice = hasher.encode([digits.images[0], digits.images[1], digits.images[0]])
    assert twice.contents[0] == twice.contents[2] != twice.contents[1]


@pytest.mark.parametrize("method", ["itq", "csq", "sdh"])
def test_every_method_has_a_probability(digits, tmp_path, method):
    given = {"bits": 12, "query": 5, "train": 40, "image_size": 16, "method": method}
    given |= {"epochs": 1} if method == "csq" else {"backbone": "smallconv"}
    run = train(configure(given), tmp_path / "run", dataset=digits)
    codes = Hasher.load(run.path, device="cpu").encode(digits.images[:20])
    assert np.ptp(codes.uncertainty) > 0
    assert codes.sure == 1


@pytest.mark.parametrize(("method", "words"), [("csq", "margin, or give uncertainty_alpha"), ("itq", "margin$")])
def test_the_copy_cannot_be_asked_where_there_is_none(method, words):
    with pytest.raises(ConfigError, match=f"{method} has no copy of its own: uncertainty must be {words}"):
        configure({"method": method, "uncertainty": "copy"})


def test_points_of_a_curve_that_are_close_come_back_apart():
    """Numbers of a source may all be tiny: shortened to six digits, points would fall together."""
    curve = Curve(np.array([1e-8, 3e-8, 0.1]), np.array([0.5, 0.25, 0.0]))
    back = Curve.from_dict(json.loads(json.dumps(curve.to_dict())))
    assert back.at.tolist() == curve.at.tolist()
    assert back(2e-8) == pytest.approx(0.375)


def test_levels_count_nothing_where_images_are_found_worse_by_them():
    outputs, labels, _ = drawn(noise=1.5)
    results, similar = {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}, share_a_label(labels)
    right = by_margin(outputs, labels)
    assert all((levels.worth[:, 0] < levels.worth[:, -1]).all() for levels in right.grades.values())
    assert _helpful(right, results, similar) == right.grades
    # the bits that are the surest are taken for the least sure ones, and the other way round
    turned_round = Curve(right.turnover.at, right.turnover.probability[::-1].copy())
    misled = replace(right, turnover=turned_round, kinds=None)
    misled = replace(misled, grades={sure: best_grades(misled.uncertainty(results), sure) for sure in (1, 2)})
    assert all((levels.worth != 1).any() for levels in misled.grades.values())
    found = replace(misled, grades=_helpful(misled, results, similar))
    assert all((levels.worth == 1).all() for levels in found.grades.values())
    plain, graded = (_distances(codes, codes) for codes in (found.codes(results, sure=sure) for sure in (0, 1)))
    np.testing.assert_array_equal(plain, graded)


@pytest.mark.parametrize(
    ("mean", "n", "surely"), [(-0.5, 100, True), (-0.1, 100, False), (-0.1, 1000, True), (0.5, 100, False)]
)
def test_a_small_loss_among_few_images_is_chance(mean, n, surely):
    gains = np.random.default_rng(0).standard_normal(n)
    gains += mean - gains.mean()
    assert _surely_below_0(gains) == surely


def test_one_image_is_chance():
    assert not _surely_below_0(np.array([-1.0]))


def together(share, n=200, n_bits=24):
    """Uncertainty of bits of which this share is that of the image as a whole, the rest the bit's own."""
    rng = np.random.default_rng(0)
    found = share**0.5 * rng.standard_normal((n, 1)) + (1 - share) ** 0.5 * rng.standard_normal((n, n_bits))
    return found.astype(np.float32)


@pytest.mark.parametrize(("share", "found"), [(0.0, False), (0.3, False), (0.7, True), (1.0, True)])
def test_bits_are_unsure_together_where_most_of_it_is_the_image_s(share, found):
    values = together(share)
    assert unsure_together(values) == found
    bits = np.corrcoef(values.T)
    assert (np.mean(bits[~np.eye(24, dtype=bool)]) >= 0.5) == found
    same_everywhere = np.zeros((len(values), 3), np.float32)
    assert unsure_together(np.hstack([values, same_everywhere])) == found
    assert not unsure_together(values[:, :1])
    assert not unsure_together(same_everywhere)


def test_levels_of_bits_that_are_unsure_together_part_at_a_share_of_their_own():
    outputs, labels, _ = drawn()
    shares = []
    for share in (0.1, 0.9):
        uncertainty = 1 / (1 + np.exp(-together(share, len(outputs), N_BITS)))
        fitted = calibrated(outputs, uncertainty, share_a_label(labels), has_labels=True)
        unsure = fitted.uncertainty({"outputs": outputs, "uncertainty": uncertainty})
        shares.append((unsure < fitted.grades[1].thresholds[:, 0]).mean(axis=0))
    assert np.ptp(shares[0]) < 0.2 < 0.4 < np.ptp(shares[1])


def test_what_images_find_does_not_depend_on_their_order():
    """Images come by class where folders are classes: in that order ties would be all right or all wrong."""
    outputs, labels, _ = drawn(200, noise=0.4)
    calibration = by_margin(outputs, labels)
    by_class = np.argsort(labels.argmax(axis=1), kind="stable")
    for sure in SURE:
        found = []
        for order in (np.arange(len(outputs)), by_class):
            results = {"outputs": outputs[order], "uncertainty": 1 / (1 + np.abs(outputs[order]))}
            codes = calibration.codes(results, sure=sure)
            found.append(_precision(codes, share_a_label(labels[order])).mean())
        assert found[0] == pytest.approx(found[1], abs=1e-9)
    few = Codes.from_outputs(outputs[:60])
    one_by_one = []
    for query in range(60):
        others = np.delete(np.arange(60), query)
        measured = evaluate(few[[query]], few[others], labels[[query]], labels[others], ks=(), ranking="hamming")
        one_by_one.append(measured.map)
    np.testing.assert_allclose(_precision(few, share_a_label(labels[:60])), one_by_one, atol=1e-9)
