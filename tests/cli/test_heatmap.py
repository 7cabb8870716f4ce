import json
import os
import pty
import subprocess
import sys

import numpy as np
import pytest
from rich.cells import cell_len

import tokenspace as ts


@pytest.fixture
def run(commands):
    """``run(*arguments)``: what the command gives in a process of its own."""

    def run(*arguments: str, stdin: str = "", columns: str = "80", **environment: str):
        settings = os.environ | {"COLUMNS": columns} | environment
        run = commands.run("-m", "tokenspace", *arguments, stdin=stdin.encode(), env=settings)
        run.stdout, run.stderr = run.stdout.decode(), run.stderr.decode()
        return run

    return run


def on_terminal(commands, columns: int, *arguments: str, **environment: str) -> str:
    """What a terminal of that width is sent on stdout."""
    import fcntl
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "COLORTERM")}
    settings |= {"TERM": "xterm"} | environment
    with open(os.devnull) as nothing:
        process = commands.start(
            "-m", "tokenspace", *arguments, stdin=nothing.fileno(), stdout=theirs, stderr=2, env=settings
        )
    os.close(theirs)
    seen = b""
    try:
        while block := os.read(ours, 4096):
            seen += block
    except OSError:  # the terminal is gone when the process is
        pass
    os.close(ours)
    assert process.wait() == 0
    return seen.decode().replace("\r\n", "\n")


def test_each_word_is_a_line(run):
    result = run("heatmap", "king", "queen", "cat")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["dim", "king", "queen", "cat", "scale"]
    assert lines[0] == "dim   74 of 100 dimensions, evenly spread"
    assert all(cell_len(line) <= 80 for line in lines)
    row = ts.load("wordnet")["cat"]
    assert row[0] > 0.7
    assert lines[3][6] in "▓█"
    assert run("heatmap", stdin="king\nqueen\n\ncat\n").stdout == result.stdout


def test_json_holds_the_rows(run):
    table = ts.load("wordnet")
    result = run("heatmap", "king", "cat", "--json")
    document = json.loads(result.stdout)
    assert list(document) == ["tokens", "pieces", "ids", "limit", "values"]
    assert document["tokens"] == ["king", "cat"]
    assert document["pieces"] == [["king"], ["cat"]]
    assert document["ids"] == [[table.vocab.id("king")], [table.vocab.id("cat")]]
    np.testing.assert_array_equal(np.float32(document["values"]), np.stack([table["king"], table["cat"]]))


def test_a_text_and_its_unknown_words(run):
    result = run("heatmap", "--text", "The blorfle sat")
    assert result.stderr == "blorfle is not in the vocabulary: its row is the unknown token's\n"
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["dim", "the", "[UNK]", "sat", "scale"]


@pytest.mark.parametrize("verb", [["heatmap", "cat"], ["norms"], ["embed", "the cat", "--steps"]])
@pytest.mark.parametrize("columns", [20, 80])
def test_a_terminal_is_filled_and_never_overrun(commands, verb, columns):
    colored = on_terminal(commands, columns, *verb)
    assert "\x1b[" in colored
    for plain in (
        on_terminal(commands, columns, *verb, NO_COLOR="1"),
        on_terminal(commands, columns, *verb, TERM="dumb"),
    ):
        text = plain.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
        assert "\x1b" not in text
        widths = [cell_len(line) for line in text.splitlines()]
        assert columns - 2 <= max(widths) <= columns


def test_a_pipe_is_80_columns_wide(run):
    lines = run("heatmap", "cat", columns="").stdout.splitlines()
    assert max(map(cell_len, lines)) in range(75, 81)
    assert "\x1b" not in "".join(lines)


def test_a_page(run, tmp_path):
    out = tmp_path / "page.html"
    result = run("heatmap", "king", "queen", "-o", str(out))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{out}: 2 rows × 100 dimensions\n"
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>")
    start = page.index('id="figure">') + len('id="figure">')
    figure = json.loads(page[start : page.index("</script>", start)])
    assert figure["layout"]["yaxis"]["ticktext"] == ["king", "queen"]
    assert run("heatmap", "king", "queen", "--json", "--html", str(out)).stdout.startswith('{"tokens"')


def test_norms(run, minilm_folder, tmp_path):
    document = json.loads(run("norms", "-t", str(minilm_folder), "--json").stdout)
    assert [round(document[key], 3) for key in ("min", "median", "max")] == [0.245, 1.111, 1.694]
    assert document["rows"] == 30_522
    kinds = document["kinds"]
    assert {kind: about["rows"] for kind, about in kinds.items()} == {
        "special": 5, "word-initial": 23_695, "continuation": 5_828, "unused": 994,
    }  # fmt: skip
    assert all(sum(about["counts"]) == about["rows"] for about in kinds.values())
    assert len(document["edges"]) == len(kinds["special"]["counts"]) + 1

    lines = run("norms", "-t", str(minilm_folder)).stdout.splitlines()
    assert lines[3].split()[:5] == ["continuation", "5,828", "0.4323", "1.073", "1.508"]
    result = run("norms", "--html", str(tmp_path / "norms.html"))
    assert result.stdout == f"{tmp_path / 'norms.html'}: 33,003 rows\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["heatmap", "kingg"], "close spellings: 'king'"),
        (["heatmap", "king", "-o", "no/such/place.html"], "there is no directory"),
        (["heatmap", "--text", " "], "the text has no tokens"),
        (["heatmap", "king", "-t", "nothing"], "there is no table 'nothing'"),
        (["norms", "-t", "nothing"], "there is no table 'nothing'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_one_line_and_status_1(run, arguments, message):
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (1, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["heatmap", "king", "--text", "the king"], "not both"),
        (["heatmap", "king", "-o", "page.png"], "ends in .html"),
        (["norms", "-o", "page"], "ends in .html"),
        (["norms", "king"], "unexpected extra argument"),
        (["embed", "a cat", "--steps", "--json"], "give one of them"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_usage_mistakes_are_status_2(run, arguments, message):
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_nothing_on_stdin_is_one_line(run):
    result = run("heatmap")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)


def test_a_missing_plotly_is_one_line_and_no_page(tmp_path):
    (tmp_path / "plotly.py").write_text("raise ImportError('not here')")
    command = [sys.executable, "-m", "tokenspace", "heatmap", "king"]
    without = os.environ | {"PYTHONPATH": str(tmp_path)}
    page = [*command, "-o", str(tmp_path / "page.html")]
    result = subprocess.run(page, env=without, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: a page needs packages that are not installed; "
        "run: pip install 'plotly>=6.0' 'scikit-learn>=1.5'\n"
    )
    assert not (tmp_path / "page.html").exists()
    subprocess.run(command, env=without, capture_output=True, check=True)  # the terminal needs none
