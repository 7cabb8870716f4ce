import copy
import io
import pickle
from functools import partial

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, load_model, save_model

from tokenspace import reference
from tokenspace.errors import ShapeError, TokenIdError
from tokenspace.nn import LMHead, Projection, TokenEmbedding
from tokenspace.nn.initializers import truncated_normal_, xavier_uniform_
from tokenspace.table import Table
from tokenspace.vocab import Vocab

V, D = 7, 4
IDS = {"distinct": [[0, 1, 2]], "repeated": [[2, 2, 5], [2, 0, 0]], "one": [[3]], "empty": [[]]}
INTEGERS = (
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)


def pair(dtype=np.float64, **settings):
    """The same table as a module and as the NumPy truth."""
    weight = np.random.default_rng(0).normal(size=(V, D)).astype(dtype)
    truth = dict(settings)
    if "padding_idx" in truth:
        truth["padding_id"] = truth.pop("padding_idx")
    module = TokenEmbedding.from_pretrained(torch.tensor(weight), freeze=False, **settings)
    return module, reference.Embedding.from_weight(weight, **truth)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "settings", [{}, {"scale": "sqrt"}, {"scale": 3.5, "padding_idx": 0}], ids=["plain", "sqrt", "padded"]
)
def test_rows_and_gradient_are_the_references(ids, dtype, settings):
    module, truth = pair(dtype, **settings)
    ids = np.array(ids, np.int64)
    out = module(torch.tensor(ids))
    np.testing.assert_array_equal(out.detach().numpy(), truth.forward(ids))
    upstream = np.random.default_rng(1).normal(size=out.shape).astype(dtype)
    out.backward(torch.tensor(upstream))
    np.testing.assert_allclose(
        module.weight.grad.numpy(),
        truth.backward(upstream),
        rtol=1e-6,
        atol=1e-12 if dtype == np.float64 else 1e-6,
    )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_every_integer_type_is_an_id(dtype):
    module, _ = pair()
    ids = torch.tensor([[0, 6], [3, 3]])
    assert torch.equal(module(ids.to(dtype)), module(ids))


