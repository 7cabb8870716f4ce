import copy
import importlib
import pickle

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, load_model, save_model
from torch.testing import assert_close

from tokenspace import reference
from tokenspace.errors import CheckpointError, ShapeError, TokenIdError
from tokenspace.models.sizes import MODELS
from tokenspace.nn import (
    LearnedPositionalEmbedding,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    TransformerInput,
)

V, D, H = 7, 4, 6
IDS = {"plain": [[1, 2, 3], [4, 5, 6]], "repeated": [[2, 2, 2], [2, 0, 0]], "single": [[3]]}
RECIPES = ("llama", "gpt2", "paper", "bert", "roberta", "albert", "opt-350m", "xlm")


def pair(name: str, dtype=np.float64):
    """A family's parts as a torch module and as the NumPy truth, with the same numbers."""
    rng = np.random.default_rng(0)

    def array(*shape):
        return rng.normal(size=shape).astype(dtype)

    def module(kind, weight, **settings):
        return kind.from_pretrained(torch.tensor(weight), freeze=False, **settings)

    numbers, norm = array(V, D), (array(D), array(D))
    scale, padding = ("sqrt" if name == "paper" else None), (0 if name in ("bert", "roberta") else None)
    ours = {"token": module(TokenEmbedding, numbers, scale=scale, padding_idx=padding)}
    truth = {"token": reference.Embedding.from_weight(numbers, scale=scale, padding_id=padding)}
    width = H if name == "opt-350m" else D
    if name in ("gpt2", "bert", "albert", "xlm", "roberta", "opt-350m"):
        rows = array(7, width)
        skips = {"offset": 2} if name in ("roberta", "opt-350m") else {}
        padded = (1, 1) if name == "roberta" else (None, None)
        ours["position"] = module(LearnedPositionalEmbedding, rows, padding_idx=padded[0], **skips)
        truth["position"] = reference.LearnedPositionalEmbedding.from_weight(
            rows, padding_id=padded[1], **skips
        )
    if name == "paper":
        ours["position"] = SinusoidalPositionalEncoding(D, dtype=torch.tensor(numbers).dtype)
        truth["position"] = reference.SinusoidalPositionalEncoding(D, dtype=dtype)
    if name in ("bert", "roberta", "albert"):
        rows = array(2, D)
        ours["segment"] = module(SegmentEmbedding, rows)
        truth["segment"] = reference.SegmentEmbedding.from_weight(rows)
    if name == "xlm":
        tables = {"language": array(3, D), "role": array(3, D)}
        ours["extras"] = {key: module(SegmentEmbedding, rows, name=key) for key, rows in tables.items()}
        truth["extras"] = {
            key: reference.SegmentEmbedding.from_weight(rows, name=key) for key, rows in tables.items()
        }
    if name in ("bert", "roberta", "albert", "xlm"):
        ours["layer_norm"] = torch.nn.LayerNorm(D, eps=1e-12)
        ours["layer_norm"].weight = torch.nn.Parameter(torch.tensor(norm[0]))
        ours["layer_norm"].bias = torch.nn.Parameter(torch.tensor(norm[1]))
        truth["layer_norm"] = reference.LayerNorm.from_weight(*norm, eps=1e-12)
    if name in ("albert", "opt-350m"):
        weight, bias = array(H, D), (array(H) if name == "albert" else None)
        ours["projection"] = Projection(D, H, bias is not None, dtype=torch.tensor(weight).dtype)
        ours["projection"].weight = torch.nn.Parameter(torch.tensor(weight))
        if bias is not None:
            ours["projection"].bias = torch.nn.Parameter(torch.tensor(bias))
        truth["projection"] = reference.Projection.from_weight(weight, bias)
    return TransformerInput(**ours, dropout=torch.nn.Dropout(0.5)).eval(), reference.TransformerInput(**truth)


def arguments(layer, shape):
    rng, given = np.random.default_rng(1), {}
    if layer.segment is not None:
        given["segment_ids"] = rng.integers(0, 2, shape)
    if layer.extras:
        given["extra_ids"] = {name: rng.integers(0, 3, shape) for name in layer.extras}
    return given


