import io

import numpy as np
import pytest
from PIL import Image

from dmuh import images
from dmuh.errors import DtypeError, ImageError, InputError
from dmuh.images import BadImages, Preprocess, find_images, read_batches, read_pixels

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


def read_all(sources, batches, **options):
    """All pixels by position."""
    read = read_batches(sources, [np.array(batch) for batch in batches], CROPPED, **options)
    return {int(p): pixels for batch in read for p, pixels in zip(batch.positions, batch.pixels, strict=True)}


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


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("augment", ["none", "crop", "crop+flip"])
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
}


@pytest.mark.parametrize(("make", "reason"), BROKEN.values(), ids=BROKEN)
def test_an_unreadable_image_is_refused_with_the_reason(tmp_path, make, reason):
    make(tmp_path / "image.jpg")
    with pytest.raises(ImageError, match=reason):
        read_pixels(tmp_path / "image.jpg", PLAIN)


def test_an_image_that_is_too_large_is_refused(monkeypatch):
    data = encoded(np.zeros((10, 10, 3), np.uint8), "PNG")
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    assert read_pixels(data, PLAIN).shape == (8, 8, 3)
    monkeypatch.setattr(images, "MAX_PIXELS", 99)
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
    with pytest.raises(ImageError, match=f"{name}.*on_bad_image=skip"):
        list(read_batches(mixed, [np.array(positions)], PLAIN, workers=workers))


@pytest.mark.parametrize("workers", [0, 3])
def test_skip_leaves_unreadable_images_out_and_notes_each_once(mixed, workers):
    bad = BadImages()
    batches = [np.array(b) for b in ([5, 4, 3], [1], [2, 1, 0])]
    read = list(read_batches(mixed, batches, PLAIN, on_bad_image="skip", bad=bad, workers=workers))
    assert [batch.positions.tolist() for batch in read] == [[5, 3], [], [2, 0]]
    assert [batch.pixels.shape for batch in read] == [(2, 8, 8, 3), (0, 8, 8, 3), (2, 8, 8, 3)]
    for batch in read:
        assert all(np.array_equal(p, read_pixels(four_colours(), PLAIN)) for p in batch.pixels)
    assert list(bad.reasons) == ["image 4", str(mixed[1])]
    assert bad.summary().startswith("2 unreadable images were skipped: image 4: ")
    assert f"; {mixed[1]}: broken image" in bad.summary()


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


def test_find_images_goes_through_folders_in_order_and_passes_over_hidden_ones(tmp_path):
    root = tmp_path / ".hidden root"
    names = ["b.png", "a/2.JPG", "a/1.jpeg", "a/b/é.webp", "c.gif", "a-b.tiff"]
    others = ["notes.txt", ".x.png", "a/.y.png", ".git/z.png", "a/.cache/deep/z.png", "png", "movie.mp4"]
    for name in names + others:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (root / "folder.png").mkdir()
    found = [path.relative_to(root).as_posix() for path in find_images(root)]
    assert found == ["a/1.jpeg", "a/2.JPG", "a/b/é.webp", "a-b.tiff", "b.png", "c.gif"]
