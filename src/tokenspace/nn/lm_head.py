"""The LM head in torch: hidden states become a score for every token.

    logits = cap · tanh(s / cap),   s = logit_scale · (hidden_scale · h Eᵀ + b)

Tied (Press and Wolf 2017), the head has no table: its ``weight`` is the embedding's, looked up at each use.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokenspace import reference
from tokenspace.errors import CheckpointError, ShapeError
from tokenspace.initializers import Real, Whole, real
from tokenspace.models.open import open_checkpoint
from tokenspace.nn import ops
from tokenspace.nn.arrays import checked_dtype, tensor_of
from tokenspace.nn.attributes import checked_flag
from tokenspace.nn.embedding import TokenEmbedding
from tokenspace.nn.ids import check_labels
from tokenspace.nn.initializers import Initializer, initialize_, normal_
from tokenspace.nn.loss import Terms, chunked_summed_loss, summed_loss, without_autocast, without_row
from tokenspace.nn.nested import axes_of, nested_like, packed
from tokenspace.nn.sharded import without_partial
from tokenspace.nn.traced import call_of
from tokenspace.reference.recipes import head_from_checkpoint


class LMHead(nn.Module):
    """Scores against the rows of ``embedding``: tied to it for good. `untied` makes a head with its own rows.

    The reference to the embedding is not registered, so the table has one name in a state dict and is counted
    once in ``parameters()``; and as nothing is copied, nothing unties it: not ``to``, ``to_empty``,
    ``deepcopy``, pickling, nor ``load_state_dict(assign=True)``. Copy, pickle or compile the model that holds
    both. A state dict that has the head's own ``weight`` too is loaded if that equals the embedding's, and
    refused (``RuntimeError``, as torch refuses) if it doesn't.

    ``bias`` adds one number a row, zero at first. ``hidden_scale`` multiplies the hidden states, "rsqrt"
    being D^-1/2 (T5); ``logit_scale`` the logits (Cohere; Granite divides); ``soft_cap`` bends them into
    ±soft_cap (Gemma 2: 30). The embedding's input ``scale`` plays no part; its ``freeze_padding`` makes the
    padding token's logit -Inf. ``ShapeError`` for a scale that is no finite number, or a cap that is not
    positive.

    >>> embedding = TokenEmbedding(3, 2)
    >>> head = LMHead(embedding)
    >>> head.weight is embedding.weight, list(head.parameters())
    (True, [])
    >>> with torch.no_grad():
    ...     _ = embedding.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    ...     print(head(torch.tensor([[2.0, 3.0]])))
    ...     print(head.loss(torch.tensor([[2.0, 3.0]]), torch.tensor([2])))
    tensor([[2., 3., 5.]])
    tensor(0.1698)
    """

    bias: nn.Parameter | None
    hidden_scale: Any  # numbers; tensors to train
    logit_scale: Any
    soft_cap: Any
    _tied: tuple[nn.Embedding] | None  # in a tuple, torch registers no submodule
    _claim: tuple[weakref.ref[Tensor], list[str], str] | None
    _asks: _AskHead | None
    _initializer: Initializer

    def __init__(
        self,
        embedding: nn.Embedding,
        *,
        bias: bool = False,
        hidden_scale: Real | Literal["rsqrt"] = 1.0,
        logit_scale: Real = 1.0,
        soft_cap: Real | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(embedding, nn.Embedding):
            raise ShapeError(
                f"a head is tied to a TokenEmbedding or torch.nn.Embedding, found "
                f"{type(embedding).__name__}; LMHead.untied(rows, width) makes one with a table of its own"
            )
        self._tied, self._claim, self._asks = (embedding,), None, None
        self._settle(embedding.weight, bias, hidden_scale, logit_scale, soft_cap)

    @classmethod
    def untied(
        cls,
        num_embeddings: int,
        embedding_dim: int,
        *,
        bias: bool = False,
        hidden_scale: Real | Literal["rsqrt"] = 1.0,
        logit_scale: Real = 1.0,
        soft_cap: Real | None = None,
        initializer: Initializer = normal_,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> LMHead:
        """A head with a (V, D) table of its own, drawn by ``initializer``; ``weight`` in its state dict.

        >>> LMHead.untied(10, 4, bias=True)
        LMHead(10, 4, untied, bias=True)
        """
        table = TokenEmbedding(
            num_embeddings, embedding_dim, initializer=initializer, device=device, dtype=dtype
        )
        head = cls.__new__(cls)
        nn.Module.__init__(head)
        head._tied = head._claim = head._asks = None
        head._initializer = initializer
        head.register_parameter("weight", cast(nn.Parameter, table.weight))
        head._settle(table.weight, bias, hidden_scale, logit_scale, soft_cap)
        return head

    @classmethod
    def from_checkpoint(
        cls,
        folder: str | os.PathLike[str],
        embedding: nn.Embedding | None = None,
        dtype: torch.dtype | None = None,
    ) -> LMHead:
        """The head of a model of a known family: its bias, scales and soft-cap, tied or not as its files say.

        A tied one is tied to ``embedding``: the ``token`` of ``TransformerInput.from_checkpoint(folder)``.
        Where none is given, or the files hold a table for the head, it has rows of its own, in their own
        dtype if none is given. ``CheckpointError`` if ``embedding`` has another shape than the files' table;
        ``ShapeError`` if it has another type than ``dtype``, which a tied head can't choose; others as for
        ``reference.recipes.head_from_checkpoint``.
        """
        checkpoint = open_checkpoint(folder)
        twin = head_from_checkpoint(checkpoint)
        checked_dtype(dtype)
        head: LMHead
        if embedding is not None and checkpoint.head is None:
            if tuple(embedding.weight.shape) != twin.weight.shape:
                raise CheckpointError(
                    f"{folder}: the head is tied to a table {twin.weight.shape}, and the embedding given is "
                    f"{tuple(embedding.weight.shape)}; take TransformerInput.from_checkpoint(folder).token"
                )
            if dtype not in (None, embedding.weight.dtype):
                raise ShapeError(
                    f"the head is tied to rows of {embedding.weight.dtype}, and dtype is {dtype}; a tied "
                    "head has its embedding's: convert that, or leave dtype out"
                )
            head = cls(embedding, bias=twin.bias is not None, **_settings(twin))
        else:
            rows = tensor_of(twin.weight, dtype)
            head = cls.untied(*rows.shape, bias=twin.bias is not None, device="meta", **_settings(twin))
            head.register_parameter("weight", nn.Parameter(rows))
        if twin.bias is not None:
            head.bias = nn.Parameter(tensor_of(twin.bias, head.weight.dtype).to(head.weight.device))
        return head

    def _settle(
        self,
        weight: Tensor,
        bias: bool,
        hidden_scale: Real | Literal["rsqrt"],
        logit_scale: Real,
        soft_cap: Real | None,
    ) -> None:
        rows = len(weight)
        checked_flag("bias", bias)
        self.hidden_scale = hidden_scale
        self.logit_scale = logit_scale
        self.soft_cap = soft_cap
        zeros = torch.zeros(rows, device=weight.device, dtype=weight.dtype) if bias else None
        self.register_parameter("bias", None if zeros is None else nn.Parameter(zeros))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("hidden_scale", "logit_scale", "soft_cap") and not isinstance(value, Tensor):
            value = self._checked_setting(name, value)
        elif name == "weight" and self._tied is not None:
            if value is self._tied[0].weight:
                return
            raise ShapeError(
                "a tied head has no weight of its own; set the embedding's, or make LMHead.untied(...)"
            )
        super().__setattr__(name, value)

    def _checked_setting(self, name: str, value: Any) -> float | None:
        if name == "soft_cap":
            return None if value is None else real(name, value, positive=True)
        if name == "hidden_scale" and isinstance(value, str):
            if value != "rsqrt":
                raise ShapeError(f"hidden_scale must be a number or 'rsqrt'; found {value!r}")
            return float(self.weight.shape[1]) ** -0.5
        return real(name, value)

    @property
    def weight(self) -> nn.Parameter:
        """The (V, D) table: the embedding's, whatever became of it, or an untied head's own."""
        if self._tied is not None:
            return cast(nn.Parameter, self._tied[0].weight)
        if "weight" not in self._parameters:  # torch asks whether the name is free, to put something there
            raise AttributeError("this head has no weight")
        return cast(nn.Parameter, self._parameters["weight"])

    @property
    def embedding(self) -> nn.Embedding | None:
        """What the head is tied to; None if it is untied."""
        return None if self._tied is None else self._tied[0]

    @property
    def masked(self) -> int | None:
        """The row that is never predicted: the padding row of an embedding that keeps it frozen."""
        if self._tied is None or not getattr(self._tied[0], "freeze_padding", False):
            return None
        return self._tied[0].padding_idx

    def reset_parameters(self) -> None:
        """Zero the bias, and draw an untied head's rows anew; a tied one's are the embedding's to draw."""
        with torch.no_grad():
            if self._tied is None:
                initialize_(self.weight, self._initializer)
            if self.bias is not None:
                self.bias.zero_()

    def add_rows(self, n: Whole, init: Tensor | Callable[[Tensor], object] | None = None) -> range:
        """Append ``n`` rows, with a bias of 0 where there is one, and return their ids.

        A tied head grows its embedding, which then needs no call of its own; of an untied pair, each grows
        alone. ``init`` and the rest are as in ``TokenEmbedding.add_rows``.

        >>> embedding = TokenEmbedding(4, 2)
        >>> head = LMHead(embedding, bias=True)
        >>> head.add_rows(2), embedding.num_embeddings, head.weight.shape, head.bias.shape
        (range(4, 6), 6, torch.Size([6, 2]), torch.Size([6]))
        """
        grown = self._tied[0] if self._tied else self._as_embedding()
        if not isinstance(grown, TokenEmbedding):
            raise ShapeError(f"torch's {type(grown).__name__} can't grow; tie the head to a TokenEmbedding")
        new = grown.add_rows(n, init)
        if self._tied is None:
            self.register_parameter("weight", cast(nn.Parameter, grown.weight))
        if self.bias is not None:
            bias = torch.cat([self.bias.detach(), self.bias.new_zeros(len(new))])
            self.bias = nn.Parameter(bias, requires_grad=self.bias.requires_grad)
        return new

    def _as_embedding(self) -> TokenEmbedding:
        return TokenEmbedding.from_pretrained(
            self.weight.detach(), freeze=not self.weight.requires_grad, initializer=self._initializer
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (\\*axes, V) of hidden states (\\*axes, D); ``ShapeError`` unless they are D wide."""
        if not isinstance(hidden, Tensor) and (call := call_of(self, hidden)) is not None:
            return call
        if hidden.is_nested:
            return nested_like(self.forward(packed(hidden, 1)), hidden, 1)
        hidden = without_partial(hidden)
        self._split_from_sparse_lookup()
        self._check_shapes(hidden)
        hidden = ops.caught_up(hidden, self.weight)
        if self.hidden_scale != 1.0:
            hidden = hidden * self.hidden_scale
        logits = F.linear(hidden, self.weight, self.bias)
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        if self.soft_cap is not None:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        if self.masked is not None:
            logits = without_row(logits, self.masked)
        return logits

    def loss(
        self,
        hidden: Tensor,
        labels: Tensor,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        chunked: bool = True,
    ) -> Tensor:
        """Mean cross entropy of ``labels`` (\\*axes) for ``hidden`` (\\*axes, D), a chunk at a time.

        0, with zero gradients, if every label is ``ignore_index`` (torch gives NaN). Label smoothing spreads
        over the rows that can be predicted. The chunked form has a backward of its own, first order only, and
        refuses ``torch.func``; ``chunked=False`` goes everywhere. ``TokenIdError`` for a label that is
        neither a row nor ``ignore_index``, or is the masked row; ``ShapeError`` if the axes differ or the
        smoothing is not in [0, 1).
        """
        if hidden.is_nested or (isinstance(labels, Tensor) and labels.is_nested):
            hidden, labels = _packed(hidden, labels)
        hidden = without_partial(hidden)
        self._split_from_sparse_lookup()
        self._check_shapes(hidden)
        smoothing = real("label_smoothing", label_smoothing)
        if not 0.0 <= smoothing < 1.0:
            raise ShapeError(f"label_smoothing must be at least 0 and under 1; found {label_smoothing!r}")
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        hidden = ops.caught_up(hidden, weight)
        labels, counted = check_labels(labels, len(weight), ignore_index, self.masked)
        if labels.shape != hidden.shape[:-1]:
            raise ShapeError(
                f"there is one label per position: {tuple(hidden.shape[:-1])} expected, found "
                f"{tuple(labels.shape)}"
            )
        hidden, labels, counted = (
            hidden.reshape(-1, hidden.shape[-1]),
            labels.reshape(-1),
            counted.reshape(-1),
        )
        if self.hidden_scale * self.logit_scale != 1.0:  # N·D products instead of N·V
            hidden = hidden * (self.hidden_scale * self.logit_scale)
        if bias is not None and self.logit_scale != 1.0:
            bias = bias * self.logit_scale
        kind = hidden.device.type
        if not hidden.is_meta and torch.is_autocast_enabled(kind) and hidden.dtype != torch.float64:
            lower = torch.get_autocast_dtype(kind)
            hidden, weight = hidden.to(lower), weight.to(lower)
            bias = None if bias is None else bias.to(lower)
        summed = chunked_summed_loss if chunked else summed_loss
        with without_autocast(hidden):
            total = summed(
                hidden, weight, bias, labels, counted, Terms(self.soft_cap, smoothing, self.masked)
            )
            return total / counted.sum().clamp(min=1)

    def _split_from_sparse_lookup(self) -> None:
        """Have the head compiled apart from a lookup in its table that makes row-sparse gradients.

        Of a compiled backward that adds up a sparse and a dense gradient torch says "INTERNAL ASSERT FAILED".
        """
        compiler = torch.compiler
        training = torch.is_grad_enabled() and not compiler.is_exporting()
        if not (training and compiler.is_compiling()):
            return
        if self._tied is not None and self._tied[0].sparse and self._tied[0].weight.requires_grad:
            torch._dynamo.graph_break(
                "sparse=True under a tied head makes no single compiled graph; set sparse=False on the "
                "embedding: the head's gradient is dense anyway"
            )

    def _check_shapes(self, hidden: Tensor) -> None:
        rows, width = self.weight.shape
        if hidden.shape[-1:] != (width,):
            raise ShapeError(
                f"this head takes hidden states of width {width:,}; found shape {tuple(hidden.shape)}"
            )
        if self.bias is not None and len(self.bias) != rows:
            raise ShapeError(
                f"the head's bias has {len(self.bias):,} numbers and its table {rows:,} rows; "
                "head.add_rows(...) grows a tied embedding and its head together"
            )

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        name = prefix + "weight"
        found = state_dict.get(name)
        if self._tied is not None and isinstance(found, Tensor):
            state_dict = {key: value for key, value in state_dict.items() if key != name}
            refusal = (
                f"{name} differs from the embedding that this head is tied to; load an untied model into "
                "LMHead.untied(...), or leave this key out to keep the embedding's rows"
            )
            self._claim = (weakref.ref(found), error_msgs, refusal)
            self._judge_claim()
            if self._asks is None:  # the embedding may be loaded after the head
                self._asks = _AskHead(self)
                self._tied[0].register_load_state_dict_post_hook(self._asks)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def _judge_claim(self) -> None:
        """Refuse the head's own weight in a state dict, or take the refusal back, by the embedding's rows."""
        if self._claim is None:
            return
        reference, errors, refusal = self._claim
        claimed = reference()
        if claimed is None:  # of a load that is over
            return
        if refusal in errors:
            errors.remove(refusal)
        embedding = self._tied[0] if self._tied else None
        zeroed = getattr(embedding, "padding_on_load", "keep") == "zero"
        skipped = embedding.padding_idx if embedding is not None and zeroed else None
        if not _same(claimed.detach(), self.weight.detach(), skipped):
            errors.append(refusal)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_claim": None, "_asks": None}

    def extra_repr(self) -> str:
        rows, width = self.weight.shape
        parts = [f"{rows}, {width}", "untied" if self._tied is None else "tied"]
        if self.bias is not None:
            parts.append("bias=True")
        parts += [
            f"{name}={value:.6g}"
            for name, value, plain in (
                ("hidden_scale", self.hidden_scale, 1.0),
                ("logit_scale", self.logit_scale, 1.0),
                ("soft_cap", self.soft_cap, None),
            )
            if value != plain
        ]
        return ", ".join(parts)


def _packed(hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Nested hidden states and labels as plain ones (N, D) and (N,): the texts, one after the other."""
    both = isinstance(labels, Tensor) and hidden.is_nested and labels.is_nested
    if not both or axes_of(labels) != axes_of(hidden, 1):
        raise ShapeError(
            "there is one label per position: nested hidden states take nested labels of the same texts, and "
            "plain ones take plain ones; jagged labels need the offsets of the hidden states themselves: "
            "torch.nested.nested_tensor_from_jagged(labels.values(), hidden.offsets())"
        )
    return packed(hidden, 1), packed(labels)


class _AskHead:
    """A hook on the embedding, which doesn't keep the head alive: a claim is judged by the rows just loaded.

    Copied or unpickled with the embedding it does nothing; the head's copy registers its own when needed.
    """

    def __init__(self, head: LMHead | None = None) -> None:
        self._head = (lambda: None) if head is None else weakref.ref(head)

    def __call__(self, module: nn.Module, incompatible_keys: Any) -> None:
        head = self._head()
        if head is not None:
            head._judge_claim()
            head._claim = None

    def __reduce__(self) -> tuple[type[_AskHead], tuple[()]]:
        return _AskHead, ()


def _settings(twin: reference.LMHead) -> dict[str, Any]:
    return {name: getattr(twin, name) for name in ("hidden_scale", "logit_scale", "soft_cap")}


def _same(claimed: Tensor, weight: Tensor, skipped: int | None) -> bool:
    """Whether loading one gave the other, but for a row that loading changes; on meta, shapes decide."""
    if claimed.shape != weight.shape:
        return False
    if claimed.is_meta or weight.is_meta:
        return True
    loaded = claimed.to(weight.device, weight.dtype)
    if skipped is not None:
        loaded, weight = (torch.cat([rows[:skipped], rows[skipped + 1 :]]) for rows in (loaded, weight))
    return torch.equal(loaded, weight) or torch.allclose(loaded, weight, rtol=0.0, atol=0.0, equal_nan=True)
