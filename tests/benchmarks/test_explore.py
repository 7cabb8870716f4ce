"""benchmarks/explore.py runs: every question is asked of the command and answered."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "explore.py"


@pytest.mark.slow
def test_it_runs_on_small_tables_and_writes_nothing():
    results = SCRIPT.parent / "results"
    before = {path: path.read_bytes() for path in results.iterdir()}
    command = [sys.executable, str(SCRIPT), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {path: path.read_bytes() for path in results.iterdir()} == before
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["2,000 × 16"] * 9 + ["random, 4,000 × 16"] * 9
    assert [row[1] for row in rows[:9]] == [row[1] for row in rows[9:]]
    assert all(float(row[2].replace(",", "").split()[0]) >= 0 for row in rows)
