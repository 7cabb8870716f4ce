"""One row of a parameter that training leaves as it is, whatever the optimizer does to the others.

A zero gradient alone does not hold a row: weight decay shrinks it, and momentum moves it on. So

- the row's gradient is zeroed where it arrives at the parameter, whoever adds to it (a tied head, say),
  before a clip or an optimizer sees it;
- the row is kept before every ``torch.optim.Optimizer`` step that has the parameter, and put back after it.

Both go with the ``Parameter`` object: whatever makes a new one calls `freeze_row` again. An edit of the row
by hand stays, and so does what a step does that is no ``torch.optim.Optimizer``'s.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tokenspace.nn.gradient_hooks import add_hook, connect_hooks, hooks_of
from tokenspace.nn.sharded import own_part

_Held = tuple[Tensor, int, Tensor]  # a parameter, its row, and this process's part of the row
_BEFORE: weakref.WeakKeyDictionary[Optimizer, list[_Held]] = weakref.WeakKeyDictionary()


def freeze_row(weight: torch.nn.Parameter, row: int) -> None:
    """Hold ``weight[row]`` from now on; a second call for the same parameter holds that row instead.

    >>> weight = torch.nn.Parameter(torch.ones(2, 3))
    >>> freeze_row(weight, 0)
    >>> optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.5)
    >>> weight.sum().backward()
    >>> weight.grad
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    >>> optimizer.step()
    >>> weight.detach()
    tensor([[1.0000, 1.0000, 1.0000],
            [0.8500, 0.8500, 0.8500]])
    """
    hook = _hook_of(weight)
    if hook is not None:
        hook.row = row
        connect_hooks(weight)
        return
    _watch_optimizers()
    add_hook(weight, _MaskGradient(row))


def release_row(weight: Tensor) -> None:
    """Undo `freeze_row`: the row is trained as the others are."""
    hook = _hook_of(weight)
    if hook is not None:
        hook.row = None


def row_held(weight: Tensor) -> int | None:
    """The row of ``weight`` that `freeze_row` holds, if any."""
    hook = _hook_of(weight)
    return None if hook is None else hook.row


class _MaskGradient:
    """The hook of a frozen parameter, which knows the row."""

    def __init__(self, row: int) -> None:
        self.row: int | None = row  # None once it is released

    def __call__(self, weight: Tensor) -> None:
        gradient, row = weight.grad, self.row
        if gradient is None or row is None:
            return
        if not gradient.is_sparse:
            part, place = own_part(gradient, row)
            if place is not None:
                part[place] = 0.0
            return
        # Not coalesced here: torch would round each partial sum of 16-bit numbers.
        others = gradient._indices()[0] != row
        weight.grad = torch.sparse_coo_tensor(
            gradient._indices()[:, others],
            gradient._values()[others],
            gradient.shape,
            is_coalesced=gradient.is_coalesced(),
            check_invariants=False,
        )


def _hook_of(weight: Tensor) -> _MaskGradient | None:
    return next((hook for hook in hooks_of(weight) if isinstance(hook, _MaskGradient)), None)


@functools.cache
def _watch_optimizers() -> None:
    """Once a process, and only in one that freezes a row."""
    register_optimizer_step_pre_hook(_keep)
    register_optimizer_step_post_hook(_put_back)


@torch.no_grad()
def _keep(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    held = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            row = row_held(weight)
            if row is None:
                continue
            part, place = own_part(weight, row)
            if place is not None:
                held.append((weight, row, part[place].clone()))
    if held:
        _BEFORE[optimizer] = held


@torch.no_grad()
def _put_back(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for weight, row, before in _BEFORE.pop(optimizer, ()):
        part, place = own_part(weight, row)
        if place is not None:
            part[place] = before
