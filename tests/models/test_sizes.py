import pytest

from tokenspace.errors import CheckpointError
from tokenspace.models.sizes import ALIASES, MODELS, SOURCES, find


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_found_by_its_name(name):
    assert find(name).name == name
    assert find(name.upper()).name == name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("GPT-2", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("LLaMA 2 7B", "llama-2-7b"),
        ("bert_base_uncased", "bert-base-uncased"),
        ("google/t5-v1_1-small", "t5-v1.1-small"),
        ("Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-13b-chat-hf", "llama-2-13b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1"),
        ("google/gemma-2-2b-it", "gemma-2-2b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
    ],
)
def test_spellings_of_people_and_hubs(typed, name):
    assert find(typed).name == name


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_another_name_of_a_model(alias, name):
    assert alias not in MODELS
    assert find(alias).name == find(alias.upper().replace("-", " ")).name == name


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("gtp2", "'gpt2'"),
        ("bert", "'bert-base-uncased', 'bert-large-uncased'"),
        ("llama", "'llama-7b'"),
        ("gpt2-italian", "'gpt2'"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "'mistral-7b-v0.3', 'mistral-7b-v0.1'"),
    ],
)
def test_an_unknown_name_is_answered_with_close_ones(typed, offered):
    with pytest.raises(CheckpointError, match="neither a known model nor a checkpoint's folder") as caught:
        find(typed)
    assert f"close names: {offered}" in str(caught.value)


@pytest.mark.parametrize("typed", ["", "  ", "?", "zzzzzz", "/", "\n"])
def test_a_name_like_no_other(typed):
    with pytest.raises(CheckpointError) as caught:
        find(typed)
    assert "close names" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("typed", ["./gpt2", "/models/gpt2", "~/gpt2", "some/where/gpt2", "./gpt2-hf"])
def test_a_path_is_no_name(typed):
    with pytest.raises(CheckpointError):
        find(typed)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_sizes_are_possible(model):
    assert 0 < model.tokens <= model.vocab
    assert model.head_dim or model.width % model.heads == 0
    assert model.heads % (model.kv_heads or 1) == 0
    assert (model.position_rows > 0) == (model.architecture.positions == "learned")


def test_the_families_that_people_ask_for_are_there():
    families = {model.family for model in MODELS.values()}
    asked = {"GPT-2", "BERT", "T5", "GPT-3", "BLOOM", "Mistral", "Qwen 2.5", "Qwen 3", "OPT", "Pythia"}
    asked |= {f"LLaMA {i}" for i in (1, 2, 3)} | {f"Gemma {i}" for i in (1, 2, 3)}
    assert asked <= families


def test_no_source_outlives_its_models():
    assert not SOURCES.keys() - {model.family for model in MODELS.values()}
