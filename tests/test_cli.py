import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from commands import dmuh, refused
from dmuh import Collection
from processes import start_command

FAST = ["--epochs", "2", "--bits", "12", "--backbone", "smallconv", "--set", "image_size=16"]


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = dmuh("train", "--dataset", "folder", "--data", photos, "--out", folder, *FAST)
    assert re.fullmatch(r"MAP \d\.\d{4}", result.stdout.splitlines()[-1])
    return folder


@pytest.fixture(scope="module")
def index(run, photos, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "index"
    assert "20 images indexed" in dmuh("index", run, photos, "--dataset", "folder", "--out", folder).stdout
    return folder


def test_help_loads_nothing_heavy():
    program = (
        "import sys\nfrom dmuh.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('torch', 'numpy', 'PIL', 'matplotlib', 'onnxruntime')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stderr == "[]\n"


def test_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", dmuh("--version").stdout)


def test_list():
    text = dmuh("list").stdout
    assert all(name in text for name in ("dmuh-no-bit", "regu", "mnist5k", "folder", "smallconv", "stratified"))
    tables = json.loads(dmuh("list", "--json").stdout)
    assert {"name": "lr", "default": 0.1, "about": "learning rate at the start", "section": "training"} in tables[
        "settings"
    ]
    assert list(json.loads(dmuh("list", "--methods", "--json").stdout)) == ["methods"]
    assert [row["name"] for row in json.loads(dmuh("list", "--text-encoders", "--json").stdout)["text_encoders"]] == [
        "minilm",
        "words",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_the_output_has_not_are_escaped(encoding):
    table, document = (dmuh("list", *form, encoding=encoding).stdout for form in ([], ["--json"]))
    assert json.loads(document) == json.loads(dmuh("list", "--json").stdout)
    assert ("\\u" in table) == (encoding == "ascii")


def test_names_that_are_no_text_are_escaped():
    """A file's name may be any bytes; Python has those that are not UTF-8 as lone halves of letters."""
    program = "import sys; sys.argv = ['dmuh', 'search', 'no\\udce9where', 'x']; from dmuh.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "\\udce9where" in done.stderr


def test_search_as_table_json_and_picture(run, index, photos, tmp_path):
    query = photos / "ones" / "03.png"
    table = dmuh("search", index, query, "-k", "3", "--sheet", tmp_path / "sheet.png").stdout
    assert re.search(r"\(about \d\.\d of 12 bits may turn over; less sure than \d+% of the collection\)\n", table)
    assert re.search(rf"^  \d+\.\d +same image +ones +{re.escape(str(query))}$", table, re.MULTILINE)
    assert re.search(r"^  distance  match +labels  image\n  \d+\.\d +same image", table, re.MULTILINE)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size[0] > 4 * 96
    (answer,) = json.loads(dmuh("search", index, query, "-k", "3", "--json").stdout)
    assert answer["query"] == str(query)
    assert len(answer["matches"]) == 3
    first = answer["matches"][0]
    assert (first["path"], first["identical"], first["hamming"]) == (str(query), True, 0)
    assert (first["match"], first["likely"]) == (1, "very likely")
    assert 0 <= first["uncertainty"] <= 1
    assert 0 <= answer["uncertainty"] <= 1
    assert 0 <= answer["unsure_bits"] <= 6
    assert 0 <= answer["less_certain_than"] <= 100
    nearest = json.loads(dmuh("search", index, query, "--radius", "0", "--json").stdout)[0]["matches"]
    assert str(query) in [match["path"] for match in nearest]
    assert {match["distance"] for match in nearest} == {0}


def test_unlabelled_images_can_be_encoded_indexed_and_searched(run, photos, tmp_path):
    assert "10 images encoded" in dmuh("encode", run, photos / "ones", "--out", tmp_path / "codes").stdout
    assert json.loads(dmuh("index", tmp_path / "codes", "--json").stdout)["images"] == 10
    (answer,) = json.loads(dmuh("search", tmp_path / "codes", photos / "zeros" / "00.png", "--json").stdout)
    assert len(answer["matches"]) == 10
    assert answer["matches"][0]["labels"] == []


def test_evaluate_a_run_and_codes(run, photos, tmp_path):
    first = json.loads(dmuh("evaluate", run, "--json").stdout)
    assert first["n_queries"] == 2
    cut = json.loads(dmuh("evaluate", run, "--topk", "3", "--ties", "index-order", "--radius", "0", "--json").stdout)
    assert (cut["topk"], cut["ties"], cut["radius"]) == (3, "index-order", 0)
    assert dmuh("evaluate", run).stdout.splitlines()[-1] == f"MAP {first['map']:.4f}"
    dmuh("encode", run, photos, "--dataset", "folder", "--out", tmp_path / "codes")
    codes = tmp_path / "codes"
    assert json.loads(dmuh("evaluate", "--query", codes, "--database", codes, "--json").stdout)["n_database"] == 20


def test_train_on_a_list_with_several_labels(photos, tmp_path):
    lines = ["image_id,caption,red,round"]
    for n, path in enumerate(sorted(photos.rglob("*.png"))):
        (tmp_path / f"{n}.png").write_bytes(path.read_bytes())
        lines.append(f"{n},number {n},{n % 2},{int(n < 10)}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    options = ["--dataset", "csv", "--path-format", "{image_id}.png", "--data", tmp_path / "list.csv"]
    result = json.loads(dmuh("train", *options, "--out", tmp_path / "run", *FAST, "--json").stdout)
    assert 0 <= result["map"] <= 1
    dmuh("encode", tmp_path / "run", tmp_path / "list.csv", *options[:4], "--out", tmp_path / "codes")
    item = Collection(tmp_path / "codes").items([1])[1]
    assert item.metadata == {"image_id": "1", "caption": "number 1"}
    assert item.labels == ["red", "round"]
    (tmp_path / "list.csv").write_text("\n".join([*lines, "1,another text,0,0"]))
    texts = ["--texts", "caption", "--out", tmp_path / "texts"]
    dmuh("encode", tmp_path / "run", tmp_path / "list.csv", *options[:4], *texts)
    items = Collection(tmp_path / "texts").items(range(20))
    assert (len(items), items[1].metadata["caption"]) == (20, "number 1\nanother text")


@pytest.mark.long
def test_a_run_goes_on_where_its_photographs_were_moved_to(photos, tmp_path):
    moved, out = tmp_path / "moved", tmp_path / "run"
    shutil.copytree(photos, tmp_path / "photos")
    many = ["--epochs", "40", "--set", "evaluate_every=40"]
    process = start_command("train", "--dataset", "folder", "--data", tmp_path / "photos", *FAST, *many, "--out", out)
    while process.running and not (out / "checkpoint.safetensors").exists():
        time.sleep(0.01)
    assert process.kill() == -signal.SIGKILL
    (tmp_path / "photos").rename(moved)
    gone = "photos, the data of .*run, does not exist: put it back, or say where it is by --data"
    assert re.search(gone, refused("train", "--out", out, "--resume"))
    assert "MAP" in dmuh("train", "--out", out, "--resume", "--data", moved).stdout


def test_resume_takes_the_run_up_and_refuses_other_settings(run, photos):
    again = dmuh("train", "--out", run, "--resume", "--no-evaluate").stdout
    assert "trained dmuh-plus with 12 bits" in again
    dmuh("train", "--out", run, "--resume", "--bits", 12, "--no-evaluate")
    assert "begun with other settings than bits" in refused("train", "--out", run, "--resume", "--bits", 16)
    again = dmuh("train", "--dataset", "folder", "--data", photos, "--out", run, code=2)
    assert "holds a run already" in again.stderr.splitlines()[-1]


def test_config_file_and_overrides(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text((run / "config.toml").read_text())
    out = tmp_path / "again"
    dmuh("train", "--config", config, "--out", out, "--set", "seed=0", "--no-evaluate")
    assert (out / "config.toml").read_text() == config.read_text()
    dmuh("train", "--config", config, "--out", tmp_path / "other", "--bits", 16, "--no-evaluate")
    assert "bits = 16" in (tmp_path / "other" / "config.toml").read_text()


@pytest.fixture
def bad_folders(photos, tmp_path) -> Path:
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "cats").mkdir(parents=True)
    image = (photos / "ones" / "00.png").read_bytes()
    for n in range(6):
        (tmp_path / "one" / "cats" / f"{n}.png").write_bytes(image)
    (tmp_path / "missing.csv").write_text("image,labels\none/cats/0.png,cat\nnowhere.png,dog\n")
    (tmp_path / "separator.csv").write_text("image,labels\none/cats/0.png,cat|red\none/cats/1.png,dog|red\n")
    (tmp_path / "text.jpg").write_text("no image")
    return tmp_path


@pytest.mark.parametrize(("arguments", "sentence"), [
    ("--dataset folder --data empty", "no images below empty: looked for .jpg"),
    ("--dataset folder --data nowhere", "nowhere does not exist"),
    ("--dataset folder --data one", "needs two or more, got 1"),
    ("--dataset folder", "the data set folder needs a folder or file: --data PATH"),
    ("--dataset csv --data missing.csv", "names 1 images that do not exist, the first is nowhere.png"),
    ("--dataset csv --data separator.csv", "'cat|red': say which it is by label_separator"),
    ("--dataset csv --data separator.csv --label-separator abc", "label_separator must be one character"),
    ("--bits 0", "bits must be a whole number at least 1 and at most 1024, got 0"),
    ("--bits 10000", "bits must be a whole number at least 1 and at most 1024, got 10000"),
    ("--method dmhu", "unknown method 'dmhu': did you mean dmuh"),
    ("--dataset mnist", "unknown data set 'mnist': did you mean mnist5k"),
    ("--backbone small", "unknown backbone 'small': did you mean smallconv"),
    ("--freeze conv9", "unknown part to freeze 'conv9': did you mean conv3"),
    ("--backbone timm:resnet50", "timm:<name> needs the timm library, which cannot be imported here"),
    ("--backbone features", "is for the data set features and for that alone"),
    ("--set lrr=1", "unknown setting 'lrr': did you mean lr"),
    ("--set lr=-1 --set epochs=none", "at least 1, got 'none'; lr must be a number above 0"),
    ("--set lr", "a setting is given as key=value, got 'lr'"),
    ("--preset author", "dmuh has no such preset; unknown preset 'author'"),
    ("--config nowhere.toml", "cannot read the configuration nowhere.toml"),
    ("--device gpu", "device must be auto, cpu, cuda or cuda:N, got 'gpu'"),
    ("--on-bad-image ignore", "on_bad_image must be fail or skip, got 'ignore'"),
    ("--dataset images --data one", "the data set images has no labels"),
    ("--query 1000", "asks for more"),
])  # fmt: skip
def test_a_wrong_training_is_one_sentence(bad_folders, monkeypatch, arguments, sentence):
    monkeypatch.chdir(bad_folders)
    assert sentence in refused("train", "--out", "run", *arguments.split())
    assert not Path("run").exists()


@pytest.mark.parametrize(("arguments", "sentence"), [
    ("search nowhere one", "nowhere holds no encoded images"),
    ("search {index} nowhere.jpg", "nowhere.jpg does not exist"),
    ("search {index} text.jpg", "text.jpg: not an image of a known format (--on-bad-image skip leaves such images"),
    ("search {index} one --on-bad-image ignore", "--on-bad-image must be fail or skip, got 'ignore'"),
    ("search {index} one --sheet sheet.jpg", "--sheet must be a .png file"),
    ("search {index} one --model empty", "empty holds no run"),
    ("encode nowhere one --out codes", "nowhere does not exist, expected the folder of a finished run"),
    ("encode {run} empty --out codes", "no images below empty"),
    ("encode {run} one --dataset foldr --out codes", "unknown data set 'foldr': did you mean folder"),
    ("index {run}", "to index images give a run, the images and --out"),
    ("search {index} one --ranking best", "--ranking must be soft or hamming, got best"),
    ("index {index} one", "which are indexed in place: leave out images, --out and --sure"),
    ("index {index} --sure 2", "which are indexed in place: leave out images, --out and --sure"),
    ("index {run} one --out {index}", "holds an index already: make it anew by --replace, or give another --out"),
    ("encode {run} one --out {index}", "holds an index already: make it anew by --replace, or give another --out"),
    ("evaluate", "give a run, or both --query and --database"),
    ("evaluate {run} --ties random", "ties must be 'expected', 'index-order' or 'as-searched', got 'random'"),
    ("evaluate empty", "empty holds no run"),
    ("evaluate {run} --data one", "needs two or more"),
])  # fmt: skip
def test_a_wrong_search_is_one_sentence(bad_folders, monkeypatch, run, index, arguments, sentence):
    monkeypatch.chdir(bad_folders)
    if "--data one" in arguments:
        sentence = "belongs to other images or labels"
    assert sentence in refused(*(word.format(run=run, index=index) for word in arguments.split()))
    assert not Path("codes").exists()


def test_skipped_images_are_counted_and_named(run, bad_folders, tmp_path):
    result = dmuh("encode", run, bad_folders / "one", bad_folders / "text.jpg", "--out", tmp_path / "codes",
                  "--on-bad-image", "skip")  # fmt: skip
    assert "6 images encoded" in result.stdout
    assert "1 unreadable image was skipped" in result.stderr
    assert "text.jpg: not an image" in result.stderr


def test_an_index_of_another_model_is_refused(run, index, photos, tmp_path):
    other = tmp_path / "other"
    dmuh("train", "--dataset", "folder", "--data", photos, "--out", other, "--seed", 1, "--no-evaluate", *FAST)
    assert "was made by another model" in refused("search", index, photos / "ones", "--model", other)


def test_a_folder_that_cannot_be_written_is_a_sentence(photos, tmp_path):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "run"
    result = dmuh("train", "--dataset", "folder", "--data", photos, "--out", out, *FAST, code=2)
    assert result.stderr.splitlines()[-1] == f"dmuh: {out}: Not a directory"


def test_a_run_that_is_there_is_said_before_the_data_are_looked_at(run, photos):
    assert "holds a run already" in refused("train", "--dataset", "folder", "--data", photos, "--out", run)


@pytest.fixture
def filled_cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    rows = folder / "activations" / "0123456789abcdef01234567" / "plain"
    rows.mkdir(parents=True)
    (rows / "rows.bin").write_bytes(bytes(3_000_000))
    for name in ("done.bin", ".lock", ".done.bin.dmuh-ab12cd34.bin"):
        (rows / name).touch()
    networks = folder / "networks"
    networks.mkdir()
    (networks / "efficientnet-lite0-0.1.0.safetensors").write_bytes(bytes(1_000_000))
    monkeypatch.setenv("DMUH_CACHE", str(folder))
    return folder


def test_the_cache_is_shown_and_cleared(filled_cache):
    assert dmuh("cache").stdout == f"{filled_cache}: 4 MB\n"
    shown = json.loads(dmuh("cache", "--json").stdout)
    assert (shown["cache"], shown["files"], shown["cleared"]) == (str(filled_cache), 5, False)
    assert len(list(filled_cache.rglob("rows.bin"))) == 1
    assert "removed" in dmuh("cache", "--clear").stdout
    assert list(filled_cache.iterdir()) == []
    assert dmuh("cache").stdout == f"{filled_cache}: 0 MB\n"
    dmuh("cache", "--clear")


def test_clearing_the_cache_leaves_what_is_not_dmuhs(filled_cache):
    digest = "0123456789abcdef01234567"
    names = ["thesis.tex", "activations/thesis.tex", "activations/papers/rows.bin", f"activations/{digest}/notes.txt",
             f"activations/{digest}/plain/mine.bin", f"activations/{digest}/others/rows.bin",
             "networks/mine.safetensors"]  # fmt: skip
    for name in names:
        (filled_cache / name).parent.mkdir(parents=True, exist_ok=True)
        (filled_cache / name).write_text("years of work")
    outside = filled_cache.parent / "outside"
    (outside / "plain").mkdir(parents=True)
    (outside / "plain" / "rows.bin").write_text("years of work")
    (filled_cache / "activations" / digest.replace("0", "1")).symlink_to(outside)
    said = dmuh("cache", "--clear").stderr
    left = sorted(str(path.relative_to(filled_cache)) for path in filled_cache.rglob("*") if path.is_file())
    assert left == sorted(names)
    assert (outside / "plain" / "rows.bin").exists()
    assert said.startswith("dmuh: left because dmuh did not write it: ")
    assert str(filled_cache / "activations" / "papers" / "rows.bin") in said


@pytest.mark.long
def test_demo(tmp_path):
    out = tmp_path / "demo"
    first = dmuh("demo", "--epochs", "1", "--out", out).stdout.splitlines()
    assert re.fullmatch(r"MAP 0\.\d{4}", first[-1])
    page = (out / "index.html").read_text()
    assert first[-1].split()[1] in page
    assert not re.search(r'(src|href|srcset)="(?!data:)', page)  # needs nothing from outside
    assert page.count("<svg") == 0
    assert page.count("data:image/svg+xml") == 2 * 5
    again = json.loads(dmuh("demo", "--epochs", "1", "--out", out, "--json").stdout)
    assert f"MAP {again['map']:.4f}" == first[-1]
    assert Path(again["page"]) == out / "index.html"
