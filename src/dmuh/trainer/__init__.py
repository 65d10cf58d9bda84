"""Training: the one loop, and what it is made of."""

from dmuh.trainer.bar import Progress
from dmuh.trainer.loop import train
from dmuh.trainer.optimisation import learning_rate

__all__ = ["Progress", "learning_rate", "train"]
