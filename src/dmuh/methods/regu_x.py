"""Regu-x: DMUH-x without uncertainty."""

from dataclasses import dataclass

from dmuh.methods.images_and_texts import OneCode, within_setting
from dmuh.methods.regu import Regu, ReguOptions


@dataclass(frozen=True)
class ReguXOptions(ReguOptions):
    """Options of regu-x."""

    within: float = within_setting()


class ReguX(OneCode, Regu):
    """Eq. 2 over the images and texts of a batch: pairwise likelihood and quantisation, all items alike.

    L = Σ_ab Σ_ij (softplus Θ^ab_ij - S_ij·Θ^ab_ij) + β·Σ_a Σ_i ‖h^a_i - b_i‖² for a and b images and texts, and one
    code b_i = sign(h^x_i + h^y_i) for an image and its text.
    """

    Options = ReguXOptions
    title = "dmuh-x without uncertainty"
    paper = "after Fu et al., Deep Momentum Uncertainty Hashing, Eq. 2"
    year = 2026
    presets = {}
