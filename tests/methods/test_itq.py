"""ITQ: the rotation, and the loss that it lowers."""

import numpy as np
import pytest
from clusters import clusters, falls
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.errors import InputError
from dmuh.methods.itq import ITQ


@settings(deadline=None, max_examples=25)
@given(n=st.integers(8, 60), n_bits=st.sampled_from([1, 2, 5, 12]), seed=st.integers(0, 2**16))
def test_the_quantisation_loss_never_rises(n, n_bits, seed):
    x, _ = clusters(n, 12, seed=seed)
    method = ITQ(n_bits, iterations=20, seed=seed).fit(x)
    assert len(method.losses_) == 20
    assert falls(method.losses_)
    outputs = method.project(x).astype(float)
    codes = np.where(outputs >= 0, 1, -1)
    assert ((codes - outputs) ** 2).sum() <= method.losses_[-1] * (1 + 1e-4)  # the next step's codes


def test_the_quantisation_loss_falls():
    losses = ITQ(8).fit(clusters(200)[0]).losses_
    assert len(losses) == 50
    assert losses[-1] < 0.98 * losses[0]


@pytest.mark.parametrize("n_bits", [1, 5, 16])
@pytest.mark.parametrize("iterations", [1, 7])
def test_outputs_are_a_rotation_of_the_first_principal_components(n_bits, iterations):
    x, _ = clusters(80)
    method = ITQ(n_bits, iterations).fit(x)
    weight = method.head_.weight.double().numpy()
    np.testing.assert_allclose(weight @ weight.T, np.eye(n_bits), atol=1e-5)
    outputs = method.project(x).astype(float)
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-4)
    centred = x - x.mean(axis=0, dtype=float)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    assert (outputs**2).sum() == pytest.approx((sizes[:n_bits] ** 2).sum(), rel=1e-4)
    inside = axes[:n_bits].T @ axes[:n_bits]  # nothing of a weight lies outside the first axes
    np.testing.assert_allclose(weight @ inside, weight, atol=1e-4)


def test_the_rotation_is_the_best_for_the_last_codes():
    """Against B = sign(V·R) of the step before, no other rotation gives a lower loss: BᵀV·R is symmetric, positive."""
    x, _ = clusters(60)
    before, after = (ITQ(6, iterations).fit(x).project(x).astype(float) for iterations in (6, 7))
    codes = np.where(before >= 0, 1.0, -1.0)
    product = codes.T @ after
    np.testing.assert_allclose(product, product.T, rtol=1e-3, atol=1e-2)
    assert np.linalg.eigvalsh((product + product.T) / 2).min() > 0


def test_labels_say_nothing():
    x, y = clusters()
    outputs = [ITQ(8).fit(x, labels).project(x) for labels in (None, y, y[::-1])]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


def test_the_seed_is_that_of_the_first_rotation():
    x, _ = clusters()
    first, same, other = (ITQ(8, iterations=2, seed=seed).fit(x).project(x) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)


def test_more_bits_than_features_are_refused():
    x, _ = clusters(width=7)
    with pytest.raises(InputError, match=r"at most as many bits as there are features \(7\), got n_bits=8"):
        ITQ(8).fit(x)
