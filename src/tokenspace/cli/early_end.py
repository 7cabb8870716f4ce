"""Ctrl-C while a table learns: end early, and save what there is."""

from __future__ import annotations

import signal


class EarlyEnd:
    """Whether Ctrl-C or SIGTERM asked for an early end; the second time it is an interrupt, at once."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> EarlyEnd:
        signals = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._ask) for number in signals}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
