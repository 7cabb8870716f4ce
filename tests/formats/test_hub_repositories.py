"""Which files of a repository on the hub are fetched: those that hold the table, and no others."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import save

from tokenspace import formats
from tokenspace.cli import main
from tokenspace.errors import CheckpointError
from tokenspace.formats import hub
from tokenspace.models.open import load_table, open_checkpoint
from tokenspace.models.plain import load_file

from .hub_stand_in import LLAMA, ROWS, SHARDED, SMALL, TOKENIZER, V, as_json

# ── a model's checkpoint ─────────────────────────────────────────────────────────────────────────────────


def test_of_a_sharded_model_the_embedding_and_the_head_are_fetched_alone(fetch, stand_in):
    folder = fetch(files=SHARDED)
    needed = ["config.json", "model.safetensors.index.json", "one.safetensors", "three.safetensors"]
    assert sorted(stand_in.read) == sorted([*needed, "tokenizer.json", "tokenizer_config.json"])
    table = load_table(folder)
    np.testing.assert_array_equal(table.weight, ROWS)
    np.testing.assert_array_equal(table.output, ROWS + 1)
    assert list(table.vocab) == list("abcde")
    with pytest.raises(CheckpointError, match=r"has no two\.safetensors"):
        list(open_checkpoint(folder).tensors.values())
    stand_in.read.clear()
    stand_in.asked.clear()
    assert fetch() == folder
    assert stand_in.read == []  # all there
    assert [(kind, path) for kind, path, _ in stand_in.asked] == [("GET", "/api/models/org/name")]


def test_the_whole_layer_is_fetched(fetch, stand_in):
    names = [
        "embeddings.word_embeddings",
        "embeddings.position_embeddings",
        "embeddings.LayerNorm",
        "pooler.dense",
    ]
    where = {f"bert.{name}.weight": f"{i}.safetensors" for i, name in enumerate(names)}
    shards = {file: save({name: ROWS}) for name, file in where.items()}
    fetch(
        files={
            "config.json": as_json({"model_type": "bert"}),
            "model.safetensors.index.json": as_json({"weight_map": where}),
            **shards,
        }
    )
    assert sorted(name for name in stand_in.read if name in shards) == [
        "0.safetensors",
        "1.safetensors",
        "2.safetensors",
    ]


def test_one_safetensors_file_goes_before_a_pickle(fetch, stand_in):
    files = SMALL | {
        "model.safetensors": save({"model.embed_tokens.weight": ROWS}),
        "pytorch_model.bin": b"x",
    }
    np.testing.assert_array_equal(load_table(fetch(files=files)).weight, ROWS)
    assert sorted(stand_in.read) == ["config.json", "model.safetensors", "tokenizer.json"]


def test_a_pickle_where_there_is_nothing_else(fetch, stand_in):
    folder = fetch(files={"config.json": LLAMA, "vocab.txt": b"a\n", "pytorch_model.bin": b"x", "x.h5": b""})
    assert sorted(stand_in.read) == ["config.json", "pytorch_model.bin", "vocab.txt"]
    assert (folder / "pytorch_model.bin").read_bytes() == b"x"


def test_shards_of_a_family_that_is_not_known(fetch, stand_in):
    files = SHARDED | {"config.json": as_json({"model_type": "new", "vocab_size": V})}
    path = fetch(files=files)
    assert path.name == "one.safetensors"
    assert "two.safetensors" not in stand_in.read
    np.testing.assert_array_equal(load_file(path).weight, ROWS)
    where = {"a": "one.safetensors", "b": "two.safetensors"}
    stand_in.repositories["org/other"] = files | {
        "model.safetensors.index.json": as_json({"weight_map": where})
    }
    with pytest.raises(
        CheckpointError, match=r"not a known family, and 2 files .* as hf:org/other/one\.safe"
    ):
        fetch("hf:org/other")


@pytest.mark.parametrize("shard", ["../evil.safetensors", "gone.safetensors", "/etc/passwd"])
def test_an_index_that_names_what_is_not_there(fetch, stand_in, shard):
    index = as_json({"weight_map": {"model.embed_tokens.weight": shard}})
    with pytest.raises(CheckpointError, match=r"a plain file in the same folder|has no gone\.safetensors"):
        fetch(files=SHARDED | {"model.safetensors.index.json": index})
    assert all("evil" not in path and "passwd" not in path for _, path, _ in stand_in.asked)


def test_names_that_leave_the_folder_are_no_files(fetch, stand_in):
    with pytest.raises(CheckpointError, match=r"holds no table: its files are 'README.md'"):
        fetch(files={"../x.vec": b"1 1\na 1\n", "/x.vec": b"", "a\\..\\x.vec": b"", "README.md": b""})
    assert stand_in.read == []


# ── other repositories ───────────────────────────────────────────────────────────────────────────────────


def test_a_static_embedding(fetch, stand_in):
    modules = [
        {"idx": 0, "path": "0_StaticEmbedding", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    held = {"0_StaticEmbedding/model.safetensors": b"w", "0_StaticEmbedding/tokenizer.json": b"t"}
    settings = {"modules.json": as_json(modules)}
    others = {"config_sentence_transformers.json": b"{}", "0_StaticEmbedding/pytorch_model.bin": b"x"}
    others |= {"0_StaticEmbedding/vocab.txt": b"", "0_StaticEmbedding/special_tokens_map.json": b"{}"}
    others |= {"0_StaticEmbedding/model.onnx": b"", "onnx/model.safetensors": b"", "model.safetensors": b""}
    folder = fetch(files=held | settings | others)
    assert sorted(stand_in.read) == sorted([*held, *settings])
    assert (folder / "0_StaticEmbedding" / "model.safetensors").read_bytes() == b"w"
    assert (folder / "modules.json").is_file()


def test_a_model2vec_folder(fetch, stand_in):
    modules = [{"idx": 0, "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    held = {
        "modules.json": as_json(modules),
        "config.json": b"{}",
        "model.safetensors": b"w",
        "tokenizer.json": b"t",
    }
    folder = fetch(files=held | {"README.md": b"", "onnx/model.onnx": b""})
    assert sorted(stand_in.read) == sorted(held)
    assert (folder / "model.safetensors").is_file()


def test_a_model2vec_folder_by_its_tensor(fetch, stand_in):
    held = {
        "config.json": b'{"max_length": 512, "normalize": true}',
        "model.safetensors": save({"embeddings": ROWS}),
        "tokenizer.json": TOKENIZER,
    }
    folder = fetch(files=held | {"pytorch_model.bin": b"x"})
    assert sorted(stand_in.read) == sorted(held)
    table = formats.load(folder)
    np.testing.assert_array_equal(table.weight, ROWS)
    assert table.provenance["read_from"]["normalize"] is True


def test_a_static_embedding_of_a_pickle(fetch, stand_in):
    modules = as_json([{"path": "", "type": "x.StaticEmbedding"}])
    fetch(files={"modules.json": modules, "tokenizer.json": b"t", "pytorch_model.bin": b"x"})
    assert sorted(stand_in.read) == ["modules.json", "pytorch_model.bin", "tokenizer.json"]


@pytest.mark.parametrize("kind", ["llama", "new"])
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_inspect_looks_at_what_was_fetched_of_a_sharded_model(fetch, stand_in, monkeypatch, kind, form):
    config = as_json({"model_type": kind, "vocab_size": V})
    stand_in.repositories["org/name"] = SHARDED | {"config.json": config}
    monkeypatch.setattr(hub, "fetch", fetch)
    result = CliRunner().invoke(main, ["inspect", "hf:org/name", *form])
    assert result.exit_code == 0, result.output
    assert "two.safetensors" not in stand_in.read
    absent = "1 of the model's files were not fetched, nor looked at: 'two.safetensors'"
    if form:
        answer = json.loads(result.stdout)
        assert (answer["rows"], answer["largest_id"], answer["parameters"]["total"]) == (V, V - 1, None)
        assert absent in [finding["message"] for finding in answer["findings"]]
    else:
        assert f"info      {absent} (not-fetched)" in result.stdout
        assert "rows      5; largest token id 4" in result.stdout


def test_a_gguf_model_in_parts_is_fetched_whole(fetch, stand_in):
    files = {f"m-0000{i}-of-00002.gguf": b"GGUF" + bytes([i]) for i in (1, 2)} | {"README.md": b""}
    assert fetch(files=files).name == "m-00001-of-00002.gguf"
    assert sorted(stand_in.read) == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    stand_in.read.clear()
    assert fetch("hf:org/name/m-00002-of-00002.gguf").name == "m-00002-of-00002.gguf"
    stand_in.repositories["org/more"] = files | {"n.gguf": b"GGUF"}
    with pytest.raises(CheckpointError, match="has 3 GGUF files; name one"):
        fetch("hf:org/more")


@pytest.mark.parametrize("modules", [[{"idx": 0, "path": "", "type": "x.Transformer"}], {}, [1], None])
def test_other_modules_are_a_checkpoint(fetch, stand_in, modules):
    files = SMALL | {
        "model.safetensors": save({"model.embed_tokens.weight": ROWS}),
        "1_Pooling/config.json": b"{}",
    }
    folder = fetch(files=files | {"modules.json": as_json(modules)})
    np.testing.assert_array_equal(load_table(folder).weight, ROWS)
    assert "1_Pooling/config.json" not in stand_in.read


def test_gguf_files(fetch, stand_in):
    path = fetch(files={"config.json": b"{}", "README.md": b"", "x.vec": b"", "model-f16.gguf": b"GGUF"})
    assert path.read_bytes() == b"GGUF"
    assert stand_in.read == ["model-f16.gguf"]
    two = {"model-Q4_K.gguf": b"GGUF4", "in/model-f16.gguf": b"GGUF5"}
    with pytest.raises(
        CheckpointError,
        match=r"has 2 GGUF files; name one, as hf:org/name@v1/in/model-f16\.gguf: 'in",
    ):
        fetch("hf:org/name@v1", two)
    stand_in.read.clear()
    assert fetch("hf:org/name@v1/in/model-f16.gguf").read_bytes() == b"GGUF5"
    assert stand_in.read == ["in/model-f16.gguf"]


@pytest.mark.parametrize(
    ("files", "table", "read"),
    [
        (["wiki.vec", "README.md", "vocab.txt", "requirements.txt"], "wiki.vec", ["wiki.vec"]),
        (["model.bin", "training_args.bin"], "model.bin", ["model.bin"]),
        (["x.npy", "x.vocab.txt", "tokenizer.json"], "x.npy", ["x.npy", "x.vocab.txt"]),
        (["x.vec.gz", "LICENSE.txt"], "x.vec.gz", ["x.vec.gz"]),
        (["a/x.pt", "a/vocab.txt", "vocab.txt"], "a/x.pt", ["a/vocab.txt", "a/x.pt"]),
        (
            ["x.safetensors", "vocab.json", "vocab.txt", "merges.txt"],
            "x.safetensors",
            ["merges.txt", "vocab.json", "x.safetensors"],
        ),
    ],
)
def test_word_vectors(fetch, stand_in, files, table, read):
    path = fetch(files={name: name.encode() for name in files})
    assert path.read_bytes() == table.encode()
    assert sorted(stand_in.read) == read


def test_several_files_that_may_be_a_table(fetch):
    with pytest.raises(
        CheckpointError, match=r"has 2 files that may be a table; name one, as hf:org/name/a\.vec"
    ):
        fetch(files={"b.txt": b"", "a.vec": b""})
