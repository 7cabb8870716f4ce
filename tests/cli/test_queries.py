import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.cli.console import number, score, shown
from tokenspace.subwords import Subwords


def run(*arguments: str, stdin: str | None = None):
    result = CliRunner().invoke(main, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


def lines(*arguments: str, stdin: str | None = None) -> list:
    return [json.loads(line) for line in run(*arguments, "--json", stdin=stdin).stdout.splitlines()]


def test_queen_is_first():
    (hits,) = lines("analogy", "man", "king", "woman")
    assert hits[0]["token"] == "queen"
    assert len(hits) == 10
    assert set(hits[0]) == {"token", "id", "score"}
    assert not {"man", "king", "woman"} & {hit["token"] for hit in hits}


def test_neighbors_json_is_the_librarys_answer():
    (hits,) = lines("neighbors", "cat", "-k", "3", "--metric", "dot", "--center")
    expected = ts.geometry.neighbors(ts.load("wordnet"), "cat", 3, metric="dot", center=True)
    assert hits == [{"token": h.token, "id": h.id, "score": number(h.score)} for h in expected]


def test_the_switches_are_the_librarys():
    table = ts.load("wordnet")
    for options, switches in (
        (["--remove", "2"], {"remove": 2}),
        (["--center"], {"center": True}),
        ([], {}),
    ):
        (hits,) = lines("neighbors", "cat", "-k", "3", *options)
        assert [hit["id"] for hit in hits] == [
            h.id for h in ts.geometry.neighbors(table, "cat", 3, **switches)
        ]
        (hits,) = lines("analogy", "man", "king", "woman", "-k", "3", *options)
        expected = ts.geometry.analogy(table, "man", "king", "woman", 3, **switches)
        assert [hit["score"] for hit in hits] == [number(hit.score) for hit in expected]
        (result,) = lines("similarity", "cat", "dog", *options)
        expected = ts.geometry.similarity(table, "cat", "dog", **switches)
        for metric in ("cosine", "dot", "l2"):
            assert result[metric] == number(getattr(expected, metric))
            drawn = run("similarity", "cat", "dog", "--metric", metric, *options).stdout
            assert drawn.startswith(f"{getattr(expected, metric):.4f}  ")


def test_neighbors_in_the_terminal():
    assert run("neighbors", "three", "-k", "1").stdout == "0.7528  two\n"


def test_each_line_of_stdin_is_asked():
    one, two = lines("neighbors", "-k", "2", stdin="cat\nthree\n")
    assert [one] == lines("neighbors", "cat", "-k", "2")
    assert [two] == lines("neighbors", "three", "-k", "2")
    assert len(lines("analogy", stdin="man king woman\nman king woman\n")) == 2
    assert len(lines("similarity", stdin="cat dog\ncat democracy\n")) == 2


@pytest.mark.parametrize(
    ("verb", "stdin", "message"),
    [
        ("neighbors", "cat\n\nblorfle\n", "line 3 of stdin: 'blorfle' is not one of"),
        ("heatmap", "cat\n\nblorfle\n", "line 3 of stdin: 'blorfle' is not one of"),
        ("analogy", "\nman king woman\nman king blorfle\n", "line 3 of stdin: 'blorfle' is not one of"),
        ("similarity", "\ncat dog\ncat blorfle\n", "line 3 of stdin: 'blorfle' is not one of"),
        ("analogy", "\n\nman king\n", "line 3 of stdin must be A B C: 3 words, found 2"),
        ("similarity", "\n\nman\n", "line 3 of stdin must be A B [C]...: 2 words or more, found 1"),
        ("neighbors", b"cat\n\ncaf\xe9\n", "line 3 of stdin is not UTF-8 text"),
        ("embed", b"cat\n\ncaf\xe9\n", "line 3 of stdin is not UTF-8 text"),
    ],
)
def test_an_error_names_its_line_of_stdin(verb, stdin, message):
    result = CliRunner().invoke(main, [verb], input=stdin, catch_exceptions=False)
    assert result.exit_code == 1
    assert f"Error: {message}" in result.stderr


def test_an_error_about_an_argument_names_no_line():
    result = CliRunner().invoke(main, ["neighbors", "blorfle"], catch_exceptions=False)
    assert result.stderr.startswith("Error: 'blorfle' is not one of")


@pytest.fixture
def tiny(tmp_path):
    """Saves a text table and gives its path."""

    def saved(*lines: str) -> str:
        path = tmp_path / "tiny.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return saved


def test_the_note_on_a_row_without_a_direction_says_why(tiny):
    equal = ("-t", tiny("a 1 0", "b 1 0", "c 1 0"))
    told = "the row of a is the mean row: it has no direction, so every cosine with it is 0\n"
    assert run("neighbors", "a", "--center", *equal).stderr == told
    assert run("similarity", "a", "a", "--center", *equal).stderr == told
    told = "all zeros once the mean row and 1 of its directions are taken out: it has no direction"
    assert told in run("neighbors", "a", "--remove", "1", *equal).stderr
    assert run("neighbors", "a", *equal).stderr == ""


def test_the_note_on_a_zero_row_is_about_the_metric_asked(tiny):
    zero = ("-t", tiny("a 1 0", "d 0 0"))
    cosine = "the row of d is all zeros: it has no direction, so every cosine with it is 0\n"
    notes = {
        "cosine": cosine,
        "dot": "the row of d is all zeros: every inner product with it is 0\n",
        "l2": "",
    }
    for metric, told in notes.items():
        assert run("neighbors", "d", "--metric", metric, *zero).stderr == told
        assert run("similarity", "a", "d", "--metric", metric, *zero).stderr == told
        assert run("similarity", "a", "d", "--metric", metric, "--json", *zero).stderr == cosine


def test_no_score_is_minus_zero(tiny):
    near = ("-t", tiny("a 1 0", "b 1 0", "c -0.00001 1"))
    assert run("neighbors", "a", "-k", "1", "--metric", "l2", *near).stdout == "0.0000  b\n"
    assert run("similarity", "a", "c", *near).stdout == "0.0000  a  c\n"
    assert run("analogy", "b", "b", "c", "-k", "1", *near).stdout == "0.0000  a\n"
    assert str(score(-0.0)) == "0.0"


def test_a_real_checkpoint(minilm_folder):
    (hits,) = lines("neighbors", "king", "-t", str(minilm_folder), "-k", "2")
    assert [(hit["token"], round(hit["score"], 3)) for hit in hits] == [("kings", 0.690), ("queen", 0.627)]


def test_pieces_are_shown(minilm_folder):
    (result,) = lines("similarity", "unhappiness", "happiness", "-t", str(minilm_folder))
    assert result["a"] == ["un", "##ha", "##pp", "##iness"]
    assert result["b"] == ["happiness"]
    assert set(result) == {"cosine", "dot", "l2", "a", "b"}
    shown = run("similarity", "unhappiness", "happiness", "-t", str(minilm_folder)).stdout
    assert "unhappiness = mean(un ##ha ##pp ##iness)" in shown
    answer = run("neighbors", "unhappiness", "-t", str(minilm_folder))
    assert "unhappiness = mean of the rows of un ##ha ##pp ##iness" in answer.stderr


def test_a_word_of_ngrams_shows_the_first_and_their_number(tmp_path):
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    table = ts.Table(rows[1:3], ts.Vocab(["cat", "dog"]), subwords=Subwords(rows, 3, 4))
    ts.save(table, tmp_path / "t.safetensors")
    at = ("-t", str(tmp_path / "t.safetensors"))
    (result,) = lines("similarity", "cats", "a", *at)
    assert result["a"] == ["<ca", "<cat", "cat", "cats", "ats", "ats>", "ts>"]
    assert result["b"] == ["<a>"]
    assert "cats = mean(<ca <cat cat cats ats ats> ts>)  <a>" in run("similarity", "cats", "a", *at).stdout
    assert (
        "elephant = mean(<el <ele ele elep lep leph … 15 in all)"
        in run("similarity", "elephant", "cat", *at).stdout
    )
    answer = run("neighbors", "elephant", *at)
    assert answer.stderr == "elephant = mean of the rows of <el <ele ele elep lep leph … 15 in all\n"
    assert len(answer.stdout.splitlines()) == 2
    assert run("neighbors", "a", *at).stderr == "a = mean of the rows of <a>\n"


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("options", [[], ["--center"], ["--remove", "2"]], ids=" ".join)
def test_more_than_two_words_are_a_matrix_of_their_pairs(metric, options):
    words = ["king", "queen", "prince", "king"]
    drawn = run("similarity", *words, "--metric", metric, *options).stdout.splitlines()
    assert drawn[0].split() == words
    assert [line.split()[0] for line in drawn[1:]] == words
    for line, a in zip(drawn[1:], words, strict=True):
        for value, b in zip(line.split()[1:], words, strict=True):
            pair = run("similarity", a, b, "--metric", metric, *options).stdout
            assert pair == f"{value}  {a}  {b}\n"


def test_a_matrix_as_json_has_all_metrics_of_each_pair():
    words = ["cat", "dog", "democracy"]
    (answer,) = lines("similarity", *words, "--metric", "dot")
    assert list(answer) == ["words", "pieces", "cosine", "dot", "l2"]
    assert (answer["words"], answer["pieces"]) == (words, [[word] for word in words])
    for i, a in enumerate(words):
        for j, b in enumerate(words):
            (pair,) = lines("similarity", a, b)
            assert {name: answer[name][i][j] for name in ("cosine", "dot", "l2")} == {
                name: pytest.approx(pair[name], rel=1e-6) for name in ("cosine", "dot", "l2")
            }


def test_lines_of_two_and_of_more_words_are_answered_in_their_order():
    one, two, three = lines("similarity", stdin="cat dog\n\ncat dog car\nking queen\n")
    assert [one, three] == [*lines("similarity", "cat", "dog"), *lines("similarity", "king", "queen")]
    assert [two] == lines("similarity", "cat", "dog", "car")


def test_columns_stand_straight_under_wide_and_composed_words(minilm_folder):
    answer = run("similarity", "unhappiness", "happy", "東京", "-t", str(minilm_folder))
    assert "unhappiness = mean of the rows of un ##ha ##pp ##iness\n" in answer.stderr
    assert len({cell_len(line) for line in answer.stdout.splitlines()}) == 1


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["cat"], 2, "give A B [C]...: 2 words or more, found 1"),
        (["cat", "dog", "blorfle"], 1, "'blorfle' is not one of"),
    ],
)
def test_a_matrix_that_can_not_be(words, status, message):
    result = CliRunner().invoke(main, ["similarity", *words], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (status, "")
    assert message in result.stderr


def test_several_words_are_composed_too():
    (result,) = lines("similarity", stdin="cat Cat\n")
    assert result["cosine"] == 1
    assert "mean of the rows of new york" in run("neighbors", "New", "York").stderr


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-20, -123456.789])
def test_numbers_are_the_shortest_that_read_back(value):
    import numpy as np

    assert np.float32(number(np.float32(value))) == np.float32(value)
    assert len(str(number(np.float32(1 / 3)))) <= 11


@pytest.mark.parametrize("token", ["king", "##ing", "Ġking", "▁", ",", "日本", "é"])
def test_visible_tokens_are_shown_as_they_are(token):
    assert shown(token) == token


@pytest.mark.parametrize("token", ["", " ", "\n", "\x1b[2J", "\u202e", "\udcff", " a", "\u200b"])
def test_what_can_not_be_seen_is_escaped(token):
    assert shown(token) == repr(token)


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "tokenspace", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert version == f"tokenspace, version {ts.__version__}\n"
