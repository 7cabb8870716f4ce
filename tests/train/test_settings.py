"""What training refuses to be told, in one clear line each."""

import numpy as np
import pytest

from tokenspace.errors import ShapeError
from tokenspace.train.settings import _WHOLE, checked, default_epochs, default_min_count, real, whole


@pytest.mark.parametrize("value", [0, -1, 513, 2.0, True, None, "5", float("nan")], ids=repr)
def test_a_whole_number_must_be_one_and_in_range(value):
    with pytest.raises(ShapeError, match="window must be a whole number from 1 to 512, found "):
        whole("window", value)


def test_any_integer_type_is_taken():
    assert whole("dim", np.uint8(7)) == 7
    assert whole("seed", 0) == 0


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf"), None, "a", "0.1", True], ids=repr)
def test_a_real_number_must_be_one_and_in_range(value):
    with pytest.raises(ShapeError, match="sample must be a number from 0 to 1, found "):
        real("sample", value, 0, 1)


def test_defaults_follow_the_size_of_the_corpus():
    assert [default_min_count(10**power) for power in (0, 4, 5, 6, 7, 8, 12)] == [1, 1, 2, 3, 4, 5, 5]
    assert [default_epochs(tokens) for tokens in (1, 400_000, 400_001, 2_000_000, 10**9)] == [
        50,
        50,
        50,
        10,
        5,
    ]


def settings(**given):
    defaults = {
        "dim": None, "epochs": None, "window": 5, "negative": 5, "sample": 1e-3, "min_count": None,
        "lowercase": True, "words": "word", "threads": 1, "seed": 1, "alpha": None, "min_alpha": 1e-4,
        "shuffle": True, "tokenizer_given": False, "init_dim": None,
    }  # fmt: skip
    return checked(**(defaults | given))


def test_the_learning_rate_is_higher_for_few_epochs_unless_there_are_rows_to_keep():
    assert [settings(epochs=epochs).alpha for epochs in (1, 2, 5, 9, None)] == [
        0.1,
        0.0625,
        0.025,
        0.025,
        0.025,
    ]
    assert settings(epochs=1, init_dim=100).alpha == 0.025
    assert settings(epochs=1, alpha=0.03).alpha == 0.03


def test_settings_state_shuffling_only_where_there_is_any():
    assert settings().described()["shuffle"] is True
    assert "shuffle" not in settings(shuffle=False).described()
    with pytest.raises(ShapeError, match="shuffle must be True or False, found 1"):
        settings(shuffle=1)


def test_the_command_allows_what_the_settings_do():
    from tokenspace.cli.train import train

    ranges = {
        option.name: (option.type.min, option.type.max) for option in train.params if option.name in _WHOLE
    }
    assert ranges == _WHOLE
