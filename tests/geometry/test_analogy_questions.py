import importlib

import gensim.test.utils
import numpy as np
import pytest
from gensim.models import KeyedVectors

import tokenspace as ts
from tokenspace.errors import CorpusError, TableFormatError
from tokenspace.geometry import analogy, analogy_questions
from tokenspace.table import Table
from tokenspace.vocab import Vocab

MODULE = importlib.import_module("tokenspace.geometry.analogy_questions")  # the function has its name
QUESTIONS = gensim.test.utils.datapath("questions-words.txt")


@pytest.fixture(scope="module")
def builtin():
    return ts.load("wordnet")


def every(step: int, folder):
    """Every so many questions, of all sections."""
    with open(QUESTIONS, encoding="utf-8") as file:
        lines = [line for n, line in enumerate(file) if line.startswith(":") or n % step == 0]
    path = folder / "some.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def some_questions(tmp_path_factory):
    return every(40, tmp_path_factory.mktemp("questions"))


def gensims(table: Table, file, **rules) -> dict[str, tuple[int, int]]:
    """Section -> correct, answered."""
    vectors = KeyedVectors(table.dim)
    vectors.add_vectors(list(table.vocab), np.asarray(table.weight, np.float32))
    with np.errstate(invalid="ignore"):  # it divides zero rows by zero
        _, sections = vectors.evaluate_word_analogies(str(file), **rules)
    counts = {s["section"]: (len(s["correct"]), len(s["correct"]) + len(s["incorrect"])) for s in sections}
    del counts["Total accuracy"]
    return counts


def ours(table: Table, file, **rules) -> dict[str, tuple[int, int]]:
    score = analogy_questions(table, file, **rules)
    return {section.name: (section.correct, section.total) for section in score.sections}


def test_minilms_google_analogies(minilm):
    heard = []
    score = analogy_questions(minilm, QUESTIONS, progress=lambda done, total: heard.append((done, total)))
    assert (score.overall.total, score.overall.skipped) == (12_154, 7_390)
    shares = (score.overall, score.semantic, score.syntactic)
    assert [round(100 * share.accuracy, 2) for share in shares] == [75.46, 73.45, 76.54]
    assert score.overall.correct == score.semantic.correct + score.syntactic.correct
    assert sum(section.correct for section in score.sections) == score.overall.correct
    low, high = score.overall.interval
    assert low < score.overall.accuracy < high < low + 0.02
    assert heard[-1] == (12_154, 12_154)
    assert [done for done, _ in heard] == sorted({done for done, _ in heard})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["builtin", "minilm"])
def test_more_of_the_sections_is_gensims(request, name, tmp_path):
    """All of them were equal, too; gensim takes minutes for that."""
    table, file = request.getfixturevalue(name), every(20, tmp_path)
    assert ours(table, file) == gensims(table, file)


@pytest.mark.parametrize("limit", [None, 8000])
@pytest.mark.parametrize("name", ["builtin", "minilm"])
def test_sections_are_gensims(request, name, limit, some_questions):
    table = request.getfixturevalue(name)
    wanted = gensims(table, some_questions, restrict_vocab=limit or 300_000)
    assert ours(table, some_questions, limit=limit) == wanted
    assert sum(correct for correct, _ in wanted.values()) > 10


