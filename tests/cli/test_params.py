import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.models.sizes import MODELS
from tokenspace.subwords import Subwords

KEYS = ["vocab", "dim", "embedding", "head", "total", "fraction", "tied"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["params", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def facts(*arguments: str):
    return json.loads(run(*arguments, "--json"))


def fails(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["params", *arguments], catch_exceptions=False)
    assert result.stdout == ""
    return result.exit_code, result.stderr


def test_gpt2():
    first, *lines = run("gpt2").splitlines()
    assert first == "gpt2: 38,597,376 of 124,439,808 parameters are the embedding (31.0 %), tied"
    with torch.device("meta"):
        module = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    assert f"total         {sum(p.numel() for p in module.parameters()):19,}" in lines
    assert "vocabulary    50,257 rows; byte-level BPE" in lines
    assert "tying         saves 38,597,376 parameters: 77.2 MB in fp16, 154.4 MB in fp32" in lines
    assert "twice as wide embedding × 2.00, body × 4.00, all × 3.37, compute × 3.38" in lines


def test_gpt2_json():
    answer = facts("gpt2")
    assert list(answer)[: len(KEYS)] == KEYS
    assert [answer[key] for key in KEYS[:5]] == [50257, 768, 38597376, 0, 124439808]
    assert answer["fraction"] == 38597376 / 124439808
    assert answer["tied"] is True
    assert sum(answer["parts"].values()) == answer["total"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("llama-2-7b", "tying         would save 131,072,000 parameters: 262.1 MB in fp16, 524.3 MB in fp32"),
        ("llama-2-7b", "head                  131,072,000    1.9 %  32,000 × 4,096"),
        ("t5-small", "vocabulary    32,128 rows, 28 of them padding; Unigram"),
        ("t5-small", "sizes         width 512, 2 × 6 layers, feed-forward 2,048, 8 heads of 64"),
        ("bert-base-uncased", "segments                    1,536    0.0 %  2 rows"),
        ("bert-base-uncased", "head                       30,522    0.0 %  the embedding again + a bias"),
        ("opt-350m", "projection              1,048,576    0.3 %"),
        ("gpt3", "equals        rounded, the paper's table D.1"),
        ("flan-t5-xl", "equals        T5ForConditionalGeneration of transformers, with a head of its own"),
        (
            "electra-base-discriminator",
            "head                            0    0.0 %  none: no token is scored",
        ),
        ("mamba-130m", "sizes         width 768, 24 layers"),
        ("Meta-Llama/LLaMA-3.2-1B", "positions     rotary, inside attention: no table"),
    ],
)
def test_what_a_model_shows(name, line):
    assert line in run(name).splitlines()


def test_all_models_fit_80_columns_and_come_by_family():
    lines = run().splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines[1:] if line.startswith("  ")]
    assert names == list(MODELS)
    families = [line.rsplit(" (", 1)[0] for line in lines[1:] if not line.startswith(" ")]
    assert families == sorted(families, key=str.lower)
    assert "  gpt2                           50,257    768    38.6 M   124.4 M  31.0 %  tied" in lines


def test_all_models_as_json():
    answer = facts()
    assert [model["name"] for model in answer] == list(MODELS)
    assert all(list(model)[: len(KEYS)] == KEYS for model in answer)


@pytest.mark.parametrize(
    ("dim", "parameters"),
    [(64, 3_200_000), (128, 6_400_000), (768, 38_400_000), (1280, 64_000_000), (12288, 614_400_000)],
)
def test_a_table_alone(dim, parameters):
    answer = facts("--vocab", "50000", "--dim", str(dim))
    assert [answer[key] for key in KEYS] == [50000, dim, parameters, 0, None, None, True]
    assert f"a table of 50,000 × {dim:,}: {parameters:,} parameters" in run(
        "--vocab", "50000", "--dim", str(dim)
    )
    assert facts("--vocab", "50000", "--dim", str(dim), "--untied")["head"] == parameters


def test_an_own_size_is_shaped_as_gpt2():
    own = facts("--vocab", "50257", "--dim", "768", "--layers", "12")
    assert [own[key] for key in KEYS] == [facts("gpt2")[key] for key in KEYS]
    untied = facts("--vocab", "50257", "--dim", "768", "--layers", "12", "--untied")
    assert untied["total"] - own["total"] == untied["head"] == own["embedding"]
    narrow = facts("--vocab", "50257", "--dim", "768", "--layers", "12", "--ffn", "1000")
    assert own["total"] - narrow["total"] == 12 * (2 * 768 + 1) * (3072 - 1000)
    assert run("--vocab", "9", "--dim", "4", "--layers", "1").startswith("a decoder shaped as GPT-2: 36 of")


def test_a_checkpoint_by_its_headers(minilm_folder):
    answer = facts(str(minilm_folder))
    with torch.device("meta"):
        module = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(minilm_folder))
    total = sum(parameter.numel() for parameter in module.parameters())
    table = 30522 * 384
    assert [answer[key] for key in KEYS] == [30522, 384, table, 0, total, table / total, True]
    shown = run(str(minilm_folder))
    assert f"{table:,} of {total:,} parameters are the embedding (51.6 %), tied" in shown
    assert "left out      embeddings.position_ids: no parameters" in shown


