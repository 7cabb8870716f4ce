"""Tied tables that the files hold under another of their names, as safetensors' save_model leaves them."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file, save_model
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace.checkpoint import audit, count
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.models.open import load_table, open_checkpoint
from tokenspace.models.plain import load_file as load_tensors
from tokenspace.reference.recipes import from_checkpoint, head_from_checkpoint

V = 60
WEIGHTS = "model.safetensors"
TIED = [
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "deberta-v3",
    "modernbert",
    "xlm",
    "gpt2",
    "opt",
    "bloom",
    "t5",
    "bart",
    "mbart",
    "llama-tied",
    "gemma",
    "gemma2",
    "gemma3",
    "falcon",
    "mpt",
    "mamba",
    "granite",
    "cohere",
]


def without_metadata(path):
    save_file(load_file(path), path)


def as_pickle(path):
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()


def in_shards(path):
    held = load_file(path)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(sorted(held))}
    for file in set(files.values()):
        save_file({name: held[name] for name in held if files[name] == file}, path.with_name(file))
    path.with_name("model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    path.unlink()


def as_saved(path):
    with safe_open(path, "pt") as file:
        assert file.metadata()


@pytest.fixture
def saved(small_checkpoint, tmp_path):
    """A small model saved by save_model, changed by ``change``: its folder, and the model."""

    def save(name, change=as_saved):
        small = small_checkpoint(name)
        folder = tmp_path / name
        shutil.copytree(small.folder, folder)
        save_model(small.module, str(folder / WEIGHTS))
        change(folder / WEIGHTS)
        words = {f"w{i}": i for i in range(V)}
        Inner(WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
        return folder, small

    return save


@pytest.mark.parametrize("name", TIED)
@pytest.mark.parametrize("change", [as_saved, without_metadata], ids=["metadata", "none"])
def test_every_tied_family_is_opened_under_either_name(saved, name, change):
    folder, small = saved(name, change)
    opened = open_checkpoint(folder)
    table = load_table(folder)
    weight = small.module.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(table.weight, weight)
    assert (opened.tied, table.output) == (True, None)
    with torch.no_grad():
        given = small.inputs()
        expected = small.hidden_input(**given)
    if name not in ("xlm",):  # its languages are asked for
        ids, segments = given["input_ids"].numpy(), given.get("token_type_ids")
        found = from_checkpoint(opened).forward(
            ids, segment_ids=None if segments is None else segments.numpy()
        )
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    assert head_from_checkpoint(opened).weight.shape == weight.shape
    found = audit(opened)
    assert not found.failed
    assert (found.rows, found.tied) == (V, True)
    assert count(opened).total == sum(each.numel() for each in small.module.parameters())


@pytest.mark.parametrize("name", ["gpt2", "t5", "roberta"])
@pytest.mark.parametrize("change", [as_pickle, in_shards])
def test_in_other_files(saved, name, change):
    folder, small = saved(name, change)
    weight = small.module.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(load_table(folder).weight, weight)
    assert open_checkpoint(folder).family.name == name


@pytest.mark.parametrize("name", ["gpt2", "llama-tied", "t5"])
def test_the_file_alone_with_its_config(saved, name):
    folder, small = saved(name)
    weight = small.module.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_array_equal(load_tensors(folder / WEIGHTS).weight, weight)


def test_an_untied_models_head_is_not_its_table(saved):
    folder, _ = saved("llama", lambda path: None)
    held = load_file(folder / WEIGHTS)
    del held["model.embed_tokens.weight"]
    save_file(held, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"'lm_head.weight', is an output head by its name"):
        load_table(folder)
    with pytest.raises(TableFormatError, match=r"which tensor is the table\?"):
        load_tensors(folder / WEIGHTS)
    found = audit(open_checkpoint(folder))
    assert [each.role for each in found.tensors] == ["head"]
    assert ("table-missing", "error") in [(each.code, each.severity) for each in found.findings]
    assert load_table(folder, tensor="lm_head.weight").provenance["tied"] is None


def test_a_flag_against_the_metadata_is_an_error(saved):
    folder, _ = saved("gpt2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    found = audit(open_checkpoint(folder))
    assert [(each.code, each.severity) for each in found.findings] == [("table-untied", "error")]
    assert found.findings[0].fix == "set tie_word_embeddings to true"
