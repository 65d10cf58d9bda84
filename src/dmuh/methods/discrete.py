"""Discrete steps that several methods share: bits that are solved for, not rounded. Codes are ±1 float tensors."""

import torch
from torch import Tensor


def cyclic_descent(codes: Tensor, target: Tensor, classifier: Tensor, sweeps: int) -> Tensor:
    """Return codes B (N, n_bits) of lower ‖Y - B·W‖² - 2·tr(B·Qᵀ), bit by bit (Shen et al. 2015, Eq. 10).

    `target` is P = Y·Wᵀ + Q (N, n_bits), `classifier` W (n_bits, classes). With all other bits fixed, the best bit k is
    sign(p_k - B'·W'·w_k); a bit that makes no difference is kept. It ends when a sweep changes nothing.
    """
    codes = codes.clone()
    gram = classifier @ classifier.T  # (n_bits, n_bits)
    for _ in range(sweeps):
        changed = False
        for k in range(codes.shape[1]):
            others = codes @ gram[:, k] - codes[:, k] * gram[k, k]
            preferred = target[:, k] - others
            bit = torch.where(preferred == 0, codes[:, k], preferred.sign())
            changed = changed or not torch.equal(bit, codes[:, k])
            codes[:, k] = bit
        if not changed:
            break
    return codes


def dissimilarity(shared: Tensor) -> Tensor:
    """Return r = #similar / #dissimilar of the pairs `shared` (N, |Ω|) 0/1: with S = -r both kinds weigh alike."""
    n_similar = shared.sum()
    return n_similar / (shared.numel() - n_similar).clamp_min(1)


def sampled_columns(codes: Tensor, similarity: Tensor, chosen: Tensor) -> Tensor:
    """Return codes (|Ω|, n_bits) of the chosen images Ω that fit the similarity, those of all others fixed.

    Of min ‖n_bits·S - B·B_Ωᵀ‖² over the columns Ω (Kang, Li and Zhou 2016, Eq. 5), `codes` is B (N, n_bits), whose rows
    Ω are not looked at, `similarity` S (N, |Ω|), `chosen` Ω (|Ω|,). Bit by bit, the residual that the bits before it
    leave is explained by this one alone: ‖R - b_k·bᵀ‖² with R = n_bits·S - Σ_{j<k} b_j·b_jᵀ is a binary quadratic
    problem min bᵀQb + pᵀb, Q from the pairs within Ω and p from those with the rest, which is solved as a clustering
    of Ω into two halves (`balanced_clusters`).

    The halves matter as much as the residual. Of a bit that most of Ω share, all images whose class is not in Ω would
    be given the opposite, whatever they are; of a balanced one they keep theirs.
    """
    n_bits = codes.shape[1]
    outside = torch.ones(len(codes), dtype=torch.bool, device=codes.device)
    outside[chosen] = False
    rest, wanted = codes[outside], n_bits * similarity[outside]  # (N - m, n_bits), (N - m, m)
    among = n_bits * similarity[chosen]  # (m, m)
    products = rest.T @ rest  # (n_bits, n_bits)
    preferred = rest.T @ wanted  # (n_bits, m)
    inside = torch.zeros(len(chosen), n_bits, dtype=codes.dtype, device=codes.device)
    for k in range(n_bits):
        before = inside[:, :k]
        residual = among - before @ before.T
        linear = -2 * (preferred[k] - before @ products[:k, k])
        inside[:, k] = balanced_clusters(-(residual + residual.T), linear)
    return inside


def balanced_clusters(quadratic: Tensor, linear: Tensor) -> Tensor:
    """Return b in ±1 (m,) with a low bᵀQb + pᵀb, half of it +1 and half -1; Q (m, m) symmetric.

    The linear part alone is solved by its smaller half; from there the pair of opposite signs whose exchange lowers
    the sum most is exchanged, until none does. Of an odd m, one more has the sign that the linear part prefers.
    """
    m = len(linear)
    order = torch.argsort(linear, stable=True)
    n_positive = m // 2 + (m % 2) * int(linear[order[m // 2]] < 0)
    bits = -torch.ones_like(linear)
    bits[order[:n_positive]] = 1
    field = 2 * quadratic @ bits + linear  # the slope at b
    diagonal = quadratic.diagonal()
    for _ in range(20 * m):
        up, down = torch.nonzero(bits > 0)[:, 0], torch.nonzero(bits < 0)[:, 0]
        if not len(up) or not len(down):
            break
        own = 4 * diagonal
        change = (own - 2 * field)[up][:, None] + (own + 2 * field)[down][None, :] - 8 * quadratic[up][:, down]
        best = int(change.argmin())
        i, j = up[best // len(down)], down[best % len(down)]
        if change.view(-1)[best] >= -1e-6 * (1 + field.abs().max()):
            break
        field += 4 * (quadratic[:, j] - quadratic[:, i])
        bits[i], bits[j] = -1, 1
    return bits
