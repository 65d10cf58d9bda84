"""Duplicates: exact and near ones, found by features and small pictures, in groups with the best of each named.

codes.py     codes of features and pictures, by which pairs are found that are worth a closer look
windows.py   parts of a picture, and how it looks tilted, turned and mirrored
pairs.py     compare: pairs of images and how alike they are; kernels.py and plain.py do the work
about.py     size, date and sharpness of a file
groups.py    Group: images with the best of them, and why it is the best
finding.py   find_groups in a folder, find_matches between two
moving.py    moving duplicates away, by a journal that takes them back
"""

from dmuh.duplicates.finding import Match, find_groups, find_matches
from dmuh.duplicates.groups import Group, Member, in_bytes
from dmuh.duplicates.moving import Move, Moved, move, plan_moves, undo
from dmuh.duplicates.pairs import AT_LEAST, Compared, Looks, compare, confirm, near_features

__all__ = [
    "AT_LEAST",
    "Compared",
    "Group",
    "Looks",
    "Match",
    "Member",
    "Move",
    "Moved",
    "compare",
    "confirm",
    "find_groups",
    "find_matches",
    "in_bytes",
    "move",
    "near_features",
    "plan_moves",
    "undo",
]
