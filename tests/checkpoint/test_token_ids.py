"""Ids in a model's JSON files, wherever they stand, are held against the rows of its table."""

import json
import shutil

import pytest
import tokenizers
import transformers

from tokenspace.checkpoint import audit
from tokenspace.models.open import open_checkpoint

V = 60
SINGLE = [
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "sep_token_id",
    "cls_token_id",
    "mask_token_id",
    "unk_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "image_token_id",
    "image_token_index",
    "audio_token_id",
    "video_token_id",
    "mask_index",
]
NESTED = {
    "eos_token_id": [2, V],
    "suppress_tokens": [1, V],
    "begin_suppress_tokens": [V],
    "bad_words_ids": [[1, 2], [V]],
    "force_words_ids": [[[1], [V]]],
    "forced_decoder_ids": [[1, None], [2, V]],
    "sequence_bias": [[[1, V], -1.0]],
    "lang_to_id": {"<|en|>": V},
}


FILES = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "processor_config.json",
    "preprocessor_config.json",
]


@pytest.fixture
def checked(small_checkpoint, tmp_path):
    """Findings on ids, after settings were added to a file of a small model's folder."""

    def check(file, settings, name="gpt2"):
        folder = tmp_path / name
        shutil.copytree(small_checkpoint(name).folder, folder, dirs_exist_ok=True)
        path = folder / file
        held = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(held | settings))
        found = audit(open_checkpoint(folder))
        return [
            each for each in found.findings if each.code.split("-")[0] in ("id", "padding", "placeholder")
        ]

    return check


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("key", SINGLE)
def test_an_id_without_a_row_is_an_error(checked, file, key):
    (found,) = checked(file, {key: V})
    assert found.severity == "error"
    assert found.message == f"{file}'s {key} is 60, which has no row (valid: 0 to 59)"
    assert checked(file, {key: V - 1}) == []
    assert checked(file, {key: None}) == []


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("key", NESTED)
def test_an_id_in_a_list_is_found(checked, file, key):
    (found,) = checked(file, {key: NESTED[key]})
    assert (found.severity, f"{key} is 60, which has no row" in found.message) == ("error", True)


@pytest.mark.parametrize("section", ["text_config", "decoder", "llm_config", "task_specific_params"])
def test_an_id_in_a_nested_section_is_found(checked, section):
    (found,) = checked("config.json", {section: {"eos_token_id": [1, 77], "pad_token_id": 3}})
    assert (found.severity, f"{section}.eos_token_id is 77" in found.message) == ("error", True)


def test_a_section_with_a_vocabulary_of_its_own_is_held_against_that(checked):
    assert checked("config.json", {"audio_config": {"vocab_size": 500, "pad_token_id": 400}}) == []
    (found,) = checked("config.json", {"audio_config": {"vocab_size": 500, "pad_token_id": 501}})
    assert found.severity == "warning"
    assert checked("config.json", {"vision_config": {"pad_token_id": 400}, "codec_bos_token_id": 400}) == []


@pytest.mark.parametrize("value", [45.0, "45", True, ["x"], [[1.5]], {"a": 1}], ids=repr)
def test_what_is_no_whole_number_is_an_error_as_in_transformers(checked, value):
    (found,) = checked("config.json", {"eos_token_id": value})
    assert (found.code, found.severity) == ("id-not-whole", "error")
    with pytest.raises(Exception, match="eos_token_id"):
        transformers.GPT2Config(eos_token_id=value)


def test_ids_that_a_tokenizer_puts_around_a_text(small_checkpoint, tmp_path):
    words = {f"w{i}": i for i in range(V)}
    for kind in ("template", "bert", "sequence"):
        folder = tmp_path / kind
        shutil.copytree(small_checkpoint("gpt2").folder, folder)
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
        template = tokenizers.processors.TemplateProcessing(
            single="[BOS] $A", special_tokens=[("[BOS]", V + 3)]
        )
        bert = tokenizers.processors.BertProcessing(("w1", V + 3), ("w2", 2))
        inner.post_processor = {
            "template": template,
            "bert": bert,
            "sequence": tokenizers.processors.Sequence([template]),
        }[kind]
        inner.enable_padding(pad_id=V + 1, pad_token="w0")
        inner.save(str(folder / "tokenizer.json"))
        found = audit(open_checkpoint(folder)).findings
        messages = [each.message for each in found if each.severity == "error"]
        assert any("tokenizer.json's padding.pad_id is 61, which has no row" in each for each in messages)
        assert any("tokenizer.json's post_processor." in each and "is 63" in each for each in messages)
        assert len(messages) == 2


def test_negative_ids(checked):
    (found,) = checked("config.json", {"pad_token_id": -1}, "llama")
    assert (found.code, found.severity) == ("id-negative", "warning")
    assert "torch.nn.Embedding takes 59, counted from the end, for padding" in found.message
    padding = transformers.LlamaModel(
        transformers.LlamaConfig(
            vocab_size=V, hidden_size=16, num_hidden_layers=0, num_attention_heads=2, pad_token_id=-1
        )
    ).embed_tokens.padding_idx
    assert padding == 59
    (found,) = checked("config.json", {"pad_token_id": -7}, "llama")
    assert found.severity == "error"
    (found,) = checked("generation_config.json", {"decoder_start_token_id": -1}, "t5")
    assert found.severity == "error"


def test_a_placeholder_that_the_model_replaces_is_no_error(checked):
    checks = checked("config.json", {"image_token_id": V}, "gemma3-images")
    found = {each.message.split(" is ")[0]: each.severity for each in checks}
    assert found["config.json's image_token_id"] == "info"
    (again,) = checked("config.json", {"image_token_id": V}, "gpt2")
    assert again.severity == "error"


def test_a_generation_config_that_is_no_json_is_doubted(small_checkpoint, tmp_path):
    shutil.copytree(small_checkpoint("gpt2").folder, tmp_path / "x")
    (tmp_path / "x" / "generation_config.json").write_text("{")
    found = audit(open_checkpoint(tmp_path / "x")).findings
    assert ("json-broken", "warning") in [(each.code, each.severity) for each in found]


def test_a_family_that_is_not_known_is_checked_against_its_vocab_size(checked):
    (found,) = checked("config.json", {"model_type": "new", "bos_token_id": 99}, "llama")
    assert (found.severity, "bos_token_id is 99" in found.message) == ("error", True)
