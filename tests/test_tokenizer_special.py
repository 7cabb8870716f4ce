"""Special tokens that a folder's settings name, held against transformers' AutoTokenizer."""

import json
import shutil

import pytest
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from tokenspace.errors import CheckpointError
from tokenspace.models.vocabulary import fitted, vocabulary
from tokenspace.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")

TEXTS = [
    "The cat sat on the mat.",
    " leading and trailing ",
    "a<s>b</s> <pad>c <mask> d",
    "<|endoftext|>the end<|endoftext|>",
    "čas naïve <tool>x</tool> <extra>",
    "",
]
OPT = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True} | dict.fromkeys(
    ("bos_token", "eos_token", "unk_token"), "</s>"
)
DECODED = {"content": "<mask>", "lstrip": True, "rstrip": False, "single_word": False, "normalized": False}
OBJECT = {"__type": "AddedToken"} | DECODED


def byte_level(folder, first=(), last=()):
    """A folder with a small vocab.json and merges.txt, ``first`` and ``last`` being other tokens."""
    inner = Inner(models.BPE())
    inner.pre_tokenizer, inner.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    inner.train_from_iterator(["the cat sat on the mat", "the end and the mask"] * 4, trainer)
    model = json.loads(inner.to_str())["model"]
    tokens = [*first, *sorted(model["vocab"], key=model["vocab"].get), *last]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, model["merges"])) + "\n")
    return folder


