"""The whole input at once, or part by part: nobody can tell, whatever was done to a part."""

import copy
import functools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from tokenspace.errors import TokenIdError
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
    dispatch,
    fusion,
)

V, D, T = 11, 6, 5
PARTS = [TokenEmbedding, LearnedPositionalEmbedding, SegmentEmbedding]
RECIPES = ("token", "gpt2", "bert", "roberta", "paper", "kept", "xlm", "albert", "opt-350m")


def make(recipe="bert", dtype=torch.float32, p=0.25):
    torch.manual_seed(0)
    table = functools.partial(TokenEmbedding, V, D, dtype=dtype)
    norm = functools.partial(nn.LayerNorm, D, dtype=dtype)
    position = functools.partial(LearnedPositionalEmbedding, T + 2, dtype=dtype)
    drop = nn.Dropout(p)
    layer = {
        "token": lambda: TransformerInput(table(scale="sqrt")),
        "gpt2": lambda: TransformerInput(table(), position(D), dropout=drop),
        "bert": lambda: TransformerInput(
            table(padding_idx=0),
            position(D),
            SegmentEmbedding(2, D, dtype=dtype),
            layer_norm=norm(),
            dropout=drop,
        ),
        "roberta": lambda: TransformerInput(
            table(padding_idx=1),
            position(D, padding_idx=1, offset=2),
            SegmentEmbedding(1, D, dtype=dtype),
            layer_norm=norm(elementwise_affine=False),
            dropout=drop,
        ),
        "paper": lambda: TransformerInput(
            table(scale="sqrt"), SinusoidalPositionalEncoding(D, dtype=dtype), dropout=drop
        ),
        "kept": lambda: TransformerInput(
            table(),
            SinusoidalPositionalEncoding(D, max_positions=T, dtype=dtype),
            layer_norm=norm(bias=False),
        ),
        "xlm": lambda: TransformerInput(
            table(sparse=True, padding_idx=2),
            extras={name: SegmentEmbedding(3, D, name=name, dtype=dtype) for name in ("language", "role")},
            layer_norm=norm(),
        ),
        "albert": lambda: TransformerInput(
            table(), position(D), layer_norm=norm(), dropout=drop, projection=Projection(D, 8, dtype=dtype)
        ),
        "opt-350m": lambda: TransformerInput(
            table(), position(8, offset=2), dropout=drop, projection=Projection(D, 8, False, dtype=dtype)
        ),
    }[recipe]()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return layer


def arguments(layer, batch=3, length=T, seed=0):
    rng = np.random.default_rng(seed)
    given = {"ids": torch.tensor(rng.integers(0, V, (batch, length)))}
    if layer.segment is not None:
        given["segment_ids"] = torch.tensor(rng.integers(0, layer.segment.num_embeddings, (batch, length)))
    if layer.extras:
        given["extra_ids"] = {
            name: torch.tensor(rng.integers(0, 3, (batch, length))) for name in layer.extras
        }
    return given


def by_parts(layer):
    """The same module, whose parts have to be called: one has a hook that does nothing."""
    twin = copy.deepcopy(layer)
    twin.token.register_forward_hook(lambda module, args, out: None)
    return twin


def run(layer, given, seed=1):
    """What comes out and every gradient; dropout's seed is drawn from ``seed``."""
    layer.zero_grad()
    torch.manual_seed(seed)
    out = layer(**given)
    torch.manual_seed(2)
    out.backward(torch.randn(out.shape).to(out.dtype))
    gradients = {
        name: each.grad.to_dense() for name, each in layer.named_parameters() if each.grad is not None
    }
    return out.detach(), gradients


def is_fused(layer, given):
    """Whether one operation of ours made it, but for a projection."""
    waiting, names = [layer(**given).grad_fn], []
    while waiting:
        node = waiting.pop()
        names.append(node.name())
        waiting += [up for up, _ in node.next_functions if up is not None]
    parts = {"AddBackward0", "DropBackward", "NativeLayerNormBackward0", "EmbeddingBackward0"}
    return names.count("EmbedBackward") == 1 and not parts & set(names)


