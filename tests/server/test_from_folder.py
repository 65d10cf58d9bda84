"""Images of a folder into the catalogue, and what may go wrong with the folder."""

import logging
import os
import shutil

import numpy as np
import pytest
from serving import add_new, names

from dmuh.catalogue import StateFolder, remove_outdated
from dmuh.datasets.folder import load_folder, write_folder
from dmuh.errors import DataError


def paths(catalogue):
    return sorted(catalogue.files())


def test_a_folder_is_taken_once_and_its_changes_later(folder, digit_hasher, tmp_path):
    (folder / "loose.png").write_bytes((folder / "ones" / "00.png").read_bytes())
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        assert len(add_new(catalogue, folder, digit_hasher)[0]) == 21
        assert catalogue.labels() == {"ones": 10, "zeros": 10}
        row = catalogue.row(catalogue.id_of("ones/03.png", added=False))
        assert row.code == digit_hasher.encode(folder / "ones" / "03.png").bits[0].tobytes()
        assert add_new(catalogue, folder, digit_hasher)[0] == []
        (folder / "ones" / "03.png").unlink()
        (folder / "ones" / "04.png").write_bytes((folder / "zeros" / "04.png").read_bytes())
        os.utime(folder / "ones" / "04.png", (1, 1))
        shutil.copy(folder / "ones" / "05.png", folder / "new.png")
        before = catalogue.id_of("ones/04.png", added=False)
        new, _ = add_new(catalogue, folder, digit_hasher)
        assert sorted(new) == ["new.png", "ones/04.png"]
        assert "ones/03.png" not in paths(catalogue)
        assert catalogue.id_of("ones/04.png", added=False) != before  # browsers keep what an id showed
        assert len(catalogue) == 21


def test_what_was_deleted_through_the_service_does_not_come_back(folder, digit_hasher, tmp_path):
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
        catalogue.remove(catalogue.id_of("ones/00.png", added=False))
        assert add_new(catalogue, folder, digit_hasher)[0] == []
        assert len(catalogue) == 19


def test_links_out_of_the_folder_and_broken_images_are_left_out(folder, digit_hasher, tmp_path, caplog):
    (tmp_path / "secret.png").write_bytes((folder / "ones" / "00.png").read_bytes())
    (folder / "ones" / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "ones" / "inside.png").symlink_to(folder / "zeros" / "00.png")
    (folder / "ones" / "broken.png").write_text("no image")
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue, caplog.at_level(logging.WARNING):
        _, bad = add_new(catalogue, folder, digit_hasher)
        assert "1 links lead out of" in caplog.text
        assert len(bad) == 1
        assert "ones/inside.png" in paths(catalogue)
        assert not {"ones/link.png", "ones/broken.png"} & set(paths(catalogue))


def test_a_folder_name_that_is_not_unicode_is_a_label_all_the_same(folder, digit_hasher, tmp_path):
    strange = folder / os.fsdecode(b"caf\xe9")
    shutil.copytree(folder / "ones", strange)
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
        assert catalogue.labels()[r"caf\xe9"] == 10


@pytest.mark.parametrize(("name", "sentence"), [("nowhere", "does not exist"), ("file", "is not a folder")])
def test_a_folder_that_is_none_is_refused(digit_hasher, tmp_path, name, sentence):
    (tmp_path / "file").write_text("")
    with (
        StateFolder(tmp_path / "state").open(digit_hasher) as catalogue,
        pytest.raises(DataError, match=sentence),
    ):
        remove_outdated(catalogue, tmp_path / name)


def test_a_folder_that_is_not_there_any_more_empties_no_catalogue(folder, digit_hasher, tmp_path):
    state, empty = StateFolder(tmp_path / "state"), tmp_path / "unmounted"
    empty.mkdir()
    with state.open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        for other in (folder, empty, tmp_path / "state"):
            with pytest.raises(DataError, match=r"none of the 20 images that .* knows is in .*: mount it, give "):
                remove_outdated(catalogue, other)
        assert len(catalogue) == 20
        assert catalogue.about("folder") == str(folder)
        assert add_new(catalogue, tmp_path / "moved", digit_hasher)[0] == []  # it has moved, and is found
        assert len(catalogue) == 20
        assert catalogue.about("folder") == str(tmp_path / "moved")


