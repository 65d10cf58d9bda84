"""Indexes over binary codes: exact Hamming search in this process, and the same by Milvus."""

from dmuh.index.base import Index, Matches, Neighbourhoods, Searchable
from dmuh.index.hamming import HammingIndex
from dmuh.index.milvus import MilvusIndex

__all__ = ["HammingIndex", "Index", "Matches", "MilvusIndex", "Neighbourhoods", "Searchable"]
