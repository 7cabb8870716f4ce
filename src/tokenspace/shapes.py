"""The axis letters, and the types that carry them in signatures.

======  =========================================
letter  axis
======  =========================================
``B``   batch: texts
``T``   positions in a text
``N``   B·T flattened
``V``   rows of the table: the vocabulary
``D``   width: numbers in a row
``U``   distinct ids in a batch
``K``   negatives drawn for a pair, or results kept
======  =========================================

``Float[Array, "V D"]`` in a signature is read by people and, in the tests, checked at every call by jaxtyping
and beartype (they are loaded first there). Nobody else pays: with jaxtyping not loaded these names are empty,
and ``from __future__ import annotations`` keeps the annotations text.

A parameter that a function checks itself, with an error of ours, is annotated with what it takes in
(``ArrayLike``), not with what it lets through.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or "jaxtyping" in sys.modules:
    from jaxtyping import Float
    from jaxtyping import Integer as Int  # signed or not
    from numpy import ndarray as Array
else:
    Array = Float = Int = None

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
else:
    ArrayLike = Any

__all__ = ["Array", "ArrayLike", "Float", "Int"]
