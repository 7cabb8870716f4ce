import copy
import gc
import io
import itertools
import pickle
import weakref

import pytest
import safetensors.torch
import torch
from torch import nn

from tokenspace.errors import CheckpointError, ShapeError, TokenIdError
from tokenspace.models.open import open_checkpoint
from tokenspace.nn import LMHead, TokenEmbedding, TransformerInput, initializers
from tokenspace.nn import loss as loss_module

V, D = 30, 8
compiles = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler


class Model(nn.Module):
    """One table read at the bottom and scored at the top; ``first`` of the two is registered first."""

    def __init__(self, first="embedding", *, bias=True, device=None, **embedding):
        super().__init__()
        table = TokenEmbedding(V, D, device=device, **embedding)
        parts = {"embedding": table, "head": LMHead(table, bias=bias)}
        for name in sorted(parts, key=first.__ne__):
            self.add_module(name, parts[name])
        self.body = nn.Linear(D, D, device=device)

    def forward(self, ids):
        return self.head(self.body(self.embedding(ids)))

    def loss(self, ids, **options):
        return self.head.loss(self.body(self.embedding(ids[:, :-1])), ids[:, 1:], **options)


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(loss_module, "CHUNK_NUMBERS", 4 * V)


@pytest.fixture
def ids():
    return torch.randint(1, V, (3, 6))


def assert_tied(model):
    table = model.embedding.weight
    assert model.head.weight is table
    assert model.head.embedding is model.embedding
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    assert names.count("embedding.weight") == 1
    assert "head.weight" not in names
    assert sum(parameter is table for parameter in model.parameters()) == 1
    assert not [name for name in model.state_dict() if name.startswith("head.") and name != "head.bias"]
    with torch.no_grad():  # the numbers too: what is written into the table is what the head scores with
        before = table[3].clone()
        table[3] = 2.0
        bias = 0.0 if model.head.bias is None else float(model.head.bias[3])
        assert model.head(torch.ones(1, D, dtype=table.dtype))[0, 3] == 2.0 * D + bias
        table[3] = before


def trained(model, ids, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(ids).backward()
        optimizer.step()
    return model


# What it computes


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_nothing_but_ignored_labels_is_no_loss_and_no_gradient(chunked, ids):
    model = Model()
    loss = model.head.loss(model.embedding(ids), torch.full_like(ids, 7), ignore_index=7, chunked=chunked)
    loss.backward()
    assert loss.item() == 0.0
    assert not model.embedding.weight.grad.any()


# Errors


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden_scale": "sqrt"}, "hidden_scale must be a number or 'rsqrt'"),
        ({"logit_scale": float("nan")}, "logit_scale"),
        ({"soft_cap": 0.0}, "soft_cap"),
    ],
)
def test_settings_are_refused(settings, words):
    with pytest.raises(ShapeError, match=words):
        LMHead(TokenEmbedding(V, D), **settings)
    with pytest.raises(ShapeError, match=words):
        LMHead.untied(V, D, **settings)


def test_only_an_embedding_can_be_tied_to():
    with pytest.raises(ShapeError, match=r"found Parameter; LMHead.untied"):
        LMHead(TokenEmbedding(V, D).weight)


def test_a_frozen_padding_row_is_never_predicted_nor_a_label():
    head = LMHead(TokenEmbedding(V, D, padding_idx=0, freeze_padding=True))
    assert torch.isneginf(head(torch.randn(2, D))[:, 0]).all()
    with pytest.raises(TokenIdError, match="row 0, the frozen padding row"):
        head.loss(torch.randn(2, D), torch.tensor([1, 0]))


# Tied, whatever happens


