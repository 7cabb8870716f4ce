"""Special tokens and their roles, as transformers knows them from the same files."""

import json

import pytest
import tokenizers
import transformers

from tokenspace.models.vocabulary import vocabulary
from tokenspace.special_tokens import SpecialToken, special_tokens
from tokenspace.vocab import Vocab

ROLES = {
    "bos_token": "begin",
    "eos_token": "end",
    "unk_token": "unknown",
    "sep_token": "separator",
    "pad_token": "padding",
    "cls_token": "classification",
    "mask_token": "mask",
}


def as_transformers_has_them(folder) -> dict[str, tuple[int, set[str]]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    found = {token: (tokenizer.convert_tokens_to_ids(token), set()) for token in tokenizer.all_special_tokens}
    for key, token in tokenizer.special_tokens_map.items():
        if isinstance(token, str):
            found[token][1].add(ROLES.get(key, key.removesuffix("_token")))
    return found


@pytest.fixture
def save(tmp_path):
    """Save a tokenizer of a few words by transformers; gives its folder."""

    def saved(special: list[str], **settings):
        words = [*special, "the", "cat"]
        inner = tokenizers.Tokenizer(
            tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=special[0])
        )
        transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **settings).save_pretrained(tmp_path)
        return tmp_path

    return saved


CASES = {
    "bert": [
        "[UNK]",
        {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"},
    ],
    "gpt2: one token, three roles": [
        "<|e|>",
        dict.fromkeys(["bos_token", "eos_token", "unk_token"], "<|e|>"),
    ],
    "own names": ["<u>", {"unk_token": "<u>", "mask_token": "<m>", "extra_special_tokens": ["<a>", "<b>"]}],
    "a model's own": ["<u>", {"unk_token": "<u>", "extra_special_tokens": {"image_token": "<image>"}}],
}


@pytest.mark.parametrize("case", CASES)
def test_roles_are_those_of_transformers(save, case):
    unknown, settings = CASES[case]
    folder = save([unknown], **settings)
    found = special_tokens(*vocabulary(folder), folder)
    assert {each.token: (each.id, set(each.roles)) for each in found} == as_transformers_has_them(folder)
    assert [each.id for each in found] == sorted(each.id for each in found)


def test_a_real_checkpoint(minilm_folder):
    found = special_tokens(*vocabulary(minilm_folder), minilm_folder)
    assert {each.token: (each.id, set(each.roles)) for each in found} == as_transformers_has_them(
        minilm_folder
    )


def test_objects_in_older_files_name_tokens_too(tmp_path):
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"cls_token": {"content": "<c>", "lstrip": False}, "additional_special_tokens": ["<x>"]})
    )
    found = special_tokens(Vocab(["<x>", "the", "<c>"]), None, tmp_path)
    assert found == [SpecialToken("<x>", 0, ()), SpecialToken("<c>", 2, ("classification",))]


def test_without_files_the_spelling_tells(tmp_path):
    vocab = Vocab(["[PAD]", "[CLS]", "cat", "</s>", "<0>"], special=[0, 3, 4])
    found = special_tokens(vocab)
    assert [(each.token, each.roles) for each in found] == [
        ("[PAD]", ("padding",)),
        ("</s>", ("end",)),
        ("<0>", ()),
    ]
    assert special_tokens(vocab, None, tmp_path) == found


def test_a_plain_word_list_has_none():
    assert special_tokens(Vocab(["the", "cat", "[CLS]"])) == []
