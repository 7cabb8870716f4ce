"""Each family's layer and head against the model itself, built small and random by transformers."""

import json

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tokenspace.checkpoint import audit
from tokenspace.models.open import open_checkpoint
from tokenspace.reference.recipes import from_checkpoint, head_from_checkpoint

FAMILIES = {
    "bert": "bert",
    "roberta": "roberta",
    "roberta-padding-0": "roberta",
    "roberta-padding-3": "roberta",
    "roberta-padding-last": "roberta",
    "xlm-roberta": "roberta",
    "camembert": "roberta",
    "distilbert": "distilbert",
    "albert": "albert",
    "electra": "electra",
    "electra-projected": "electra",
    "deberta-v3": "deberta-v3",
    "modernbert": "modernbert",
    "xlm": "xlm",
    "xlm-sinusoidal": "xlm",
    "gpt2": "gpt2",
    "gptj": "gptj",
    "gpt_neox": "gpt_neox",
    "opt": "opt",
    "opt-projected": "opt",
    "bloom": "bloom",
    "t5": "t5",
    "t5-untied": "t5",
    "mt5": "mt5",
    "bart": "bart",
    "mbart": "mbart",
    "llama": "llama",
    "llama-tied": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3-images": "gemma3",
    "falcon": "falcon",
    "mpt": "mpt",
    "phi": "phi",
    "mamba": "mamba",
    "granite": "granite",
    "cohere": "cohere",
}
ZEROED_AFTERWARDS = ("xlm", "xlm-sinusoidal", "deberta-v3")  # their bodies set padded positions to zero


def layer_input(small, inputs):
    """Our layer's output for the arguments that transformers takes."""
    layer = from_checkpoint(open_checkpoint(small.folder))
    extra_ids = {"language": inputs["langs"].numpy()} if layer.extras else None
    segment_ids = inputs["token_type_ids"].numpy() if "token_type_ids" in inputs else None
    return layer.forward(
        inputs["input_ids"].numpy(),
        segment_ids=segment_ids,
        attention_mask=inputs["attention_mask"].numpy(),
        extra_ids=extra_ids,
    )


@pytest.mark.parametrize("padding", [None, "right", "left"])
@pytest.mark.parametrize("name", FAMILIES)
def test_hidden_input_is_transformers(small_checkpoint, name, padding):
    small = small_checkpoint(name)
    inputs = small.inputs(padding)
    expected, found = small.hidden_input(**inputs).numpy(), layer_input(small, inputs)
    assert found.shape == expected.shape
    assert expected.std() > 0.05
    if padding and name in ZEROED_AFTERWARDS:
        is_token = inputs["attention_mask"].numpy() == 1
        assert not expected[~is_token].any()
        expected, found = expected[is_token], found[is_token]
    assert abs(found - expected).max() <= 1e-6


@pytest.mark.parametrize("told_by", ["ids", "mask"])
@pytest.mark.parametrize("name", ["roberta", "opt", "opt-projected", "bert", "gpt2"])
def test_padding_is_told_as_transformers_tells_it(small_checkpoint, name, told_by):
    """Padding ids that the mask takes for tokens, and tokens that it takes for padding."""
    small = small_checkpoint(name)
    padded, whole = small.inputs("left"), small.inputs()
    other = {"ids": (padded, whole), "mask": (whole, padded)}[told_by]
    inputs = whole | {"input_ids": other[0]["input_ids"], "attention_mask": other[1]["attention_mask"]}
    expected = small.hidden_input(**inputs).numpy()
    assert abs(layer_input(small, inputs) - expected).max() <= 1e-6


@pytest.mark.parametrize(
    "name", ["roberta", "roberta-padding-0", "roberta-padding-3", "roberta-padding-last", "opt"]
)
def test_padding_ids_without_a_mask(small_checkpoint, name):
    small = small_checkpoint(name)
    ids = small.inputs("left")["input_ids"]
    found = from_checkpoint(open_checkpoint(small.folder)).forward(ids.numpy())
    assert abs(found - small.hidden_input(input_ids=ids).numpy()).max() <= 1e-6


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_transformers(small_checkpoint, name):
    small = small_checkpoint(name)
    hidden, logits = small.hidden_and_logits(**small.inputs())
    found = head_from_checkpoint(open_checkpoint(small.folder)).forward(hidden.numpy())
    assert found.shape == tuple(logits.shape)
    assert abs(found - logits.numpy()).max() <= 1e-6


