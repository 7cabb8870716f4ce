"""Arguments of a wrong type, as a user meets them: one error of this package that says what is allowed."""

import numpy as np
import pytest
import torch

from tokenspace import Table, Vocab
from tokenspace.errors import ShapeError, TokenIdError, VocabError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    LMHead,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    initializers,
)
from tokenspace.nn.positional import sinusoidal

TABLE = Table(np.ones((3, 4), np.float32), Vocab(["a", "b", "c"]))
NO_TABLES = ["wordnet", torch.ones(3, 4), np.ones((3, 4)), None, 5]
DTYPES = ["float32", np.float32, 5, float, torch.int64]
TAKE_A_DTYPE = {
    "table": lambda dtype: TokenEmbedding(10, 4, dtype=dtype),
    "from_table": lambda dtype: TokenEmbedding.from_table(TABLE, dtype=dtype),
    "from_pretrained": lambda dtype: TokenEmbedding.from_pretrained(torch.ones(3, 4), dtype=dtype),
    "positions": lambda dtype: LearnedPositionalEmbedding(10, 4, dtype=dtype),
    "segments": lambda dtype: SegmentEmbedding(10, 4, dtype=dtype),
    "encoding": lambda dtype: SinusoidalPositionalEncoding(4, dtype=dtype),
    "sinusoidal": lambda dtype: sinusoidal(torch.arange(3), 4, dtype=dtype),
    "head": lambda dtype: LMHead.untied(10, 4, dtype=dtype),
    "projection": lambda dtype: Projection(4, 4, dtype=dtype),
    "recipe": lambda dtype: TransformerInput.from_recipe("gpt2", vocab_size=10, d_model=4, dtype=dtype),
}
TAKE_A_FLAG = {
    "freeze": lambda flag: TokenEmbedding.from_pretrained(torch.ones(3, 4), freeze=flag),
    "freeze of a table": lambda flag: TokenEmbedding.from_table(TABLE, freeze=flag),
    "_freeze": lambda flag: TokenEmbedding(3, 4, _freeze=flag),
    "bias": lambda flag: LMHead.untied(3, 4, bias=flag),
    "bias of a tied head": lambda flag: LMHead(TokenEmbedding(3, 4), bias=flag),
}


@pytest.mark.parametrize("found", NO_TABLES, ids=lambda found: type(found).__name__)
def test_a_table_is_a_table(found):
    for make in (
        lambda: TokenEmbedding.from_table(found),
        lambda: SegmentEmbedding.from_table(found),
        lambda: initializers.from_pretrained_(torch.empty(3, 4), TABLE.vocab, found),
    ):
        with pytest.raises(ShapeError, match=f"a Table is needed, found {type(found).__name__}"):
            make()


@pytest.mark.parametrize("found", ["abc", None, 5, ["a", "b", "c"]], ids=lambda found: type(found).__name__)
def test_a_vocabulary_is_a_vocab(found):
    with pytest.raises(VocabError, match=f"vocab must be a Vocab, found {type(found).__name__}"):
        initializers.from_pretrained_(torch.empty(3, 4), found, TABLE)


@pytest.mark.parametrize("found", ["abc", None, 5, np.ones((3, 4))], ids=lambda found: type(found).__name__)
def test_an_initializer_fills_a_tensor(found):
    with pytest.raises(ShapeError, match=f"fills a tensor.*found {type(found).__name__}"):
        initializers.normal_(found)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("make", TAKE_A_DTYPE.values(), ids=TAKE_A_DTYPE)
def test_a_dtype_is_a_floating_point_dtype_of_torch(make, dtype):
    with pytest.raises(ShapeError, match=r"dtype must be a floating-point torch\.dtype.*found"):
        make(dtype)


@pytest.mark.parametrize("flag", ["yes", 1, None])
@pytest.mark.parametrize("name", TAKE_A_FLAG)
def test_a_flag_is_true_or_false(name, flag):
    with pytest.raises(ShapeError, match=f"{name.split()[0]} must be True or False; found {flag!r}"):
        TAKE_A_FLAG[name](flag)


@pytest.mark.parametrize(
    ("found", "words"), [("a", "first value: 'a'"), (True, "first value: True"), (1.5, "first value: 1.5")]
)
def test_messages_show_values_as_python_writes_them(found, words):
    with pytest.raises(TokenIdError, match=words):
        TokenEmbedding(3, 4, padding_idx=found)
