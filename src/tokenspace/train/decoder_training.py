"""Training a decoder on a token stream: the plan of its steps, what is saved, the held-out loss.

An epoch cuts the stream into windows of T tokens from a place that is drawn anew, and takes them in an order
that is drawn anew; both depend on the seed and the epoch alone, so a run goes on from the number of its step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tokenspace.errors import CorpusError
from tokenspace.nn.arrays import tensor_of
from tokenspace.shapes import Array, Int
from tokenspace.train.decoder import Decoder
from tokenspace.train.divergence import Diverged, Limit
from tokenspace.train.token_stream import TokenStream

WARM_UP = 100  # steps in which the rate rises, or a twentieth of the run, if that is less
LARGEST_GRADIENT = 1.0  # Euclidean norm over all parameters
MUON_RATE = 4.0  # times the other rate
SCORES_AT_ONCE = 2**21  # 8 MB: a step takes a tenth less time than with all of a batch's
SHORT = 256  # tokens of context
HIGHEST_LOSS = 100.0  # nats a token; drawing tokens by chance costs some 10, and exp overflows beyond 709
_SCORED_AT_ONCE = 32  # windows


class Plan(NamedTuple):
    """Which windows of a stream of ``tokens`` each step takes; windows are ``context`` + 1 tokens long."""

    tokens: int
    context: int
    batch: int
    seed: int

    @property
    def windows(self) -> int:
        """How many an epoch has."""
        return (self.tokens - self._places) // self.context

    @property
    def steps(self) -> int:
        """How many an epoch has; the last may be a smaller batch."""
        return -(-self.windows // self.batch)

    @property
    def _places(self) -> int:
        """How many places an epoch's first window may begin at."""
        return min(self.context, self.tokens - self.context)

    def epoch(self, number: int) -> Iterator[Int[Array, " B"]]:
        """Where the windows of each step of an epoch (from 0) begin.

        >>> [starts.tolist() for starts in Plan(tokens=13, context=3, batch=2, seed=1).epoch(0)]
        [[1, 4], [7]]
        """
        rng = np.random.default_rng([self.seed, number])
        first = int(rng.integers(self._places))
        order = rng.permutation(self.windows) * self.context + first
        return (order[at : at + self.batch] for at in range(0, len(order), self.batch))

    def check(self) -> None:
        """``CorpusError`` if the stream has no window."""
        if self.tokens <= self.context:
            raise CorpusError(
                f"the part of the text to learn from has {self.tokens:,} tokens, too few for a context of "
                f"{self.context:,}; lower the context to {max(self.tokens - 1, 1):,} or less, or add text"
            )


