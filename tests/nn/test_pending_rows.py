"""Whoever reads a table asks for its rows first, and nobody is kept alive or asked in vain by that."""

import gc
import weakref

import pytest
import torch

from tokenspace.nn import pending_rows


class Late:
    """An optimizer's part in it: it notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def catch_up(self, ids):
        self.asked.append(None if ids is None else ids.tolist())


@pytest.fixture
def table():
    return torch.nn.Parameter(torch.zeros(4, 2))


@pytest.fixture
def late(table):
    late = Late()
    pending_rows.keep(table, late.catch_up)
    return late


def test_a_read_asks_for_its_rows_or_for_all(table, late):
    pending_rows.read(table, torch.tensor([[3, 0], [3, 1]]))
    pending_rows.read(table)
    assert late.asked == [[[3, 0], [3, 1]], None]


def test_the_table_is_known_by_its_memory(table, late):
    pending_rows.read(table.detach(), torch.tensor([1]))
    pending_rows.read(torch.nn.Parameter(table.data), torch.tensor([2]))
    assert late.asked == [[1], [2]]


def test_the_table_is_found_after_it_moved(table, late):
    table.data = table.data.clone()
    pending_rows.read(table, torch.tensor([1]))
    assert late.asked == [[1]]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_another_table_asks_nobody(late, device):
    pending_rows.read(torch.zeros(4, 2, device=device), torch.tensor([1], device=device))
    assert late.asked == []


def test_tables_without_memory_are_no_ones(late):
    first, second = (torch.nn.Parameter(torch.zeros(4, 2, device="meta")) for _ in range(2))
    pending_rows.keep(first, late.catch_up)
    pending_rows.read(second)
    assert late.asked == []


def test_two_tables_each_have_their_own(table, late):
    other_table, other = torch.nn.Parameter(torch.zeros(4, 2)), Late()
    pending_rows.keep(other_table, other.catch_up)
    pending_rows.read(table, torch.tensor([1]))
    pending_rows.read(other_table, torch.tensor([2]))
    assert (late.asked, other.asked) == ([[1]], [[2]])


def test_who_comes_later_takes_over_after_the_first_has_finished(table, late):
    later = Late()
    pending_rows.keep(table, later.catch_up)
    pending_rows.read(table, torch.tensor([1]))
    assert (late.asked, later.asked) == ([None], [[1]])
    assert pending_rows.kept_by(table) == later.catch_up


def test_keeping_twice_asks_once(table, late):
    pending_rows.keep(table, late.catch_up)
    pending_rows.read(table)
    assert late.asked == [None]


def test_nobody_is_kept_alive():
    table, late = torch.nn.Parameter(torch.zeros(4, 2)), Late()
    pending_rows.keep(table, late.catch_up)
    memory, gone = table.data, (weakref.ref(late), weakref.ref(table))
    del late
    gc.collect()
    assert gone[0]() is None
    assert pending_rows.kept_by(table) is None
    del table
    gc.collect()
    assert gone[1]() is None
    pending_rows.read(memory)
