import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

from tokenspace.errors import TokenIdError
from tokenspace.ids import checked_ids
from tokenspace.nn import TokenEmbedding
from tokenspace.nn.ids import check_ids, check_labels

ROWS = 5
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
BAD = {
    "large": [[1, 7]],
    "negative": [[-1, 2]],
    "label": [[-100]],
    "one axis": [0, 5],
    "no axis": 9,
    "float": [1.5],
    "boolean": [True],
}
bad_ids = pytest.mark.parametrize("ids", [torch.tensor(ids) for ids in BAD.values()], ids=BAD)
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler


def rows_of(weight, ids):
    return F.embedding(check_ids(ids, len(weight)), weight)


@pytest.fixture
def weight():
    return torch.arange(20.0).view(ROWS, 4)


@pytest.fixture
def compiled():
    torch.compiler.reset()
    return functools.partial(torch.compile, fullgraph=True)


@pytest.mark.parametrize("name", INTEGERS)
def test_every_integer_type_selects_its_rows(name, weight):
    ids = torch.tensor([[1, 4]]).to(getattr(torch, name))
    assert torch.equal(rows_of(weight, ids), weight[[1, 4]][None])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_that_torch_takes_are_not_copied(dtype):
    ids = torch.tensor([[0, 4]], dtype=dtype)
    assert check_ids(ids, ROWS) is ids


@bad_ids
@pytest.mark.parametrize("what", ["token id", "position id"])
def test_the_words_are_the_same_as_without_torch(ids, what):
    with pytest.raises(TokenIdError) as theirs:
        checked_ids(ids.numpy(), ROWS, what)
    with pytest.raises(TokenIdError) as ours:
        check_ids(ids, ROWS, what)
    assert str(ours.value) == str(theirs.value)
    with torch.no_grad(), pytest.raises(TokenIdError, match=r"must be integers|outside this table"):
        check_ids(ids, ROWS, what)


def test_bfloat16_ids_and_lists_are_refused():
    with pytest.raises(TokenIdError, match="must be integers, found float32"):
        check_ids(torch.tensor([1.0], dtype=torch.bfloat16), ROWS)
    with pytest.raises(TokenIdError, match="must be a tensor, found list"):
        check_ids([1, 2], ROWS)


def test_no_ids_and_an_empty_table():
    assert check_ids(torch.empty(0, 3, dtype=torch.int64), ROWS).shape == (0, 3)
    with pytest.raises(TokenIdError, match="the table is empty"):
        check_ids(torch.tensor([0]), 0)


@compiles
@pytest.mark.slow
def test_compiled_code_raises_the_same_error_when_it_runs(compiled, weight):
    fast = compiled(rows_of)
    good = torch.tensor([[1, 4]])
    assert torch.equal(fast(weight, good), weight[good])
    for bad in (torch.tensor([[1, 5]]), torch.tensor([[-1, 2]])):
        with pytest.raises(TokenIdError) as eager:
            rows_of(weight, bad)
        with pytest.raises(TokenIdError) as error:
            fast(weight, bad)
        assert str(error.value) == str(eager.value)
    assert torch.equal(fast(weight, good), weight[good])


@compiles
@pytest.mark.slow
def test_compiled_code_takes_small_integers_and_refuses_floats(compiled, weight):
    fast = compiled(rows_of)
    assert torch.equal(fast(weight, torch.tensor([4], dtype=torch.uint8)), weight[[4]])
    with pytest.raises(TokenIdError, match="must be integers"):
        fast(weight, torch.tensor([1.5]))


@compiles
@pytest.mark.slow
def test_an_exported_program_checks_too(weight):
    class Lookup(torch.nn.Module):
        def forward(self, ids):
            return rows_of(weight, ids)

    program = torch.export.export(Lookup(), (torch.tensor([0, 1]),)).module()
    assert torch.equal(program(torch.tensor([4, 2])), weight[[4, 2]])
    with pytest.raises(TokenIdError, match="the first is 5 at position 1"):
        program(torch.tensor([4, 5]))


