"""Files of tensors that are no table of ours: which tensor is the table, and what names its rows."""

import gzip
import json
import os
import zipfile

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer as Inner
from tokenizers.models import WordLevel

from tokenspace.errors import TableFormatError
from tokenspace.models.plain import is_pickle, load_file
from tokenspace.source import Source
from tokenspace.tokenizer import Tokenizer

WORDS = ("[PAD]", "the", "cat", "sat", "dog")
V, D = len(WORDS), 4


@pytest.fixture
def numbers():
    torch.manual_seed(0)
    return lambda *shape: torch.randn(*shape)


@pytest.fixture(params=[".safetensors", ".pt"])
def saved(request, tmp_path):
    """Tensors in a file with the words beside it: ``saved(tensors)`` gives its path."""

    def save(tensors, words=WORDS):
        path = tmp_path / f"x{request.param}"
        save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)
        if words:
            (tmp_path / "x.vocab.txt").write_bytes("".join(f"{word}\n" for word in words).encode())
        return path

    return save


def test_minilm_named_by_its_file(minilm, minilm_folder):
    table = load_file(minilm_folder / "model.safetensors")
    assert isinstance(table.weight, np.memmap)
    np.testing.assert_array_equal(table.weight, minilm.weight)
    assert table.vocab == minilm.vocab
    assert table.tokenizer is not None
    assert table.provenance == {
        "read_from": {
            "file": "model.safetensors",
            "format": "safetensors",
            "tensor": "embeddings.word_embeddings.weight",
        }
    }


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.weight",
        "bert.embeddings.word_embeddings.weight",
        "module.transformer.wte.weight",
        "model.embed_tokens.weight",
        "shared.weight",
        "gpt_neox.embed_in.weight",
    ],
)
def test_a_familys_name_is_found_whatever_stands_before_it(saved, numbers, name):
    weight = numbers(V, D)
    table = load_file(saved({name: weight, "a.dense.weight": numbers(V, D), "b.weight": numbers(D, D)}))
    np.testing.assert_array_equal(table.weight, weight)
    assert list(table.vocab) == list(WORDS)
    assert table.vocab.special == (0,)
    assert table.provenance["read_from"]["tensor"] == name
    assert table.output is None


@pytest.mark.parametrize("name", ["embedding.weight", "embeddings", "weight"])
def test_the_usual_names(saved, numbers, name):
    weight = numbers(V, D)
    table = load_file(saved({"a.other": numbers(V, D), name: weight, "z": numbers(V)}))
    np.testing.assert_array_equal(table.weight, weight)


def test_the_only_matrix(saved, numbers):
    weight = numbers(V, D)
    table = load_file(saved({"rows": weight, "bias": numbers(V), "cube": numbers(2, 2, 2)}))
    np.testing.assert_array_equal(table.weight, weight)


def test_an_untied_head_is_the_output(saved, numbers):
    embed, head = numbers(V, D), numbers(V, D)
    table = load_file(saved({"model.embed_tokens.weight": embed, "lm_head.weight": head}))
    np.testing.assert_array_equal(table.weight, embed)
    np.testing.assert_array_equal(table.output, head)
    assert table.provenance["read_from"]["head"] == "lm_head.weight"


def test_a_head_that_repeats_the_table_is_no_output(saved, numbers):
    embed = numbers(V, D)
    table = load_file(saved({"model.embed_tokens.weight": embed, "lm_head.weight": embed.clone()}))
    np.testing.assert_array_equal(table.weight, embed)
    assert table.output is None


