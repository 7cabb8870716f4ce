"""Run every claim against its peers, one after the other, and write what docs/speed.md shows.

    make bench                       # in an environment of its own, with every peer
    python benchmarks [--quick]      # in this one; --quick measures nothing, it only runs everything
    python benchmarks --documents    # only writes the committed figures into README and docs again

Each claim runs in a process of its own, so that what one leaves behind (freed blocks, compiled code, a
changed malloc) is not under the next. A run on an idle machine takes under ten minutes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from measure import THREADS, Row
from report import machine, missed, refresh_documents, stop, write

CLAIMS = (
    "input_forward",
    "input_layer_norm_dropout",
    "input_backward",
    "token_gradient",
    "sparse_adam",
    "exact_adamw",
    "rowwise_adagrad",
    "vocabulary_growth",
    "half_gradient",
    "exact_adamw_equality",
    "one_hot",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--documents", action="store_true", help="write the committed figures into the docs")
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help=f"some of: {', '.join(CLAIMS)}")
    arguments = parser.parse_args()
    if arguments.documents:
        for path in refresh_documents():
            print(f"{path.name}: refreshed")
        return 0
    if unknown := set(arguments.claims) - set(CLAIMS):
        parser.error(f"no claim is named {', '.join(sorted(unknown))}")
    missing = [name for name in ("fbgemm_gpu", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing and not arguments.claims:
        stop(f"{' and '.join(missing)} not installed; run: make bench")
    if not arguments.quick and (load := os.getloadavg()[0]) > 0.5:
        print(f"load average {load:.1f}: what else runs here is measured too", file=sys.stderr)
    started = time.perf_counter()
    rows = [row for name in arguments.claims or CLAIMS for row in _run(name, arguments.quick)]
    print("Nothing is measured with --quick." if arguments.quick else missed(rows))
    print(f"{time.perf_counter() - started:.0f} s")
    if not arguments.quick and not arguments.claims:
        from plots import draw

        torch.set_num_threads(THREADS)
        write("cpu", machine(), rows, "make bench")
        draw("cpu")
        refresh_documents()
    return 0


def _run(name: str, quick: bool) -> list[Row]:
    print(f"## {name}", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, str(Path(__file__).parent / f"{name}.py"), "--json", str(path)]
        run = subprocess.run([*command, *(["--quick"] if quick else [])], check=False, env=environment)
        if run.returncode:
            stop(f"{name}.py failed (see above); nothing was written")
        print(flush=True)
        return [Row.from_json(row) for row in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main())
