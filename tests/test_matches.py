"""The results of a search, as Python, pandas and a notebook see them."""

import html
import os
import re
import sys

import numpy as np
import pytest
from PIL import Image

from dmuh import Dataset, Matches, show_matches
from dmuh.errors import InputError, MissingPackageError
from extras import needs

MATCHES = Matches(np.array([[0, 3, 4], [1, 1, 9]], np.int32), np.array([[5, 2, 7], [0, 3, 1]]))


def test_matches_are_indexed_and_iterated_over_by_query():
    assert len(MATCHES) == 2
    assert MATCHES[1].ids.tolist() == [[0, 3, 1]]
    assert MATCHES[-1].distances.tolist() == [[1, 1, 9]]
    assert MATCHES[np.array([False, True])].ids.tolist() == MATCHES[1:].ids.tolist() == [[0, 3, 1]]
    assert [one.ids.tolist() for one in MATCHES] == [[[5, 2, 7]], [[0, 3, 1]]]
    with pytest.raises(IndexError):
        MATCHES[2]


def test_the_repr_counts_queries_and_nearest():
    assert repr(MATCHES) == "Matches(2 queries × 3 nearest)"
    assert repr(MATCHES[0]) == "Matches(1 query × 3 nearest)"


def test_a_table_has_one_row_per_match(monkeypatch):
    needs("pandas", "dev")
    table = MATCHES.to_pandas()
    assert table.to_dict("list") == {
        "query": [0, 0, 0, 1, 1, 1],
        "rank": [1, 2, 3, 1, 2, 3],
        "id": [5, 2, 7, 0, 3, 1],
        "distance": [0, 3, 4, 1, 1, 9],
    }
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match="pip install pandas"):
        MATCHES.to_pandas()


def test_a_notebook_shows_ids_and_distances():
    shown = MATCHES._repr_html_()
    assert shown.count("<tr>") == 3
    assert "<td>7<br><small>4</small></td>" in shown
    soft = Matches(np.array([[3.4333334, 12.0]], np.float32), np.array([[7, 5]]))
    assert "<td>7<br><small>3.4</small></td><td>5<br><small>12.0</small></td>" in soft._repr_html_()
    many = Matches(np.zeros((1000, 50), np.int32), np.tile(np.arange(50), (1000, 1)))
    assert many._repr_html_().count("<tr>") == 21
    assert many._repr_html_().count("<td>") == 200
    empty = Matches(np.empty((2, 0), np.int32), np.empty((2, 0), np.int64))
    assert empty._repr_html_().count("<tr>") == 3


@pytest.fixture
def pictures(tmp_path):
    """Eight files whose names would be HTML."""
    paths = [tmp_path / f"<b>{n}&.png" for n in range(8)]
    for n, path in enumerate(paths):
        Image.new("RGB", (4, 4), (n * 30, 0, 0)).save(path)
    return paths


def names(view) -> list[str]:
    return re.findall(r"(\d)&amp;\.png", view._repr_html_())


@pytest.mark.parametrize("kind", ["list", "dict", "dataset"])
def test_pictures_are_shown_in_order_with_their_names(pictures, kind):
    images = {
        "list": pictures,
        "dict": dict(enumerate(pictures)),
        "dataset": Dataset("images", pictures, np.zeros((8, 0), np.uint8), ()),
    }[kind]
    shown = show_matches(MATCHES, images)
    assert names(shown) == list("527031")
    assert names(show_matches(MATCHES, images, queries=pictures[3:5])) == list("35274031")
    assert "<b>" not in shown._repr_html_()
    assert html.escape(pictures[5].name) in shown._repr_html_()
    assert shown._repr_html_().count("<img ") == 6
    assert repr(shown).startswith("Matches(2 queries × 3 nearest)")


def test_pictures_may_be_arrays_and_some_may_be_missing():
    arrays = np.zeros((6, 4, 4, 3), np.uint8)
    shown = show_matches(MATCHES, arrays)._repr_html_()
    assert shown.count("<img ") == 5  # there is no image 7
    assert "7, distance 4" in shown
    soft = Matches(np.array([[3.4333334]], np.float32), np.array([[5]]))
    assert "5, distance 3.4" in show_matches(soft, arrays)._repr_html_()


def test_names_that_are_no_unicode_are_shown():
    path = os.fsdecode(b"\xff.png")
    assert "<br>?.png" in show_matches(MATCHES, {5: path})._repr_html_()


def test_as_many_queries_are_shown_as_asked_for_in_the_size_asked_for(pictures):
    one = show_matches(MATCHES, pictures, most=1)._repr_html_()
    assert one.count("<img ") == 3
    assert "and 1 more queries" in one
    assert "width:40px" in show_matches(MATCHES, pictures, side=40)._repr_html_()
    with pytest.raises(InputError, match="most and side must be at least 1, got 0 and 96"):
        show_matches(MATCHES, pictures, most=0)
