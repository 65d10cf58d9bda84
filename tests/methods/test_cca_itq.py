"""CCA-ITQ and SCM, fitted to images and texts at once, against what their formulas say."""

import numpy as np
import pytest
import torch

from dmuh.errors import InputError
from dmuh.methods.cca_itq import CCAITQ, CCAITQOptions
from dmuh.methods.scm import SCM, SCMOptions


def two_views(n: int = 200, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of images (n, 9) and texts (n, 7) that share three hidden causes, and the classes of the strongest."""
    generator = torch.Generator().manual_seed(seed)
    causes = torch.randn(n, 3, generator=generator)
    mixing = [torch.randn(3, width, generator=generator) for width in (9, 7)]
    images, texts = (causes @ mix + 0.3 * torch.randn(n, mix.shape[1], generator=generator) for mix in mixing)
    labels = torch.nn.functional.one_hot(causes.abs().argmax(dim=1) * 2 + (causes.gather(
        1, causes.abs().argmax(dim=1)[:, None])[:, 0] > 0).long(), 6).float()  # fmt: skip
    return 5 * images + 2, texts - 1, labels


def fitted(method, options, n_bits: int, seed: int = 0):
    images, texts, labels = two_views()
    return method(options, n_bits, seed).fit(images, texts, labels), images, texts, labels


def test_an_image_and_its_text_get_nearly_the_same_code():
    for method, options in ((CCAITQ, CCAITQOptions()), (SCM, SCMOptions())):
        found, images, texts, _ = fitted(method, options, 3)
        agree = ((found.image_head_(images) >= 0) == (found.text_head_(texts) >= 0)).float().mean()
        assert agree > 0.85, method


def test_the_directions_are_those_of_highest_correlation():
    """Without a rotation to speak of, one bit is the first canonical pair: nothing correlates more."""
    found, images, texts, _ = fitted(CCAITQ, CCAITQOptions(ridge=1e-6), 1)
    projected = [found.image_head_(images)[:, 0], found.text_head_(texts)[:, 0]]
    best = abs(np.corrcoef(*(p.detach().numpy() for p in projected))[0, 1])
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        tries = [view @ torch.randn(view.shape[1], generator=generator) for view in (images, texts)]
        assert abs(np.corrcoef(*(p.numpy() for p in tries))[0, 1]) <= best + 1e-6


def test_the_rotation_lowers_the_quantisation_error():
    def error(iterations: int) -> float:
        found, images, texts, _ = fitted(CCAITQ, CCAITQOptions(iterations=iterations), 3)
        outputs = torch.cat([found.image_head_(images), found.text_head_(texts)])
        return float(((torch.where(outputs >= 0, 1.0, -1.0) - outputs) ** 2).sum())

    assert error(50) <= error(1) + 1e-4


def test_each_bit_of_scm_maximises_what_the_bits_before_left():
    """The first bit against a plain residual (N, N), and the second after the first one's products are taken off."""
    n_bits = 2
    found, images, texts, labels = fitted(SCM, SCMOptions(ridge=0.1), n_bits)
    x, y = (
        (view.double() - view.double().mean(0)) / (view.double().std(0, correction=0) + 1e-6)
        for view in (images, texts)
    )
    unit = torch.nn.functional.normalize(labels.double(), dim=1)
    residual = n_bits * (2 * unit @ unit.T - 1)
    for bit in range(n_bits):
        c_xx, c_yy = (v.T @ v / len(v) + 0.1 * torch.eye(v.shape[1], dtype=torch.float64) for v in (x, y))
        roots = [torch.linalg.inv(torch.linalg.cholesky(c)) for c in (c_xx, c_yy)]
        best = torch.linalg.svdvals(roots[0] @ (x.T @ residual @ y) @ roots[1].T)[0]
        w, v = (
            (head.weight[bit].double() * (view.double().std(0, correction=0) + 1e-6))
            for head, view in ((found.image_head_, images), (found.text_head_, texts))
        )
        reached = w @ x.T @ residual @ y @ v / ((w @ c_xx @ w).sqrt() * (v @ c_yy @ v).sqrt())
        assert float(reached) == pytest.approx(float(best), rel=1e-3)
        signs = [torch.where(view @ own >= 0, 1.0, -1.0).double() for view, own in ((x, w), (y, v))]
        residual = residual - torch.outer(*signs)


def test_the_seed_decides():
    codes = [fitted(CCAITQ, CCAITQOptions(), 3, seed)[0].image_head_.weight for seed in (0, 0, 1)]
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])


def test_more_bits_than_features_are_refused():
    with pytest.raises(InputError, match=r"at most as many bits as there are features, of images 9 and of texts 7"):
        fitted(CCAITQ, CCAITQOptions(), 8)