@pytest.mark.parametrize("first", ["embedding", "head"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_tied_through_everything_that_moves_parameters(first, bias, ids):
    model = Model(first, bias=bias)
    assert_tied(model)
    assert_tied(model.double())
    assert_tied(model.to(torch.float32))
    assert_tied(trained(model, ids))
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)
    assert_tied(model)
    model.embedding.weight = nn.Parameter(torch.randn(V, D))
    assert_tied(model)
    assert_tied(trained(model, ids))


@pytest.mark.parametrize("first", ["embedding", "head"])
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_is_tied_to_its_own_table(first, copied, ids):
    model = Model(first)
    other = copied(model)
    assert_tied(other)
    assert other.embedding.weight is not model.embedding.weight
    before = model.embedding.weight.detach().clone()
    trained(other, ids)
    assert torch.equal(model.embedding.weight, before)
    assert_tied(copied(other))


@pytest.mark.parametrize("first", ["embedding", "head"])
def test_from_the_meta_device(first, ids):
    model = Model(first, device="meta")
    filled = copy.deepcopy(model).to_empty(device="cpu")
    for module in filled.children():
        module.reset_parameters()
    assert_tied(trained(filled, ids))
    state = Model().state_dict()
    model.load_state_dict(state, assign=True)
    assert_tied(model)
    assert torch.equal(model.embedding.weight, state["embedding.weight"])


def test_saved_once_and_tied_when_loaded(tmp_path, ids):
    model = trained(Model(), ids)
    safetensors.torch.save_model(model, str(tmp_path / "model.safetensors"))
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert sorted(stored) == ["body.bias", "body.weight", "embedding.weight", "head.bias"]
    other = Model()
    other.load_state_dict(stored)
    assert_tied(other)
    assert torch.equal(other(ids), model(ids))
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(other(ids), model(ids))


def test_both_gradients_reach_the_one_table(ids):
    model = Model()
    model.loss(ids).backward()
    read_only = copy.deepcopy(model)
    read_only.zero_grad()
    hidden = read_only.body(read_only.embedding(ids[:, :-1]))
    head = LMHead(nn.Embedding.from_pretrained(read_only.embedding.weight.detach(), freeze=False))
    head.loss(hidden, ids[:, 1:]).backward()
    total = read_only.embedding.weight.grad + head.weight.grad
    torch.testing.assert_close(model.embedding.weight.grad, total)


def test_three_way_sharing(ids):
    shared = TokenEmbedding(V, D)
    model = nn.ModuleDict(
        {"encoder": nn.ModuleDict({"token": shared}), "decoder": nn.ModuleDict({"token": shared})}
    )
    model["head"] = LMHead(shared, hidden_scale="rsqrt")
    assert [name for name, _ in model.named_parameters()] == ["encoder.token.weight"]
    other = copy.deepcopy(model).to(torch.float64)
    assert other["head"].weight is other["encoder"]["token"].weight is other["decoder"]["token"].weight
    # T5's files hold each of the three names
    state = {f"{name}.weight": torch.ones(V, D) for name in ("encoder.token", "decoder.token", "head")}
    other.load_state_dict(state)
    assert (other["head"].weight == 1.0).all()


# A state dict with the head's own weight


@pytest.mark.parametrize(
    ("first", "assign", "prefix"),
    list(itertools.product(["embedding", "head"], [False, True], ["", "model."])),
)
def test_the_heads_own_weight_is_accepted_when_equal_and_refused_when_not(first, assign, prefix):
    model, state = Model(first), Model().state_dict()
    if prefix:
        model = nn.ModuleDict({"model": model})
    state = {prefix + name: tensor.clone() for name, tensor in state.items()}
    head, table = f"{prefix}head.weight", f"{prefix}embedding.weight"
    result = model.load_state_dict({**state, head: state[table].clone()}, assign=assign)
    assert not result.missing_keys
    assert not result.unexpected_keys
    assert_tied(model["model"] if prefix else model)
    old = state[table].clone()
    with torch.no_grad():
        state[table][4, 2] += 1.0
    for wrong in (old, state[table] + 1e-3, state[table][:-1]):  # `old` is what the model holds until then
        with pytest.raises(RuntimeError, match=r"head\.weight differs from the embedding"):
            model.load_state_dict({**state, head: wrong.clone()}, assign=assign)
    model.load_state_dict({**state, head: state[table]}, assign=assign)


def test_equality_is_judged_after_the_load_rounds_and_zeroes():
    state = Model(bias=False).state_dict()
    state["embedding.weight"] = state["embedding.weight"].clone()
    state["embedding.weight"][5] = float("nan")
    state["head.weight"] = state["embedding.weight"].clone()
    Model(bias=False).bfloat16().load_state_dict(state)
    model = Model(bias=False, padding_idx=1, padding_on_load="zero")
    model.load_state_dict(state)
    assert not model.head.weight[1].any()
    state["head.weight"][6, 0] += 1.0
    with pytest.raises(RuntimeError, match="differs from the embedding"):
        model.load_state_dict(state)


def test_a_plain_embedding_can_be_tied_to(ids):
    table = nn.Embedding(V, D, padding_idx=0)
    model = nn.ModuleDict({"head": LMHead(table), "table": table})
    assert model["head"].masked is None
    assert [name for name, _ in model.named_parameters()] == ["table.weight"]
    state = {"table.weight": torch.ones(V, D), "head.weight": torch.ones(V, D)}
    model.load_state_dict(state)
    with pytest.raises(ShapeError, match="Embedding can't grow"):
        model["head"].add_rows(1)


# Untied, grown, transformed


def test_an_untied_head_is_an_ordinary_module(ids):
    head = LMHead.untied(V, D, bias=True, initializer=lambda weight: initializers.normal_(weight, std=5.0))
    assert [name for name, _ in head.named_parameters()] == ["weight", "bias"]
    assert 4.0 < head.weight.std() < 6.0
    other = copy.deepcopy(head).double()
    other.load_state_dict(head.state_dict(), assign=True)
    assert torch.equal(other.weight, head.weight)
    assert other.weight.dtype == torch.float32
    with pytest.raises(RuntimeError, match=r"Missing key.*weight"):
        other.load_state_dict({"bias": torch.zeros(V)})
    meta = LMHead.untied(V, D, bias=True, device="meta").to_empty(device="cpu")
    meta.reset_parameters()
    assert 0.2 < meta.weight.std() < 0.5  # D^-1/2 = 0.35
    assert not meta.bias.any()
    swapped = torch.func.functional_call(head, {"weight": torch.zeros(V, D)}, (torch.randn(2, D),))
    assert not swapped.any()
    assert repr(LMHead.untied(V, D, soft_cap=30.0)) == "LMHead(30, 8, untied, soft_cap=30)"
    assert (
        repr(LMHead(TokenEmbedding(V, D), hidden_scale="rsqrt"))
        == "LMHead(30, 8, tied, hidden_scale=0.353553)"
    )


def test_new_rows_come_with_their_bias(ids):
    model = Model()
    nn.init.ones_(model.head.bias)
    before = model(ids)
    assert model.head.add_rows(2, torch.full((2, D), 3.0)) == range(V, V + 2)
    assert model.head.weight is model.embedding.weight
    assert model.head.bias.tolist() == [1.0] * V + [0.0] * 2
    assert torch.equal(model(ids)[..., :V], before)
    trained(model, torch.full_like(ids, V + 1))
    untied = LMHead.untied(V, D, bias=True)
    old = untied.weight.detach().clone()
    untied.add_rows(3)
    assert torch.equal(untied.weight[:V], old)
    assert len(untied.weight) == len(untied.bias) == V + 3
    assert list(dict(untied.named_parameters())) == ["weight", "bias"]
    model.embedding.add_rows(1)
    with pytest.raises(ShapeError, match=r"bias has 32 numbers and its table 33 rows; head.add_rows"):
        model(ids)


def test_functional_calls_and_per_sample_gradients_see_one_table(ids):
    model = Model()
    parameters = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def loss(parameters, ids):
        def call(model, ids):
            return model.loss(ids, chunked=False)

        wrapped = Called(model, call)
        return torch.func.functional_call(wrapped, {f"model.{k}": v for k, v in parameters.items()}, (ids,))

    model.loss(ids).backward()
    whole = torch.func.grad(loss)(parameters, ids)
    each = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, ids[:, None])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(whole[name], parameter.grad, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(each[name].mean(0), parameter.grad, rtol=1e-4, atol=1e-5)


class Called(nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, ids):
        return self.call(self.model, ids)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2.0 * weight


def test_parametrized_tables(ids):
    model, hidden = Model(bias=False), torch.randn(2, D)
    before = model.head(hidden)
    nn.utils.parametrize.register_parametrization(model.embedding, "weight", Doubled())
    torch.testing.assert_close(model.head(hidden), 2.0 * before)
    untied = LMHead.untied(V, D)
    before = untied(hidden)
    nn.utils.parametrize.register_parametrization(untied, "weight", Doubled())
    torch.testing.assert_close(untied(hidden), 2.0 * before)
    assert list(untied.state_dict()) == ["parametrizations.weight.original"]


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "whole"])
def test_compiled_in_one_graph(chunked, ids):
    torch.compiler.reset()
    model = Model()
    fast = torch.compile(model.loss, fullgraph=True)
    loss = fast(ids, chunked=chunked)
    loss.backward()
    compiled = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    expected = model.loss(ids)
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(compiled[name], parameter.grad, msg=name)
    with torch.no_grad():
        model.embedding.weight.zero_()
    assert torch.isclose(fast(ids, chunked=chunked), model.loss(ids))  # the table as it is now
    ids[0, -1] = V
    with pytest.raises(TokenIdError, match="1 of 15 labels"):
        fast(ids, chunked=chunked)