@pytest.mark.parametrize("shape", [(V + 1, D), (V - 1, D), (V, D + 1)], ids=["longer", "shorter", "wider"])
@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "embedding.weight"], ids=["family", "usual"])
@pytest.mark.parametrize("head", ["lm_head.weight", "output.weight", "embed_out.weight"])
def test_a_head_of_another_shape_is_refused(saved, numbers, shape, name, head):
    embed = numbers(V, D)
    path = saved({name: embed, head: numbers(*shape)})
    with pytest.raises(TableFormatError, match=rf"the head '{head}' is \[.*needs the same shape.*tensor="):
        load_file(path)
    table = load_file(path, tensor=name)
    np.testing.assert_array_equal(table.weight, embed)
    assert table.output is None


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("lm_head.weight", "an output head"),
        ("model.lm_head.weight", "an output head"),
        ("output.weight", "an output head"),
        ("embed_out.weight", "an output head"),
        ("cls.predictions.decoder.weight", "an output head"),
        ("proj_out.weight", "an output head"),
        ("output_projection.weight", "an output head"),
        ("decoder.output_projection.weight", "an output head"),
        ("generator.weight", "an output head"),
        ("generator.proj.weight", "an output head"),
        ("lm_head.linear.weight", "an output head"),
        ("lm_head", "an output head"),
        ("embed_out", "an output head"),
        ("head.weight", "an output head"),
        ("output_layer.weight", "an output head"),
        ("transformer.ff_out.weight", "an output head"),
        ("unembed.W_U", "an output head"),
        ("logits.weight", "an output head"),
        ("cls.weight", "an output head"),
        ("fc_out.weight", "an output head"),
        ("mlm_head.weight", "an output head"),
        ("lm_loss.weight", "an output head"),
        ("output_embeddings.weight", "an output head"),
        ("transformer.wpe.weight", "a table of positions"),
        ("encoder.relative_attention_bias.weight", "a table of something else than tokens"),
        ("patch_embeddings.weight", "a table of something else than tokens"),
        ("model.decoder.embed_positions.weight", "a table of positions"),
        ("bert.embeddings.position_embeddings.weight", "a table of positions"),
        ("vit.pos_embed", "a table of positions"),
        ("bert.embeddings.token_type_embeddings.weight", "a table of segments"),
        ("transformer.lang_embeddings.weight", "a table of languages"),
        ("model.layers.0.mlp.up_proj.weight", "a layer's matrix"),
        ("transformer.h.3.attn.c_attn.weight", "a layer's matrix"),
        ("bert.pooler.dense.weight", "a classifier"),
    ],
)
def test_what_is_something_else_by_its_name_is_no_table(saved, numbers, name, role):
    weight = numbers(V, D)
    path = saved({name: weight, "bias": numbers(V)})
    with pytest.raises(TableFormatError, match=rf"'{name}', is {role} by its name.*tensor="):
        load_file(path)
    np.testing.assert_array_equal(load_file(path, tensor=name).weight, weight)


@pytest.mark.parametrize("name", ["foo", "0.weight", "net.fc2.weight", "x.kernel"])
def test_the_only_matrix_needs_a_name_that_says_table(saved, numbers, name, tmp_path):
    weight = numbers(V, D)
    path = saved({name: weight})
    with pytest.raises(TableFormatError, match=rf"'{name}', has a name that need not be a table's.*tensor="):
        load_file(path)
    np.testing.assert_array_equal(load_file(path, tensor=name).weight, weight)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "new", "vocab_size": V}))
    with pytest.raises(TableFormatError, match=rf"'{name}', has a name"):
        load_file(path)


@pytest.mark.parametrize(
    "name",
    [
        "tok_emb.weight",
        "embedding",
        "word_vectors",
        "syn0",
        "encoder.embed.weight",
        "transformer.w.weight",
        "W",
    ],
)
def test_the_only_matrix_whose_name_says_table(saved, numbers, name):
    weight = numbers(V, D)
    np.testing.assert_array_equal(load_file(saved({name: weight})).weight, weight)


@pytest.mark.parametrize("head", ["proj_out.weight", "lm_loss.weight", "generator.proj.weight"])
@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "embedding.weight"])
def test_another_programs_head_is_the_output(saved, numbers, name, head):
    table = load_file(saved({name: numbers(V, D), head: (weight := numbers(V, D))}))
    np.testing.assert_array_equal(table.output, weight)
    assert load_file(saved({name: numbers(V, D), head: numbers(2, D)})).output is None


