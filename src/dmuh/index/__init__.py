"""Indexes over binary codes: exact search in this process, and the same by Milvus."""

from dmuh.index.base import Index, Matches, Neighbourhoods, Searchable
from dmuh.index.hamming import HammingIndex
from dmuh.index.milvus import MilvusIndex
from dmuh.index.shuffle import shuffled, turns
from dmuh.index.soft import Ranking

__all__ = [
    "HammingIndex",
    "Index",
    "Matches",
    "MilvusIndex",
    "Neighbourhoods",
    "Ranking",
    "Searchable",
    "shuffled",
    "turns",
]
