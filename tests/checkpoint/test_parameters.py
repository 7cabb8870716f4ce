"""A checkpoint's count equals that of the torch module which wrote it."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tokenspace.checkpoint import count
from tokenspace.errors import CheckpointError
from tokenspace.models import open_checkpoint

GPT2 = transformers.GPT2Config(vocab_size=50, n_embd=8, n_layer=2, n_head=2, n_positions=16)
BERT = transformers.BertConfig(
    vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
)


def llama(**settings) -> transformers.LlamaConfig:
    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 16}
    return transformers.LlamaConfig(**sizes, num_attention_heads=2, **settings)


def parameters(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("module", "tied", "head"),
    [
        (lambda: transformers.GPT2LMHeadModel(GPT2), True, 0),
        (lambda: transformers.BertForMaskedLM(BERT), True, 50),
        (lambda: transformers.BertModel(BERT), True, 0),
        (lambda: transformers.LlamaForCausalLM(llama(tie_word_embeddings=False)), False, 400),
        (lambda: transformers.LlamaForCausalLM(llama(tie_word_embeddings=True)), True, 0),
    ],
    ids=["gpt2", "bert", "bert without head", "llama", "llama tied"],
)
def test_equals_the_module_that_wrote_it(tmp_path, module, tied, head):
    torch.manual_seed(0)
    module = module()
    module.save_pretrained(tmp_path)
    found = count(open_checkpoint(tmp_path))
    assert found.total == parameters(module)
    assert (found.vocab, found.dim, found.embedding) == (50, 8, 400)
    assert (found.head, found.tied) == (head, tied)
    assert found.fraction == 400 / found.total


def test_shards_count_together(tmp_path):
    module = transformers.LlamaForCausalLM(llama(tie_word_embeddings=False))
    module.save_pretrained(tmp_path, max_shard_size="2KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert count(open_checkpoint(tmp_path)).total == parameters(module)


def test_minilm_equals_transformers(minilm_folder):
    config = transformers.AutoConfig.from_pretrained(minilm_folder)
    with torch.device("meta"):
        module = transformers.AutoModel.from_config(config)
    found = count(open_checkpoint(minilm_folder))
    assert found.total == parameters(module)
    assert found.embedding == 30522 * 384


def test_a_second_copy_of_the_table_and_of_the_bias_counts_once(tmp_path):
    module = transformers.BertForMaskedLM(BERT)
    module.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    found = count(open_checkpoint(tmp_path))
    assert found.copies == {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }
    assert (found.total, found.head, found.tied) == (parameters(module), 50, True)

    tensors["cls.predictions.decoder.weight"] += 1  # another head now: both count
    save_file(tensors, tmp_path / "model.safetensors")
    found = count(open_checkpoint(tmp_path))
    assert (found.total, found.head, found.tied) == (parameters(module) + 400, 450, False)


def test_equal_tensors_that_are_no_copies_all_count(tmp_path):
    """A fresh model's norms are all ones and its biases all zeros, and V may equal D."""
    config = transformers.GPT2Config(vocab_size=8, n_embd=8, n_layer=2, n_head=2, n_positions=8)
    module = transformers.GPT2LMHeadModel(config)
    module.save_pretrained(tmp_path)
    found = count(open_checkpoint(tmp_path))
    assert (found.total, found.copies) == (parameters(module), {})


def test_masks_and_ids_are_no_parameters(tmp_path):
    module = transformers.GPT2LMHeadModel(GPT2)
    module.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    extra = {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 16, 16).tril(),
        "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
        "transformer.h.0.attn.rotary_emb.inv_freq": torch.ones(4),
        "transformer.position_ids": torch.arange(16),
        "transformer.mask": torch.ones(4, dtype=torch.bool),
    }
    save_file(tensors | extra, tmp_path / "model.safetensors")
    found = count(open_checkpoint(tmp_path))
    assert found.total == parameters(module)
    assert set(found.buffers) == set(extra)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_float_counts(tmp_path, dtype):
    module = transformers.GPT2LMHeadModel(GPT2).to(dtype)
    module.save_pretrained(tmp_path)
    assert count(open_checkpoint(tmp_path)).total == parameters(module)


def test_a_family_that_is_not_known_counts_by_shape(tmp_path):
    tensors = {"embed.weight": torch.rand(50, 8), "mix.weight": torch.rand(8, 8)}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "new", "vocab_size": 50}))
    save_file(tensors, tmp_path / "model.safetensors")
    found = count(open_checkpoint(tmp_path))
    assert (found.embedding, found.head, found.total, found.tied) == (400, 0, 464, None)
    save_file(tensors | {"other.weight": torch.rand(50, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="2 tensors have vocab_size = 50 rows"):
        count(open_checkpoint(tmp_path))


def test_quantized_weights_are_refused(tmp_path):
    transformers.GPT2LMHeadModel(GPT2).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["transformer.h.0.mlp.c_fc.qweight"] = torch.ones(8, 4, dtype=torch.int32)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"'transformer[^']*qweight' is I32, a quantized weight"):
        count(open_checkpoint(tmp_path))


def test_a_table_without_rows(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    save_file({"wte.weight": torch.empty(0, 8)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds no parameters"):
        count(open_checkpoint(tmp_path))
