"""Classes as the source of uncertainty: its number, its fit, where it steps aside, and what it is worth."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dmuh.codes import Codes
from dmuh.encoder import Hasher
from dmuh.methods import METHODS, configure
from dmuh.metrics import evaluate
from dmuh.network import Classes, Examples, Margin, Trained, load_networks
from dmuh.network.uncertainty import classes
from dmuh.trainer import train
from dmuh.trainer.calibrating import calibrated, share_a_label
from dmuh.trainer.grades import best_grades
from tiny import tiny

N_FEATURES, N_BITS, N_CLASSES = 12, 16, 4
_rng = np.random.default_rng(5)
CENTRES = torch.from_numpy(_rng.normal(size=(N_CLASSES, N_FEATURES))).float()
CODES = torch.from_numpy(_rng.choice([-1.0, 1.0], (N_CLASSES, N_BITS))).float()
MAP = torch.linalg.lstsq(CENTRES, CODES).solution


def examples(n: int, seed: int, spread: float = 0.9, noise: float = 1.0) -> Examples:
    """Images around the centres of their classes, and outputs that are noisier than what the features tell."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(N_CLASSES, (n,), generator=generator)
    features = CENTRES[label] + spread * torch.randn(n, N_FEATURES, generator=generator)
    outputs = features @ MAP + noise * torch.randn(n, N_BITS, generator=generator)
    return Examples(features, outputs, torch.nn.functional.one_hot(label, N_CLASSES).float())


@pytest.fixture(scope="module")
def fitted() -> Classes:
    source = Classes(N_FEATURES, N_CLASSES, N_BITS)
    source.fit(examples(600, 0), examples(300, 1))
    return source


@given(st.integers(1, 4), st.integers(2, 6), st.sampled_from([1, 12, 63, 64, 65, 128]), st.integers(0, 1000))
def test_the_number_is_that_of_its_formula(n, n_classes, n_bits, seed):
    generator = torch.Generator().manual_seed(seed)
    source = Classes(5, n_classes, n_bits)
    source.class_layer.weight.copy_(torch.randn(n_classes, 5, generator=generator))
    source.codes.copy_(torch.randint(-1, 2, (n_classes, n_bits), generator=generator))
    source.factors.copy_(torch.rand(2, generator=generator))
    features, outputs = (torch.randn(n, width, generator=generator) for width in (5, n_bits))
    outputs[0, 0] = 0.0  # whose bit is 1
    found = source._number(features, outputs)
    for i in range(n):
        logits = [float(x) for x in source.class_layer(features[i])]
        raised = [math.exp(z - max(logits)) for z in logits]
        for k in range(n_bits):
            bit = 1 if outputs[i, k] >= 0 else -1
            agreeing = bit * sum(e / sum(raised) * float(code[k]) for e, code in zip(raised, source.codes, strict=True))
            odds = math.log((1.004 + agreeing) / (1.004 - agreeing))
            exponent = float(source.factors[0]) * odds + float(source.factors[1]) * abs(float(outputs[i, k]))
            assert found[i, k].item() == pytest.approx(1 / (1 + math.exp(exponent)), abs=1e-4)


@pytest.mark.parametrize("penalty", classes._PENALTIES)
def test_the_layer_is_the_least_of_cross_entropy_and_penalty(penalty):
    images = examples(400, 2)
    weight, bias = classes._logistic(
        images.features, images.labels, torch.zeros(N_CLASSES, N_FEATURES), torch.zeros(N_CLASSES), penalty
    )
    # the gradient, in plain words: what is predicted less what is, times the features
    error = (torch.softmax(images.features @ weight.T + bias, dim=1) - images.labels) / len(images.labels)
    assert (error.T @ images.features + penalty * weight).abs().max() < 1e-3
    assert error.sum(dim=0).abs().max() < 1e-3


def test_classes_have_the_bits_of_most_of_their_images(fitted):
    images = examples(600, 0)
    for number in range(N_CLASSES):
        own = images.outputs[images.labels[:, number] == 1]
        assert torch.equal(fitted.codes[number], torch.where(own >= 0, 1.0, -1.0).mean(dim=0).sign())


def test_held_out_images_decide_how_sure_the_layer_is_of_classes():
    """Labels by chance can be learned by heart: those that were not seen say that nothing is known."""
    rng = torch.Generator().manual_seed(0)
    train = Examples(
        torch.randn(80, 200, generator=rng), torch.randn(80, N_BITS, generator=rng), torch.eye(4).repeat(20, 1)
    )
    source = Classes(200, 4, N_BITS)
    source.fit(train, Examples(torch.randn(400, 200, generator=rng), torch.randn(400, N_BITS, generator=rng),
                               torch.eye(4).repeat(100, 1)))  # fmt: skip
    assert torch.softmax(source.class_layer(torch.randn(50, 200, generator=rng)), dim=1).max() < 0.8


def turned_over(images: Examples) -> np.ndarray:
    return ((images.labels @ CODES) * images.outputs < 0).numpy()


def area(number: torch.Tensor, turned: np.ndarray) -> float:
    """How probably a bit that turns over has the larger number of two."""
    values = number.flatten().numpy()
    rank = np.empty(values.size)
    rank[np.argsort(values, kind="stable")] = np.arange(1, values.size + 1)
    hit = turned.ravel()
    return (rank[hit].sum() - hit.sum() * (hit.sum() + 1) / 2) / (hit.sum() * (~hit).sum())


