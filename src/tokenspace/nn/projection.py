"""A change of width between table and transformer: ALBERT (128 to 768), ELECTRA, OPT-350m (512 to 1024)."""

from __future__ import annotations

import torch

from tokenspace.initializers import Whole, whole
from tokenspace.nn.arrays import checked_dtype
from tokenspace.nn.initializers import Initializer, initialize_, xavier_uniform_


class Projection(torch.nn.Linear):
    """A ``torch.nn.Linear`` drawn by ``initializer``, now and at every `reset_parameters`; its bias is zero.

    >>> list(Projection(4, 8).state_dict())
    ['weight', 'bias']
    """

    initializer: Initializer

    def __init__(
        self,
        in_features: Whole,
        out_features: Whole,
        bias: bool = True,
        *,
        initializer: Initializer = xavier_uniform_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        in_features, out_features = (
            whole("in_features", in_features, 1),
            whole("out_features", out_features, 1),
        )
        object.__setattr__(self, "initializer", initializer)  # torch's constructor draws already
        super().__init__(in_features, out_features, bias, device=device, dtype=checked_dtype(dtype))

    def reset_parameters(self) -> None:
        """Draw the weight anew; the bias is zero afterwards."""
        with torch.no_grad():
            initialize_(self.weight, self.initializer)
            if self.bias is not None:
                self.bias.zero_()
