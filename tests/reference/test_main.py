import subprocess
import sys

import pytest

from tokenspace.reference import __main__ as walk


@pytest.fixture
def lines(capsys):
    walk.main()
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], heading: str, name: str) -> list[float]:
    """The numbers of the first row called ``name`` under a heading."""
    below = lines[next(n for n, line in enumerate(lines) if heading in line) :]
    found = next(line for line in below if line.strip().startswith(f"{name}  "))
    return [float(word) for word in found.split()[-4:]]


def test_it_runs_as_a_module_without_torch_or_numba():
    code = (
        "import runpy, sys; runpy.run_module('tokenspace.reference', run_name='__main__'); "
        "sys.exit(bool({'torch', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_reads_well_in_80_columns(lines):
    assert max(map(len, lines)) <= 80
    assert [line[0] for line in lines if line[:1].isdigit()] == list("12345678")


def test_its_numbers_say_what_its_words_say(lines):
    text = "\n".join(lines)
    assert "are the same row: True" in text
    assert "largest difference from the lookup: 0.0" in text
    assert row(lines, "gives E the gradient", "the") == [5.0] * 4  # 1 at position 0 and 4 at position 3
    assert row(lines, "gives E the gradient", "sat") == [0.0] * 4
    assert "changed: ['the', 'cat', 'and', 'dog']" in text
    before, after = (float(text.split(word)[-1].split()[0]) for word in ("before ", "after "))
    assert before < 0.1 < 0.9 < after
    assert all(row(lines, "from the head", "sat"))
    assert row(lines, "from the lookup", "sat") == [0.0] * 4