def assert_same(found, expected, normed, dtype=torch.float32):
    step = {torch.float32: 1e-6, torch.float64: 1e-13}.get(dtype, 4 * torch.finfo(dtype).eps)
    if normed:
        torch.testing.assert_close(found[0], expected[0], rtol=step, atol=step)
    else:
        assert torch.equal(found[0], expected[0])
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=8 * step, atol=8 * step, msg=name)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_at_once_or_by_parts_the_numbers_and_gradients_are_the_same(recipe, dtype, training):
    layer = make(recipe, dtype).train(training)
    given = arguments(layer)
    if recipe != "opt-350m":
        assert is_fused(layer, given)
    assert not is_fused(by_parts(layer), given) or recipe == "token"
    found, expected = run(layer, given), run(by_parts(layer), given)
    assert_same(found, expected, layer.layer_norm is not None or recipe == "opt-350m", dtype)
    with dispatch.torch_only():
        alone = run(layer, given)
    assert_same(found, alone, layer.layer_norm is not None or layer.projection is not None, dtype)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_whatever_is_drawn(data):
    recipe = data.draw(st.sampled_from(RECIPES))
    layer = make(recipe).train(data.draw(st.booleans()))
    batch, length = data.draw(st.integers(0, 4)), data.draw(st.integers(0, T))
    given = arguments(layer, batch, length, data.draw(st.integers(0, 99)))
    kind = data.draw(st.sampled_from(["any", "all equal", "all padding"]))
    if kind != "any":
        equal = layer.token.padding_idx if kind == "all padding" else 3
        given["ids"] = torch.full_like(given["ids"], 3 if equal is None else equal)
    if layer.position is not None and data.draw(st.booleans()):
        shape = data.draw(st.sampled_from([(batch, length), (1, length), (length,)]))
        given["position_ids"] = torch.randint(0, T, shape)
    elif layer.position is not None:
        given["start"] = data.draw(
            st.integers(0, T - length) | st.just(torch.zeros(batch, dtype=torch.int64))
        )
    if data.draw(st.booleans()):
        given["attention_mask"] = torch.randint(0, 2, (batch, length))
    if data.draw(st.booleans()):
        given.pop("segment_ids", None)
    if data.draw(st.booleans()):
        given["ids"] = given["ids"].T.contiguous().T
    if data.draw(st.booleans()):
        given["ids"] = given["ids"].to(data.draw(st.sampled_from([torch.uint8, torch.int32])))
    found, expected = run(layer, given), run(by_parts(layer), given)
    assert_same(found, expected, layer.layer_norm is not None or layer.projection is not None)


def doubled(module, args, out):
    return out * 2