def test_an_untied_models_head_alone_is_no_table(saved, numbers, tmp_path):
    config = {"model_type": "llama", "vocab_size": V, "tie_word_embeddings": False}
    head = numbers(V, D)
    path = saved({"lm_head.weight": head})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(TableFormatError, match=r"'lm_head.weight', is an output head"):
        load_file(path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    table = load_file(path)
    np.testing.assert_array_equal(table.weight, head)
    assert table.output is None


def test_metadata_names_a_tied_table(tmp_path, numbers):
    weight = numbers(V, D)
    (tmp_path / "x.vocab.txt").write_text("\n".join(WORDS))
    path = tmp_path / "x.safetensors"
    save_file({"lm_head.weight": weight}, path, {"transformer.wte.weight": "lm_head.weight"})
    np.testing.assert_array_equal(load_file(path).weight, weight)


# ── parts of a model ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["index", "names alone", "index and config"])
def parts(request, tmp_path, numbers):
    """A model in two files: the table in the first, an untied head in the second."""
    tensors = {"model.embed_tokens.weight": numbers(V, D), "lm_head.weight": numbers(V, D)}
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for (name, tensor), file in zip(tensors.items(), files, strict=True):
        save_file({name: tensor}, tmp_path / file)
    if request.param != "names alone":
        index = {"weight_map": dict(zip(tensors, files, strict=True))}
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    if request.param == "index and config":
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": V}))
    tokenizer_file(tmp_path / "tokenizer.json")
    return [tmp_path / file for file in files], tensors


@pytest.mark.parametrize("named", [0, 1])
def test_any_part_of_a_model_gives_its_table_and_head(parts, named):
    files, tensors = parts
    table = load_file(files[named])
    np.testing.assert_array_equal(table.weight, tensors["model.embed_tokens.weight"])
    np.testing.assert_array_equal(table.output, tensors["lm_head.weight"])
    assert table.provenance["read_from"]["file"] == files[0].name


@pytest.mark.parametrize("missing", [0, 1])
def test_a_part_that_is_missing_is_named(parts, missing):
    files, tensors = parts
    files[missing].unlink()
    with pytest.raises(TableFormatError, match=files[missing].name):
        load_file(files[1 - missing])
    name = list(tensors)[1 - missing]
    alone = load_file(files[1 - missing], tensor=name)
    np.testing.assert_array_equal(alone.weight, tensors[name])


def test_one_table_under_two_names_is_one(saved, numbers):
    embed = numbers(V, D)
    tensors = {"decoder.embed_tokens.weight": embed, "shared.weight": embed.clone(), "x": numbers(V, D)}
    np.testing.assert_array_equal(load_file(saved(tensors)).weight, embed)


def test_two_candidates_are_listed_and_one_is_named(saved, numbers):
    tensors = {"inlet.weight": numbers(V, D), "outlet.weight": numbers(V, D), "bias": numbers(V)}
    path = saved(tensors)
    with pytest.raises(
        TableFormatError,
        match=r"load\(path, tensor=\.\.\.\) or convert --tensor NAME, from 'inlet.weight' \[5, 4\], 'outlet"
        r".weight' \[5, 4\]$",
    ):
        load_file(path)
    np.testing.assert_array_equal(load_file(path, tensor="outlet.weight").weight, tensors["outlet.weight"])
    with pytest.raises(TableFormatError, match=r"no 'x', where a table is \(V, D\); it has 'inlet.weight'"):
        load_file(path, tensor="x")
    with pytest.raises(TableFormatError, match=r"'bias' has shape \[5\], where a table is \(V, D\)"):
        load_file(path, tensor="bias")


def test_two_tables_of_one_family_are_not_told_apart(saved, numbers):
    tensors = {"a.wte.weight": numbers(V, D), "b.wte.weight": numbers(V, D)}
    with pytest.raises(TableFormatError, match=r"which tensor is the table\?"):
        load_file(saved(tensors))


def test_many_candidates_are_counted(saved, numbers):
    with pytest.raises(TableFormatError, match=r"'t7' \[5, 4\] and 3 more$"):
        load_file(saved({f"t{i if i < 8 else f'z{i}'}": numbers(V, D) for i in range(11)}))


def test_no_candidate(saved, numbers):
    with pytest.raises(TableFormatError, match=r"from no tensor with two axes"):
        load_file(saved({"bias": numbers(V)}))


@pytest.mark.parametrize("content", ['{"model_type": "llama"}', '{"model_type": "new", "vocab_size": 5}'])
def test_the_config_beside_says_which(saved, numbers, tmp_path, content):
    embed = numbers(V, D)
    tensors = {"model.embed_tokens.weight": embed, "decoder.wte.weight": numbers(V + 1, D)}
    (tmp_path / "config.json").write_text(content)
    np.testing.assert_array_equal(load_file(saved(tensors)).weight, embed)


def test_a_config_of_something_else_says_nothing(saved, numbers, tmp_path):
    weight = numbers(V, D)
    path = saved({"weight": weight, "other": numbers(V, D)})
    for content in ("{", '{"batch_size": 3}'):
        (tmp_path / "config.json").write_text(content)
        np.testing.assert_array_equal(load_file(path).weight, weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_float_types_are_kept(saved, numbers, dtype):
    weight = numbers(V, D).to(dtype)
    table = load_file(saved({"weight": weight}))
    assert (
        table.weight.dtype
        == {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[
            str(dtype).removeprefix("torch.")
        ]
    )
    np.testing.assert_array_equal(table.weight.astype(np.float32), weight.float())


def test_float64_is_rounded_and_said(saved, numbers):
    weight = numbers(V, D).double() / 3
    table = load_file(saved({"weight": weight}))
    np.testing.assert_array_equal(table.weight, weight.float())
    about = table.provenance["read_from"]
    assert (about["dtype"], about["rounded_from"], about["rounded_rows"]) == ("float64", "float64", V)
    exact = load_file(saved({"weight": weight.float().double()})).provenance["read_from"]
    assert (exact["rounded_from"], exact.get("rounded_rows")) == ("float64", None)
    weight[1, 2] = 1e300
    with pytest.raises(
        TableFormatError, match=r", tensor 'weight': row 1 holds 1e\+300, too large for float32"
    ):
        load_file(saved({"weight": weight}))
    assert len(load_file(saved({"weight": weight}), limit=1)) == 1
    weight[1, 2] = np.nan
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'the', holds NaN or infinity"):
        load_file(saved({"weight": weight}))


def test_a_head_of_float64_counts_too_and_must_be_finite(saved, numbers):
    tied = {"model.embed_tokens.weight": numbers(V, D).double(), "lm_head.weight": numbers(V, D).double() + 1}
    tied["lm_head.weight"][:] = 0.5
    tied["lm_head.weight"][3, 0] = 0.1
    table = load_file(saved(tied))
    np.testing.assert_array_equal(table.output, tied["lm_head.weight"].float())
    assert table.provenance["read_from"]["rounded_rows"] == 1
    tied["lm_head.weight"][2, 1] = np.inf
    with pytest.raises(TableFormatError, match=r"row 2 of the output table, token .*, holds NaN or infinity"):
        load_file(saved(tied))


def test_whole_numbers_are_no_table(saved):
    with pytest.raises(TableFormatError, match=r"'weight' is I64; a table must be F32, F16, BF16 or F64"):
        load_file(saved({"weight": torch.ones(V, D, dtype=torch.int64)}))


def test_a_tensor_alone_and_one_within_a_dict(tmp_path, numbers):
    weight = numbers(V, D)
    (tmp_path / "x.vocab.txt").write_text("\n".join(WORDS))
    for content in (weight, torch.nn.Parameter(weight), {"state_dict": {"emb.weight": weight}, "epoch": 1}):
        torch.save(content, tmp_path / "x.pt")
        table = load_file(tmp_path / "x.pt")
        np.testing.assert_array_equal(table.weight, weight)
        assert table.provenance["read_from"]["format"] == "torch"


def test_limit_takes_the_first_rows(saved, numbers):
    embed, head = numbers(V, D), numbers(V, D)
    path = saved({"model.embed_tokens.weight": embed, "lm_head.weight": head}, ["a", "b", "c", "d", "[PAD]"])
    table = load_file(path, limit=2)
    np.testing.assert_array_equal(table.weight, embed[:2])
    np.testing.assert_array_equal(table.output, head[:2])
    assert (list(table.vocab), table.vocab.special) == (["a", "b"], ())
    assert len(load_file(path, limit=99)) == V


@pytest.mark.parametrize(
    "name", ["all.zip/model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors.gz"]
)
def test_a_packed_part_is_refused_unless_its_table_is_named(tmp_path, numbers, name):
    weight = numbers(V, D)
    save_file({"model.embed_tokens.weight": weight}, tmp_path / "model-00001-of-00002.safetensors")
    (tmp_path / "words.txt").write_text("\n".join(WORDS))
    content = (tmp_path / "model-00001-of-00002.safetensors").read_bytes()
    (tmp_path / "model-00001-of-00002.safetensors.gz").write_bytes(gzip.compress(content))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "model-00001-of-00002.safetensors", "model-00001-of-00002.safetensors")
    with pytest.raises(TableFormatError, match=r"one of 2 files of a model, and packed: unpack them"):
        load_file(tmp_path / name, vocab=tmp_path / "words.txt")
    table = load_file(tmp_path / name, tensor="model.embed_tokens.weight", vocab=tmp_path / "words.txt")
    np.testing.assert_array_equal(table.weight, weight)


# ── what names the rows ──────────────────────────────────────────────────────────────────────────────────


def tokenizer_file(path, words=WORDS):
    Inner(WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0])).save(str(path))
    return path


