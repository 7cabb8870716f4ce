"""The gradient step against torch's autograd on one tied parameter, in float64."""

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tokenspace as ts
from tokenspace import walk_gradient
from tokenspace.errors import ShapeError, TableFormatError, TokenIdError
from tokenspace.reference import Embedding, LMHead, Projection, TransformerInput, recipes
from tokenspace.tokenizer import Tokenizer
from tokenspace.walk import Pipeline

TEXT = "the cat and the dog sat on a mat while birds sang in old trees near water all day long"
D = 8
RATE = 0.1


def table(rng, dtype=np.float32, output=False) -> ts.Table:
    tokenizer = Tokenizer.train_from_iterator(TEXT)
    shape = (len(tokenizer.vocab), D)
    weight = rng.normal(0, 0.7, shape).astype(dtype)
    rows = rng.normal(0, 0.7, shape).astype(dtype) if output else None
    return ts.Table(weight, tokenizer.vocab, tokenizer, rows, {"objective": "next token"} if output else None)


def layer(name: str, made: ts.Table) -> TransformerInput:
    if name == "scale alone":
        return TransformerInput(Embedding.from_weight(made.weight, scale="sqrt", padding_id=0))
    if name == "nothing":
        return TransformerInput(Embedding.from_weight(made.weight))
    return recipes.from_table(made, name, np.random.default_rng(7))


def random_texts(rng, count: int = 50) -> list[str]:
    words = [*TEXT.split(), "[PAD]", "zebra"]
    return [" ".join(rng.choice(words, rng.integers(2, 14))) for _ in range(count)]


def double(array) -> torch.Tensor:
    return torch.tensor(np.asarray(array, np.float64))