class Adapter(nn.Module):
    """As PEFT wraps a layer: in its place, with the layer inside."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.full((base.num_embeddings, 2), 0.5))
        self.lora_b = nn.Parameter(torch.arange(2.0 * base.embedding_dim).view(2, -1))

    @property
    def weight(self):
        return self.base.weight

    def forward(self, ids):
        return self.base(ids) + nn.functional.embedding(ids, self.lora_a) @ self.lora_b


class Twice(nn.Module):
    def forward(self, weight):
        return weight * 2


class Louder(SegmentEmbedding):
    def forward(self, ids):
        return super().forward(ids) * 2


def patch(module):
    """As accelerate does."""
    old = module.forward
    module.forward = lambda *args, **more: old(*args, **more) * 2


def weight_norm(module):
    parametrizations.weight_norm(module)
    with torch.no_grad():
        module.parametrizations.weight.original0.fill_(0.5)


def subclassed(layer):
    layer.segment.__class__ = Louder


def scaled(layer):
    layer.position.scale = 2.0


def scaled_by_what_is_trained(layer):
    layer.token.scale = torch.tensor(2.0, requires_grad=True)


CHANGES = {
    "forward hook": lambda layer: layer.token.register_forward_hook(doubled),
    "forward hook on the norm": lambda layer: layer.layer_norm.register_forward_hook(doubled),
    "forward hook on dropout": lambda layer: layer.dropout.register_forward_hook(doubled),
    "pre-hook": lambda layer: layer.segment.register_forward_pre_hook(lambda module, args: (1 - args[0],)),
    "parametrization": lambda layer: parametrize.register_parametrization(layer.position, "weight", Twice()),
    "weight norm": lambda layer: weight_norm(layer.token),
    "pruning": lambda layer: prune.l1_unstructured(layer.token, "weight", amount=0.5),
    "wrapper": lambda layer: setattr(layer, "token", Adapter(layer.token)),
    "patched forward": lambda layer: patch(layer.layer_norm),
    "patched forward of the table": lambda layer: patch(layer.token),
    "subclass": subclassed,
    "scale of an added table": scaled,
    "trained scale": scaled_by_what_is_trained,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_done_to_a_part_is_done(change):
    layer, twin = make().eval(), make().eval()
    given = arguments(layer)
    before = run(layer, given)
    for each in (layer, twin):
        change(each)
    assert not is_fused(layer, given)
    found = run(layer, given)
    with dispatch.torch_only():
        expected = run(twin, given)
    assert_same(found, expected, normed=True)
    assert not torch.allclose(found[0], before[0])


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # ids need no gradient
@pytest.mark.parametrize("part", ["token", "position", "segment", "layer_norm", "dropout"])
def test_backward_hooks_see_their_gradients(part):
    layer, seen = make(), []
    getattr(layer, part).register_full_backward_hook(lambda module, into, out: seen.append(module))
    run(layer, arguments(layer))
    assert seen == [getattr(layer, part)]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("part", ["token", "position", "segment", "layer_norm", "dropout"])
def test_backward_pre_hooks_change_their_gradients(part):
    layer = make()
    getattr(layer, part).register_full_backward_pre_hook(lambda module, out: (out[0] * 0,))
    _, gradients = run(layer, arguments(layer))
    names = {"dropout": "layer_norm.bias"}.get(part, f"{part}.weight")
    assert not gradients[names].any()


def test_global_hooks_see_every_part():
    layer, seen = make(), []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append(type(module))
    )
    try:
        layer(**arguments(layer))
    finally:
        handle.remove()
    assert seen == [*PARTS, nn.LayerNorm, nn.Dropout, TransformerInput]
    assert is_fused(layer, arguments(layer))


def test_a_table_of_another_width_meets_as_torch_lets_it():
    layer = make().eval()
    layer.position.weight = nn.Parameter(torch.randn(T, 1))  # the same number in each column
    given = arguments(layer)
    assert not is_fused(layer, given)
    with dispatch.torch_only():
        expected = run(layer, given)
    assert_same(run(layer, given), expected, normed=True)


def test_an_added_table_may_have_a_row_sparse_gradient():
    layer = make()
    expected = run(layer, arguments(layer))
    layer.position.sparse = True
    assert_same(run(layer, arguments(layer)), expected, normed=True)
    assert layer.position.weight.grad.is_sparse


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_over_whole_texts_is_torch_s(affine):
    layer = make().eval()
    layer.layer_norm = nn.LayerNorm((T, D), elementwise_affine=affine)
    given = arguments(layer)
    out = layer(**given)
    assert not is_fused(layer, given)
    torch.testing.assert_close(out.mean((1, 2)), torch.zeros(3), atol=1e-6, rtol=0)
    assert out.mean(2).abs().max() > 1e-3


def test_a_scale_that_is_trained_gets_its_gradient():
    layer = make()
    scaled_by_what_is_trained(layer)
    layer(**arguments(layer)).square().sum().backward()
    assert layer.token.scale.grad is not None


def test_a_share_that_is_none_is_torch_s_to_refuse():
    layer = make()
    layer.dropout.p = 1.5
    with pytest.raises(ValueError, match="between 0 and 1"):
        layer(**arguments(layer))


def test_a_class_whose_forward_was_replaced(monkeypatch):
    layer = make().eval()
    given = arguments(layer)
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, x: torch.zeros_like(x))
    assert not layer(**given).any()


def test_who_watches_every_call_of_a_module_sees_the_parts(monkeypatch):
    layer, seen, call = make(), [], nn.Module.__call__

    def watched(self, *args, **more):
        seen.append(type(self))
        return call(self, *args, **more)

    monkeypatch.setattr(nn.Module, "__call__", watched)
    layer(**arguments(layer))
    assert seen[1:] == [*PARTS, nn.LayerNorm, nn.Dropout]


def test_a_part_that_was_compiled_by_itself_is_called():
    layer = make()
    layer.layer_norm._compiled_call_impl = lambda x: torch.zeros_like(x)
    assert not layer.eval()(**arguments(layer)).any()


def test_a_hook_that_is_removed_is_forgotten():
    layer = make()
    handle = layer.token.register_forward_hook(doubled)
    assert not is_fused(layer, arguments(layer))
    handle.remove()
    assert is_fused(layer, arguments(layer))


def test_pruning_made_permanent_is_fused_again():
    layer = make()
    prune.l1_unstructured(layer.token, "weight", amount=0.5)
    prune.remove(layer.token, "weight")
    assert is_fused(layer, arguments(layer))


@pytest.mark.parametrize(
    "convert", [lambda layer: layer.position.double(), lambda layer: layer.layer_norm.bfloat16()]
)
def test_parts_of_several_types_meet_as_torch_lets_them(convert):
    layer = make().eval()
    convert(layer)
    given = arguments(layer)
    with dispatch.torch_only():
        expected = outcome(layer, given)
    found = outcome(layer, given)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found[0].dtype == expected[0].dtype
        assert_same(found, expected, normed=True)


def outcome(layer, given):
    try:
        return run(layer, given)
    except RuntimeError as error:
        return str(error)


class TestTravels:
    def test_functional_call_and_copies(self):
        layer, given = make().eval(), arguments(make())
        other = make()
        expected = layer(**given)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        found = torch.func.functional_call(other.eval(), dict(layer.named_parameters()), (), given)
        assert torch.equal(found, expected)
        found.sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
        assert torch.equal(copy.deepcopy(layer)(**given), expected)

    def test_a_gradient_through_function_transforms(self):
        layer, given = make().eval(), arguments(make())
        parameters = {name: each.detach() for name, each in layer.named_parameters()}

        def loss(parameters):
            return torch.func.functional_call(layer, parameters, (), given).square().sum()

        found = torch.func.grad(loss)(parameters)
        layer(**given).square().sum().backward()
        for name, each in layer.named_parameters():
            torch.testing.assert_close(found[name], each.grad, rtol=1e-5, atol=1e-5)

    def test_a_table_shared_with_a_linear_head(self):
        layer, given = make().eval(), arguments(make())
        twin = copy.deepcopy(layer)
        results = []
        for each, switch in ((layer, False), (twin, True)):
            head = nn.Linear(D, V, bias=False)
            head.weight = each.token.weight
            context = dispatch.torch_only() if switch else torch.enable_grad()
            with context:
                head(each(**given)).logsumexp(-1).sum().backward()
            results.append(each.token.weight.grad)
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)

    def test_one_table_in_two_places(self):
        results = []
        for off in (False, True):
            layer = make("xlm").eval()
            layer.extras["language"].weight = layer.extras["role"].weight
            given = arguments(layer)
            if off:
                with dispatch.torch_only():
                    results.append(run(layer, given))
            else:
                assert is_fused(layer, given)
                results.append(run(layer, given))
        assert_same(*results, normed=True)

    def test_autocast(self):
        for dtype in (torch.float32, torch.bfloat16):
            layer = make(dtype=dtype).eval()
            given = arguments(layer)
            with torch.autocast("cpu", torch.bfloat16):
                found, expected = layer(**given), by_parts(layer)(**given)
            assert found.dtype == expected.dtype == dtype
            torch.testing.assert_close(
                found, expected, rtol=0.02 if dtype == torch.bfloat16 else 1e-6, atol=1e-2
            )

    def test_part_of_it_frozen(self):
        layer = make()
        layer.token.requires_grad_(False)
        layer.layer_norm.bias.requires_grad_(False)
        given = arguments(layer)
        found, expected = run(layer, given), run(by_parts(layer), given)
        assert_same(found, expected, normed=True)
        assert set(found[1]) == {"position.weight", "segment.weight", "layer_norm.weight"}


def test_bad_ids_have_the_same_words_at_once_and_by_parts():
    layer = make()
    for key in ("ids", "segment_ids", "position_ids"):
        given = arguments(layer)
        given[key] = torch.full((3, T), 99)
        messages = []
        for each in (layer, by_parts(layer)):
            with pytest.raises(TokenIdError) as error:
                each(**given)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
        assert f"{key.removesuffix('_ids').replace('ids', 'token')} ids are" in messages[0]


def test_a_part_is_plain_only_as_it_was_made():
    assert fusion.is_plain(nn.Dropout(0.1))
    assert not fusion.is_plain(nn.AlphaDropout(0.1))
    assert not fusion.is_plain(nn.Embedding(2, 2))
