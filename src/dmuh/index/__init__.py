"""Indexes over binary codes: exact Hamming search in this process, and the same by Milvus."""

from dmuh.index.hamming import HammingIndex, Matches, Neighbourhoods
from dmuh.index.milvus import MilvusIndex

__all__ = ["HammingIndex", "Matches", "MilvusIndex", "Neighbourhoods"]