def test_without_tokens_it_is_said(saved, numbers):
    with pytest.raises(
        TableFormatError,
        match=r"names no tokens for its 5 rows, .* neither x\.vocab\.txt .*load\(path, vocab",
    ):
        load_file(saved({"weight": numbers(V, D)}, words=None))


def test_the_files_own_list_goes_before_the_folders(saved, numbers, tmp_path):
    tokenizer_file(tmp_path / "tokenizer.json")
    path = saved({"weight": numbers(V, D)}, list("abcde"))
    assert list(load_file(path).vocab) == list("abcde")
    (tmp_path / "x.vocab.txt").unlink()
    table = load_file(path)
    assert (list(table.vocab), table.tokenizer.encode("cat").ids.tolist()) == (list(WORDS), [2])
    part = load_file(path, limit=2)
    assert (list(part.vocab), part.tokenizer, part.provenance["rows_taken"]) == (list(WORDS[:2]), None, 2)


@pytest.mark.parametrize("lines", [4, 6])
def test_a_list_of_another_length(saved, numbers, lines):
    with pytest.raises(TableFormatError, match=rf"x\.vocab\.txt has {lines} lines for a table of 5 rows"):
        load_file(saved({"weight": numbers(V, D)}, ["a"] * lines))


def test_tokens_of_a_list_are_whole_lines(saved, numbers, tmp_path):
    path = saved({"weight": numbers(V, D)})
    (tmp_path / "x.vocab.txt").write_bytes("a b\r\n\n\u2028\n\x85\r\r\nlast".encode())
    assert list(load_file(path).vocab) == ["a b", "", "\u2028", "\x85\r", "last"]
    (tmp_path / "x.vocab.txt").write_bytes(b"a\nb\n\xff\xfe\nd\ne\n")
    with pytest.raises(TableFormatError, match=r"x\.vocab\.txt, line 3 \(byte 4\): its token is not UTF-8"):
        load_file(path)
    assert load_file(path, errors="replace").vocab[2] == "\ufffd\ufffd"
    assert load_file(path, errors="surrogateescape").vocab[2] == "\udcff\udcfe"
    assert list(load_file(path, limit=2).vocab) == ["a", "b"]


