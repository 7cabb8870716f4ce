"""How often does a table complete an analogy with the word that people expect?

A file in word2vec's questions-words format: ``: name`` begins a section, every other line is a question of
four words, a b c d, "a is to b as c is to d". Blank lines and lines that begin with # are left out.

The search is exact. Both formulas need only the cosines of every row with a, b and c, and thousands of
questions ask about a few hundred words: one matrix product gives the cosines with all of them, and each
question then combines three rows of the product. What float32 finds within ``CLOSE`` of the best is scored
again in float64, so that the answer depends neither on how BLAS orders its sums nor on where a row stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.geometry.analogy import EPSILON, Method
from tokenspace.geometry.cosine import unit_rows
from tokenspace.geometry.evaluation import Case, File, Source, WordRows, fault, numbered_lines, opened, record
from tokenspace.geometry.rows import BLOCK, dots
from tokenspace.geometry.statistics import Interval, share_interval
from tokenspace.shapes import Array, Float, Int
from tokenspace.shown import shown
from tokenspace.table import Table, check_finite

QUESTIONS_AT_ONCE = 2_048
PRODUCT = 2**22  # cosines held at a time, float32: 16 MB
CANDIDATES = 4_096  # scored in float64 at a time
CLOSE = np.float32(1e-3)  # far above the float32 error of a score of unit rows, far below most gaps


class Share(NamedTuple):
    """``correct`` of ``total`` questions answered; ``skipped`` ones have a word outside the vocabulary."""

    name: str
    correct: int
    total: int
    skipped: int

    @property
    def accuracy(self) -> float | None:
        """correct / total; None if no question was answered."""
        return self.correct / self.total if self.total else None

    @property
    def interval(self) -> Interval | None:
        """The accuracy's 95 % confidence interval (Wilson 1927), as if questions were independent."""
        return share_interval(self.correct, self.total)


@dataclass(frozen=True)
class AnalogyScore:
    """How many analogies of a file were completed as expected: overall, by kind, by section in file order.

    ``syntactic`` sums the sections whose name begins with "gram", as in word2vec's; ``semantic`` the rest.
    """

    file: str
    overall: Share
    semantic: Share
    syntactic: Share
    sections: tuple[Share, ...]
    record: dict[str, Any]


class _Question(NamedTuple):
    section: int
    words: tuple[str, str, str, str]


