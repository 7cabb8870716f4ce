"""What copies, moves and loads a model: a tied head stays tied, a frozen row frozen, rows rounded once."""

import copy
import io

import pytest
import torch

from tokenspace.nn import LMHead, SinusoidalPositionalEncoding, TokenEmbedding, TransformerInput

V, D = 30, 8


class Model(torch.nn.Module):
    def __init__(self, device=None):
        super().__init__()
        self.input = TransformerInput(
            TokenEmbedding(V, D, padding_idx=0, freeze_padding=True, device=device),
            position=SinusoidalPositionalEncoding(D, max_positions=16, device=device),
        )
        self.head = LMHead(self.input.token, bias=True)

    def loss(self, ids):
        return self.head.loss(self.input(ids[:, :-1]), ids[:, 1:])


MOVES = {
    "to": lambda model, device: model.to("cpu").to(device),
    "dtypes": lambda model, device: model.to(torch.bfloat16).to("cpu").to(device, torch.float32),
    "deepcopy": lambda model, device: copy.deepcopy(model),
    "deepcopy on the CPU": lambda model, device: copy.deepcopy(model.to("cpu")).to(device),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_tied_and_frozen_after_it(move, device):
    model = move(Model(device), device)
    table = model.input.token.weight
    assert model.head.weight is table
    assert table.device.type == device
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    before = table.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        model.loss(torch.randint(1, V, (2, 6), device=device)).backward()
        optimizer.step()
    assert torch.equal(table[0], before[0])
    assert not torch.equal(table[1:], before[1:])
    assert model.head.weight is model.input.token.weight


def test_positions_are_computed_afresh_not_rounded_twice(device):
    moved = Model(device).to(torch.bfloat16).to(torch.float32)
    torch.testing.assert_close(moved.input.position.rows, Model(device).input.position.rows)


def test_from_the_meta_device(device):
    model = Model("meta").to_empty(device=device)
    model.input.reset_parameters()
    model.head.reset_parameters()
    assert model.head.weight is model.input.token.weight
    assert not model.input.token.weight[0].any()
    assert torch.isfinite(model.loss(torch.randint(1, V, (2, 6), device=device)))


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_goes_from_device_to_cpu(assign, device):
    model, buffer = Model(device), io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    other = Model()
    other.load_state_dict(torch.load(buffer, map_location="cpu", weights_only=True), assign=assign)
    assert other.head.weight is other.input.token.weight
    ids = torch.randint(1, V, (2, 6))
    torch.testing.assert_close(other.loss(ids), model.loss(ids.to(device)).cpu(), rtol=1e-5, atol=1e-5)
