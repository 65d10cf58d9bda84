"""What holds for every method for images and texts: a new one is tested without writing a test."""

import time
from dataclasses import replace

import numpy as np
import pytest

import dmuh
from dmuh.config import Config
from dmuh.datasets import Dataset
from dmuh.encoder import Hasher, export_run
from dmuh.encoder.known_texts import KnownTexts
from dmuh.errors import ConfigError, DataError, InputError
from dmuh.methods import METHODS, Objective, configure, methods_for
from dmuh.network import TorchNetwork, load_text_networks
from dmuh.runs import Run
from dmuh.trainer import train
from dmuh.trainer.evaluation import evaluate_run
from dmuh.trainer.loop import Loop
from dmuh.trainer.text_rows import TextRows, text_rows

OF_BOTH = methods_for(texts=True)
SENTENCES = {"0": ("a round zero", "the letter o of numbers"), "1": ("a straight one", "a single stroke"),
             "4": ("an open four", "like a chair"), "7": ("a seven with a roof",)}  # fmt: skip
SETTINGS = {"dataset": "features", "text_encoder": "words", "bits": 8, "batch_size": 40, "query": 10, "train": 30,
            "validation": 0.2, "evaluate_every": 100}  # fmt: skip
CHANCE = 0.25  # four classes


@pytest.fixture(scope="module")
def pairs(digits) -> Dataset:
    """Digits as feature vectors, each with one or two sentences about it."""
    vectors = digits.images.reshape(len(digits), -1).astype(np.float32) / 255
    names = list(SENTENCES)
    texts = tuple(SENTENCES[names[int(row.argmax())]] for row in digits.labels)
    return Dataset("features", vectors, digits.labels, digits.classes, texts=texts)


def config_of(name: str, **settings: object) -> Config:
    deep = {"epochs": 8, "kernel": 0} if issubclass(METHODS[name], Objective) else {}
    return configure(SETTINGS | deep, {"method": name, **settings})


@pytest.fixture(scope="module", params=OF_BOTH)
def name(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def run(name, pairs, tmp_path_factory) -> Run:
    return train(config_of(name), tmp_path_factory.mktemp(name) / "run", dataset=pairs, progress=False)


def test_words_find_images_and_images_words(name, run, pairs):
    found = evaluate_run(run, pairs).texts
    least = 0.35 if METHODS[name].needs_labels is False else 0.5
    for direction in ("text_to_image", "image_to_text"):
        assert found[direction]["map"] > least, direction
        assert [soft["sure"] for soft in found[direction]["soft"]] == [0, 1, 2]
        assert all(soft["map"] > least for soft in found[direction]["soft"])
        assert all(0 <= value <= 1 for way in found[direction]["recall"].values() for value in way.values())
    assert run.evaluation()["texts"] == found
    assert evaluate_run(run, pairs).texts == found  # from what was saved


def test_texts_are_encoded_as_the_network_that_was_trained_does(run, pairs):
    hasher = Hasher.load(run.path)
    sentences = [texts[0] for texts in pairs.texts[::7]]
    features = text_rows(pairs, hasher.texts.encoder).features
    rows = np.searchsorted(
        np.repeat(np.arange(len(pairs)), [len(own) for own in pairs.texts]), np.arange(0, len(pairs), 7)
    )
    outputs = TorchNetwork(*load_text_networks(run.load_model())).run(features[rows])["outputs"]
    codes = hasher.encode_texts(sentences)
    sure = np.abs(outputs) > 1e-4
    np.testing.assert_array_equal(codes.unpack()[sure], (outputs >= 0)[sure])
    assert codes.uncertainty.min() >= 0
    assert codes.uncertainty.max() <= 0.5
    assert hasher.encode_texts(sentences[3]) == codes[3].with_ids(np.array([0]))


def test_exported_it_gives_texts_the_same_codes(run, tmp_path):
    export_run(run.path, tmp_path / "export")
    sentences = ["a round zero", "like a chair", "nothing that was ever said"]
    assert Hasher.load(tmp_path / "export").encode_texts(sentences) == Hasher.load(run.path).encode_texts(sentences)
    (tmp_path / "export" / "text_head.onnx").write_bytes(b"other")
    with pytest.raises(dmuh.errors.FormatError, match=r"text_head\.onnx is missing, cut short or altered"):
        Hasher.load(tmp_path / "export")


def test_the_same_seed_gives_the_same_codes(name, run, pairs, tmp_path):
    again = train(config_of(name), tmp_path / "run", dataset=pairs, progress=False)
    ours, theirs = (one.load_model().arrays for one in (run, again))
    assert ours.keys() == theirs.keys()
    assert any(key.startswith("text_network.") for key in ours)
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])