@pytest.mark.parametrize("case", ["lower", "keep"])
def test_where_case_alone_differs_it_is_gensims_too(write, rng, case):
    tokens = list(dict.fromkeys(f"{'aA'[int(n % 3 == 1)]}{n // 3}" for n in range(60)))
    table = Table(rng.normal(size=(len(tokens), 3)).astype(np.float32), Vocab(tokens))
    picks = rng.integers(0, 20, size=(400, 4))
    file = write("questions", ": all\n" + "".join("a{} A{} a{} a{}\n".format(*row) for row in picks))
    wanted = gensims(table, file, case_insensitive=case == "lower")
    assert ours(table, file, case=case) == wanted
    assert wanted["all"][0] > 3


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize(("product", "block", "batch"), [(2**22, 2**22, 2048), (64, 64, 3)])
def test_answers_are_those_of_a_plain_search(write, rng, monkeypatch, method, product, block, batch):
    """However rows and questions are cut into blocks, it is what ``analogy`` answers to each alone."""
    monkeypatch.setattr(MODULE, "PRODUCT", product)
    monkeypatch.setattr(MODULE, "BLOCK", block)
    monkeypatch.setattr(MODULE, "QUESTIONS_AT_ONCE", batch)
    table = Table(rng.normal(size=(40, 5)).astype(np.float32), Vocab([f"w{i}" for i in range(40)]))
    picks = [rng.choice(40, 3, replace=False) for _ in range(60)]
    asked = [[f"w{i}" for i in pick] for pick in picks]
    answers = [analogy(table, *words, k=1, method=method)[0].token for words in asked]
    lines = [f"{' '.join(words)} {answer}\n" for words, answer in zip(asked, answers, strict=True)]
    score = analogy_questions(table, write("questions", "".join(lines)), method)
    assert (score.overall.correct, score.overall.total) == (60, 60)


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize("product", [2**22, 500])
def test_of_equal_rows_the_first_answers_wherever_they_stand(write, rng, monkeypatch, method, product):
    monkeypatch.setattr(MODULE, "PRODUCT", product)
    rows = rng.normal(size=(3000, 33)).astype(np.float32)
    twins = rng.permutation(np.arange(3, 3000))[:60]
    rows[twins] = rows[1] - 0.9 * rows[0] + rows[2]  # near every answer
    tokens = [f"w{i}" for i in range(3000)]
    table = Table(rows, Vocab(tokens))
    file = write("questions", f"w0 w1 w2 w{twins.min()}\nw0 w2 w1 w{twins.min()}\n")
    assert analogy_questions(table, file, method).overall.correct == 2


@pytest.mark.parametrize("method", ["3cosadd", "3cosmul"])
@pytest.mark.parametrize("seed", range(5))
def test_what_float32_cannot_tell_apart_float64_does(write, seed, method):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(2000, 65)).astype(np.float32)
    rows[3:] = rows[1] - 0.9 * rows[0] + rows[2]
    rows[3:] *= 1 + 1e-6 * rng.normal(size=(1997, 65)).astype(np.float32)
    table = Table(rows, Vocab([f"w{i}" for i in range(2000)]))
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    a, b, c = unit[:3] @ unit[3:].T
    score = b - a + c if method == "3cosadd" else (1 + b) * (1 + c) / (1 + a + 0.002)
    assert np.ptp(score) < 1e-5
    answer = 3 + int(np.argmax(score))
    assert analogy_questions(table, write("questions", f"w0 w1 w2 w{answer}\n"), method).overall.correct == 1


def test_a_table_of_equal_rows_has_an_answer_too(write, monkeypatch):
    monkeypatch.setattr(MODULE, "CANDIDATES", 7)
    monkeypatch.setattr(MODULE, "PRODUCT", 15)
    table = Table(np.ones((50, 2), np.float32), Vocab([f"w{i}" for i in range(50)]))
    assert analogy_questions(table, write("q", "w0 w2 w3 w1\nw0 w1 w2 w3\n")).overall.correct == 2


def test_rows_that_read_as_an_input_are_no_answers(write):
    rows = np.array([[1, 0], [0, 1], [0.1, 1], [0.3, 1], [0.1, 1]], np.float32)
    table = Table(rows, Vocab(["a", "b", "B", "d", "[unused-row-4]"]))
    file = write("questions", "a b a d\n")  # b - a + a = b: nearest is B, then the row that no token names
    assert analogy_questions(table, file).overall.correct == 1
    assert analogy_questions(table, write("other", "a b a B\n")).overall.correct == 0
    assert analogy_questions(table, write("kept", "a b a B\n"), case="keep").overall.correct == 1


def test_where_every_row_is_an_input_nothing_answers(write):
    table = Table(np.eye(3, dtype=np.float32), Vocab(["a", "b", "c"]))
    share = analogy_questions(table, write("questions", "a b c a\n")).overall
    assert (share.correct, share.total) == (0, 1)


