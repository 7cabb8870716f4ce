"""How the checks of ids and labels, operators of ours, treat torch's own tensor subclasses.

Each check returns a tensor like the one that it was given. Of a ``DTensor`` each process checks its own part;
of a jagged nested tensor the packed values are checked. Other subclasses define themselves how an operator
reaches their values.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

_CHECKS = ("check_ids", "check_labels")


def register_checks() -> None:
    """Register what is still missing. Importing ``torch.distributed.tensor`` is left to those who use it."""
    _register_jagged()
    if "torch.distributed.tensor" in sys.modules:
        _register_distributed()


def distributed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return ``tensor``, equal in all processes, as a ``DTensor`` on the mesh of ``other`` if that is one."""
    if type(other) in (Tensor, Parameter):
        return tensor
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None or not isinstance(other, tensors.DTensor) or isinstance(tensor, tensors.DTensor):
        return tensor
    mesh = other.device_mesh
    return tensors.DTensor.from_local(tensor, mesh, [tensors.Replicate()] * mesh.ndim, run_check=False)


@functools.cache
def _register_jagged() -> None:
    from torch.nested._internal.nested_tensor import NestedTensor

    def check(kind: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Tensor:
        ids, *rest = args
        checked = operator(ids.values(), *rest, **(kwargs or {}))
        return torch.nested.nested_tensor_from_jagged(
            checked, ids.offsets(), ids.lengths(), jagged_dim=ids._ragged_idx
        )

    for name in _CHECKS:
        torch.library.register_torch_dispatch(f"tokenspace::{name}", NestedTensor, check)


@functools.cache
def _register_distributed() -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def placements(ids: Any, *rest: Any) -> Sequence[tuple[list[Any], list[Any]]]:
        kinds = [Replicate(), *(Shard(axis) for axis in range(ids.ndim))]
        return [([kind], [kind, *[None] * len(rest)]) for kind in kinds]

    operators = [getattr(torch.ops.tokenspace, name).default for name in _CHECKS]
    register_sharding(operators)(placements)
