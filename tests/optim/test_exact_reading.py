"""Under SparseAdamW(exact=True): who reads, writes, saves or copies a table; refusals; dense gradients."""

import contextlib
import copy
import gc
import io
import threading

import pytest
import torch
import torch.nn.functional as F

from tokenspace.errors import TokenspaceError
from tokenspace.kernels import catch_up
from tokenspace.nn import LMHead, pending_rows
from tokenspace.optim import DenseGradientWarning, SparseAdamW
from tokenspace.optim.touched import Touched

# torch's clone of a sparse tensor says nothing of its invariants, and warns of that once a process
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")


# Reading, writing, saving and copying the table


def assert_up_to_date(weight, race):
    torch.testing.assert_close(weight.detach(), race.dense[torch.float32][0].detach(), atol=1e-6, rtol=0)


def test_flush(race):
    race.optimizer.flush()
    assert_up_to_date(race.ours.weight, race)


@pytest.mark.parametrize(
    "take",
    [
        lambda race: race.ours.state_dict()["weight"],
        lambda race: copy.deepcopy(race.ours).weight,
        lambda race: copy.deepcopy((race.ours, race.optimizer))[0].weight,
        lambda race: copy.deepcopy(race.optimizer).param_groups[0]["params"][0],
        lambda race: LMHead(race.ours)(torch.eye(16)).T,
        lambda race: (race.optimizer.state_dict(), race.ours.weight)[1],
        lambda race: saved(race.ours).weight,
        lambda race: race.ours.double().float().weight,
        lambda race: race.ours.project_(1e9).weight,
        lambda race: (race.ours.add_rows(1), race.ours.weight[:-1])[1],
    ],
    ids=[
        "state_dict",
        "copy",
        "copy of both",
        "copy of the optimizer",
        "head",
        "optimizer's state",
        "save",
        "to",
        "project_",
        "add_rows",
    ],
)
def test_who_reads_the_table_reads_it_up_to_date(take, race):
    assert_up_to_date(take(race), race)


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_a_projection_of_some_rows_costs_these_rows(race):
    others = torch.ones(200, dtype=torch.bool)
    others[[0, 150]] = False
    before = race.ours.weight.detach().clone()
    race.ours.project_(1e9, torch.tensor([0, 150, 150]))
    assert torch.equal(race.ours.weight[others], before[others])
    expected = race.dense[torch.float32][0][~others]
    torch.testing.assert_close(race.ours.weight[~others], expected, atol=1e-6, rtol=0)


def test_what_is_loaded_is_not_moved_by_older_steps(race):
    race.ours.load_state_dict({"weight": race.start})
    race.optimizer.flush()
    assert torch.equal(race.ours.weight.detach(), race.start)


def test_a_state_that_is_loaded_ends_the_steps_before_it(race):
    race.optimizer.load_state_dict(race.dense[torch.float32][1].state_dict())
    assert_up_to_date(race.ours.weight, race)
    for _ in range(3):
        race.step()
    assert race.off()[0] <= 1e-6


def test_the_model_outlives_its_optimizer(race):
    race.all, race.schedules, race.optimizer = [], [], None
    gc.collect()
    assert_up_to_date(race.ours.weight, race)


def test_an_optimizer_that_goes_while_a_row_is_caught_up_finishes_after_it(monkeypatch, race):
    weight, real = race.ours.weight, catch_up.share_ranges

    def interrupted(*arguments):
        race.all, race.schedules, race.optimizer = [], [], None
        gc.collect()
        real(*arguments)

    monkeypatch.setattr(catch_up, "share_ranges", interrupted)
    race.ours(torch.tensor([0, 150]))
    assert_up_to_date(weight, race)


def test_another_optimizer_takes_over_from_rows_that_are_up_to_date(race):
    second = SparseAdamW(race.ours.parameters(), lr=0.0, exact=True, weight_decay=0.0)
    race.ours(torch.tensor([0])).sum().backward()
    second.step()
    assert_up_to_date(race.ours.weight, race)
    race.step()  # and the first takes over again
    assert race.off()[0] <= 1e-6


