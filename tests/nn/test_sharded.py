"""A model that two processes share, by FSDP2 or by DTensor, is the model that one process has."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_two_processes_compute_what_one_does(tmp_path):
    script = Path(__file__).parent / "two_processes.py"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", script, tmp_path],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    differences = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert len(differences) == 66
    assert {name: found for name, found in differences.items() if not float(found) < 1e-5} == {}
