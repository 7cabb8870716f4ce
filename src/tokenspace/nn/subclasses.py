"""How the checks of ids and labels, operators of ours, treat torch's own tensor subclasses.

Each check returns a tensor like the one that it was given. Of a ``DTensor`` each process checks its own part.
Other subclasses define themselves how an operator reaches their values; of nested tensors the packed rows are
checked (``tokenspace.nn.nested``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch

_CHECKS = ("check_ids", "check_labels")


def register_checks() -> None:
    """Register what is still missing. Importing ``torch.distributed.tensor`` is left to those who use it."""
    if "torch.distributed.tensor" in sys.modules:
        _register_distributed()


@functools.cache
def _register_distributed() -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    def placements(ids: Any, *rest: Any) -> Sequence[tuple[list[Any], list[Any]]]:
        kinds = [Replicate(), *(Shard(axis) for axis in range(ids.ndim))]
        return [([kind], [kind, *[None] * len(rest)]) for kind in kinds]

    operators = [getattr(torch.ops.tokenspace, name).default for name in _CHECKS]
    register_sharding(operators)(placements)
