"""Optimizers whose step costs what the touched rows cost, and a clip of gradients that knows row-sparse ones.

They need the ``torch`` extra; importing this room without torch raises ``MissingExtra``.
"""

import importlib.util

from tokenspace.errors import MissingExtra

if importlib.util.find_spec("torch") is None:
    raise MissingExtra("tokenspace.optim", "torch")

from tokenspace.optim.adagrad import SparseAdagrad, SparseRowWiseAdagrad
from tokenspace.optim.adamw import SparseAdamW
from tokenspace.optim.clip import clip_grad_norm_
from tokenspace.optim.row_optimizer import DenseGradientWarning
from tokenspace.optim.sgd import SparseSGD

__all__ = [
    "DenseGradientWarning",
    "SparseAdagrad",
    "SparseAdamW",
    "SparseRowWiseAdagrad",
    "SparseSGD",
    "clip_grad_norm_",
]
