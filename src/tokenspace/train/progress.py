"""How far a run is, and when it will be done: what a trainer tells its ``progress`` callback."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

PREPARING = ("counting", "encoding")
_SECONDS_A_PRODUCT = (
    1e-10  # one thread's, an input number times an output number; a guess: see training_guess
)


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    ``phase``: "counting" (the text is read for its vocabulary), "encoding" (it becomes ids), "training".
    ``fraction``: how much of the training is done. ``eta_seconds``: until the whole run ends; before
    training, when its speed is not known yet, a guess, and NaN where the text's size isn't known either.
    ``loss``: nats a positive pair, its negatives included, since the last event. Before training it is NaN,
    and ``fraction``, ``epoch``, ``tokens`` and ``tokens_per_second`` are 0.
    """

    epoch: int
    epochs: int
    fraction: float
    tokens: int
    tokens_per_second: float
    loss: float
    eta_seconds: float
    phase: str = "training"


class Preparation:
    """Turns what ``corpus.prepare`` tells into events; ``training_seconds`` is how long training may take.

    Encoding is taken to last as long as counting did, until it shows. Where the tokenizer is given, nothing
    is counted.
    """

    def __init__(
        self, tell: Callable[[Progress], None], training_seconds: float, epochs: int, tokenizer_given: bool
    ) -> None:
        self._tell, self._training, self._epochs = tell, training_seconds, epochs
        self._still_to_encode = not tokenizer_given
        self._phase, self._began, self._last = "", 0.0, 0.0

    def __call__(self, phase: str, fraction: float | None) -> None:
        now = time.perf_counter()
        if phase != self._phase:
            self._phase, self._began = phase, now
        left = math.nan
        if fraction:
            whole = (now - self._began) / fraction
            left = whole * (1 - fraction) + (whole if self._still_to_encode and phase == "counting" else 0)
        self._tell(Progress(0, self._epochs, 0.0, 0, 0.0, math.nan, left + self._training, phase=phase))


def training_guess(tokens: float, epochs: int, dim: int, window: int, negative: int, threads: int) -> float:
    """About how many seconds training takes, before any of it is done: by the products it computes.

    >>> round(training_guess(10_000_000, 5, dim=100, window=5, negative=5, threads=2))
    9
    """
    products = tokens * epochs * (window + 1) * (negative + 1) * dim
    return products * _SECONDS_A_PRODUCT / threads