def write(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def compared(folder):
    """Ids of several texts and a pair, ours and AutoTokenizer's."""
    ours, theirs = Tokenizer.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    assert [ours.encode(text).ids.tolist() for text in TEXTS] == theirs(TEXTS)["input_ids"]
    pair = theirs("the cat", "the mat")
    encoded = ours.encode("the cat", "the mat")
    assert (encoded.ids.tolist(), encoded.segments.tolist()) == (
        pair["input_ids"],
        pair.get("token_type_ids", encoded.segments.tolist()),
    )
    return ours, theirs


@pytest.mark.parametrize(
    "files",
    [
        {
            "config": {"model_type": "opt"},
            "tokenizer_config": OPT | {"pad_token": "<pad>"},
        },
        {"config": {"model_type": "opt"}, "tokenizer_config": OPT | {"add_eos_token": True}},
        {"tokenizer_config": OPT | {"add_bos_token": False}},
        {"tokenizer_config": OPT | {"bos_token": {**OBJECT, "content": "<s>"}, "cls_token": "<s>"}},
        {"tokenizer_config": OPT | {"mask_token": OBJECT, "sep_token": "</s>"}},
        {
            "tokenizer_config": OPT
            | {"additional_special_tokens": ["<tool>", "</tool>"], "add_prefix_space": True}
        },
        {"tokenizer_config": OPT | {"extra_special_tokens": ["<tool>"], "pad_token": "[PAD]"}},
        {"tokenizer_config": OPT, "special_tokens_map": {"bos_token": "<s>", "pad_token": "<pad>"}},
        {
            "tokenizer_config": OPT | {"additional_special_tokens": ["<tool>"]},
            "added_tokens": {"<tool>": 303, "čas": 304},
        },
        {
            "tokenizer_config": OPT
            | {"added_tokens_decoder": {"303": {**DECODED, "content": "<tool>", "special": True}}},
            "special_tokens_map": {"bos_token": "<s>"},
        },
        {"config": {"model_type": "gpt2"}},
        {"config": {"model_type": "gpt2"}, "tokenizer_config": {"pad_token": "[PAD]"}},
        {"tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "eos_token": None}},
        {"tokenizer_config": {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<bos>"}},
        {"tokenizer_config": OPT | {"image_token": "<image>", "additional_special_tokens": ["<tool>"]}},
    ],
)
def test_byte_level_special_tokens_are_autotokenizers(files, tmp_path):
    first, last = ["<s>", "<pad>", "</s>"], [] if "</s>" in str(files) else ["<|endoftext|>"]
    folder = write(byte_level(tmp_path / "x", first, last), **files)
    size = len(json.loads((folder / "vocab.json").read_text()))
    if "added_tokens" in files:  # they go on where the vocabulary ends
        write(folder, added_tokens={token: size + n for n, token in enumerate(files["added_tokens"])})
    if "added_tokens_decoder" in files.get("tokenizer_config", {}):
        config = files["tokenizer_config"]
        decoder = {str(size): next(iter(config["added_tokens_decoder"].values()))}
        write(folder, tokenizer_config=config | {"added_tokens_decoder": decoder})
    ours, theirs = compared(folder)
    named = {token for token in theirs.all_special_tokens if ours.inner.token_to_id(token) is not None}
    assert {ours.vocab[i] for i in ours.vocab.special} >= named


BERT = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "mat", "café", "cafe", "##s", "猫"),
    *("<unk>", "<s>", "</s>", "<pad>", "The", "."),
]


@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"do_lower_case": False},
        {"strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"tokenize_chinese_chars": False},
        {"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
        {"additional_special_tokens": ["<tool>", "</tool>"]},
    ],
    ids=lambda config: ",".join(config) or "default",
)
def test_wordpiece_settings_are_autotokenizers(kind, config, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    write(
        tmp_path, config={"model_type": kind}, tokenizer_config={"tokenizer_class": "BertTokenizer"} | config
    )
    ours, theirs = compared(tmp_path)
    for text in ("The CAFÉ cats 猫猫 sat.", "<tool>the</tool> [MASK]"):
        assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]


@pytest.mark.parametrize(
    "config", [{}, {"bos_token": "<bos>"}, {"pad_token": "<pad>"}, {"add_bos_token": True}]
)
def test_gpt2_adds_the_end_of_text_that_a_vocabulary_lacks(config, tmp_path):
    compared(write(byte_level(tmp_path), tokenizer_config={"tokenizer_class": "GPT2Tokenizer"} | config))


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_a_models_type_tells_gpt2_from_roberta(kind, tmp_path):
    folder = byte_level(tmp_path, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    compared(write(folder, config={"model_type": kind}))


@pytest.mark.parametrize("lacking", [["[CLS]", "[SEP]"], ["[MASK]"], ["[PAD]"], []], ids=str)
@pytest.mark.parametrize(
    "config", [{}, {"cls_token": "<s>", "sep_token": "</s>"}, {"cls_token": "<begin>", "sep_token": "<end>"}]
)
def test_bert_adds_the_special_tokens_that_a_vocabulary_lacks(lacking, config, tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in BERT if token not in lacking))
    write(tmp_path, tokenizer_config={"tokenizer_class": "BertTokenizer"} | config)
    ours, theirs = compared(tmp_path)
    text = "the [MASK] cat [SEP] <s> [CLS] sat"
    assert ours.encode(text).ids.tolist() == theirs(text)["input_ids"]


def described(folder, post=False):
    """A folder with a byte-level ``tokenizer.json``; ``post`` puts <s> before a text."""
    byte_level(folder, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    inner = Inner(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<s>", "</s>"])
    if post:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", inner.token_to_id("<s>"))]
        )
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    inner.save(str(folder / "tokenizer.json"))
    return folder


CLASSES = [
    *("PreTrainedTokenizerFast", "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2TokenizerFast", "BartTokenizer"),
    *("RobertaTokenizer", "LongformerTokenizer", "LlamaTokenizer"),
]


@pytest.mark.parametrize("post", [False, True], ids=["plain", "framed"])
@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"additional_special_tokens": ["<tool>"], "mask_token": "<mask>"}},
        {"tokenizer_config": {"bos_token": "<begin>", "add_bos_token": True, "image_token": "<image>"}},
        {"special_tokens_map": {"additional_special_tokens": ["<tool>"], "bos_token": "<begin>"}},
        {"config": {"model_type": "gpt2"}},
        {"config": {"model_type": "mistral"}, "tokenizer_config": {"tokenizer_class": "GPT2Tokenizer"}},
        {"config": {"model_type": "llama"}, "tokenizer_config": {"tokenizer_class": "LlamaTokenizerFast"}},
        *({"tokenizer_config": {"tokenizer_class": name, "pad_token": "<none>"}} for name in CLASSES),
    ],
    ids=lambda files: json.dumps(files)[:90],
)
def test_settings_beside_tokenizer_json_are_autotokenizers(files, post, tmp_path):
    ours, _ = compared(write(described(tmp_path, post), **files))
    alone = Tokenizer.load(tmp_path / "tokenizer.json")  # a named file is read alone
    assert alone.to_json() == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    assert len(ours.vocab) >= len(alone.vocab)


