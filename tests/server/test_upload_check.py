"""What may be uploaded and what may not."""

import io
import struct
import zipfile

import numpy as np
import pytest
from mutants import (
    FOREIGN,
    KINDS,
    archive,
    box,
    gif_bomb,
    many_scans,
    mutants,
    png_bomb,
    png_chunk,
    text_bomb,
    tiny_parts,
)
from PIL import Image
from serving import decoded, picture

from dmuh.errors import RequestError
from dmuh.server.images.upload_check import check_upload
from extras import needs

MOST = 1_000_000


def refused(content: bytes) -> RequestError:
    with pytest.raises(RequestError) as caught:
        check_upload(content, MOST)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (28, 28), (333, 100)])
def test_images_are_taken(kind, size):
    assert check_upload(picture(kind, size), MOST)[0].name == kind


@pytest.mark.parametrize("options", [{"progressive": True}, {"quality": 100, "subsampling": 0}, {"optimize": True},
                                     {"exif": Image.Exif()}, {"comment": b"\xff\xd9 not the end"}])  # fmt: skip
def test_jpegs_of_any_kind_are_taken(options):
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (200, 300, 3), np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", **options)
    assert check_upload(buffer.getvalue(), MOST)[0].name == "JPEG"


def test_animations_and_palettes_are_taken():
    for kind in ("GIF", "WEBP", "PNG"):
        frames = [Image.new("P", (30, 20), n) for n in range(5)]
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        assert check_upload(buffer.getvalue(), MOST)[0].name == kind


def test_photographs_of_phones_are_taken_and_bounded():
    needs("pillow-heif", "heic", "pillow_heif").register_heif_opener()
    content = picture("HEIF", (300, 200))
    assert check_upload(content, MOST)[0].suffix == ".heic"
    assert refused(content[:-10]).status == 422
    assert "bytes follow the end" in str(refused(content + b"<script>"))
    assert refused(content + archive()).status == 422
    with pytest.raises(RequestError) as caught:
        check_upload(content, 100)
    assert caught.value.status == 413
    many = content + box(b"free", b"") * 100_000
    assert "parts" in str(refused(many))


FILM = box(b"ftyp", b"mp42") + box(b"moov", bytes(50)) + struct.pack(">I4sQ", 1, b"mdat", 116) + bytes(100)


@pytest.mark.parametrize(
    "rest", [bytes(7), picture("JPEG"), picture("JPEG") * 2 + bytes(5), FILM, picture("JPEG") + FILM]
)
def test_what_phones_put_behind_a_photograph_is_passed_over(rest):
    assert check_upload(picture("JPEG") + rest, MOST)[0].name == "JPEG"
    if rest.strip(b"\0"):
        assert refused(picture("PNG") + rest).status == 422


@pytest.mark.parametrize("rest", [FILM[:-1], FILM + b"<script>", FILM + archive(), picture("JPEG")[:-2], b"text" + FILM,
                                  picture("JPEG") + b"<script>", b"\0\0\0\x18ftypmp42 a film", FILM[12:],
                                  box(b"ftyp", b"mp42") + b"\0\0\0\x04mdat"])  # fmt: skip
def test_what_only_looks_like_that_is_refused(rest):
    error = refused(picture("JPEG") + rest)
    assert (error.status, "bytes follow the end" in str(error)) == (422, True)


@pytest.mark.parametrize("hidden", [
    picture("JPEG") + picture("JPEG") + box(b"ftyp", b"mp42") + box(b"mdat", archive()),
    picture("JPEG")[:2] + b"\xff\xfe" + struct.pack(">H", 2 + len(archive())) + archive() + picture("JPEG")[2:],
    picture("PNG")[:33] + png_chunk(b"teSt", archive()) + picture("PNG")[33:],
])  # fmt: skip
def test_an_image_that_is_an_archive_too_is_refused(hidden):
    assert zipfile.is_zipfile(io.BytesIO(hidden))
    assert str(refused(hidden)).endswith("image is a ZIP archive too")


def test_a_picture_that_is_drawn_again_and_again_is_refused():
    check_upload(many_scans(50), MOST)
    assert str(refused(many_scans(100))) == "this JPEG image has more than 100 scans"


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_tiny_parts_is_refused(kind):
    check_upload(tiny_parts(kind, 8000), MOST)
    error = refused(tiny_parts(kind, 2_000_000))
    assert (error.status, "parts" in str(error)) == (422, True)


def test_a_side_that_is_very_long_is_refused():
    assert check_upload(png_bomb(60_000, 1), MOST)[1] == 60_000
    for size in ((70_000, 1), (1, 70_000)):
        assert str(refused(png_bomb(*size))) == "an image may have 65,535 pixels per side at most, got 70,000"


def test_gifs_of_the_usual_parts_are_taken():
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 1000), np.uint8)
    Image.fromarray(pixels).save(buffer, "GIF")
    assert check_upload(buffer.getvalue(), MOST)[0].name == "GIF"


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
    results = decoded(digit_hasher.preprocess, [content[:end] for end in range(len(content) - 1)])
    assert all(isinstance(result, RequestError) for result in results)
    assert {result.status for result in results} <= {400, 415, 422}


@pytest.mark.parametrize("content", [png_bomb(60_000, 60_000), png_bomb(1001, 1000), gif_bomb(65_535, 65_535)])
def test_too_many_pixels_are_refused_before_they_are_drawn(content):
    error = refused(content)
    assert (error.status, str(error)) == (413, "an image may have 1,000,000 pixels at most")


def test_a_text_that_unpacks_to_much_is_refused():
    assert refused(text_bomb()).status == 422


def test_mutants_are_refused_with_a_sentence(digit_hasher):
    names, contents = zip(*mutants(300), strict=True)
    for name, result in zip(names, decoded(digit_hasher.preprocess, contents), strict=True):
        assert isinstance(result, RequestError), name
        assert 400 <= result.status < 500, name
        assert 10 < len(str(result)) < 120, name
