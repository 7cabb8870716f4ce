"""What importing costs is a promise."""

import statistics
import subprocess
import sys
import time

import pytest

import tokenspace as ts

HEAVY = ("numpy", "torch", "numba", "tokenizers", "rich", "click")


def milliseconds(*command: str, runs: int = 7) -> float:
    """The median wall time of a command."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def test_importing_tokenspace_imports_nothing_heavy():
    code = f"import sys, tokenspace; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_the_command_imports_neither_numpy_nor_torch_for_its_help():
    code = f"import sys, tokenspace.cli; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['click']"


def test_a_query_imports_neither_torch_nor_numba_nor_ml_dtypes():
    code = (
        "import sys, tokenspace as ts; ts.geometry.neighbors(ts.load('wordnet'), 'king');"
        "print([name for name in ('torch', 'numba', 'ml_dtypes') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.alone
def test_start_up_times():
    bare = milliseconds(sys.executable, "-c", "pass")
    assert milliseconds(sys.executable, "-c", "import tokenspace") - bare < 100
    assert milliseconds(sys.executable, "-m", "tokenspace", "--help") < 300
    assert milliseconds(sys.executable, "-m", "tokenspace", "neighbors", "king") < 1000


def test_every_public_name_loads():
    for name in ts.__all__:
        assert getattr(ts, name) is not None
    assert set(ts.__all__) <= set(dir(ts))
    with pytest.raises(AttributeError, match="no attribute 'tabel'"):
        ts.tabel  # noqa: B018
