"""Hashing: every method behind scikit-learn's interface, for people with a matrix of features."""

from dmuh.estimator.hashing import OPTIONS, Hashing, options_of

__all__ = ["OPTIONS", "Hashing", "options_of"]
