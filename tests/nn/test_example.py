"""The example of docs/nn.md: short, and what it prints is what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tiny_decoder.py"
ANIMALS = {"rabbit", "cat", "duck", "cow", "hen", "horse", "dog"}


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
    # Another CPU's last digits may lead to another word, so what is held is that they are learned ones.
    *_, cat, rabbit, cow, near_cow, near_morning = printed.splitlines()
    known = set(re.findall(r"\w+|\.", (ROOT / "examples" / "farm.txt").read_text().lower()))
    for line, page_line in zip((cat, rabbit, cow), shown[1].splitlines()[3:6], strict=True):
        assert line.split()[:3] == page_line.split()[:3]
        assert set(line.split()) <= known
        assert line.endswith(" .")
    assert near_cow.startswith("cow is near ")
    assert len(ANIMALS & set(near_cow.split()[3:])) >= 2
    assert "evening" in near_morning or "afternoon" in near_morning
