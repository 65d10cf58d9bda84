"""The map of a collection: every image at a place of two dimensions, those with similar codes beside each other.

layout.py           from codes to places
collection_map.py   CollectionMap: places that are computed in a process of their own, and kept
"""
