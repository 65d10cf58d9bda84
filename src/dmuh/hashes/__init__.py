"""Hashes that another program computed, such as pHash and PDQ: searched and served as codes are, without a model.

values.py    a hash as bytes, of hexadecimal digits, bytes or a whole number
tables.py    HashTable: a CSV or Parquet file of hashes
indexing.py  index_hashes: such a file becomes a collection
model.py     HashModel, which stands in for the model that such a collection does not have
"""

from dmuh.hashes.indexing import index_hashes
from dmuh.hashes.model import HashModel, hash_name
from dmuh.hashes.tables import HashColumns, HashTable

__all__ = ["HashColumns", "HashModel", "HashTable", "hash_name", "index_hashes"]