def as_torch(given):
    if isinstance(given, dict):
        return {name: as_torch(value) for name, value in given.items()}
    return torch.as_tensor(given)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", RECIPES)
def test_forward_and_every_gradient_are_the_references(name, dtype, ids):
    layer, truth = pair(name, dtype)
    ids = np.array(ids)
    given = arguments(truth, ids.shape)
    out, expected = layer(torch.tensor(ids), **as_torch(given)), truth.forward(ids, **given)
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(out.detach().numpy(), expected, **tolerance)
    upstream = np.random.default_rng(2).normal(size=out.shape).astype(dtype)
    out.backward(torch.tensor(upstream))
    truth.backward(upstream)
    gradients = truth.gradients()
    parameters = {name.removeprefix("extras."): p for name, p in layer.named_parameters()}
    assert parameters.keys() == gradients.keys()
    for part, parameter in parameters.items():
        np.testing.assert_allclose(parameter.grad.numpy(), gradients[part], **tolerance, err_msg=part)


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_builder_passes_means_what_it_means_in_the_reference(name):
    layer, truth = pair(name)
    ids = np.array([[2, 3, 0], [4, 0, 0]])
    given = arguments(truth, ids.shape)
    for more in (
        {"start": 2},
        {"start": np.array([0, 2])},
        {"attention_mask": np.array([[1, 1, 0], [0, 1, 1]])},
        {"attention_mask": np.array([[True, True, False], [False, True, True]]), "start": np.array([1, 2])},
        {"position_ids": np.array([3, 0, 1])},
        {"position_ids": np.array([[3, 0, 1], [2, 2, 2]])},
        {"segment_ids": np.array([1, 0, 1])} if layer.segment is not None else {},
    ):
        found = layer(torch.tensor(ids), **as_torch(given | more)).detach().numpy()
        np.testing.assert_allclose(found, truth.forward(ids, **given | more), atol=1e-10, err_msg=str(more))


@pytest.mark.parametrize("name", ["gpt2", "paper", "roberta", "opt-350m"])
def test_a_cached_decoder_s_steps_join_to_the_whole(name):
    layer, _ = pair(name)
    ids = torch.tensor([[2, 3, 5, 1], [4, 6, 1, 2]])
    whole = layer(ids)
    steps = [layer(ids[:, :2]), layer(ids[:, 2:3], start=2), layer(ids[:, 3:], start=torch.tensor([3, 3]))]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


@pytest.mark.parametrize("name", RECIPES)
def test_embedded_inputs_stand_for_ids(name):
    layer, truth = pair(name)
    ids = torch.tensor([[2, 3, 1]])
    given = as_torch(arguments(truth, (1, 3)))
    torch.testing.assert_close(layer(inputs_embeds=layer.token(ids), **given), layer(ids, **given))