def test_function_transforms_check_too(weight):
    def loss(weight, ids):
        return rows_of(weight, ids).sum()

    ids = torch.tensor([[1, 1], [3, 0]])
    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, ids)
    assert torch.equal(each.sum(0), torch.func.grad(loss)(weight, ids))
    assert torch.vmap(torch.vmap(functools.partial(rows_of, weight)))(ids).shape == (2, 2, 4)
    for bad in (
        lambda: torch.vmap(functools.partial(rows_of, weight))(ids + 2),
        lambda: torch.func.grad(loss)(weight, ids + 2),
    ):
        with pytest.raises(TokenIdError, match="1 of 4 token ids is outside"):
            bad()


def test_the_operator_is_what_torch_asks_of_one():
    torch.library.opcheck(torch.ops.tokenspace.check_ids, (torch.tensor([[1, 4]]), ROWS, "token id"))
    torch.library.opcheck(torch.ops.tokenspace.check_labels, (torch.tensor([1, -100]), ROWS, -100, 2))


def test_where_there_are_no_values_only_types_are_checked():
    assert check_ids(torch.tensor([9], device="meta", dtype=torch.uint8), ROWS).dtype == torch.int64
    with pytest.raises(TokenIdError, match="must be integers, found float32"):
        check_ids(torch.tensor([1.0], device="meta"), ROWS)
    with FakeTensorMode() as mode:
        assert check_ids(mode.from_tensor(torch.tensor([9])), ROWS).shape == (1,)


def test_labels_come_back_as_rows_with_what_counts():
    labels, counted = check_labels(torch.tensor([[4, -100]], dtype=torch.int16), ROWS)
    assert labels.tolist() == [[4, 0]]
    assert counted.tolist() == [[True, False]]
    assert labels.dtype == torch.int64
    assert check_labels(torch.tensor([-100, 2]), ROWS, masked=0)[0].tolist() == [1, 2]  # not the masked row
    assert check_labels(torch.tensor([9, 2]), ROWS, ignore_index=9)[1].tolist() == [False, True]


def test_a_small_unsigned_label_is_not_taken_for_minus_100():
    with pytest.raises(TokenIdError, match="the first is 156"):  # -100 as uint8
        check_labels(torch.tensor([156], dtype=torch.uint8), ROWS)
    labels, counted = check_labels(torch.tensor([156], dtype=torch.uint8), 200)
    assert labels.tolist() == [156]
    assert counted.all()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1, 5], "1 of 2 labels is outside this table of 5 rows; the first is 5 at position 1"),
        ([-1, 1], "the first is -1"),
        ([0.0], "labels must be integers, found float32"),
        ([True], "labels must be integers, found bool"),
        ([3, -100], "a label is row 3, the frozen padding row"),
    ],
)
def test_bad_labels(labels, words):
    with pytest.raises(TokenIdError, match=words):
        check_labels(torch.tensor(labels), ROWS, masked=3)
    with pytest.raises(TokenIdError, match="must be a tensor, found list"):
        check_labels(labels, ROWS)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_nothing_is_read_back_unless_asked():
    ids = torch.tensor([[1, 4], [7, 0]], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert check_ids(ids, ROWS) is ids
        check_labels(ids, ROWS)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    with pytest.raises(TokenIdError) as error:
        check_ids(ids, ROWS, synchronize=True)
    with pytest.raises(TokenIdError) as theirs:
        checked_ids(np.array([[1, 4], [7, 0]]), ROWS)
    assert str(error.value) == str(theirs.value)


def test_ids_that_change_behind_autograds_back_are_checked_again():
    embedding = TokenEmbedding(5, 3)
    ids = torch.tensor([[1, 4]])
    found = embedding(ids)
    ids.numpy()[0, 1] = 10**9
    with pytest.raises(TokenIdError, match="the first is 1,000,000,000 at"):
        found.sum().backward()