@pytest.mark.parametrize(("name", "family"), FAMILIES.items())
def test_the_family_is_recognised(small_checkpoint, name, family):
    assert open_checkpoint(small_checkpoint(name).folder).family.name == family


def test_gemma_in_bfloat16_is_bit_equal(small_checkpoint):
    small = small_checkpoint("gemma-bf16")
    inputs = small.inputs()
    layer = from_checkpoint(open_checkpoint(small.folder))
    assert layer.token.weight.dtype == ml_dtypes.bfloat16
    assert layer.token.scale == 3.46875 != np.sqrt(12)
    expected = small.hidden_input(**inputs).view(torch.int16).numpy()
    found = layer_input(small, inputs).astype(ml_dtypes.bfloat16).view(np.int16)
    np.testing.assert_array_equal(found, expected)


def test_a_head_shares_the_layers_table(small_checkpoint):
    opened = open_checkpoint(small_checkpoint("gpt2").folder)
    layer = from_checkpoint(opened)
    assert head_from_checkpoint(opened, layer.token).embedding is layer.token


def test_minilms_input_is_transformers(minilm_folder):
    import transformers

    module = transformers.AutoModel.from_pretrained(minilm_folder).eval()
    ids = np.array([[101, 1996, 4937, 2938, 102], [101, 3899, 102, 0, 0]])
    segments = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]])
    with torch.no_grad():
        expected = module.embeddings(torch.tensor(ids), token_type_ids=torch.tensor(segments)).numpy()
    layer = from_checkpoint(open_checkpoint(minilm_folder))
    found = layer.forward(ids, segment_ids=segments, attention_mask=(ids != 0).astype(int))
    assert abs(found - expected).max() <= 1e-6


ENCODERS = [
    "bert",
    "roberta",
    "camembert",
    "distilbert",
    "albert",
    "electra",
    "deberta-v3",
    "modernbert",
    "xlm",
]


@pytest.mark.parametrize("leave", ["all", "the tied name", "the untied name"])
@pytest.mark.parametrize("flag", [True, False, None])
@pytest.mark.parametrize("name", ENCODERS)
def test_a_stored_head_adds_the_bias_that_transformers_reads(small_checkpoint, tmp_path, name, flag, leave):
    """Every bias drawn at random, so that each name's is another; and with one of the names missing."""
    small = small_checkpoint(name)
    config = type(small.module.config).from_dict(
        small.module.config.to_dict() | {"tie_word_embeddings": False}
    )
    torch.manual_seed(3)
    module = type(small.module)(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    module.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    del settings["tie_word_embeddings"]
    settings |= {} if flag is None else {"tie_word_embeddings": flag}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    family = open_checkpoint(tmp_path).family
    if leave != "all":
        if family.untied_head_bias is None or (leave == "the tied name" and flag is False):
            return  # one name alone; or the one that transformers would start anew
        kept = family.head_bias if leave == "the tied name" else family.untied_head_bias
        tensors = load_file(tmp_path / "model.safetensors")
        for other in {family.head_bias, family.untied_head_bias} - {kept}:
            del tensors[other]
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    small = type(small)(tmp_path, type(small.module).from_pretrained(tmp_path).eval(), small.spec)
    hidden, logits = small.hidden_and_logits(**small.inputs())
    opened = open_checkpoint(tmp_path)
    found = head_from_checkpoint(opened).forward(hidden.numpy())
    assert abs(found - logits.numpy()).max() <= 1e-5
    listed = {tensor.role: tensor.name for tensor in audit(opened).tensors}
    assert listed["head-bias"] == opened.head_bias.name
    assert "unknown" not in listed
