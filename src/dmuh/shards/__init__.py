"""Codes in shards, which many processes and machines make.

sources/      what is encoded: data sets, tar files, Parquet lists
folder.py     Shards: the folder of shards, which reads them and merges them into a collection
encoding.py   encode_shard, and which shards a process encodes
cluster.py    encoding by Ray
"""

from dmuh.shards.encoding import assigned_shards, encode_shard, parse_shard
from dmuh.shards.folder import Manifest, Shards

__all__ = ["Manifest", "Shards", "assigned_shards", "encode_shard", "parse_shard"]
