"""A tokenizer that would grow without end is refused before the library builds it; sound ones are not."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenspace as ts
from tokenspace.errors import CheckpointError, TableFormatError

A = {"id": 1, "content": "a", "single_word": False, "lstrip": False, "rstrip": False, "special": False}
SEQUENCE_A = {"Sequence": {"id": "A", "type_id": 0}}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def doubled(letter="a"):
    return replace({"String": letter}, letter * 2)


def sequence(steps, within="normalizers"):
    return {"type": "Sequence", within: steps}


def template(single, special=None, pair=()):
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": list(pair),
        "special_tokens": special or {},
    }


def described(normalizer=None, post=None, added=(), model=None):
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added),
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": post,
        "decoder": None,
        "model": model or {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"},
    }


GROWING = {
    "forty doublings, an added token": described(
        sequence([doubled()] * 40), added=[A | {"normalized": True}]
    ),
    "forty doublings, a text": described(sequence([doubled()] * 40)),
    "in sequences of sequences": described(sequence([sequence([doubled()] * 4)] * 10)),
    "from letter to letter": described(
        sequence([replace({"String": chr(97 + i)}, chr(98 + i) * 2) for i in range(25)])
    ),
    "of an added token alone": described(
        sequence([replace({"String": "b"}, "cc"), *[doubled("c")] * 40]),
        added=[A | {"content": "b", "normalized": True}],
    ),
    "empty matches": described(sequence([replace({"Regex": "(?=a)"}, "a")] * 40)),
    "bytes of bytes": described(sequence([{"type": "ByteLevel"}] * 40)),
    "prepended": described(sequence([{"type": "Prepend", "prepend": "x" * 100}] * 200)),
    "one long content": described(replace({"Regex": ""}, "x" * 100_000)),
    "many steps": described(sequence([{"type": "NFC"}] * 1000)),
    "repeated texts": described(post=sequence([template([SEQUENCE_A] * 2)] * 40, "processors")),
    "special tokens": described(
        post=template(
            [SEQUENCE_A] + [{"SpecialToken": {"id": "a", "type_id": 0}}] * 1000,
            {"a": {"id": "a", "ids": [1] * 1000, "tokens": ["a"] * 1000}},
        )
    ),
    "a long piece": described(
        model={"type": "Unigram", "unk_id": 0, "vocab": [["u", 0.0], ["x" * 10**6, 0.0]]}
    ),
    "a long added token": described(added=[A | {"content": "x" * 10**6, "normalized": False}]),
    "many values": described(post=[{"a": 1}] * 200_000),
    "many values of a model": described(model={"type": "BPE", "vocab": {}, "merges": [], "x": [[]] * 99_999}),
    "a model that is a list": described(model=[{"a": 1}] * 200_000),
    "a list": "[" + '{"a":1},' * 200_000 + "1]",
    "lists for tokens": described(model={"type": "Unigram", "unk_id": 0, "vocab": [[["u"], 0.0]] * 99_999}),
    "objects for merges": described(model={"type": "BPE", "vocab": {"a": 0}, "merges": [{"a": {}}] * 9_999}),
    "deep": "[" * 900_000,
    "long": '{"normalizer": [' + "[]," * 3_000_000 + "1]}",
}


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("where", ["file", "folder", "table"])
def test_what_grows_is_refused_in_one_sentence(name, where, tmp_path):
    text = GROWING[name] if isinstance(GROWING[name], str) else json.dumps(GROWING[name])
    (tmp_path / "tokenizer.json").write_text(text)
    load = {
        "table": lambda: ts.Tokenizer.from_json(text).encode("a"),
        "file": lambda: ts.Tokenizer.load(tmp_path / "tokenizer.json"),
        "folder": lambda: ts.Tokenizer.load(tmp_path),
    }[where]
    with pytest.raises((TableFormatError, CheckpointError)) as caught:
        load()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def sound():
    """Tokenizers with each step that may grow a little, as published ones have them."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "▁a": 2}, "[UNK]"))
    words.normalizer = normalizers.Sequence(
        [
            normalizers.Prepend("▁"),
            normalizers.Replace(" ", "▁"),
            normalizers.NFKC(),
            normalizers.Replace(Regex(r"\s+"), " "),
            normalizers.Replace("``", '"'),
            normalizers.BertNormalizer(),
        ]
    )
    words.add_tokens([f"word{i}" for i in range(500)])
    words.post_processor = processors.TemplateProcessing("a $A a", "a $A a $B:1 a:1", [("a", 1)])
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=60, unk_token="<unk>", special_tokens=["<unk>"])
    unigram.train_from_iterator(["the cat sat on the mat"] * 30, trainer)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    bpe.train_from_iterator(["the cat sat on the mat"] * 30, trainers.BpeTrainer(vocab_size=300))
    return [words, unigram, bpe]


@pytest.mark.parametrize("inner", sound(), ids=["words", "unigram", "bpe"])
def test_sound_tokenizers_give_the_library_s_ids(inner):
    text = "the cat, a word7  sat"
    assert ts.Tokenizer.from_json(inner.to_str()).encode(text).ids.tolist() == inner.encode(text).ids


@pytest.mark.parametrize("settings", ["5", "[]", "null", '"text"'])
def test_settings_that_are_no_object_are_refused(settings, tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("a b\n")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "tokenizer_config.json").write_text(settings)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is a JSON \w+; an object is needed"):
        ts.Tokenizer.load(tmp_path)


def test_a_model_without_a_type_has_its_tokens():
    model = {"vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
    assert list(ts.Tokenizer.from_json(json.dumps(described(model=model))).vocab) == ["[UNK]", "a"]
