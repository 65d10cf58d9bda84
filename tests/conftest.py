import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dmuh.datasets import Dataset
from dmuh.datasets.mnist5k import load_mnist5k

# The networks of the tests are tiny: one thread is as fast, and does not fight with other processes.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(scope="session")
def mnist() -> Dataset:
    return load_mnist5k()


@pytest.fixture(scope="session")
def digits(mnist: Dataset) -> Dataset:
    """Sixty images of each of four digits: a real data set that trains in seconds."""
    positions = np.concatenate([np.flatnonzero(mnist.labels[:, k])[:60] for k in (0, 1, 4, 7)])
    return Dataset("mnist5k", mnist.images[positions], mnist.labels[positions][:, [0, 1, 4, 7]], ("0", "1", "4", "7"))


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, mnist: Dataset) -> Path:
    """A folder of twenty images in two classes, as a user has it on disk."""
    root = tmp_path_factory.mktemp("photos")
    for name, digit in (("ones", 1), ("zeros", 0)):
        (root / name).mkdir()
        for n, position in enumerate(np.flatnonzero(mnist.labels[:, digit])[:10]):
            Image.fromarray(mnist.images[position]).resize((40, 48)).save(root / name / f"{n:02}.png")
    return root
