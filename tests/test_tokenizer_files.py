import json

import numpy as np
import pytest
import transformers
from safetensors.numpy import save_file
from tokenizers.models import BPE

from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.models.open import load_table
from tokenspace.tokenizer import Tokenizer

SAMPLES = [
    "The cat sat on the mat.",
    "UNBELIEVABLE cats, don't  you think?\tYes!\n",
    "naïve Café 猫は好き 😀 1,234.5",
    "the [MASK] sat<|endoftext|>the end",
    "",
    "   ",
    "x" * 150,
]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A folder with a small vocab.txt alone."""
    folder = tmp_path_factory.mktemp("bert")
    trained = Tokenizer.train_from_iterator(SAMPLES * 3, kind="wordpiece", vocab_size=150)
    tokens = [*trained.vocab, "Café", "cafe", "The", "##é"]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(tokens)) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A folder with a small vocab.json and merges.txt, as GPT-2's."""
    folder = tmp_path_factory.mktemp("gpt2")
    trained = Tokenizer.train_from_iterator(SAMPLES * 3, kind="bpe", vocab_size=330, lowercase=False)
    model = json.loads(trained.to_json())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"] | {"<|endoftext|>": len(model["vocab"])}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])) + "\n")
    return folder


def vocabulary(folder) -> dict[str, int]:
    lines = (folder / "vocab.txt").read_text("utf-8").split("\n")[:-1]
    return {token: i for i, token in enumerate(lines)}


CONFIGS = [
    {},
    {"do_lower_case": True},
    {"do_lower_case": False},
    {"do_lower_case": False, "strip_accents": True},
    {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False},
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_vocab_txt_splits_as_bert_does(config, bert, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((bert / "vocab.txt").read_bytes())
    if config:
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps(config | {"tokenizer_class": "BertTokenizer"})
        )
    theirs = transformers.BertTokenizer(vocab=vocabulary(bert), **config)
    for ours in (Tokenizer.load(tmp_path), Tokenizer.load(tmp_path / "vocab.txt")):
        for text in SAMPLES:
            assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]
            pair = theirs(text, "the cat")
            assert ours.encode(text, "the cat").ids.tolist() == pair["input_ids"]
            assert ours.encode(text, "the cat").segments.tolist() == pair["token_type_ids"]
        assert len(ours.vocab) == len(theirs)
        assert [ours.vocab[i] for i in ours.vocab.special] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def test_a_real_bert_vocabulary(minilm_folder, minilm, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(minilm.vocab), encoding="utf-8")
    ours = Tokenizer.load(tmp_path)
    assert ours.vocab == minilm.vocab
    for text in SAMPLES:
        assert ours.encode(text).ids.tolist() == minilm.tokenizer.encode(text).ids.tolist()


def test_what_is_assumed_is_said(bert, tmp_path):
    assert Tokenizer.load(bert).assumed == "text is lower-cased, BERT's default: no file says whether"
    (tmp_path / "vocab.txt").write_bytes((bert / "vocab.txt").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert Tokenizer.load(tmp_path).assumed is None


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True}], ids=str)
def test_byte_level_files_split_as_gpt2_does(config, gpt2, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((gpt2 / name).read_bytes())
    if config:
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps(config | {"tokenizer_class": "GPT2TokenizerFast"})
        )
    vocab, merges = BPE.read_file(str(gpt2 / "vocab.json"), str(gpt2 / "merges.txt"))
    theirs = transformers.GPT2Tokenizer(vocab=vocab, merges=merges, **config)
    for path in (tmp_path, tmp_path / "vocab.json", tmp_path / "merges.txt"):
        ours = Tokenizer.load(path)
        assert (ours.kind, ours.vocab.encoding) == ("bpe", "byte-level")
        for text in SAMPLES:
            assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]
            assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs(text)["input_ids"]).replace(
                "<|endoftext|>", ""
            )
        assert [ours.vocab[i] for i in ours.vocab.special] == ["<|endoftext|>"]


def test_a_loaded_tokenizer_travels_as_tokenizer_json(bert, gpt2):
    for folder in (bert, gpt2):
        ours = Tokenizer.load(folder)
        again = Tokenizer.from_json(ours.to_json())
        assert again.vocab == ours.vocab
        assert [again.encode(text).tokens for text in SAMPLES] == [
            ours.encode(text).tokens for text in SAMPLES
        ]


def test_a_folder_s_own_tokenizer_json_comes_first(bert, gpt2, tmp_path):
    for folder in (bert, gpt2):
        for file in folder.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    assert Tokenizer.load(tmp_path).kind == "bpe"
    words = Tokenizer.train_from_iterator(["a b"])
    (tmp_path / "tokenizer.json").write_text(words.to_json())
    assert Tokenizer.load(tmp_path).kind == "word"


