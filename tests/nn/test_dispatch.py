"""Which way a call goes, and that nobody can tell: torch's own operations, or kernels."""

import contextlib

import pytest
import torch

from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    dispatch,
    kernel_calls,
    torch_only,
    unfused,
)
from tokenspace.optim import SparseAdamW

pytestmark = pytest.mark.usefixtures("as_installed")
ROWS, WIDTH = 100, 32


@pytest.fixture
def calls(monkeypatch):
    """The calls of the forward kernel."""
    made, forward = [], kernel_calls.forward

    def counted(*args, **kwargs):
        made.append(args)
        return forward(*args, **kwargs)

    monkeypatch.setattr(kernel_calls, "forward", counted)
    return made


@contextlib.contextmanager
def kernels_alone():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KEPT_BYTES", "SUMMED_BYTES", "NORMED_BYTES", "DROPPED_NUMBERS"):
            patch.setattr(dispatch, name, -1)
        yield


def layer(rows=ROWS, width=WIDTH, dtype=torch.float32, position=None, norm=False, p=0.0, **token):
    torch.manual_seed(0)
    return TransformerInput(
        TokenEmbedding(rows, width, dtype=dtype, **token),
        position=position or LearnedPositionalEmbedding(600, width, dtype=dtype),
        segment=SegmentEmbedding(2, width, dtype=dtype),
        extras={"language": SegmentEmbedding(3, width, name="language", dtype=dtype)},
        layer_norm=torch.nn.LayerNorm(width, dtype=dtype) if norm else None,
        dropout=torch.nn.Dropout(p),
    )


IDS = torch.arange(24).view(2, 12) * 7 % ROWS
LANGUAGES = {"language": torch.arange(12) % 3}


@pytest.mark.parametrize(("tokens", "kernels"), [(1, 0), (511, 0), (512, 1)])
@pytest.mark.parametrize("norm", [False, True])
def test_without_a_gradient_the_bytes_of_the_output_decide(tokens, kernels, norm, calls, monkeypatch):
    monkeypatch.setattr(dispatch, "NORMED_BYTES" if norm else "SUMMED_BYTES", 512 * WIDTH * 4)
    made = layer(norm=norm)
    ids = torch.arange(tokens).unsqueeze(0) % ROWS
    with torch.no_grad():
        made(ids, extra_ids={"language": ids % 3})
    assert len(calls) == kernels


@pytest.mark.parametrize(("tokens", "kernels"), [(511, 0), (512, 1)])
def test_a_plain_lookup_is_torchs_until_malloc_keeps_no_block_of_that_size(
    tokens, kernels, calls, monkeypatch
):
    monkeypatch.setattr(dispatch, "KEPT_BYTES", 512 * WIDTH * 4)
    embedding, ids = TokenEmbedding(ROWS, WIDTH), torch.arange(tokens) % ROWS
    with torch.no_grad():
        assert torch.equal(embedding(ids), embedding.weight[ids])
    assert len(calls) == kernels


@pytest.mark.parametrize(
    ("changed", "summed"),
    [
        ({}, 0),
        ({"dtype": torch.float64}, 0),
        ({"dtype": torch.bfloat16}, 3),
        ({"dtype": torch.float16}, 3),
        ({"rows": 300_000}, 2),
        ({"sparse": True}, 2),
    ],
    ids=str,
)
def test_gradients_that_torch_would_sum_wrongly_or_slowly_are_the_kernels(changed, summed, monkeypatch):
    sums, row_sums = [], kernel_calls._row_sums
    monkeypatch.setattr(kernel_calls, "_row_sums", lambda *args: sums.append(args) or row_sums(*args))
    made, ids = layer(**changed), torch.zeros((1, 400), dtype=torch.int64)
    made.token(ids).sum().backward()
    made.token.weight.grad = None
    made(ids, extra_ids={"language": ids}).sum().backward()
    assert len(sums) == summed
    assert made.token.weight.grad.is_sparse == made.token.sparse
    for table in (made.token, made.extras["language"]):
        assert float(table.weight.grad.to_dense()[0, 0]) == 400.0  # bfloat16's own sums of 1 stop at 256