class TestRefuses:
    @pytest.fixture
    def bert(self):
        return pair("bert")[0]

    @pytest.mark.parametrize("ids", [torch.tensor([1, 2]), torch.ones(1, 2, 3, dtype=torch.int64)])
    def test_ids_that_are_no_batch(self, bert, ids):
        with pytest.raises(ShapeError, match=r"ids are \(B, T\)"):
            bert(ids)

    def test_both_or_neither_of_ids_and_embeddings(self, bert):
        with pytest.raises(ShapeError, match="either ids or inputs_embeds"):
            bert()
        with pytest.raises(ShapeError, match="either ids or inputs_embeds"):
            bert(torch.tensor([[1]]), inputs_embeds=torch.ones(1, 1, D))
        with pytest.raises(ShapeError, match=r"inputs_embeds are \(B, T, 4\)"):
            bert(inputs_embeds=torch.ones(1, 1, D + 1))

    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ({"segment_ids": torch.tensor([[0, 2]])}, TokenIdError, "segment ids are|segment ids is"),
            ({"segment_ids": torch.tensor([[0, 1, 1]])}, ShapeError, "segment ids must be"),
            ({"position_ids": torch.tensor([[0, 9]])}, TokenIdError, "position id"),
            ({"position_ids": torch.tensor([[-1, 0]])}, TokenIdError, "position id"),
            ({"position_ids": torch.tensor([0])}, ShapeError, "position ids must be"),
            ({"attention_mask": torch.tensor([[1]])}, ShapeError, "attention mask must be"),
            ({"extra_ids": {"role": torch.tensor([[0, 0]])}}, ShapeError, "exactly"),
            ({"start": -1}, ShapeError, "start"),
            ({"start": 1.5}, ShapeError, "start"),
            ({"start": torch.tensor([0, 1])}, ShapeError, "start"),
            ({"start": torch.tensor(-1)}, TokenIdError, "start"),
            ({"start": 6}, ShapeError, "8 positions are needed and this table of 7 rows holds 7"),
            ({"start": torch.tensor([6])}, ShapeError, "8 positions are needed"),
        ],
        ids=str,
    )
    def test_what_does_not_fit(self, bert, given, error, words):
        with pytest.raises(error, match=words):
            bert(torch.tensor([[1, 2]]), **given)

    def test_a_mask_of_numbers_to_add_or_of_other_values(self):
        roberta, ids = pair("roberta")[0], torch.tensor([[1, 2]])
        with pytest.raises(ShapeError, match=r"\(mask == 0\)"):
            roberta(ids, attention_mask=torch.tensor([[0.0, -1e9]]))
        with pytest.raises(TokenIdError, match="attention mask value"):
            roberta(ids, attention_mask=torch.tensor([[1, 2]]))

    def test_parts_of_other_widths(self):
        token = TokenEmbedding(V, D)
        with pytest.raises(ShapeError, match="the position has width 5 where tokens have 4"):
            TransformerInput(token, LearnedPositionalEmbedding(3, 5))
        with pytest.raises(ShapeError, match="layer norm has width 5"):
            TransformerInput(token, layer_norm=torch.nn.LayerNorm(5))
        with pytest.raises(ShapeError, match="the projection takes width 5, tokens have 4"):
            TransformerInput(token, projection=Projection(5, 6))

    @pytest.mark.parametrize("name", ["llama", "gpt2", "roberta"])
    def test_a_mask_of_another_shape(self, name):
        with pytest.raises(ShapeError, match="the attention mask must be"):
            pair(name)[0](torch.tensor([[1, 2]]), attention_mask=torch.ones(1, 1, 2, 2))

    def test_positions_where_there_are_none(self):
        with pytest.raises(ShapeError, match="adds no positions"):
            pair("llama")[0].position_ids(torch.tensor([[1]]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("name", ["bert", "roberta", "paper", "xlm", "opt-350m"])
def test_compiled_whole_it_gives_the_same(name):
    torch.compiler.reset()
    layer, truth = pair(name)
    compiled = torch.compile(layer, fullgraph=True, backend="inductor" if name == "roberta" else "aot_eager")
    ids, given = torch.tensor([[2, 3, 0], [4, 0, 0]]), as_torch(arguments(truth, (2, 3)))
    eager = layer(ids, **given)
    torch.testing.assert_close(compiled(ids, **given), eager)
    compiled(ids, **given).sum().backward()
    found = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    eager.sum().backward()
    for parameter, gradient in zip(layer.parameters(), found, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
    for start in range(1, 5):
        one, given = torch.tensor([[1], [2]]), as_torch(arguments(truth, (2, 1)))
        torch.testing.assert_close(compiled(one, start=start, **given), layer(one, start=start, **given))
    with torch.no_grad(), pytest.raises(TokenIdError, match="the first is 7 at batch 0, position 0"):
        compiled(torch.tensor([[7], [2]]), start=1, **given)


class TestTravels:
    NAMES = ("bert", "xlm", "paper", "albert")

    @pytest.mark.parametrize("name", NAMES)
    def test_copies_files_and_state_dicts(self, name, tmp_path):
        layer, truth = pair(name)
        ids, given = torch.tensor([[2, 3, 1]]), as_torch(arguments(truth, (1, 3)))
        expected = layer(ids, **given)
        other = pair(name)[0]
        for parameter in other.parameters():
            torch.nn.init.zeros_(parameter)
        save_model(layer, tmp_path / "layer.safetensors")
        assert list(load_file(tmp_path / "layer.safetensors")) == sorted(layer.state_dict())
        load_model(other, tmp_path / "layer.safetensors")
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), other):
            assert torch.equal(twin(ids, **given), expected)
        assert torch.equal(torch.func.functional_call(other, layer.state_dict(), (ids,), given), expected)
        with torch.no_grad():
            meta = copy.deepcopy(layer).to("meta")
            meta.load_state_dict(layer.state_dict(), assign=True)
            if name == "paper":
                meta.position.to_empty(device="cpu")
            assert torch.equal(meta(ids, **given), expected)

    def test_names_in_the_state_dict(self):
        assert list(pair("xlm")[0].state_dict()) == [
            "token.weight",
            "position.weight",
            "extras.language.weight",
            "extras.role.weight",
            "layer_norm.weight",
            "layer_norm.bias",
        ]
        assert list(pair("paper")[0].state_dict()) == ["token.weight"]

    @pytest.mark.parametrize("name", ["bert-base-uncased", "albert-base-v2", "original"])
    def test_meta_then_materialized_is_what_was_drawn_at_once(self, name):
        sizes = {"vocab_size": 50, "d_model": 8, "max_positions": 9}
        layer = TransformerInput.from_recipe(name, **sizes, device="meta")
        assert all(parameter.is_meta for parameter in layer.parameters())
        layer.to_empty(device="cpu")
        torch.manual_seed(4)
        layer.reset_parameters()
        torch.manual_seed(4)
        expected = TransformerInput.from_recipe(name, **sizes).state_dict()
        assert layer.state_dict().keys() == expected.keys()
        assert all(torch.equal(layer.state_dict()[key], expected[key]) for key in expected)
        ids = torch.tensor([[1, 2]])
        assert layer.eval()(ids).isfinite().all()

    def test_half_precision_and_autocast(self):
        layer = pair("bert")[0].float()
        ids = torch.tensor([[2, 3, 1]])
        full = layer(ids)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(layer(ids).float(), full, atol=0.05, rtol=0.05)
        assert layer.bfloat16()(ids).dtype == torch.bfloat16
        torch.testing.assert_close(layer(ids).float(), full, atol=0.1, rtol=0.1)

    def test_dropout_drops_in_training_alone(self):
        layer, _ = pair("gpt2")
        ids = torch.tensor([[1, 2, 3]])
        assert torch.equal(layer(ids), layer(ids))
        torch.manual_seed(0)
        kept = layer.train()(ids) != 0
        assert kept.any()
        assert not kept.all()


def transformers_embeddings(name, layer, padding):
    """The embeddings module of transformers with ``layer``'s numbers."""
    kinds = {
        "roberta": ("RobertaConfig", "roberta.modeling_roberta", "RobertaEmbeddings"),
        "xlm-roberta": ("XLMRobertaConfig", "xlm_roberta.modeling_xlm_roberta", "XLMRobertaEmbeddings"),
        "camembert": ("CamembertConfig", "camembert.modeling_camembert", "CamembertEmbeddings"),
    }
    config, module, kind = kinds[name]
    settings = getattr(transformers, config)(
        vocab_size=layer.token.num_embeddings,
        hidden_size=layer.token.embedding_dim,
        max_position_embeddings=layer.position.num_embeddings,
        pad_token_id=padding,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )
    embeddings = getattr(importlib.import_module(f"transformers.models.{module}"), kind)(settings).eval()
    embeddings.word_embeddings.weight = layer.token.weight
    embeddings.position_embeddings.weight = layer.position.weight
    embeddings.token_type_embeddings.weight = layer.segment.weight
    return embeddings


class TestFromRecipe:
    @pytest.mark.parametrize("name", MODELS)
    def test_every_named_model_has_its_sizes(self, name):
        model = MODELS[name]
        layer = TransformerInput.from_recipe(name, device="meta")
        assert layer.token.weight.shape == (model.vocab, model.table_width)
        assert layer(torch.zeros(1, 2, dtype=torch.int64, device="meta")).shape == (1, 2, model.width)
        if model.position_rows:
            assert layer.position.num_embeddings == model.position_rows
        else:
            assert layer.position is None
        assert (layer.segment.num_embeddings if layer.segment is not None else 0) == model.segments
        assert (layer.projection is not None) == model.projected

    def test_sizes_given_go_before_the_model_s(self):
        layer = TransformerInput.from_recipe("gpt2", 300, 16, max_positions=20)
        assert layer.token.weight.shape == (300, 16)
        assert layer.position.usable_length == 20

    def test_sinusoidal_rows_are_kept_if_their_number_is_given(self):
        original = TransformerInput.from_recipe("original", 300, 16, max_positions=20)
        assert original.position.max_positions == 20
        assert TransformerInput.from_recipe("original", 300, 16).position.max_positions is None

    def test_roberta_s_offset_comes_on_top(self):
        layer = TransformerInput.from_recipe("roberta", 300, 16)
        assert layer.position.num_embeddings == 514
        assert layer(torch.full((1, 512), 5)).shape == (1, 512, 16)
        for given in ({}, {"attention_mask": torch.ones(1, 513, dtype=torch.int64)}):
            with pytest.raises(
                ShapeError, match="513 positions are needed and this table of 514 rows holds 512"
            ):
                layer(torch.full((1, 513), 5), **given)
        padded = torch.full((1, 600), 1)
        padded[0, :512] = 5
        assert layer(padded).shape == (1, 600, 16)

    @pytest.mark.parametrize("padding", [0, 1, 3, 299])
    @pytest.mark.parametrize("name", ["roberta", "xlm-roberta", "camembert"])
    def test_positions_follow_the_padding_id_as_in_transformers(self, name, padding):
        layer = TransformerInput.from_recipe(name, 300, 16, max_positions=9, padding_idx=padding).eval()
        embeddings = transformers_embeddings(name, layer, padding)
        ids = torch.tensor([[5, 6, 7, padding, padding], [padding, 8, 9, padding, 4]])
        assert torch.equal(
            layer.position_ids(ids), embeddings.create_position_ids_from_input_ids(ids, padding)
        )
        mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])  # the ids decide, whatever the mask says
        for given in ({}, {"attention_mask": mask}):
            assert_close(layer(ids, **given), embeddings(input_ids=ids), rtol=0, atol=1e-6)
        embedded = torch.randn(2, 5, 16)
        assert_close(layer(inputs_embeds=embedded), embeddings(inputs_embeds=embedded), rtol=0, atol=1e-6)
        assert layer.position.usable_length == 9 == layer.position.num_embeddings - padding - 1
        assert not layer.position.weight[padding].any()
        tokens = torch.full((1, 10), 5)
        with pytest.raises(ShapeError, match="10 positions are needed"):
            layer(tokens)

    @pytest.mark.parametrize(
        ("name", "first"), [("opt", 2), ("bart", 2), ("mbart", 2), ("gpt2", 0), ("bert", 0)]
    )
    def test_positions_of_other_families_ignore_the_padding_id(self, name, first):
        layer = TransformerInput.from_recipe(name, 300, 16, max_positions=9, padding_idx=3)
        assert layer.position_ids(torch.tensor([[3, 5, 6]])).tolist() == [[first, first + 1, first + 2]]

    def test_a_named_model_keeps_its_position_rows_under_another_padding_id(self):
        layer = TransformerInput.from_recipe("roberta-base", padding_idx=3, device="meta")
        assert (layer.position.num_embeddings, layer.position.usable_length) == (514, 510)
        with pytest.raises(ShapeError, match="padding_idx=513 leaves none of the 514 position rows"):
            TransformerInput.from_recipe("roberta-base", padding_idx=513, device="meta")
        layer = TransformerInput.from_recipe("roberta-base", padding_idx=513, max_positions=5, device="meta")
        assert layer.position.num_embeddings == 519

    @pytest.mark.parametrize("padding", [-1, 300, 1.5])
    @pytest.mark.parametrize("name", ["roberta", "bert"])
    def test_a_padding_id_that_is_no_row(self, name, padding):
        with pytest.raises(TokenIdError, match="padding id"):
            TransformerInput.from_recipe(name, 300, 16, padding_idx=padding)

    def test_padding_row_and_freezing(self):
        layer = TransformerInput.from_recipe("gpt2", 300, 16, padding_idx=7, freeze_padding=True)
        assert layer.token.padding_idx == 7
        assert layer.token.freeze_padding
        assert not layer.token.weight[7].any()

    def test_a_family_needs_sizes(self):
        with pytest.raises(ShapeError, match="'roberta' names a family"):
            TransformerInput.from_recipe("roberta", vocab_size=300)

    def test_an_unknown_name(self):
        with pytest.raises(
            CheckpointError, match="'rroberta' is neither a known model nor a family; close names: 'roberta'"
        ):
            TransformerInput.from_recipe("rroberta", 10, 4)


