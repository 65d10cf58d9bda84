"""Training: `train` in training.py is the way in, loop.py the loop of deep methods, fitting.py the shallow ones."""

from dmuh.trainer.bar import Progress
from dmuh.trainer.optimisation import learning_rate
from dmuh.trainer.training import train

__all__ = ["Progress", "learning_rate", "train"]