def test_named_tokens(saved, numbers, tmp_path):
    weight = numbers(V, D)
    path = saved({"weight": weight}, words=None)
    other = tmp_path / "other"
    other.mkdir()
    tokenizer_file(other / "tok.json")
    (other / "words.txt").write_text("\n".join("abcde"))
    (other / "vocab.txt").write_text("[UNK]\n##s\nthe\n")
    bpe = Tokenizer.train_from_iterator(["ab"], kind="bpe", vocab_size=258)
    assert load_file(path, vocab=other / "tok.json").tokenizer is not None
    assert list(load_file(path, vocab=str(other / "words.txt")).vocab) == list("abcde")
    for named in (other / "vocab.txt", other):
        table = load_file(path, vocab=named)
        assert list(table.vocab) == ["[UNK]", "##s", "the", "[SEP]", "[PAD]"]  # which BERT's tokenizer adds
        assert table.vocab.special == (0, 3, 4)
        assert table.vocab.kind(1) == "continuation"
        assert table.tokenizer is not None
    many = saved({"weight": numbers(258, D)}, words=None)
    described = json.loads(bpe.to_json())["model"]
    (other / "vocab.json").write_text(json.dumps(described["vocab"]))
    (other / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(m) for m in described["merges"]))
    for named in ("vocab.json", "merges.txt"):
        assert len(load_file(many, vocab=other / named).vocab) == 258
    with pytest.raises(TableFormatError, match=r"gone does not exist"):
        load_file(path, vocab=other / "gone")


