"""DMUH-x: DMUH for images and texts in one Hamming space, which the paper announces; and DMUH-plus-x."""

from dataclasses import dataclass

from dmuh.methods.dmuh import DMUH, DMUHOptions
from dmuh.methods.dmuh_plus import DMUHPlus, DMUHPlusOptions
from dmuh.methods.images_and_texts import OneCode, Stacked, within_setting


@dataclass(frozen=True)
class DMUHXOptions(DMUHOptions):
    """Options of dmuh-x."""

    within: float = within_setting()


@dataclass(frozen=True)
class DMUHPlusXOptions(DMUHPlusOptions):
    """Options of dmuh-plus-x."""

    within: float = within_setting()


class DMUHX(OneCode, DMUH):
    """Eq. 8 over the images and texts of a batch.

    The image network gives h^x, its momentum copy m^x, the text network h^y and its own copy m^y. As in Eq. 4 and 5,
    u^a_i = |h^a_i - m^a_i| for a = x, y, and ū^a_i is its mean over the bits: an image is as unsure as the image
    network and its copy disagree, a text as the text network and its copy do. With Θ^ab_ij = ½·h^a_iᵀh^b_j and S_ij = 1
    where pairs i and j share a label, so that the likelihood of Eq. 1 holds for an image and a text as for two images,

        L = Σ_ab Σ_ij e^(ū^a_i + ū^b_j)·(softplus Θ^ab_ij - S_ij·Θ^ab_ij)
          + β·Σ_a Σ_ik e^(u^a_ik)·(h^a_ik - b_ik)² + γ·Σ_a Σ_ik u^a_ik

    a and b are x and y, so that the first sum has image–image, text–text and, twice, image–text pairs; an image and its
    own text are one of these. An image and its text shall get one code, so both are drawn to b_i = sign(h^x_i + h^y_i);
    else this is Eq. 8 over 2·B items. Its options are DMUH's, and `within`, the weight of image–image and text–text
    pairs.
    """

    Options = DMUHXOptions
    title = "dmuh for images and texts: words find images, images find words"
    paper = "after Fu et al., Deep Momentum Uncertainty Hashing, which announces it"
    year = 2026
    presets = {}


class DMUHPlusX(Stacked, DMUHPlus):
    """DMUH-plus over the images and texts of a batch: Eq. 8, and terms by which the labels can be read from a code.

    The decoder W is one for both: the labels are read from an image's code and from a text's by the same map, and the
    hash centres of classes are the same, which says where in the space both belong.
    """

    Options = DMUHPlusXOptions
    title = "dmuh-x, and terms by which the labels can be read from a code"
    defaults = {}
    paper = "ours, after Fu et al., Shen et al. (SDH) and Yuan et al. (CSQ)"
    year = 2026