@pytest.mark.parametrize("deep", [name for name in OF_BOTH if issubclass(METHODS[name], Objective)])
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(deep, pairs, tmp_path, monkeypatch):
    whole = train(config_of(deep, epochs=3, kernel=20), tmp_path / "whole", dataset=pairs, progress=False)
    epoch = Loop.epoch

    def stopped(self, number):
        if number == 2:
            raise KeyboardInterrupt
        epoch(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(config_of(deep, epochs=3, kernel=20), tmp_path / "cut", dataset=pairs, progress=False)
    resumed = train(config_of(deep, epochs=3, kernel=20), tmp_path / "cut", dataset=pairs, resume=True, progress=False)
    ours, theirs = (one.load_model().arrays for one in (whole, resumed))
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])


def test_a_hidden_layer_with_dropout_and_the_averaged_copy_of_both_networks(pairs, tmp_path):
    settings = {"hidden": 16, "dropout": 0.5, "encoder": "copy", "uncertainty": "copy", "epochs": 4}
    run = train(config_of("dmuh-x", **settings), tmp_path / "run", dataset=pairs, progress=False)
    arrays = run.load_model().arrays
    assert {key.partition(".")[0] for key in arrays} == {
        "network", "momentum", "text_network", "text_momentum", "text_known"}  # fmt: skip
    first, second = arrays["text_network.hash_layer.last.weight"], arrays["text_momentum.hash_layer.last.weight"]
    assert not np.array_equal(first, second)
    assert evaluate_run(run, pairs).texts["text_to_image"]["map"] > CHANCE


@pytest.mark.parametrize("shallow", [one for one in OF_BOTH if not issubclass(METHODS[one], Objective)])
def test_a_fit_logs_the_time_it_took(shallow, pairs, tmp_path, monkeypatch):
    fit = METHODS[shallow].fit

    def slow(*arguments):
        time.sleep(0.05)
        return fit(*arguments)

    monkeypatch.setattr(METHODS[shallow], "fit", slow)
    (line,) = train(config_of(shallow), tmp_path / "run", dataset=pairs, progress=False).metrics()
    assert line["seconds"] > 0.05
    assert line["images_per_second"] == pytest.approx(96 / line["seconds"])


def test_a_kernel_larger_than_the_training_set_says_what_it_became(pairs, tmp_path, caplog):
    run = train(config_of("dmuh-x", kernel=5000, epochs=1), tmp_path / "run", dataset=pairs, progress=False)
    arrays = run.load_model().arrays
    n_images, n_texts = (len(arrays[f"{side}.hash_layer.anchors"]) for side in ("network", "text_network"))
    assert [text for text in caplog.messages if "kernel" in text] == [
        f"kernel 5,000 is more than there are training images: it became {n_images}",
        f"kernel 5,000 is more than there are training texts: it became {n_texts}",
    ]
    assert n_images < n_texts  # some have two sentences


def test_the_head_is_chosen_by_both_directions(pairs, tmp_path, caplog):
    config = configure(SETTINGS, {"method": "dmuh-x", "epochs": 2, "head": "auto", "validation": 0.4})
    with caplog.at_level("INFO"):
        run = train(config, tmp_path / "run", dataset=pairs, progress=False)
    assert "has the best MAP of held-out images" in caplog.text
    assert {"kernel", "weight_decay"} <= set(run.settings())