# A real model's head

FAMILIES = (
    *(
        "bert",
        "roberta",
        "distilbert",
        "albert",
        "electra-projected",
        "deberta-v3",
        "modernbert",
        "xlm",
        "gpt2",
    ),
    *(
        "gptj",
        "gpt_neox",
        "opt",
        "opt-projected",
        "bloom",
        "t5",
        "t5-untied",
        "mt5",
        "bart",
        "llama",
        "llama-tied",
    ),
    *("qwen2", "gemma", "gemma2", "gemma3", "falcon", "mpt", "phi", "mamba", "granite", "cohere"),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_from_a_checkpoint_it_gives_transformers_logits(small_checkpoint, name):
    small = small_checkpoint(name)
    hidden, logits = small.hidden_and_logits(**small.inputs())
    model = nn.ModuleDict({"input": TransformerInput.from_checkpoint(small.folder)})
    model["head"] = LMHead.from_checkpoint(small.folder, model["input"].token)
    own = [key for key in model.state_dict() if key.startswith("head.") and key != "head.bias"]
    untied = open_checkpoint(small.folder).head is not None
    assert own == (["head.weight"] if untied else [])
    assert (model["head"].weight is model["input"].token.weight) is not untied
    for head in (model["head"], LMHead.from_checkpoint(small.folder)):
        with torch.no_grad():
            assert (head(hidden) - logits).abs().max() <= 1e-6


def test_a_checkpoints_head_in_another_type_or_for_another_table(small_checkpoint):
    folder = small_checkpoint("bert").folder
    head = LMHead.from_checkpoint(folder, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in head.parameters()} == {torch.bfloat16}
    assert head.embedding is None
    with pytest.raises(
        CheckpointError, match=r"tied to a table \(60, 16\), and the embedding given is \(30, 8\)"
    ):
        LMHead.from_checkpoint(folder, TokenEmbedding(V, D))


def test_a_tied_checkpoints_head_has_its_embeddings_type(small_checkpoint):
    folder = small_checkpoint("bert").folder
    token = TransformerInput.from_checkpoint(folder, dtype=torch.bfloat16).token
    assert LMHead.from_checkpoint(folder, token, dtype=torch.bfloat16).bias.dtype == torch.bfloat16
    with pytest.raises(ShapeError, match=r"tied to rows of torch.bfloat16, and dtype is torch.float32"):
        LMHead.from_checkpoint(folder, token, dtype=torch.float32)


def test_a_head_leaves_nothing_on_its_embedding_that_keeps_it_alive():
    embedding = TokenEmbedding(V, D)
    model = nn.ModuleDict({"head": LMHead(embedding), "token": embedding})  # the head is loaded first
    assert not embedding._load_state_dict_post_hooks
    state = {"head.weight": torch.ones(V, D), "token.weight": torch.ones(V, D)}
    for _ in range(2):
        model.load_state_dict(state)
    assert len(embedding._load_state_dict_post_hooks) == 1
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        twin.load_state_dict(state)
        with pytest.raises(RuntimeError, match="differs from the embedding"):
            twin.load_state_dict({**state, "head.weight": torch.zeros(V, D)})
    head = weakref.ref(model["head"])
    del model["head"]
    gc.collect()
    assert head() is None
    embedding.load_state_dict({"weight": torch.zeros(V, D)})
