"""Duplicates: how pairs are found and compared, what becomes a group, and which image of it is the best."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from dmuh.duplicates import AT_LEAST, Looks, compare, find_groups, find_matches, kernels, near_features, plain
from dmuh.duplicates.about import About, about_file, same_pixels, sharpness
from dmuh.duplicates.codes import feature_words, picture_words
from dmuh.duplicates.groups import Edges, make_groups
from dmuh.duplicates.windows import CELLS, one_dimensional, symmetries, taps, tilts
from dmuh.errors import ConfigError, InputError
from dmuh.images import GREY_SIDE
from scenes import features_of, grey, looks_of, scene, write_album


@pytest.fixture
def album(tmp_path) -> Path:
    return write_album(tmp_path / "album")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 4), st.integers(0, 90), st.booleans(), st.data())
def test_near_codes_of_kernel_and_numpy_are_those_of_a_loop(seed, n_variants, n_words, radius, same, data):
    rng = np.random.default_rng(seed)
    n, rows = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 9))
    rows = min(rows, n) if same else rows
    words = rng.integers(0, 2**63, (n_words, n), dtype=np.uint64)
    variants = rng.integers(0, 2**63, (n_variants, n_words, rows), dtype=np.uint64)
    variants[0, :, 0] = words[:, -1]
    first, last = sorted((data.draw(st.integers(0, rows)), data.draw(st.integers(0, rows))))
    expected = [
        (i, j)
        for i in range(first, last)
        for j in range(i + 1 if same else 0, n)
        if min(
            sum(int(a ^ b).bit_count() for a, b in zip(words[:, j], variant[:, i], strict=True)) for variant in variants
        )
        <= radius
    ]
    for way in (plain.near_codes, kernels.near_codes):
        found = way(variants, words, radius, 1 if same else -1, first, last)
        assert sorted(map(tuple, found.tolist())) == expected


def test_compiled_and_plain_comparisons_agree():
    images = [scene(seed) for seed in range(6)]
    looks = looks_of(images + [image.rotate(90, expand=True) for image in images] + [images[0].crop((0, 0, 140, 110))])
    fast, slow = compare(looks, compiled=True), compare(looks, compiled=False)
    np.testing.assert_array_equal(fast.pairs, slow.pairs)
    assert len(fast.pairs) > 6
    np.testing.assert_allclose(fast.cosine, slow.cosine, atol=1e-5)
    np.testing.assert_allclose(fast.aligned, slow.aligned, atol=1e-5)
    across = compare(looks, looks, compiled=True)
    np.testing.assert_array_equal(across.pairs, compare(looks, looks, compiled=False).pairs)
    assert {(n, n) for n in range(len(looks))} <= set(map(tuple, across.pairs.tolist()))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.1, 500))
def test_alignments_of_kernel_and_numpy_agree(seed, n, floor):
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, 256, (n, GREY_SIDE, GREY_SIDE)).astype(np.float32) for _ in range(2))
    right[0] = np.rot90(left[0])
    pairs = np.stack([rng.integers(0, n, 9), rng.integers(0, n, 9)], axis=1)
    found = np.empty(9, np.float32)
    first, weights = taps()
    about = symmetries(), first, weights, one_dimensional()[1], *tilts(), np.float32(floor)
    kernels.alignments(left, right, pairs, *about, 0, 4, found)
    kernels.alignments(left, right, pairs, *about, 4, 9, found)
    np.testing.assert_allclose(found, plain.alignments(left, right, pairs, floor), atol=2e-5)


def test_taps_are_the_operators():
    operators, _ = one_dimensional()
    first, weights = taps()
    rebuilt = np.zeros_like(operators)
    for o, cells in enumerate(first):
        for c, begin in enumerate(cells):
            rebuilt[o, c, begin : begin + weights.shape[2]] = weights[o, c]
    np.testing.assert_array_equal(rebuilt, operators)
    np.testing.assert_allclose(operators.sum(axis=2), 1, atol=1e-5)
    assert len({tuple(row) for row in symmetries().tolist()}) == 8
    np.testing.assert_allclose(tilts()[1].sum(axis=2), 1, atol=1e-5)


def test_the_code_of_a_picture_knows_how_it_looks_turned_and_mirrored():
    picture = grey(scene(3))
    turned = [np.rot90(each, quarter) for each in (picture, picture.T) for quarter in range(4)]
    own = set(picture_words(picture[None])[:, 0, 0].tolist())
    others = [picture_words(np.ascontiguousarray(each)[None])[0, 0, 0] for each in turned]
    assert {int(word) for word in others} == own
    assert len(own) == 8


def test_codes_of_features_differ_by_their_angle():
    rng = np.random.default_rng(0)
    one = rng.standard_normal(64).astype(np.float32)
    other = rng.standard_normal(64).astype(np.float32)
    blends = np.stack([one, one + 0.2 * other, one + other, -one])
    words = feature_words(blends / np.linalg.norm(blends, axis=1, keepdims=True), np.zeros(64, np.float32), 256)
    away = np.bitwise_count(words[:, :1] ^ words).sum(axis=0)
    assert away[0] == 0 < away[1] < away[2] < away[3] == 256


@pytest.mark.parametrize(
    "edit",
    [
        lambda image: image.rotate(90, expand=True),
        lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        lambda image: image.transpose(Image.Transpose.TRANSVERSE),
        lambda image: image.crop((12, 6, 148, 108)),
        lambda image: image.crop((0, 0, 128, 96)),
        lambda image: image.rotate(5, Image.Resampling.BICUBIC),
        lambda image: image.resize((60, 45)).convert("L"),
    ],
)
def test_edits_are_more_alike_than_other_pictures(edit):
    looks = looks_of([scene(1), edit(scene(1)), *(scene(seed) for seed in range(2, 12))])
    pairs = np.array([(0, other) for other in range(1, len(looks))])
    pictures = looks.greys.astype(np.float32)
    own, *others = plain.alignments(pictures, pictures, pairs, 1.0).tolist()
    assert own > 0.7
    assert own > max(others) + 0.1


def test_flat_pictures_say_nothing():
    flat = np.full((2, GREY_SIDE, GREY_SIDE), 100, np.float32)
    flat[1, 0, 0] = 101
    assert plain.alignments(flat, flat, np.array([[0, 1], [1, 1]]), 2.0 * CELLS).max() < 0.1


def test_looks_must_fit_each_other():
    with pytest.raises(InputError, match="got \\(3, 4\\) and \\(2, 32, 32\\)"):
        Looks(np.ones((3, 4), np.float32), np.ones((2, GREY_SIDE, GREY_SIDE), np.uint8))


def test_groups_of_a_folder(album):
    (group,) = find_groups(features_of(album))
    found = {str(each.path): each.kind for each in group.members}
    assert found.pop("more/pixels.bmp") == "best"  # as many pixels, and more bytes than the PNG
    assert found == {
        "0.png": "same pixels",
        "more/copy.png": "same pixels",
        "more/half.jpg": "near",
        "more/crop.jpg": "near",
    }
    assert group.reason == "most bytes at 160 × 120 pixels: 58 kB"
    assert all(AT_LEAST <= each.likeness <= 1 for each in group.members)
    half = next(each for each in group.members if each.path.name == "half.jpg")
    assert (half.about.width, half.about.height, half.about.n_bytes) == (80, 60, (album / half.path).stat().st_size)


def test_more_alike_leaves_out_the_less_alike(album):
    (strict,) = find_groups(features_of(album), at_least=0.95)
    assert {each.path.name for each in strict.members} == {"0.png", "copy.png", "pixels.bmp", "half.jpg"}
    with pytest.raises(ConfigError, match="at_least must be above 0 and at most 1, got 0"):
        find_groups(features_of(album), at_least=0)


def test_links_are_no_copies(album):
    (album / "link.png").symlink_to(album / "1.png")
    assert not any(each.path.name in ("link.png", "1.png")
                   for group in find_groups(features_of(album)) for each in group.members)  # fmt: skip


def test_of_identical_files_the_oldest_is_the_best(tmp_path):
    for name in ("b.png", "a.png", "c.png"):
        scene(0).save(tmp_path / name)
    os.utime(tmp_path / "b.png", (1e9, 1e9))
    (group,) = find_groups(features_of(tmp_path))
    assert [str(each.path) for each in group.members] == ["b.png", "a.png", "c.png"]
    assert {each.kind for each in group.others} == {"same file"}
    assert group.reason == "oldest, of 2001-09-09"


def test_every_image_of_a_group_is_a_duplicate_of_its_best(tmp_path):
    paths = [Path(f"{n}.png") for n in range(4)]
    about = {n: About(100 - n, 100, 1000, 0) for n in range(4)}
    edges = Edges({}, {})
    edges.add(0, 1, 0.9, "near")
    edges.add(1, 2, 0.8, "near")  # hangs on 0 by 1 alone
    edges.add(2, 3, 0.7, "near")
    groups = make_groups(edges, tmp_path, paths, about)
    assert [[each.position for each in group.members] for group in groups] == [[0, 1], [2, 3]]
    assert [group.reason for group in groups] == ["most pixels: 100 × 100", "most pixels: 98 × 100"]


def test_sharpness_decides_between_files_of_one_size(tmp_path):
    blurred = scene(0).resize((40, 30)).resize((160, 120))
    blurred.save(tmp_path / "a.bmp")
    scene(0).save(tmp_path / "b.bmp")
    assert sharpness(tmp_path / "b.bmp") > sharpness(tmp_path / "a.bmp") > 0
    ImageEnhance.Contrast(blurred).enhance(1.3).save(tmp_path / "c.bmp")
    assert sharpness(tmp_path / "c.bmp") == pytest.approx(sharpness(tmp_path / "a.bmp"), rel=0.1)
    (group,) = find_groups(features_of(tmp_path))
    assert (str(group.best.path), group.reason) == ("b.bmp", "sharpest at 160 × 120 pixels")


def test_about_a_file_and_its_pixels(tmp_path):
    turned = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    scene(0).save(turned, exif=exif)
    assert about_file(turned, 5, 7) == About(120, 160, 5, 7)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    assert about_file(tmp_path / "broken.jpg", 8, 7) == About(0, 0, 8, 7)
    assert sharpness(tmp_path / "broken.jpg") == 0
    assert not same_pixels(turned, tmp_path / "broken.jpg")


def test_images_that_are_in_another_folder_too(album, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(album / "2.png", other / "same.png")
    scene(3).resize((100, 75)).save(other / "small.jpg")
    scene(9).save(other / "else.png")
    found = find_matches(features_of(album), features_of(other))
    assert [(str(match.path), str(match.other), match.kind) for match in found] == [
        ("2.png", "same.png", "same file"),
        ("3.png", "small.jpg", "near"),
    ]
    assert found[0].likeness == 1 > found[1].likeness >= AT_LEAST
    assert len(find_matches(features_of(album), features_of(other), at_least=0.9999)) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_near_features_are_those_of_all_pairs(compiled):
    rng = np.random.default_rng(0)
    left = rng.standard_normal((300, 40)).astype(np.float32)
    right = np.concatenate([left[::3] + 0.2 * rng.standard_normal((100, 40)), rng.standard_normal((50, 40))])
    left, right = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (left, right.astype(np.float32)))
    pairs, cosine = near_features(left, right, 0.9, compiled=compiled)
    expected = np.argwhere(left @ right.T >= 0.9)
    np.testing.assert_array_equal(pairs, expected)
    assert len(pairs) > 50
    np.testing.assert_allclose(cosine, (left @ right.T)[tuple(expected.T)], atol=1e-5)
