"""Codes that are placed around the codes of kinds by how sure an image is of its kind."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh import Codes, Hasher, configure, evaluate, train
from dmuh.datasets import Dataset
from dmuh.encoder.calibration import Calibration
from dmuh.encoder.recoding import Recoding
from dmuh.errors import FormatError
from dmuh.trainer.calibrating import calibrated, share_a_label
from dmuh.trainer.evaluation import evaluate_run
from dmuh.trainer.recoding import find_recoding

N_BITS = 24


def drawn(n, seed=0, n_classes=6, noise=1.0):
    """Outputs and labels of images near the codes of their classes, some of them part of the way to another class."""
    rng = np.random.default_rng(seed)
    centres = np.where(np.random.default_rng(0).random((n_classes, N_BITS)) < 0.5, -1.0, 1.0)
    own, other = rng.integers(0, n_classes, (2, n))
    part = np.where(rng.random(n) < 0.5, rng.uniform(0, 0.5, n), 0)[:, None]
    outputs = (1 - part) * centres[own] + part * centres[other] + noise * rng.standard_normal((n, N_BITS))
    return outputs.astype(np.float32), np.eye(n_classes, dtype=np.uint8)[own]


def random_recoding(rng, n_bits, n_kinds=3, n_steps=2, farthest=10**6):
    signs = rng.choice([-1, 1], (n_kinds, n_bits)).astype(np.int8)
    return Recoding(signs, -np.sort(-rng.uniform(0, n_bits / 2, n_steps)), farthest)


@given(
    n=st.integers(1, 5), n_bits=st.sampled_from([1, 12, 63, 64, 65, 128]), n_kinds=st.integers(2, 4),
    n_steps=st.integers(0, 3), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40)
def test_a_code_is_that_of_its_likeliest_kind_but_for_bits_by_the_lead_of_that_kind(n, n_bits, n_kinds, n_steps, seed):
    rng = np.random.default_rng(seed)
    recoding = random_recoding(rng, n_bits, n_kinds, min(n_steps, n_bits), int(rng.integers(0, n_bits + 1)))
    outputs = rng.standard_normal((n, n_bits)).astype(np.float32)
    found = recoding.outputs(outputs)
    np.testing.assert_array_equal(np.abs(found), np.abs(outputs))
    for row, own in zip(found, outputs.tolist(), strict=True):
        agreement = [
            sum(round(np.tanh(h) * 2**15) * sign for h, sign in zip(own, signs, strict=True)) / 2**15
            for signs in recoding.signs.tolist()
        ]
        best = max(range(n_kinds), key=lambda kind: agreement[kind])
        second = sorted(agreement)[-2]
        code = recoding.signs[best].tolist()
        if sum(h * sign < 0 for h, sign in zip(own, code, strict=True)) > recoding.farthest:
            assert row.tolist() == own
            continue
        n_changed = sum(agreement[best] - second < step for step in recoding.steps)
        for bit in sorted(range(n_bits), key=lambda bit: own[bit] * recoding.signs[best][bit])[:n_changed]:
            code[bit] *= -1
        assert [1 if h >= 0 else -1 for h in row] == code


def test_outputs_of_zero_and_infinite_ones_have_the_bit_of_the_kind():
    recoding = Recoding(np.array([[-1, -1], [1, 1]], np.int8), np.empty(0), 2)
    found = recoding.outputs(np.array([[0.0, -np.inf], [-0.0, 2.0]], np.float32))
    assert Codes.from_outputs(found).unpack().tolist() == [[0, 0], [1, 1]]


def test_a_code_does_not_depend_on_the_others_beside_it():
    outputs, _ = drawn(300)
    recoding = random_recoding(np.random.default_rng(1), N_BITS, 40, 6)
    whole = recoding.outputs(outputs)
    for first, last in ((0, 1), (7, 8), (5, 290)):
        np.testing.assert_array_equal(recoding.outputs(outputs[first:last]), whole[first:last])
    assert recoding.outputs(outputs[:0]).shape == (0, N_BITS)


def test_images_that_were_not_seen_are_found_better():
    outputs, labels = drawn(400)
    recoding, before, after = find_recoding(outputs, share_a_label(labels))
    assert after > before + 0.03
    others, their_labels = drawn(1000, seed=1)
    found = [Codes.from_outputs(each) for each in (others, recoding.outputs(others))]
    maps = [
        evaluate(codes[:200], codes[200:], their_labels[:200], their_labels[200:], ks=(), ranking="hamming").map
        for codes in found
    ]
    assert maps[1] > maps[0] + 0.03


def test_codes_are_left_where_images_are_not_found_better():
    outputs, labels = drawn(100)
    clear, _ = drawn(100, noise=0.1)
    assert find_recoding(np.sign(clear), share_a_label(labels))[0] is None  # all are found already
    assert find_recoding(outputs, np.zeros((100, 100)))[0] is None  # nothing is similar
    assert find_recoding(outputs, 1 - np.eye(100))[0] is None  # all is
    assert find_recoding(outputs[:, :3], share_a_label(labels))[0] is None  # no bit to spare


def test_the_card_keeps_it_and_identical_images_are_those_of_the_same_outputs():
    outputs, labels = drawn(200)
    similar = share_a_label(labels)
    recoding, *_ = find_recoding(outputs, similar)
    fitted = calibrated(recoding.outputs(outputs), 1 / (1 + np.abs(outputs)), similar, has_labels=True)
    fitted = replace(fitted, recoding=recoding)
    results = {"outputs": outputs, "uncertainty": 1 / (1 + np.abs(outputs))}
    codes = fitted.codes(results)
    np.testing.assert_array_equal(codes.unpack(), recoding.outputs(outputs) >= 0)
    np.testing.assert_array_equal(codes.contents, Codes.from_outputs(outputs).with_contents(outputs).contents)
    card = {"n_bits": N_BITS, "calibration": json.loads(json.dumps(fitted.to_dict()))}
    np.testing.assert_array_equal(Calibration.of_card(card).codes(results).bits, codes.bits)


@pytest.mark.parametrize(
    "wrong",
    [{"signs": ["+-" * 12]}, {"signs": ["+-", "-+"]}, {"steps": [1, 2]}, {"steps": [float("nan")]}, {"signs": 3}],
)
def test_a_card_with_another_recoding_is_refused(wrong):
    values = random_recoding(np.random.default_rng(0), N_BITS).to_dict() | wrong
    outputs, labels = drawn(60)
    card = calibrated(outputs, 1 / (1 + np.abs(outputs)), share_a_label(labels), has_labels=True).to_dict()
    with pytest.raises(FormatError, match="calibration that cannot be used"):
        Calibration.of_card({"n_bits": N_BITS, "calibration": card | {"recoding": values}})


def test_a_run_is_searched_by_these_codes(tmp_path):
    vectors, labels = drawn(1200, noise=1.5)
    data = Dataset("features", vectors, labels, tuple("abcdef"))
    given = {"dataset": "features", "bits": 24, "epochs": 5, "kernel": 0, "train": 60, "query": 20, "validation": 0.4}
    runs = [
        train(configure(given, {"recode": recode}), tmp_path / recode, dataset=data, progress=False)
        for recode in ("never", "auto")
    ]
    cards = [run.load_model().metadata["calibration"] for run in runs]
    assert ["recoding" in card for card in cards] == [False, True]
    by_signs, by_kinds = (evaluate_run(run, data) for run in runs)
    assert by_kinds.metrics.map > by_signs.metrics.map + 0.005
    recoding = Calibration.of_card(runs[1].load_model().metadata).recoding
    assert (by_kinds.query.bits != by_signs.query.bits).any()
    hasher = Hasher.load(runs[1].path)
    again = hasher.encode(data.take(by_kinds.query.ids), ids=by_kinds.query.ids)
    np.testing.assert_array_equal(again.bits, by_kinds.query.bits)
    assert len(recoding.signs) == 6
