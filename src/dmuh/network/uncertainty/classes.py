"""The classes: how probable it is that an image is of a class whose images have another bit."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dmuh.network.hash_network import HashNetwork
from dmuh.network.uncertainty.base import Examples, State, Trained, UncertaintySource
from dmuh.network.uncertainty.margin import Margin

log = logging.getLogger(__name__)

_FEWEST = 16  # images that are held out below which chance would choose
_CLASSES = 200  # above which there are too few images of each
_PENALTIES = (0.1, 0.03, 0.01, 0.003)  # of the class layer's weights, for features of variance 1; the largest first
_TEMPERATURES = torch.logspace(-0.7, 0.7, 57)
_STEPS = 60  # of each fit
_NEVER = 0.004  # no class is certain
_SUPPOSED = (1.0, 0.5)  # the factors where no bit of the held-out images turns over


class Classes(UncertaintySource):
    """How much the classes that an image may be of disagree with a bit, and how near its output is to 0.

    A layer beside the hash layer, on the same features, gives the probability p_c of each class c by a softmax. If s_c
    are the bits ±1 that most training images of the class have, the bit b_k = sign(h_k) is the one that images like
    this one have with probability (1 + a_k) / 2, where a_k = b_k·Σ_c p_c·s_ck: what the image shows, and not each
    output by itself, says whether a bit turns over. With the margin |h_k| beside it, the number is

        σ(-(f_1·log((1 + a_k) / (1 - a_k)) + f_2·|h_k|)),

    whose two factors are fitted, as a logistic regression, to the bits of held-out images that turn over.

    class_layer  n_features → classes: logits
    codes        (classes, n_bits) of ±1; 0 for a class without training images
    factors      (2,): f_1 and f_2
    """

    name = "classes"
    together = True
    codes: Tensor
    factors: Tensor

    def __init__(self, n_features: int, n_classes: int, n_bits: int) -> None:
        super().__init__()
        self.class_layer = nn.Linear(n_features, n_classes).requires_grad_(False)
        self.register_buffer("codes", torch.zeros(n_classes, n_bits))
        self.register_buffer("factors", torch.tensor(_SUPPOSED))

    @classmethod
    def after_training(cls, trained: Trained) -> UncertaintySource:
        """Return it, fitted to the training images by what held-out ones say; the margin where that cannot be done."""
        why_not = "there are no labels"
        if trained.examples is not None:
            train, held_out = trained.examples()
            why_not = _why_not(train, held_out)
            if not why_not:
                source = cls(train.features.shape[1], train.labels.shape[1], train.outputs.shape[1])
                source.fit(train, held_out)
                return source.to(trained.network.device)
        log.info("how sure bits are is read from their margins, not from classes, as %s", why_not)
        return Margin()

    @classmethod
    def load(cls, network: HashNetwork, about: Mapping[str, Any], parts: Mapping[str, State]) -> "Classes":
        """Return that of a model file."""
        del about
        state = parts["classes"]
        source = cls(network.backbone.n_features, len(state["codes"]), network.n_bits)
        source.load_state_dict(state)
        return source

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Return all that it is."""
        return {"classes": self.state_dict()}

    def fit(self, train: Examples, held_out: Examples) -> None:
        """Fit the layer to training images, and how it is read to images that are held out."""
        weight, bias = _class_layer(train, held_out)
        self.class_layer.weight.copy_(weight)
        self.class_layer.bias.copy_(bias)
        self.codes.copy_((train.labels.T @ _bits(train.outputs)).sign())
        odds, margin = self._evidence(held_out.features, held_out.outputs)
        turned = _bits(held_out.outputs) * (held_out.labels @ self.codes) < 0
        self.factors.copy_(_factors(torch.stack([odds.flatten(), margin.flatten()], dim=1), turned.flatten()))

    def uncertainty(self, network: HashNetwork, activations: Tensor, outputs: Tensor) -> Tensor:
        """Return the number for each bit, from 0 to 1."""
        return self._number(network.head_inputs(activations), outputs)

    def outputs_and_uncertainty(self, network: HashNetwork, activations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute outputs and uncertainty, the features below both only once."""
        features = network.head_inputs(activations)
        outputs: Tensor = network.hash_layer(features)
        return outputs, self._number(features, outputs)

    def _number(self, features: Tensor, outputs: Tensor) -> Tensor:
        odds, margin = self._evidence(features, outputs)
        return torch.sigmoid(-(self.factors[0] * odds + self.factors[1] * margin))

    def _evidence(self, features: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-odds that bits (B, n_bits) are those of their images' classes, and the margins of outputs."""
        probability = torch.softmax(self.class_layer(features), dim=1)  # (B, classes)
        agreeing = _bits(outputs) * (probability @ self.codes)
        return torch.log((agreeing + (1 + _NEVER)) / (-agreeing + (1 + _NEVER))), outputs.abs()


def _bits(outputs: Tensor) -> Tensor:
    """Return the bits ±1 of outputs, as codes have them."""
    return (outputs >= 0).to(outputs.dtype) * 2 - 1


def _why_not(train: Examples, held_out: Examples) -> str:
    """Return why classes cannot say how sure bits are; empty where they can."""
    labels = torch.cat([train.labels, held_out.labels])
    if (labels.sum(dim=1) > 1).any():
        return "images have several labels"
    if not 2 <= labels.shape[1] <= _CLASSES:
        return f"there are {labels.shape[1]:,} classes, and it takes 2 to {_CLASSES}"
    if len(held_out.labels) < _FEWEST:
        return f"{len(held_out.labels)} images are held out, and it takes {_FEWEST}"
    return ""


def _class_layer(train: Examples, held_out: Examples) -> tuple[Tensor, Tensor]:
    """Return weight (classes, n_features) and bias (classes,) of a logistic regression, by held-out images.

    They choose its penalty, and the temperature that its logits are divided by. It is computed in float64, so that
    features which differ in a last digit, as those of several processes do, give weights that hardly differ.
    """
    features, labels = train.features.double(), train.labels.double()
    mean, scale = features.mean(dim=0), features.var(dim=0, correction=0).mean().sqrt().clamp_min(1e-6)
    features, others = ((each - mean) / scale for each in (features, held_out.features.double()))
    weight = torch.zeros(labels.shape[1], features.shape[1], dtype=torch.float64)
    bias = labels.mean(dim=0).clamp_min(1e-6).log()
    best, chosen = torch.inf, (weight, bias)
    for penalty in _PENALTIES:
        weight, bias = _logistic(features, labels, weight, bias, penalty)
        logits = others @ weight.T + bias
        losses = torch.stack([_cross_entropy(logits / t, held_out.labels) for t in _TEMPERATURES])
        if losses.min() < best:
            best, temperature = losses.min().item(), _TEMPERATURES[losses.argmin()]
            chosen = weight / temperature, bias / temperature
    weight = chosen[0] / scale
    return weight, chosen[1] - weight @ mean


def _logistic(features: Tensor, labels: Tensor, weight: Tensor, bias: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """Return weight and bias of least cross-entropy + ½·penalty·‖weight‖², from where they begin."""
    fitted = [weight.clone().requires_grad_(), bias.clone().requires_grad_()]

    def loss() -> Tensor:
        return _cross_entropy(features @ fitted[0].T + fitted[1], labels) + penalty / 2 * (fitted[0] ** 2).sum()

    _minimise(fitted, loss)
    return fitted[0].detach(), fitted[1].detach()


def _factors(evidence: Tensor, turned: Tensor) -> Tensor:
    """Return the factors (2,), none below 0, by which evidence (n, 2) says which bits (n,) turned over."""
    if not turned.any() or turned.all():
        return torch.tensor(_SUPPOSED)
    fitted = [torch.tensor(_SUPPOSED).requires_grad_(), torch.zeros((), requires_grad=True)]

    def loss() -> Tensor:
        logits = fitted[1] - evidence @ fitted[0]
        return nn.functional.binary_cross_entropy_with_logits(logits, turned.to(logits.dtype))

    _minimise(fitted, loss)
    return fitted[0].detach().clamp_min(0)


def _minimise(fitted: list[Tensor], loss: Callable[[], Tensor]) -> None:
    """Change tensors until a loss of them is smallest, or nearly."""
    optimizer = torch.optim.LBFGS(fitted, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits against labels (n, classes), of which each row has one or none."""
    return -(torch.log_softmax(logits, dim=1) * labels).sum(dim=1).mean()
