"""The same rows on a GPU: torch's operators under our modules, against torch eager and torch.compile.

    make bench-gpu        # or: python benchmarks/gpu.py [--quick]

On CUDA the modules run plain torch operators, so the question is what the modules cost over them; gradients
and row-sparse optimizers are compared as on the CPU. ``exact=True`` works on the CPU only, and FBGEMM's GPU
build is not compared. Timed with CUDA events. Without a GPU it says so, and exits with 1.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from dataclasses import replace

import torch

import half_gradient
import input_backward
import input_forward
import input_layer_norm_dropout
import one_hot
import sparse_adam
import token_gradient
import vocabulary_growth
from measure import QUICK, Effort
from report import stop, table, write

CLAIMS = (
    input_forward,
    input_layer_norm_dropout,
    input_backward,
    token_gradient,
    sparse_adam,
    vocabulary_growth,
    half_gradient,
    one_hot,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    quick = parser.parse_args().quick
    if not torch.cuda.is_available():
        stop("benchmarks/gpu.py needs a CUDA GPU and a CUDA build of torch; torch sees none here")
    effort = replace(QUICK if quick else Effort(), device="cuda")
    rows = []
    for claim in CLAIMS:
        torch.manual_seed(0)
        measured = [replace(row, asked=None) for row in claim.rows(effort)]  # the floors are the CPU's
        print(f"## {claim.__name__}\n{table(measured)}\n", flush=True)
        rows += measured
        torch.cuda.empty_cache()
    if not quick:
        write("gpu", _machine(), rows, "make bench-gpu")
    return 0


def _machine() -> dict[str, str]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


if __name__ == "__main__":
    sys.exit(main())