class Training:
    """One run: the model, its optimizer, and how far they are.

    ``rate`` rises during the first steps and falls in a straight line as the run's fraction does, which the
    caller tells at each step.
    """

    def __init__(
        self, model: Decoder, stream: TokenStream, plan: Plan, rate: float, decay: float, mixed: bool
    ) -> None:
        self.model, self.plan, self.mixed = model, plan, mixed
        self.step = 0  # steps done
        self.tokens = 0  # predicted so far
        self.seconds = 0.0  # spent on training so far
        self._stream, self._rate, self._decay = stream, rate, decay
        self._summed, self._counted = 0.0, 0
        self._limit = Limit(self._parameters())
        self._highest = HIGHEST_LOSS  # of a step; more if training begins higher
        self._optimizers = _optimizers(model, rate, decay)
        self._rates = [[group["lr"] for group in one.param_groups] for one in self._optimizers]
        self._epoch: tuple[int, Iterator[Int[Array, " B"]]] | None = None

    @property
    def epoch(self) -> int:
        """Epochs begun so far, from 1."""
        return max(self.step - 1, 0) // self.plan.steps + 1

    def take_step(self, fraction: float, warm_up: int) -> None:
        """Learn from the next batch at the rate that the run's ``fraction`` asks for.

        ``Diverged`` if the batch's loss has left all reason; nothing is learned from it then.
        """
        began = time.perf_counter()
        windows = self._stream.windows(next(self._batches()), self.plan.context + 1)
        ids = torch.from_numpy(windows.astype(np.int64))
        self.model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.mixed), _attention(self.plan.context):
            loss = _loss(self.model, ids)
        nats = loss.item()
        if self.step == 0:
            self._highest = max(HIGHEST_LOSS, 2 * nats)
        if not (math.isfinite(nats) and nats <= self._highest):
            raise self._diverged("loss", nats)
        self.model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_GRADIENT)
        share = min(1.0, (self.step + 1) / warm_up) * (1.0 - fraction)
        for optimizer, rates in zip(self._optimizers, self._rates, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * share
            optimizer.step()
        self.step += 1
        count = windows.shape[0] * self.plan.context
        self.tokens += count
        self._summed += nats * count
        self._counted += count
        self.seconds += time.perf_counter() - began

    def take_loss(self) -> float:
        """The mean loss, nats a token, since it was taken last; NaN if there was no step."""
        if not self._counted:
            return math.nan
        loss, self._summed, self._counted = self._summed / self._counted, 0.0, 0
        return loss

    def check(self) -> None:
        """``Diverged`` if a parameter has left all reason."""
        if excess := self._limit.excess(self._parameters()):
            raise self._diverged_as(excess)

    def _parameters(self) -> Iterator[np.ndarray]:
        return (value.detach().numpy() for value in self.model.parameters())

    def held_out_loss(self, stream: TokenStream, most: int | None = None) -> float:
        """That of the model as it is now (`held_out_loss`); ``Diverged`` if it is absurd, or no number."""
        loss = held_out_loss(self.model, stream, self.plan.context, most)
        if not loss <= HIGHEST_LOSS:
            raise self._diverged("held-out loss", loss)
        return loss

    def _diverged(self, what: str, loss: float) -> Diverged:
        return self._diverged_as(f"the {what} is {loss:g}")

    def _diverged_as(self, what: str) -> Diverged:
        return Diverged(
            f"training diverged: {what}; lower the rate ({self._rate:g}) or the weight decay "
            f"({self._decay:g}), and if a table was given to begin with, see whether its rows are very large"
        )

    def _batches(self) -> Iterator[Int[Array, " B"]]:
        number, place = divmod(self.step, self.plan.steps)
        if self._epoch is None or self._epoch[0] != number:
            batches = self.plan.epoch(number)
            for _ in range(place):
                next(batches)
            self._epoch = number, batches
        return self._epoch[1]

    # ── what a run goes on from ───────────────────────────────────────────────────────────────────────────

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Everything that the next steps depend on, as arrays and plain values."""
        arrays = {f"model.{name}": value.numpy() for name, value in self.model.state_dict().items()}
        for number, optimizer in enumerate(self._optimizers):
            for i, values in optimizer.state_dict()["state"].items():
                arrays |= {f"optimizer.{number}.{i}.{key}": value.numpy() for key, value in values.items()}
        arrays["random"] = torch.get_rng_state().numpy()
        about = {
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "summed": self._summed,
            "counted": self._counted,
            "highest": self._highest,
        }
        return arrays, about

    def restore(self, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        tensors = {name: tensor_of(array) for name, array in arrays.items()}
        prefix = "model."
        self.model.load_state_dict(
            {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        )
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self._optimizers]
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, number, i, key = name.split(".")
                states[int(number)].setdefault(int(i), {})[key] = value
        for optimizer, state in zip(self._optimizers, states, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
        torch.set_rng_state(tensors["random"])
        self.step, self.tokens, self.seconds = about["step"], about["tokens"], about["seconds"]
        self._summed, self._counted = about["summed"], about["counted"]
        self._highest = about["highest"]
        self.check()


def _attention(context: int) -> AbstractContextManager[object]:
    """Scores of short windows are kept for the backward: making them again would cost a step a tenth more."""
    return sdpa_kernel(SDPBackend.MATH) if context <= SHORT else nullcontext()


def _loss(model: Decoder, ids: Tensor) -> Tensor:
    """Mean loss of windows (B, T+1), of so many positions at a time that their scores stay in the cache."""
    hidden, labels = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
    size = max(1, SCORES_AT_ONCE // len(model.head.weight))
    parts = zip(hidden.split(size), labels.split(size), strict=True)
    summed = [model.head.loss(one, other) * len(other) for one, other in parts]
    return torch.stack(summed).sum() / len(labels)


def held_out_loss(model: Decoder, stream: TokenStream, context: int, most: int | None = None) -> float:
    """Mean loss, nats a token, of every token of ``stream`` but the first.

    A window begins every T/2 tokens, and of all but the first its second half is scored alone: so each token
    is scored once, after at least T/2 others (fewer where the stream begins). ``most``: score about so many
    tokens, of windows at even distances.
    """
    starts, fresh, length = _cover(stream.tokens - 1, context)
    if most is not None:
        every = max(1, int(fresh.sum()) // most)
        starts, fresh = starts[::every], fresh[::every]
    model.eval()
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(starts), _SCORED_AT_ONCE):
            windows = stream.windows(starts[at : at + _SCORED_AT_ONCE], length + 1)
            ids = torch.from_numpy(windows.astype(np.int64))
            new = torch.from_numpy(fresh[at : at + _SCORED_AT_ONCE])
            old = torch.arange(length) < length - new[:, None]
            labels = ids[:, 1:].masked_fill(old, -100)
            total += model.head.loss(model(ids[:, :-1]), labels).item() * int(new.sum())
    return total / int(fresh.sum())


def _cover(count: int, context: int) -> tuple[Int[Array, " W"], Int[Array, " W"], int]:
    """Windows that cover ``count`` places: where they begin, how many places at their end are new, and T.

    >>> _cover(10, 4)
    (array([0, 2, 4, 6]), array([4, 2, 2, 2]), 4)
    """
    length = min(context, count)
    starts = np.unique(np.append(np.arange(0, count - length, max(length // 2, 1)), count - length))
    return starts, np.diff(starts + length, prepend=0), length


def mixed_precision() -> bool:
    """Whether this CPU multiplies bfloat16 faster than float32."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def _optimizers(model: Decoder, rate: float, decay: float) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices of the body, which alone decay; AdamW for all the rest.

    Muon's update has singular values of about 1 whatever the gradient's size; of a text that is read only
    once or twice a decoder learns far more with it than with AdamW alone (docs/language_model.md).
    """
    body = list(model.body.parameters())
    matrices = [value for value in body if value.ndim == 2]
    others = [*model.input.parameters(), *(value for value in body if value.ndim < 2)]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE * rate, weight_decay=decay),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
