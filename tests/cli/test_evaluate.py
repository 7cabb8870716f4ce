import json
import subprocess
import sys
from pathlib import Path

import gensim.test.utils
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import tokenspace as ts
from tokenspace.cli import main

WORDSIM = gensim.test.utils.datapath("wordsim353.tsv")
SIMLEX = gensim.test.utils.datapath("simlex999.txt")


@pytest.fixture
def questions(write):
    return str(
        write(
            "questions.txt",
            ": family\nman king woman queen\nman king woman blorfle\n: gram1-x\none two three four\n",
        )
    )


def run(*arguments: str, status: int = 0):
    result = CliRunner().invoke(main, ["evaluate", *arguments], catch_exceptions=False)
    assert result.exit_code == status, result.stderr
    return result


def document(*arguments: str) -> dict:
    return json.loads(run(*arguments, "--json").stdout)


def test_the_json_is_the_librarys_answer(questions):
    found = document("--pairs", WORDSIM, "--analogies", questions, "--relations")
    table = ts.load("wordnet")
    pairs = ts.geometry.word_pairs(table, WORDSIM)
    analogies = ts.geometry.analogy_questions(table, questions)
    relations = ts.geometry.relations(table)
    assert list(found) == ["pairs", "analogies", "relations", "relations_sha256", "record"]
    assert found["pairs"] == [
        {
            "file": WORDSIM,
            "spearman": pairs.spearman,
            "used": 337,
            "skipped": 16,
            "interval": list(pairs.interval),
            "composed": 0,
            "header": None,
            "sha256": pairs.record["file"]["sha256"],
        }
    ]
    (answered,) = found["analogies"]
    assert (answered["file"], answered["total"], answered["skipped"]) == (questions, 2, 1)
    assert answered["accuracy"] == analogies.overall.accuracy
    assert answered["correct"] == sum(section["correct"] for section in answered["sections"])
    assert [section["name"] for section in answered["sections"]] == ["family", "gram1-x"]
    assert set(answered["sections"][0]) == {"name", "accuracy", "correct", "total", "skipped", "interval"}
    assert (answered["semantic"]["total"], answered["syntactic"]["total"]) == (1, 1)
    assert found["relations"]["antonyms"] == {
        "mean": relations["antonyms"].mean,
        "n": 252,
        "skipped": 0,
        "interval": list(relations["antonyms"].interval),
    }
    assert found["record"] == {
        "tokenspace": ts.__version__,
        "table": {"sha256": ts.geometry.table_sha256(table), "rows": 33_003, "dim": 100, "dtype": "float16"},
        "settings": {"case": "lower", "limit": None, "compose": False, "method": "3cosadd"},
    }


def test_without_relations_there_is_no_such_key():
    assert list(document("--pairs", SIMLEX)) == ["pairs", "analogies", "record"]


def test_each_option_reaches_the_library(minilm_folder, write, questions):
    file = str(write("pairs", "Happiness unhappiness 1\nhappiness sadness 2\nThe king 3\n"))
    options = (
        "--limit",
        "20000",
        "--case",
        "keep",
        "--compose",
        "--method",
        "3cosmul",
        "-t",
        str(minilm_folder),
    )
    found = document("--pairs", file, "--analogies", questions, *options)
    assert found["record"]["settings"] == {
        "case": "keep",
        "limit": 20_000,
        "compose": True,
        "method": "3cosmul",
    }
    assert found["pairs"][0]["composed"] > 0
    foot = run("--pairs", file, *options).stdout.splitlines()[-1]
    assert "; case keep, first 20,000 rows, unknown words composed; tokenspace " in foot
    assert "composed" not in run("--pairs", file).stdout
    assert document("--pairs", file)["pairs"][0]["composed"] == 0


def test_options_take_lists_and_may_be_repeated(questions):
    one = document("--pairs", WORDSIM, SIMLEX, "--analogies", questions, questions, "--json")
    two = document("--pairs", WORDSIM, "--analogies", questions, "--pairs", SIMLEX, "--analogies", questions)
    assert one == two
    assert [pairs["file"] for pairs in one["pairs"]] == [WORDSIM, SIMLEX]
    assert len(one["analogies"]) == 2


def test_the_terminals_table(questions):
    text = run("--pairs", WORDSIM, "--analogies", questions, "--relations").stdout
    lines = [line.split() for line in text.splitlines()]
    assert ["wordsim353.tsv", "0.6662", "0.595", "to", "0.727", "337", "16"] in lines
    assert ["family", "100.00", "20.7", "to", "100.0", "1", "1", "1"] in lines
    assert ["semantic", "100.00", "20.7", "to", "100.0", "1", "1", "1"] in lines
    assert any(line[:1] == ["synonyms"] and line[-2:] == ["300", "0"] for line in lines)
    assert max(map(len, text.splitlines())) <= 80
    assert f"table {ts.geometry.table_sha256(ts.load('wordnet'))[:16]}…: 33,003 × 100 float16" in text


NAMES = {"long": "n" * 240, "CJK": "猫" * 80, "short": "pairs"}