@pytest.mark.parametrize("name", ["BertTokenizer", "ElectraTokenizerFast", "PreTrainedTokenizerFast", None])
def test_a_consistent_tokenizer_json_is_read_byte_for_byte(name, tmp_path):
    trained = Tokenizer.train_from_iterator(["the cat sat on the mat"], "wordpiece", 100)
    trained.inner.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": name, "cls_token": "[CLS]", "mask_token": "[MASK]"}
    read = Tokenizer.load(write(tmp_path, tokenizer_config=config))
    assert read.to_json() == (tmp_path / "tokenizer.json").read_text(encoding="utf-8")
    assert (read.assumed, read.unnamed) == (None, frozenset())


def test_split_special_tokens_beside_tokenizer_json_is_refused(tmp_path):
    write(described(tmp_path), tokenizer_config={"split_special_tokens": True})
    with pytest.raises(CheckpointError, match="sets split_special_tokens"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("where", ["tokenizer_config", "special_tokens_map"])
@pytest.mark.parametrize("settings", [{"additional_special_tokens": ["<image>"]}, {"bos_token": "<image>"}])
def test_rows_are_named_by_the_tokenizer_s_own_ids(settings, where, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(BERT) + "\n")
    write(tmp_path, config={"model_type": "bert"}, **{where: settings})
    vocab, tokenizer = vocabulary(tmp_path)
    assert list(vocab) == [*BERT, "<image>"] == list(tokenizer.vocab)
    assert vocab.id("<image>") in vocab.special
    assert len(fitted(vocab, len(BERT) + 1, tmp_path, None, tokenizer)) == len(BERT) + 1
    with pytest.raises(CheckpointError, match=r"no row in the table of 19.*'<image>'"):
        fitted(vocab, len(BERT), tmp_path, None, tokenizer)


def test_tokens_that_no_file_names_need_no_row(tmp_path):
    write(byte_level(tmp_path), tokenizer_config={"tokenizer_class": "GPT2Tokenizer"})
    vocab, tokenizer = vocabulary(tmp_path)
    assert tokenizer.unnamed == {"<|endoftext|>"}
    rows = len(vocab) - 1
    assert "<|endoftext|>" not in fitted(vocab, rows, tmp_path, None, tokenizer)
    assert fitted(vocab, rows + 1, tmp_path, None, tokenizer)[rows] == "<|endoftext|>"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config": {"model_type": "roberta"}}, r"config\.json is of a model of type 'roberta'; merges"),
        ({"config": {"model_type": "bart"}}, r"of type 'bart'"),
        ({"config": {"model_type": "clip"}}, r"of type 'clip'"),
        ({"config": {"tokenizer_class": "BartTokenizer"}}, r"config\.json names BartTokenizer"),
        ({"tokenizer_config": {"tokenizer_class": "RobertaTokenizerFast"}}, r"names RobertaTokenizerFast"),
        ({"tokenizer_config": {"tokenizer_class": "CLIPTokenizer"}}, r"names CLIPTokenizer"),
        ({"tokenizer_config": OPT | {"split_special_tokens": True}}, r"sets split_special_tokens"),
        ({"tokenizer_config": OPT | {"add_bos_token": "yes"}}, r"add_bos_token .* found 'yes'"),
    ],
)
def test_other_families_and_settings_are_refused_by_name(files, message, tmp_path):
    folder = write(byte_level(tmp_path / "x", ["<s>", "<pad>", "</s>"]), **files)
    with pytest.raises(CheckpointError, match=message):
        Tokenizer.load(folder)
    shutil.rmtree(folder)
