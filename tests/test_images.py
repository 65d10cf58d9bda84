import dataclasses
import io
import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from dmuh.config import TrainingSettings
from dmuh.errors import ConfigError, DataError, DtypeError, ImageError, InputError
from dmuh.images import (
    AUGMENTS,
    BadImages,
    ImageReader,
    Preprocess,
    Reading,
    find_images,
    ignored_note,
    look_through,
    read_pixels,
    small_greys,
)
from dmuh.images.augment import Colours, draw_changes, recoloured
from dmuh.methods import configure
from extras import needs
from processes import started_by_dmuh

PLAIN = Preprocess(size=8, resize=8)
CROPPED = Preprocess(size=8, resize=12)
RED, GREEN, BLUE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 0, 0)


def four_colours(height=32, width=32):
    """Red and green above blue and black: no turn or mirroring leaves it as it is."""
    array = np.zeros((height, width, 3), np.uint8)
    array[: height // 2, : width // 2] = RED
    array[: height // 2, width // 2 :] = GREEN
    array[height // 2 :, : width // 2] = BLUE
    return array


def corners(pixels):
    return [pixels[1, 1], pixels[1, -2], pixels[-2, 1], pixels[-2, -2]]


def encoded(image, kind, **options):
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def noise(n=1, side=12, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.mark.parametrize("side", [32, 500])
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("JPEG", 40), ("WEBP", 40), ("PNG", 0), ("GIF", 0), ("BMP", 0), ("TIFF", 0), ("PPM", 0)],
)
def test_each_format_is_read_from_a_path_and_from_bytes(tmp_path, kind, tolerance, side):
    data = encoded(four_colours(side, side), kind)
    (tmp_path / "image").write_bytes(data)
    for source in (data, tmp_path / "image", str(tmp_path / "image")):
        pixels = read_pixels(source, PLAIN)
        assert (pixels.shape, pixels.dtype) == ((8, 8, 3), np.uint8)
        np.testing.assert_allclose(corners(pixels), [RED, GREEN, BLUE, BLACK], atol=tolerance)


def one_colour(mode, colour):
    return Image.new(mode, (16, 16), colour)


def palette(**info):
    image = Image.fromarray(np.ones((16, 16), np.uint8)).convert("P")
    image.putpalette([9, 9, 9, 250, 120, 30])
    image.putdata([1] * 256)
    image.info.update(info)
    return image


GREY16 = Image.fromarray(np.full((16, 16), 0xC8FF, np.uint16))  # 200 of 255, and a low byte to be dropped
MODES = {
    "palette png": (palette(), "PNG", {}, (250, 120, 30)),
    "palette gif": (palette(), "GIF", {}, (250, 120, 30)),
    "clear palette png": (palette(), "PNG", {"transparency": 1}, (255, 255, 255)),
    "clear gif": (palette(), "GIF", {"transparency": 1}, (255, 255, 255)),
    "opaque rgba": (one_colour("RGBA", (10, 20, 30, 255)), "PNG", {}, (10, 20, 30)),
    "half clear rgba": (one_colour("RGBA", (0, 100, 200, 51)), "PNG", {}, (204, 224, 244)),
    "clear rgba": (one_colour("RGBA", (10, 20, 30, 0)), "PNG", {}, (255, 255, 255)),
    "clear grey": (one_colour("LA", (10, 0)), "PNG", {}, (255, 255, 255)),
    "clear colour": (one_colour("RGB", (1, 2, 3)), "PNG", {"transparency": (1, 2, 3)}, (255, 255, 255)),
    "clear webp": (one_colour("RGBA", (10, 20, 30, 0)), "WEBP", {"lossless": True}, (255, 255, 255)),
    "grey": (one_colour("L", 77), "PNG", {}, (77, 77, 77)),
    "black and white": (one_colour("1", 1), "PNG", {}, (255, 255, 255)),
    "cmyk jpeg": (one_colour("CMYK", (0, 255, 255, 0)), "JPEG", {}, RED),
    "cmyk tiff": (one_colour("CMYK", (255, 0, 255, 0)), "TIFF", {}, GREEN),
    "16-bit grey png": (GREY16, "PNG", {}, (200, 200, 200)),
    "16-bit grey tiff": (GREY16, "TIFF", {}, (200, 200, 200)),
    "16-bit grey pgm": (GREY16, "PPM", {}, (200, 200, 200)),
}


@pytest.mark.parametrize(("image", "kind", "options", "wanted"), MODES.values(), ids=MODES)
def test_each_mode_becomes_rgb_on_white(image, kind, options, wanted):
    np.testing.assert_allclose(read_pixels(encoded(image, kind, **options), PLAIN)[4, 4], wanted, atol=2)


@pytest.mark.parametrize(
    "name", ["palette png", "half clear rgba", "clear grey", "grey", "cmyk jpeg", "16-bit grey png"]
)
def test_pillow_images_are_read_like_files_and_left_as_they_are(name):
    image, _, _, wanted = MODES[name]
    before = image.mode, image.tobytes()
    np.testing.assert_allclose(read_pixels(image, PLAIN)[4, 4], wanted, atol=2)
    assert (image.mode, image.tobytes()) == before


@pytest.mark.parametrize("side", [128, 16])
def test_a_jpeg_keeps_the_detail_that_is_asked_for(side):
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, np.arange(512) // (512 // side) % 2 == 1] = 255  # one pixel each at the size asked for
    pixels = read_pixels(encoded(stripes, "JPEG"), Preprocess(size=side, resize=side))
    np.testing.assert_allclose(pixels[:, :, 0], [[0, 255] * (side // 2)] * side, atol=70)


def test_a_moving_gif_gives_its_first_frame():
    frames = [one_colour("RGB", RED), one_colour("RGB", BLUE)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert read_pixels(data, PLAIN)[4, 4].tolist() == [255, 0, 0]


def test_a_jpeg_with_a_second_picture_inside_gives_its_first():
    first, second = Image.fromarray(four_colours()), one_colour("RGB", BLUE).resize((32, 32))
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    np.testing.assert_allclose(corners(read_pixels(data, PLAIN)), [RED, GREEN, BLUE, BLACK], atol=40)


AS_STORED = {  # how a camera stores an upright image under each value of the EXIF orientation
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda a: np.rot90(a, -1),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", AS_STORED)
def test_an_image_is_turned_upright(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = np.ascontiguousarray(AS_STORED[orientation](four_colours(32, 64)))
    pixels = read_pixels(encoded(stored, kind, exif=exif), PLAIN)
    np.testing.assert_allclose(corners(pixels), [RED, GREEN, BLUE, BLACK], atol=40)


def test_arrays_are_read_as_the_image_they_hold():
    rgb = noise(side=8)[0]
    np.testing.assert_array_equal(read_pixels(rgb, PLAIN), rgb)
    np.testing.assert_array_equal(read_pixels(rgb[:, :, 0], PLAIN), np.repeat(rgb[:, :, :1], 3, axis=2))
    clear = np.dstack([rgb, np.zeros((8, 8), np.uint8)])
    assert (read_pixels(clear, PLAIN) == 255).all()


@pytest.mark.parametrize(
    "source", [lambda a: a, Image.fromarray, lambda a: encoded(a, "PNG")], ids=["array", "PIL", "bytes"]
)
def test_the_crop_is_the_centre(source):
    image = noise(side=12)[0]
    np.testing.assert_array_equal(read_pixels(source(image), CROPPED), image[2:10, 2:10])


def test_stretching_and_cropping_in_one_pass_is_as_good_as_in_two():
    smooth = np.add.outer(np.arange(30) * 5, np.arange(50) * 2)[:, :, None].repeat(3, axis=2).astype(np.uint8)
    square = np.asarray(Image.fromarray(smooth).resize((12, 12), Image.Resampling.BILINEAR))
    one_pass = read_pixels(smooth, CROPPED).astype(int)
    np.testing.assert_allclose(one_pass, square[2:10, 2:10].astype(int), atol=2)


def offsets(pixels, image):
    """Where in the image the crop was taken, if it was."""
    return [(t, x) for t in range(5) for x in range(5) if (image[t : t + 8, x : x + 8] == pixels).all()]


def read_all(sources, batches, *, workers=0, **options):
    """All pixels by position."""
    with ImageReader(sources, CROPPED, Reading(workers)) as reader:
        return by_position(reader.batches([np.array(batch, np.int64) for batch in batches], **options))


def by_position(batches):
    return {int(p): image for batch in batches for p, image in zip(batch.positions, batch.pixels, strict=True)}


def test_crops_lie_inside_the_image_at_all_places_and_are_not_flipped():
    image = noise(side=12)[0]
    found = read_all([image] * 300, [range(300)], augment="crop", seed=(1,))
    places = [offsets(pixels, image) for pixels in found.values()]
    assert {len(place) for place in places} == {1}
    assert {place[0] for place in places} == {(t, x) for t in range(5) for x in range(5)}


def test_crop_and_flip_mirrors_about_half_of_the_crops():
    sources = noise(60)
    crops, flips = (read_all(sources, [range(60)], augment=how, seed=(1,)) for how in ("crop", "crop+flip"))
    same = [np.array_equal(flips[i], crops[i]) for i in range(60)]
    mirrored = [np.array_equal(flips[i], crops[i][:, ::-1]) for i in range(60)]
    assert all(one != other for one, other in zip(same, mirrored, strict=True))
    assert 15 < sum(mirrored) < 45


def test_flip_mirrors_about_half_of_the_centres():
    sources = noise(60)
    found = read_all(sources, [range(60)], augment="flip", seed=(1,))
    same = [np.array_equal(found[i], sources[i, 2:10, 2:10]) for i in range(60)]
    mirrored = [np.array_equal(found[i], sources[i, 2:10, 9:1:-1]) for i in range(60)]
    assert all(one != other for one, other in zip(same, mirrored, strict=True))
    assert 15 < sum(mirrored) < 45


def test_every_augmentation_has_a_setting_and_differs_from_the_others():
    settings = {f.name: f.metadata for f in dataclasses.fields(TrainingSettings)}
    assert set(settings["augment"]["choices"]) - {""} == set(AUGMENTS)
    found = {augment: read_all(noise(20), [range(20)], augment=augment, seed=(1,)) for augment in AUGMENTS}
    for one, other in itertools.combinations(AUGMENTS, 2):
        assert any(not np.array_equal(found[one][i], found[other][i]) for i in range(20)), (one, other)


def drawn(augment, n=2000, preprocess=CROPPED):
    return [draw_changes(preprocess, augment, np.random.default_rng((7, i))) for i in range(n)]


def test_resized_crops_lie_inside_the_image_and_have_the_areas_and_ratios_promised():
    boxes = np.array([changes.box for changes in drawn("resized-crop+flip")]) / CROPPED.resize
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area, ratio = width * height, width / height
    assert boxes.min() >= 0
    assert boxes.max() < 1 + 1e-12
    np.testing.assert_allclose([area.min(), area.max()], [0.35, 1], atol=0.01)
    assert area.mean() == pytest.approx(0.675, abs=0.02)
    np.testing.assert_allclose([ratio.min(), ratio.max()], [3 / 4, 4 / 3], atol=0.01)
    assert np.log(ratio).mean() == pytest.approx(0, abs=0.02)
    for left, space in ((boxes[:, 0], 1 - width), (boxes[:, 1], 1 - height)):
        assert (left / space).mean() == pytest.approx(0.5, abs=0.03)


def test_a_resized_crop_is_the_box_that_was_drawn():
    ramp = np.zeros((200, 300, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, 300).round()
    ramp[..., 1] = np.linspace(0, 255, 200).round()[:, None]
    for seed in range(20):
        found = read_pixels(ramp, CROPPED, augment="resized-crop+flip", rng=np.random.default_rng(seed)).astype(int)
        changes = draw_changes(CROPPED, "resized-crop+flip", np.random.default_rng(seed))
        left, top, right, bottom = 255 * np.array(changes.box) / CROPPED.resize
        centres = (np.arange(8) + 0.5) / 8
        across = left + (right - left) * (1 - centres if changes.mirrored else centres)
        np.testing.assert_allclose(found[1:-1, 1:-1, 0], [across[1:-1]] * 6, atol=3)
        np.testing.assert_allclose(found[1:-1, 1:-1, 1].T, [(top + (bottom - top) * centres)[1:-1]] * 6, atol=3)


def test_a_jpeg_keeps_the_detail_that_a_resized_crop_asks_for():
    whole = Preprocess(size=128, resize=128)
    assert {changes.wanted(whole) for changes in drawn("crop", 9, whole)} == {128}
    assert all(
        changes.wanted(whole) * (changes.box[edge + 2] - changes.box[edge]) / 128 >= 128
        for changes in drawn("resized-crop+flip", 99, whole)
        for edge in (0, 1)
    )
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, np.arange(512) // 4 % 2 == 1] = 255
    for seed in range(5):
        jpeg, png = (
            read_pixels(encoded(stripes, kind), whole, augment="resized-crop+flip", rng=np.random.default_rng(seed))
            for kind in ("JPEG", "PNG")
        )
        assert np.abs(jpeg.astype(int) - png).mean() < 12


def test_the_same_seed_gives_the_same_crop_and_flip_in_other_colours():
    plain, coloured = drawn("resized-crop+flip", 50), drawn("resized-crop+flip+colour", 50)
    assert plain == [dataclasses.replace(changes, colours=None) for changes in coloured]
    factors = np.array([dataclasses.astuple(changes.colours) for changes in drawn("resized-crop+flip+colour")])
    np.testing.assert_allclose(factors.min(axis=0), [0.6, 0.6, 0.6, -0.05], atol=0.005)
    np.testing.assert_allclose(factors.max(axis=0), [1.4, 1.4, 1.4, 0.05], atol=0.005)
    np.testing.assert_allclose(factors.mean(axis=0), [1, 1, 1, 0], atol=0.02)


YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])


def one_by_one(image, colours, order):
    """Change brightness, contrast, saturation and hue one after the other, pixel by pixel."""
    for step in order:
        mean = (image @ YIQ[0]).mean()
        for pixel in image.reshape(-1, 3):
            luma, i, q = YIQ @ pixel
            if step == "brightness":
                pixel *= colours.brightness
            elif step == "contrast":
                pixel[:] = mean + colours.contrast * (pixel - mean)
            elif step == "saturation":
                pixel[:] = luma + colours.saturation * (pixel - luma)
            else:
                turned = (i + 1j * q) * np.exp(2j * math.pi * colours.hue)
                pixel[:] = np.linalg.solve(YIQ, [luma, turned.real, turned.imag])
    return image


def test_colours_change_as_if_one_after_the_other_in_any_order():
    image = np.random.default_rng(0).integers(90, 140, (4, 5, 3), dtype=np.uint8)  # nothing becomes black or white
    for colours in (Colours(1.3, 0.7, 1.2, 0.04), Colours(0.8, 1.3, 0.6, -0.05)):
        found = np.asarray(recoloured(Image.fromarray(image), colours)).astype(float)
        for order in itertools.permutations(("brightness", "contrast", "saturation", "hue")):
            np.testing.assert_allclose(found, one_by_one(image.astype(float), colours, order), atol=0.51)


def test_colours_keep_what_they_should():
    image = Image.fromarray(noise(side=20)[0])
    np.testing.assert_array_equal(recoloured(image, Colours(1, 1, 1, 0)), image)
    strong = Colours(1.4, 1.4, 1.4, 0.05)
    grey = np.asarray(recoloured(image.convert("L").convert("RGB"), strong))
    assert (grey == grey[..., :1]).all()
    assert (np.asarray(recoloured(image, strong)).shape, image.mode) == ((20, 20, 3), "RGB")
    assert np.asarray(recoloured(image, Colours(0.6, 1, 1, 0))).mean() == pytest.approx(
        0.6 * np.asarray(image).mean(), abs=1
    )


def test_the_colours_of_photographs_vary_in_brightness():
    sources = [np.full((12, 12, 3), (90, 120, 150), np.uint8)] * 100
    plain, coloured = (
        np.array([p.mean() for p in read_all(sources, [range(100)], augment=how, seed=(2,)).values()])
        for how in ("resized-crop+flip", "resized-crop+flip+colour")
    )
    assert np.ptp(plain) == 0
    assert coloured.min() < 85
    assert coloured.max() > 155


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("augment", AUGMENTS)
def test_pixels_depend_on_seed_and_position_only(augment, workers):
    sources = noise(20)
    wanted = read_all(sources, [range(20)], augment=augment, seed=(3, 5))
    order = np.random.default_rng(0).permutation(20)
    batches = [order[:1], order[1:1], order[1:8], order[8:9], order[9:12], order[12:]]
    found = read_all(sources, batches, augment=augment, seed=(3, 5), workers=workers)
    assert list(found) == order.tolist()
    assert all(np.array_equal(found[p], wanted[p]) for p in range(20))
    other = read_all(sources, batches, augment=augment, seed=(3, 6), workers=workers)
    assert any(not np.array_equal(other[p], wanted[p]) for p in range(20)) == (augment != "none")


def whole_jpeg():
    return encoded(noise(side=64)[0], "JPEG")


def bound_socket(file):
    with socket.socket(socket.AF_UNIX) as made, pytest.MonkeyPatch.context() as patch:
        patch.chdir(file.parent)  # the name of a socket must be short
        made.bind(file.name)


BROKEN = {
    "half a jpeg": (lambda f: f.write_bytes(whole_jpeg()[: len(whole_jpeg()) // 2]), "broken image .*truncated"),
    "half a png": (lambda f: f.write_bytes(encoded(noise(side=64)[0], "PNG")[:5000]), "broken image .*truncated"),
    "half a webp": (lambda f: f.write_bytes(encoded(noise(side=64)[0], "WEBP")[:900]), "broken image"),
    "jpeg header": (lambda f: f.write_bytes(whole_jpeg()[:2]), "not an image of a known format"),
    "empty": (lambda f: f.write_bytes(b""), "not an image of a known format"),
    "text": (lambda f: f.write_text("this is no image\n" * 9), "not an image of a known format"),
    "postscript": (
        lambda f: f.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        "not an image of a known",
    ),
    "missing": (lambda f: f.exists(), "the file does not exist"),
    "folder": (lambda f: f.mkdir(), "it is a folder"),
    "pipe that nobody writes to": (os.mkfifo, "^not a regular file$"),
    "device without end": (lambda f: f.symlink_to("/dev/zero"), "^not a regular file$"),
    "socket": (bound_socket, r"it cannot be opened \(No such device or address\)"),
    "link in a circle": (lambda f: f.symlink_to(f.name), r"it cannot be opened \(Too many levels of symbolic links\)"),
}


@pytest.mark.parametrize(("make", "reason"), BROKEN.values(), ids=BROKEN)
def test_an_unreadable_image_is_refused_with_the_reason(tmp_path, make, reason):
    make(tmp_path / "image.jpg")
    with pytest.raises(ImageError, match=reason):
        read_pixels(tmp_path / "image.jpg", PLAIN)


def test_an_image_that_is_too_large_is_refused(monkeypatch):
    data = encoded(np.zeros((10, 10, 3), np.uint8), "PNG")
    monkeypatch.setattr("dmuh.images.pixels.MAX_PIXELS", 100)
    assert read_pixels(data, PLAIN).shape == (8, 8, 3)
    monkeypatch.setattr("dmuh.images.pixels.MAX_PIXELS", 99)
    with pytest.raises(ImageError, match="larger than 99 pixels"):
        read_pixels(data, PLAIN)


@pytest.mark.parametrize(
    ("array", "error", "words"),
    [
        (np.zeros((8, 8, 3)), DtypeError, "must be uint8, got float64"),
        (np.zeros((8, 8), np.uint16), DtypeError, "must be uint8, got uint16"),
        (np.zeros((8, 8, 2), np.uint8), InputError, r"got \(8, 8, 2\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), InputError, r"got \(2, 8, 8, 3\)"),
        (np.zeros(8, np.uint8), InputError, r"got \(8,\)"),
        (np.zeros((0, 8, 3), np.uint8), InputError, r"got \(0, 8, 3\)"),
    ],
)
def test_an_array_that_is_no_image_is_refused(array, error, words):
    with pytest.raises(error, match=words):
        read_pixels(array, PLAIN)


@pytest.fixture
def mixed(tmp_path):
    """Six images by path and as bytes; those at 1 and 4 cannot be read."""
    good = encoded(four_colours(), "PNG")
    (tmp_path / "good.png").write_bytes(good)
    (tmp_path / "bad.png").write_bytes(good[:60])
    return [tmp_path / "good.png", tmp_path / "bad.png", good, four_colours(), b"nothing", str(tmp_path / "good.png")]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("positions", "name"), [([0, 1, 2], r"bad\.png: broken image"), ([3, 4], "image 4: ")])
def test_fail_names_the_unreadable_image_and_the_way_around_it(mixed, positions, name, workers):
    with ImageReader(mixed, PLAIN, Reading(workers)) as reader:
        with pytest.raises(ImageError, match=f"{name}.*--on-bad-image skip"):
            list(reader.batches([np.array(positions)]))
        assert len(by_position(reader.batches([np.array([0, 2])]))) == 2  # the reader is as good as before


@pytest.mark.parametrize("workers", [0, 3])
def test_skip_leaves_unreadable_images_out_and_notes_each_once(mixed, workers):
    bad = BadImages()
    batches = [np.array(b) for b in ([5, 4, 3], [1], [2, 1, 0])]
    with ImageReader(mixed, PLAIN, Reading(workers, "skip", bad)) as reader:
        read = list(reader.batches(batches))
    assert [batch.positions.tolist() for batch in read] == [[5, 3], [], [2, 0]]
    assert [batch.pixels.shape for batch in read] == [(2, 8, 8, 3), (0, 8, 8, 3), (2, 8, 8, 3)]
    for batch in read:
        assert all(np.array_equal(p, read_pixels(four_colours(), PLAIN)) for p in batch.pixels)
    assert list(bad.reasons) == ["image 4", str(mixed[1])]
    assert bad.summary().startswith("2 unreadable images were skipped: image 4: ")
    assert f"; {mixed[1]}: broken image" in bad.summary()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Forty JPEG files."""
    root = tmp_path_factory.mktemp("files")
    for n, image in enumerate(noise(40, side=24)):
        (root / f"{n:02}.jpg").write_bytes(encoded(image, "JPEG"))
    return sorted(root.iterdir())


ALL = "resized-crop+flip+colour"
ORDER = np.random.default_rng(0).permutation(40)
UNEVEN = [ORDER[:1], ORDER[1:1], ORDER[1:34], ORDER[34:]]


def equal(found, wanted):
    return list(found) == list(wanted) and all(np.array_equal(found[p], wanted[p]) for p in wanted)


@pytest.mark.parametrize(("workers", "as_text"), [(1, True), (2, False)])
def test_processes_read_files_to_the_same_pixels_epoch_after_epoch(files, workers, as_text):
    sources = [str(file) for file in files] if as_text else files
    epochs = [{"augment": ALL, "seed": (3, epoch)} for epoch in range(2)] + [{}]
    before = started_by_dmuh()
    with ImageReader(sources, CROPPED, Reading(workers)) as reader:
        readers = []
        for options in epochs:
            assert equal(by_position(reader.batches(UNEVEN, **options)), read_all(files, UNEVEN, **options))
            readers.append(started_by_dmuh())
    assert len(readers[0]) == len(before) + workers  # and not threads
    assert {child.pid for child in readers[0]} == {child.pid for child in readers[-1]}
    assert started_by_dmuh() == before


@pytest.mark.parametrize("kind", ["array", "bytes", "mixed"])
def test_threads_read_images_in_memory_to_the_same_pixels(files, kind):
    contents = [file.read_bytes() for file in files]
    sources = {"array": noise(40, side=24), "bytes": contents, "mixed": [*files[:39], contents[39]]}[kind]
    with ImageReader(sources, CROPPED, Reading(3)) as reader:
        for options in ({"augment": ALL, "seed": (3, 0)}, {}):
            assert equal(by_position(reader.batches(UNEVEN, **options)), read_all(sources, UNEVEN, **options))
        assert not started_by_dmuh()


def test_two_walks_through_one_reader_do_not_disturb_each_other():
    sources = noise(40)
    with ImageReader(sources, CROPPED, Reading(2)) as reader:
        pairs = list(zip(*(reader.batches(np.split(ORDER, 8), augment="crop", seed=(s,)) for s in (1, 2)), strict=True))
    for found, seed in zip(zip(*pairs, strict=True), (1, 2), strict=True):
        assert equal(by_position(found), read_all(sources, np.split(ORDER, 8), augment="crop", seed=(seed,)))


def test_processes_leave_unreadable_files_out_or_name_them(files, tmp_path):
    (tmp_path / "half.jpg").write_bytes(files[0].read_bytes()[:200])
    sources, bad = [*files[:5], tmp_path / "half.jpg", *files[5:], tmp_path / "none.jpg"], BadImages()
    batches = [np.arange(21), np.arange(21, 42)]
    with ImageReader(sources, CROPPED, Reading(2, "skip", bad)) as reader:
        first, second = reader.batches(batches)
    assert first.positions.tolist() == [n for n in range(21) if n != 5]
    assert second.positions.tolist() == list(range(21, 41))
    assert equal(by_position([first, second]), read_all(sources, [[n for n in range(41) if n != 5]]))
    assert list(bad.reasons) == [str(tmp_path / "half.jpg"), str(tmp_path / "none.jpg")]
    assert bad.reasons[str(tmp_path / "none.jpg")] == f"{tmp_path / 'none.jpg'}: the file does not exist"
    with ImageReader(sources, CROPPED, Reading(2)) as reader:
        read = reader.batches([np.arange(5), *batches])
        assert next(read).positions.tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(ImageError, match=r"half\.jpg: broken image .*--on-bad-image skip"):
            next(read)


def test_a_killed_worker_is_one_sentence(files):
    with ImageReader(files, CROPPED, Reading(1)) as reader:
        read = reader.batches(itertools.repeat(np.arange(40)))
        next(read)
        os.kill(started_by_dmuh()[0].pid, signal.SIGKILL)
        for again in (read, reader.batches([np.arange(3)])):
            with pytest.raises(DataError, match=r"ended before its time.* lower workers \(now 1; 0 reads"):
                list(again)


class Counted:
    """Images that know how often they were asked for."""

    def __init__(self, n):
        self.n, self.asked, self.lock = n, 0, threading.Lock()

    def __len__(self):
        return self.n

    def __getitem__(self, position):
        if position >= self.n:
            raise IndexError(position)
        with self.lock:
            self.asked += 1
        return np.zeros((16, 16, 3), np.uint8)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_reading_ahead_is_bounded_and_ends_when_nobody_wants_more(workers):
    sources, taken = Counted(1000), 0

    def batches():
        nonlocal taken
        for n in range(0, 1000, 10):
            taken += 1
            yield np.arange(n, n + 10)

    with ImageReader(sources, PLAIN, Reading(workers)) as reader:
        read = reader.batches(batches())
        for done in range(1, 6):
            next(read)
            assert taken <= done + 2
        read.close()
        assert list(read) == []
        assert len(next(iter(reader.batches([np.arange(4)]))).positions) == 4
    assert sources.asked <= 10 * 7 + 4 + 1  # the one that was asked for its kind


def test_an_error_of_whoever_takes_the_batches_ends_the_reading(files):
    def take():
        with ImageReader(files, PLAIN, Reading(1)) as reader:
            for batch in reader.batches(itertools.repeat(np.arange(40))):
                raise KeyError(len(batch.positions))

    with pytest.raises(KeyError, match="40"):
        take()
    assert not started_by_dmuh()


def test_a_reader_without_workers_needs_no_entering_and_one_with_workers_does():
    assert len(by_position(ImageReader(noise(4), CROPPED).batches([np.arange(4)]))) == 4
    with pytest.raises(RuntimeError, match="has to be entered"):
        list(ImageReader(noise(4), CROPPED, Reading(1)).batches([np.arange(4)]))


SCRIPT = """
import itertools, sys
import numpy as np
from dmuh.images import ImageReader, Preprocess, Reading

print(__name__, flush=True)  # no `if` around it: a process that ran it again would show
try:
    with ImageReader(sys.argv[1:], Preprocess(8, 8), Reading(2)) as reader:
        for n, batch in enumerate(reader.batches(itertools.repeat(np.arange(40)))):
            if n == 1:
                print("reading", flush=True)
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "killed"])
def test_workers_leave_the_script_alone_and_end_with_it(files, tmp_path, how):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, tmp_path / "script.py", *files]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, start_new_session=True) as program:
        try:
            assert [program.stdout.readline() for _ in range(2)] == ["__main__\n", "reading\n"]
            if how == "Ctrl-C":
                os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all processes
            else:
                program.kill()
            said, errors = program.communicate(timeout=300)  # returns when the last process that could write is gone
        except BaseException:
            os.killpg(program.pid, signal.SIGKILL)  # or leaving the block would wait for ever
            raise
    assert said == ("stopped\n" if how == "Ctrl-C" else "")
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("n", "wanted"),
    [
        (1, "1 unreadable image was skipped: r0"),
        (2, "2 unreadable images were skipped: r0; r1"),
        (5, "5 unreadable images were skipped: r0; r1; r2; r3; r4"),
        (7, "7 unreadable images were skipped: r0; r1; r2; r3; r4; and 2 more"),
    ],
)
def test_the_summary_counts_and_names_the_first_bad_images(n, wanted):
    assert BadImages({f"n{i}": f"r{i}" for i in range(n)}).summary() == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_bad_image": "ignore"}, "on_bad_image must be fail or skip, got 'ignore'"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
    ],
)
def test_a_wrong_way_to_read_images_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        Reading(**options)


def test_the_settings_of_a_run_say_how_its_images_are_read():
    reading = Reading.by(configure({"on_bad_image": "skip", "workers": 3}))
    assert (reading.on_bad_image, reading.workers, len(reading.bad)) == ("skip", 3, 0)
    assert Reading.by(configure({})).on_bad_image == "fail"


def test_parts_of_a_job_are_counted_on_one_bar():
    opened, told = [], []

    @contextmanager
    def bar(what, total):
        opened.append((what, total))
        yield told.append

    whole = Reading(progress=bar)
    with whole.under_one_bar("encoding", 9) as reading:
        assert reading.bad is whole.bad
        for n in (4, 5):
            with reading.progress("part", n) as advance:
                advance(n)
    assert opened == [("encoding", 9)]
    assert told == [4, 5]


def test_find_images_goes_through_folders_in_order_and_passes_over_hidden_ones(tmp_path):
    root = tmp_path / ".hidden root"
    names = ["b.png", "a/2.JPG", "a/1.jpeg", "a/b/é.webp", "c.gif", "a-b.tiff"]
    others = ["notes.txt", ".x.png", "a/.y.png", ".git/z.png", "a/.cache/deep/z.png", "png", "movie.mp4"]
    for name in names + others:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "folder.png").mkdir()
    found = [path.relative_to(root).as_posix() for path in find_images(root)]
    assert look_through(root).ignored == {".txt": 1, "": 1, ".mp4": 1}
    assert found == ["a/1.jpeg", "a/2.JPG", "a/b/é.webp", "a-b.tiff", "b.png", "c.gif"]


def test_find_images_passes_over_what_is_no_file(tmp_path):
    (tmp_path / "real.png").touch()
    (tmp_path / "link.png").symlink_to("real.png")
    (tmp_path / "a.png").symlink_to("b.png")
    (tmp_path / "b.png").symlink_to("a.png")
    (tmp_path / "own.png").symlink_to("own.png")
    (tmp_path / "nowhere.png").symlink_to("nothing")
    (tmp_path / "round").symlink_to(tmp_path)
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / os.fsdecode(b"\xff.png")).touch()
    assert [os.fsencode(path.name) for path in find_images(tmp_path)] == [b"link.png", b"real.png", b"\xff.png"]


def test_what_windows_leaves_in_folders_is_not_counted(tmp_path):
    for name in ("Thumbs.db", "ehthumbs.db", "Desktop.ini", ".DS_Store", "a.MOV"):
        (tmp_path / name).touch()
    assert look_through(tmp_path).ignored == {".mov": 1}


@pytest.mark.parametrize(
    ("ignored", "wanted"),
    [
        ({}, ""),
        ({".mov": 1}, "1 file ignored: .mov"),
        ({".cr2": 1, ".mov": 1200}, "1,201 files ignored: .mov, .cr2"),
        ({"": 2}, "2 files ignored: without a suffix"),
        ({f".{n}": 1 for n in range(7)}, "7 files ignored: .0, .1, .2, .3, .4 and 2 more types"),
        ({".a\nb": 1}, r"1 file ignored: '.a\nb'"),
    ],
)
def test_ignored_files_are_counted_in_one_sentence(ignored, wanted):
    assert ignored_note(Counter(ignored)) == wanted


WITHOUT_HEIF = """
import sys, importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "pillow_heif" else find(name)
from collections import Counter
from dmuh.images import Preprocess, SUFFIXES, ignored_note, read_pixels
print(".heic" in SUFFIXES, ignored_note(Counter({".txt": 5, ".heic": 1})))
for image in (sys.argv[1], open(sys.argv[1], "rb").read()):
    try: read_pixels(image, Preprocess(8, 8))
    except Exception as error: print(error)
"""


def test_what_heic_images_need_is_said(tmp_path):
    (tmp_path / "a.heic").write_bytes(b"\0\0\0\x18ftypheic" + bytes(12))
    ran = subprocess.run([sys.executable, "-c", WITHOUT_HEIF, tmp_path / "a.heic"], capture_output=True, text=True)
    needs_it = "a HEIC image needs an optional part of dmuh: pip install 'dmuh[heic]'"
    assert ran.stdout.splitlines() == [
        "False 6 files ignored: .heic (needs pip install 'dmuh[heic]'), .txt", needs_it, needs_it
    ], ran.stderr  # fmt: skip


@pytest.mark.parametrize(("kind", "suffix"), [("AVIF", "avif"), ("HEIF", "heic"), ("TIFF", "tif"), ("BMP", "bmp")])
def test_pictures_of_phones_and_scanners_are_read(tmp_path, kind, suffix):
    if kind == "HEIF":
        needs("pillow-heif", "heic", "pillow_heif").register_heif_opener()
    colours = Image.new("RGB", (64, 48), (200, 40, 90))
    colours.save(tmp_path / f"a.{suffix}", kind)
    assert [path.name for path in find_images(tmp_path)] == [f"a.{suffix}"]
    found = read_pixels(tmp_path / f"a.{suffix}", Preprocess(16, 16))
    assert np.abs(found.astype(int) - (200, 40, 90)).max() <= 3
    (tmp_path / "cut").write_bytes((tmp_path / f"a.{suffix}").read_bytes()[:60])
    with pytest.raises(ImageError):
        read_pixels(tmp_path / "cut", Preprocess(16, 16))


def test_a_folder_that_cannot_be_looked_through_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot look through .*gone: No such file or directory"):
        find_images(tmp_path / "gone")


def test_small_greys_are_the_mean_of_each_tile():
    pixels = np.zeros((1, 64, 64, 3), np.uint8)
    pixels[0, :2, 2:4] = 200
    pixels[0, 63, 63] = (100, 100, 100)
    grey = small_greys(pixels)
    expected = np.zeros((1, 32, 32), np.uint8)
    expected[0, 0, 1], expected[0, 31, 31] = 200, 25
    np.testing.assert_array_equal(grey, expected)
