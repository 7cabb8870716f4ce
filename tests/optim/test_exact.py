"""SparseAdamW(exact=True) is dense torch.optim.AdamW, through the public modules, whatever comes between."""

import pytest
import torch
import torch.nn.functional as F

# torch's clone of a sparse tensor says nothing of its invariants, and warns of that once a process
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.02, 1.0])
def test_300_steps_of_zipf_ids_decay_and_a_cosine_schedule(std, start_race):
    race = start_race(V=5_000, D=32, N=1_024, std=std, lr=1e-3, weight_decay=0.01)
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
def test_other_settings(settings, start_race):
    race = start_race(std=0.125, steps=100, **settings)
    for _ in range(100):
        race.step()
    _, ours, torchs = race.off()
    assert ours <= max(1.5 * torchs, 2e-6)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.95), (0.95, 0.95)], ids=str)
@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-6])
def test_gradients_as_small_as_eps(betas, scale, start_race):
    race = start_race(std=0.125, steps=100, betas=betas)
    race.scale = scale  # with 64 · 16 numbers under the mean: gradients of about 1e-3 · scale
    for _ in range(100):
        race.step()
    apart, ours, torchs = race.off()
    assert apart <= 5e-6
    assert ours <= max(1.5 * torchs, 2e-6)


@pytest.mark.parametrize("second", [(0.999, 0.989), (0.999, 0.8)], ids=["one rule", "two rules"])
def test_settings_that_change_at_every_step(second, start_race):
    race = start_race(std=0.125)
    for k in range(60):
        for each in race.all:
            (group,) = each.param_groups
            group["betas"] = 0.85 + 0.1 * (k % 7) / 7, second[k // 5 % 2]
            group["eps"], group["weight_decay"] = 1e-8 * (1 + k % 2), 0.1 * (k % 4)
        race.step()
    apart, _, _ = race.off()
    assert apart <= 5e-6


def test_one_cycle_with_its_changing_betas(start_race):
    race = start_race(std=0.125)
    race.schedules = [
        torch.optim.lr_scheduler.OneCycleLR(each, max_lr=0.01, total_steps=60) for each in race.all
    ]
    for _ in range(60):
        race.step()
    assert race.off()[0] <= 5e-6


def test_rows_that_are_never_looked_up_decay_all_the_same(start_race):
    race = start_race(weight_decay=0.5)
    for _ in range(20):
        race.step(torch.arange(64))
    assert race.off()[0] <= 1e-6
    assert float((race.ours.weight.detach()[100:] / race.start[100:]).max()) < 1 - 20 * 0.9 * 1e-3 * 0.5


def test_steps_without_a_gradient_and_with_an_empty_one(start_race):
    """AdamW skips a parameter without a gradient; one of zeros is a step."""
    race = start_race()
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
def test_short_tables_follow_the_exact_run_as_far_as_their_bits_allow(dtype, start_race):
    race = start_race(std=1.0, dtype=dtype, lr=0.01, weight_decay=0.1)
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


def test_gradients_added_up_over_several_forwards(start_race):
    race = start_race()
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


def test_the_same_gradient_again_and_gradients_that_are_never_cleared(start_race):
    race = start_race()
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


def test_a_closure(start_race):
    race = start_race()
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


def test_compiled_lookups_bring_their_rows_up_to_date(start_race):
    race = start_race(V=50)
    table = race.ours
    compiled = torch.compile(lambda ids: table(ids) * 1.0, backend="aot_eager")
    race.ours = lambda ids: compiled(ids)
    for _ in range(6):
        race.step()
    race.ours = table
    assert race.off()[0] <= 1e-6


def test_looking_without_training(start_race):
    race = start_race()
    for _ in range(5):
        race.step()
    with torch.no_grad():
        rows = race.ours(torch.arange(200))
    torch.testing.assert_close(rows, race.dense[torch.float32][0].detach(), atol=1e-6, rtol=0)
