"""benchmarks/table_files.py runs: both readers read the same table, and every question is answered."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "table_files.py"


@pytest.mark.slow
def test_it_runs_on_small_files_and_writes_nothing():
    results = SCRIPT.parent / "results"
    before = {path: path.read_bytes() for path in results.iterdir()}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick"], capture_output=True, text=True, check=True
    )
    assert {path: path.read_bytes() for path in results.iterdir()} == before
    rows = [
        line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| word2vec")
    ]
    assert [row[1] for row in rows[:2]] == ["2,000 × 20", "2,000 × 20"]
    assert re.search(r"2,000 tokens × 20 opens in [\d.]+ ms", done.stdout)
    assert (
        len(re.findall(r"^\| (?:word2vec-binary|native) \| 2 \| [\d,]+ \|", done.stdout, re.MULTILINE)) == 2
    )
