import dataclasses
import importlib.util
import math
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dmuh.config import SECTIONS, Config, describe, keys_of, parse_override, read_toml
from dmuh.errors import ConfigError, unknown
from dmuh.methods import METHODS, configure

CHOSEN = ("backbone", "freeze", "augment")  # empty ones are chosen by the data set and each other
SETTINGS = [key for section in SECTIONS.values() for key in keys_of(section)]


def value(config: Config, key: str):
    for part in (config.options, config.data, config.protocol, config.network, config.training):
        if hasattr(part, key):
            return getattr(part, key)
    raise KeyError(key)


def from_text(folder: Path, text: str):
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return read_toml(file)


def test_without_layers_the_settings_are_the_defaults():
    config = configure()
    assert config.method == "dmuh"
    for name, section in SECTIONS.items():
        chosen = {key: value(config, key) for key in CHOSEN if hasattr(section, key)}
        if hasattr(section, "weight_decay"):
            chosen |= {"weight_decay": 1e-4, "wrong_labels": "keep"}
        if hasattr(section, "kernel"):
            chosen["kernel"] = 0
        assert getattr(config, name) == dataclasses.replace(section(), **chosen)
    assert config.options == METHODS["dmuh"].Options()


@pytest.mark.parametrize(("layer", "chosen"), [
    ({}, ("smallconv", "none", "crop")),
    ({"dataset": "features"}, ("features", "all", "none")),
    ({"dataset": "folder"}, ("efficientnet-lite0", "all", "none")),
    ({"dataset": "csv", "backbone": "", "freeze": "", "augment": ""}, ("efficientnet-lite0", "all", "none")),
    ({"dataset": "cifar10", "freeze": "stage4"}, ("efficientnet-lite0", "stage4", "flip")),
    ({"dataset": "cifar10", "freeze": "none"}, ("efficientnet-lite0", "none", "resized-crop+flip")),
    ({"dataset": "folder", "backbone": "smallconv"}, ("smallconv", "none", "crop")),
    ({"dataset": "folder", "augment": "crop+flip"}, ("efficientnet-lite0", "all", "crop+flip")),
    ({"backbone": "efficientnet-lite2"}, ("efficientnet-lite2", "all", "none")),
    ({"backbone": "cnnf"}, ("cnnf", "none", "crop")),
    ({"backbone": "cnnf", "freeze": "conv5"}, ("cnnf", "conv5", "flip")),
    ({"backbone": "timm:resnet50"}, ("timm:resnet50", "all", "none")),
    ({"freeze": "conv1"}, ("smallconv", "conv1", "flip")),
    ({"freeze": "all", "augment": "flip"}, ("smallconv", "all", "flip")),
    ({"method": "regu", "freeze": "all"}, ("smallconv", "all", "none")),
], ids=str)  # fmt: skip
def test_what_is_not_given_of_the_network_suits_the_data_and_the_rest(tmp_path, layer, chosen):
    config = configure(layer)
    assert tuple(value(config, key) for key in CHOSEN) == chosen
    assert configure(from_text(tmp_path, config.to_toml())) == config
    assert all(key in config.to_toml() for key in CHOSEN)


def test_without_the_weights_package_photographs_get_the_network_that_needs_none(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert tuple(value(configure({"dataset": "folder"}), key) for key in CHOSEN) == ("smallconv", "none", "crop")
    assert value(configure({"dataset": "folder", "backbone": "efficientnet-lite0"}), "freeze") == "all"


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        configure().training.lr = 1.0


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"epoch": 3}, "unknown setting 'epoch': did you mean epochs"),
        ({"gama": 3}, "unknown setting 'gama': did you mean gamma"),
        ({"zzzz": 3}, "unknown setting 'zzzz': known are .*alpha.*workers"),
        ({"gamma": 0.1, "method": "regu"}, "unknown setting 'gamma'"),
        ({"method": "dmhu"}, "unknown method 'dmhu': did you mean dmuh"),
        ({"method": 3}, "unknown method '3': known are .*dmuh, "),
        ({"method": ["dmuh"]}, "method"),
    ],
)
def test_an_unknown_name_is_refused_with_its_near_miss(layer, words):
    with pytest.raises(ConfigError, match=words):
        configure(layer)


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        configure({"epoch": 3, "lr": -1, "bits": "x", "schedule": "linear", "alpha": 2, "dataset": "kept"})
    problems = str(caught.value).split("; ")
    assert [problem.split()[0] for problem in problems] == ["unknown", "bits", "lr", "schedule", "alpha"]