def test_the_special_tokens_of_a_checkpoint(minilm_folder):
    names = {token["token"]: (token["id"], token["roles"]) for token in facts(str(minilm_folder))["special"]}
    assert names == {
        "[PAD]": (0, ["padding"]),
        "[UNK]": (100, ["unknown"]),
        "[CLS]": (101, ["classification"]),
        "[SEP]": (102, ["separator"]),
        "[MASK]": (103, ["mask"]),
    }
    assert "special       [PAD]   id   0  padding" in run(str(minilm_folder)).splitlines()


@pytest.mark.parametrize(
    "name", ["t.safetensors", "t.vec", "t.bin", "t.txt", "t.npy", "t.npz", "t.gguf", "static/"]
)
def test_a_table_of_any_format(tmp_path, name):
    """Its parameters; and its special tokens, where the format can say which they are."""
    table = ts.Table(np.ones((3, 2), np.float32), ts.Vocab(["[PAD]", "cat", "dog"], special=[0]))
    ts.formats.convert(saved := _saved(table, tmp_path / "from.safetensors"), place := f"{tmp_path}/{name}")
    answer = facts(place)
    assert [answer[key] for key in KEYS] == [3, 2, 6, 0, None, None, None]
    assert facts(saved)["special"] == [{"token": "[PAD]", "id": 0, "roles": ["padding"]}]
    format = ts.formats.FORMATS["static-embedding" if name == "static/" else ts.formats.sniff(place)]
    assert bool(answer["special"]) == ("special" in format.keeps)
    first, _, line = run(place).splitlines()[:3]
    assert first == f"{place}: a table of 3 × 2 float32: 6 parameters"
    assert line.startswith("special       " + ("[PAD]  id 0" if answer["special"] else "no token is marked"))


def _saved(table: ts.Table, path: Path) -> str:
    ts.save(table, path)
    return str(path)


def test_a_table_with_two_matrices_and_n_grams(tmp_path):
    rows = np.ones((3, 2), np.float32)
    table = ts.Table(
        rows, ts.Vocab(["a", "b", "c"]), output=rows, subwords=Subwords(np.ones((10, 2), np.float32), 3, 4)
    )
    place = _saved(table, tmp_path / "t.safetensors")
    answer = facts(place)
    assert [answer[key] for key in ("embedding", "head", "subwords", "tied")] == [6, 6, 20, False]
    shown = run(place).splitlines()
    assert (
        "output                          6  a second matrix over the same tokens: contexts, or a head"
        in shown
    )
    assert "subwords                       20  rows of n-grams, which compose words" in shown


def test_a_built_in_table():
    answer = facts("wordnet")
    assert [answer[key] for key in ("vocab", "dim", "dtype")] == [33003, 100, "float16"]
    assert [token["token"] for token in answer["special"]] == ["[PAD]", "[UNK]", "[SEP]"]


def test_of_many_special_tokens_the_first_are_shown(tmp_path):
    tokens = [f"<extra_{i}>" for i in range(40)]
    table = ts.Table(np.ones((40, 2), np.float32), ts.Vocab(tokens, special=range(40)))
    place = _saved(table, tmp_path / "t.safetensors")
    assert len(facts(place)["special"]) == 40
    shown = run(place).splitlines()[2:]
    assert (len(shown), shown[-1].strip()) == (12, "… 29 more; --json lists all")


def test_an_untied_checkpoint(tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert "head                          400   18.9 %  lm_head.weight" in run(str(tmp_path)).splitlines()
    assert "tying         would save 400 parameters: 800 B in fp16, 1.6 kB in fp32" in run(str(tmp_path))


def test_a_models_name_goes_before_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()
    assert run("gpt2").startswith("gpt2: 38,597,376")
    status, message = fails("./gpt2")
    assert (status, "config.json" in message) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["gtp2"],
            "'gtp2' is neither a known model nor a checkpoint's folder or a table; close names: 'gpt2'",
        ),
        (["zzzzzz"], "`tokenspace params` lists all"),
        ([""], "neither a known model"),
        (["no/such/folder"], "neither a known model nor a checkpoint's folder"),
        (["--vocab", "0", "--dim", "8"], "vocab is 0; it must be at least 1"),
        (["--vocab", "8", "--dim", "-1"], "dim is -1; it must be at least 1"),
        (["--vocab", "8", "--dim", "8", "--layers", "0"], "layers is 0"),
        (["--vocab", "8", "--dim", "8", "--layers", "1", "--ffn", "-2"], "ffn is -2"),
        (["--vocab", "9" * 30, "--dim", "8"], "vocab is too large to index (30 digits)"),
        (["--vocab", "9" * 15, "--dim", "9" * 15], "can't be indexed"),
        (["--vocab", "8", "--dim", "8", "--layers", "9" * 18], "can't be indexed"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_one_line_and_status_1(arguments, message, form):
    status, shown = fails(*arguments, *form)
    assert status == 1
    assert shown.startswith("Error: ")
    assert shown.count("\n") == 1
    assert message in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["gpt2", "--vocab", "8", "--dim", "8"],
        ["--vocab", "8"],
        ["--dim", "8"],
        ["gpt2", "--layers", "3"],
        ["--layers", "3"],
        ["gpt2", "--untied"],
        ["--vocab", "8", "--dim", "8", "--ffn", "9"],
        ["--vocab", "eight", "--dim", "8"],
        ["gpt2", "bert-base-uncased"],
    ],
    ids=" ".join,
)
def test_usage_mistakes_are_status_2(arguments):
    status, message = fails(*arguments)
    assert status == 2
    assert "Usage:" in message
