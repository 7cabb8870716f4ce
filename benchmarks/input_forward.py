"""The transformer's input, forward: lookup × √D + position + segment, against torch and a plain copy.

    python benchmarks/input_forward.py [--quick]

Claim: 8 times as fast as torch eager, 3 times as torch.compile, at most 2.5 times as long as a copy of N·D
floats into memory that is there already. In training mode, the graph for the backward recorded, a fresh
output each call; with ``out=``, where no graph can be recorded, into the same memory each call.

glibc gives blocks of 32 MB and more back to the system when they are freed, so eager's three temporaries and
its output are page faults at each call for the two larger sizes. That is how torch runs, and the row that is
asked for; the row "malloc keeps its blocks" shows eager without them (``mallopt``: no mmap, no trimming).
"""

from __future__ import annotations

import ctypes

import torch

from layers import calling, check_equal, compiled, eager_input, our_input
from measure import Batch, Effort, Row, Size, batches, copy_speed, copying, distinct, in_turn
from report import main

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h


def rows(effort: Effort) -> list[Row]:
    measured = [row for size in effort.sizes for row in _against_torch(size, effort)]
    if effort.device == "cpu":  # last: it changes malloc for the rest of this process
        measured += [_kept_blocks(size, effort) for size in effort.sizes]
    return measured


def _against_torch(size: Size, effort: Effort) -> list[Row]:
    made = batches(size, effort)
    ours = our_input(size, device=effort.device)
    eager = eager_input(ours, size)
    contenders = {
        "ours": calling(ours, made),
        "eager": calling(eager, made),
        "compiled": calling(compiled(eager), made),
        "copy": copying(size, effort.device),
    }
    check_equal(contenders["ours"](0), contenders["eager"](0), "input forward")
    if effort.device == "cpu":
        into = calling(ours, made, out=torch.empty(size.B, size.T, size.D))
        contenders["ours, out="] = torch.no_grad()(into)
        check_equal(contenders["ours, out="](0), contenders["eager"](0), "input forward, out=")
    times = in_turn(contenders, effort)
    facts = {"megabytes": _megabytes(size, made), "copy_gb_per_s": copy_speed(size, times["copy"])}

    def row(claim: str, contender: str, peer: str, peer_name: str, **asked: float) -> Row:
        return Row(claim, str(size), peer_name, times[contender], times[peer], **asked, **facts)

    against_copy = {"longer": True, "asked": 2.5 if effort.device == "cpu" else None}
    measured = [
        row("input forward", "ours", "eager", "torch eager", asked=8.0),
        row("input forward", "ours", "compiled", "torch.compile", asked=3.0),
        row("input forward", "ours", "copy", "copy of N·D floats", **against_copy),
    ]
    if "ours, out=" in times:
        claim = "input forward, `out=`"
        measured += [
            row(claim, "ours, out=", "eager", "torch eager"),
            row(claim, "ours, out=", "compiled", "torch.compile"),
            row(claim, "ours, out=", "copy", "copy of N·D floats", longer=True, asked=2.5),
        ]
    return measured


def _kept_blocks(size: Size, effort: Effort) -> Row:
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    made = batches(size, effort)
    ours = our_input(size)
    contenders = {"ours": calling(ours, made), "eager": calling(eager_input(ours, size), made)}
    times = in_turn(contenders, effort)
    return Row(
        "input forward", str(size), "torch eager, malloc keeps its blocks", times["ours"], times["eager"]
    )


def _megabytes(size: Size, made: list[Batch]) -> float:
    """The rows read once, the output written once."""
    return (distinct(made) + size.T + size.B * size.T) * size.D * 4 / 1e6


if __name__ == "__main__":
    main(rows, __doc__)
