"""The plan of the steps, the held-out loss, and that a decoder sees the past alone."""

import numpy as np
import pytest
import torch

from tokenspace.errors import CorpusError, ShapeError
from tokenspace.train.decoder import Decoder
from tokenspace.train.decoder_training import Plan, Training, held_out_loss


class Ids:
    """A stream in memory."""

    def __init__(self, ids):
        self.ids = np.asarray(ids, np.int32)
        self.tokens = len(self.ids)

    def windows(self, starts, length):
        return np.stack([self.ids[start : start + length] for start in starts])


def decoder(**sizes):
    torch.manual_seed(0)
    return Decoder(**{"rows": 20, "dim": 16, "layers": 2, "heads": 4, "context": 8, **sizes})


@pytest.mark.parametrize("tokens", [9, 10, 16, 17, 63, 64, 65, 1000])
def test_an_epoch_reads_every_token_at_most_once_and_leaves_out_less_than_two_windows(tokens):
    plan = Plan(tokens, context=8, batch=3, seed=1)
    seen = set()
    for number in range(6):
        batches = [*plan.epoch(number)]
        assert len(batches) == plan.steps
        starts = np.concatenate(batches)
        assert len(starts) == plan.windows
        assert all(len(batch) == 3 for batch in batches[:-1])
        predicted = np.sort(np.concatenate([starts + k for k in range(1, 9)]))
        assert len(np.unique(predicted)) == len(predicted)
        assert predicted[0] >= 1
        assert predicted[-1] < tokens
        assert len(predicted) > tokens - 17
        seen.add(tuple(starts))
    assert len(seen) > 1 or plan.windows == 1
    assert [b.tolist() for b in plan.epoch(3)] == [b.tolist() for b in plan.epoch(3)]
    assert plan._replace(seed=2).epoch(0) is not None


def test_another_seed_reads_in_another_order():
    plan = Plan(1000, context=8, batch=200, seed=1)
    assert not np.array_equal(next(plan.epoch(0)), next(plan._replace(seed=2).epoch(0)))


def test_a_text_shorter_than_the_context_is_refused():
    with pytest.raises(CorpusError, match="has 8 tokens, too few for a context of 8; lower the context to 7"):
        Plan(8, context=8, batch=3, seed=1).check()
    Plan(9, context=8, batch=3, seed=1).check()


def test_a_decoder_sees_no_token_after_its_own():
    model = decoder().eval()
    ids = torch.randint(20, (2, 8))
    changed = ids.clone()
    changed[:, 5:] = (ids[:, 5:] + 1) % 20
    with torch.no_grad():
        one, other = model(ids), model(changed)
    torch.testing.assert_close(one[:, :5], other[:, :5], rtol=0, atol=0)
    assert (one[:, 5:] != other[:, 5:]).any()


def test_it_is_drawn_as_gpt2_is():
    model = decoder(rows=500, dim=128, layers=8)
    for name, value in model.named_parameters():
        if value.ndim == 1:
            assert (value == float("norm" in name and name.endswith("weight"))).all(), name
        else:
            std = 0.01 if "position" in name else 0.02
            if "out_proj" in name or "linear2" in name:  # they write to the residual stream, 16 times
                std /= 4
            assert float(value.detach().std()) == pytest.approx(std, rel=0.1), name


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(ShapeError, match=r"3 heads can't share a width of 16 evenly; .* such as 1, 2, 4"):
        decoder(heads=3)


@pytest.mark.parametrize("tokens", [2, 5, 9, 10, 13, 29, 300])
def test_the_held_out_loss_counts_every_token_but_the_first_once(tokens, rng):
    model = decoder().eval()
    ids = torch.from_numpy(rng.integers(20, size=tokens))
    losses = []
    starts = [0, *range(4, tokens - 9, 4), max(tokens - 9, 0)]
    for place in range(1, tokens):  # in the first window that holds it
        start = next(s for s in starts if s < place <= s + 8)
        with torch.no_grad():
            logits = model.head(model(ids[None, start:place]))[0, -1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[place]).item())
        assert start == 0 or place - start > 4  # at least half a context before it
    found = held_out_loss(model, Ids(ids), context=8)
    assert found == pytest.approx(np.mean(losses), rel=1e-6)


