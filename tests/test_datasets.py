import os
import shutil

import numpy as np
import pytest

from dmuh.config import DataSettings
from dmuh.datasets import DATASETS, Dataset, load_dataset, load_images, multi_hot, one_hot
from dmuh.datasets.csv_list import load_csv
from dmuh.datasets.folder import load_folder
from dmuh.errors import ConfigError, DataError, InputError


def touch(root, *names):
    """Make empty files: reading a data set looks at names only."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def names_of(dataset, root):
    return [path.relative_to(root).as_posix() for path in dataset.images]


def label_texts(dataset):
    return [dataset.label_text(position) for position in range(len(dataset))]


def test_mnist5k_is_500_images_of_each_digit():
    dataset = load_dataset(DataSettings())
    assert (dataset.name, dataset.classes) == ("mnist5k", tuple("0123456789"))
    assert (dataset.images.shape, dataset.images.dtype) == ((5000, 28, 28), np.uint8)
    assert dataset.images.max() == 255
    assert dataset.labels.sum(axis=0).tolist() == [500] * 10
    assert dataset.labels.sum(axis=1).tolist() == [1] * 5000
    assert dataset.path(7) == "image 7"
    assert dataset.take(np.array([3, 1])).tolist() == dataset.images[[3, 1]].tolist()


@pytest.mark.parametrize(
    ("how", "classes", "labels"),
    [
        ("top", ("cat", "dog"), ["cat", "cat", "dog", ""]),
        ("own", ("cat", "cat/big", "dog"), ["cat", "cat/big", "dog", ""]),
    ],
)
def test_a_folder_gives_its_images_their_class(tmp_path, how, classes, labels):
    touch(tmp_path, "dog/1.png", "cat/big/2.png", "cat/1.jpg", "loose.png", "cat/notes.txt", ".trash/3.png")
    dataset = load_dataset(DataSettings(dataset="folder", data=str(tmp_path), class_folder=how))
    assert names_of(dataset, tmp_path) == ["cat/1.jpg", "cat/big/2.png", "dog/1.png", "loose.png"]
    assert dataset.classes == classes
    assert label_texts(dataset) == labels
    assert dataset.path(0) == str(tmp_path / "cat/1.jpg")
    assert [path.name for path in dataset.take(np.array([2, 0]))] == ["1.png", "1.jpg"]


def test_images_beside_the_class_folders_are_noted(tmp_path):
    touch(tmp_path, "a/1.png", "b/1.png")
    assert load_folder(tmp_path).notes == ()
    touch(tmp_path, "1.png", "2.png")
    assert load_folder(tmp_path).notes == ("2 images lie beside the class folders and have no label",)


def test_files_of_unknown_type_are_noted(tmp_path):
    touch(tmp_path, "a/1.png", "a/2.mov", "b/1.png", "b/3.mov", "b/3.cr2", "b/.hidden", "Thumbs.db")
    note = "3 files ignored: .mov, .cr2"
    assert load_folder(tmp_path).notes == (note,)
    assert load_images([tmp_path / "a", tmp_path / "b", tmp_path / "a" / "1.png"]).notes == (note,)
    assert load_images([tmp_path / "a" / "1.png"]).notes == ()


def test_a_data_set_is_loaded_by_its_name_and_place(tmp_path):
    touch(tmp_path, "cat/big/2.png", "cat/1.jpg")
    assert load_dataset("folder", tmp_path).classes == ("cat",)
    assert load_dataset("folder", str(tmp_path), class_folder="own").classes == ("cat", "cat/big")
    settings = DataSettings(dataset="folder", data="moved", class_folder="own")
    assert load_dataset(settings, tmp_path).classes == ("cat", "cat/big")
    assert repr(load_dataset(settings, tmp_path)) == "Dataset(folder: 2 images, 2 classes)"
    assert repr(load_dataset("images", tmp_path)) == "Dataset(images: 2 images, no labels)"
    for options, words in [
        ({"class_folder": "mine"}, "class_folder must be"),
        ({"clas_folder": "own"}, "unknown setting of a data set 'clas_folder': did you mean class_folder"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load_dataset("folder", tmp_path, **options)
    with pytest.raises(ConfigError, match="unknown data set 'folders': did you mean folder"):
        load_dataset("folders", tmp_path)


@pytest.mark.parametrize(
    ("files", "data", "words"),
    [
        ([], ".", "no images below .*looked for .jpg"),
        (["a/notes.txt", "b.mov"], ".", "no images below .*; 2 files ignored: .mov, .txt"),
        (["1.png", "2.png"], ".", "2 images but no folders: put the images of each class into a folder"),
        (["a/1.png"], "a/1.png", "is not a folder"),
        (["a/1.png"], "b", "b does not exist"),
    ],
)
def test_a_folder_without_classes_is_refused(tmp_path, files, data, words):
    touch(tmp_path, *files)
    with pytest.raises(DataError, match=words):
        load_dataset(DataSettings(dataset="folder", data=str(tmp_path / data)))


def test_images_without_labels_come_from_files_and_folders(tmp_path):
    touch(tmp_path, "b/2.png", "b/1.png", "a.png", "c.png")
    dataset = load_images([tmp_path / "c.png", tmp_path / "b"])
    assert names_of(dataset, tmp_path) == ["c.png", "b/1.png", "b/2.png"]
    assert dataset.labels.shape == (3, 0)
    assert len(load_dataset(DataSettings(dataset="images", data=str(tmp_path)))) == 4
    with pytest.raises(DataError, match=r"d\.png does not exist"):
        load_images([tmp_path / "d.png"])


@pytest.fixture
def listed(tmp_path):
    """Writes a list beside four images and reads it."""
    touch(tmp_path, "images/1.png", "images/2.png", "images/3.png", "images/é.png")

    def read(text, **options):
        (tmp_path / "list.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_csv(tmp_path / "list.csv", **options)

    return read


def test_a_list_gives_labels_and_keeps_other_columns_as_metadata(listed, tmp_path):
    dataset = listed("image,labels,site\nimages/2.png, sea;; sky ; ,north\nimages/1.png,sky,\nimages/é.png,,east\n")
    assert names_of(dataset, tmp_path) == ["images/2.png", "images/1.png", "images/é.png"]
    assert dataset.classes == ("sea", "sky")
    assert dataset.labels.tolist() == [[1, 1], [0, 1], [0, 0]]
    assert label_texts(dataset) == ["sea;sky", "sky", ""]
    assert dataset.metadata["site"] == ["north", "", "east"]
    assert "labels" not in dataset.metadata
    assert dataset.notes == ("1 images have no label",)


def test_columns_of_zeros_and_ones_are_labels(listed):
    dataset = listed("path,score,tree,car\nimages/1.png,0.5,1,0\nimages/2.png,1, 1 ,1\nimages/3.png,0,0,0\n")
    assert dataset.classes == ("tree", "car")
    assert dataset.labels.tolist() == [[1, 0], [1, 1], [0, 0]]
    assert dataset.metadata["score"] == ["0.5", "1", "0"]


def test_a_label_column_goes_before_columns_of_zeros_and_ones(listed):
    dataset = listed("file,night,Label\nimages/1.png,1,a\nimages/2.png,0,b\n")
    assert dataset.classes == ("a", "b")
    assert dataset.metadata["night"] == ["1", "0"]


LIST = "image;label\nimages/1.png;a\nimages/2.png;b\n"


@pytest.mark.parametrize(
    "text",
    [
        LIST.replace(";", ","),
        LIST,
        LIST.replace(";", "\t"),
        b"\xef\xbb\xbf" + LIST.encode(),
        b"\xef\xbb\xbf" + LIST.replace(";", ",").encode(),
        LIST.replace(";", ",").replace("\n", "\r\n"),
        LIST.replace(";", ",").replace("\n", "\n\n"),
        'image,label\n"images/1.png","a"\n"images/2.png","b"',
        'image;label\nimages/1.png;"a"\nimages/2.png;"b"\n',
    ],
    ids=["comma", "semicolon", "tab", "mark and semicolon", "mark", "windows", "blank lines", "quoted", "quoted ;"],
)
def test_lists_of_every_origin_read_alike(listed, tmp_path, text):
    dataset = listed(text)
    assert names_of(dataset, tmp_path) == ["images/1.png", "images/2.png"]
    assert label_texts(dataset) == ["a", "b"]


def test_a_semicolon_list_may_quote_several_labels(listed):
    assert label_texts(listed('image;label\nimages/1.png;"a;b"\n')) == ["a;b"]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"path_column": "thumb"}, ["images/3.png", "images/3.png"]),
        ({"path_format": "images/{id}.png"}, ["images/1.png", "images/2.png"]),
        ({"path_format": "{folder}/{id:>1}.png"}, ["images/1.png", "images/2.png"]),
    ],
)
def test_the_path_is_a_column_or_built_from_columns(listed, tmp_path, options, names):
    text = "id,folder,thumb,who\n1,images,images/3.png,a\n2,images,images/3.png,b\n"
    dataset = listed(text, label_column="who", **options)
    assert names_of(dataset, tmp_path) == names
    assert dataset.metadata["id"] == ["1", "2"]


@pytest.mark.parametrize("column", ["file.name", "image:path"])
def test_a_path_column_may_have_any_name(listed, tmp_path, column):
    dataset = listed(f"{column},label\nimages/1.png,a\n", path_column=column)
    assert names_of(dataset, tmp_path) == ["images/1.png"]


@pytest.mark.parametrize("separator", ["|", ",", ";", " ", "/"])
def test_a_label_separator_can_be_named(listed, separator):
    dataset = listed(f'image,label\nimages/1.png,"a{separator}b"\nimages/2.png,b\n', label_separator=separator)
    assert label_texts(dataset) == ["a;b", "b"]


@pytest.mark.parametrize("separator", ["|", ","])
def test_labels_that_seem_to_have_another_separator_are_refused_until_one_is_named(listed, separator):
    text = f'image,label\nimages/1.png,"a{separator}b"\nimages/2.png,b\n'
    with pytest.raises(DataError, match=rf"column label .*separated by ; .*label_separator=\{separator}"):
        listed(text)
    assert listed(text, label_separator=";").classes == (f"a{separator}b", "b")
    assert listed(text.replace(",b\n", ",b;c\n")).classes == (f"a{separator}b", "b", "c")


@pytest.mark.parametrize("separator", ["ab", "x", ", "])
def test_a_label_separator_is_one_sign(listed, separator):
    with pytest.raises(DataError, match=f"label_separator must be one character .* got '{separator}'"):
        listed("image,label\nimages/1.png,a\n", label_separator=separator)


def test_missing_images_are_an_error_or_left_out(listed, tmp_path):
    text = "image,label,site\nimages/9.png,z,x\nimages/1.png,a,y\nimages,b,x\n"
    words = r"names 2 images that do not exist, the first is .*9\.png.*--on-bad-image skip"
    with pytest.raises(DataError, match=words):
        listed(text)
    dataset = listed(text, on_bad_image="skip")
    assert names_of(dataset, tmp_path) == ["images/1.png"]
    assert (dataset.classes, dataset.metadata["site"]) == (("a",), ["y"])
    assert "2 images that do not exist" in dataset.notes[0]


def test_a_list_of_which_no_image_exists_is_refused_without_advice_that_does_not_help(listed):
    with pytest.raises(DataError, match="names 1 images that do not exist") as caught:
        listed("image,label\nimages/9.png,a\n", on_bad_image="skip")
    assert "--on-bad-image skip" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("photo,label\nimages/1.png,a\n", {}, "no column image, path.*name one of photo, label by path_column"),
        ("image,label\nimages/1.png,a\n", {"path_column": "imag"}, "unknown column 'imag': did you mean image"),
        ("image,label\nimages/1.png,a\n", {"label_column": "labl"}, "unknown column 'labl': did you mean label"),
        ("image,label\nimages/1.png,a\n", {"path_format": "x/{id}.png"}, "unknown column 'id': known are image, label"),
        ("image,label\nimages/1.png,a\n", {"path_format": "x/1.png"}, "names no column: write one in braces"),
        ("image,label\nimages/1.png,a\n", {"path_format": "{image"}, "is not a pattern such as"),
        ("id,label\n1,a\n", {"path_format": "images/{id:05d}.png"}, "path_format"),
        ("image,site\nimages/1.png,a\n", {}, "no labels: expected a column labels, .* found site"),
        ("image\nimages/1.png\n", {}, "no labels: .* found only the path"),
        ("image,label\nimages/1.png,a\nimages/2.png\n", {}, "line 3: not 2 columns"),
        ("image,label\nimages/1.png,a\nimages/2.png,a,b\n", {}, "line 3: not 2 columns"),
        ("image,cat,cat\nimages/1.png,1,0\n", {}, "cat"),
        ("image,label\n", {}, "lists no images"),
        ("", {}, "lists no images"),
        (b"image,label\nimages/1.png,caf\xe9\n", {}, "not a CSV file in UTF-8"),
        ('image,label\nimages/1.png,"a\n', {}, "not a CSV file"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(listed, text, options, words):
    with pytest.raises(DataError, match=words):
        listed(text, **options)


CAPTIONS = """image,label,first,second,site
images/1.png,sea,A boat., boat at sea ,north
images/2.png,sky,,A bird.,north
images/1.png,sky,A boat.,Two boats.,east
images/3.png,sea, ,,west
"""


def test_texts_of_one_column(listed, tmp_path):
    dataset = listed("image,label,caption\nimages/2.png,a,A bird.\nimages/1.png,b, a boat \n", texts="caption")
    assert names_of(dataset, tmp_path) == ["images/2.png", "images/1.png"]
    assert dataset.texts == (("A bird.",), ("a boat",))
    assert dataset.metadata["caption"] == ["A bird.", "a boat"]
    assert dataset.notes == ()


@pytest.mark.parametrize("between", [";", ",", " ; "])
def test_rows_of_one_image_are_one_image_with_all_their_texts_and_labels(listed, tmp_path, between):
    dataset = listed(CAPTIONS, texts=between.join(["first", "second"]))
    assert names_of(dataset, tmp_path) == ["images/1.png", "images/2.png"]
    assert dataset.texts == (("A boat.", "boat at sea", "Two boats."), ("A bird.",))
    assert label_texts(dataset) == ["sea;sky", "sky"]
    assert dataset.metadata["site"] == ["north\neast", "north"]
    assert dataset.notes == ("1 images have no text and are left out",)


BROKEN = 'image,label,caption\nimages/1.png,a,"A bird\n  on a\r\n\nroof.\u2028 "\nimages/1.png,a,"One\x85bird."\n'


def test_line_breaks_in_a_sentence_are_spaces(listed):
    dataset = listed(BROKEN, texts="caption")
    assert dataset.texts == (("A bird on a roof.", "One bird."),)
    assert dataset.metadata["caption"] == ["A bird on a roof.\nOne bird."]
    assert listed(BROKEN).metadata["caption"] == ["A bird\n  on a\r\n\nroof.\u2028 ", "One\x85bird."]  # no texts


def test_rows_stay_as_they_are_where_no_texts_are_read(listed):
    dataset = listed(CAPTIONS)
    assert (len(dataset), dataset.texts) == (4, None)
    assert dataset.metadata["first"] == ["A boat.", "", "A boat.", " "]


def test_columns_of_texts_are_no_labels(listed):
    dataset = listed("image,class,cat\nimages/1.png,1,1\nimages/2.png,0,0\n", texts="class")
    assert (dataset.classes, dataset.texts) == (("cat",), (("1",), ("0",)))
    assert listed('image,label,"a;b"\nimages/1.png,x,hm\n', texts="a;b").texts == (("hm",),)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ("firs", "unknown column 'firs': did you mean first"),
        ("first;secnd", "unknown column 'secnd': did you mean second"),
    ],
)
def test_columns_of_texts_that_are_not_there_are_refused(listed, texts, words):
    with pytest.raises(DataError, match=words):
        listed(CAPTIONS, texts=texts)


def test_a_list_without_any_text_is_refused(listed):
    with pytest.raises(DataError, match=r"list\.csv has no text about any image"):
        listed("image,label,caption\nimages/1.png,a, \n", texts="caption")


def test_texts_are_read_from_data_sets_that_have_them(tmp_path):
    touch(tmp_path, "a/1.png")
    (tmp_path / "a.csv").write_text("image,label,caption\na/1.png,x,A boat.\n")
    assert load_dataset("csv", tmp_path / "a.csv", texts="caption").texts == (("A boat.",),)
    words = r"folder has no texts: they are read from csv \(columns of the list\) and coco \(captions\)"
    with pytest.raises(ConfigError, match=words):
        load_dataset("folder", tmp_path, texts="caption")


def test_texts_change_the_fingerprint_and_not_what_is_known_of_the_images(listed):
    plain, one, other = listed(CAPTIONS), listed(CAPTIONS, texts="first"), listed(CAPTIONS, texts="second")
    assert len({data.fingerprint() for data in (plain, one, other)}) == 3
    labels, images = np.ones((2, 1), np.uint8), ["d/a.png", "d/b.png"]
    alone = Dataset("x", images, labels, ("p",))
    said = [Dataset("x", images, labels, ("p",), texts=texts) for texts in ((("a", "b"), ("c",)), (("a",), ("b", "c")))]
    assert alone.fingerprint().startswith("188c613f487fddc9")  # as before there were texts
    assert len({alone.fingerprint(), *(data.fingerprint() for data in said)}) == 3
    assert {data.content_key() for data in said} == {alone.content_key()}


@pytest.mark.parametrize("texts", [(("a",),), (("a",), ())])
def test_texts_must_be_there_for_each_image(texts):
    with pytest.raises(InputError, match="one or more sentences for each of 2 images, got 1 with some"):
        Dataset("x", ["1.png", "2.png"], np.ones((2, 1), np.uint8), ("a",), texts=texts)


def test_the_one_list_of_a_folder_is_found(tmp_path):
    touch(tmp_path, "1.png")
    (tmp_path / "a.csv").write_text("image,label\n1.png,x\n")
    assert load_dataset(DataSettings(dataset="csv", data=str(tmp_path))).classes == ("x",)
    (tmp_path / "b.csv").touch()
    with pytest.raises(DataError, match=r"holds 2 \.csv files: name the one to read"):
        load_dataset(DataSettings(dataset="csv", data=str(tmp_path)))


def test_the_settings_of_a_list_reach_it(tmp_path):
    touch(tmp_path, "images/1.png")
    (tmp_path / "a.csv").write_text("id,where,who\n1,images/1.png,x|y\n2,no.png,z\n")
    settings = {"dataset": "csv", "data": str(tmp_path / "a.csv"), "on_bad_image": "skip", "label_column": "who"}
    for path in ({"path_column": "where"}, {"path_format": "images/{id}.png"}):
        dataset = load_dataset(DataSettings(**settings, **path, label_separator="|"))
        assert (len(dataset), dataset.classes) == (1, ("x", "y"))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"dataset": "mnist5"}, ConfigError, "unknown data set 'mnist5': did you mean mnist5k"),
        ({"dataset": "zzz"}, ConfigError, "unknown data set 'zzz': known are cifar10, clothing1m, coco, csv, features"),
        ({"dataset": "mnist5k", "data": "x"}, ConfigError, "takes no data folder, got 'x'"),
        ({"dataset": "folder"}, ConfigError, "folder needs a folder or file"),
        ({"dataset": "csv", "data": "nowhere.csv"}, DataError, r"nowhere\.csv does not exist"),
    ],
)
def test_settings_that_name_no_data_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        load_dataset(DataSettings(**settings))


def test_every_data_set_says_what_it_is():
    assert all(source.about for source in DATASETS.values())


def test_the_fingerprint_tells_labels_names_classes_and_pixels_apart():
    labels = np.array([[1, 0], [0, 1]], np.uint8)
    pixels = np.zeros((2, 4, 4), np.uint8)
    other = pixels.copy()
    other[1, 2, 3] = 1
    prints = [
        Dataset("x", images, labels_, classes).fingerprint()
        for images, labels_, classes in [
            (["d/a.png", "d/b.png"], labels, ("p", "q")),
            (["d/a.png", "d/c.png"], labels, ("p", "q")),
            (["d/b.png", "d/a.png"], labels, ("p", "q")),
            (["d/a.png", "d/b.png"], labels[::-1], ("p", "q")),
            (["d/a.png", "d/b.png"], labels, ("p", "r")),
            (pixels, labels, ("p", "q")),
            (other, labels, ("p", "q")),
        ]
    ]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize("moved", ["elsewhere/data", "renamed"])
@pytest.mark.parametrize("layout", ["class folders", "list and images in one folder"])
def test_the_fingerprint_does_not_depend_on_where_the_data_lies(tmp_path, layout, moved):
    flat = layout != "class folders"

    def fingerprint(root):
        return (load_csv(root / "list.csv") if flat else load_folder(root)).fingerprint()

    touch(tmp_path / "data", *(["1.png", "2.png"] if flat else ["a/1.png", "b/1.png"]))
    (tmp_path / "data/list.csv").write_text("image,label\n1.png,x\n2.png,y\n")
    before = fingerprint(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / moved)
    assert fingerprint(tmp_path / moved) == before


def test_a_file_name_that_is_not_unicode_has_a_fingerprint(tmp_path):
    touch(tmp_path, "a/1.png", os.fsdecode(b"b/caf\xe9.png"))
    assert len(load_folder(tmp_path).fingerprint()) == 64


def test_labels_must_fit_images_and_classes():
    with pytest.raises(InputError, match=r"shape \(2, 3\) \(images, classes\), got \(2, 2\)"):
        Dataset("x", ["1.png", "2.png"], np.zeros((2, 2), np.uint8), ("a", "b", "c"))


def test_multi_hot_has_a_one_for_each_name():
    labels = multi_hot([["b"], [], ["c", "a"], ["a", "a"]], ("a", "b", "c"))
    assert labels.dtype == np.uint8
    assert labels.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 1], [1, 0, 0]]
    assert multi_hot([], ("a",)).shape == (0, 1)


@pytest.mark.parametrize("numbers", [[2, 0, 2], np.array([2, 0, 2], np.uint8)])
def test_one_hot_has_a_one_at_each_number(numbers):
    assert one_hot(numbers).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1]]
    assert one_hot(numbers, 4).shape == (3, 4)
    assert one_hot(numbers).dtype == np.uint8


@pytest.mark.parametrize(
    "make",
    [
        lambda: one_hot([0, -1]),
        lambda: one_hot([0.0, 1.0]),
        lambda: one_hot([[0, 1]]),
        lambda: one_hot([0, 3], 3),
        lambda: multi_hot([["a"], ["z"]], ("a", "b")),
    ],
    ids=["negative", "real", "matrix", "beyond the classes", "unknown name"],
)
def test_labels_that_are_no_classes_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "list.csv").write_text("image,label\npipe.jpg,a\n")
    with pytest.raises(DataError, match=r"pipe\.jpg is not a folder"):
        load_images([tmp_path / "pipe.jpg"])
    with pytest.raises(DataError, match=r"names 1 images that do not exist, the first is .*pipe\.jpg"):
        load_csv(tmp_path / "list.csv")
    with pytest.raises(DataError, match=r"cannot read the list .*pipe\.csv: not a regular file"):
        load_csv(tmp_path / "pipe.csv")