def test_a_table_whose_steps_are_postponed_is_read_by_kernels_and_others_are_not(calls):
    late, other = TokenEmbedding(ROWS, WIDTH, sparse=True), TokenEmbedding(ROWS, WIDTH)
    optimizer = SparseAdamW(late.parameters(), exact=True)
    late(IDS).sum().backward()
    optimizer.step()
    calls.clear()
    with torch.no_grad():
        other(IDS)
        assert not calls
        late(IDS)
    assert len(calls) == 1


def test_out_is_always_the_kernels(calls):
    out = torch.empty(2, 12, WIDTH)
    with torch.no_grad():
        layer()(IDS, extra_ids=LANGUAGES, out=out)
    assert len(calls) == 1


POSITIONS = {
    "learned": lambda dtype: LearnedPositionalEmbedding(600, WIDTH, dtype=dtype),
    "offset": lambda dtype: LearnedPositionalEmbedding(600, WIDTH, offset=3, dtype=dtype),
    "skipping padding": lambda dtype: LearnedPositionalEmbedding(600, WIDTH, 1, offset=2, dtype=dtype),
    "sinusoidal": lambda dtype: SinusoidalPositionalEncoding(WIDTH, dtype=dtype),
    "sinusoidal, kept": lambda dtype: SinusoidalPositionalEncoding(WIDTH, max_positions=99, dtype=dtype),
}
GIVEN = {
    "nothing": {},
    "a start": {"start": 5},
    "starts": {"start": torch.tensor([0, 7])},
    "positions": {"position_ids": torch.arange(12).flip(0)},
    "segments": {"segment_ids": torch.arange(12).int() // 6},
    "a mask": {"attention_mask": torch.ones(2, 12, dtype=torch.int64).tril(6)},
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("dtype", dispatch.DTYPES)
@pytest.mark.parametrize("padding_idx", [None, 0])
def test_sums_have_the_same_bits_either_way(given, position, dtype, padding_idx, calls):
    made = layer(dtype=dtype, position=POSITIONS[position](dtype), scale="sqrt", padding_idx=padding_idx)
    given = {**GIVEN[given], "extra_ids": LANGUAGES}
    with torch.no_grad():
        found = made(IDS, **given)
        assert not calls
        with torch_only():
            parts = [
                made.token(IDS),
                *(part(own) for part, own in made._added(told(made, given), IDS.device)),
            ]
        with kernels_alone():
            expected = made(IDS, **given)
    assert len(calls) > 0
    assert torch.equal(found, expected)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert torch.equal(found, total)


def told(made, given):
    kept = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformerInput, "_at_once", lambda self, ids, told, out: kept.append(told) or ids)
        made(IDS, **given)
    return kept[0]


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("given", ["nothing", "positions", "segments"])
def test_gradients_and_what_is_dropped_are_the_same_either_way(given, norm, p):
    given, found = {**GIVEN[given], "extra_ids": LANGUAGES}, []
    d_out = torch.randn(2, 12, WIDTH)
    for way in (contextlib.nullcontext, kernels_alone, torch_only):
        made = layer(norm=norm, p=p, padding_idx=7)
        with way():
            torch.manual_seed(3)
            out = made(IDS, **given)
            out.backward(d_out)
        found.append([out, *(parameter.grad for parameter in made.parameters())])
    assert ((found[0][0] == 0).float().mean() > 0.4) == (p > 0)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(one, other)
        assert torch.equal(found[0][0] == 0, others[0] == 0)


def test_a_gradient_of_a_gradient_is_torchs():
    made = layer(norm=True, dtype=torch.float64)

    def function(*tables):
        names = [name for name, _ in made.named_parameters()]
        values = dict(zip(names, tables, strict=True))
        return torch.func.functional_call(made, values, (IDS,), {"extra_ids": LANGUAGES})

    tables = [parameter.detach().clone().requires_grad_() for parameter in made.parameters()]
    found = torch.autograd.grad(function(*tables).square().sum(), tables, create_graph=True)
    again = torch.autograd.grad(sum(each.square().sum() for each in found), tables[0])
    with kernels_alone():
        found = torch.autograd.grad(function(*tables).square().sum(), tables, create_graph=True)
        expected = torch.autograd.grad(sum(each.square().sum() for each in found), tables[0])
    torch.testing.assert_close(again, expected)


WRONG = {
    "past the end": torch.tensor([[0, ROWS]]),
    "negative": torch.tensor([[0, -1]]),
    "int32": torch.tensor([[0, ROWS]], dtype=torch.int32),
    "uint8": torch.tensor([[0, ROWS]], dtype=torch.uint8),
    "floats": torch.tensor([[0.0, 1.0]]),
    "booleans": torch.tensor([[True, False]]),
    "COO": torch.tensor([[0, 1]]).to_sparse(),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("where", ["token", "ids", "position_ids", "segment_ids", "language"])
@pytest.mark.parametrize("trained", [False, True])
def test_wrong_ids_raise_the_same_error_either_way(name, where, trained):
    made, ids = layer(position=LearnedPositionalEmbedding(9, WIDTH)), WRONG[name]
    good = torch.zeros((1, 2), dtype=torch.int64)
    given = {"extra_ids": {"language": ids if where == "language" else good}}
    if where in ("position_ids", "segment_ids"):
        given[where] = ids
    told = []
    for way in (contextlib.nullcontext, kernels_alone):
        with way(), torch.set_grad_enabled(trained), pytest.raises(TokenIdError) as caught:
            made.token(ids) if where == "token" else made(ids if where == "ids" else good, **given)
        told.append(str(caught.value))
    assert told[0] == told[1]


@pytest.mark.parametrize("start", [599, 600])
def test_too_long_a_text_is_said_to_be_either_way(start):
    """From 599 on the table has one row left, which would serve both tokens."""
    made = layer()
    for way in (contextlib.nullcontext, kernels_alone):
        with way(), torch.no_grad(), pytest.raises(ShapeError, match=f"{start + 2} positions are needed"):
            made(IDS[:, :2], start=start, extra_ids={"language": LANGUAGES["language"][:2]})


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_other_integers_are_ids_too(dtype):
    made = layer()
    with torch.no_grad():
        expected = made(IDS, extra_ids=LANGUAGES)
        assert torch.equal(
            made(IDS.to(dtype), extra_ids={"language": LANGUAGES["language"].to(dtype)}), expected
        )
        assert torch.equal(made.token(IDS.to(dtype)), made.token(IDS))


def test_a_padding_row_among_the_rows_of_all_gets_no_gradient():
    made = layer()
    made.segment = SegmentEmbedding(2, WIDTH, padding_idx=0)
    made(IDS, extra_ids=LANGUAGES).sum().backward()
    assert not made.segment.weight.grad.any()
    with pytest.raises(IndexError, match="row 0 is the padding row"):
        unfused.neighbors(made.segment, range(1))


@pytest.mark.parametrize("part", ["token", "position", "segment", "layer_norm"])
def test_a_tensor_in_place_of_a_parameter_is_read(part):
    made = layer(norm=True)
    with torch.no_grad():
        expected = made(IDS, extra_ids=LANGUAGES)
        module = getattr(made, part)
        weight = module.weight.detach()
        del module.weight
        module.weight = weight
        torch.testing.assert_close(made(IDS, extra_ids=LANGUAGES), expected)


@pytest.mark.parametrize("scale", [None, 2.0, torch.tensor(2.0)])
def test_a_lookups_scale_is_the_same_either_way(scale):
    embedding, found = TokenEmbedding(ROWS, WIDTH, scale=scale), []
    for way in (contextlib.nullcontext, kernels_alone):
        embedding.weight.grad = None
        with way():
            out = embedding(IDS)
            out.backward(torch.ones_like(out))
        found.append((out, embedding.weight.grad))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    assert torch.equal(found[0][0].detach(), embedding.weight[IDS].detach() * (1.0 if scale is None else 2.0))


def test_the_ids_of_frozen_and_inference_tables():
    made = layer()
    made.requires_grad_(False)
    with torch.inference_mode():
        inside = made(IDS, extra_ids=LANGUAGES)
        made_inside = layer()
    assert torch.equal(made(IDS, extra_ids=LANGUAGES), inside)
    assert torch.equal(made_inside(IDS, extra_ids=LANGUAGES), made_inside(IDS, extra_ids=LANGUAGES))
