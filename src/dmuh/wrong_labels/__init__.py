"""Which labels are probably wrong, which ones would be right, and how sure that is: vectors and labels in. No torch.

kernel.py       KernelFeatures: vectors as features in which a linear fit tells curved classes apart
noise.py        OneLabel, SeveralLabels: how often labels are wrong, and how likely a given one is
logistic.py     Folds: what fits to other images say of each
suspects.py     find_suspects: vectors and labels in, suspects out
"""

from dmuh.wrong_labels.suspects import Suspects, find_suspects

__all__ = ["Suspects", "find_suspects"]
