"""Ways to fill a (V, D) tensor in place: ``tokenspace.initializers`` with torch's generators.

Each takes the tensor first and leaves it on its device and in its dtype: half precisions are drawn in
float32 and rounded once. ``torch.manual_seed`` repeats the draws, or a ``generator`` of your own does; on the
meta device nothing happens, so a module made there is filled by ``reset_parameters`` once it has memory.
Settings go in with ``functools.partial``:

>>> import functools
>>> from tokenspace.nn import TokenEmbedding
>>> bert = functools.partial(truncated_normal_, std=0.02)
>>> weight = TokenEmbedding(30_522, 64, padding_idx=0, initializer=bert).weight.detach()
>>> round(float(weight.std()), 4), float(weight[0].abs().max())
(0.0176, 0.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tokenspace.errors import ShapeError
from tokenspace.initializers import TRUNCATED_STD, MatchReport, Real, from_pretrained, real
from tokenspace.nn.arrays import tensor_of
from tokenspace.table import Table, check_table
from tokenspace.vocab import Vocab, check_vocab

Initializer = Callable[[Tensor], object]

_BLOCK_ROWS = 65_536  # of a table in half precision that are drawn in float32 at a time


def normal_(weight: Tensor, std: Real | None = None, generator: torch.Generator | None = None) -> Tensor:
    """Independent draws from N(0, std²), of variance std²; ``std``, the standard deviation, is 1/sqrt(D) if
    not given (variance 1/D): a row's length is then about 1.

    ``ShapeError`` unless the tensor has two axes of floats and ``std`` is positive and finite.

    >>> _ = torch.manual_seed(0)
    >>> round(float(normal_(torch.empty(1_000, 64)).std()), 3)
    0.125
    """
    std = _std(weight, std)
    return _fill(weight, lambda block: block.normal_(0.0, std, generator=generator))


def truncated_normal_(
    weight: Tensor,
    std: Real | None = None,
    corrected: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draws from N(0, std²) cut at ±2 std, by the inverse of the distribution function: none is drawn twice.

    Uncorrected, as in the original BERT, the result's std is 0.87962566·std; ``corrected=True`` widens the
    draws so that it is ``std``. (``torch.nn.init.trunc_normal_`` takes its bounds as numbers, not as
    multiples of std: with std 0.02 its default ±2 cuts nothing.) Errors as for `normal_`.

    >>> _ = torch.manual_seed(0)
    >>> weight = truncated_normal_(torch.empty(1_000, 64), std=0.02)
    >>> bool(weight.abs().max() <= 0.04), round(float(weight.std()), 4)
    (True, 0.0176)
    """
    std = _std(weight, std)
    within = math.erf(2.0 / math.sqrt(2.0))  # the share of N(0, 1) between -2 and 2
    factor = std / TRUNCATED_STD if corrected else std

    def fill(block: Tensor) -> None:
        block.uniform_(-within, within, generator=generator)
        block.erfinv_().mul_(math.sqrt(2.0)).clamp_(-2.0, 2.0).mul_(factor)

    return _fill(weight, fill)


def xavier_uniform_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draws from U(-a, a) with a = sqrt(6/(V + D)) (Glorot and Bengio 2010, equation 16): variance 2/(V + D),
    standard deviation its root.

    >>> _ = torch.manual_seed(0)
    >>> round(float(xavier_uniform_(torch.empty(1_000, 64)).abs().max()), 3)
    0.075
    """
    rows, width = _checked(weight).shape
    return _uniform(weight, math.sqrt(6.0 / (rows + width)), generator)


def xavier_normal_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draws from N(0, 2/(V + D)), the variance of `xavier_uniform_`, whose root is the standard deviation
    (Glorot and Bengio 2010, equation 12).

    >>> _ = torch.manual_seed(0)
    >>> round(float(xavier_normal_(torch.empty(1_000, 64)).std()), 3)
    0.043
    """
    rows, width = _checked(weight).shape
    return normal_(weight, math.sqrt(2.0 / (rows + width)), generator)


