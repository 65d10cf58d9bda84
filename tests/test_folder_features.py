"""Features of a folder's images: computed once, kept, and taken up again when the folder changes."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import DataError, ImageError, MissingExtraError
from dmuh.features import FeatureNetwork, folder_features, imagenet_network, store
from dmuh.features import folder as module
from dmuh.images import Preprocess, Reading, read_pixels, small_greys
from tiny import noise, tiny


@pytest.fixture(scope="module")
def network() -> FeatureNetwork:
    lower = tiny(freeze="all")
    content = to_onnx(FrozenPart(lower))
    return FeatureNetwork("tiny", 8, lower.backbone.preprocess, lambda: OnnxNetwork(content))


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "photos"
    for n, pixels in enumerate(noise(7, 12)):
        file = root / ("even" if n % 2 == 0 else "odd") / f"{n}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    return root


class Counted:
    """How images are read, and how many features were computed by it."""

    def __init__(self, stop_after: int = 10**9, **how) -> None:
        self.n, self._most = 0, stop_after
        self.reading = Reading(**{"on_bad_image": "skip", "progress": self._open, **how})

    @contextmanager
    def _open(self, what, total):
        def advance(n):
            self.n += n
            if self.n > self._most:
                raise KeyboardInterrupt

        assert what == "computing features"
        assert total
        yield advance


def computed(folder: Path, network: FeatureNetwork, **how) -> tuple[int, "module.FolderFeatures"]:
    counted = Counted(**how)
    found = folder_features(folder, reading=counted.reading, network=network)
    return counted.n, found


def touch(file: Path, later: int = 1) -> None:
    os.utime(file, ns=(0, file.stat().st_mtime_ns + later))


def test_features_are_what_the_network_gives_each_image(folder, network):
    found = folder_features(folder, network=network)
    assert [str(path) for path in found.paths] == [
        "even/0.png", "even/2.png", "even/4.png", "even/6.png", "odd/1.png", "odd/3.png", "odd/5.png"
    ]  # fmt: skip
    pixels = np.stack([read_pixels(folder / path, network.preprocess) for path in found.paths])
    np.testing.assert_array_equal(found.activations, network.runner.run(pixels)["activations"])
    np.testing.assert_array_equal(found.greys, small_greys(pixels))
    np.testing.assert_array_equal(folder_features(folder, network=network).greys, found.greys)
    np.testing.assert_allclose(np.linalg.norm(found.vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found.vectors * np.linalg.norm(found.activations, axis=1)[:, None], found.activations)
    about = [(folder / path).stat() for path in found.paths]
    assert found.stamps.tolist() == [file.st_mtime_ns for file in about]
    assert found.sizes.tolist() == [file.st_size for file in about]


def test_only_what_is_new_or_changed_is_computed(folder, network):
    before, first = computed(folder, network)
    again, second = computed(folder, network)
    assert (before, again) == (7, 0)
    np.testing.assert_array_equal(first.activations, second.activations)
    shutil.copy(folder / "odd" / "5.png", folder / "odd" / "7.png")
    Image.fromarray(noise(1, 12, seed=9)[0]).save(folder / "even" / "2.png")
    touch(folder / "even" / "4.png")
    (folder / "odd" / "1.png").unlink()
    n, third = computed(folder, network)
    assert (n, len(third)) == (3, 7)
    fresh = folder_features(folder, keep_in=folder.parent / "elsewhere", network=network)
    np.testing.assert_array_equal(third.activations, fresh.activations)
    assert third.paths == fresh.paths


def test_they_are_kept_where_one_says(folder, network, tmp_path):
    folder_features(folder, keep_in=tmp_path / "state", network=network)
    assert (tmp_path / "state" / "features" / "part-000001.safetensors").is_file()
    assert not (folder / ".dmuh").exists()
    shutil.move(folder, tmp_path / "moved")  # paths are kept below the folder
    counted = Counted()
    folder_features(tmp_path / "moved", keep_in=tmp_path / "state", reading=counted.reading, network=network)
    assert counted.n == 0


def test_an_interruption_costs_the_part_that_was_being_filled(folder, network, monkeypatch):
    monkeypatch.setattr(module, "_PART", 2)
    with pytest.raises(KeyboardInterrupt):
        computed(folder, network, stop_after=5)
    (folder / ".dmuh" / "features" / ".part-000003.safetensors.dmuh-abcdefgh.safetensors").write_bytes(b"torn")
    n, found = computed(folder, network)
    assert (n, len(found)) == (3, 7)
    assert sorted(file.name for file in (folder / ".dmuh" / "features").iterdir()) == [
        ".lock", *(f"part-{n:06}.safetensors" for n in (1, 2, 3, 4))
    ]  # fmt: skip


def test_unreadable_images_are_noted_every_time_and_tried_again_once_changed(folder, network):
    broken = folder / "odd" / "broken.jpg"
    broken.write_bytes(b"no image")
    for expected in (8, 0):
        counted = Counted()
        found = folder_features(folder, reading=counted.reading, network=network)
        assert (counted.n, len(found)) == (expected, 7)
        assert counted.reading.bad.reasons == {str(broken): f"{broken}: not an image of a known format"}
    with pytest.raises(ImageError, match=r"broken\.jpg: not an image"):
        folder_features(folder, reading=Reading(), network=network)
    shutil.copy(folder / "odd" / "1.png", broken)
    assert computed(folder, network)[0] == 1
    assert len(folder_features(folder, reading=Reading(), network=network)) == 8


def test_an_image_that_is_gone_when_its_turn_comes_is_noted_and_not_kept(folder, network, monkeypatch):
    images = module.folder_images(folder)
    ghost = replace(images[0], path=Path("even/ghost.png"))
    monkeypatch.setattr(module, "folder_images", lambda _: [*images, ghost])
    for n_computed in (8, 1):
        counted = Counted()
        found = folder_features(folder, reading=counted.reading, network=network)
        assert (counted.n, len(found), len(counted.reading.bad)) == (n_computed, 7, 1)


def test_names_that_are_not_unicode(folder, network):
    name = os.fsdecode(b"caf\xe9.png")
    shutil.copy(folder / "odd" / "1.png", folder / name)
    _, found = computed(folder, network)
    assert Path(name) in found.paths
    assert computed(folder, network)[0] == 0


def test_an_altered_part_is_computed_again(folder, network, caplog):
    _, before = computed(folder, network)
    part = folder / ".dmuh" / "features" / "part-000001.safetensors"
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    n, after = computed(folder, network)
    assert n == 7
    assert "altered" in caplog.text
    np.testing.assert_array_equal(before.activations, after.activations)


def test_features_of_another_network_are_not_taken(folder, network):
    computed(folder, network)
    other = FeatureNetwork("other", 8, Preprocess(8, 8), network.load)
    n, found = computed(folder, other)
    assert n == 7
    pixels = np.stack([read_pixels(folder / path, Preprocess(8, 8)) for path in found.paths])
    np.testing.assert_array_equal(found.activations, network.runner.run(pixels)["activations"])


def test_many_parts_become_one_that_has_what_counts(folder, network, monkeypatch):
    monkeypatch.setattr(module, "_PART", 1)
    monkeypatch.setattr(store, "_MOST_PARTS", 4)
    (folder / "odd" / "broken.jpg").write_bytes(b"no image")
    _, before = computed(folder, network)
    parts = list((folder / ".dmuh" / "features").glob("part-*"))
    assert [part.name for part in parts] == ["part-000009.safetensors"]
    n, after = computed(folder, network)
    assert n == 0
    np.testing.assert_array_equal(before.activations, after.activations)


def test_a_folder_without_an_image_that_can_be_read_is_refused(tmp_path, network):
    with pytest.raises(DataError, match=r"the folder .*none does not exist"):
        folder_features(tmp_path / "none", network=network)
    with pytest.raises(DataError, match=r"no images below .*: looked for \.jpg"):
        folder_features(tmp_path, network=network)
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"none of the 2 images below .* can be read; .*a\.png: not an image"):
        folder_features(tmp_path, network=network)


def test_a_place_that_cannot_be_written_is_named(folder, network, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot be kept in .*file"):
        folder_features(folder, keep_in=tmp_path / "file", network=network)


def test_missing_weights_are_named(monkeypatch):
    monkeypatch.setattr("dmuh.features.network._WEIGHTS", "no_such_package")
    with pytest.raises(MissingExtraError, match=r"dmuh\[weights\]"):
        imagenet_network()


@pytest.mark.long
def test_the_imagenet_network_is_exported_once(folder, cache):
    network = imagenet_network()
    found = folder_features(folder, network=network)
    assert found.activations.shape == (7, 1280)
    file = cache / "networks" / f"{network.name}.safetensors"
    stamp = file.stat().st_mtime_ns
    np.testing.assert_array_equal(
        folder_features(folder, keep_in=folder.parent / "again").activations, found.activations
    )
    assert file.stat().st_mtime_ns == stamp
    file.write_bytes(b"altered")
    np.testing.assert_array_equal(
        folder_features(folder, keep_in=folder.parent / "third").activations, found.activations
    )
    assert file.stat().st_size > 1_000_000