def test_it_tells_bits_that_turn_over_where_the_margin_does_not(fitted):
    images = examples(500, 3)
    by_classes = area(fitted._number(images.features, images.outputs), turned_over(images))
    assert by_classes > 0.9
    assert by_classes > area(-images.outputs.abs(), turned_over(images)) + 0.1


def soft_map(source_of: str, fitted: Classes, sure: int) -> float:
    held_out, query, database = (examples(n, seed) for n, seed in ((300, 1), (200, 4), (600, 5)))

    def number(images: Examples) -> np.ndarray:
        found = fitted._number(images.features, images.outputs) if source_of == "classes" else -images.outputs.abs()
        return found.numpy()

    calibration = calibrated(
        held_out.outputs.numpy(), number(held_out), share_a_label(held_out.labels.numpy().astype(np.uint8)),
        has_labels=True, together=source_of == "classes",
    )  # fmt: skip

    def codes(images: Examples) -> Codes:
        return calibration.codes({"outputs": images.outputs.numpy(), "uncertainty": number(images)}, sure=sure)

    labels = (images.labels.numpy().astype(np.uint8) for images in (query, database))
    return evaluate(codes(query), codes(database).stored(), *labels, ks=(), ranking="soft").map


@pytest.mark.parametrize("sure", [1, 2])
def test_soft_ranking_finds_more_by_it(fitted, sure):
    assert soft_map("classes", fitted, sure) > soft_map("margin", fitted, sure) + 0.02


def test_where_bits_are_unsure_together_the_number_of_sure_ones_says_how_sure():
    """All bits of an image turn over with one probability: levels at one share would tell two kinds of images apart."""
    unsure = np.tile(np.linspace(0, 0.5, 200, dtype=np.float32)[:, None], (1, 24))
    together, apart = (best_grades(unsure, 1, together=each) for each in (True, False))
    counts = [(unsure < grades.thresholds[:, 0]).sum(axis=1) for grades in (together, apart)]
    assert set(counts[1]) == {0, 24}
    assert len(set(counts[0])) == 25
    assert (np.diff(counts[0]) <= 0).all()
    share = (unsure < together.thresholds[:, 0]).mean(axis=0)
    assert 0.4 <= share.min() < 0.45
    assert 0.9 < share.max() <= 0.95
    both = [best_grades(unsure, 2, together=each).thresholds for each in (True, False)]
    np.testing.assert_array_equal(*both)


def several(images: Examples) -> Examples:
    return Examples(images.features, images.outputs, torch.ones_like(images.labels))


def unlike(images: Examples, n_classes: int) -> Examples:
    return Examples(images.features, images.outputs, torch.eye(n_classes)[torch.zeros(len(images.labels)).long()])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda train, held_out: (several(train), held_out), "images have several labels"),
        (lambda train, _: (train, examples(15, 1)), "15 images are held out, and it takes 16"),
        (lambda train, held_out: (unlike(train, 201), unlike(held_out, 201)), "there are 201 classes"),
        (lambda train, held_out: (unlike(train, 1), unlike(held_out, 1)), "there are 1 classes"),
    ],
)
def test_where_classes_say_nothing_the_margin_is_taken_and_that_is_said(change, words, caplog):
    given_ = change(examples(60, 0), examples(40, 1))
    with caplog.at_level("INFO", "dmuh"):
        assert isinstance(Classes.after_training(Trained(tiny(), None, lambda: given_)), Margin)
    assert words in caplog.text
    with caplog.at_level("INFO", "dmuh"):
        assert isinstance(Classes.after_training(Trained(tiny(), None)), Margin)
    assert "there are no labels" in caplog.text


def test_dmuh_plus_takes_it_and_others_the_margin():
    taken = {name: configure({"method": name}).training.uncertainty for name in METHODS}
    assert {name for name, source in taken.items() if source == "classes"} == {"dmuh-plus"}
    assert configure({"method": "dmuh-plus", "uncertainty": "margin"}).training.uncertainty == "margin"


@pytest.mark.parametrize(
    "settings", [{"method": "dmuh-plus"}, {"method": "csq", "uncertainty": "classes", "kernel": 20}]
)
def test_a_training_keeps_it_and_codes_are_the_same_by_torch_and_by_onnx(digits, tmp_path, settings):
    small = {
        "epochs": 2,
        "bits": 12,
        "query": 5,
        "train": 30,
        "image_size": 16,
        "backbone": "smallconv",
        "validation": 0.3,
    }
    small |= {"freeze": "all"} if "kernel" in settings else {}
    run = train(configure({**small, **settings}), tmp_path / "run", dataset=digits)
    model = run.load_model()
    assert model.metadata["uncertainty"] == "classes"
    network, source = load_networks(model)
    assert isinstance(source, Classes)
    assert source.codes.abs().max() == 1
    hasher = Hasher.load(run.path, device="cpu")  # by ONNX Runtime
    rows = hasher.rows(digits.images[:6])
    found = hasher._network.run(rows)
    with torch.inference_mode():
        activations = network.lower(torch.from_numpy(rows))
        outputs, number = source.outputs_and_uncertainty(network, activations)
        alone = source.uncertainty(network, activations, outputs)
    np.testing.assert_allclose(found["outputs"], outputs, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found["uncertainty"], number, rtol=1e-3, atol=1e-4)
    assert torch.equal(number, alone)
    again = train(configure({**small, **settings}), tmp_path / "again", dataset=digits).load_model()
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