def test_a_part_of_the_held_out_tokens_is_taken_at_even_distances(rng):
    """Half of this stream is easy, and half hard; its beginning alone would be easy."""
    model = decoder().eval()
    with torch.no_grad():
        model.head.weight[0] *= 50
    ids = np.where(np.arange(2000) < 1000, 0, rng.integers(1, 20, 2000))
    whole = held_out_loss(model, Ids(ids), 8)
    part = held_out_loss(model, Ids(ids), 8, most=200)
    assert part != whole
    assert part == pytest.approx(whole, rel=0.1)


def training(rng, **changes):
    stream = Ids(rng.integers(20, size=500))
    plan = Plan(stream.tokens, context=8, batch=4, seed=1)
    settings = {"rate": 1e-3, "decay": 0.1, "mixed": False, **changes}
    return Training(decoder(), stream, plan, **settings)


def test_the_rate_rises_then_falls_with_what_is_done(rng):
    run = training(rng)
    before = run.model.head.weight.detach().clone()
    run.take_step(fraction=1.0, warm_up=1)  # a rate of 0
    assert torch.equal(run.model.head.weight, before)
    rates = []
    for step, fraction in enumerate([0.0, 0.0, 0.25, 0.5]):
        run.step = step
        run.take_step(fraction, warm_up=2)
        rates.append([group["lr"] for one in run._optimizers for group in one.param_groups])
    np.testing.assert_allclose(np.array(rates) / rates[1], np.outer([0.5, 1, 0.75, 0.5], [1, 1]))


def test_only_matrices_of_the_body_decay(rng):
    run = training(rng)
    decaying = {
        id(value)
        for one in run._optimizers
        for group in one.param_groups
        if group["weight_decay"]
        for value in group["params"]
    }
    names = {name for name, value in run.model.named_parameters() if id(value) in decaying}
    assert names == {
        name for name, value in run.model.named_parameters() if value.ndim == 2 and "body" in name
    }
    every = [id(v) for one in run._optimizers for group in one.param_groups for v in group["params"]]
    assert sorted(every) == sorted(id(value) for value in run.model.parameters())


@pytest.mark.parametrize(("scale", "loss"), [(float("nan"), "nan"), (1e5, r"[\d.e+]+")], ids=["NaN", "large"])
def test_a_loss_that_left_all_reason_is_told_at_its_step(rng, scale, loss):
    run = training(rng)
    run.take_step(0.0, warm_up=1)
    with torch.no_grad():
        run.model.head.weight.mul_(scale)
    before = [value.clone() for value in run.model.parameters()]
    with pytest.raises(
        ShapeError, match=rf"diverged: the loss is {loss}; lower the rate \(0.001\) or the weight"
    ):
        run.take_step(0.0, warm_up=1)
    for value, was in zip(run.model.parameters(), before, strict=True):  # nothing was learned from it
        torch.testing.assert_close(value, was, equal_nan=True, rtol=0, atol=0)
    assert run.step == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e6])
def test_parameters_that_left_all_reason_are_told_before_they_are_saved(rng, value):
    run = training(rng)
    run.check()
    with torch.no_grad():
        next(run.model.body.parameters()).view(-1)[0] = value
    with pytest.raises(ShapeError, match=r"training diverged: a row holds .*; lower the rate"):
        run.check()


@pytest.mark.parametrize("scale", [float("nan"), 1e5])
def test_a_held_out_loss_that_is_absurd_is_told_before_its_exponential_overflows(rng, scale):
    run, held = training(rng), Ids(rng.integers(20, size=50))
    assert run.held_out_loss(held) == held_out_loss(run.model, held, 8)
    with torch.no_grad():
        run.model.head.weight.mul_(scale)
    with pytest.raises(ShapeError, match=r"the held-out loss is .*the weight decay \(0.1\), and if a table"):
        run.held_out_loss(held)


def test_the_loss_is_the_mean_since_it_was_taken(rng):
    run = training(rng)
    assert np.isnan(run.take_loss())
    run.take_step(0.0, warm_up=1)
    first = run.take_loss()
    assert first == pytest.approx(np.log(20), abs=0.2)
    run.take_step(0.0, warm_up=1)
    run.take_step(0.0, warm_up=1)
    assert run.take_loss() != first
    assert run.tokens == 3 * 4 * 8
