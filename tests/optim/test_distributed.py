"""Rows of a gradient may have been looked up by another process: they are brought up to date in the step."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_processes_keep_one_exact_table(tmp_path):
    script = Path(__file__).parent / "two_processes.py"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script, tmp_path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    between, from_dense = map(float, done.stdout.split())
    assert between == 0.0
    assert from_dense < 1e-6
