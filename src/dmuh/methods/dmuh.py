"""DMUH, Deep Momentum Uncertainty Hashing (paper, Eq. 3-8), and its three ablations."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dmuh.config import setting
from dmuh.methods.base import (
    Objective,
    TrainBatch,
    beta_setting,
    negative_log_likelihood,
    normalization_setting,
    scales,
    similar_weight_setting,
)
from dmuh.methods.regu import PAPER_TRAINING


def gamma_setting() -> Any:
    """Declare γ, the weight of the uncertainty term."""
    return setting(0.01, "weight of the uncertainty term", low=0)


@dataclass(frozen=True)
class SharedOptions:
    """Options of DMUH and of all its ablations."""

    alpha: float = setting(0.7, "momentum coefficient of the copy", low=0, below=1)
    copy_update: str = setting("step", "when the copy takes up the weights: after each step, or once an epoch",
                               choices=("step", "epoch"))  # fmt: skip
    shared_mask: bool = setting(False, "dropout gives the copy the network's masks instead of its own")
    beta: float = beta_setting(0.3)
    normalization: str = normalization_setting()
    similar_weight: float = similar_weight_setting()
    detach: bool = setting(True, "no gradient flows through the weights e^u")


@dataclass(frozen=True)
class WithoutGamma(SharedOptions):
    """Options of DMUH without the third term."""

    quantization_weights: str = setting(
        "bits",
        "what e^u weighs in the quantisation term: the error of each bit by its own, or the norm, an image's whole "
        "error, by the mean over its bits",
        choices=("bits", "norm"),
    )


@dataclass(frozen=True)
class WithoutBits(SharedOptions):
    """Options of DMUH without weights of bits."""

    gamma: float = gamma_setting()


@dataclass(frozen=True)
class DMUHOptions(WithoutGamma):
    """Options of DMUH."""

    gamma: float = gamma_setting()


class DMUH(Objective):
    """Pairwise likelihood and quantisation, weighed by the uncertainty of images and bits (Eq. 8).

    With u_i = |h_i - m_i| per bit (Eq. 4) and ū_i its mean (Eq. 5),

        L = Σ_ij e^(ū_i+ū_j)·(softplus Θ_ij - S_ij·Θ_ij) + β·Σ_ik e^(u_ik)·(h_ik - b_ik)² + γ·Σ_ik u_ik

    over all B² pairs of the batch, i = j included; `similar_weight`, which is ours, weighs them. The third term always
    has its gradient. What the paper leaves open are options: how the sums are normalised (`normalization`), whether
    gradient flows through the weights (`detach`), whether the copy follows after each step or each epoch
    (`copy_update`), and whether e^(u_i) in β·Σ_i e^(u_i)·‖h_i - b_i‖², a vector before a number, weighs bit by bit as
    above or the whole norm (`quantization_weights`): β·Σ_i (Σ_k e^(u_ik) / n_bits)·‖h_i - b_i‖².
    """

    Options: ClassVar[type[SharedOptions]] = DMUHOptions
    title = "deep momentum uncertainty hashing"
    paper = "Fu et al., Deep Momentum Uncertainty Hashing"
    year = 2022
    presets = {"paper": {**PAPER_TRAINING, "alpha": 0.7, "gamma": 1.0, "detach": True}}
    advice = "lower beta or lr"
    weigh_images: ClassVar[bool] = True
    weigh_bits: ClassVar[bool] = True
    minimise_uncertainty: ClassVar[bool] = True

    @property
    def alpha(self) -> float:
        """The momentum copy's coefficient (Eq. 3)."""
        return float(self.options.alpha)

    @property
    def copy_update(self) -> str:
        """When the momentum copy takes up the weights."""
        return str(self.options.copy_update)

    @property
    def shared_mask(self) -> bool:
        """Whether the copy has the network's masks."""
        return bool(self.options.shared_mask)

    def forward(self, outputs: Tensor, batch: TrainBatch) -> dict[str, Tensor]:
        """Return the terms `similarity`, `quantization` and, but for dmuh-no-u, `uncertainty`."""
        u = uncertainty_of(outputs, batch)
        return self.terms(outputs, batch.similarity, u, u.detach() if self.options.detach else u)

    def terms(self, outputs: Tensor, similarity: Tensor, u: Tensor, weight: Tensor) -> dict[str, Tensor]:
        """Return the terms for outputs (B, n_bits), S (B, B), u (B, n_bits) and the u that stands in the weights."""
        pair, element = scales(self.options.normalization, len(outputs), self.n_bits, self.n_train)
        likelihood = negative_log_likelihood(outputs, similarity)  # (B, B)
        likelihood = likelihood * self.pair_weights(similarity)
        if self.weigh_images:
            image = weight.mean(dim=1)
            likelihood = torch.exp(image[:, None] + image[None, :]) * likelihood
        error = (outputs - self.target_codes(outputs)) ** 2  # (B, n_bits)
        if self.weigh_bits:
            by_norm = self.options.quantization_weights == "norm"
            error = (torch.exp(weight).mean(dim=1, keepdim=True) if by_norm else torch.exp(weight)) * error
        terms = {
            "similarity": pair * likelihood.sum(),
            "quantization": element * self.options.beta * error.sum(),
        }
        if self.minimise_uncertainty:
            terms["uncertainty"] = element * self.options.gamma * u.sum()
        return terms

    def notes(self, outputs: Tensor, batch: TrainBatch) -> dict[str, float]:
        """Return the means of e^(ū_i+ū_j) over the pairs and of e^(u_ik) over the bits, weighed by or not."""
        u = uncertainty_of(outputs, batch)
        return {
            "mean_pair_weight": torch.exp(u.mean(dim=1)).mean().item() ** 2,
            "mean_bit_weight": torch.exp(u).mean().item(),
        }


def uncertainty_of(outputs: Tensor, batch: TrainBatch) -> Tensor:
    """Return u = |h - m| (B, n_bits), Eq. 4."""
    assert batch.momentum_outputs is not None, "the loop gives momentum outputs to a method with an alpha"
    return (outputs - batch.momentum_outputs).abs()


class DMUHNoU(DMUH):
    """DMUH without the third term: the uncertainty weighs but is not minimised."""

    Options = WithoutGamma
    minimise_uncertainty = False
    title = "ablation of dmuh: uncertainty is not minimised"
    presets = {"paper": {**PAPER_TRAINING, "alpha": 0.7, "detach": True}}


class DMUHNoBit(DMUH):
    """DMUH with e^(u_i) → 1 in the second term: all bits weigh alike."""

    Options = WithoutBits
    title = "ablation of dmuh: all bits weigh alike"
    weigh_bits = False


class DMUHNoImage(DMUH):
    """DMUH with e^(ū_i+ū_j) → 1 in the first term: all images weigh alike."""

    title = "ablation of dmuh: all images weigh alike"
    weigh_images = False
