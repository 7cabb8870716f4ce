"""SparseAdamW(exact=True) is dense torch.optim.AdamW, through the public modules, whatever comes between."""

import copy
import gc
import io
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tokenspace.errors import TokenspaceError
from tokenspace.kernels import catch_up
from tokenspace.nn import LMHead, TokenEmbedding, pending_rows
from tokenspace.optim import DenseGradientWarning, SparseAdamW

# torch's clone of a sparse tensor says nothing of its invariants, and warns of that once a process
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")


class Race:
    """The same table trained by ours and by dense AdamW, on gradients that depend on the weights."""

    def __init__(self, V=200, D=16, N=64, *, std=0.1, dtype=torch.float32, steps=300, seed=0, **settings):
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.p = 1 / np.arange(1, V + 1)
        self.p /= self.p.sum()
        self.N, self.target, self.start = N, torch.randn(N, D), torch.randn(V, D) * std
        self.ours = TokenEmbedding.from_pretrained(self.start.to(dtype).clone(), freeze=False, sparse=True)
        self.optimizer = SparseAdamW(self.ours.parameters(), exact=True, **settings)
        self.dense = {kind: self._dense(kind, settings) for kind in (torch.float32, torch.float64)}
        self.all = [self.optimizer, *(optimizer for _, optimizer in self.dense.values())]
        self.schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(each, steps) for each in self.all]

    def _dense(self, kind, settings):
        weight = torch.nn.Parameter(self.start.to(kind, copy=True))
        return weight, torch.optim.AdamW([weight], **settings)

    def ids(self):
        return torch.from_numpy(self.rng.choice(len(self.p), self.N, p=self.p))

    def loss(self, rows):
        return F.mse_loss(torch.tanh(rows), self.target.to(rows.dtype)) * self.scale

    scale = 1.0

    def step(self, ids=None, schedule=True):
        ids = self.ids() if ids is None else ids
        self.optimizer.zero_grad()
        self.loss(self.ours(ids)).backward()
        self.optimizer.step()
        for weight, optimizer in self.dense.values():
            optimizer.zero_grad()
            self.loss(F.embedding(ids, weight)).backward()
            optimizer.step()
        if schedule:
            for each in self.schedules:
                each.step()

    def off(self):
        """The largest difference of ours and torch's float32, ours and float64, torch's and float64."""
        self.optimizer.flush()
        ours = self.ours.weight.detach().double()
        single, double = (weight.detach().double() for weight, _ in self.dense.values())
        return [float((a - b).abs().max()) for a, b in ((ours, single), (ours, double), (single, double))]


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.02, 1.0])
def test_300_steps_of_zipf_ids_decay_and_a_cosine_schedule(std):
    race = Race(V=20_000, D=64, N=2_048, std=std, lr=1e-3, weight_decay=0.01)
    for _ in range(300):
        race.step()
    apart, ours, torchs = race.off()
    assert float((race.ours.weight.detach() - race.start).abs().max()) > 0.05
    if std == 0.02:
        assert apart <= 5e-6
    assert ours <= torchs


SETTINGS = {
    "betas .9 .95": {"betas": (0.9, 0.95)},
    "betas .95 .95": {"betas": (0.95, 0.95)},
    "betas .99 .95": {"betas": (0.99, 0.95)},
    "betas 0 .9": {"betas": (0.0, 0.9)},
    "a large eps": {"eps": 1e-2},
    "no decay": {"weight_decay": 0.0},
    "a strong decay": {"weight_decay": 10.0},
    "a high rate": {"lr": 0.05},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_other_settings(settings):
    race = Race(std=0.125, steps=100, **settings)
    for _ in range(100):
        race.step()
    _, ours, torchs = race.off()
    assert ours <= max(1.5 * torchs, 2e-6)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.95)], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-6])
def test_gradients_as_small_as_eps(betas, scale):
    race = Race(std=0.125, steps=100, betas=betas)
    race.scale = scale  # with 64 · 16 numbers under the mean: gradients of about 1e-3 · scale
    for _ in range(100):
        race.step()
    apart, ours, torchs = race.off()
    assert apart <= 5e-6
    assert ours <= max(1.5 * torchs, 2e-6)


