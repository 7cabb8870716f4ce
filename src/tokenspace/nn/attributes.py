"""Values that the attributes of a ``TokenEmbedding`` may have: in the constructor, and when set later.

Those of ``torch.nn.Embedding`` that can't be honored are refused, for torch's own module reads them at each
forward, and code written for it may set them at any time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokenspace.errors import ShapeError
from tokenspace.initializers import Real, checked_padding_id, real, whole
from tokenspace.nn.frozen_row import row_held
from tokenspace.reference.embedding import scale_factor

ScaleDtype = torch.dtype | Literal["weight"]
Check = Callable[[Any, Any], Any]
"""(module, value) -> the value to keep; ``ShapeError`` or ``TokenIdError`` for an invalid one."""


def check_unsupported(max_norm: Any, norm_type: Any, scale_grad_by_freq: Any) -> None:
    """Raise ``ShapeError`` unless these options of ``torch.nn.Embedding`` have their default values.

    >>> check_unsupported(None, 2.0, True)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: scale_grad_by_freq=True is not supported: the gradient of a row is the sum \
over its positions; leave it out, or divide weight.grad by the counts of the batch's ids
    """
    for name, value in (
        ("max_norm", max_norm),
        ("norm_type", norm_type),
        ("scale_grad_by_freq", scale_grad_by_freq),
    ):
        CHECKS[name](None, value)


def _max_norm(module: Any, value: Any) -> None:
    if value is not None:
        raise ShapeError(
            f"max_norm={value!r} would change rows inside the forward, after a tied head or another "
            "forward has read them; call project_(max_norm) after each optimizer step"
        )


def _norm_type(module: Any, value: Any) -> float:
    if isinstance(value, bool) or value != 2:
        raise ShapeError(
            f"norm_type={value!r} is not supported: it belongs to max_norm, and project_(max_norm) takes "
            "Euclidean lengths; leave it out (2.0)"
        )
    return 2.0


def _scale_grad_by_freq(module: Any, value: Any) -> bool:
    if value is not False:
        raise ShapeError(
            f"scale_grad_by_freq={value!r} is not supported: the gradient of a row is the sum over its "
            "positions; leave it out, or divide weight.grad by the counts of the batch's ids"
        )
    return False


def checked_flag(name: str, value: Any) -> bool:
    """``value`` itself; ``ShapeError`` unless it is True or False."""
    if not isinstance(value, bool):
        raise ShapeError(f"{name} must be True or False; found {value!r}")
    return value


def _flag(name: str) -> Check:
    return lambda module, value: checked_flag(name, value)


def _size(name: str, axis: int, instead: str) -> Check:
    def check(module: Any, value: Any) -> int:
        size, weight = whole(name, value, 1), module._parameters.get("weight")
        if weight is not None and weight.ndim == 2 and weight.shape[axis] != size:
            raise ShapeError(
                f"{name} is {weight.shape[axis]:,}, as the table has it; found {size:,}. {instead}"
            )
        return size

    return check


def rows_of(module: Any) -> int:
    """Return the number of rows of the table, also before it is there."""
    weight = module._parameters.get("weight")
    return len(weight) if weight is not None and weight.ndim == 2 else module.num_embeddings


def _padding_idx(module: Any, value: Any) -> int | None:
    row = checked_padding_id(value, rows_of(module))
    if row is None and module.freeze_padding:
        raise ShapeError("freeze_padding=True needs the padding_idx whose row it freezes")
    return row


def _freeze_padding(module: Any, value: Any) -> bool:
    if _flag("freeze_padding")(module, value) and module.padding_idx is None:
        raise ShapeError("freeze_padding=True needs the padding_idx whose row it freezes")
    return bool(value)


def _padding_on_load(module: Any, value: Any) -> str:
    if value not in ("keep", "zero"):
        raise ShapeError(f"padding_on_load must be 'keep' or 'zero'; found {value!r}")
    return str(value)


def _initializer(module: Any, value: Any) -> Any:
    if not callable(value):
        raise ShapeError(f"an initializer is a function that fills a tensor in place; found {value!r}")
    return value


def _scale_dtype(module: Any, value: Any) -> Any:
    if value is None or value == "weight" or (isinstance(value, torch.dtype) and value.is_floating_point):
        return value
    raise ShapeError(f"scale_dtype must be a floating-point torch.dtype, or 'weight'; found {value!r}")


def _scale(module: Any, value: Real | Literal["sqrt"] | Tensor | None) -> float | Tensor | None:
    if value is None or isinstance(value, Tensor):  # a tensor to train
        return value
    factor, dtype = scale_factor(value, module.embedding_dim), module.scale_dtype
    if dtype is None or dtype == "weight":
        return factor
    return real(f"scale in {dtype}", torch.tensor(factor, dtype=torch.float64).to(dtype).item())


def check_frozen(weight: Tensor, row: int | None, is_own: bool) -> None:
    """Raise ``ShapeError`` unless ``weight`` has the row, and no other module holds another row of it.

    ``is_own``: the row that is held already is the calling module's.
    """
    if weight.ndim == 2 and row is not None and row >= len(weight):
        raise ShapeError(
            f"the frozen padding_idx is {row:,}, and this table has {len(weight):,} rows; set freeze_padding "
            "to False or padding_idx to one of its rows first"
        )
    held = None if is_own else row_held(weight)
    if held is not None and held != row:
        raise ShapeError(
            f"row {held:,} of this table is frozen already, by another module that shares it, and only one "
            f"row can be; found padding_idx {row}. Give both modules one padding_idx, or a table each"
        )


CHECKS: Mapping[str, Check] = {
    "num_embeddings": _size("num_embeddings", 0, "add_rows(n) appends rows"),
    "embedding_dim": _size("embedding_dim", 1, "Make a new module for another width"),
    "padding_idx": _padding_idx,
    "max_norm": _max_norm,
    "norm_type": _norm_type,
    "scale_grad_by_freq": _scale_grad_by_freq,
    "sparse": _flag("sparse"),
    "freeze_padding": _freeze_padding,
    "padding_on_load": _padding_on_load,
    "initializer": _initializer,
    "scale_dtype": _scale_dtype,
    "scale": _scale,
}
"""The check of each attribute, by name."""


def checked_table(weight: Any) -> Tensor:
    """``weight`` itself; ``ShapeError`` unless it is a tensor (V, D) of floats with at least one row."""
    if not isinstance(weight, Tensor):
        raise ShapeError(
            f"a table is a tensor (V, D) of floats; found {type(weight).__name__}: torch.as_tensor(...) "
            "makes one"
        )
    if weight.ndim != 2 or not weight.is_floating_point() or not weight.numel():
        raise ShapeError(
            f"a table is (V, D), at least one row of floats; found {tuple(weight.shape)}, {weight.dtype}"
        )
    return weight


def check_options(
    made_by: str, kind: type[nn.Module], options: Mapping[str, Any], set_by_it: Mapping[str, str]
) -> None:
    """Check the options that a classmethod hands to the constructor of ``kind``.

    ``ShapeError`` for one that the classmethod sets itself (``set_by_it`` says from what), ``TypeError``, as
    Python has it, for one that the constructor does not take.
    """
    for name in options:
        if name in set_by_it:
            raise ShapeError(f"{made_by} takes {name} from {set_by_it[name]}; leave it out")
    parameters = inspect.signature(kind).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return  # a subclass's own
    known = [name for name in parameters if name not in set_by_it]
    for name in options:
        if name not in known:
            raise TypeError(
                f"{made_by}() got an unexpected keyword argument {name!r}; {kind.__name__} has the options "
                f"{', '.join(known)}"
            )
