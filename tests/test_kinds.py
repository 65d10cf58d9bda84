"""Kinds of images, and how well a search from an image is expected to do by the kinds that its code may belong to."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata, spearmanr

from dmuh import Codes, evaluate
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.curve import Curve
from dmuh.encoder.kinds import Kinds, Prospects
from dmuh.errors import FormatError
from dmuh.trainer.calibrating import calibrated, share_a_label
from dmuh.trainer.kinds import _kind_precision, _ranks, own_precision, rank_correlation

N_BITS = 16


def drawn(n=400, seed=0):
    """Outputs and labels of images: some are half way between two classes, and two classes are hardly told apart."""
    rng = np.random.default_rng(seed)
    centres = np.where(rng.random((6, N_BITS)) < 0.5, -1.0, 1.0)
    centres[5] = centres[4]
    centres[5, :2] *= -1
    own, other = rng.integers(0, 6, (2, n))
    part = np.where(rng.random(n) < 0.3, rng.uniform(0, 0.6, n), 0)[:, None]
    outputs = (1 - part) * centres[own] + part * centres[other] + 0.4 * rng.standard_normal((n, N_BITS))
    return outputs.astype(np.float32), np.eye(6, dtype=np.uint8)[own]


def fitted(outputs, labels):
    return calibrated(outputs, 1 / (1 + np.abs(outputs)), share_a_label(labels), has_labels=True)


def results(outputs):
    return {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}


@given(n=st.integers(1, 4), n_kinds=st.integers(1, 4), n_bits=st.sampled_from([1, 12, 65]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_what_is_expected_of_an_image_is_that_of_the_definition(n, n_kinds, n_bits, seed):
    rng = np.random.default_rng(seed)
    precision, power = rng.random((n_kinds, n_kinds)), rng.choice([0.125, 0.5, 1.0])
    kinds = Kinds(
        rng.choice([-1, 1], (n_kinds, n_bits)).astype(np.int8), rng.dirichlet(np.ones(n_kinds)), 0.25,
        Curve(np.zeros(1), np.zeros(1)), Prospects(power, precision, (0.1, 0.7)),
    )  # fmt: skip
    outputs, alone = rng.standard_normal((n, n_bits)).astype(np.float32), rng.uniform(0.02, 0.48, (n, n_bits))
    found = kinds.image_uncertainty(outputs, alone)
    for i in range(n):
        chance = []
        for kind in range(n_kinds):
            odds = 0.0
            for bit in range(n_bits):
                same = kinds.signs[kind, bit] == (1 if outputs[i, bit] >= 0 else -1)
                odds += np.log(1 - alone[i, bit] if same else alone[i, bit])
            chance.append(kinds.share[kind] * np.exp(power * odds))
        pairs = [(chance[a] * chance[b], precision[a, b]) for a in range(n_kinds) for b in range(n_kinds)]
        expected = sum(weight * own for weight, own in pairs) / sum(weight for weight, _ in pairs)
        assert found[i] == pytest.approx(1 - (0.1 + 0.7 * expected), abs=1e-5)


@given(n=st.integers(2, 12), n_bits=st.sampled_from([1, 12, 65]), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_images_search_one_another_but_not_themselves(n, n_bits, seed):
    rng = np.random.default_rng(seed)
    outputs, labels = (
        rng.standard_normal((n, n_bits)).astype(np.float32),
        np.eye(3, dtype=np.uint8)[rng.integers(0, 3, n)],
    )
    found = own_precision(outputs, share_a_label(labels))
    codes = Codes.from_outputs(outputs)
    for i in range(n):
        others = np.arange(n) != i
        metrics = evaluate(codes[[i]], codes[others], labels[[i]], labels[others], ks=(), ranking="hamming")
        assert found[i] == pytest.approx(metrics.average_precision[0])


def test_the_precision_of_a_kind_is_that_of_a_search_from_its_code():
    outputs, labels = drawn(60)
    kinds = fitted(outputs, labels).kinds
    like = np.eye(6)[:, labels.argmax(axis=1)] > 0  # (classes, images)
    found = _kind_precision(replace(kinds, signs=kinds.signs[:6]), outputs, like)
    codes = Codes.from_outputs(outputs)
    for row, signs in enumerate(kinds.signs[:6]):
        query = Codes.from_outputs(signs[None].astype(np.float32))
        for label in range(6):
            own = np.eye(6, dtype=np.uint8)[[label]]
            metrics = evaluate(query, codes, own, labels, ks=(), ranking="hamming")
            assert found[row, label] == pytest.approx(metrics.map)


def test_images_that_were_not_seen_are_in_the_order_of_what_they_find():
    outputs, labels = drawn(900)
    found = fitted(outputs[:300], labels[:300])
    codes = found.codes(results(outputs[300:]))
    metrics = evaluate(codes[:200], codes[200:], labels[300:500], labels[500:], ks=(), ranking="hamming")
    precision = np.array(metrics.average_precision)
    by_image = spearmanr(codes[:200].image_uncertainty, precision).statistic
    by_bits = spearmanr(codes[:200].uncertainty.mean(axis=1), precision).statistic
    assert by_image < by_bits - 0.1
    assert by_image < -0.7
    for part in np.array_split(np.argsort(codes[:200].image_uncertainty), 4):
        assert 1 - codes[part].image_uncertainty.mean() == pytest.approx(precision[part].mean(), abs=0.12)


def test_the_card_keeps_what_is_expected_of_images_and_one_without_it_has_the_mean_over_bits():
    outputs, labels = drawn()
    found = fitted(outputs, labels)
    card = {"n_bits": N_BITS, "calibration": json.loads(json.dumps(found.to_dict()))}
    again = Calibration.of_card(card).codes(results(outputs))
    np.testing.assert_allclose(again.image_uncertainty, found.codes(results(outputs)).image_uncertainty, atol=0.002)
    del card["calibration"]["kinds"]["prospects"]  # a model that was trained before
    before = Calibration.of_card(card).codes(results(outputs))
    np.testing.assert_array_equal(before.image_uncertainty, before.uncertainty.mean(axis=1, dtype=np.float32))
    np.testing.assert_array_equal(before.uncertainty, again.uncertainty)


@pytest.mark.parametrize(
    "wrong",
    [
        {"power": 0.0}, {"power": float("nan")}, {"precision": [[0.5]]}, {"line": [0.0, 0.0]}, {"line": [0.0]},
        {"precision": np.full((6, 6), 1.5).tolist()}, {"precision": np.full((6, 6), float("nan")).tolist()},
    ],
)  # fmt: skip
def test_a_card_with_other_prospects_is_refused(wrong):
    outputs, labels = drawn()
    values = fitted(outputs, labels).to_dict()
    n_kinds = len(values["kinds"]["signs"])
    assert n_kinds == 6
    values["kinds"]["prospects"].update(wrong)
    with pytest.raises(FormatError, match="calibration that cannot be used"):
        Calibration.of_card({"n_bits": N_BITS, "calibration": values})


def test_nothing_is_expected_where_every_image_finds_the_same():
    outputs, labels = drawn(60)
    alike = np.ones_like(outputs)
    found = fitted(alike, labels)
    assert found.codes(results(outputs)).image_uncertainty == pytest.approx(
        found.codes(results(outputs)).uncertainty.mean(axis=1)
    )
    every = calibrated(outputs, 1 / (1 + np.abs(outputs)), 1 - np.eye(60), has_labels=True)  # all share a label
    assert every.kinds is None or every.kinds.prospects is None


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=12))
def test_equal_numbers_share_the_mean_of_their_ranks(numbers):
    assert _ranks(np.array(numbers, float)).tolist() == rankdata(numbers).tolist()


def test_a_constant_has_no_rank_correlation():
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))