def hidden_of(name: str, made: TransformerInput, E: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The input of one text, written with torch alone."""
    T = len(ids)
    x = F.embedding(ids, E, padding_idx=made.token.padding_id)
    if name in ("original", "scale alone"):
        x = x * D**0.5
    if name == "original":
        angles = torch.arange(T).double()[:, None] / 10_000 ** (torch.arange(0, D, 2).double() / D)
        x = x + torch.stack([angles.sin(), angles.cos()], dim=-1).reshape(T, D)
    if name in ("bert", "gpt2"):
        x = x + double(made.position.weight[:T])
    if name == "bert":
        x = F.layer_norm(x + double(made.segment.weight[0]), (D,), eps=1e-12)
    return x


def autograd(name, made, weight, ids, output=None):
    """Loss, and the gradients of the rows read and of the rows scored."""
    read, scored = double(weight).requires_grad_(), double(weight if output is None else output)
    scored.requires_grad_()
    hidden = hidden_of(name, made, read, ids)
    loss = F.cross_entropy(hidden[:-1] @ scored.T, ids[1:])
    loss.backward()
    return loss.item(), read.grad.numpy(), scored.grad.numpy()


def close(found, expected, scale) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * max(scale, 1e-3))


@pytest.mark.parametrize("name", ["original", "scale alone", "gpt2", "llama", "bert", "nothing"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=["f32", "f16", "bf16"])
def test_a_tied_rows_gradient_is_autograds(name, dtype, rng):
    made = table(rng, dtype)
    pipeline = Pipeline(made, layer(name, made), name)
    for walk in pipeline.walk(random_texts(rng)):  # one padded batch
        ids = torch.tensor([token.id for token in walk.tokens[: walk.length]])
        loss, by_lookup, by_head = autograd(name, pipeline.layer, made.weight, ids)
        moved = pipeline.gradient(walk, RATE)
        assert moved.loss == pytest.approx(loss, rel=1e-6)
        used = [row.id for row in moved.rows]
        assert used == list(dict.fromkeys(ids.tolist()))
        total = by_lookup + by_head
        scale = np.abs(total[used]).max()
        summed = [moved.by_position[row.positions].sum(axis=0) for row in moved.rows]
        close(summed, by_lookup[used], scale)
        close(moved.by_head, by_head[used], scale)
        before = np.asarray(made.weight, np.float64)[used]
        close(moved.after, before - RATE * total[used], np.abs(before).max())
        for n, row in enumerate(moved.rows):
            for found, part in (
                (row.gradient_lookup, by_lookup),
                (row.gradient_head, by_head),
                (row.gradient, total),
            ):
                assert found == pytest.approx(np.linalg.norm(part[row.id]), rel=1e-6, abs=1e-6 * scale)
            after = torch.tensor(before[n] - RATE * total[row.id])
            expected = torch.cosine_similarity(torch.tensor(before[n]), after, dim=0).item()
            assert row.cosine == pytest.approx(expected, abs=1e-6)
        assert moved.rows_moved == int((by_lookup != 0).any(axis=1).sum())
        assert moved.rows_moved_by_head == len(made)


def test_one_parameter_used_twice_gets_the_sum(rng):
    made = table(rng)
    pipeline = Pipeline.under(made)
    (walk,) = pipeline.walk("the cat sat the cat")
    ids = torch.tensor([token.id for token in walk.tokens])
    E = double(made.weight).requires_grad_()
    hidden = hidden_of("original", pipeline.layer, E, ids)
    F.cross_entropy(hidden[:-1] @ E.T, ids[1:]).backward()
    for row in pipeline.gradient(walk).rows:
        assert row.gradient == pytest.approx(E.grad[row.id].norm().item(), rel=1e-6)


def test_an_untied_heads_rows_take_no_part(rng):
    made = table(rng, output=True)
    pipeline = Pipeline.under(made)
    assert pipeline.hidden_step == "output"
    for walk in pipeline.walk(random_texts(rng)):
        ids = torch.tensor([token.id for token in walk.tokens[: walk.length]])
        loss, by_lookup, _ = autograd("original", pipeline.layer, made.weight, ids, made.output)
        moved = pipeline.gradient(walk, RATE)
        assert moved.loss == pytest.approx(loss, rel=1e-6)
        assert (moved.rows_moved_by_head, moved.by_head.any()) == (0, False)
        for row in moved.rows:
            assert (row.gradient_head, row.gradient) == (0, row.gradient_lookup)
            assert row.gradient == pytest.approx(np.linalg.norm(by_lookup[row.id]), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("tied", [True, False])
def test_what_a_head_does_besides_its_product_is_in_the_gradient(tied, rng, monkeypatch):
    monkeypatch.setattr(walk_gradient, "_NUMBERS_AT_ONCE", 40)  # several blocks of rows
    made = table(rng)
    pipeline = Pipeline.under(made)
    bias = rng.normal(size=len(made)).astype(np.float32)
    own = rng.normal(size=made.weight.shape).astype(np.float32)
    embedding = pipeline.layer.token if tied else Embedding.from_weight(own)
    head = LMHead(embedding, bias=bias, hidden_scale="rsqrt", logit_scale=0.5, soft_cap=3.0)
    pipeline.head = lambda: head
    (walk,) = pipeline.walk("the cat and the dog sat")
    ids = torch.tensor([token.id for token in walk.tokens])
    read, scored = double(made.weight).requires_grad_(), double(head.weight).requires_grad_()
    hidden = hidden_of("original", pipeline.layer, read, ids)[:-1]
    logits = 3 * torch.tanh(0.5 * (hidden * D**-0.5 @ scored.T + double(bias)) / 3)
    loss = F.cross_entropy(logits, ids[1:])
    loss.backward()
    moved = pipeline.gradient(walk)
    assert moved.loss == pytest.approx(loss.item(), rel=1e-6)
    for row, by_head in zip(moved.rows, moved.by_head, strict=True):
        expected = read.grad[row.id] + (scored.grad[row.id] if tied else 0)
        assert row.gradient == pytest.approx(expected.norm().item(), rel=1e-6)
        np.testing.assert_allclose(by_head, scored.grad[row.id] if tied else 0 * by_head, rtol=1e-6)


def test_the_last_token_and_the_padding_row_move_through_the_head_alone(rng):
    made = table(rng)
    pipeline = Pipeline.under(made)
    (walk,) = pipeline.walk("the cat [PAD] dog")
    rows = {row.token: row for row in pipeline.gradient(walk).rows}
    for token in ("[PAD]", "dog"):
        assert rows[token].gradient_lookup == 0
        assert rows[token].gradient == rows[token].gradient_head > 0
        assert rows[token].cosine < 1


def test_a_frozen_padding_row_stays(rng):
    made = table(rng)
    frozen = TransformerInput(Embedding.from_weight(made.weight, padding_id=0, freeze_padding=True))
    pipeline = Pipeline(made, frozen, "frozen")
    (walk,) = pipeline.walk("[PAD] cat sat")
    ids = torch.tensor([token.id for token in walk.tokens])
    E = double(made.weight).requires_grad_()
    logits = F.embedding(ids, E, padding_idx=0)[:-1] @ E.T
    masked = logits.index_fill(1, torch.tensor([0]), -torch.inf)
    F.cross_entropy(masked, ids[1:]).backward()
    moved = pipeline.gradient(walk)
    assert moved.rows[0].gradient == 0
    for row in moved.rows[1:]:
        assert row.gradient == pytest.approx(E.grad[row.id].norm().item(), rel=1e-6)
    assert "[PAD]" not in {one.token for scored in pipeline.predict(walk, k=99) for one in scored}
    (walk,) = pipeline.walk("cat [PAD] sat")
    with pytest.raises(TokenIdError, match=r"padding token \(id 0\) is a next token.*row is frozen"):
        pipeline.gradient(walk)


def test_blocks_of_rows_give_what_one_block_gives(rng, monkeypatch):
    made = table(rng)
    pipeline = Pipeline.under(made)
    (walk,) = pipeline.walk("the cat and the dog sat on a mat")
    whole, scores = pipeline.gradient(walk), pipeline.predict(walk)
    monkeypatch.setattr(walk_gradient, "_NUMBERS_AT_ONCE", 1)
    parts = pipeline.gradient(walk)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    assert parts.rows_moved_by_head == whole.rows_moved_by_head
    np.testing.assert_allclose(parts.after, whole.after, rtol=1e-12)
    ids = [[one.id for one in row] for row in scores]
    assert [[one.id for one in row] for row in pipeline.predict(walk)] == ids


def test_a_large_tables_gradient_is_never_whole_in_memory():
    import tracemalloc

    rows, width = 100_000, 64
    weight = np.random.default_rng(0).normal(0, 0.1, (rows, width)).astype(np.float16)
    token = Embedding.from_weight(weight)
    ids = np.array([[5, 9, 5, 70_000]])
    inputs = walk_gradient.Inputs(ids, np.arange(4)[None], None, {})
    vocab = ts.Vocab([str(i) for i in range(rows)])
    tracemalloc.start()
    moved = walk_gradient.descend(TransformerInput(token), LMHead(token), inputs, vocab, 0.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert moved.rows_moved_by_head == rows
    assert peak < 6 * walk_gradient._NUMBERS_AT_ONCE * 8


def test_heads_that_fit_no_vector_and_scores_that_are_no_numbers(rng):
    made = table(rng)
    narrow = Projection.from_weight(rng.normal(size=(5, D)).astype(np.float32), None)
    pipeline = Pipeline(made, TransformerInput(Embedding.from_weight(made.weight), projection=narrow), "n")
    (walk,) = pipeline.walk("the cat")
    for ask in (pipeline.gradient, pipeline.predict):
        with pytest.raises(ShapeError, match=r"takes hidden states of width 8; found shape \(\d, 5\)"):
            ask(walk)
    made.weight[made.vocab.id("water")] = np.inf
    pipeline = Pipeline.under(made)
    (walk,) = pipeline.walk("the cat")
    for ask in (pipeline.gradient, pipeline.predict):
        with pytest.raises(TableFormatError, match="scores hold NaN or infinity"):
            ask(walk)
