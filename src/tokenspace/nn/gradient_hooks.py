"""Hooks that run once a parameter's gradient is there. The parameter itself holds them.

A table of our own by weak references would have torch refuse to convert a sharded parameter, which it does by
``torch.utils.swap_tensors``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Parameter


def hooks_of(weight: Any) -> list[Callable[[Tensor], None]]:
    """Return the hooks of ``weight``."""
    return list((weight._post_accumulate_grad_hooks or {}).values())


def add_hook(weight: Parameter, hook: Callable[[Tensor], None]) -> None:
    """Have ``hook`` called with ``weight`` after each backward that reaches it."""
    needed = weight.requires_grad
    weight.requires_grad_(True)  # torch takes the hook only then, and keeps it through a change
    weight.register_post_accumulate_grad_hook(hook)
    weight.requires_grad_(needed)


def connect_hooks(weight: Any) -> None:
    """Have autograd call the hooks of ``weight`` again, which it forgets in ``swap_tensors``."""
    weight._post_accumulate_grad_hooks = weight._post_accumulate_grad_hooks
