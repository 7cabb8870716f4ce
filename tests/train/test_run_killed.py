"""A run that is killed at any moment goes on from what it saved, to the same bits; see killed.py."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "killed.py"


@pytest.fixture
def root(tmp_path):
    rng = random.Random(1)
    words = [f"w{n}" for n in range(400)]
    weights = [1 / (n + 1) for n in range(400)]
    lines = (" ".join(rng.choices(words, weights, k=12)) for _ in range(1500))
    (tmp_path / "text.txt").write_text("\n".join(lines))
    (tmp_path / "pairs.tsv").write_text("w1 w2 3\nw3 w9 1\nw5 w6 2\n")
    return tmp_path


def kills(root, how: str) -> list[dict]:
    command = [sys.executable, PROGRAM, root, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict]) -> None:
    """After each kill and one ``resume``: the same files, the same table, the same losses and scores."""
    for kill in found:
        assert kill["same"] == [True, True, True], kill


def test_killed_at_20_random_moments_a_run_ends_with_the_same_bits(root):
    found = kills(root, "random")
    assert len(found) == 20
    assert all(kill["killed"] for kill in found)
    assert any(kill["pieces"] is None for kill in found)
    assert any(kill["pieces"] for kill in found)
    check(found)


@pytest.mark.slow
def test_killed_at_each_kind_of_step_a_run_ends_with_the_same_bits(root):
    found = kills(root, "each")
    assert all(kill["killed"] for kill in found)
    steps = {kill["at"] for kill in found}
    assert steps >= {
        "os.mkdir t.training", "counting", "encoding", "os.rename t.training/corpus/corpus.json", "training",
        "open t.training/loss.jsonl", "os.rename t.loss.jsonl",
        "os.mkdir t.training/.state.safetensors.partial",
        "os.rename t.training/state.safetensors", "os.mkdir t.training/.table.safetensors.partial",
        "os.rename t.safetensors", "os.remove t.training/settings.json", "os.rmdir t.training",
    }  # fmt: skip
    check(found)
