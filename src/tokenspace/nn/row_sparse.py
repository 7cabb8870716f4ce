"""A parameter whose row-sparse gradient says that its rows are distinct and in order, when they are.

``TokenEmbedding(sparse=True)`` makes such gradients, but autograd, as it puts one into ``.grad``, forgets
that it is coalesced; every optimizer would then sort it and add up its rows again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokenspace.nn import dispatch
from tokenspace.nn.arrays import array_over
from tokenspace.nn.gradient_hooks import add_hook, connect_hooks, hooks_of


def mark_coalesced(weight: torch.nn.Parameter) -> None:
    """From now on mark ``weight.grad`` as coalesced where it is; a second call for it changes nothing.

    >>> weight = torch.nn.Parameter(torch.ones(4, 2))
    >>> mark_coalesced(weight)
    >>> ids = torch.tensor([1, 3])
    >>> torch.nn.functional.embedding(ids, weight, sparse=True).sum().backward()
    >>> weight.grad.is_coalesced()
    True
    """
    if _mark in hooks_of(weight):
        connect_hooks(weight)
    else:
        add_hook(weight, _mark)


def _mark(weight: Tensor) -> None:
    gradient = weight.grad
    if gradient is None or gradient.layout != torch.sparse_coo or gradient.is_coalesced():
        return
    ids = gradient._indices()
    if ids.shape[0] == 1 and _ascend(ids[0]):
        gradient._coalesced_(True)


def _ascend(ids: Tensor) -> bool:
    if dispatch.unwatched(ids):
        array = array_over(ids)
        return bool((array[1:] > array[:-1]).all())
    return bool((ids[1:] > ids[:-1]).all())
