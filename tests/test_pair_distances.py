"""Soft distances to a few codes, which answers are put in order by, are those of the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmuh.index.soft import UNITS, distance_text, pair_distances, pair_weights
from graded import graded_codes


@settings(max_examples=40)
@given(st.sampled_from([1, 12, 63, 64, 65, 128]), st.sampled_from([0, 1, 2]), st.integers(0, 2**32 - 1), st.booleans())
def test_each_bit_adds_what_the_definition_says(n_bits, sure, seed, plain_queries):
    fresh = graded_codes(np.random.default_rng(seed).standard_normal((9, n_bits)), sure)
    codes = fresh.stored() if sure else fresh.plain()
    queries = fresh[:3].plain() if plain_queries else fresh[:3]
    weights, level = pair_weights(queries, codes.worth), codes.level()
    wanted = [
        [
            sum(
                UNITS + (s if query[bit] != code[bit] else -s)
                for bit in range(n_bits)
                for s in [int(weights[q, bit, level[c, bit]])]
            )
            for c, code in enumerate(codes.unpack())
        ]
        for q, query in enumerate(queries.unpack())
    ]
    found = pair_distances(queries, codes)
    assert found.dtype == np.int64
    assert found.tolist() == wanted


@pytest.mark.parametrize(("distance", "text"), [(3, "3"), (3.0, "3.0"), (3.4333334, "3.4"), (0.04, "0.0"), (12, "12")])
def test_expected_bits_are_told_from_counted_ones(distance, text):
    assert distance_text(distance) == text
