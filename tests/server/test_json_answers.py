"""What answers say of codes, against the codes themselves."""

import json

import numpy as np
import pytest

from dmuh.catalogue import Row
from dmuh.server.json_answers import CodeWriter, match_json
from graded import graded_codes


@pytest.mark.parametrize("n_bits", [1, 3, 4, 5, 12, 63, 64, 65, 128])
@pytest.mark.parametrize("sure", [0, 1, 2])
def test_a_code_is_written_as_it_is(n_bits, sure):
    codes = graded_codes(np.random.default_rng(n_bits).normal(size=(20, n_bits)), sure)
    writer = CodeWriter(n_bits, codes.worth)
    stored = codes.stored()
    for n in range(20):
        levels = None if codes.levels is None else codes.levels[n].tobytes()
        row = Row(n, b"caf\xe9.jpg", n % 2, None, '["a"]', "{}", 0.25, codes.bits[n].tobytes(), levels, None)
        said = json.loads(f"{{{writer.image(row)}}}")
        assert (said["id"], said["path"]) == (n, ["caf\\xe9.jpg", "added/caf\\xe9.jpg"][n % 2])
        assert said["bits"] == "".join(map(str, codes.unpack()[n]))
        assert said["uncertainty"] == 0.25
        if sure:
            np.testing.assert_allclose(said["bit_uncertainty"], stored.uncertainty[n], atol=5.1e-5)
        else:
            assert said["bit_uncertainty"] is None
        own = json.loads(f"{{{writer.sent(codes[n])}}}")
        np.testing.assert_allclose(own["bit_uncertainty"], codes.uncertainty[n], atol=5.1e-5)
        assert own["uncertainty"] == pytest.approx(codes.image_uncertainty[n], abs=1e-6)
        unknown = json.loads(f"{{{writer.sent(codes[n].plain())}}}")
        assert (unknown["uncertainty"], unknown["bit_uncertainty"]) == (None, None)


@pytest.mark.parametrize(("match", "likely"), [
    (1.0, "very likely"), (0.8, "very likely"), (0.7999, "maybe"), (0.4, "maybe"), (0.3999, "unlikely"),
    (0.0, "unlikely"), (None, None),
])  # fmt: skip
def test_a_probability_is_said_in_words(match, likely):
    said = json.loads(f"{{{match_json(3.4, 3, match)}}}")
    assert said == {"distance": 3.4, "hamming": 3, "match": match, "likely": likely}