SMALL = (
    "roberta-padding-0", "roberta-padding-3", "roberta-padding-last",
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "albert", "electra", "electra-projected",
    "deberta-v3", "modernbert", "xlm", "xlm-sinusoidal", "gpt2", "gptj", "gpt_neox", "opt", "opt-projected",
    "bloom", "t5", "t5-untied", "mt5", "bart", "mbart", "llama", "llama-tied", "mistral", "qwen2", "qwen3",
    "gemma", "gemma2", "gemma3", "falcon", "mpt", "phi", "mamba", "granite", "cohere",
)  # fmt: skip
ZEROED_AFTERWARDS = ("xlm", "xlm-sinusoidal", "deberta-v3")  # their bodies set padded positions to zero


def arguments_of(inputs, layer):
    given = {"attention_mask": inputs["attention_mask"], "segment_ids": inputs.get("token_type_ids")}
    if layer.extras:
        given["extra_ids"] = {"language": inputs["langs"]}
    return given


class TestFromCheckpoint:
    @pytest.mark.parametrize("padding", [None, "right", "left"])
    @pytest.mark.parametrize("name", SMALL)
    def test_gives_the_first_layer_what_transformers_does(self, small_checkpoint, name, padding):
        small = small_checkpoint(name)
        inputs = small.inputs(padding)
        layer = TransformerInput.from_checkpoint(small.folder).eval()
        with torch.no_grad():
            expected = small.hidden_input(**inputs)
            found = layer(inputs["input_ids"], **arguments_of(inputs, layer))
        if padding and name in ZEROED_AFTERWARDS:
            is_token = inputs["attention_mask"] == 1
            expected, found = expected[is_token], found[is_token]
        assert found.dtype == expected.dtype
        assert (found - expected).abs().max() <= 1e-6

    @pytest.mark.parametrize("padding", [None, "left"])
    @pytest.mark.parametrize("name", ["opt", "roberta", "bert", "gpt2"])
    def test_without_a_mask_too(self, small_checkpoint, name, padding):
        small = small_checkpoint(name)
        inputs = small.inputs(padding)
        del inputs["attention_mask"]
        layer = TransformerInput.from_checkpoint(small.folder).eval()
        with torch.no_grad():
            found = layer(inputs["input_ids"], segment_ids=inputs.get("token_type_ids"))
            assert (found - small.hidden_input(**inputs)).abs().max() <= 1e-6

    @pytest.mark.parametrize("name", ["opt", "roberta"])
    def test_where_mask_and_ids_differ_padding_is_told_as_the_family_tells_it(self, small_checkpoint, name):
        small = small_checkpoint(name)
        inputs = small.inputs("left")
        inputs["attention_mask"][0, :2] = 0
        layer = TransformerInput.from_checkpoint(small.folder).eval()
        with torch.no_grad():
            found = layer(inputs["input_ids"], attention_mask=inputs["attention_mask"])
            expected = small.hidden_input(**inputs)
        is_token = inputs["attention_mask"] == 1
        assert (found - expected)[is_token].abs().max() <= 1e-6

    def test_gemma_in_bfloat16_is_bit_equal(self, small_checkpoint):
        small = small_checkpoint("gemma-bf16")
        inputs = small.inputs()
        layer = TransformerInput.from_checkpoint(small.folder)
        assert layer.token.weight.dtype == torch.bfloat16
        assert torch.equal(layer(inputs["input_ids"]), small.hidden_input(**inputs))
        widened = TransformerInput.from_checkpoint(small.folder, dtype=torch.float32)
        assert torch.equal(
            widened(inputs["input_ids"]), layer.token.weight.float()[inputs["input_ids"]] * 12**0.5
        )

    def test_the_padding_row_is_kept_or_zeroed(self, small_checkpoint):
        folder = small_checkpoint("bert").folder
        assert TransformerInput.from_checkpoint(folder).token.weight[0].any()
        layer = TransformerInput.from_checkpoint(folder, padding="zero")
        assert not layer.token.weight[0].any()
        layer.load_state_dict(TransformerInput.from_checkpoint(folder).state_dict())
        assert not layer.token.weight[0].any()

    def test_it_can_be_trained_and_brings_the_dropout(self, small_checkpoint):
        layer = TransformerInput.from_checkpoint(small_checkpoint("bert").folder)
        assert layer.dropout.p == 0.1
        layer(torch.tensor([[1, 2]])).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())

    def test_a_real_model(self, minilm_folder):
        import transformers

        model = transformers.AutoModel.from_pretrained(minilm_folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder)
        batch = tokenizer(["the king is dead", "long live"], padding=True, return_tensors="pt")
        layer = TransformerInput.from_checkpoint(minilm_folder).eval()
        assert layer.token.weight.shape == (30_522, 384)
        with torch.no_grad():
            expected = model.eval().embeddings(batch["input_ids"], token_type_ids=batch["token_type_ids"])
            found = layer(batch["input_ids"], segment_ids=batch["token_type_ids"])
        assert (found - expected).abs().max() <= 1e-6

    def test_an_unknown_family_is_told(self, write, tmp_path):
        write("config.json", '{"model_type": "mystery", "vocab_size": 3}')
        from safetensors.torch import save_file

        save_file({"table": torch.ones(3, 2)}, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match="mystery"):
            TransformerInput.from_checkpoint(tmp_path)


