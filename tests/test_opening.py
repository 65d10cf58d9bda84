"""A folder that is opened: fitted codes, and what is taken up when it is opened again."""

import io
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from commands import refused
from dmuh.catalogue import Entry
from dmuh.encoder.onnx_export import FrozenPart, to_onnx
from dmuh.encoder.onnx_network import OnnxNetwork
from dmuh.errors import DataError, RunError
from dmuh.features import FeatureNetwork, folder_features
from dmuh.images import Reading
from dmuh.index import HammingIndex
from dmuh.opening import open_folder
from dmuh.server.api.app import create_app
from dmuh.server.class_codes import ClassCodes
from dmuh.server.limits import Limits
from dmuh.server.metrics import ServiceMetrics
from dmuh.server.service import Service
from dmuh.trainer.folder_codes import fit_look, train_class, write_model
from tiny import noise, tiny

BITS = 8


@pytest.fixture(scope="module")
def network() -> FeatureNetwork:
    lower = tiny(freeze="all")
    content = to_onnx(FrozenPart(lower))
    return FeatureNetwork("tiny", 8, lower.backbone.preprocess, lambda: OnnxNetwork(content))


@pytest.fixture(scope="module")
def opened(network):
    """Opens a folder; yields what is served, with how many fits there were."""
    fits = []

    def fit(folder, features, labels):
        write_model(folder, fit_look(tiny(freeze="all").backbone, "tiny", features.activations, labels, BITS))
        fits.append(len(features))

    def fit_class(folder, features, labels):
        settings = {"bits": 6, "epochs": 2, "batch_size": 8}
        write_model(folder, train_class(tiny(freeze="all").backbone, "tiny", features.activations, labels, settings))
        fits.append("class")

    @contextmanager
    def open_it(root, state=None, reading=None):
        fits.clear()
        with open_folder(root, state, reading, network=network, by_look=fit, by_class=fit_class) as found:
            yield found, list(fits)

    return open_it


def fill(root: Path, first: int, last: int, folder: str = "") -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    for n, pixels in enumerate(noise(last, 12)[first:], start=first):
        Image.fromarray(pixels).save(root / folder / f"{n:02}.png")


@pytest.fixture
def folder(tmp_path) -> Path:
    fill(tmp_path / "photos", 0, 9)
    return tmp_path / "photos"


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(noise(1, 12, seed)[0]).save(buffer, "PNG")
    return buffer.getvalue()


def ids(catalogue) -> dict[str, int]:
    return {path: id_ for path, (id_, _) in catalogue.files().items()}


def assert_codes_are_of(found) -> None:
    """The catalogue has the codes that the served model gives to the files, to the last bit, and how sure these are."""
    assert found.catalogue.about("model") == found.hasher.digest
    by_path = ids(found.catalogue)
    codes = found.hasher.encode([found.root / path for path in by_path])
    for path, code, contents, unsure in zip(by_path, codes.bits, codes.contents, codes.image_uncertainty, strict=True):
        row = found.catalogue.row(by_path[path])
        assert (row.code, row.contents) == (code.tobytes(), int(contents))
        assert row.uncertainty == pytest.approx(unsure, abs=1e-5)  # exact, not that of the levels


def test_a_folder_is_opened_and_opened_again_without_a_fit(opened, folder):
    with opened(folder) as (found, fits):
        assert fits == [9]
        assert sorted(ids(found.catalogue)) == [f"{n:02}.png" for n in range(9)]
        assert found.hasher.n_bits == BITS
        assert found.catalogue.sure == 1
        assert not found.hasher.calibration.match  # without labels nobody knows what a distance means
        assert_codes_are_of(found)
        before = ids(found.catalogue)
    assert sorted(path.name for path in (folder / ".dmuh").iterdir()) == ["features", "look"]
    with opened(folder) as (found, fits):
        assert fits == []
        assert ids(found.catalogue) == before


def test_what_was_added_changed_and_removed_is_taken_up(opened, folder, tmp_path):
    with opened(folder, tmp_path / "state") as (found, _):
        before = ids(found.catalogue)
        found.catalogue.remove(before["08.png"])  # as the page does: it does not come back
    (folder / "00.png").unlink()
    shutil.copy(folder / "02.png", folder / "01.png")
    os.utime(folder / "01.png", ns=(1, 1))
    fill(folder, 9, 11, "more")
    with opened(folder, tmp_path / "state") as (found, fits):
        after = ids(found.catalogue)
        assert fits == []
        assert sorted(after) == [*(f"{n:02}.png" for n in range(1, 8)), "more/09.png", "more/10.png"]
        assert {path for path in after if before.get(path) == after[path]} == {f"{n:02}.png" for n in range(2, 8)}
        assert found.catalogue.labels() == {"more": 2}
        assert_codes_are_of(found)
    assert not (folder / ".dmuh").exists()