def test_all_sentences_about_an_image_train_and_one_is_taken_at_a_time():
    rows = TextRows(np.zeros((6, 2), np.float32), np.array([0, 0, 0, 1, 2, 2]))
    assert rows.of(np.array([0, 2])).tolist() == [0, 1, 2, 4, 5]
    assert rows.first(np.array([2, 0, 1])).tolist() == [4, 0, 3]
    assert rows.drawn(np.array([0, 0, 0, 1, 2]), np.array([0.0, 0.5, 0.99, 0.99, 0.6])).tolist() == [0, 1, 2, 3, 5]


def test_other_sentences_in_another_epoch(pairs, tmp_path):
    """With its second sentences empty of news, training on both differs from training on the first alone."""
    first = replace(pairs, texts=tuple(texts[:1] for texts in pairs.texts))
    runs = [
        train(config_of("dmuh-x", epochs=2), tmp_path / str(n), dataset=data, progress=False)
        for n, data in enumerate((pairs, first))
    ]
    shapes = {run.load_model().arrays["text_network.hash_layer.weight"].shape for run in runs}
    assert len(shapes) == 2  # the words of second sentences are known to the first run alone


def test_without_texts_it_is_refused_before_anything_is_computed(pairs, tmp_path):
    bare = replace(pairs, texts=None)
    with pytest.raises(DataError, match="dmuh-x learns from images and texts, but none are read of the data set"):
        train(config_of("dmuh-x"), tmp_path / "run", dataset=bare, progress=False)
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="dmuh learns from images alone: with texts, choose a method for images and"):
        configure({"method": "dmuh", "dataset": "csv", "texts": "caption"})
    with pytest.raises(ConfigError, match="dmuh-x learns above the features of a frozen backbone: freeze must be all"):
        configure({"method": "dmuh-x", "freeze": "none", "dataset": "csv", "texts": "caption"})


@pytest.mark.parametrize(("texts", "message"), [
    ([""], "a text must say something, got an empty one as number 0"),
    (["fine", 3], "texts must be sentences, got int as number 1"),
    (["x" * 10_001], "at most 10,000 characters, got 10,001"),
])  # fmt: skip
def test_what_is_no_text_is_refused(pairs, tmp_path_factory, texts, message):
    run = train(config_of("cca-itq"), tmp_path_factory.mktemp("refused") / "run", dataset=pairs, progress=False)
    with pytest.raises(InputError, match=message):
        Hasher.load(run.path).encode_texts(texts)


def test_a_text_like_none_that_was_learned_is_sure_of_nothing(pairs, tmp_path):
    """Of sentences about digits most are known; one about anything else has nothing close enough."""
    run = train(config_of("dmuh-x"), tmp_path / "run", dataset=pairs, progress=False)
    export_run(run.path, tmp_path / "export")
    strange = "quarterly revenue of the company a"  # of which "a" alone is a word that training texts have
    for hasher in (Hasher.load(run.path), Hasher.load(tmp_path / "export")):
        codes = hasher.encode_texts(["a round zero", strange])
        assert codes.uncertainty[0].min() < 0.5
        assert (codes.uncertainty[1] == 0.5).all()


def test_what_is_strange_is_what_few_held_out_texts_are():
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(4, 12)).astype(np.float32)

    def texts(n: int, about: np.ndarray) -> np.ndarray:
        return about[rng.integers(0, len(about), n)] + 0.3 * rng.normal(size=(n, 12)).astype(np.float32)

    known = KnownTexts.fit(texts(3000, topics), texts(400, topics))
    assert len(known.vectors) == 2000
    assert known.strange(texts(1000, topics)).mean() == pytest.approx(0.05, abs=0.03)
    assert known.strange(texts(1000, rng.normal(size=(4, 12)).astype(np.float32))).mean() > 0.8
    assert known.strange(np.zeros((1, 12), np.float32)).all()
    some = texts(20, topics)
    np.testing.assert_array_equal(known.likeness(some), [known.likeness(row[None])[0] for row in some])
