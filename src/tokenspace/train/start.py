"""Where training starts: both matrices, drawn or copied from pretrained vectors."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tokenspace import initializers
from tokenspace.errors import ShapeError
from tokenspace.geometry.evaluation import table_sha256
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table
from tokenspace.train.settings import Settings
from tokenspace.vocab import Vocab

_NUMBERS_AT_ONCE = 1 << 22


class Start(NamedTuple):
    """The matrices before the first step, and what came from pretrained vectors, for provenance."""

    model: Any
    copied: dict[str, Any]


def note(copied: dict[str, Any]) -> str:
    """How much was copied, in words.

    >>> note({"matched": 31, "matched_by_case": 2, "total": 45})
    '31 of 45 tokens start from pretrained rows, 2 of them spelled in another case there'
    >>> note({"matched": 0, "matched_by_case": 0, "total": 45})
    'none of 45 tokens has a row in the table to start from: all are drawn, as without one'
    """
    if not copied["matched"]:
        return (
            f"none of {copied['total']:,} tokens has a row in the table to start from: "
            "all are drawn, as without one"
        )
    by_case = copied["matched_by_case"]
    return f"{copied['matched']:,} of {copied['total']:,} tokens start from pretrained rows" + (
        f", {by_case:,} of them spelled in another case there" if by_case else ""
    )


def drawn(
    kernel: ModuleType, counts: Int[Array, " V"], settings: Settings, rng: np.random.Generator
) -> Start:
    """As word2vec begins: inputs from U(-0.5/D, 0.5/D), outputs 0; the rows of tokens that never occur, 0.

    ``ShapeError`` if both matrices don't fit in memory.
    """
    model = _zeros(kernel, len(counts), settings.dim)
    width = np.float32(settings.dim)
    step = max(1, _NUMBERS_AT_ONCE // settings.dim)
    for start in range(0, len(counts), step):  # in parts, so that no third matrix is needed
        rows = rng.random((min(step, len(counts) - start), settings.dim), np.float32)
        model.inputs[start : start + len(rows), : settings.dim] = (rows - np.float32(0.5)) / width
    model.inputs[counts == 0] = 0.0
    return Start(model, {})


def pretrained(
    kernel: ModuleType,
    counts: Int[Array, " V"],
    settings: Settings,
    rng: np.random.Generator,
    vocab: Vocab,
    init: Table,
) -> Start:
    """The rows that ``init`` has are copied, the others drawn with the same spread (``from_pretrained``).

    Where words are folded here, they match those of ``init`` in any case. ``init.output``, if there is one,
    gives the rows of the context matrix; other rows of that are 0. A row that ``init`` lacks is 0 if its
    token never occurs in the corpus either. Special tokens are not counted as matched, nor in the total.
    """
    model = _zeros(kernel, len(counts), settings.dim)
    rows, report = _matched(vocab, init, rng, settings)
    lacking = set(report.unmatched)
    unmatched = np.array([token in lacking for token in vocab])
    rows[unmatched & (counts == 0)] = 0.0
    model.inputs[:, : settings.dim] = rows
    if init.output is not None:
        outputs, _ = _matched(vocab, Table(init.output, init.vocab), rng, settings)
        outputs[unmatched] = 0.0
        model.outputs[:, : settings.dim] = outputs
    special = [vocab[i] for i in vocab.special]
    copied_special = [token for token in special if token not in lacking]
    copied = {
        "table_sha256": table_sha256(init),
        "matched": report.matched - len(copied_special),
        "matched_by_case": report.matched_by_case - sum(token not in init.vocab for token in copied_special),
        "total": report.total - len(special),
        "context_matrix": init.output is not None,
    }
    return Start(model, copied)


def _matched(
    vocab: Vocab, init: Table, rng: np.random.Generator, settings: Settings
) -> tuple[Float[Array, "V D"], initializers.MatchReport]:
    return initializers.from_pretrained(
        vocab, init, rng, embedding_dimension=settings.dim, ignore_case=bool(settings.lowercase)
    )


def _zeros(kernel: ModuleType, rows: int, dim: int) -> Any:
    width = kernel.padded(np.zeros((1, dim), np.float32)).shape[1]
    need, room = 2 * rows * width * 4, memory()
    with contextlib.suppress(MemoryError):
        if need <= room:
            return kernel.Model(kernel.aligned_zeros(rows, width), kernel.aligned_zeros(rows, width))
    raise ShapeError(
        f"two matrices of {rows:,} × {dim:,} take {_gigabytes(need)} of memory, and there are "
        f"{_gigabytes(room)} at most for this process; lower dim, or raise the minimum count"
    )


def memory() -> int:
    """Bytes that this process may take yet: what the machine has free, within its control group's limit."""
    room = 1 << 62
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        kilobytes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
        room = 1024 * (kilobytes["MemAvailable"] + kilobytes["SwapFree"])
    if room == 1 << 62:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max", or no such file
            room = min(room, int(Path(limit).read_text("ascii")))
    return room


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
