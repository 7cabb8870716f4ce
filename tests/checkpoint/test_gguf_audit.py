"""``inspect`` of GGUF files: roles, tying, shares, findings."""

import json

import gguf as library
import numpy as np
import pytest
from click.testing import CliRunner

from tokenspace.cli import main

V, D = 6, 32
RNG = np.random.default_rng(0)
TABLE, HEAD = (RNG.normal(size=(V, D)).astype(np.float32) for _ in range(2))


def written(folder, tensors, tokens=V, split=0, kind=None, add=lambda writer: None, types=None):
    writer = library.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=split)
    writer.add_tokenizer_model("llama")
    if tokens:
        writer.add_token_list([f"w{i}" for i in range(tokens)])
    if types:
        writer.add_token_types(types)
    add(writer)
    for name, matrix in tensors.items():
        packed = matrix if kind is None else library.quants.quantize(matrix, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("*.gguf"))[-1]


def inspected(path):
    result = CliRunner().invoke(main, ["inspect", str(path), "--json"])
    answer = json.loads(result.stdout)
    errors = [each for each in answer["findings"] if each["severity"] == "error"]
    assert result.exit_code == bool(errors)
    text = CliRunner().invoke(main, ["inspect", str(path)])
    assert (text.exit_code, text.stderr) == (result.exit_code, "")
    return answer, text.stdout


def codes(answer):
    return [(each["severity"], each["code"]) for each in answer["findings"]]


@pytest.mark.parametrize("split", [0, 1], ids=["one file", "several"])
@pytest.mark.parametrize("kind", [None, library.GGMLQuantizationType.Q8_0], ids=["float", "quantized"])
def test_a_sound_model(tmp_path, split, kind):
    tensors = {"token_embd.weight": TABLE, "blk.0.ffn_up.weight": TABLE[:4], "output.weight": HEAD}
    path = written(tmp_path, tensors, split=split, kind=kind)
    answer, text = inspected(path)
    assert list(answer) == [
        "family",
        "tensors",
        "tied",
        "parameters",
        "findings",
        "tying",
        "rows",
        "largest_id",
        "special",
    ]
    assert (answer["family"], answer["tied"], answer["findings"]) == ("llama", False, [])
    assert [(each["name"], each["role"], each["shape"]) for each in answer["tensors"]] == [
        ("token_embd.weight", "input", [V, D]),
        ("output.weight", "head", [V, D]),
    ]
    assert len({each["shard"] for each in answer["tensors"]}) == 1 + split
    assert answer["parameters"] == {"embedding": V * D, "total": 16 * D, "fraction": 6 / 16}
    assert (answer["rows"], answer["largest_id"]) == (V, V - 1)
    assert "head      untied: output.weight is stored, not equal to the table" in text
    assert text.endswith("nothing to remark\n")


def test_a_tied_model(tmp_path):
    answer, text = inspected(written(tmp_path, {"token_embd.weight": TABLE}))
    assert (answer["tied"], answer["tying"]) == (True, {"flag": None, "stored": None, "equal": None})
    assert "head      tied: no head is stored" in text
    answer, _ = inspected(written(tmp_path, {"token_embd.weight": TABLE, "output.weight": TABLE}))
    assert (answer["tied"], answer["tying"]["equal"], codes(answer)) == (True, True, [("info", "head-copy")])
    assert answer["parameters"]["total"] == V * D


def test_special_tokens_are_listed_with_their_roles(tmp_path):
    def add(writer):
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_sep_token_id(2)
        writer.add_pad_token_id(9)  # without a token: a finding, no line
        writer.add_array("tokenizer.ggml.eog_token_ids", [2, 5])

    path = written(tmp_path, {"token_embd.weight": TABLE}, add=add, types=[2, 3, 3, 1, 4, 1])
    answer, text = inspected(path)
    assert answer["special"] == [
        {"token": "w0", "id": 0, "roles": []},
        {"token": "w1", "id": 1, "roles": ["begin"]},
        {"token": "w2", "id": 2, "roles": ["end", "separator", "end of generation"]},
        {"token": "w5", "id": 5, "roles": ["end of generation"]},
    ]
    assert "special   w0  id 0\n" in text
    assert "          w2  id 2  end, separator, end of generation\n" in text


SPECIAL = ["bos", "eos", "unk", "sep", "pad", "mask", "eot", "eom", "prefix", "suffix", "middle"]


@pytest.mark.parametrize("key", SPECIAL)
def test_an_id_without_a_row_is_an_error(tmp_path, key):
    def add(writer):
        if hasattr(writer, f"add_{key}_token_id"):
            getattr(writer, f"add_{key}_token_id")(V)
        else:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", V)

    answer, text = inspected(written(tmp_path, {"token_embd.weight": TABLE}, add=add))
    (finding,) = answer["findings"]
    assert (finding["severity"], "is 6, which has no row (valid: 0 to 5)" in finding["message"]) == (
        "error",
        True,
    )
    assert "error     tokenizer.ggml." in text


FAULTS = {
    "more tokens than rows": ({"tokens": V + 2}, [("error", "ids-past-rows")]),
    "fewer tokens": ({"tokens": V - 2}, [("info", "spare-rows")]),
    "no tokens": ({"tokens": 0}, [("info", "tokenizer-unknown")]),
    "types": ({"types": [1, 1]}, [("warning", "token-types")]),
    "vocab_size": ({"add": lambda writer: writer.add_vocab_size(V + 1)}, [("warning", "vocab-size")]),
    "width": ({"add": lambda writer: writer.add_embedding_length(D + 1)}, [("warning", "width")]),
    "id in words": (
        {"add": lambda writer: writer.add_string("tokenizer.ggml.eos_token_id", "</s>")},
        [("error", "id-not-whole")],
    ),
    "negative id": (
        {"add": lambda writer: writer.add_int32("tokenizer.ggml.padding_token_id", -1)},
        [("error", "padding-past-rows")],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_a_finding(tmp_path, changes, expected):
    answer, _ = inspected(written(tmp_path, {"token_embd.weight": TABLE}, **changes))
    assert codes(answer) == expected


def test_a_head_of_other_rows_and_a_tensor_of_unknown_role(tmp_path):
    tensors = {"token_embd.weight": TABLE, "output.weight": HEAD[:4], "adapter.weight": TABLE}
    answer, _ = inspected(written(tmp_path, tensors))
    assert codes(answer) == [("warning", "head-rows"), ("warning", "role-unknown")]
    assert answer["tied"] is False


def test_a_model_without_a_table(tmp_path):
    answer, text = inspected(written(tmp_path, {"output.weight": HEAD}))
    assert codes(answer)[0] == ("error", "table-missing")
    assert (answer["rows"], answer["parameters"]["total"]) == (None, None)
    assert "input " not in text.split("\n\n")[1]


def test_a_missing_part_is_one_line(tmp_path):
    written(tmp_path, {"token_embd.weight": TABLE, "output.weight": HEAD}, split=1)
    first, second = sorted(tmp_path.glob("*.gguf"))
    second.unlink()
    result = CliRunner().invoke(main, ["inspect", str(first)])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"{second.name} is missing" in result.stderr