def test_few_images_may_all_be_replaced(folder, digit_hasher, tmp_path):
    shutil.rmtree(folder / "ones")
    for file in sorted((folder / "zeros").iterdir())[3:]:
        file.unlink()
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
        (folder / "zeros").rename(folder / "others")
        assert len(add_new(catalogue, folder, digit_hasher)[0]) == len(catalogue) == 3


def test_files_of_unknown_type_are_counted_aloud(folder, digit_hasher, tmp_path, caplog):
    for name in ("ones/a.mov", "b.cr2", "zeros/c.mov", ".hidden", "Thumbs.db"):
        (folder / name).touch()
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        add_new(catalogue, folder, digit_hasher)
    assert f"{folder}: 3 files ignored: .mov, .cr2" in caplog.messages


def test_link_loops_pipes_and_devices_are_passed_over(folder, digit_hasher, tmp_path):
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "loop").symlink_to("loop")
    (folder / "round").symlink_to(folder)
    (folder / "zero.jpg").symlink_to("/dev/zero")
    (folder / "nowhere.jpg").symlink_to("nothing")
    os.mkfifo(folder / "pipe.jpg")
    (folder / os.fsdecode(b"\xff.png")).write_bytes((folder / "ones" / "00.png").read_bytes())
    with StateFolder(tmp_path / "state").open(digit_hasher) as catalogue:
        _, bad = add_new(catalogue, folder, digit_hasher)
        assert len(catalogue) == 21
        assert len(bad) == 0
        assert catalogue.id_of(os.fsdecode(b"\xff.png"), added=False) is not None


def test_a_folder_is_written_whole_and_once(digits, tmp_path):
    root = tmp_path / "images"
    positions = np.array([0, 70, 200])
    written = write_folder(digits, positions, root)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*.png")) == [
        "0/00000.png", "1/00070.png", "7/00200.png"
    ]  # fmt: skip
    again = load_folder(root)
    assert [again.label_text(n) for n in range(3)] == ["0", "1", "7"]
    (root / "0" / "00000.png").unlink()
    assert write_folder(digits, positions, root).path(70) == written.path(70) == str(root / "1" / "00070.png")
    assert not (root / "0" / "00000.png").exists()  # what is there is not touched


def test_a_folder_beside_it_is_not_touched(digits, tmp_path):
    (tmp_path / ".images").mkdir()
    (tmp_path / ".images" / "mine.txt").write_text("mine")
    write_folder(digits, np.array([0]), tmp_path / "images")
    assert names(tmp_path) == [".images", "images"]
    assert (tmp_path / ".images" / "mine.txt").read_text() == "mine"
    with pytest.raises(IndexError):
        write_folder(digits, np.array([0, len(digits)]), tmp_path / "others")
    assert names(tmp_path) == [".images", "images"]  # nothing is left of what failed


def test_codes_are_kept_with_as_many_sure_bits_as_the_catalogue_has(folder, digit_hasher, tmp_path):
    for sure, expected in ((None, 1), (0, 0), (2, 2)):
        with StateFolder(tmp_path / f"state {sure}").open(digit_hasher) as catalogue:
            add_new(catalogue, folder, digit_hasher, sure)
            assert (catalogue.sure, catalogue.codes().sure) == (expected, expected)
            shutil.copy(folder / "ones" / "00.png", folder / f"new {sure}.png")
            add_new(catalogue, folder, digit_hasher)
            assert catalogue.codes().sure == expected
            with pytest.raises(DataError, match=f"holds codes with {expected} sure bits per bit"):
                add_new(catalogue, folder, digit_hasher, (expected + 1) % 3)  # though there is nothing new