@pytest.mark.parametrize(
    "ids", [[[0, 7]], [[-1]], [[0.0]], [[True]]], ids=["past", "negative", "float", "bool"]
)
def test_an_id_that_is_no_row_is_told_with_and_without_gradients(ids):
    module, truth = pair()
    with pytest.raises(TokenIdError) as expected:
        truth.forward(np.array(ids, np.float32) if ids == [[0.0]] else ids)
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context(), pytest.raises(TokenIdError) as found:
            module(torch.tensor(ids))
        assert str(found.value) == str(expected.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # torch's own, on import
def test_compiled_code_gives_the_same_rows_and_gradient_and_the_same_error():
    module, truth = pair(padding_idx=1, scale="sqrt", freeze_padding=True)
    compiled = torch.compile(module, fullgraph=True)
    ids = torch.tensor([[1, 2, 2]])
    out = compiled(ids)
    np.testing.assert_array_equal(out.detach().numpy(), truth.forward(ids.numpy()))
    out.sum().backward()
    np.testing.assert_array_equal(module.weight.grad.numpy(), truth.backward(np.ones(out.shape)))
    with pytest.raises(TokenIdError, match="the first is 7 at batch 0, position 1"):
        compiled(torch.tensor([[1, 7, 2]]))


class TestScale:
    def test_gemma_s_factor_is_rounded_to_the_type_of_the_table(self):
        module = TokenEmbedding(5, 3072, scale="sqrt", scale_dtype="weight", dtype=torch.bfloat16)
        ids = torch.arange(5)
        assert torch.equal(module(ids), module.weight * torch.tensor(3072**0.5, dtype=torch.bfloat16))
        assert torch.equal(module.float()(ids), module.weight * 3072**0.5)

    def test_a_fixed_type(self):
        assert TokenEmbedding(5, 3072, scale="sqrt", scale_dtype=torch.bfloat16).scale == 55.5
        assert TokenEmbedding(5, 3072, scale="sqrt").scale == 3072**0.5

    @pytest.mark.parametrize(
        "settings",
        [
            {"scale": "cube"},
            {"scale": float("nan")},
            {"scale": 1.0, "scale_dtype": torch.int32},
            {"scale": 1e30, "scale_dtype": torch.float16},
        ],
    )
    def test_what_is_no_scale_is_refused(self, settings):
        with pytest.raises(ShapeError, match="scale"):
            TokenEmbedding(5, 4, **settings)


class TestProject:
    def test_long_rows_are_shortened_and_short_ones_keep_their_bits(self):
        weight = torch.tensor([[3.0, 4.0], [0.1, 0.2], [0.0, 0.0], [30.0, 40.0]])
        module = TokenEmbedding.from_pretrained(weight.clone())
        assert module.project_(2.0) is module
        torch.testing.assert_close(module.weight[[0, 3]], torch.tensor([[1.2, 1.6], [1.2, 1.6]]))
        assert torch.equal(module.weight[1:3], weight[1:3])

    @pytest.mark.parametrize("named", [False, True])
    @pytest.mark.parametrize(
        ("dtype", "length"),
        [
            (torch.float16, 65_600.0), (torch.float16, 1e-5), (torch.bfloat16, 1e30), (torch.bfloat16, 1e-30),
            (torch.float32, 1e30), (torch.float32, 3e38), (torch.float32, 1e-30), (torch.float32, 1e-37),
            (torch.float64, 1e300), (torch.float64, 1e-300),
        ],
    )  # fmt: skip
    def test_lengths_whose_squares_leave_the_tables_type(self, dtype, length, named):
        rows = torch.tensor([[0.6, 0.8, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64) * length
        module = TokenEmbedding.from_pretrained(rows.to(dtype))
        largest = max(1e-37, min(length / 3, 1.0))
        exact = module.weight[0].double() / length
        module.project_(largest, torch.tensor([0, 1]) if named else None)
        found = module.weight[0].double() / largest
        if length > largest:
            tolerance = 2e-2 if length == 1e-5 else 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(found, exact / exact.norm(), rtol=0, atol=max(tolerance, 1e-12))
        else:
            assert torch.equal(module.weight[0].double() / length, exact)
        assert not module.weight[1].any()

    def test_only_the_rows_named(self):
        module = TokenEmbedding.from_pretrained(torch.full((4, 2), 3.0), freeze=False)
        module.project_(1.0, torch.tensor([[1, 1], [3, 1]], dtype=torch.uint8))
        assert (module.weight[[0, 2]] == 3.0).all()
        torch.testing.assert_close(module.weight[[1, 3]].norm(dim=1), torch.ones(2))
        with pytest.raises(TokenIdError):
            module.project_(1.0, torch.tensor([4]))

    def test_what_can_not_be_measured_stays_visible(self):
        module = TokenEmbedding.from_pretrained(torch.tensor([[float("nan"), 1.0], [float("inf"), 1.0]]))
        assert module.project_(1.0).weight.isnan()[:, 0].all()

    def test_inside_the_forward_is_refused(self):
        with pytest.raises(ShapeError, match=r"call project_\(max_norm\)"):
            TokenEmbedding(V, D, max_norm=1.0)
        with pytest.raises(ShapeError, match="max_norm"):
            TokenEmbedding(V, D).project_(0.0)


class TestAddRows:
    def test_old_rows_stay_and_the_new_ones_are_given(self):
        module = TokenEmbedding(V, D, padding_idx=0, dtype=torch.bfloat16)
        old = module.weight
        assert module.add_rows(2, torch.ones(2, D)) == range(7, 9)
        assert torch.equal(module.weight[:7], old)
        assert (module.weight[7:] == 1).all()
        assert module.weight.dtype == torch.bfloat16
        assert module(torch.tensor([8])).shape == (1, D)

    def test_new_rows_are_drawn_as_the_whole_table_would_be(self):
        torch.manual_seed(0)
        module = TokenEmbedding(2_000, 64, initializer=xavier_uniform_)
        module.add_rows(500)
        bound = (6 / 2_564) ** 0.5
        assert 0.98 * bound < module.weight[2_000:].abs().max() <= bound

    @pytest.mark.parametrize("trained", [True, False])
    def test_the_parameter_keeps_what_it_was(self, trained):
        module = TokenEmbedding(V, D).requires_grad_(trained)
        module.add_rows(1)
        assert isinstance(module.weight, torch.nn.Parameter)
        assert module.weight.requires_grad is trained
        assert list(module.state_dict()) == ["weight"]

    @pytest.mark.parametrize("n", [0, -1, 1.5])
    def test_how_many(self, n):
        with pytest.raises(ShapeError):
            TokenEmbedding(V, D).add_rows(n)

    def test_rows_of_another_width(self):
        with pytest.raises(ShapeError, match=r"2 new rows are \(2, 4\); found \(2, 5\)"):
            TokenEmbedding(V, D).add_rows(2, torch.ones(2, 5))

    def test_the_documented_way_to_bring_an_optimizer_along_keeps_its_moments(self):
        module = TokenEmbedding(V, D)
        optimizer = torch.optim.AdamW(module.parameters())
        module(torch.tensor([1])).sum().backward()
        optimizer.step()
        old = module.weight
        module.add_rows(2)
        state = optimizer.state.pop(old)
        for group in optimizer.param_groups:
            group["params"] = [module.weight if p is old else p for p in group["params"]]
        rows = (0, 0, 0, 2)
        optimizer.state[module.weight] = {
            name: torch.nn.functional.pad(value, rows) if value.shape == old.shape else value
            for name, value in state.items()
        }
        before = module.weight.detach().clone()
        module(torch.tensor([8])).sum().backward()
        optimizer.step()
        assert (module.weight[[1, 8]] != before[[1, 8]]).any(dim=1).all()


class TestTravels:
    def test_state_dict_keys_and_class_are_torch_s(self):
        module = TokenEmbedding(V, D, padding_idx=0, freeze_padding=True)
        assert isinstance(module, torch.nn.Embedding)
        plain = torch.nn.Embedding(V, D, padding_idx=0)
        plain.load_state_dict(module.state_dict())
        assert torch.equal(plain(torch.tensor([3])), module(torch.tensor([3])))

    def test_made_on_meta_then_drawn(self):
        module = TokenEmbedding(
            V, D, padding_idx=0, initializer=partial(truncated_normal_, std=0.5), device="meta"
        )
        assert module.weight.is_meta
        assert module(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, D)
        module.to_empty(device="cpu")
        torch.manual_seed(3)
        module.reset_parameters()
        torch.manual_seed(3)
        assert torch.equal(
            module.weight,
            TokenEmbedding(V, D, padding_idx=0, initializer=partial(truncated_normal_, std=0.5)).weight,
        )

    def test_safetensors_and_torch_files(self, tmp_path):
        module, again = TokenEmbedding(V, D), TokenEmbedding(V, D)
        save_model(module, tmp_path / "model.safetensors")
        assert list(load_file(tmp_path / "model.safetensors")) == ["weight"]
        load_model(again, tmp_path / "model.safetensors")
        assert torch.equal(again.weight, module.weight)
        file = io.BytesIO()
        torch.save(module.state_dict(), file)
        file.seek(0)
        again.load_state_dict(torch.load(file, weights_only=True))

    def test_copies_are_apart_and_alike(self):
        module = TokenEmbedding(V, D, padding_idx=2, scale="sqrt", freeze_padding=True)
        for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert repr(twin) == repr(module)
            assert torch.equal(twin.weight, module.weight)
            assert twin.weight.data_ptr() != module.weight.data_ptr()

    def test_functional_call_reads_the_weight_given(self):
        module = TokenEmbedding(V, D, padding_idx=0, scale=2.0, freeze_padding=True)
        weight = torch.randn(V, D)
        ids = torch.tensor([[0, 3, 3]])
        out = torch.func.functional_call(module, {"weight": weight}, (ids,))
        assert torch.equal(out, 2 * weight[ids])
        gradient = torch.func.grad(lambda w: torch.func.functional_call(module, {"weight": w}, (ids,)).sum())(
            weight
        )
        assert torch.equal(gradient, torch.zeros(V, D).index_fill(0, torch.tensor([3]), 4.0))

    def test_per_sample_gradients(self):
        module = TokenEmbedding(V, D)
        ids = torch.tensor([[1, 1], [2, 3]])

        def loss(weight, ids):
            return torch.func.functional_call(module, {"weight": weight}, (ids,)).sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(module.weight.detach(), ids)
        assert each.sum(dim=2).tolist() == [[0, 8, 0, 0, 0, 0, 0], [0, 0, 4, 4, 0, 0, 0]]

    def test_autocast_leaves_rows_in_their_type(self):
        module = TokenEmbedding(V, D, scale="sqrt")
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(module(torch.tensor([1])), module.weight[[1]] * 2)

    def test_a_tied_linear_layer_is_one_parameter(self):
        module, linear = TokenEmbedding(V, D), torch.nn.Linear(D, V, bias=False)
        linear.weight = module.weight
        assert len(list(torch.nn.ModuleList([module, linear]).parameters())) == 1

    def test_repr_says_what_it_is(self):
        assert repr(TokenEmbedding(V, D, padding_idx=1, freeze_padding=True, sparse=True)) == (
            "TokenEmbedding(7, 4, padding_idx=1, freeze_padding=True, sparse=True)"
        )


class TestMadeFrom:
    def test_a_table_bit_for_bit(self):
        weight = np.random.default_rng(0).normal(size=(3, 4)).astype(ml_dtypes.bfloat16)
        table = Table(weight, Vocab(["a", "b", "c"]))
        module = TokenEmbedding.from_table(table, padding_idx=1)
        assert module.weight.dtype == torch.bfloat16
        assert module.weight.requires_grad
        np.testing.assert_array_equal(module.weight.detach().view(torch.int16).numpy(), weight.view(np.int16))
        np.testing.assert_array_equal(
            TokenEmbedding.from_table(table, torch.float32).weight.detach(), table.weight
        )

    def test_a_tensor_uncopied_and_by_default_not_trained(self):
        weight = torch.ones(3, 4)
        module = TokenEmbedding.from_pretrained(weight, padding_idx=1)
        assert module.weight.data_ptr() == weight.data_ptr()
        assert not module.weight.requires_grad
        assert module.weight[1].all()

    @pytest.mark.parametrize("bad", [torch.ones(3), torch.ones(3, 2, dtype=torch.int64), torch.ones(0, 3)])
    def test_what_is_no_table(self, bad):
        with pytest.raises(ShapeError, match=r"a table is \(V, D\)"):
            TokenEmbedding.from_pretrained(bad)

    @pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (2.5, 4), (True, 4)])
    def test_sizes(self, sizes):
        with pytest.raises(ShapeError):
            TokenEmbedding(*sizes)


@pytest.mark.parametrize("rows", [9, 13])
def test_ids_are_checked_by_the_rows_that_are_there(rows):
    module, weight = TokenEmbedding(11, 2), torch.arange(2.0 * rows).reshape(rows, 2)
    replaced = TokenEmbedding(11, 2)
    replaced.weight = torch.nn.Parameter(weight)
    for call in (lambda ids: torch.func.functional_call(module, {"weight": weight}, (ids,)), replaced):
        assert torch.equal(call(torch.tensor([rows - 1])), weight[-1:])
        with pytest.raises(TokenIdError, match=f"this table of {rows} rows"):
            call(torch.tensor([rows]))
    with pytest.raises(TokenIdError, match=f"this table of {rows} rows"):
        replaced.project_(1.0, torch.tensor([rows]))


def test_project_reads_by_a_kernel_that_stops_at_a_negative_id(monkeypatch):
    monkeypatch.setattr("tokenspace.nn.embedding.check_ids", lambda ids, rows, what: ids)  # as on a device
    with pytest.raises(IndexError, match="out of range"):
        TokenEmbedding(4, 2).project_(1.0, torch.tensor([-1]))


def returns_a_tensor(weight):
    return torch.ones_like(weight)


def test_an_initializer_has_to_fill_in_place():
    words = r"left 8 of 8 numbers unset, or NaN; it has to fill the tensor"
    with pytest.raises(ShapeError, match=words):
        TokenEmbedding(4, 2, initializer=returns_a_tensor)
    with pytest.raises(ShapeError, match=words):
        Projection(2, 4, initializer=returns_a_tensor)
    with pytest.raises(ShapeError, match=words):
        LMHead.untied(4, 2, initializer=returns_a_tensor)
    module = TokenEmbedding(3, 2)
    before = module.weight
    with pytest.raises(ShapeError, match=words):
        module.add_rows(1, returns_a_tensor)
    assert module.weight is before
    assert module.num_embeddings == 3
    assert TokenEmbedding(4, 2, initializer=returns_a_tensor, device="meta").weight.is_meta


def test_from_pretrained_takes_device_and_dtype_and_draws_nothing():
    drawn, rows = [], torch.eye(3)
    module = TokenEmbedding.from_pretrained(rows, initializer=drawn.append, dtype=torch.bfloat16)
    assert module.weight.dtype == torch.bfloat16
    assert drawn == []
    assert module.initializer == drawn.append
    assert TokenEmbedding.from_pretrained(rows, device="meta").weight.is_meta
    assert TokenEmbedding.from_pretrained(rows, device="cpu").weight.data_ptr() == rows.data_ptr()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_table_of_no_floats(dtype):
    with pytest.raises(ShapeError, match=r"dtype must be a floating-point torch\.dtype"):
        TokenEmbedding(3, 2, dtype=dtype)
    with pytest.raises(ShapeError, match=r"dtype must be a floating-point torch\.dtype"):
        TokenEmbedding.from_pretrained(torch.eye(3), dtype=dtype)
