"""Where codes get their uncertainty from: every source of the table, and one that is new."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from dmuh.config import TrainingSettings
from dmuh.encoder import Hasher
from dmuh.errors import FormatError
from dmuh.methods import configure
from dmuh.network import (
    UNCERTAINTY_SOURCES,
    HashNetwork,
    Margin,
    MomentumCopy,
    Trained,
    UncertaintySource,
    load_networks,
    outputs_and_uncertainty,
)
from dmuh.trainer import train
from dmuh.trainer.checkpoint import model_arrays
from tiny import tiny

SMALL = {"epochs": 1, "batch_size": 24, "bits": 12, "query": 5, "train": 16, "image_size": 16}


class Constant(UncertaintySource):
    """A source with numbers of its own, which the model file keeps."""

    name = "constant"
    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    @classmethod
    def after_training(cls, trained: Trained) -> "Constant":
        return cls(trained.network.hash_layer.bias.detach().abs())

    @classmethod
    def load(cls, network, about, parts) -> "Constant":
        del network, about
        return cls(parts["constant"]["value"])

    def parts(self) -> dict[str, dict[str, Tensor]]:
        return {"constant": {"value": self.value}}

    def uncertainty(self, network: HashNetwork, activations: Tensor, outputs: Tensor) -> Tensor:
        del network, activations
        return self.value.expand_as(outputs)


def test_the_setting_allows_what_the_table_has():
    (setting,) = (field for field in dataclasses.fields(TrainingSettings) if field.name == "uncertainty")
    assert setting.metadata["choices"] == tuple(UNCERTAINTY_SOURCES)
    assert [source.name for source in UNCERTAINTY_SOURCES.values()] == list(UNCERTAINTY_SOURCES)


@torch.no_grad()
def test_the_copy_says_how_far_its_outputs_are_and_the_margin_how_near_0_they_are():
    network = tiny()
    copy = MomentumCopy(network, 0.7)
    copy.network.hash_layer.weight.mul_(1.1)
    activations = network.lower(network.backbone.example())
    outputs, none = outputs_and_uncertainty(network, None, activations)
    assert none is None
    apart = (outputs - copy.network.upper(activations)).abs()
    assert apart.min() > 0
    for source, expected in ((copy, apart), (Margin(), 1 / (1 + outputs.abs()))):
        same, uncertainty = outputs_and_uncertainty(network, source, activations)
        assert torch.equal(same, outputs)
        assert torch.equal(uncertainty, expected)


def test_after_a_training_the_copy_is_the_one_it_kept_and_the_margin_needs_none():
    network = tiny()
    copy = MomentumCopy(network, 0.7)
    assert MomentumCopy.after_training(Trained(network, copy)) is copy
    assert MomentumCopy.after_training(Trained(network, None)) is None
    assert isinstance(Margin.after_training(Trained(network, None)), Margin)
    assert set(model_arrays(network, Margin())) == set(model_arrays(network, None))
    assert {name.partition(".")[0] for name in model_arrays(network, copy)} == {"network", "momentum"}
    assert (copy.alpha, Margin().alpha) == (0.7, None)


def test_a_new_source_is_a_class_and_a_line_in_the_table(digits, tmp_path, monkeypatch):
    monkeypatch.setitem(UNCERTAINTY_SOURCES, Constant.name, Constant)
    config = configure(SMALL)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, uncertainty=Constant.name))
    run = train(config, tmp_path / "run", dataset=digits)
    model = run.load_model()
    assert (model.metadata["uncertainty"], model.metadata["alpha"]) == ("constant", None)
    expected = model.arrays["constant.value"]
    assert expected.max() > 0
    hasher = Hasher.load(run.path, device="cpu")  # by ONNX Runtime
    found = hasher._network.run(hasher.rows(digits.images[:3]))
    np.testing.assert_allclose(found["uncertainty"], np.tile(expected, (3, 1)), atol=1e-4)
    turnover = hasher.calibration.turnover
    assert turnover is not None
    assert np.ptp(turnover(expected)) > 0
    codes = hasher.encode(digits.images[:3])
    np.testing.assert_array_equal(codes.uncertainty, hasher.calibration.uncertainty(found))
    monkeypatch.delitem(UNCERTAINTY_SOURCES, Constant.name)
    with pytest.raises(FormatError, match="unknown source of uncertainty 'constant'"):
        load_networks(model)


def test_a_model_file_that_names_no_source_has_that_of_its_copy(digits, tmp_path):
    model = train(configure(SMALL, {"uncertainty": "copy"}), tmp_path / "run", dataset=digits).load_model()
    unnamed = {key: value for key, value in model.metadata.items() if key != "uncertainty"}
    _, source = load_networks(dataclasses.replace(model, metadata=unnamed))
    assert isinstance(source, MomentumCopy)
    alone = {name: array for name, array in model.arrays.items() if not name.startswith("momentum.")}
    assert load_networks(dataclasses.replace(model, metadata=unnamed, arrays=alone))[1] is None
