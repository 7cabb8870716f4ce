"""Each epoch visits every piece of the corpus once, in an order of the seed and the epoch alone."""

import numpy as np
import pytest

from tokenspace.train.reading_order import ReadingOrder

BEFORE = np.concatenate([[0], np.cumsum(np.random.default_rng(0).integers(1, 100, 40))])


def places(order: ReadingOrder, epoch: int) -> list[int]:
    return [order.place(epoch * order.pieces + k) for k in range(order.pieces)]


def test_each_epoch_visits_each_piece_once_in_an_order_of_its_own():
    order = ReadingOrder(BEFORE, epochs=3, seed=1, shuffle=True)
    orders = [places(order, epoch) for epoch in range(3)]
    assert [sorted(found) for found in orders] == 3 * [list(range(40))]
    assert len({tuple(found) for found in orders}) == 3
    assert places(ReadingOrder(BEFORE, epochs=3, seed=2, shuffle=True), 0) != orders[0]


def test_an_order_does_not_depend_on_what_was_asked_before():
    order, again = (ReadingOrder(BEFORE, epochs=5, seed=2**40, shuffle=True) for _ in range(2))
    steps = [order.place(step) for step in range(order.steps)]
    assert [again.place(step) for step in reversed(range(order.steps))] == steps[::-1]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_tokens_before_a_step_are_those_of_the_pieces_visited(shuffle):
    order = ReadingOrder(BEFORE, epochs=2, seed=1, shuffle=shuffle)
    lengths = np.diff(BEFORE)[[order.place(step) for step in range(order.steps)]]
    expected = [0, *np.cumsum(lengths).tolist()]
    assert [order.tokens_before(step) for step in range(order.steps + 1)] == expected


def test_without_shuffling_pieces_come_as_they_lie():
    order = ReadingOrder(BEFORE, epochs=2, seed=1, shuffle=False)
    assert places(order, 0) == places(order, 1) == list(range(40))
    assert order.tokens_before(41) == BEFORE[-1] + BEFORE[1]
