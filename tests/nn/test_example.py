"""The example of docs/nn.md: short, and what it prints is what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tiny_decoder.py"


def test_it_is_under_60_lines():
    assert len(EXAMPLE.read_text().splitlines()) < 60


@pytest.mark.slow
def test_it_learns_sentences_and_neighbors():
    command = [sys.executable, EXAMPLE, ROOT / "examples" / "farm.txt"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    page = (ROOT / "docs" / "nn.md").read_text()
    shown = re.search(r"^\$ python examples/tiny_decoder.py.*\n((?:.+\n)+?)```", page, re.MULTILINE)
    losses = [float(number) for number in re.findall(r"loss ([\d.]+)", printed)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 1.0
    assert shown is not None
    if sys.platform == "linux":  # other machines' last digits may lead to other words
        assert re.sub(r"loss .*", "", printed) == re.sub(r"loss .*", "", shown[1])
