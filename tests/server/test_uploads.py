"""What may be uploaded and what may not."""

import io

import numpy as np
import pytest
from mutants import FOREIGN, KINDS, gif_bomb, mutants, png_bomb, text_bomb
from PIL import Image
from serving import picture

from dmuh.errors import RequestError
from dmuh.server.uploads import check_upload, encode_uploads

MOST = 1_000_000


def refused(content: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check_upload(content, MOST)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (28, 28), (333, 100)])
def test_images_are_taken(kind, size):
    assert check_upload(picture(kind, size), MOST).name == kind


@pytest.mark.parametrize("options", [{"progressive": True}, {"quality": 100, "subsampling": 0}, {"optimize": True},
                                     {"exif": Image.Exif()}, {"comment": b"\xff\xd9 not the end"}])  # fmt: skip
def test_jpegs_of_any_kind_are_taken(options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    assert check_upload(buffer.getvalue(), MOST).name == "JPEG"


def test_animations_and_palettes_are_taken():
    for kind in ("GIF", "WEBP", "PNG"):
        frames = [Image.new("P", (30, 20), n) for n in range(5)]
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        assert check_upload(buffer.getvalue(), MOST).name == kind


@pytest.mark.parametrize("rest", [bytes(7), picture("JPEG"), b"\0\0\0\x18ftypmp42 a film"])
def test_what_phones_put_behind_a_photograph_is_passed_over(rest):
    assert check_upload(picture("JPEG") + rest, MOST).name == "JPEG"
    if rest.strip(b"\0"):
        assert refused(picture("PNG") + rest).status == 422


@pytest.mark.parametrize("name", FOREIGN)
def test_other_files_are_refused(name):
    assert refused(FOREIGN[name]).status == 415


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_goes_on_behind_its_image_is_refused(kind):
    for other in FOREIGN.values():
        if other.strip(b"\0"):
            error = refused(picture(kind) + other)
            assert (error.status, "bytes follow the end" in str(error)) == (422, True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_cut_short_is_refused_wherever(kind, digit_hasher):
    content = picture(kind, (20, 20))
    cuts = [content[:end] for end in range(len(content) - 1)]
    results = encode_uploads(digit_hasher, cuts, MOST)
    assert all(isinstance(result, RequestError) for result in results)
    assert {result.status for result in results} <= {400, 415, 422}


@pytest.mark.parametrize("content", [png_bomb(60_000, 60_000), png_bomb(1001, 1000), gif_bomb(65_535, 65_535)])
def test_too_many_pixels_are_refused_before_they_are_drawn(content):
    error = refused(content)
    assert (error.status, str(error)) == (413, "an image may have 1,000,000 pixels at most")


def test_a_text_that_unpacks_to_much_is_refused():
    assert refused(text_bomb()).status == 422


def test_good_and_bad_ones_are_told_apart_in_a_batch(digit_hasher):
    broken = bytearray(picture("PNG", seed=5))
    broken[60:80] = bytes(20)
    good = [picture("PNG", seed=seed) for seed in range(3)]
    results = encode_uploads(digit_hasher, [b"", good[0], bytes(broken), good[1], b"text", good[2]], MOST)
    assert [getattr(result, "status", 200) for result in results] == [400, 200, 422, 200, 415, 200]
    for result, content in zip([results[1], results[3], results[5]], good, strict=True):
        np.testing.assert_array_equal(result.code.bits, digit_hasher.encode(content).bits)
        assert result.content is content
    assert encode_uploads(digit_hasher, [], MOST) == []


def test_mutants_are_refused_with_a_sentence(digit_hasher):
    names, contents = zip(*mutants(300), strict=True)
    for name, result in zip(names, encode_uploads(digit_hasher, contents, MOST), strict=True):
        assert isinstance(result, RequestError), name
        assert 400 <= result.status < 500, name
        assert 10 < len(str(result)) < 120, name
