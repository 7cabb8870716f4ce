"""What every backward asks first: was there a forward, and does the gradient have its output's shape?

NumPy would stretch a gradient of another shape over the one that is meant, and the sums would be wrong
without a word.
"""

from __future__ import annotations

from tokenspace.errors import ShapeError, TokenspaceError
from tokenspace.reference.precision import widened
from tokenspace.shapes import Array, ArrayLike, Float

FORWARD_FIRST = "backward needs a forward to go back through; call forward first"


def checked_gradient(
    upstream_gradient: ArrayLike, output_shape: tuple[int, ...] | None
) -> Float[Array, "*axes"]:
    """``upstream_gradient``, `widened`, for a forward that returned ``output_shape`` (None: there was none).

    ``TokenspaceError`` if there was no forward, ``ShapeError`` if the shapes differ.

    >>> checked_gradient([[1, 2, 3]], (2, 3))
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: the gradient has shape (1, 3), what the forward returned (2, 3); \
they must be equal
    """
    if output_shape is None:
        raise TokenspaceError(FORWARD_FIRST)
    gradient = widened(upstream_gradient, "a gradient")
    if gradient.shape != output_shape:
        raise ShapeError(
            f"the gradient has shape {gradient.shape}, what the forward returned {output_shape}; "
            "they must be equal"
        )
    return gradient
