"""A network small enough to be computed, written down and read in no time, and images for it."""

import numpy as np
import torch
from torch import nn

from dmuh.backbones.base import Backbone
from dmuh.datasets import Dataset, one_hot
from dmuh.images import Preprocess
from dmuh.network import HashNetwork


class Mean(nn.Module):
    def forward(self, maps):
        return maps.mean(dim=(2, 3))


class Tiny(Backbone):
    """Two parts, `conv` and `full`, with layers that would behave differently in training."""

    about = "test"
    n_features = 8

    def __init__(self, image_size=None):
        super().__init__(image_size)
        size = image_size or 8
        self.preprocess = Preprocess(size, size + 2)
        self.conv = nn.Conv2d(3, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(0.5)
        self.full = nn.Linear(6, 8)

    def parts(self):
        conv = nn.Sequential(self.conv, self.norm, self.drop, nn.ReLU())
        return {"conv": conv, "full": nn.Sequential(Mean(), self.full)}


def tiny(n_bits=8, freeze="none", seed=0, image_size=None) -> HashNetwork:
    torch.manual_seed(seed)
    return HashNetwork(Tiny(image_size), n_bits, freeze)


def noise(n=6, side=8, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), np.uint8)


def noise_set(n=6, seed=0) -> Dataset:
    return Dataset("noise", noise(n, 12, seed), one_hot(np.arange(n) % 2, 2), ("even", "odd"))
