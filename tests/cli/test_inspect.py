import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file, save_model
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace import formats
from tokenspace.cli import main
from tokenspace.formats.static_embedding import save
from tokenspace.table import Table
from tokenspace.vocab import Vocab

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(small_checkpoint, tmp_path):
    """A small LLaMA with a tokenizer of as many tokens as are asked for."""

    def make(tokens):
        shutil.copytree(small_checkpoint("llama").folder, tmp_path / "llama")
        words = {f"w{i}": i for i in range(tokens)}
        Inner(WordLevel(words, unk_token="w0")).save(str(tmp_path / "llama" / "tokenizer.json"))
        return str(tmp_path / "llama")

    return make


def run(*arguments):
    return CliRunner().invoke(main, ["inspect", *arguments])


def test_json_has_what_the_design_names(folder):
    result = run(folder(60), "--json")
    assert (result.exit_code, result.stderr, result.stdout.count("\n")) == (0, "", 1)
    answer = json.loads(result.stdout)
    assert list(answer)[:5] == ["family", "tensors", "tied", "parameters", "findings"]
    assert (answer["family"], answer["tied"], answer["findings"]) == ("llama", False, [])
    assert answer["tensors"] == [
        {"name": name, "role": role, "shape": [60, 16], "dtype": "F32", "shard": WEIGHTS}
        for name, role in [("model.embed_tokens.weight", "input"), ("lm_head.weight", "head")]
    ]
    parameters = answer["parameters"]
    assert list(parameters) == ["embedding", "total", "fraction"]
    assert parameters["fraction"] == 960 / parameters["total"]
    assert answer["tying"] == {"flag": False, "stored": "lm_head.weight", "equal": False}
    assert (answer["rows"], answer["largest_id"]) == (60, 59)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_ids_past_the_table_are_status_1(folder, form):
    result = run(folder(61), *form)
    assert result.exit_code == 1
    assert result.stderr == ""
    if form:
        (finding,) = json.loads(result.stdout)["findings"]
        assert list(finding) == ["code", "severity", "message", "fix"]
        assert (finding["code"], finding["severity"]) == ("ids-past-rows", "error")
    else:
        assert "error     1 of the tokenizer's ids have no row: the first is 60, token w60" in result.stdout


def test_findings_that_are_no_errors_are_status_0(folder):
    result = run(folder(58))
    assert result.exit_code == 0
    assert "info      2 rows past the tokenizer's largest id, 57" in result.stdout


def test_a_sound_model_shows_its_tensors_and_share(folder):
    lines = run(folder(60)).stdout.splitlines()
    assert lines[0].endswith("llama: llama")
    assert lines[2].split() == ["input", "model.embed_tokens.weight", "60", "×", "16", "F32", WEIGHTS]
    assert (
        "head      untied: config.json says untied; lm_head.weight is stored, not equal to the table" in lines
    )
    assert "rows      60; largest token id 59" in lines
    assert lines[-1] == "nothing to remark"


def test_minilm(minilm_folder):
    shown = run(str(minilm_folder)).stdout
    assert "share     11,720,448 of 22,713,216 parameters are the embedding (51.6 %)" in shown
    assert "tied: config.json says nothing; no head is stored, as is the family's custom" in shown


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_what_is_no_checkpoint_is_one_line(tmp_path, form):
    result = run(str(tmp_path), *form)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no config.json" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_broken_tokenizer_is_there(folder):
    place = folder(60)
    (Path(place) / "tokenizer.json").write_text("{")
    result = run(place)
    assert result.exit_code == 0
    assert "rows      60; the tokenizer here can't be read" in result.stdout
    assert "warning   ids are not checked: " in result.stdout


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_static_embedding_is_told_as_that(tmp_path, form):
    place = f"{tmp_path}/static"
    save(Table(np.ones((3, 2), np.float32), Vocab(["a", "b", "c"])), place)
    result = CliRunner().invoke(main, ["inspect", place, *form])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "is no model's checkpoint but a static embedding: a table of 3 rows × 2" in result.stderr
    assert "params --vocab 3 --dim 2" in result.stderr


@pytest.mark.parametrize("tied", [True, False])
def test_the_sentence_on_the_head_agrees_with_the_list(folder, tied):
    place = Path(folder(60))
    config = json.loads((place / "config.json").read_text())
    changed = config | {"model_type": "new", "tie_word_embeddings": tied}
    (place / "config.json").write_text(json.dumps(changed))
    text = run(str(place)).stdout
    assert "head   lm_head.weight" in text
    assert "no head is stored" not in text
    assert "untied: config.json says" in text
    held = load_file(place / WEIGHTS)
    save_file(held | {"other.embed_out.weight": held["lm_head.weight"].clone()}, place / WEIGHTS)
    text = run(str(place)).stdout
    assert "no head is stored" not in text
    assert "lm_head.weight, other.embed_out.weight may be heads" in text


def test_a_table_stored_as_its_head_is_said(small_checkpoint, tmp_path):
    shutil.copytree(small_checkpoint("gpt2").folder, tmp_path / "x")
    save_model(small_checkpoint("gpt2").module, str(tmp_path / "x" / WEIGHTS))
    text = run(str(tmp_path / "x")).stdout
    assert "tied: config.json says tied; lm_head.weight is stored, and is the table too" in text


@pytest.mark.parametrize("name", ["x.txt", "x.npy", "x.npz", "x.vec", "x.bin", "x.safetensors", "tensors"])
def test_a_file_that_is_no_model_says_what_to_use(folder, tmp_path, name):
    path = tmp_path / name
    if name == "tensors":
        path = Path(folder(60)) / WEIGHTS
    else:
        formats.save(Table(np.ones((3, 2), np.float32), Vocab(["a", "b", "c"])), path)
    result = run(str(path))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    said = f"tokenspace inspect {path.parent}" if name == "tensors" else "for a table: tokenspace neighbors"
    assert said in result.stderr


def test_usage():
    assert run().exit_code == 2