def word2vec_uniform_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draws from U(-0.5/D, 0.5/D), as the word2vec program fills its center table.

    >>> _ = torch.manual_seed(0)
    >>> round(float(word2vec_uniform_(torch.empty(1_000, 64)).abs().max()) * 64, 2)
    0.5
    """
    return _uniform(weight, 0.5 / _checked(weight).shape[1], generator)


def from_pretrained_(
    weight: Tensor,
    vocab: Vocab,
    pretrained: Table,
    std: Real | None = None,
    ignore_case: bool = False,
    generator: torch.Generator | None = None,
) -> MatchReport:
    """Copy the rows of the tokens that ``pretrained`` has, draw the others, and report how many matched.

    The rules, and the errors, are those of ``tokenspace.initializers.from_pretrained``. ``ShapeError`` too if
    ``weight`` is not (tokens of ``vocab``, width of ``pretrained``).

    >>> _ = torch.manual_seed(0)
    >>> glove = Table(np.array([[1, 2], [3, 4]], np.float32), Vocab(["the", "Paris"]))
    >>> weight = torch.empty(2, 2)
    >>> from_pretrained_(weight, Vocab(["the", "paris"]), glove, ignore_case=True).matched
    2
    >>> weight
    tensor([[1., 2.],
            [3., 4.]])
    """
    check_vocab(vocab)
    check_table(pretrained)
    expected = (len(vocab), pretrained.dim)
    if tuple(_checked(weight).shape) != expected:
        raise ShapeError(
            f"{len(vocab):,} tokens with pretrained rows of width {pretrained.dim:,} fill a table "
            f"{expected}; found {tuple(weight.shape)}"
        )
    seed = int(torch.randint(2**62, (), generator=generator))
    rng = np.random.default_rng(seed)
    rows, report = from_pretrained(vocab, pretrained, rng, std=std, ignore_case=ignore_case)
    with torch.no_grad():
        weight.copy_(tensor_of(rows))
    return report


def _uniform(weight: Tensor, bound: float, generator: torch.Generator | None) -> Tensor:
    return _fill(weight, lambda block: block.uniform_(-bound, bound, generator=generator))


@torch.no_grad()
def initialize_(weight: Tensor, initializer: Initializer) -> None:
    """Let ``initializer`` fill ``weight``; ``ShapeError`` if it leaves any number unset, or makes it NaN.

    >>> initialize_(torch.empty(2, 2), torch.ones_like)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: the initializer left 4 of 4 numbers unset, or NaN; it has to fill the \
tensor that it is given in place: lambda weight: weight.copy_(...)
    """
    with torch.no_grad():
        weight.fill_(math.nan)
        initializer(weight)
        if weight.is_meta or type(weight) not in (Tensor, torch.nn.Parameter):  # no values to look at
            return
        if unset := int(weight.isnan().sum()):
            raise ShapeError(
                f"the initializer left {unset:,} of {weight.numel():,} numbers unset, or NaN; it has to fill "
                "the tensor that it is given in place: lambda weight: weight.copy_(...)"
            )


def _fill(weight: Tensor, fill: Callable[[Tensor], object]) -> Tensor:
    if weight.dtype in (torch.float32, torch.float64):
        fill(weight)
        return weight
    for block in weight.split(_BLOCK_ROWS):
        drawn = torch.empty_like(block, dtype=torch.float32)
        fill(drawn)
        block.copy_(drawn)
    return weight


def _std(weight: Tensor, std: Real | None) -> float:
    width = _checked(weight).shape[1]
    return real("std", width**-0.5 if std is None else std, positive=True)


def _checked(weight: Tensor) -> Tensor:
    if not isinstance(weight, Tensor):
        raise ShapeError(f"an initializer fills a tensor (V, D) of floats; found {type(weight).__name__}")
    if weight.ndim != 2 or not weight.is_floating_point() or not weight.numel():
        raise ShapeError(
            f"a table is (V, D), at least one row of floats; found {tuple(weight.shape)}, {weight.dtype}"
        )
    return weight
