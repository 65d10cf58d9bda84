"""SDH: each step lowers the objective, and the kernel map fits the codes."""

import numpy as np
import pytest
import torch
from clusters import clusters, falls, random_signs

from dmuh.methods.sdh import SDH


@pytest.mark.parametrize("n_bits", [1, 2, 5, 12])
@pytest.mark.parametrize("penalty", [1e-5, 0.1, 10.0])
def test_codes_never_raise_the_objective(n_bits, penalty):
    """Losses come in pairs: after the classifier's step, and after the codes'."""
    x, y = clusters(100)
    method = SDH(n_bits, anchors=20, penalty=penalty, rounds=5).fit(x, y)
    assert len(method.losses_) == 10
    for after_classifier, after_codes in zip(method.losses_[::2], method.losses_[1::2], strict=True):
        assert after_codes <= after_classifier * (1 + 1e-9)


@pytest.mark.parametrize("n_bits", [2, 12])
def test_the_objective_falls_from_round_to_round(n_bits):
    """With this ν the map's step, whose ridge is not in the objective, is too small to count."""
    losses = SDH(n_bits, anchors=20, rounds=5).fit(*clusters(100)).losses_
    assert falls(losses, 1e-6)
    assert losses[-1] < 0.8 * losses[0]


def test_the_objective_is_that_of_a_plain_loop():
    rng = np.random.default_rng(0)
    codes, labels, weight, outputs = random_signs(rng, 4, 3), rng.random((4, 2)), rng.random((3, 2)), rng.random((4, 3))
    expected = 0.5 * sum(w * w for w in weight.flat)
    for i in range(4):
        for c in range(2):
            expected += (labels[i, c] - sum(codes[i, k] * weight[k, c] for k in range(3))) ** 2
        expected += 0.25 * sum((codes[i, k] - outputs[i, k]) ** 2 for k in range(3))
    given = (torch.from_numpy(array) for array in (codes, labels, weight, outputs))
    assert SDH(3, classifier=0.5, penalty=0.25)._loss(*given) == pytest.approx(expected)


def test_the_map_gives_the_codes_where_every_image_is_an_anchor():
    """Then what it gives for the training images are the codes, which the classes' own classifier reads."""
    x, y = clusters(60)
    method = SDH(6, rounds=5).fit(x, y)
    codes = np.where(method.project(x) >= 0, 1.0, -1.0)
    labels = np.eye(3)[y]
    weight = np.linalg.solve(codes.T @ codes + np.eye(6), codes.T @ labels)
    loss = ((labels - codes @ weight) ** 2).sum() + (weight**2).sum()
    assert loss == pytest.approx(method.losses_[-1], rel=0.01)


def test_anchors_are_training_images_of_length_one_and_the_width_their_mean_squared_distance():
    x, y = clusters(50)
    head = SDH(4, anchors=12).fit(x, y).head_
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    squares = ((unit[:, None] - head.anchors.numpy()[None]) ** 2).sum(axis=2)  # (50, 12)
    assert (squares.min(axis=0) < 1e-10).all()
    assert len(set(squares.argmin(axis=0).tolist())) == 12
    between = ((head.anchors[:, None] - head.anchors[None]) ** 2).sum(dim=2)
    assert head.width.item() == pytest.approx(between.mean().item(), rel=1e-4)


def test_there_are_no_more_anchors_than_images():
    x, y = clusters(30)
    assert SDH(4).fit(x, y).head_.anchors.shape == (30, 16)


def test_the_scale_of_a_vector_does_not_change_its_code():
    x, y = clusters(60)
    method = SDH(8, anchors=20).fit(x, y)
    np.testing.assert_allclose(method.project(3 * x), method.project(x), rtol=1e-3, atol=1e-4)
