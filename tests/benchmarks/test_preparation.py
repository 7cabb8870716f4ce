"""benchmarks/preparation.py runs, and says what each text came to."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "preparation.py"


@pytest.mark.slow
def test_it_runs_on_small_files_and_writes_nothing(tmp_path, rng):
    corpus = tmp_path / "corpus.txt"
    words = [f"w{n}" for n in rng.zipf(1.5, 40_000)]
    corpus.write_text("\n".join(" ".join(words[k : k + 20]) for k in range(0, len(words), 20)) + "\n")
    command = [sys.executable, str(SCRIPT), "--quick", "--hostile", "--corpus", str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.count(" | ") == 5]
    names = ["the same text 2 times", "all on one line", "not a single space", "one word", "every word once"]
    assert [row[0] for row in rows if row[4] == "yes"] == [*names, "a NUL byte inside"]
    assert rows[-1][5].startswith("hostile.txt is not text: byte ")
    assert "262,144 tokens, 256 sentences, 1 words" in done.stdout
    ours, theirs = (line for line in done.stdout.splitlines() if line.startswith(("| ours", "| theirs")))
    assert ours.split(", ")[-1].split()[0] == theirs.split(", ")[-1].split()[0]  # distinct words
    assert list(tmp_path.iterdir()) == [corpus]