@pytest.mark.parametrize("columns", [20, 80, 200, None])
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_any_width_shows_every_number_whatever_the_names(commands, tmp_path, name, columns):
    (tmp_path / name).write_text(Path(WORDSIM).read_text("utf-8"), "utf-8")
    section = 30 * name
    questions = f": {section}\nman king woman queen\n: gram1-{section}\none two three four\n"
    (tmp_path / "questions").write_text(questions, "utf-8")
    command = ("-m", "tokenspace", "evaluate", "--pairs", name, "--analogies", "questions")
    environment = {"PATH": "", "PYTHONUTF8": "1"} | ({"COLUMNS": str(columns)} if columns else {})
    run = commands.run(*command, env=environment, cwd=tmp_path)
    lines = run.stdout.decode().splitlines()
    assert lines[0].split()[-6:] == ["Spearman", "95", "%", "interval", "used", "skipped"]
    assert lines[1].split()[-6:] == ["0.6662", "0.595", "to", "0.727", "337", "16"]
    assert lines[3].split()[-7:] == ["%", "95", "%", "interval", "correct", "of", "skipped"]
    assert lines[7].split()[-7:] == ["100.00", "20.7", "to", "100.0", "1", "1", "0"]
    assert lines[8].split()[-7:] == ["0.00", "0.0", "to", "79.3", "0", "1", "0"]
    grids = (lines[:2], lines[3:9])
    for grid in grids:
        assert len({cell_len(line) for line in grid}) == 1  # one under the other
    if columns != 20:
        assert max(map(cell_len, lines)) <= (columns or 80)
    assert ("…" in lines[1]) == (name != "pairs")
    assert name[:3] in lines[1]


def test_a_name_cannot_steer_the_terminal(tmp_path):
    name = "\x1b[31mred\r"
    (tmp_path / name).write_text("one,two,score\nblorfle,cat,1\n")
    result = run("--pairs", str(tmp_path / name), "--pairs", str(tmp_path / name))
    assert "\\x1b[31mred\\r" in result.stdout
    assert "\\x1b[31mred\\r" in result.stderr
    assert not {"\x1b", "\r"} & set(result.stdout + result.stderr)


def test_a_list_may_come_from_stdin_or_a_pipe(questions):
    content = Path(WORDSIM).read_bytes()
    (plain,) = document("--pairs", WORDSIM)["pairs"]
    piped = CliRunner().invoke(main, ["evaluate", "--json", "--pairs", "-"], input=content)
    (found,) = json.loads(piped.stdout)["pairs"]
    assert found == plain | {"file": found["file"]}
    two = CliRunner().invoke(main, ["evaluate", "--json", "--pairs", SIMLEX, "-"], input=content)
    assert [pairs["used"] for pairs in json.loads(two.stdout)["pairs"]][1] == plain["used"]
    both = CliRunner().invoke(main, ["evaluate", "--pairs", "-", "--analogies", questions], input=content)
    assert "questions.txt" in both.stdout
    command = [sys.executable, "-m", "tokenspace", "evaluate", "--json", "--pairs", "/dev/stdin", "-"]
    for file in command[-2:]:
        run = subprocess.run([*command[:-2], file], input=content, capture_output=True, check=True)
        (found,) = json.loads(run.stdout)["pairs"]
        assert found == plain | {"file": "/dev/stdin" if file != "-" else "stdin"}


def test_stdin_is_read_once():
    assert "- was given 2 times" in run("--pairs", "-", "--analogies", "-", status=2).stderr


def test_what_was_not_measured_is_a_dash(write):
    result = run("--pairs", str(write("pairs", "blorfle cat 1\n")))
    assert result.stdout.splitlines()[1].split() == ["pairs", "–", "–", "0", "1"]
    assert result.stderr.endswith("pairs: nothing was measured: each pair has a word that the table lacks\n")
    unknown = str(write("unknown", "man king woman blorfle\n"))
    assert "unknown: nothing was measured: each question" in run("--analogies", unknown).stderr
    assert "relations: nothing was measured" in run("--relations", "--limit", "3").stderr
    assert "nothing was measured" not in run("--pairs", WORDSIM, "--relations").stderr
    found = document("--pairs", str(write("pairs", "blorfle cat 1\n")))
    assert (found["pairs"][0]["spearman"], found["pairs"][0]["interval"]) == (None, None)


def test_a_header_is_said_on_stderr(write):
    file = str(write("pairs", "one,two,score\ncat,dog,3\ncat,car,1\n"))
    result = run("--pairs", file, "--json")
    assert result.stderr == f"{file}: the first line was taken as a header: one,two,score\n"
    assert json.loads(result.stdout)["pairs"][0]["header"] == "one,two,score"


@pytest.mark.parametrize(
    "arguments", [[], ["--json"], ["--pairs"], ["stray"], ["--pairs", WORDSIM, "--limit", "0"]]
)
def test_usage_mistakes(arguments):
    assert run(*arguments, status=2).stdout == ""


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--pairs", "a\tb\t1\na\tb\n", "line 2: a pair is two words and a score, found 2 columns"),
        ("--pairs", "a\tb\tnan\n", "line 1: the score must be a finite number, found 'nan'"),
        ("--analogies", ": s\na b c\n", "line 2: a question is four words, found 3"),
        ("--analogies", "", "holds no analogies"),
    ],
)
def test_an_error_is_one_line_and_nothing_else(write, option, content, message):
    file = str(write("bad\nname", content))
    result = run("--pairs", SIMLEX, option, file, "--relations", status=1)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_file_is_an_error():
    assert "there is no file nowhere.tsv" in run("--pairs", "nowhere.tsv", status=1).stderr
