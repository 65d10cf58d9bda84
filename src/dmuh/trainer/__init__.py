"""Training: the one loop, and what it is made of."""

from dmuh.trainer.bar import Progress
from dmuh.trainer.loop import config_of, train
from dmuh.trainer.optimisation import learning_rate

__all__ = ["Progress", "config_of", "learning_rate", "train"]
