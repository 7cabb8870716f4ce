import pytest
import torch

from tokenspace.errors import TokenIdError
from tokenspace.nn import SegmentEmbedding


def test_is_a_table_of_its_own_name():
    language = SegmentEmbedding(3, 4, name="language")
    assert torch.equal(language(torch.tensor([[2, 0]], dtype=torch.int8)), language.weight[[2, 0]][None])
    with pytest.raises(TokenIdError, match=r"1 of 2 language ids is outside this table of 3 rows"):
        language(torch.tensor([[0, 3]]))
    with pytest.raises(TokenIdError, match=r"segment id"):
        SegmentEmbedding(2, 4)(torch.tensor([2]))


def test_from_rows_that_exist_keeps_the_name():
    role = SegmentEmbedding.from_pretrained(torch.eye(2), freeze=False, name="role")
    assert role.id_name == "role id"
    assert role.weight.requires_grad
