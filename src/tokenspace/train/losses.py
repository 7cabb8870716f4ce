r"""How the loss fell, written while a table learns: one JSON object a line, for people and for ``LossCurve``.

::

    {"tokens": 10000, "epoch": 1, "epochs": 5, "loss": 4.1588, "tokens_per_second": 2750000, "seconds": 0.004}
    {"tokens": 50000, "epoch": 5, "epochs": 5, "scores": [{"file": "wordsim353.tsv", "spearman": 0.62, …}]}

``loss`` is the mean since the line before, ``seconds`` the time spent on training, and ``scores`` what
``evaluate`` asked for. Each line is there, whole, as soon as it is known.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TextIO

from tokenspace.train.run import disk_told


class LossLog:
    """The file of a run's losses, open for more.

    What it held up to and with ``keep_tokens`` stays: a run that goes on from a state has no use for the
    lines that were written after it. ``OutputError`` if the file can't be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.loss.jsonl"
    ...     with LossLog(path) as log:
    ...         log.append({"tokens": 10, "loss": 2.5})
    ...         log.append({"tokens": 20, "loss": 2.0})
    ...     with LossLog(path, keep_tokens=10) as log:
    ...         log.append({"tokens": 20, "loss": 1.5})
    ...     print(path.read_text(), end="")
    {"tokens": 10, "loss": 2.5}
    {"tokens": 20, "loss": 1.5}
    """

    def __init__(self, path: str | os.PathLike[str], keep_tokens: int = 0) -> None:
        self.path, self._keep_tokens = Path(path), keep_tokens
        self._file: TextIO | None = None

    def append(self, line: dict[str, Any]) -> None:
        """Add ``line``: plain JSON values, ``tokens`` among them. The first one makes or cuts the file."""
        with disk_told(self.path):
            self._file = self._file or self._opened()
            self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")

    def close(self) -> None:
        """Add nothing more."""
        if self._file is not None:
            with disk_told(self.path):
                self._file.close()

    def _opened(self) -> TextIO:
        file = self.path.open("a", encoding="utf-8", buffering=1)
        file.truncate(_bytes_until(self.path, self._keep_tokens) if self._keep_tokens else 0)
        return file

    def __enter__(self) -> LossLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes_until(path: Path, tokens: int) -> int:
    """How many bytes come before the first line that is half-written, or was written later."""
    kept = 0
    with path.open("rb") as lines:
        for line in lines:
            try:
                if not line.endswith(b"\n") or not json.loads(line)["tokens"] <= tokens:
                    break
            except (ValueError, KeyError, TypeError):
                break
            kept += len(line)
    return kept
