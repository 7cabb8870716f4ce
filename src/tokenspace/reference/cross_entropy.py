"""Cross entropy of logits against label ids, and its gradient.

    forward    loss = mean over counted positions of  -Σ_v q[v] · log p[v],   p = softmax(logits)
    backward   d_logits[n] = (p[n] - q[n]) / (number of counted positions)

q is 1 at the label; label smoothing ε (Szegedy et al. 2016, section 7) takes ε from it and spreads that
evenly over all rows that can be predicted. M positions are counted: those whose label is not ignored.
"""

from __future__ import annotations

import numpy as np

from tokenspace.errors import ShapeError, TokenIdError, TokenspaceError
from tokenspace.ids import checked_ids
from tokenspace.initializers import Real, Whole, real, whole
from tokenspace.reference.precision import widened
from tokenspace.reference.upstream import FORWARD_FIRST
from tokenspace.shapes import Array, ArrayLike, Float, Int


def log_softmax(logits: Float[Array, "*axes V"]) -> Float[Array, "*axes V"]:
    """logits - log Σ exp(logits), with the largest logit taken out first so that no exponential overflows.

    >>> log_softmax(np.array([1000.0, 1000.0])).round(4)
    array([-0.6931, -0.6931])
    """
    with np.errstate(invalid="ignore"):  # Inf - Inf is NaN, and stays one
        shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


class CrossEntropy:
    """Mean cross entropy over the positions whose label is not ``ignore_index``.

    With nothing to count the loss is 0 and so is the gradient (torch gives NaN, which would end a training
    run over one batch of padding). A logit of -Inf is a row that can't be predicted: smoothing skips it, and
    a label that names it is a ``TokenIdError``.

    >>> loss = CrossEntropy()
    >>> round(loss.forward(np.zeros((2, 4)), [3, -100]), 4)  # ln 4
    1.3863
    >>> loss.backward()
    array([[ 0.25,  0.25,  0.25, -0.75],
           [ 0.  ,  0.  ,  0.  ,  0.  ]])
    """

    def __init__(self, ignore_index: Whole = -100, label_smoothing: Real = 0.0):
        self.ignore_index = whole("ignore_index", ignore_index, None)
        self.label_smoothing = real("label_smoothing", label_smoothing)
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ShapeError(f"label_smoothing must be at least 0 and under 1; found {label_smoothing!r}")
        self._d_logits: np.ndarray | None = None

    def forward(self, logits: ArrayLike, labels: ArrayLike) -> float:
        """The loss of logits (\\*axes, V) for labels (\\*axes).

        ``TokenIdError`` for a label that is neither a row nor ``ignore_index``; ``ShapeError`` if the axes
        differ, or logits have none.
        """
        logits = widened(logits, "the logits")
        if not logits.ndim or not logits.shape[-1]:
            raise ShapeError(f"logits are (*axes, V), one number per row of a table; found {logits.shape}")
        rows = logits.shape[-1]
        labels = _rectangular(labels)
        if labels.shape != logits.shape[:-1]:
            raise ShapeError(
                f"there is one label per position: {logits.shape[:-1]} expected, found {labels.shape}"
            )
        counted = labels != self.ignore_index
        labels = checked_ids(np.where(counted, labels, labels.dtype.type(0)), rows, "label").astype(np.intp)
        log_p = log_softmax(logits[counted])  # (M, V)
        target = self._target(log_p, labels[counted])
        count = max(len(log_p), 1)
        log_likelihood = np.sum(
            target * np.where(log_p == -np.inf, 0.0, log_p), dtype=np.float64
        )  # 0 · log 0 is 0

        self._d_logits = np.zeros_like(logits)
        self._d_logits[counted] = (np.exp(log_p) - target) / count
        return float(0.0 - log_likelihood) / count  # a negated 0 would be -0.0

    def backward(self) -> Float[Array, "*axes V"]:
        """The gradient of the last loss with respect to its logits."""
        if self._d_logits is None:
            raise TokenspaceError(FORWARD_FIRST)
        return self._d_logits

    def _target(self, log_p: Float[Array, "M V"], labels: Int[Array, " M"]) -> Float[Array, "M V"]:
        """q: what the probabilities should be."""
        possible = log_p != -np.inf
        at_label = (np.arange(len(labels)), labels)
        if not possible[at_label].all():
            raise TokenIdError(
                "a label is a row that is masked out of the logits (a frozen padding row?); "
                f"mark such positions with {self.ignore_index}, which the loss ignores"
            )
        target = possible * (self.label_smoothing / possible.sum(axis=1, keepdims=True))
        target[at_label] += 1.0 - self.label_smoothing
        return target.astype(log_p.dtype)


def _rectangular(labels: ArrayLike) -> np.ndarray:
    """``labels`` as an array, before the ignored ones can be told from the others."""
    try:
        return np.asarray(labels)
    except ValueError as error:
        raise TokenIdError(f"labels must form a rectangular array, one per position ({error})") from None
