import pytest

from tokenspace.vocab import Vocab
from tokenspace.web.spelling import Spellings


@pytest.mark.parametrize(
    ("encoding", "tokens"),
    [
        ("word", ["king", "kings", "King", "looking", "queen"]),
        ("wordpiece", ["##king", "kings", "King", "looking", "queen"]),
        ("byte-level", ["Ġking", "kings", "ĠKing", "Ġlooking", "queen"]),
        ("sentencepiece", ["▁king", "kings", "▁King", "looking", "▁queen"]),
    ],
)
def test_marks_and_case_play_no_part(encoding, tokens):
    spellings = Spellings(Vocab(tokens, encoding=encoding))
    assert spellings.complete("kIn") == [0, 2, 1, 3]
    assert spellings.complete("kIn", n=2) == [0, 2]
    assert spellings.complete("zz") == []


def test_byte_level_tokens_are_found_as_they_read():
    assert Spellings(Vocab(["Ġcaf", "ĠcafÃ©"], encoding="byte-level")).complete("café") == [1]


def test_rows_without_a_token_are_not_offered():
    assert Spellings(Vocab(["[unused-row-0]", "[unused-row-9]"])).complete("unused") == [1]


def test_a_token_that_is_a_mark_alone_is_itself():
    assert Spellings(Vocab(["▁", "▁a"], encoding="sentencepiece")).complete("▁") == [0]