def test_an_answer_counts_in_any_case_and_form(write):
    rows = np.array([[1, 0], [0, 1], [0.1, 1], [0.2, 1]], np.float32)
    table = Table(rows, Vocab(["Ġa", "Ġb", "ĠParis", "Ġparis"], encoding="byte-level"))
    assert analogy_questions(table, write("questions", "a b a PARIS\n")).overall.correct == 1
    assert analogy_questions(table, write("questions", "a b a paris\n"), case="keep").overall.correct == 0


def test_zero_rows_have_cosine_zero(write):
    rows = np.array([[1, 0], [0, 1], [0, 0], [0, -1], [0.1, -1]], np.float32)
    table = Table(rows, Vocab(["a", "b", "zero", "d", "e"]))
    score = analogy_questions(table, write("questions", "a b a zero\nzero b zero zero\n"))
    assert (score.overall.correct, score.overall.total) == (1, 2)  # against d and e, 0 is the best


def test_sections_kinds_and_counts(write, builtin):
    file = write(
        "questions",
        "man king woman queen\n"  # before any section
        ": family\n\nboy girl man woman\nBoy Girl Man Blorfle\n# a comment\n"
        ": empty\n:gram1-x\nbad worse good better\n: gram1-x\none two three four\n",
    )
    score = analogy_questions(builtin, file)
    assert [(s.name, s.total, s.skipped) for s in score.sections] == [
        ("", 1, 0),
        ("family", 1, 1),
        ("empty", 0, 0),
        ("gram1-x", 1, 0),
        ("gram1-x", 1, 0),
    ]
    assert (score.sections[2].accuracy, score.sections[2].interval) == (None, None)
    assert (score.semantic.total, score.semantic.skipped) == (2, 1)
    assert (score.syntactic.total, score.syntactic.skipped) == (2, 0)
    assert score.sections[0].accuracy == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (": s\na b c d\na b c\n", "line 3: a question is four words, found 3 .*; the line is 'a b c'"),
        ("a b c d e\n", "line 1: a question is four words, found 5"),
        ("x" * 10_000 + "\n", "line 1: .* found 1"),
        ("", "holds no analogies"),
        (": a section\n# alone\n", "holds no analogies"),
    ],
)
def test_what_is_no_question_is_named_by_file_and_line(builtin, write, content, message):
    with pytest.raises(TableFormatError, match=message) as error:
        analogy_questions(builtin, write("questions.txt", content))
    assert "questions.txt" in str(error.value)
    assert len(str(error.value)) < 500


def test_a_missing_file_is_named(builtin, tmp_path):
    with pytest.raises(CorpusError, match="nowhere"):
        analogy_questions(builtin, tmp_path / "nowhere")


@pytest.mark.parametrize("broken", [0, 4])  # an input, or a candidate
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_broken_row_is_told(write, broken, value):
    rows = np.eye(5, dtype=np.float32)
    rows[broken, 1] = value
    table = Table(rows, Vocab(list("abcde")))
    with pytest.raises(TableFormatError, match=f"row {broken} of the table"):
        analogy_questions(table, write("questions", "a b c d\n"))


def test_the_record_holds_the_method(builtin, some_questions):
    record = analogy_questions(builtin, some_questions, "3cosmul", limit=5000).record
    assert record["settings"] == {"case": "lower", "limit": 5000, "method": "3cosmul"}
    assert record["file"]["name"] == "some.txt"
    assert record["table"]["sha256"] == ts.geometry.table_sha256(builtin)


def test_inputs_are_looked_up_as_words_are(minilm, write):
    lower, capital = (
        write(name, ": x\n" + name) for name in ("man king woman queen", "Man KING Woman Queen")
    )
    assert analogy_questions(minilm, lower).overall == ("all", 1, 1, 0)
    assert analogy_questions(minilm, capital).overall == ("all", 1, 1, 0)
    assert analogy_questions(minilm, capital, case="keep").overall == ("all", 0, 0, 1)
