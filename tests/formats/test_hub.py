"""Tables on the hub, from a stand-in on this machine that serves the calls that huggingface_hub makes."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from huggingface_hub import constants

from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.formats import hub, hub_files
from tokenspace.models.open import load_table

from .hub_stand_in import COMMIT, ROWS, SHARDED

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
