"""PEFT's adapters over our tables: untrained they change nothing, merged they are what they were."""

import peft
import pytest
import torch

from tokenspace.nn import LearnedPositionalEmbedding, LMHead, TokenEmbedding, TransformerInput

IDS = torch.tensor([[1, 2, 3, 0, 19]])
SCALES = {
    "no scale": {},
    "sqrt": {"scale": "sqrt"},
    "a number": {"scale": 0.3},
    "rounded": {"scale": "sqrt", "scale_dtype": torch.bfloat16},
    "rounded as the table": {"scale": "sqrt", "scale_dtype": "weight"},
    "with padding": {"scale": "sqrt", "padding_idx": 0},
    "with a frozen row": {"scale": 3.0, "padding_idx": 0, "freeze_padding": True},
}
ADAPTERS = {
    "tokens beside LoRA": lambda name: peft.LoraConfig(
        target_modules=["body"], trainable_token_indices={name: [1, 2]}
    ),
    "tokens": lambda name: peft.TrainableTokensConfig(target_modules=[name], token_indices=[1, 2]),
    "LoRA": lambda name: peft.LoraConfig(target_modules=[name]),
    "LoRA of rank-stabilized scale": lambda name: peft.LoraConfig(
        target_modules=[name], use_rslora=True, lora_alpha=3
    ),
    "DoRA": lambda name: peft.LoraConfig(target_modules=[name], use_dora=True),
}


class Model(torch.nn.Module):
    def __init__(self, token):
        super().__init__()
        self.token = token
        self.body = torch.nn.Linear(16, 16)

    def forward(self, ids):
        return self.body(self.token(ids))


def check(model, configuration, ids):
    expected = model(ids).detach()
    adapted = peft.get_peft_model(model, configuration)
    torch.testing.assert_close(adapted(ids).detach(), expected)
    trained = [parameter for parameter in adapted.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=5.0)
    for _ in range(2):  # LoRA's second matrix is zero before the first step
        optimizer.zero_grad()
        adapted(ids).square().mean().backward()
        optimizer.step()
    unmerged = adapted(ids).detach()
    assert not torch.allclose(unmerged, expected, atol=1e-3)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(ids).detach(), unmerged, rtol=1e-4, atol=1e-5)
    return merged


@pytest.mark.parametrize("make", ADAPTERS.values(), ids=ADAPTERS)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_an_adapter_over_a_table(scale, make):
    torch.manual_seed(0)
    model = Model(TokenEmbedding(20, 16, **scale))
    assert type(check(model, make("token"), IDS).token) is TokenEmbedding


@pytest.mark.parametrize("make", ADAPTERS.values(), ids=ADAPTERS)
@pytest.mark.parametrize("family", ["gemma", "bert", "original", "xlm-roberta", "opt", "t5"])
@pytest.mark.parametrize("part", ["token", "position"])
def test_an_adapter_in_a_layer(family, part, make):
    torch.manual_seed(0)
    layer = TransformerInput.from_recipe(family, vocab_size=20, d_model=16).eval()
    if part == "position" and not isinstance(layer.position, LearnedPositionalEmbedding):
        pytest.skip("this family has no table of positions")
    check(Model(layer), make(f"token.{part}"), IDS)
    assert layer.position_ids(IDS).shape == IDS.shape if layer.position is not None else True


def test_the_scale_has_the_name_that_adapters_ask_for():
    assert TokenEmbedding(5, 16, scale="sqrt").embed_scale == 4.0
    assert TokenEmbedding(5, 16).embed_scale is None
    half = TokenEmbedding(5, 3072, scale="sqrt", scale_dtype="weight", dtype=torch.bfloat16)
    assert half.embed_scale == 55.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("make", ADAPTERS.values(), ids=ADAPTERS)
def test_an_untrained_adapter_over_a_16_bit_table_of_a_rounded_scale_changes_no_bit(make, dtype):
    torch.manual_seed(0)
    model = Model(TokenEmbedding(20, 768, scale="sqrt", scale_dtype="weight", dtype=dtype))
    expected = model.token(IDS).detach()
    adapted = peft.get_peft_model(model, make("token")).base_model.model.token(IDS).detach()
    if make is ADAPTERS["DoRA"]:  # divides by the lengths of rows
        torch.testing.assert_close(adapted, expected)
    else:
        assert torch.equal(adapted, expected)


def test_trainable_tokens_round_the_scale_of_a_16_bit_table():
    """A limit of PEFT that the documents name: without scale_dtype the scale itself is not rounded."""
    torch.manual_seed(0)
    model = Model(TokenEmbedding(20, 768, scale="sqrt", dtype=torch.bfloat16))
    rounded = TokenEmbedding.from_pretrained(model.token.weight.detach(), scale="sqrt", scale_dtype="weight")
    adapted = peft.get_peft_model(model, ADAPTERS["tokens"]("token"))
    assert torch.equal(adapted.base_model.model.token(IDS), rounded(IDS))


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.token = TokenEmbedding(20, 16, scale="sqrt")
        self.head = LMHead(self.token)

    def forward(self, ids):
        return self.head(self.token(ids))


@pytest.mark.parametrize("make", [ADAPTERS["LoRA"], ADAPTERS["tokens"]], ids=["LoRA", "tokens"])
def test_a_tied_head_reads_the_tables_own_rows_until_the_merge(make):
    torch.manual_seed(0)
    model = Tied()
    rows = model.token.weight.detach().clone()
    adapted = peft.get_peft_model(model, make("token"))
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter += 1.0
    hidden = torch.randn(3, 16)
    assert torch.equal(model.head(hidden), hidden @ rows.T)
    merged = adapted.merge_and_unload()
    assert torch.equal(merged.head(hidden), hidden @ merged.token.weight.T)
    assert not torch.equal(merged.token.weight, rows)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_ids_outside_the_table_under_trainable_tokens_are_torchs_error():
    adapted = peft.get_peft_model(Model(TokenEmbedding(20, 16)), ADAPTERS["tokens"]("token"))
    with pytest.raises(IndexError):
        adapted(torch.tensor([[25]]))


def test_peft_says_that_it_does_not_read_a_scale_of_several_numbers():
    model = Model(TokenEmbedding(20, 16, scale=torch.full((16,), 3.0)))
    with pytest.warns(UserWarning, match="embed_scale"):
        peft.get_peft_model(model, ADAPTERS["tokens"]("token"))(IDS)