@pytest.mark.parametrize(
    ("key", "given_value", "words"),
    [
        ("epochs", 0, "epochs must be a whole number at least 1, got 0"),
        ("bits", 1025, "bits must be a whole number at least 1 and at most 1024, got 1025"),
        ("seed", -1, "seed must be a whole number at least 0 and"),
        ("seed", 2**63, "seed must be a whole number"),
        ("lr", 0, "lr must be a number above 0, got 0"),
        ("lr", math.nan, "lr must be a number above 0, got nan"),
        ("lr", math.inf, "lr must be a number above 0, got inf"),
        pytest.param("lr", 10**400, "lr must be a number above 0, got 1000", id="huge"),
        ("sgd_momentum", 1, "sgd_momentum must be a number at least 0 and below 1, got 1"),
        ("validation", 0.51, "validation must be a number at least 0 and at most 0.5, got 0.51"),
        ("query", 0, "query must be a number above 0, got 0"),
        ("alpha", 1.0, "alpha must be a number at least 0 and below 1, got 1.0"),
        ("schedule", "linear", "schedule must be log or cosine or step, got 'linear'"),
        ("epochs", True, "epochs must be a whole number at least 1, got True"),
        ("epochs", 3.5, "got 3.5"),
        ("epochs", "3", "got '3'"),
        ("epochs", None, "got None"),
        ("epochs", [3], r"got \[3\]"),
        ("lr", True, "lr must be a number above 0, got True"),
        ("lr", "0.1", "got '0.1'"),
        ("data", 3, "data must be a text, got 3"),
        ("data", None, "data must be a text, got None"),
        ("detach", 1, "detach must be true or false, got 1"),
        ("detach", "true", "got 'true'"),
        ("freeze", 3, "freeze must be a text, got 3"),
        ("freeze", ["all"], "freeze must be a text"),
        ("augment", "mirror", "augment must be .*none or flip or crop.*, got 'mirror'"),
        ("image_size", 4, "image_size must be a whole number at least 8 and at most 1024, got 4"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(key, given_value, words):
    with pytest.raises(ConfigError, match=words):
        configure({key: given_value})


@pytest.mark.parametrize(
    ("key", "given_value", "wanted"),
    [
        ("epochs", 3.0, 3),
        ("epochs", 1, 1),
        ("bits", 1024, 1024),
        ("seed", 2**63 - 1, 2**63 - 1),
        ("lr", 1, 1.0),
        ("sgd_momentum", 0, 0.0),
        ("validation", 0.5, 0.5),
        ("query", None, None),
        ("query", 5, 5.0),
        ("image_size", 64, 64),
        ("detach", False, False),
        ("data", "", ""),
    ],
)
def test_a_value_that_fits_gets_the_settings_type(key, given_value, wanted):
    got = value(configure({key: given_value}), key)
    assert (got, type(got)) == (wanted, type(wanted))


def test_later_layers_win():
    config = configure({"lr": 0.1, "bits": 16, "method": "regu"}, {"lr": 0.2, "epochs": 5}, {"epochs": 6})
    assert (config.method, config.training.lr, config.training.epochs, config.network.bits) == ("regu", 0.2, 6, 16)


def test_layers_are_not_changed():
    layer = {"method": "regu", "lr": 0.1}
    configure(layer, {"lr": 0.2})
    assert layer == {"method": "regu", "lr": 0.1}


@pytest.mark.parametrize(("method", "preset"), [(m, p) for m, c in METHODS.items() for p in c.presets])
def test_a_preset_stands_below_what_is_given(method, preset):
    group = METHODS[method].presets[preset]
    config = configure({"method": method}, preset=preset)
    own = {"dropout": 0.0} if group.get("dropout") == "own" else {}  # what belongs to the network of the digits
    assert {key: value(config, key) for key in group} == {**group, **own}
    changed = configure({"method": method, "lr": 0.123}, preset=preset)
    assert dataclasses.replace(changed.training, lr=config.training.lr) == config.training
    assert changed.training.lr == 0.123


@pytest.mark.parametrize("method", [name for name, own in METHODS.items() if own.kind == "deep"])
def test_the_preset_of_a_paper_takes_nothing_that_matters_from_the_defaults(method):
    """What its authors did not say is our choice, which stands in the preset: no default slips in."""
    said = {"epochs", "batch_size", "optimizer", "lr", "lr_final", "schedule", "weight_decay", "clip", "validation",
            "standardize"}  # fmt: skip
    for name, group in METHODS[method].presets.items():
        assert said <= set(group), name
        assert group["optimizer"] != "sgd" or "sgd_momentum" in group, name
    ours = ("dmuh-plus", "dmuh-x", "dmuh-plus-x", "regu-x")  # which have no paper of their own
    assert ("paper" in METHODS[method].presets) == (method not in ours)


@pytest.mark.parametrize("method", ["dmuh", "regu", "dpsh", "ddsh"])
def test_those_whose_authors_take_plain_steps_have_no_momentum(method):
    assert configure({"method": method}, preset="paper").training.sgd_momentum == 0


@pytest.mark.parametrize(("preset", "weights"), [("paper", (0.01, 1.0, 0.01)), ("released", (1.0, 0.1, 55.0))])
def test_dsdh_has_the_weights_of_its_paper_and_those_of_its_authors_code(preset, weights):
    options = configure({"method": "dsdh"}, preset=preset).options
    assert (options.mu, options.nu, options.eta) == weights


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_preset_is_refused(method):
    hint = "did you mean paper" if "paper" in METHODS[method].presets else "known are none"
    with pytest.raises(ConfigError, match=f"{method} has no such preset; unknown preset 'papr': {hint}"):
        configure({"method": method}, preset="papr")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_only_settings_that_exist(method):
    known = {*SETTINGS, *keys_of(METHODS[method].Options)}
    for group in (METHODS[method].defaults, *METHODS[method].presets.values()):
        assert set(group) <= known


def test_a_setting_is_named_once():
    assert len(SETTINGS) == len(set(SETTINGS))
    for method in METHODS.values():
        assert not {*SETTINGS, "method"} & set(keys_of(method.Options))


@pytest.mark.parametrize(
    "cls", [*SECTIONS.values(), *dict.fromkeys(m.Options for m in METHODS.values())], ids=lambda cls: cls.__name__
)
def test_every_setting_is_described(cls):
    described = list(describe(cls))
    assert [name for name, _, _ in described] == keys_of(cls)
    for name, default, about in described:
        assert len(about) > 5
        assert "\n" not in about
        assert default == getattr(cls(), name)
        choices = {f.name: f.metadata["choices"] for f in dataclasses.fields(cls)}[name]
        assert all(choice in about for choice in choices)


@pytest.mark.parametrize("preset", ["", "paper"])
@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_every_method_come_back_from_toml(tmp_path, method, preset):
    if preset not in ("", *METHODS[method].presets):
        pytest.skip(f"{method} has no settings of its paper's own")
    layer = {"method": method, "query": 7, "image_size": 64, "weight_decay": 1e22}
    layer |= {"beta": 1e-7} if hasattr(METHODS[method].Options, "beta") else {}
    for config in (configure({"method": method}, preset=preset), configure(layer, preset=preset)):
        assert configure(from_text(tmp_path, config.to_toml())) == config


@given(text=st.text(), number=st.floats(0, 1e300, exclude_min=True), seed=st.integers(0, 2**63 - 1))
@example(text="C:\\new \"data\"\\'x'\r\n\t\0\x7f\x85 é日本", number=5e-324, seed=2**63 - 1)
@example(text="\U000e0001 \U0001f600 \u2028 \ufeff", number=1e16, seed=0)
@settings(deadline=None, max_examples=60)
def test_any_text_and_number_comes_back_from_toml(tmp_path_factory, text, number, seed):
    config = configure({"data": text, "path_format": text, "lr": number, "seed": seed})
    assert configure(from_text(tmp_path_factory.getbasetemp(), config.to_toml())) == config


def test_settings_that_were_not_given_a_value_are_left_out():
    assert "query" not in configure().to_dict()["protocol"]
    assert configure({"query": 5}).to_dict()["protocol"]["query"] == 5
    assert configure({"method": "regu"}).to_dict()["method"]["method"] == "regu"


def test_a_file_is_one_flat_layer(tmp_path):
    text = '[method]\nmethod = "regu"\nbeta = 2.5\n[training]\nlr = 0.1\nepochs = 3\n[network]\nbits = 16\n[data]\n'
    assert from_text(tmp_path, text) == {"method": "regu", "beta": 2.5, "lr": 0.1, "epochs": 3, "bits": 16}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[trainin]\nlr = 1\n", "unknown section 'trainin': did you mean training"),
        ("[training]\nlrr = 1\n", r"unknown setting in \[training\] 'lrr': did you mean lr"),
        ("[training]\nbits = 16\n", r"unknown setting in \[training\] 'bits'"),
        ("training = 3\n", r"training must be a section, write \[training\]"),
        ("lr = 0.1\n", "unknown section 'lr'"),
        ("[training\n", "is not a TOML file"),
        ("[training]\nlr = 1\nlr = 2\n", "is not a TOML file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(tmp_path, text, words):
    with pytest.raises(ConfigError, match=rf"config\.toml.*{words}"):
        from_text(tmp_path, text)


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b'[data]\ndata = "caf\xe9"\n')
    for name, words in (("none.toml", "No such file"), ("", "Is a directory"), ("latin.toml", "not a TOML file")):
        with pytest.raises(ConfigError, match=f"{name}.*{words}"):
            read_toml(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("lr=0.1", 0.1),
        ("lr=1e-4", 1e-4),
        ("lr = 3 ", 3),
        ("lr=-3", -3),
        ("lr=true", True),
        ("lr=True", "True"),
        ('lr="3"', "3"),
        ("lr='a b'", "a b"),
        ("lr=cosine", "cosine"),
        ("lr=", ""),
        ("lr=a=b", "a=b"),
        ("lr=images/{id}.jpg", "images/{id}.jpg"),
        ("lr=C:\\data", "C:\\data"),
        ("lr=;", ";"),
        ("lr=#", "#"),
        ("lr=,", ","),
        ("lr=2024-05-01", "2024-05-01"),
    ],
)
def test_an_override_is_a_number_a_truth_value_or_else_a_text(text, wanted):
    key, got = parse_override(text)
    assert (key, got, type(got)) == ("lr", wanted, type(wanted))


@pytest.mark.parametrize("text", ["lr", "", "=3", " =3"])
def test_an_override_without_key_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="given as key=value, got"):
        parse_override(text)


def test_a_long_table_is_listed_only_where_nothing_is_near():
    names = [f"setting{i}" for i in range(30)]
    assert "known are" not in unknown("setting", "setting99", names)
    assert "known are setting0, setting1, " in unknown("setting", "zzz", names)
    assert unknown("x", "y", []) == "unknown x 'y': known are none"
