"""The LM head: hidden states become a score for every token.

    forward    logits = cap · tanh(s / cap),   s = logit_scale · (hidden_scale · h Eᵀ + b)
    backward   d_s = d_logits · (1 - (logits / cap)²)
               dh = logit_scale · hidden_scale · d_s E
               dE = logit_scale · hidden_scale · Σ d_sᵀ h     db = logit_scale · Σ d_s

Tied (Press and Wolf 2017), E is the input embedding itself, so that table has two gradients, and they add:

    total = (sum over the positions where the token was read) + (sum over the positions where it was scored)
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tokenspace.errors import ShapeError, TokenspaceError
from tokenspace.initializers import Real, Whole, real
from tokenspace.reference.cross_entropy import CrossEntropy
from tokenspace.reference.embedding import Embedding
from tokenspace.reference.precision import checked_parameter, widened
from tokenspace.reference.upstream import FORWARD_FIRST, checked_gradient
from tokenspace.shapes import Array, ArrayLike, Float


class LMHead:
    """Scores against the rows of ``embedding``: the input's own (tied), or another (`untied`).

    The embedding's input ``scale`` plays no part. ``hidden_scale`` multiplies the hidden states, "rsqrt"
    being D^-1/2 (T5); ``logit_scale`` multiplies the logits (Cohere; Granite divides); ``soft_cap`` bends
    them into ±soft_cap (Gemma 2: 30). Where the embedding has ``freeze_padding``, the padding token's logit
    is -Inf. ``embedding.gradient`` and ``bias_gradient`` add up until `zero_gradient`. ``ShapeError`` for a
    bias of another length, a scale that is no finite number, or a cap that is not positive.

    >>> embedding = Embedding.from_weight(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> head = LMHead(embedding)
    >>> head.forward([[2.0, 3.0]])
    array([[2., 3., 5.]])
    >>> round(head.loss([[2.0, 3.0]], [2]), 4)
    0.1698
    >>> head.backward().round(3)
    array([[-0.114, -0.042]])
    >>> embedding.gradient.round(3)  # the same table's gradient: every row takes part
    array([[ 0.084,  0.126],
           [ 0.228,  0.343],
           [-0.312, -0.469]])
    """

    def __init__(
        self,
        embedding: Embedding,
        *,
        bias: ArrayLike | None = None,
        hidden_scale: Real | Literal["rsqrt"] = 1.0,
        logit_scale: Real = 1.0,
        soft_cap: Real | None = None,
    ):
        self.embedding = embedding
        self.bias = None if bias is None else checked_parameter(bias, "a bias", "V")
        if self.bias is not None and self.bias.shape != (embedding.vocabulary_size,):
            raise ShapeError(
                f"the bias has one number per row, {embedding.vocabulary_size:,}; found {self.bias.shape}"
            )
        if isinstance(hidden_scale, str):
            if hidden_scale != "rsqrt":
                raise ShapeError(f"hidden_scale must be a number or 'rsqrt'; found {hidden_scale!r}")
            hidden_scale = embedding.embedding_dimension**-0.5
        self.hidden_scale = real("hidden_scale", hidden_scale)
        self.logit_scale = real("logit_scale", logit_scale)
        self.soft_cap = None if soft_cap is None else real("soft_cap", soft_cap, positive=True)
        self.bias_gradient: np.ndarray | None = None
        self._hidden: np.ndarray | None = None
        self._cross_entropy: CrossEntropy | None = None

    @classmethod
    def untied(
        cls,
        weight: ArrayLike,
        *,
        bias: ArrayLike | None = None,
        hidden_scale: Real | Literal["rsqrt"] = 1.0,
        logit_scale: Real = 1.0,
        soft_cap: Real | None = None,
    ) -> LMHead:
        """A head with a (V, D) table of its own; its gradient is ``head.embedding.gradient``."""
        embedding = Embedding.from_weight(weight)
        return cls(
            embedding, bias=bias, hidden_scale=hidden_scale, logit_scale=logit_scale, soft_cap=soft_cap
        )

    @property
    def weight(self) -> Float[Array, "V D"]:
        """The embedding's table: always that one, so nothing can untie a tied head."""
        return self.embedding.weight

    def forward(self, hidden: ArrayLike) -> Float[Array, "*axes V"]:
        """Logits for hidden states (\\*axes, D); ``ShapeError`` unless they are D wide."""
        hidden = widened(hidden)
        if hidden.shape[-1:] != self.weight.shape[1:]:
            raise ShapeError(
                f"this head takes hidden states of width {self.weight.shape[1]:,}; found shape {hidden.shape}"
            )
        self._hidden = hidden
        self._cross_entropy = None
        logits = self.hidden_scale * hidden @ widened(self.weight).T
        if self.bias is not None:
            logits = logits + widened(self.bias)
        logits = logits * self.logit_scale
        if self.soft_cap is not None:
            logits = self.soft_cap * np.tanh(logits / self.soft_cap)
            self._slope = 1.0 - (logits / self.soft_cap) ** 2
        if self.embedding.freeze_padding:
            logits[..., self.embedding.padding_id] = -np.inf
        return logits

    def backward(self, upstream_gradient: ArrayLike | None = None) -> Float[Array, "*axes D"]:
        """The hidden states' gradient; the table's part is added to ``embedding.gradient``.

        ``upstream_gradient`` (\\*axes, V) is the gradient of the logits. Left out, it is that of the `loss`
        just computed.
        """
        if self._hidden is None:
            raise TokenspaceError(FORWARD_FIRST)
        if upstream_gradient is None:
            if self._cross_entropy is None:
                raise TokenspaceError(
                    "backward needs the logits' gradient; without one, call loss(...) first"
                )
            upstream_gradient = self._cross_entropy.backward()
        d_logits = checked_gradient(upstream_gradient, (*self._hidden.shape[:-1], len(self.weight)))
        if self.soft_cap is not None:
            d_logits = d_logits * self._slope
        if self.embedding.freeze_padding:
            d_logits = d_logits.copy()
            d_logits[..., self.embedding.padding_id] = 0.0
        d_scores = d_logits * self.logit_scale
        flat = d_scores.reshape(-1, d_scores.shape[-1])
        self._add_bias_gradient(flat.sum(axis=0))
        self.embedding.add_gradient(
            self.hidden_scale * flat.T @ self._hidden.reshape(-1, self.weight.shape[1])
        )
        return self.hidden_scale * d_scores @ widened(self.weight)

    def loss(
        self,
        hidden: ArrayLike,
        labels: ArrayLike,
        ignore_index: Whole = -100,
        label_smoothing: Real = 0.0,
    ) -> float:
        """Mean cross entropy of ``labels`` (\\*axes); 0 if every label is ``ignore_index``."""
        logits = self.forward(hidden)
        self._cross_entropy = CrossEntropy(ignore_index, label_smoothing)
        return self._cross_entropy.forward(logits, labels)

    def _add_bias_gradient(self, d_bias: np.ndarray) -> None:
        if self.bias is not None:
            self.bias_gradient = d_bias if self.bias_gradient is None else self.bias_gradient + d_bias

    def zero_gradient(self) -> None:
        """Forget the gradients, the embedding's too."""
        self.embedding.zero_gradient()
        self.bias_gradient = None

    def parameters(self) -> dict[str, np.ndarray]:
        """The arrays that training changes, by name; a tied head's ``weight`` is the embedding's."""
        return {"weight": self.weight} if self.bias is None else {"weight": self.weight, "bias": self.bias}

    def gradients(self) -> dict[str, np.ndarray]:
        """Their gradients, under the same names; empty before a backward."""
        gradients = self.embedding.gradients()
        return gradients if self.bias_gradient is None else {**gradients, "bias": self.bias_gradient}
