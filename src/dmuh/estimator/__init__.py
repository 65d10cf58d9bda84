"""Every method behind scikit-learn's interface, for people with features of images, or of images and texts."""

from dmuh.estimator.cross_modal import CrossModalHashing
from dmuh.estimator.hashing import OPTIONS, Hashing, options_of

__all__ = ["OPTIONS", "CrossModalHashing", "Hashing", "options_of"]
