"""Tables on the hub, from a stand-in on this machine that serves the calls that huggingface_hub makes."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from click.testing import CliRunner
from huggingface_hub import constants
from safetensors.numpy import save
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace import formats
from tokenspace.cli import main
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.formats import hub, hub_files
from tokenspace.models.open import load_table, open_checkpoint
from tokenspace.models.plain import load_file

COMMIT = "c0ffee" + "0" * 34
V, D = 5, 4
ROWS = np.arange(V * D, dtype=np.float32).reshape(V, D)
TOKENIZER = Inner(WordLevel({word: i for i, word in enumerate("abcde")}, unk_token="a")).to_str().encode()


def as_json(value):
    return json.dumps(value).encode()


LLAMA = as_json({"model_type": "llama", "vocab_size": V})
SMALL = {"config.json": LLAMA, "tokenizer.json": TOKENIZER}
SHARDED = SMALL | {
    "tokenizer_config.json": b"{}",
    "README.md": b"x",
    "pytorch_model.bin": b"x",
    "vocab.json": b"{}",
    "merges.txt": b"",
    "one.safetensors": save({"model.embed_tokens.weight": ROWS}),
    "two.safetensors": save({"model.layers.0.mlp.weight": ROWS}),
    "three.safetensors": save({"lm_head.weight": ROWS + 1}),
    "model.safetensors.index.json": as_json(
        {
            "weight_map": {
                "model.embed_tokens.weight": "one.safetensors",
                "model.layers.0.mlp.weight": "two.safetensors",
                "lm_head.weight": "three.safetensors",
            }
        }
    ),
}


class Hub:
    """A hub of ``repositories``: each a dict of files, or the (status, headers) that it answers."""

    def __init__(self):
        self.repositories, self.asked, self.read = {}, [], []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version, wbufsize = "HTTP/1.1", -1  # an answer in one packet

            def do_GET(self):
                stand_in.answer(self, body=True)

            def do_HEAD(self):
                stand_in.answer(self, body=False)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *_: None  # a client that waited no longer
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def answer(self, request, body):
        path = urlsplit(request.path).path
        self.asked.append((request.command, unquote(path), request.headers.get("authorization")))
        status, content, headers = self.content(path)
        if body and status == 200 and "/resolve/" in path:
            self.read.append(unquote(path.split("/resolve/")[1].split("/", 1)[1]))
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)

    def content(self, path):
        if path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            file = None
        else:
            name, _, rest = path[1:].partition("/resolve/")
            revision, _, file = rest.partition("/")
            file = unquote(file)
        revision = unquote(revision)
        found = self.repositories.get(name, (404, {"X-Error-Code": "RepoNotFound"}))
        if isinstance(found, tuple):
            return found[0], b"{}", found[1]
        if isinstance(found, bytes):
            return 200, found, {}
        if revision not in ("", "main", "v1", "refs/pr/1", COMMIT):
            return 404, b"{}", {"X-Error-Code": "RevisionNotFound"}
        if file is None:
            about = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": each} for each in found]}
            return 200, as_json(about), {"X-HF-Warning": "Topic; what a hub may say besides"}
        if file not in found or found[file] is None:
            return 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
        etag = hashlib.sha1(found[file]).hexdigest()
        return 200, found[file], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}


@pytest.fixture(scope="module")
def _hub():
    stand_in = Hub()
    yield stand_in
    stand_in.server.shutdown()
    stand_in.server.server_close()


@pytest.fixture
def stand_in(_hub):
    _hub.repositories.clear()
    _hub.asked.clear()
    _hub.read.clear()
    return _hub


@pytest.fixture
def fetch(stand_in, tmp_path):
    """``fetch(name, files)``: what the stand-in's repository ``org/name`` of ``files`` gives."""
    from_hub = hub.fetch

    def fetch(name="hf:org/name", files=None):
        if files is not None:
            stand_in.repositories["org/name"] = files
        return from_hub(name, stand_in.address, tmp_path / "cache")

    return fetch


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf:org/name", ("org/name", None, None)),
        ("hf:gpt2", ("gpt2", None, None)),
        ("hf:org/na.me-2_x@v1.0", ("org/na.me-2_x", "v1.0", None)),
        ("hf:org/name@refs/pr/1/x.vec", ("org/name", "refs/pr/1", "x.vec")),
        ("hf:org/name@main/in/x y.vec", ("org/name", "main", "in/x y.vec")),
        ("hf:org/name/x@2.vec", ("org/name", None, "x@2.vec")),
    ],
)
def test_names(name, parts):
    assert hub.parsed(name) == parts


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:/",
        "hf:../x",
        "hf:a/..",
        "hf:./x",
        "hf:a/b/c/d",
        "hf:a/b/../c.vec",
        "hf:a/b//c.vec",
        "hf:a/b/./c.vec",
        "hf:a/b/c\\d.vec",
        "hf:a/b/c.vec\n",
        "hf:a/b/c\0.vec",
        "hf:a/b@",
        "hf:a/b@..",
        "hf:a/b@../../x",
        "hf:a b/c",
        "hf:org/na..me",
        "hf:é/x",
        "hf:http://x/y",
        "hf:org/name--x",
    ],
)
def test_what_can_be_no_name(name, stand_in, tmp_path):
    with pytest.raises(TableFormatError, match=r"names nothing on the Hugging Face Hub") as caught:
        hub.fetch(name, stand_in.address, tmp_path)
    assert "\n" not in str(caught.value)
    assert stand_in.asked == []


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
    if kind == "new":
        absent = (
            "2 of the model's files were not fetched, nor looked at: 'three.safetensors', 'two.safetensors'"
        )
    if form:
        answer = json.loads(result.stdout)
        assert (answer["rows"], answer["largest_id"], answer["parameters"]["total"]) == (V, V - 1, None)
        assert absent in [finding["message"] for finding in answer["findings"]]
    else:
        assert f"info      {absent} (not-fetched)" in result.stdout
        assert "rows      5; largest token id 4" in result.stdout


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