def test_codes_are_fitted_again_once_most_images_are_new(opened, folder):
    with opened(folder) as (found, _):
        before, digest = ids(found.catalogue), found.hasher.digest
        name = f"{'0' * 12}4{'0' * 3}8{'0' * 15}.png"  # as the service names what is added
        shutil.copy(folder / "03.png", found.added / name)
        code = found.hasher.encode(folder / "03.png")
        found.catalogue.add([Entry(name, ["mine"], added=True)], code)
    fill(folder, 9, 18)
    with opened(folder) as (found, fits):
        assert fits == []  # nine of nineteen
    fill(folder, 18, 22)
    with opened(folder) as (found, fits):
        assert fits == [22]
        assert found.hasher.digest != digest
        assert before.items() <= ids(found.catalogue).items()
        assert_codes_are_of(found)
        row = found.catalogue.row(found.catalogue.id_of(name, added=True))
        assert row.code == found.hasher.encode(folder / "03.png").bits[0].tobytes()
        assert found.catalogue.labels() == {"mine": 1}
    with opened(folder) as (found, fits):
        assert fits == []


@pytest.mark.long
def test_a_fit_whose_process_was_killed_is_taken_up(opened, folder, tmp_path):
    fill(tmp_path / "other", 20, 26)
    with opened(tmp_path / "other"), opened(folder) as (found, _):
        before = ids(found.catalogue)
    shutil.copytree(tmp_path / "other" / ".dmuh" / "look", folder / ".dmuh" / "look", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("catalogue*", "added", ".lock"))  # fmt: skip
    with opened(folder) as (found, fits):
        assert fits == []
        assert ids(found.catalogue) == before
        assert_codes_are_of(found)
    (folder / ".dmuh" / "look" / "model.onnx").write_bytes(b"cut short")
    with opened(folder) as (found, fits):
        assert fits == [9]
        assert ids(found.catalogue) == before
        assert_codes_are_of(found)


@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.long)])
def test_few_images_are_enough(opened, tmp_path, n):
    fill(tmp_path, 0, n)
    with opened(tmp_path) as (found, _):
        assert len(found.catalogue) == n
        assert_codes_are_of(found)


def test_broken_images_are_noted_and_a_folder_of_nothing_else_is_refused(opened, folder, tmp_path):
    (folder / "broken.png").write_bytes(b"no image")
    for fitted in ([9], []):
        reading = Reading(on_bad_image="skip")
        with opened(folder, reading=reading) as (found, fits):
            assert (len(found.catalogue), len(reading.bad), fits) == (9, 1, fitted)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "one.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"none of the 1 images below .*bad can be read"), opened(tmp_path / "bad"):
        pass


def test_one_process_at_a_time(opened, folder):
    with opened(folder), pytest.raises(RunError, match=r"another process has .*photos open"), opened(folder):
        pass


@pytest.fixture
def classes(tmp_path) -> Path:
    """Two classes that can be told apart: dark and bright images."""
    root = tmp_path / "classes"
    for n, pixels in enumerate(noise(16, 12)):
        file = root / ("bright" if n % 2 else "dark") / f"{n:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels // 2 + 120 * (n % 2)).save(file)
    return root


def assert_classes_follow(found) -> None:
    """Codes by class have the ids, paths and labels of the others, and are those that their model gives."""
    hasher, catalogue = found.by_class
    ours, theirs = ids(found.catalogue), ids(catalogue)
    assert ours == theirs
    assert catalogue.labels() == found.catalogue.labels()
    codes = hasher.encode([found.root / path for path in theirs])
    for id_, code in zip(theirs.values(), codes.bits, strict=True):
        assert catalogue.row(id_).code == code.tobytes()


def test_a_folder_of_classes_gets_codes_by_class_too(opened, classes):
    with opened(classes) as (found, fits):
        assert fits == [16, "class"]
        assert found.by_class[0].n_bits == 6
        assert found.by_class[0].about["classes"] == ["bright", "dark"]
        assert set(found.by_class[0].calibration.match) >= {"hamming", "soft-1"}
        assert_classes_follow(found)
    fill(classes, 0, 2, "dark")
    (classes / "bright" / "01.png").unlink()
    with opened(classes) as (found, fits):
        assert fits == []
        assert_classes_follow(found)
    fill(classes, 0, 5, "new class")
    with opened(classes) as (found, fits):
        assert fits == ["class"]
        assert found.by_class[0].about["classes"] == ["bright", "dark", "new class"]
        assert_classes_follow(found)
    with opened(classes) as (_, fits):
        assert fits == []


def test_folders_of_few_images_are_no_classes(opened, folder):
    fill(folder, 0, 4, "few")
    fill(folder, 0, 6, "many")
    with opened(folder) as (found, fits):
        assert fits == [19]
        assert found.by_class is None