def test_settings_that_change_at_every_step():
    race = Race(std=0.125)
    for k in range(60):
        for each in race.all:
            (group,) = each.param_groups
            group["betas"] = 0.85 + 0.1 * (k % 7) / 7, 0.999 - 0.01 * (k % 3)
            group["eps"], group["weight_decay"] = 1e-8 * (1 + k % 2), 0.1 * (k % 4)
        race.step()
    apart, _, _ = race.off()
    assert apart <= 5e-6


def test_one_cycle_with_its_changing_betas():
    race = Race(std=0.125)
    race.schedules = [
        torch.optim.lr_scheduler.OneCycleLR(each, max_lr=0.01, total_steps=60) for each in race.all
    ]
    for _ in range(60):
        race.step()
    assert race.off()[0] <= 5e-6


def test_rows_that_are_never_looked_up_decay_all_the_same():
    race = Race(weight_decay=0.5)
    for _ in range(20):
        race.step(torch.arange(64))
    assert race.off()[0] <= 1e-6
    assert float((race.ours.weight.detach()[100:] / race.start[100:]).max()) < 1 - 20 * 0.9 * 1e-3 * 0.5


def test_steps_without_a_gradient_and_with_an_empty_one():
    """AdamW skips a parameter without a gradient; one of zeros is a step."""
    race = Race()
    race.step()
    for each in race.all:
        each.zero_grad()
        each.step()
    race.N, race.target = 0, race.target[:0]
    race.loss = lambda rows: (rows * 0).sum()
    race.step()
    assert race.off()[0] <= 1e-6
    assert race.optimizer.state[race.ours.weight]["step"] == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_tables_follow_the_exact_run_as_far_as_their_bits_allow(dtype):
    race = Race(std=1.0, dtype=dtype, lr=0.01, weight_decay=0.1)
    race.start = race.ours.weight.detach().float()
    for weight, _ in race.dense.values():
        weight.data.copy_(race.start)
    for _ in range(50):
        race.step()
    race.optimizer.flush()
    apart = (race.ours.weight.float() - race.dense[torch.float32][0]).detach().abs()
    # one rounding a touch, of half a step each; dense bfloat16 AdamW would lose every decay
    assert float(apart.max()) < 50 * torch.finfo(dtype).eps
    assert float(apart.mean()) < 2 * torch.finfo(dtype).eps


def test_gradients_added_up_over_several_forwards():
    race = Race()
    for _ in range(5):
        parts = [race.ids() for _ in range(3)]
        for each in race.all:
            each.zero_grad()
        for ids in parts:
            race.loss(race.ours(ids)).backward()
            for weight, _ in race.dense.values():
                race.loss(F.embedding(ids, weight)).backward()
        for each in race.all:
            each.step()
    assert race.off()[0] <= 1e-6


def test_the_same_gradient_again_and_gradients_that_are_never_cleared():
    race = Race()
    race.step()
    for each in race.all:
        each.step()
    for _ in range(3):
        ids = race.ids()
        race.loss(race.ours(ids)).backward()
        for weight, _ in race.dense.values():
            race.loss(F.embedding(ids, weight)).backward()
        for each in race.all:
            each.step()
    assert race.off()[0] <= 1e-6


def test_a_closure():
    race = Race()
    for _ in range(4):
        ids = race.ids()

        def closure(ids=ids):
            race.optimizer.zero_grad()
            loss = race.loss(race.ours(ids))
            loss.backward()
            return loss

        with torch.no_grad():
            expected = race.loss(race.ours(ids))
        assert torch.equal(race.optimizer.step(closure), expected)
        for weight, optimizer in race.dense.values():
            optimizer.zero_grad()
            race.loss(F.embedding(ids, weight)).backward()
            optimizer.step()
    assert race.off()[0] <= 1e-6


def test_compiled_lookups_bring_their_rows_up_to_date():
    race = Race(V=50)
    table = race.ours
    compiled = torch.compile(lambda ids: table(ids) * 1.0, backend="aot_eager")
    race.ours = lambda ids: compiled(ids)
    for _ in range(6):
        race.step()
    race.ours = table
    assert race.off()[0] <= 1e-6


def test_looking_without_training():
    race = Race()
    for _ in range(5):
        race.step()
    with torch.no_grad():
        rows = race.ours(torch.arange(200))
    torch.testing.assert_close(rows, race.dense[torch.float32][0].detach(), atol=1e-6, rtol=0)


# Reading, writing, saving and copying the table


def trained(**settings):
    race = Race(**settings)
    for _ in range(5):
        race.step()
    stale = race.ours.weight.detach() - race.dense[torch.float32][0].detach()
    assert float(stale.abs().max()) > 1e-4, "steps are postponed"
    return race