def analogy_questions(
    table: Table,
    file: File,
    method: Method = "3cosadd",
    case: Case = "lower",
    limit: SupportsIndex | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AnalogyScore:
    """Ask the table every question of ``file``, a path or an open binary stream; the answer is the row that
    ``method`` scores best.

    The methods are those of ``analogy``. Every row competes, or the first ``limit``, but for those that
    read as a, b or c (in any case, with ``case="lower"``) and those that no token names; the lowest id wins
    where scores are equal. The answer is right if it reads as d. A question with a word outside the
    vocabulary is skipped; words are never composed here, because an answer must be a row. ``progress(done,
    total)`` hears of every batch of questions.

    With 3CosAdd this counts as gensim's ``evaluate_word_analogies`` does, given the same ``restrict_vocab``.
    gensim has no 3CosMul there, and takes its answer from its five best rows only: the two part where all
    five read as inputs.
    ``TableFormatError`` names the file and line of a question that isn't four words, and the row of the table
    that holds NaN or infinity; ``CorpusError`` if the file is missing, no text, or not one file;
    ``ShapeError`` for a method that is not known or a limit that is no number of rows.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import tokenspace as ts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = folder + "/questions.txt"
    ...     _ = Path(path).write_text(": family\\nman king woman queen\\nboy brother girl sister\\n")
    ...     score = analogy_questions(ts.load("wordnet"), path)
    >>> score.overall.total, score.sections[0].name
    (2, 'family')
    """
    if method not in ("3cosadd", "3cosmul"):
        raise ShapeError(f"method {method!r} is not known; allowed: 3cosadd, 3cosmul")
    words = WordRows(table, case, limit)
    source = opened(file)
    names, questions = _read(source)
    known = [
        question for question in questions if all(words.row(word) is not None for word in question.words)
    ]
    search = _Search(words, method)
    right = []
    for start in range(0, len(known), QUESTIONS_AT_ONCE):
        batch = known[start : start + QUESTIONS_AT_ONCE]
        answers = search.answers([question.words[:3] for question in batch])
        right += [
            answer in search.readings(question.words[3])
            for question, answer in zip(batch, answers, strict=True)
        ]
        if progress is not None:
            progress(start + len(batch), len(known))
    sections = _sections(names, questions, known, right)
    syntactic = [section.name.startswith("gram") for section in sections]
    return AnalogyScore(
        file=source.name,
        overall=_sum("all", sections),
        semantic=_sum("semantic", [s for s, is_form in zip(sections, syntactic, strict=True) if not is_form]),
        syntactic=_sum("syntactic", [s for s, is_form in zip(sections, syntactic, strict=True) if is_form]),
        sections=sections,
        record=record(words, source, method=method),
    )


class _Search:
    """Answers questions from the first rows of a table, each the best-scored row that is no input."""

    def __init__(self, words: WordRows, method: Method):
        self._words = words
        self._table = words.table
        self._method = method
        self._readings: dict[str, list[int]] = {}
        placeholders = words.table.vocab.placeholders()
        self._unnamed = placeholders[placeholders < words.limit]

    def readings(self, word: str) -> list[int]:
        """Every row that reads as ``word``, the one that speaks for it first."""
        if word not in self._readings:
            self._readings[word] = self._words.rows(word)
        return self._readings[word]

    def answers(self, questions: Sequence[tuple[str, ...]]) -> list[int]:
        """The row that answers each question, -1 if none may."""
        asked = np.array([[self.readings(word)[0] for word in question] for question in questions])
        barred = [sorted({i for word in question for i in self.readings(word)}) for question in questions]
        rows, at = np.unique(asked, return_inverse=True)
        at = at.reshape(asked.shape)
        given = self._table.lookup(rows)
        for i, row in zip(rows.tolist(), given, strict=True):
            check_finite(self._table, row[None], i)
        inputs = unit_rows(given.astype(np.float64))
        best = _Best(self._table, inputs, at, self._score)
        step = max(1, min(BLOCK // self._table.dim, PRODUCT // len(rows)))
        for start in range(0, self._words.limit, step):
            stop = min(start + step, self._words.limit)
            block = np.asarray(self._table.weight[start:stop], np.float32)
            check_finite(self._table, block, start)
            near = inputs.astype(np.float32) @ unit_rows(block).T  # (asked rows, rows of the block)
            unnamed = self._unnamed[(self._unnamed >= start) & (self._unnamed < stop)] - start
            for q, (a, b, c) in enumerate(at):
                scores = self._score(near[a], near[b], near[c])
                scores[unnamed] = -np.inf
                for i in barred[q]:
                    if start <= i < stop:
                        scores[i - start] = -np.inf
                best.offer(q, start, scores)
        return best.ids()

    def _score(
        self, near_a: Float[Array, " N"], near_b: Float[Array, " N"], near_c: Float[Array, " N"]
    ) -> Float[Array, " N"]:
        """From the cosines with a, b and c: see ``analogy`` for the two formulas."""
        if self._method == "3cosadd":
            return near_b - near_a + near_c
        a, b, c = ((1 + np.clip(near, -1, 1)) / 2 for near in (near_a, near_b, near_c))
        return b * c / (a + EPSILON)


class _Best:
    """The best candidate of each question so far: by its float64 score, then by its id."""

    def __init__(
        self,
        table: Table,
        inputs: Float[Array, "U D"],
        at: Int[Array, "Q 3"],
        score: Callable[..., Float[Array, " N"]],
    ):
        self._table, self._inputs, self._at, self._score = table, inputs, at, score
        self._rough = np.full(len(at), -np.inf, np.float32)  # the best float32 score seen
        self._exact = np.full(len(at), -np.inf)
        self._ids = np.full(len(at), -1)
        self._waiting: list[tuple[int, Int[Array, " N"]]] = []
        self._waiting_count = 0

    def offer(self, q: int, start: int, scores: Float[Array, " N"]) -> None:
        """Take the rows from ``start`` on as candidates for question ``q``: those that may be the best."""
        top = scores.max()
        if top == -np.inf or top < self._least(q):
            return
        self._rough[q] = max(self._rough[q], top)
        close = np.flatnonzero(scores >= self._least(q)) + start
        self._waiting.append((q, close))
        self._waiting_count += close.size
        if self._waiting_count >= CANDIDATES:
            self._settle()

    def ids(self) -> list[int]:
        """The winners; -1 where there was no candidate."""
        self._settle()
        return self._ids.tolist()

    def _least(self, q: int) -> np.floating[Any]:
        best = self._rough[q]
        return best - CLOSE * max(np.float32(1), abs(best)) if np.isfinite(best) else best

    def _settle(self) -> None:
        waiting, self._waiting, self._waiting_count = self._waiting, [], 0
        if not waiting:
            return
        questions = np.repeat([q for q, _ in waiting], [ids.size for _, ids in waiting])
        ids = np.concatenate([ids for _, ids in waiting])
        exact = np.concatenate(
            [
                self._exact_scores(questions[k : k + CANDIDATES], ids[k : k + CANDIDATES])
                for k in range(0, ids.size, CANDIDATES)
            ]
        )
        order = np.lexsort((ids, -exact, questions))
        first = order[np.unique(questions[order], return_index=True)[1]]
        better = first[
            exact[first] > self._exact[questions[first]]
        ]  # an equal one from before has a lower id
        self._exact[questions[better]] = exact[better]
        self._ids[questions[better]] = ids[better]

    def _exact_scores(self, questions: Int[Array, " N"], ids: Int[Array, " N"]) -> Float[Array, " N"]:
        rows = unit_rows(self._table.lookup(ids).astype(np.float64))
        return self._score(*(dots(rows, self._inputs[self._at[questions, side]]) for side in range(3)))


def _read(source: Source) -> tuple[list[str], list[_Question]]:
    """Section names, and the questions with the section that each belongs to."""
    names: list[str] = []
    questions = []
    for line_number, line in numbered_lines(source):
        if line.startswith(":"):
            names.append(line[1:].strip())
            continue
        words = line.split()
        if len(words) != 4:
            what = f"a question is four words, found {len(words)} (a section begins with a colon)"
            raise fault(source, line_number, what, line)
        if not names:
            names.append("")  # some files have no sections
        questions.append(_Question(len(names) - 1, (words[0], words[1], words[2], words[3])))
    if not questions:
        raise TableFormatError(f"{shown(source.name)} holds no analogies; each line must be four words")
    return names, questions


def _sections(
    names: Sequence[str], questions: Sequence[_Question], known: Sequence[_Question], right: Sequence[bool]
) -> tuple[Share, ...]:
    asked, answered, correct = [0] * len(names), [0] * len(names), [0] * len(names)
    for question in questions:
        asked[question.section] += 1
    for question, is_right in zip(known, right, strict=True):
        answered[question.section] += 1
        correct[question.section] += is_right
    return tuple(Share(name, correct[n], answered[n], asked[n] - answered[n]) for n, name in enumerate(names))


def _sum(name: str, sections: Sequence[Share]) -> Share:
    return Share(
        name,
        sum(section.correct for section in sections),
        sum(section.total for section in sections),
        sum(section.skipped for section in sections),
    )
