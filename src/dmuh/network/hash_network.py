"""HashNetwork: a backbone and a hash layer, and how a fresh one is scaled."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dmuh.backbones import Backbone, Dropout, Masks
from dmuh.errors import ConfigError, unknown
from dmuh.network.heads import HiddenHead

_SHARED_DEVIATION = 0.3  # of the mean one, added to each feature's: those that hardly vary are not blown up to the rest
_HIDDEN_DEVIATION = 0.2  # of a hidden unit, before its ReLU: held-out training images of CIFAR-10 chose it
_FIRST_DEVIATION = 0.2  # of a bit's output over the training images when training begins


class HashNetwork(nn.Module):
    """Pixels uint8 (B, size, size, 3) → outputs (B, n_bits), whose signs are the code: a backbone and a hash layer.

    The hash layer is linear, with `hidden` units one above a layer of these, unless a shallow method put another head
    there (`dmuh.network.heads`).

    `freeze` cuts it in two: the parts of the backbone up to the one it names, or all or none of them, do not train.
    They are `lower`, from pixels to activations, which can be cached; `upper` goes on from there. Before the hash layer
    the features are shifted and scaled by constants, which `calibrate` sets.

    The network never leaves evaluation mode: batch normalisation uses its running statistics, in training too, so a
    code never depends on its batch. Dropout, at the rate `dropout`, is on where a training step gives masks
    (`dropping`) and there alone. It stands right below the last layer, on the hidden layer or else on the shifted and
    scaled features, and wherever the backbone has a `Dropout` above what is frozen.
    """

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self, backbone: Backbone, n_bits: int, freeze: str = "none", *, hidden: int = 0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.n_bits = n_bits
        self.dropout = dropout
        self.drop = Dropout(0.0 if hidden else dropout)
        self.hash_layer: nn.Module = (
            HiddenHead(backbone.n_features, hidden, n_bits, dropout)
            if hidden
            else nn.Linear(backbone.n_features, n_bits)
        )
        self.register_buffer("feature_mean", torch.zeros(backbone.n_features))
        self.register_buffer("feature_scale", torch.ones(backbone.n_features))
        names = list(backbone.parts())
        if freeze not in ("none", "all", *names):
            raise ConfigError(unknown("part to freeze", freeze, ["none", "all", *names]))
        self._n_frozen = ["none", *names].index(freeze) if freeze != "all" else len(names)
        for number, part in enumerate(backbone.parts().values()):
            frozen = number < self._n_frozen
            if frozen:
                part.requires_grad_(False)
            for layer in part.modules():
                if isinstance(layer, Dropout):
                    layer.rate = 0.0 if frozen else dropout
        # convolutions train up to five times as fast on a CPU
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.eval()

    def train(self, mode: bool = True) -> "HashNetwork":
        """Stay in evaluation mode, whatever `mode` is."""
        del mode
        super().train(False)
        return self

    @contextmanager
    def dropping(self, masks: Masks | None) -> Iterator[None]:
        """Drop by these masks in the block; by none nothing is dropped."""
        layers = [] if masks is None else [layer for layer in self.modules() if isinstance(layer, Dropout)]
        try:
            for layer in layers:
                layer.masks = masks
            yield
        finally:
            for layer in layers:
                layer.masks = None

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.feature_mean.device

    @torch.no_grad()
    def lower(self, pixels: Tensor) -> Tensor:
        """Compute the activations above what is frozen: with nothing frozen, the normalised images."""
        x = self.backbone.normalise(pixels)
        for part in list(self.backbone.parts().values())[: self._n_frozen]:
            x = part(x)
        return x

    def features(self, activations: Tensor) -> Tensor:
        """Compute the backbone's features (B, n_features) from the activations."""
        x = activations
        for part in list(self.backbone.parts().values())[self._n_frozen :]:
            x = part(x)
        return x

    def head_inputs(self, activations: Tensor) -> Tensor:
        """Compute what the hash layer sees: the features, shifted and scaled."""
        inputs: Tensor = self.drop((self.features(activations) - self.feature_mean) * self.feature_scale)
        return inputs

    def upper(self, activations: Tensor) -> Tensor:
        """Compute the outputs (B, n_bits) from the activations."""
        outputs: Tensor = self.hash_layer(self.head_inputs(activations))
        return outputs

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the outputs (B, n_bits)."""
        return self.upper(self.lower(pixels))

    def frozen(self) -> list[Tensor]:
        """Return the weights and buffers that do not change in training."""
        parts = list(self.backbone.parts().values())[: self._n_frozen]
        return [tensor for part in parts for tensor in (*part.parameters(), *part.buffers())]

    def trained_state(self) -> dict[str, Tensor]:
        """Return the state without what is frozen."""
        frozen = {id(tensor) for tensor in self.frozen()}
        return {key: value for key, value in self.state_dict(keep_vars=True).items() if id(value) not in frozen}

    def load_trained_state(self, state: Mapping[str, Tensor]) -> None:
        """Take up what `trained_state` gave."""
        self.load_state_dict({**self.state_dict(), **state})


@torch.no_grad()
def calibrate(network: HashNetwork, activations: Tensor) -> None:
    """Scale a fresh network's layers so that over these activations of `lower` no output has a mean.

    Layers of a backbone that starts from scratch and a hidden layer get deviation 1 per channel, the last layer a small
    one. The features of a learned backbone are standardised instead: their deviations differ a thousandfold, and so
    would the speed at which the hash layer learns to use them. A fresh hash layer gives all images nearly the same
    output, from where the pairwise likelihood drives the outputs to zero: a saddle point that training does not leave.
    """
    deviation = _head_deviations(network)
    if network.backbone.from_scratch:
        deviation |= {m: 1.0 for m in network.backbone.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
    else:
        features = network.features(activations)
        network.feature_mean.copy_(features.mean(dim=0))
        deviations = features.std(dim=0, correction=0)
        network.feature_scale.copy_(1 / (deviations + _SHARED_DEVIATION * deviations.mean() + 1e-6))
    _set_deviations(network, activations, deviation)


@torch.no_grad()
def calibrate_hash_layer(network: HashNetwork, activations: Tensor) -> None:
    """Scale a fresh network's hash layer alone, as `calibrate` does."""
    _set_deviations(network, activations, _head_deviations(network))


def _head_deviations(network: HashNetwork) -> dict[nn.Module, float]:
    """Return the deviation that the outputs of each layer of the head are to begin with."""
    head = network.hash_layer
    if isinstance(head, HiddenHead):
        return {head.hidden: _HIDDEN_DEVIATION, head.last: _FIRST_DEVIATION}
    return {head: _FIRST_DEVIATION}


def _set_deviations(network: HashNetwork, activations: Tensor, deviation: dict[nn.Module, float]) -> None:
    """Scale these layers, one after the other, so that their outputs have no mean and the deviation that is named."""

    def standardise(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        del inputs
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        channel_last = output.movedim(1, -1)
        flat = channel_last.reshape(-1, channel_last.shape[-1])
        mean, scale = flat.mean(dim=0), deviation[layer] / (flat.std(dim=0, correction=0) + 1e-6)
        layer.weight.mul_(scale.view(-1, *[1] * (layer.weight.ndim - 1)))
        if layer.bias is not None:
            layer.bias.sub_(mean).mul_(scale)
        return ((channel_last - mean) * scale).movedim(-1, 1)

    hooks = [layer.register_forward_hook(standardise) for layer in deviation]
    network.upper(activations)
    for hook in hooks:
        hook.remove()