def test_a_tokenizer_with_more_ids_than_rows(saved, numbers, tmp_path):
    path = saved({"weight": numbers(V - 1, D)}, words=None)
    tokenizer_file(tmp_path / "tokenizer.json")
    with pytest.raises(
        TableFormatError, match=r"1 of the tokenizer's ids have no row in the table of 4; .*'dog'"
    ):
        load_file(path)


# ── where the bytes lie ──────────────────────────────────────────────────────────────────────────────────


def test_gzip(saved, numbers, tmp_path):
    weight = numbers(V, D)
    path = saved({"weight": weight})
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    table = load_file(Source(packed))
    np.testing.assert_array_equal(table.weight, weight)
    assert list(table.vocab) == list(WORDS)


def test_an_archives_member(saved, numbers, tmp_path):
    weight = numbers(V, D)
    path = saved({"weight": weight})
    tokenizer_file(tmp_path / "tokenizer.json", list("abcde"))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(path, f"in/{path.name}")
        archive.write(tmp_path / "tokenizer.json", "in/tokenizer.json")
    table = load_file(tmp_path / "all.zip" / "in" / path.name)
    np.testing.assert_array_equal(table.weight, weight)
    assert list(table.vocab) == list("abcde")


class Exploit:
    def __reduce__(self):
        return os.mkdir, ("pickle-was-run",)


def test_damage_names_the_file(tmp_path, monkeypatch, numbers, saved):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Exploit()}, "evil.pt")
    with pytest.raises(TableFormatError, match=r"weights-only loader can't open evil\.pt"):
        load_file("evil.pt")
    assert not (tmp_path / "pickle-was-run").exists()
    path = saved({"weight": numbers(V, D)})
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TableFormatError, match=r"x\.(pt|safetensors)"):
        load_file(path)
    (tmp_path / "empty.pt").write_bytes(b"")
    with pytest.raises(TableFormatError, match=r"empty\.pt: the file is empty"):
        load_file("empty.pt")
    torch.save({"weight": torch.zeros(0, 4)}, "none.pt")
    with pytest.raises(TableFormatError, match=r"'weight' is \[0, 4\]; it holds no numbers"):
        load_file("none.pt")


def test_what_torch_writes_is_told_by_its_bytes(tmp_path, numbers):
    torch.save({"weight": numbers(V, D)}, tmp_path / "zip.pt")
    torch.save({"weight": numbers(V, D)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("zip.pt", "old.pt"):
        source = Source(tmp_path / name)
        with source.open() as file:
            assert is_pickle(file.read(4), source.members())
    assert not is_pickle(b"PK\x03\x04", ["a.txt", "data.pkl.txt"])
    assert not is_pickle(b"3 2\n", [])


def test_mutated_files_are_read_or_refused(saved, numbers, rng):
    path = saved({"model.embed_tokens.weight": numbers(V, D), "lm_head.weight": numbers(V, D)})
    whole = path.read_bytes()
    read = 0
    for _ in range(60):
        content = bytearray(whole)
        for at in rng.integers(0, len(whole), rng.integers(1, 4)):
            content[at] = rng.integers(256)
        path.write_bytes(content[: rng.choice((len(whole), rng.integers(len(whole))))])
        try:
            load_file(path)
            read += 1
        except TableFormatError:
            pass
    assert 2 < read < 58