def test_a_service_searches_by_look_and_by_class(opened, classes):
    limits, metrics = Limits(), ServiceMetrics()
    with opened(classes) as (found, _):
        service = Service(
            found.hasher, found.catalogue, found.root, found.added, most_pixels=limits.pixels, metrics=metrics,
            by_class=ClassCodes(*found.by_class),
        )  # fmt: skip
        app = create_app(service, limits, metrics)
        with closing(service), TestClient(app, base_url="http://127.0.0.1:8000") as client:
            assert client.get("/api/about").json()["by_class"] is True
            query = ids(found.catalogue)["dark/02.png"]
            by = {by: client.get(f"/api/search?id={query}&k=15&by={by}").json() for by in ("look", "class")}
            assert {by: len(answer["query"]["bits"]) for by, answer in by.items()} == {"look": BITS, "class": 6}
            expected = (
                HammingIndex()
                .add(found.by_class[1].codes())
                .search(found.by_class[1].codes()[found.by_class[1].codes().ids == query], 16, ranking="soft")
            )
            assert {match["id"] for match in by["class"]["matches"]} | {query} == set(expected.ids[0].tolist())
            content = (classes / "bright" / "03.png").read_bytes()
            sent = client.post("/api/search?by=class&k=1", content=content).json()["matches"][0]
            assert (sent["id"], sent["identical"]) == (ids(found.catalogue)["bright/03.png"], True)
            new = client.post("/api/images?label=dark", content=png(5)).json()["id"]
            search = f"/api/search?id={new}&k=20&by=class"
            assert len(client.get(search).json()["matches"]) == 16
            assert client.get(f"{search}&label=dark").json()["matches"]
            assert client.delete(f"/api/images/{new}").status_code == 204
            assert client.get(search).status_code == 404
            assert client.post(f"/api/images/{new}/restore").status_code == 200
            assert len(client.get(search).json()["matches"]) == 16
            found_again = client.get(f"/api/search?id={query}&k=20&by=class").json()["matches"]
            assert new in [match["id"] for match in found_again]


def test_labels_say_what_a_distance_means_where_neighbours_share_them(network):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2, 8)) * 4
    features = (centres[np.arange(60) % 2] + rng.normal(size=(60, 8))).astype(np.float32)
    backbone = tiny(freeze="all").backbone
    classes = [[str(n % 2)] for n in range(60)]
    months = [[str(n // 5)] for n in range(60)]
    by_class, by_month = (fit_look(backbone, "tiny", features, labels, BITS).card for labels in (classes, months))
    assert set(by_class["calibration"]["match"]) == {"hamming", "soft-0", "soft-1", "soft-2"}
    assert by_month["calibration"]["match"] == {}


def test_a_folder_that_cannot_be_opened_is_one_sentence(tmp_path):
    assert "the folder" in refused("open", tmp_path / "none", "--port", 0)
    (tmp_path / "empty").mkdir()
    assert "no images below" in refused("open", tmp_path / "empty", "--port", 0)
    assert "give the --token" in refused("open", tmp_path / "empty", "--host", "0.0.0.0")
    sentence = refused("open", tmp_path / "empty", "--port", 0, "--state", tmp_path / "empty" / "state")
    assert "among the images" in sentence


def test_options_reach_where_they_count(folder, tmp_path, monkeypatch):
    seen = []

    def opened(root, state, reading):
        seen.append((root, state, reading.workers, reading.on_bad_image))
        raise DataError("enough")

    monkeypatch.setattr("dmuh.opening.open_folder", opened)
    assert "enough" in refused("open", folder, "--port", 0, "--state", tmp_path / "state", "--workers", 3)
    assert "enough" in refused("open", folder, "--port", 0)
    assert seen == [(folder, tmp_path / "state", 3, "skip"), (folder, None, None, "skip")]


@pytest.mark.long
def test_open_as_a_process(photos, tmp_path):
    root = shutil.copytree(photos, tmp_path / "photos")
    (root / "notes.txt").touch()
    shown, browser = tmp_path / "shown", tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {shown}\n")
    browser.chmod(0o755)
    program = "import sys; from dmuh.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    for expected, options in (("codes are fitted to the look of 20 images", ["--browser"]), ("", [])):
        shown.unlink(missing_ok=True)
        command = [sys.executable, "-c", program, "open", root, "--port", "0", "--workers", "0", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=os.environ | {"BROWSER": str(browser)})  # fmt: skip
        line = process.stdout.readline()
        while options and not (shown.exists() and shown.read_text()):
            time.sleep(0.1)
        process.terminate()
        out, said = process.communicate()
        assert line.startswith("serving 20 images at http://127.0.0.1:"), said
        assert expected in said
        assert "1 file ignored: .txt" in said
        assert out == f"{bool(expected)}\n"
        assert (shown.read_text().strip() if options else "") == (line.split()[4] if options else "")
        assert shown.exists() == bool(options)


@pytest.mark.long
def test_an_opening_that_is_killed_goes_on_from_the_last_part(tmp_path):
    fill(tmp_path / "photos", 0, 40)
    program = "import dmuh.features.folder as f, sys; f._PART = 2; from dmuh.cli import main; main()"
    process = subprocess.Popen([sys.executable, "-c", program, "open", tmp_path / "photos", "--port", "0"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    parts = tmp_path / "photos" / ".dmuh" / "features"
    while len(list(parts.glob("part-*"))) < 3:
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()
    n_kept = 2 * len(list(parts.glob("part-*")))
    computed = []

    @contextmanager
    def count(what, total):
        computed.append(total)
        yield lambda _: None

    found = folder_features(tmp_path / "photos", reading=Reading(on_bad_image="skip", progress=count))
    assert len(found) == 40
    assert sum(computed) == 40 - min(n_kept, 40)
