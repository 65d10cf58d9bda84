"""Curves that never fall, against scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from dmuh.trainer.isotonic import rising_curve


@given(
    n=st.integers(1, 60),
    different=st.integers(1, 60),
    kind=st.sampled_from(["0 and 1", "any", "rising", "falling"]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=150)
def test_it_is_that_of_scikit_learn(n, different, kind, weighted, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, different, n) / 7
    steps = {"rising": 1.0, "falling": -1.0}.get(kind, 0.0)
    y = (rng.random(n) < 0.5) * 1.0 if kind == "0 and 1" else rng.random(n) + steps * x
    weights = rng.integers(1, 9, n).astype(float) if weighted else None
    found = rising_curve(x, y, weights)
    expected = IsotonicRegression(out_of_bounds="clip").fit(x, y, sample_weight=weights)
    at = np.linspace(-1, different / 7 + 1, 300)
    np.testing.assert_allclose(found(at), expected.predict(at), rtol=1e-12, atol=1e-12)
    assert (np.diff(found.probability) >= 0).all()


def test_many_points_that_all_fall_are_one_pool():
    found = rising_curve(np.arange(100_000), -np.arange(100_000.0))
    assert found.probability.tolist() == pytest.approx([-49_999.5] * 100_000)
