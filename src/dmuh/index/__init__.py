"""Indexes over binary codes: exact Hamming search."""

from dmuh.index.hamming import HammingIndex, Matches, Neighbourhoods

__all__ = ["HammingIndex", "Matches", "Neighbourhoods"]