# ── revisions, the cache, and no connection ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", COMMIT])
def test_a_revision(fetch, stand_in, revision):
    path = fetch(f"hf:org/name@{revision}/x.vec", {"x.vec": b"v"})
    assert path.read_bytes() == b"v"
    assert path.parent.name == COMMIT
    asked = f"/api/models/org/name/revision/{revision}"
    assert asked in [path for _, path, _ in stand_in.asked]


@pytest.mark.parametrize("revision", ["", "@v1", f"@{COMMIT}"])
def test_what_is_cached_opens_offline(fetch, stand_in, monkeypatch, revision):
    folder = fetch(f"hf:org/name{revision}", SHARDED)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    stand_in.asked.clear()
    assert fetch(f"hf:org/name{revision}") == folder
    assert stand_in.asked == []
    np.testing.assert_array_equal(load_table(folder).weight, ROWS)


def test_what_is_cached_opens_without_a_connection(fetch, tmp_path):
    folder = fetch(files=SHARDED)
    assert hub.fetch("hf:org/name", "http://127.0.0.1:9", tmp_path / "cache") == folder


def test_offline_and_not_cached(fetch, stand_in, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        CheckpointError, match=r"hf:org/name is not on this machine, and HF_HUB_OFFLINE forbids"
    ):
        fetch(files=SHARDED)
    assert stand_in.asked == []


def test_no_connection(tmp_path):
    with pytest.raises(CheckpointError, match=r"^hf:org/name: can't fetch it from http://127\.0\.0\.1:9: .+"):
        hub.fetch("hf:org/name", "http://127.0.0.1:9", tmp_path)


def test_a_hub_that_does_not_answer(stand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_PATIENCE", 0.05)
    waiting = threading.Event()
    monkeypatch.setattr(stand_in, "content", lambda path: (waiting.wait(5) and None) or (200, b"{}", {}))
    with pytest.raises(CheckpointError, match=r"can't fetch it from http.*: .*timed out"):
        hub.fetch("hf:org/name", stand_in.address, tmp_path)
    waiting.set()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            (404, {"X-Error-Code": "RepoNotFound"}),
            r"has no repository 'org/name' that you may read; .*HF_TOKEN",
        ),
        ((401, {}), r"answers 401; log in with .*HF_TOKEN"),
        (
            (403, {"X-Error-Code": "GatedRepo"}),
            r"gives access on request; ask for it at http.*/org/name, then",
        ),
        ((403, {}), r"answers 403; log in"),
        ((429, {}), r"answers 429; try again later"),
        ((500, {}), r"answers 500; try again later"),
        (b"<html>", r"is no description of a repository; is it a hub\?"),
        (b"[]", r"is no description of a repository"),
        (b"{}", r"is no description of a repository|holds no table"),
    ],
)
def test_what_the_hub_answers(fetch, answer, says):
    with pytest.raises(CheckpointError, match=rf"^hf:org/name.*{says}") as caught:
        fetch(files=answer)
    assert "\n" not in str(caught.value)


def test_an_answer_is_no_reason_to_take_what_is_cached(fetch):
    fetch(files=SHARDED)
    with pytest.raises(CheckpointError, match=r"gives access on request"):
        fetch(files=(403, {"X-Error-Code": "GatedRepo"}))


def test_no_such_revision_or_file(fetch):
    with pytest.raises(CheckpointError, match=r"'org/name' has no branch, tag or commit 'v9'"):
        fetch("hf:org/name@v9", SHARDED)
    with pytest.raises(
        CheckpointError, match=r"hf:org/name has no file 'x\.vec'; it has 'README\.md', 'config"
    ):
        fetch("hf:org/name/x.vec")
    with pytest.raises(CheckpointError, match=r"a file that its list names is not there"):
        fetch("hf:org/name/gone.vec", {"gone.vec": None})


def test_an_empty_repository(fetch):
    with pytest.raises(CheckpointError, match=r"hf:org/name holds no table: its files are none"):
        fetch(files={})


def test_huggingfaces_settings_and_silence(stand_in, tmp_path):
    stand_in.repositories["org/name"] = SHARDED
    code = (
        "import sys; from tokenspace.formats import hub; from tokenspace.models.open import load_table\n"
        "print(load_table(hub.fetch('hf:org/name')))"
    )
    settings = {"HF_ENDPOINT": stand_in.address, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_secret"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | settings, check=True
    )
    assert run.stdout == "Table(5 × 4 float32, tokenizer, output)\n"
    assert run.stderr == ""
    assert (tmp_path / "home" / "hub" / "models--org--name").is_dir()
    tokens = {token for _, path, token in stand_in.asked if "org/name" in path}
    assert tokens == {"Bearer hf_secret"}


def test_nothing_is_imported_to_tell_a_name():
    code = (
        "import sys; from tokenspace.formats import hub; hub.is_name('hf:x'); hub.parsed('hf:org/name')\n"
        "sys.exit('huggingface_hub' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_librarys_own_settings_are_left_as_they_were(fetch):
    from huggingface_hub import utils

    before = utils.are_progress_bars_disabled(), utils.logging.get_verbosity()
    fetch(files=SHARDED)
    assert (utils.are_progress_bars_disabled(), utils.logging.get_verbosity()) == before


def test_a_name_is_safe():
    assert hub_files.safe("in/x.vec")
    assert not any(map(hub_files.safe, ["", "/x", "a//b", "..", "a/../b", "a\\b", "C:x", "a\0"]))
