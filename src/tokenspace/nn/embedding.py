"""The embedding layer as a torch module: a lookup table whose rows are learned.

    forward    x[n] = scale · E[ids[n]]
    backward   dE[v] = scale · sum of d_x[n] over every n with ids[n] = v

V vocabulary rows, D width; ids have any shape, written ``*axes`` (mostly B texts of T positions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from tokenspace.errors import ShapeError
from tokenspace.initializers import Real, Whole, checked_padding_id, real, whole
from tokenspace.nn import attributes, dispatch, ops, row_sums
from tokenspace.nn.arrays import checked_dtype, tensor_of
from tokenspace.nn.attributes import ScaleDtype
from tokenspace.nn.frozen_row import freeze_row, release_row
from tokenspace.nn.ids import check_ids
from tokenspace.nn.initializers import Initializer, initialize_, normal_
from tokenspace.nn.nested import nested_like, packed
from tokenspace.nn.output import checked_output, written
from tokenspace.nn.row_sparse import mark_coalesced
from tokenspace.nn.sharded import distributed_like, is_distributed, own_part
from tokenspace.nn.subclasses import register_checks
from tokenspace.nn.traced import call_of
from tokenspace.table import Table, check_table

PaddingOnLoad = Literal["keep", "zero"]

_BLOCK_ROWS = 65_536  # whose lengths `project_` takes at a time


class TokenEmbedding(torch.nn.Embedding):
    """A ``torch.nn.Embedding``: its attributes and state-dict keys, and what goes wrong by hand put right.

    - ``scale`` multiplies what is looked up: a number, or "sqrt" for sqrt(D) (Vaswani et al. 2017, section
      3.4). ``scale_dtype`` rounds that factor to a type first; "weight" rounds it to whatever type the table
      has at the time, as Gemma does (sqrt(3072) = 55.4256 is 55.5 in bfloat16).
    - ``initializer`` fills the table in place (see ``tokenspace.nn.initializers``; N(0, 1/D) by default), now
      and at every `reset_parameters`; the row ``padding_idx`` is zero afterwards, and gets no gradient from
      the lookup.
    - ``freeze_padding`` holds that row under every optimizer, also where a tied head reads it; see
      ``tokenspace.nn.frozen_row``.
    - ``padding_on_load``: whether a loaded state dict's padding row is kept as it is or set to zero.

    The arguments of ``torch.nn.Embedding`` come first, in its order. ``max_norm``, ``norm_type`` and
    ``scale_grad_by_freq`` take their defaults alone: ``ShapeError`` otherwise, also when they are set later,
    for torch's max_norm edits the table inside the forward, which breaks autograd; call `project_` after the
    optimizer's step instead. ``_weight`` is held uncopied, and nothing is drawn.

    ``TokenIdError`` for a padding index, or later an id, that is out of range: also a negative one, which
    torch would wrap. ``ShapeError`` for an invalid size, scale or option, also in an attribute that is set
    later; see docs/nn.md.

    >>> embedding = TokenEmbedding(6, 4, padding_idx=0, scale="sqrt")
    >>> embedding(torch.tensor([[5, 2, 0]], dtype=torch.uint8)).shape
    torch.Size([1, 3, 4])
    >>> embedding
    TokenEmbedding(6, 4, padding_idx=0, scale=2.0)
    """

    id_name = "token id"
    freeze_padding = False  # until __init__ knows
    scale: Any  # a number; a tensor to train
    _checks: ClassVar[Mapping[str, attributes.Check]] = attributes.CHECKS

    def __init__(
        self,
        num_embeddings: Whole,
        embedding_dim: Whole,
        padding_idx: Whole | None = None,
        max_norm: None = None,
        norm_type: Real = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        scale: Real | Literal["sqrt"] | None = None,
        scale_dtype: ScaleDtype | None = None,
        initializer: Initializer = normal_,
        freeze_padding: bool = False,
        padding_on_load: PaddingOnLoad = "keep",
    ) -> None:
        attributes.check_unsupported(max_norm, norm_type, scale_grad_by_freq)
        rows, width = whole("num_embeddings", num_embeddings, 1), whole("embedding_dim", embedding_dim, 1)
        padding_idx = checked_padding_id(padding_idx, rows)
        checked_dtype(dtype)
        attributes.checked_flag("_freeze", _freeze)
        if _weight is None:
            weight = torch.empty((rows, width), device=device, dtype=dtype)
        else:
            weight = attributes.checked_table(_weight).detach().to(device, dtype)
            if weight.shape != (rows, width):
                raise ShapeError(f"_weight must be ({rows}, {width}); found {tuple(weight.shape)}")
        super().__init__(rows, width, padding_idx, sparse=sparse, _weight=weight, _freeze=_freeze)
        self.scale_dtype = scale_dtype
        self.scale = scale
        self.initializer = initializer
        self.padding_on_load = padding_on_load
        self.freeze_padding = freeze_padding
        if _weight is None:
            self.reset_parameters()

    def __setattr__(self, name: str, value: Any) -> None:
        check = self._checks.get(name)
        if check is not None:
            value = check(self, value)
        was_frozen = name == "freeze_padding" and self.freeze_padding
        weight = self.__dict__.get("_parameters", {}).get("weight")
        if weight is not None and name == "freeze_padding" and value:
            attributes.check_frozen(weight, self.padding_idx, was_frozen)
        super().__setattr__(name, value)
        if name in ("sparse", "padding_idx", "freeze_padding"):
            if was_frozen and not value and weight is not None:
                release_row(weight)
            self._settle_weight()
        elif name == "scale_dtype" and "scale" in self.__dict__:
            self.scale = self.scale  # rounded anew

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: Whole | None = None,
        max_norm: None = None,
        norm_type: Real = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        initializer: Initializer = normal_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> TokenEmbedding:
        """Hold an existing (V, D) tensor, its padding row as it is; uncopied, unless device or dtype differ.

        As in torch, the rows are not trained unless ``freeze=False``; ``options`` are the constructor's. The
        ``initializer`` is for later: `reset_parameters` and `add_rows`. ``ShapeError`` for a size among the
        options, which the tensor has already.

        >>> TokenEmbedding.from_pretrained(torch.eye(3), scale=2.0)(torch.tensor([1]))
        tensor([[0., 2., 0.]])
        """
        attributes.check_unsupported(max_norm, norm_type, scale_grad_by_freq)
        set_by_it = dict.fromkeys(("num_embeddings", "embedding_dim", "_weight"), "the tensor")
        attributes.checked_flag("freeze", freeze)
        attributes.check_options("from_pretrained", cls, options, {**set_by_it, "_freeze": "freeze"})
        rows, width = attributes.checked_table(embeddings).shape
        self = cls(
            rows, width, padding_idx=padding_idx, initializer=_nothing, device="meta", dtype=dtype, **options
        )
        self.initializer, self.sparse = initializer, sparse
        self.weight = Parameter(embeddings.detach().to(device, dtype), requires_grad=not freeze)
        return self

    @classmethod
    def from_table(
        cls, table: Table, dtype: torch.dtype | None = None, freeze: bool = False, **options: Any
    ) -> TokenEmbedding:
        """A copy of a ``Table``'s rows, in their own dtype if none is given, trained unless ``freeze=True``.

        ``options`` are the constructor's. Where the vocabularies differ,
        ``initializers.from_pretrained_`` copies the rows that match.
        ``ShapeError`` for anything but a ``Table``.
        """
        check_table(table)
        if "embeddings" in options:
            raise ShapeError("from_table takes embeddings from the table; leave it out")
        return cls.from_pretrained(tensor_of(table.weight, dtype), freeze, **options)

    def forward(self, ids: Tensor, out: Tensor | None = None) -> Tensor:
        """The rows (\\*axes, D) of integer ids (\\*axes), scaled; ``TokenIdError`` if one is no row's.

        ``out``, a contiguous tensor like the result, is written and returned; only where no gradient is
        needed. ``ShapeError`` for one that doesn't fit.
        """
        weight: Any = self._parameters.get("weight")
        sparse = self.sparse
        if out is None and dispatch.torch_looks_up(weight, ids, self.embedding_dim, sparse=sparse):
            padding = -1 if self.padding_idx is None else self.padding_idx
            try:
                if dispatch.kernels_sum(weight, sparse) and not isinstance(self.scale, Tensor):
                    return row_sums.lookup(weight, ids, padding, self.factor, sparse)
                x = torch.embedding(weight, ids, padding, False, sparse)
                return x if self.scale is None else x.mul_(self.factor)  # type: ignore[arg-type]
            except (IndexError, RuntimeError):
                pass  # what follows says what is wrong, or takes ids of other types
        if any(not isinstance(each, Tensor) and isinstance(each, torch.fx.Proxy) for each in (ids, out)):
            return self._traced(ids, out)
        if isinstance(ids, Tensor) and ids.is_nested:
            if out is not None:
                raise ShapeError("out goes with plain ids; leave it out for a nested tensor of ids")
            return nested_like(TokenEmbedding.forward(self, packed(ids)), ids)
        rows = self.rows_for(ids)
        if isinstance(ids, Tensor) and self.has_plain_numbers and dispatch.on_kernels([rows.table], [ids]):
            if out is not None:
                shape = (*ids.shape, rows.table.shape[1])
                sources = (rows.table, ids)
                checked_output(out, shape, rows.table.dtype, sources, rows.table.requires_grad)
            return ops.embed([rows], self.factor, sparse=self.sparse, out=out)
        ids = check_ids(ids, self.weight.shape[0], self.id_name)
        self._catch_up()
        x = F.embedding(ids, self.weight, self.padding_idx, sparse=self.sparse)
        factor = self.factor
        if factor is not None:
            x = x * factor
        return x if out is None else written(x, out, (self.weight,))

    def _traced(self, ids: Any, out: Any) -> Any:
        """Return a node of a ``torch.fx`` graph: a call of this module, or of what its forward calls."""
        tracer = (ids if isinstance(ids, torch.fx.Proxy) else out).tracer
        if self is not getattr(tracer, "root", None):
            return call_of(self, ids, **({} if out is None else {"out": out}))
        x = F.embedding(ids, self.weight, self.padding_idx, sparse=self.sparse)
        arguments = (x, self.weight, self.scale, self.scale_dtype == "weight", out)
        return tracer.create_proxy("call_function", _finished, arguments, {})

    def rows_for(self, ids: Tensor) -> ops.Rows:
        """This table and what belongs to a lookup in it, for ``tokenspace.nn.ops``."""
        padding = -1 if self.padding_idx is None else self.padding_idx
        return ops.Rows(self.weight, ids, padding, self.id_name)

    @property
    def has_plain_numbers(self) -> bool:
        """Whether the table is a plain matrix and the scale a number, no tensor put there to train it."""
        weight: Any = self._parameters.get("weight")
        if weight is None:  # a parametrization computes it
            weight = self.weight
        plain = type(weight) in dispatch.PLAIN or torch.compiler.is_compiling()
        return plain and weight.ndim == 2 and (self.scale is None or not isinstance(self.scale, Tensor))

    @property
    def factor(self) -> float | None:
        """What rows are multiplied by: ``scale``, rounded to the table's type where that was asked for."""
        return _factor(self.scale, self.scale_dtype == "weight", self.weight)

    @property
    def embed_scale(self) -> float | None:
        """`factor`, under the name that transformers gave it: PEFT's adapters scale their rows by it."""
        return self.factor

    def reset_parameters(self) -> None:
        """Draw the table anew; the padding row is zero afterwards, whatever the initializer made of it."""
        self._catch_up()  # or steps that were postponed would move the new rows
        with torch.no_grad():
            initialize_(self.weight, self.initializer)
            self.zero_padding_row()

    def zero_padding_row(self) -> None:
        """Set the padding row to zero, if there is one."""
        if self.padding_idx is not None:
            self._catch_up()
            with torch.no_grad():
                part, place = own_part(self.weight, self.padding_idx)
                if place is not None:
                    part[place] = 0.0

    def project_(self, max_norm: Real, ids: Tensor | None = None) -> TokenEmbedding:
        """Shorten every row longer than ``max_norm`` (Euclidean) to that length; call it after a step.

        With ``ids``, only their rows are looked at. A row that is short enough keeps its bits. Lengths are
        taken in float32 at least, and no square overflows or vanishes on the way.

        >>> embedding = TokenEmbedding.from_pretrained(torch.tensor([[3.0, 4.0], [0.3, 0.4]]))
        >>> embedding.project_(1.0).weight
        Parameter containing:
        tensor([[0.6000, 0.8000],
                [0.3000, 0.4000]])
        """
        max_norm = real("max_norm", max_norm, positive=True)
        with torch.no_grad():
            if ids is None:
                self._catch_up()
                plain = type(self.weight) is Parameter
                for block in self.weight.split(_BLOCK_ROWS) if plain else (self.weight,):
                    block.copy_(_shortened(block, max_norm))
            else:
                ids = packed(ids) if isinstance(ids, Tensor) and ids.is_nested else ids
                used = check_ids(ids, len(self.weight), self.id_name).unique().long()
                self._catch_up(used)
                if is_distributed(self.weight):  # no distributed index_copy_
                    chosen = torch.zeros(len(self.weight), 1, dtype=torch.bool, device=used.device)
                    chosen = distributed_like(chosen.index_fill_(0, used, True), self.weight)
                    shortened = _shortened(self.weight, max_norm)
                    self.weight.copy_(torch.where(chosen, shortened, self.weight))
                    return self
                rows = F.embedding(used, self.weight)  # weight[used] would wrap what a device holds
                self.weight.index_copy_(0, used, _shortened(rows, max_norm))
        return self

    def add_rows(self, n: Whole, init: Tensor | Callable[[Tensor], object] | None = None) -> range:
        """Append ``n`` rows and return their ids; the rows that were there keep theirs, bit for bit.

        ``init``: the new rows (n, D), or an initializer, the module's own if left out; either way they get
        the table's dtype and device. ``weight`` is then a new ``Parameter`` with the old one's
        ``requires_grad`` and no gradient. A tied ``LMHead`` follows; an optimizer made before still holds the
        old one: make it afterwards, or put the new one in its place (docs/nn.md shows how, moments kept).

        >>> embedding = TokenEmbedding(4, 2)
        >>> embedding.add_rows(2, torch.ones(2, 2))
        range(4, 6)
        >>> embedding(torch.tensor([5])).detach()
        tensor([[1., 1.]])
        """
        n, old = whole("n", n, 1), len(self.weight)
        if is_distributed(self.weight):
            raise ShapeError(
                "the rows of this table are shared by several processes (DTensor), which can't add any; call "
                "add_rows before fully_shard, parallelize_module or distribute_module"
            )
        self._catch_up()
        weight = torch.empty(
            (old + n, self.embedding_dim), dtype=self.weight.dtype, device=self.weight.device
        )
        with torch.no_grad():
            if isinstance(init, Tensor):
                if tuple(init.shape) != (n, self.embedding_dim):
                    raise ShapeError(
                        f"{n:,} new rows are ({n}, {self.embedding_dim}); found {tuple(init.shape)}"
                    )
                weight[old:] = init
            else:  # drawn as part of the whole table: Xavier's spread depends on all its rows
                initialize_(weight, self.initializer if init is None else init)
            weight[:old] = self.weight
        self.weight = Parameter(weight, requires_grad=self.weight.requires_grad)
        self.num_embeddings = old + n
        return range(old, old + n)

    def extra_repr(self) -> str:
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        defaults = {"padding_idx": None, "scale": None, "scale_dtype": None, "freeze_padding": False}
        for name, default in {**defaults, "sparse": False}.items():
            if (value := getattr(self, name)) != default:
                shown.append(f"{name}={value}")
        return ", ".join(shown)

    # Whatever puts another Parameter in place of ``weight`` comes through one of these.

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        if name == "weight" and param is not None and self.freeze_padding:
            attributes.check_frozen(param, self.padding_idx, param is self._parameters.get("weight"))
        super().register_parameter(name, param)  # assignment, load_state_dict(assign=True)
        self._settle_weight()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TokenEmbedding:
        self._catch_up()
        super()._apply(fn, recurse)  # to, half, to_empty
        self._settle_weight()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # deepcopy, unpickling
        self._settle_weight()

    def __getstate__(self) -> dict[str, Any]:
        self._catch_up()  # deepcopy, pickling
        return super().__getstate__()

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        self._catch_up()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _catch_up(self, ids: Tensor | None = None) -> None:
        """Have postponed steps of all rows (or these) done, before anything but a lookup uses them."""
        weight = self._parameters.get("weight")
        if weight is not None:
            ops.catch_up(weight, ids)

    def _settle_weight(self) -> None:
        weight = self._parameters.get("weight")
        if weight is None:
            return
        if type(weight) is not Parameter:  # compiled code can't register the checks of a sharded table
            register_checks()
        if getattr(self, "sparse", False):  # not there yet when torch's constructor puts the weight in
            mark_coalesced(weight)
        if self.freeze_padding and self.padding_idx is not None:
            freeze_row(weight, self.padding_idx)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any, **more: Any) -> None:
        self._catch_up()
        key = f"{prefix}weight"
        if self.padding_on_load == "zero" and self.padding_idx is not None and key in state_dict:
            loaded = state_dict[key].detach().clone()  # the caller's own tensor stays as it is
            if loaded.ndim == 2 and self.padding_idx < len(loaded):  # what does not fit, torch reports
                part, place = own_part(loaded, self.padding_idx)
                if place is not None:
                    part[place] = 0.0
            state_dict[key] = loaded
        super()._load_from_state_dict(state_dict, prefix, *rest, **more)