def test_threads_that_read_at_once_all_read_rows_that_are_up_to_date(start_race):
    race = start_race(V=20_000, D=64, N=512, weight_decay=1.0)
    ids, read = torch.arange(20_000), []
    start = threading.Barrier(4)

    def look():
        start.wait()
        read.append(race.ours(ids).detach())

    for _ in range(6):
        race.step()
        readers = [threading.Thread(target=look) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert len(read) == 4
        while read:
            torch.testing.assert_close(read.pop(), race.dense[torch.float32][0].detach(), atol=1e-6, rtol=0)


# What nobody told of


def plain(weight_decay):
    torch.manual_seed(0)
    table = torch.nn.Embedding(8, 4, sparse=True)
    return table, SparseAdamW(table.parameters(), lr=0.1, weight_decay=weight_decay, exact=True)


def go(table, optimizer, ids):
    optimizer.zero_grad()
    table(torch.tensor(ids)).square().sum().backward()
    optimizer.step()


def test_a_lookup_that_reads_stale_rows_is_refused_and_nothing_is_changed():
    table, optimizer = plain(0.1)
    go(table, optimizer, [1, 2])
    go(table, optimizer, [1])
    before, state = table.weight.clone(), copy.deepcopy(optimizer.state[table.weight])
    bias = torch.nn.Parameter(torch.ones(2))
    bias.grad = torch.ones(2)
    optimizer.param_groups[0]["params"].insert(0, bias)
    with pytest.raises(
        TokenspaceError,
        match=r"2 of the 3 rows .* a 8 × 4 table .* \(row 2 misses 1\).*TokenEmbedding.*flush\(\)",
    ):
        go(table, optimizer, [1, 2, 5])
    assert torch.equal(table.weight, before)
    assert bias.tolist() == [1.0, 1.0]
    for name, value in state.items():
        assert torch.equal(optimizer.state[table.weight][name], value)
    optimizer.param_groups[0]["params"].pop(0)
    optimizer.flush()
    go(table, optimizer, [1, 2, 5])


def test_flush_before_each_forward_serves_any_lookup(start_race):
    race = start_race()
    table = torch.nn.Embedding.from_pretrained(race.ours.weight.detach(), freeze=False, sparse=True)
    table.weight = race.ours.weight

    def lookup(ids):
        race.optimizer.flush()
        return table(ids)

    ours, race.ours = race.ours, lookup
    for _ in range(5):
        race.step()
    race.ours = ours
    assert race.off()[0] <= 1e-6


def test_rows_that_no_missed_step_would_have_moved_are_no_mistake():
    table, optimizer = plain(0.0)
    dense = torch.nn.Embedding.from_pretrained(table.weight.detach().clone(), freeze=False)
    torchs = torch.optim.AdamW(dense.parameters(), lr=0.1, weight_decay=0.0)

    def step(ids, lr=0.1):
        for module, each in ((table, optimizer), (dense, torchs)):
            each.param_groups[0]["lr"] = lr
            go(module, each, ids)

    step([1])
    step([1, 2])  # 2 has no moments yet
    step([2], lr=0.0)
    step([1, 2, 3])  # 1 missed a step of rate 0, in which its moments faded
    torch.testing.assert_close(table.weight, dense.weight, atol=1e-6, rtol=0)
    step([3, 4])
    with pytest.raises(TokenspaceError, match="1 of the 2 rows"):
        step([1, 5])


def test_a_moment_still_fades_in_a_step_of_rate_zero(start_race):
    race = start_race(weight_decay=0.0)
    race.step()
    for each in race.all:
        each.param_groups[0]["lr"] = 0.0
    race.step(schedule=False)
    for each in race.all:
        each.param_groups[0]["lr"] = 1e-3
    race.step(schedule=False)
    assert race.off()[0] <= 1e-6


# Dense gradients


def test_a_head_that_is_tied_in_some_steps_only(start_race):
    race = start_race()
    head = LMHead(race.ours)
    for k in range(6):
        race.step()
        if k % 2:
            hidden, labels = torch.randn(8, 16), torch.randint(200, (8,))
            race.optimizer.zero_grad()
            loss = head.loss(hidden, labels)
            loss.backward()
            if k == 1:
                with pytest.warns(DenseGradientWarning, match="200 × 16 table is dense"):
                    race.optimizer.step()
            else:
                race.optimizer.step()  # said once
            for weight, optimizer in race.dense.values():
                optimizer.zero_grad()
                F.cross_entropy(hidden.to(weight.dtype) @ weight.T, labels).backward()
                optimizer.step()
    assert race.off()[0] <= 2e-6


def test_gradients_that_somebody_makes_dense(start_race):
    race = start_race()
    for k in range(6):
        ids = race.ids()
        race.optimizer.zero_grad()
        race.loss(race.ours(ids)).backward()
        if k % 3 == 2:
            race.ours.weight.grad = race.ours.weight.grad.to_dense()
        with pytest.warns(DenseGradientWarning) if k == 2 else contextlib.nullcontext():
            race.optimizer.step()
        for weight, optimizer in race.dense.values():
            optimizer.zero_grad()
            race.loss(F.embedding(ids, weight)).backward()
            optimizer.step()
    assert race.off()[0] <= 2e-6


def test_a_tied_head_makes_each_step_dense_and_exact(start_race):
    race = start_race()
    head = LMHead(race.ours)
    hidden, labels = torch.randn(8, 16), torch.randint(200, (8,))
    for k in range(4):
        ids = race.ids()
        race.optimizer.zero_grad()
        (race.loss(race.ours(ids)) + head.loss(hidden, labels)).backward()
        if k == 0:
            with pytest.warns(DenseGradientWarning):
                race.optimizer.step()
        else:
            race.optimizer.step()
        for weight, optimizer in race.dense.values():
            optimizer.zero_grad()
            logits = hidden.to(weight.dtype) @ weight.T
            (race.loss(F.embedding(ids, weight)) + F.cross_entropy(logits, labels)).backward()
            optimizer.step()
    assert race.off()[0] <= 2e-6


def test_a_table_on_another_device_is_refused():
    weight = torch.nn.Parameter(torch.zeros(4, 2, device="meta"))
    optimizer = SparseAdamW([weight], exact=True)
    touched = Touched(
        weight, torch.zeros(1, dtype=torch.int64, device="meta"), torch.ones(1, 2, device="meta")
    )
    with pytest.raises(
        TokenspaceError, match=r"contiguous table of floats on the CPU; found torch.float32 on meta"
    ):
        optimizer.check(touched, optimizer.settings_of(optimizer.param_groups[0]))


def test_registering_costs_nothing_once_the_optimizer_is_gone(race):
    assert pending_rows.kept_by(race.ours.weight) is not None
    race.all, race.schedules, race.optimizer = [], [], None
    gc.collect()
    assert pending_rows.kept_by(race.ours.weight) is None
