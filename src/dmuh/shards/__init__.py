"""Codes in shards: what is encoded (`sources`), the folder they are in (`folder`), and Ray to make them (`cluster`)."""

from dmuh.shards.folder import Manifest, Shards, encode_shard, own_shards, parse_shard

__all__ = ["Manifest", "Shards", "encode_shard", "own_shards", "parse_shard"]
