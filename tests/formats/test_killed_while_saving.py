"""kill -9 at any moment of a save: the old table or the new one is there, whole; never neither."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "killed_saver.py"


def kills(name: str, folder: Path, count: int) -> list[dict]:
    """What was there after each kill; nothing is left of any after one more save."""
    command = [sys.executable, PROGRAM, name, folder, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    *found, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert end == {"partials": 0, "last": True}
    assert len(found) == count
    assert sum(kill["in_save"] for kill in found) >= 0.6 * count
    assert sum(kill["partials"] > 0 for kill in found) >= 0.25 * count  # it was being written
    assert max(kill["partials"] for kill in found) <= 2  # numpy's format is two files
    return found


def test_killed_100_times_a_native_file_is_the_old_or_the_new(tmp_path):
    found = kills("native", tmp_path, 100)
    assert all(kill["old"] or kill["new"] for kill in found)
    assert any(kill["old"] and kill["partials"] for kill in found)
    assert any(kill["new"] for kill in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word2vec", "npz", "numpy", "static"])
def test_killed_20_times_another_format_s_is_the_old_or_the_new(tmp_path, name):
    assert all(kill["old"] or kill["new"] for kill in kills(name, tmp_path, 20))