@pytest.mark.parametrize("max_positions", [0, -1, 1.5])
@pytest.mark.parametrize("name", ["bert", "original", "llama"])
def test_a_recipe_of_no_positions(name, max_positions):
    with pytest.raises(ShapeError, match="max_positions must be an integer, 1 or more"):
        TransformerInput.from_recipe(name, 20, 4, max_positions=max_positions)


@pytest.mark.parametrize("name", [None, 5])
def test_a_recipe_without_a_name(name):
    with pytest.raises(CheckpointError, match=f"the name of a family or a model; found {name}"):
        TransformerInput.from_recipe(name, 20, 4)


@pytest.mark.parametrize("name", ["keys", "a.b", "", "training", 3])
def test_extras_that_torch_cannot_name(name):
    with pytest.raises(ShapeError, match="an extra table can't be named"):
        TransformerInput(TokenEmbedding(5, 4), extras={name: SegmentEmbedding(2, 4)})


def test_lists_are_no_ids():
    layer, ids = TransformerInput.from_recipe("roberta", 20, 4), torch.tensor([[5, 6]])
    for given, what in (
        ({"ids": [[5, 6]]}, "ids"),
        ({"ids": ids, "segment_ids": [[0, 0]]}, "segment ids"),
        ({"ids": ids, "position_ids": [[0, 0]]}, "position ids"),
        ({"ids": ids, "attention_mask": [[1, 1]]}, "attention mask"),
    ):
        with pytest.raises(ShapeError, match=f"the {what} must be a tensor, found list"):
            layer(**given)
