"""What loading a file costs a process: seconds, and the growth of its peak memory."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_CODE = """
import builtins, json, os, re, sys, time
import tokenspace as ts
from tokenspace.models import families, open
import tokenizers, torch

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", builtins.open("/proc/self/status").read())[1]) << 10

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        before, start = peak(), time.perf_counter()
        try:
            said = repr(ts.load(json.loads(line)))
        except ts.TokenspaceError as error:
            said = f"{type(error).__name__}: {error}"
        print(json.dumps([said, time.perf_counter() - start, peak() - before]), flush=True)
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        print(json.dumps([f"died with status {status}", 0, 0]), flush=True)
"""


class Cost(NamedTuple):
    """``said``: the table, or the error; ``seconds``; ``grown``: bytes of resident memory."""

    said: str
    seconds: float
    grown: int


class Loader:
    """Loads each file in a process of its own: a fork of one that has loaded the libraries."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def cost(self, path: Path, patience: float = 120) -> Cost:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], patience)[0]:
            self.close()
            raise TimeoutError(f"{path} was not loaded in {patience} s")
        return Cost(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
