"""What is read of a large map leaves memory again, and reads the same afterwards."""

import subprocess
import sys

import numpy as np
import pytest

from tokenspace import mapped

SCAN = """
import sys
import numpy as np
from tokenspace import mapped
whole = np.memmap(sys.argv[1], np.uint8, "r")[5:][:159_744_000].view(np.float32).reshape(-1, 64)
print(type(whole).__name__, whole.nbytes)
total = 0.0
for start in range(0, len(whole), 50_000):
    block = whole[start : start + 50_000]
    total += float(block.sum(dtype=np.float64))
    if sys.argv[2] == "release":
        mapped.release(block, whole)
print(total)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("RssFile")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_scan_of_a_large_map_stays_small_and_reads_the_same(tmp_path):
    path = tmp_path / "numbers"
    np.random.default_rng(0).integers(0, 100, 160_000_005, np.uint8).tofile(path)  # tiny floats, none NaN
    read = {}
    for way in ("keep", "release"):
        done = subprocess.run(
            [sys.executable, "-c", SCAN, path, way], capture_output=True, text=True, check=True
        )
        kind, total, resident = done.stdout.splitlines()
        assert kind.startswith("memmap")
        read[way] = (total, int(resident))  # kB
    assert read["keep"][0] == read["release"][0]
    assert read["release"][1] < 60_000
    assert read["keep"][1] > 150_000


def test_what_is_no_large_read_only_map_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "_SMALL", 0)
    path = tmp_path / "numbers"
    np.arange(100_000, dtype=np.int64).tofile(path)
    memory = np.arange(100_000)
    mapped.release(memory[5:10], memory)
    assert memory[7] == 7
    changed = np.memmap(path, np.int64, "c")
    changed[3] = -1
    mapped.release(changed[:10], changed)
    assert changed[3] == -1
    changed.setflags(write=False)  # its pages hold changes all the same
    mapped.release(changed[:10], changed)
    assert changed[3] == -1
    shared = np.memmap(path, np.int64, "r")
    mapped.release(shared[1:3], shared)
    mapped.release(np.zeros(2), shared)
    assert shared[2] == 2
