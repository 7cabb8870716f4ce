"""What loading a file costs a process of its own: seconds, and the growth of its peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_CODE = """
import json, re, sys, time
import tokenspace as ts
from tokenspace.models import families, open
import tokenizers
if ".pt" in sys.argv[1]:
    import torch
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open_file("/proc/self/status").read())[1]) << 10
from builtins import open as open_file
before, start = peak(), time.perf_counter()
try:
    said = repr(ts.load(sys.argv[1]))
except ts.TokenspaceError as error:
    said = f"{type(error).__name__}: {error}"
print(json.dumps([said, time.perf_counter() - start, peak() - before]))
"""


class Cost(NamedTuple):
    """``said``: the table, or the error; ``seconds``; ``grown``: bytes of resident memory."""

    said: str
    seconds: float
    grown: int


def cost_of_loading(path: Path, patience: float = 120) -> Cost:
    """Load ``path`` in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", _CODE, path], capture_output=True, text=True, check=True, timeout=patience
    )
    return Cost(*json.loads(done.stdout.splitlines()[-1]))
