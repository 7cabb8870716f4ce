"""Special tokens that a folder's settings name, held against transformers' AutoTokenizer."""

import json
import shutil

import pytest
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers, trainers

from tokenspace.errors import CheckpointError
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