def test_a_checkpoint_s_table_gets_the_tokenizer(bert, gpt2, tmp_path):
    for folder, names, tensor in (
        (bert, ["vocab.txt"], "embeddings.word_embeddings.weight"),
        (gpt2, ["vocab.json", "merges.txt"], "wte.weight"),
    ):
        rows = len(Tokenizer.load(folder).vocab)
        model = tmp_path / tensor
        model.mkdir()
        for name in names:
            (model / name).write_bytes((folder / name).read_bytes())
        (model / "config.json").write_text(json.dumps({"vocab_size": rows}))
        save_file({tensor: np.ones((rows, 4), np.float32)}, model / "model.safetensors")
        table = load_table(model)
        assert table.vocab == Tokenizer.load(folder).vocab
        assert table.tokenizer.encode("the cat").tokens == Tokenizer.load(folder).encode("the cat").tokens


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        (
            {},
            ".",
            r"no tokenizer at .*: it has neither tokenizer.json nor vocab.json with merges.txt nor vocab",
        ),
        ({}, "vocab.txt", r"no tokenizer at .*vocab\.txt; name a tokenizer.json, vocab.txt"),
        ({"vocab.txt": "a\nb\n"}, ".", r"vocab\.txt has no line \[UNK\]"),
        ({"vocab.txt": b"a\n\xff"}, ".", r"vocab\.txt is not UTF-8 at byte 2"),
        (
            {"vocab.txt": "[UNK]\n", "tokenizer_config.json": '{"tokenizer_class": "BertJapaneseTokenizer"}'},
            ".",
            r"names BertJapaneseTokenizer; vocab.txt is read in BERT's way alone: save the tokenizer as",
        ),
        (
            {"vocab.txt": "[UNK]\n", "tokenizer_config.json": '{"do_lower_case": "no"}'},
            ".",
            "do_lower_case in tokenizer_config.json must be true, false or null, found 'no'",
        ),
        ({"vocab.txt": "[UNK]\n", "tokenizer_config.json": "["}, ".", r"tokenizer_config\.json is not JSON"),
        ({"vocab.json": "{}"}, "vocab.json", r"no tokenizer at .*merges\.txt"),
        ({"merges.txt": "a b\n"}, ".", r"no tokenizer at .*vocab\.json"),
        ({"vocab.json": "[]", "merges.txt": ""}, ".", r"vocab\.json is a JSON list; an object is needed"),
        ({"vocab.json": '{"a": "b"}', "merges.txt": ""}, ".", "must give each token an id of its own"),
        ({"vocab.json": '{"a": 0, "b": 0}', "merges.txt": ""}, ".", "must give each token an id of its own"),
        (
            {"vocab.json": '{"a": 0, "b": 1, "ab": 2}', "merges.txt": "#version: 0.2\na b\na b c\n"},
            ".",
            r"merges\.txt, line 3: 'a b c' is no pair of tokens",
        ),
        ({"vocab.json": '{"a": 0}', "merges.txt": "a b\n"}, ".", r"merges\.txt, line 1: 'b' is not in vocab"),
        (
            {"vocab.json": '{"a": 0, "b": 1}', "merges.txt": "#version: 0.2\na b\n"},
            ".",
            r"merges\.txt, line 2: 'ab' is not in vocab\.json",
        ),
        ({"vocab.json": '{"a</w>": 0}', "merges.txt": ""}, ".", "marks the ends of words by </w>"),
        (
            {"vocab.json": '{"<s>": 0, "</s>": 1, "<mask>": 2}', "merges.txt": ""},
            ".",
            "has RoBERTa's special tokens; save the tokenizer as tokenizer.json",
        ),
    ],
)
def test_files_that_do_not_do(files, path, message, write, tmp_path):
    for name, content in files.items():
        write(name, content)
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(tmp_path / path)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("vocab", "prefix", "merge", "message"),
    [
        (("a", "b"), None, ("a", "b"), r"merge 1 \('a' and 'b'\): their product 'ab' is not in its voc"),
        (("a", "b", "ab"), "####", ("a", "b"), r"merge 1: 'b' is shorter than its prefix '####'"),
        (("a", "b", "ab", "aé"), "é", ("a", "b"), r"merge 1: 'b' is shorter than its prefix 'é'"),
        (("a", "éé", "a\ufffdé"), "#", ("a", "éé"), r"merge 1 .* their product"),  # half a character: aborts
        (("a", "ab"), None, ("a", "b"), r"is no tokenizer\.json"),
    ],
)
def test_a_merge_without_a_product(as_text, vocab, prefix, merge, message, write, capfd):
    ids = {token: i for i, token in enumerate(vocab)}
    merges = [" ".join(merge) if as_text else merge]
    model = {"type": "BPE", "continuing_subword_prefix": prefix, "vocab": ids, "merges": merges}
    path = write("tokenizer.json", json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    with pytest.raises(TableFormatError, match=message):
        Tokenizer.load(path)
    assert capfd.readouterr().err == ""  # nor does the library panic on the terminal


def test_merges_with_a_prefix_are_read(write):
    ids = {"a": 0, "##b": 1, "ab": 2}
    model = {"type": "BPE", "continuing_subword_prefix": "##", "vocab": ids, "merges": ["a ##b"]}
    path = write("tokenizer.json", json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    assert Tokenizer.load(path).encode("ab").tokens == ["ab"]


ADDED = "the <x> sat <Y> on<x>the [MASK] <y>"


def decoder(tokens: dict[str, int], **flags) -> dict[str, object]:
    return {"added_tokens_decoder": {str(i): {"content": token, **flags} for token, i in tokens.items()}}


@pytest.mark.parametrize("kept", ["added_tokens.json", "map", "decoder", "special"])
@pytest.mark.parametrize("layout", ["bert", "gpt2", "json"])
def test_added_tokens_split_as_in_transformers(kept, layout, request, tmp_path):
    source = request.getfixturevalue("gpt2" if layout == "gpt2" else "bert")
    config = {"tokenizer_class": "GPT2Tokenizer" if layout == "gpt2" else "BertTokenizer"}
    size = len(Tokenizer.load(source).vocab)
    if layout == "json":
        (tmp_path / "tokenizer.json").write_text(Tokenizer.load(source).to_json())
    else:
        for file in source.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    tokens = {"<x>": size, "<y>": size + 1}
    if kept in ("decoder", "special"):
        special = kept == "special"
        flags = {"lstrip": special, "rstrip": False, "single_word": False, "normalized": not special}
        config |= decoder(tokens, special=special, **flags)
    else:
        (tmp_path / "added_tokens.json").write_text(json.dumps(tokens))
        if kept == "map":
            (tmp_path / "special_tokens_map.json").write_text(json.dumps({"extra_special_tokens": ["<x>"]}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert ours.encode(ADDED).ids.tolist() == theirs(ADDED)["input_ids"]
    assert set(ours.vocab.special) == {i for i, token in theirs.added_tokens_decoder.items() if token.special}
    assert ours.vocab[size] == "<x>"
    assert ours.vocab[size + 1] == "<y>"
    assert len(ours.vocab) == size + 2


def test_added_tokens_that_are_there_leave_the_file_as_it_is(bert, tmp_path):
    text = " " + Tokenizer.load(bert).to_json()
    (tmp_path / "tokenizer.json").write_text(text)
    entry = {"content": "[PAD]", "special": True, "normalized": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {"0": entry}}))
    assert Tokenizer.load(tmp_path).to_json() == text


def test_a_special_token_in_added_tokens_stays_special(bert, tmp_path):
    plain = Tokenizer.load(bert)
    (tmp_path / "tokenizer.json").write_text(plain.to_json())
    mask = plain.inner.token_to_id("[MASK]")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": mask, "<x>": len(plain.vocab)}))
    assert Tokenizer.load(tmp_path).vocab.special == plain.vocab.special


@pytest.mark.parametrize("layout", ["vocab.txt", "tokenizer.json"])
@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"<x>": 3}, "'<x>' has id 3"),
        ({"<x>": 9_999}, "'<x>' has id 9,999"),
        ({"[PAD]": 1}, "gives it id 0"),
    ],
    ids=["taken", "gap", "moved"],
)
def test_added_ids_that_clash_are_refused(layout, tokens, said, bert, tmp_path):
    text = (
        (bert / "vocab.txt").read_text("utf-8") if layout == "vocab.txt" else Tokenizer.load(bert).to_json()
    )
    (tmp_path / layout).write_text(text, encoding="utf-8")
    (tmp_path / "added_tokens.json").write_text(json.dumps(tokens))
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("added_tokens.json", {"<x>": "20"}),
        ("added_tokens.json", {"<x>": -1}),
        ("added_tokens.json", {"<x>": 20, "<y>": 20}),
        ("tokenizer_config.json", {"added_tokens_decoder": ["<x>"]}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"20": "<x>"}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "<x>"}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"20": {"content": ""}}}),
        ("tokenizer_config.json", {"added_tokens_decoder": {"20": {"content": "<x>", "special": "yes"}}}),
    ],
    ids=str,
)
def test_added_tokens_that_are_no_tokens(file, content, bert, tmp_path):
    (tmp_path / "vocab.txt").write_bytes((bert / "vocab.txt").read_bytes())
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=file):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", ["byte-level", "added"])
def test_an_id_far_beyond_the_tokens_is_damage_and_is_not_walked_to(kind, tmp_path):
    """The library would write a list of two thousand million ids."""
    if kind == "byte-level":
        (tmp_path / "vocab.json").write_text('{"t": 0, "h": 2147483647, "th": 1}')
        (tmp_path / "merges.txt").write_text("#version: 0.2\nt h\n")
    else:
        description = json.loads(Tokenizer.train_from_iterator(["the cat"]).to_json())
        description["model"]["vocab"]["zebra"] = 2147483647
        (tmp_path / "tokenizer.json").write_text(json.dumps(description))
        (tmp_path / "added_tokens.json").write_text('{"more": 2147483648}')
    with pytest.raises(TableFormatError, match=r"gives id 2,147,483,647 to '(h|zebra)', far beyond its"):
        Tokenizer.load(tmp_path)
