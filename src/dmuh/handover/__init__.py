"""Codes for other engines: FAISS, pgvector, Parquet and numpy, written as a stream.

sources.py        CodeSource: the codes of a folder or file with what is known of their images, some at a time
formats.py        hand_over, and the table of what it writes
faiss_file.py     a binary index of FAISS
pgvector.py       an SQL script with a table, its rows and its index
parquet_table.py  a Parquet file, which can be indexed again
numpy_file.py     an .npz file
"""

from dmuh.handover.formats import FORMATS, HandedOver, default_file, hand_over
from dmuh.handover.parquet_table import is_handed_over
from dmuh.handover.sources import CodeSource, index_again, open_source

__all__ = [
    "FORMATS",
    "CodeSource",
    "HandedOver",
    "default_file",
    "hand_over",
    "index_again",
    "is_handed_over",
    "open_source",
]
