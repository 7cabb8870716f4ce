import pytest

from tokenspace.errors import CorpusError, VocabError
from tokenspace.tokenizer_errors import raised_as

PanicException = type("PanicException", (BaseException,), {})


@pytest.mark.parametrize("error", [Exception("index 2"), PanicException("index 2")])
def test_the_librarys_errors_and_panics_become_ours(error):
    with pytest.raises(VocabError, match=r"^it broke: index 2$"), raised_as(VocabError, "it broke"):
        raise error


@pytest.mark.parametrize("error", [CorpusError("ours"), MemoryError(), KeyboardInterrupt(), SystemExit()])
def test_all_else_passes(error):
    with pytest.raises(type(error)), raised_as(VocabError, "it broke"):
        raise error
