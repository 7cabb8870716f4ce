"""What every claim is measured with: the sizes, new Zipf ids each step, and the contenders timed in turn.

Sizes are (V vocabulary rows, D width, B texts × T positions). The contenders of a claim take the same step
one after the other, then the next step in the opposite order, so that a slow spell of the machine falls on
all of them and none always runs after the same other. What a step makes is dropped inside its time, as in a
training loop.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

THREADS = 2
WARM = 3  # steps of each contender that are thrown away: compilation, first touches, optimizer states


class Size(NamedTuple):
    V: int
    D: int
    B: int
    T: int

    def __str__(self) -> str:
        return f"{self.V:,} × {self.D:,}, {self.B} × {self.T:,}"


GPT2 = Size(50_257, 768, 16, 1024)
GEMMA2 = Size(256_000, 2304, 4, 1024)
MINILM = Size(30_522, 384, 64, 256)
SIZES = (GPT2, GEMMA2, MINILM)
SMALL = (Size(1_000, 32, 2, 16),)


@dataclass
class Effort:
    """How much is measured: at most ``steps`` of each contender, and no new one after ``seconds``."""

    sizes: tuple[Size, ...] = SIZES
    steps: int = 25
    least: int = 5
    seconds: float = 6.0
    quick: bool = False
    device: str = "cpu"


QUICK = Effort(sizes=SMALL, steps=3, least=3, seconds=1.0, quick=True)


@dataclass
class Row:
    """One line of the report: what was measured, against what, and what is asked of it.

    ``ours`` and ``peer`` are milliseconds, (lower quartile, median, upper quartile). ``ratio`` is how many
    times as long the peer takes, and is ``asked`` to be that much or more; or, with ``longer``, how many
    times as long we take, that much or less. A fact that is no time has a ``verdict``: (holds, in words).
    """

    claim: str
    size: str
    peer_name: str = ""
    ours: tuple[float, float, float] | None = None
    peer: tuple[float, float, float] | None = None
    asked: float | None = None
    longer: bool = False
    megabytes: float | None = None  # what our step has to move through memory, read and written
    copy_gb_per_s: float | None = None  # what a copy moved in the same minute
    verdict: tuple[bool, str] | None = None
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)  # numbers for the plots

    @property
    def ratio(self) -> float | None:
        if self.ours is None or self.peer is None:
            return None
        return self.ours[1] / self.peer[1] if self.longer else self.peer[1] / self.ours[1]

    @property
    def bound(self) -> float | None:
        """Milliseconds that the bytes alone take at the speed of a copy."""
        if self.megabytes is None or not self.copy_gb_per_s:
            return None
        return self.megabytes / self.copy_gb_per_s

    @property
    def holds(self) -> bool | None:
        """Whether it is what was asked; None where nothing is."""
        if self.verdict is not None:
            return self.verdict[0]
        if self.ratio is None or self.asked is None:
            return None
        return self.ratio <= self.asked if self.longer else self.ratio >= self.asked

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio, "holds": self.holds, "bound_ms": self.bound}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Row:
        return cls(
            **{name: value for name, value in values.items() if name not in ("ratio", "holds", "bound_ms")}
        )


class Batch(NamedTuple):
    ids: torch.Tensor  # (B, T)
    segment_ids: torch.Tensor  # (B, T)


def batches(size: Size, effort: Effort, seed: int = 0) -> list[Batch]:
    """A batch for every step: ids of probability 1 / (id + 1), new ones each step, and two segments.

    The id is the rank, as in a vocabulary that is sorted by frequency.
    """
    ranks = np.cumsum(1.0 / np.arange(1, size.V + 1))
    made = []
    for step in range(WARM + effort.steps):
        rng = np.random.default_rng((seed, step))
        ids = np.searchsorted(ranks, rng.random((size.B, size.T)) * ranks[-1]).clip(max=size.V - 1)
        segment_ids = np.arange(size.T) >= rng.integers(1, size.T, size.B)[:, None]
        made.append(
            Batch(*(torch.from_numpy(a.astype(np.int64)).to(effort.device) for a in (ids, segment_ids)))
        )
    return made


def distinct(made: list[Batch]) -> int:
    """How many different ids a batch holds, on average."""
    return round(statistics.mean(batch.ids.unique().numel() for batch in made[:4]))


def upstream(size: Size, device: str = "cpu", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A gradient (B, T, D) for what the layer gave."""
    return torch.randn(size.B, size.T, size.D, device=device, dtype=dtype)


Step = Callable[[int], object]
Quartiles = tuple[float, float, float]


def in_turn(
    contenders: Mapping[str, Step],
    effort: Effort,
    before: Mapping[str, Step] | None = None,
) -> dict[str, Quartiles]:
    """Milliseconds of each contender's step, as quartiles; ``before`` a step, untimed, what it needs."""
    device, before = effort.device, before or {}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    gc.collect()
    gc.disable()
    try:
        started = 0.0
        for step in range(-WARM, effort.steps):
            if step == 0:
                started = time.perf_counter()
            for name in order if step % 2 == 0 else reversed(order):
                if name in before:
                    before[name](step + WARM)
                milliseconds = _timed(contenders[name], step + WARM, device)
                if step >= 0:
                    times[name].append(milliseconds)
            if step + 1 >= effort.least and time.perf_counter() - started > effort.seconds:
                break
    finally:
        gc.enable()
    return {name: quartiles(measured) for name, measured in times.items()}


def alternately(
    steps: Sequence[Callable[[], Any]], seconds: float, least: int = 7, most: int = 201
) -> list[float]:
    """Median seconds of each step, in a tight loop of some ``seconds``, their order turned each round."""
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(5):
        for step in steps:
            step()
    gc.collect()
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        for n in range(most):
            for k in range(len(steps)) if n % 2 else reversed(range(len(steps))):
                start = time.perf_counter()
                result = steps[k]()
                times[k].append(time.perf_counter() - start)
                del result
            if n + 1 >= least and time.perf_counter() > end:
                break
    finally:
        gc.enable()
    return [statistics.median(each) for each in times]


def _timed(run: Step, step: int, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        result = run(step)
        del result
        return 1e3 * (time.perf_counter() - start)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    result = run(step)
    del result
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def quartiles(times: list[float]) -> Quartiles:
    low, middle, high = np.percentile(times, [25, 50, 75])
    return round(float(low), 4), round(float(middle), 4), round(float(high), 4)


def copying(size: Size, device: str = "cpu") -> Step:
    """A plain copy of N·D floats into memory that is there already."""
    source = torch.randn(size.B * size.T, size.D, device=device)
    target = torch.zeros_like(source)
    return lambda step: target.copy_(source)


def copy_speed(size: Size, copied: Quartiles) -> float:
    """GB/s of `copying`: each float is read once and written once."""
    return 2 * size.B * size.T * size.D * 4 / 1e6 / copied[1]
