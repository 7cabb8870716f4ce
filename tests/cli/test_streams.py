"""Streams that are closed, full, or for writing: one line at most, the right status, no traceback."""

import subprocess
import sys

import pytest

TOKENSPACE = f"{sys.executable} -m tokenspace"
VERBS = {
    "embed": "embed 'the cat'",
    "neighbors": "neighbors king",
    "neighbors --json": "neighbors king --json",
    "analogy": "analogy man king woman",
    "similarity": "similarity king queen",
    "heatmap": "heatmap king queen",
    "norms": "norms",
    "params": "params gpt2",
    "convert": "convert wordnet out.vec",
    "train": "train text.txt -o out.safetensors --epochs 1",
    "explore": "explore --no-browser",
    "--help": "--help",
    "--version": "--version",
    "explore --help": "explore --help",
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 50)
    return tmp_path


def shell(folder, command):
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_closed_stdout_is_one_line_before_anything_is_done(verb, folder):
    done = shell(folder, f"exec {TOKENSPACE} {verb} >&-")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: stdout is closed")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["text.txt"]


@pytest.mark.parametrize(
    "verb", ["neighbors king", "neighbors king --json", "explore --no-browser", "--help"]
)
def test_a_full_stdout_is_one_line(verb, folder):
    done = shell(folder, f"exec {TOKENSPACE} {verb} > /dev/full")
    assert (done.returncode, done.stderr) == (1, "Error: stdout: No space left on device\n")


@pytest.mark.parametrize(
    "verb", ["neighbors king -k 30000", "neighbors king", "--help", "explore --no-browser"]
)
def test_a_reader_that_has_seen_enough_is_no_error(verb, folder):
    done = shell(folder, f"{TOKENSPACE} {verb} | true; exit ${{PIPESTATUS[0]}}")
    assert done.stderr == ""
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full", "2> >(exit)"], ids=["closed", "full", "unread"])
@pytest.mark.parametrize(
    ("verb", "status"),
    [("neighbors king -k 1", 0), ("neighbors qqzzqqxjw", 1), ("train text.txt -o out.safetensors", 0)],
)
def test_a_stderr_that_takes_nothing_changes_neither_answer_nor_status(verb, status, stderr, folder):
    done = shell(folder, f"exec {TOKENSPACE} {verb} {stderr}")
    assert done.returncode == status
    assert bool(done.stdout) == (status == 0)
    assert (folder / "out.safetensors").exists() == verb.startswith("train")


@pytest.mark.parametrize("verb", ["embed", "neighbors", "similarity", "train - -o out.safetensors"])
@pytest.mark.parametrize(
    "stdin", ["<&-", "0> written", "< /dev/null"], ids=["closed", "for writing", "empty"]
)
def test_a_stdin_that_gives_nothing_is_one_error(verb, stdin, folder):
    done = shell(folder, f"exec {TOKENSPACE} {verb} {stdin}")
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Error: ") == 1
    assert done.stdout == ""
    assert not (folder / "out.safetensors").exists()


def test_all_closed_is_status_1(folder):
    assert shell(folder, f"exec {TOKENSPACE} neighbors king <&- >&- 2>&-").returncode == 1


@pytest.mark.parametrize(
    "host",
    ["..bad", "", "300.1.1.1", "::g", "a b", "x" * 300, "http://localhost", "127.0.0.1:80", "bücher.invalid",
     "192.0.2.1", "fe80::1", "*", "\udcff"],
)  # fmt: skip
def test_a_host_that_is_none_is_one_line(host, folder):
    command = [*TOKENSPACE.split(), "explore", "--no-browser", "--host", host]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(("Error: can't listen at ", "Error: no host was named"))
    assert done.stderr.count("\n") == 1