def assert_up_to_date(weight, race):
    torch.testing.assert_close(weight.detach(), race.dense[torch.float32][0].detach(), atol=1e-6, rtol=0)


def test_flush():
    race = trained()
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
def test_who_reads_the_table_reads_it_up_to_date(take):
    race = trained()
    assert_up_to_date(take(race), race)


def saved(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_what_is_loaded_is_not_moved_by_older_steps():
    race = trained()
    race.ours.load_state_dict({"weight": race.start})
    race.optimizer.flush()
    assert torch.equal(race.ours.weight.detach(), race.start)


def test_the_model_outlives_its_optimizer():
    race = trained()
    race.all, race.schedules, race.optimizer = [], [], None
    gc.collect()
    assert_up_to_date(race.ours.weight, race)


def test_an_optimizer_that_goes_while_a_row_is_caught_up_finishes_after_it(monkeypatch):
    race = trained()
    weight, real = race.ours.weight, catch_up.share_ranges

    def interrupted(*arguments):
        race.all, race.schedules, race.optimizer = [], [], None
        gc.collect()
        real(*arguments)

    monkeypatch.setattr(catch_up, "share_ranges", interrupted)
    race.ours(torch.tensor([0, 150]))
    assert_up_to_date(weight, race)


def test_another_optimizer_takes_over_from_rows_that_are_up_to_date():
    race = trained()
    second = SparseAdamW(race.ours.parameters(), lr=0.0, exact=True, weight_decay=0.0)
    race.ours(torch.tensor([0])).sum().backward()
    second.step()
    assert_up_to_date(race.ours.weight, race)
    race.step()  # and the first takes over again
    assert race.off()[0] <= 1e-6


def test_threads_that_read_at_once_all_read_rows_that_are_up_to_date():
    race = Race(V=20_000, D=64, N=512, weight_decay=1.0)
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
    # assert with the stored rows: deepcopy above has flushed nothing, it copied a plain dict
    assert torch.equal(table.weight, before)
    assert bias.tolist() == [1.0, 1.0]
    for name, value in state.items():
        assert torch.equal(optimizer.state[table.weight][name], value)
    optimizer.param_groups[0]["params"].pop(0)
    optimizer.flush()
    go(table, optimizer, [1, 2, 5])


def test_flush_before_each_forward_serves_any_lookup():
    race = Race()
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
    go(table, optimizer, [1])
    go(table, optimizer, [1, 2])  # 2 has no moments yet
    optimizer.param_groups[0]["lr"] = 0.0
    go(table, optimizer, [2])
    optimizer.param_groups[0]["lr"] = 0.1
    go(table, optimizer, [1, 2, 3])  # 1 missed a step of rate 0
    with pytest.raises(TokenspaceError, match="1 of the 2 rows"):
        go(table, optimizer, [3, 4]), go(table, optimizer, [1, 5])


def test_a_moment_still_fades_in_a_step_of_rate_zero():
    race = Race(weight_decay=0.0)
    race.step()
    for each in race.all:
        each.param_groups[0]["lr"] = 0.0
    race.step(schedule=False)
    for each in race.all:
        each.param_groups[0]["lr"] = 1e-3
    race.step(schedule=False)
    assert race.off()[0] <= 1e-6


# Dense gradients


def test_a_head_that_is_tied_in_some_steps_only():
    race = Race()
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


def test_a_tied_head_makes_each_step_dense_and_exact():
    race = Race()
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
    values = torch.ones(1, 2, device="meta")
    weight.grad = torch.sparse_coo_tensor(
        torch.zeros(1, 1, dtype=torch.int64, device="meta"), values, (4, 2), check_invariants=False
    )
    with pytest.raises(TokenspaceError, match="exact=True"):
        optimizer.check(optimizer_touched(weight), optimizer.settings_of(optimizer.param_groups[0]))


def optimizer_touched(weight):
    from tokenspace.optim.touched import Touched

    return Touched(weight, torch.zeros(1, dtype=torch.int64, device="meta"), torch.ones(1, 2, device="meta"))


def test_registering_costs_nothing_once_the_optimizer_is_gone():
    race = trained()
    assert pending_rows.kept_by(race.ours.weight) is not None
    race.all, race.schedules, race.optimizer = [], [], None
    gc.collect()
    assert pending_rows.kept_by(race.ours.weight) is None