def _factor(scale: Any, as_weight: bool, weight: Tensor) -> Any:
    """Return ``scale``; a number is rounded to the type of ``weight`` where that was asked for."""
    is_number = scale is not None and not isinstance(scale, Tensor)
    return _rounded(scale, weight.dtype) if as_weight and is_number else scale


def _finished(x: Tensor, weight: Tensor, scale: Any, as_weight: bool, out: Tensor | None) -> Tensor:
    """Scale rows that were looked up, and write them to ``out`` if there is one: a node of a graph."""
    factor = _factor(scale, as_weight, weight)
    x = x if factor is None else x * factor
    return x if out is None else written(x, out, (weight,))


def _rounded(value: float, dtype: torch.dtype) -> float:
    """``value`` as torch would round it to ``dtype``, through float32; in arithmetic that compiles."""
    for kind in (torch.float32, dtype) if dtype != torch.float64 else ():
        info = torch.finfo(kind)
        step = info.eps * max(math.ldexp(0.5, math.frexp(value)[1]), info.tiny)
        value = round(value / step) * step
    return value if abs(value) <= torch.finfo(dtype).max else math.copysign(math.inf, value)


def _nothing(weight: Tensor) -> None:
    """The initializer of a table that is about to be replaced."""


def _shortened(rows: Tensor, max_norm: float) -> Tensor:
    """Rows (U, D), those longer than ``max_norm`` scaled to it; zero rows and NaN stay.

    Each row is divided by its largest number first, so that its squares stay in range.
    """
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    largest = torch.linalg.vector_norm(wide, math.inf, dim=1, keepdim=True)
    unit = torch.where(largest.isfinite() & (largest > 0), largest, 1.0)
    scaled = wide / unit
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return torch.where(lengths > max_norm / unit, (scaled * (max_norm / lengths)).to(rows.dtype), rows)
