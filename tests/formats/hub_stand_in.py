"""A stand-in for the hub, on this machine: it serves the calls that huggingface_hub makes."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import numpy as np
from safetensors.numpy import save
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

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
