"""The folder that transformers loads: the same logits, the same ids, and text that goes on."""

import copy
import errno
import json

import pytest
import torch
import transformers

from tokenspace import atomic
from tokenspace.errors import OutputError
from tokenspace.models.open import open_checkpoint
from tokenspace.nn import LMHead, TransformerInput
from tokenspace.tokenizer import Tokenizer
from tokenspace.train import gpt2
from tokenspace.train.checkpoint_folder import FILES
from tokenspace.train.decoder import Decoder
from tokenspace.train.language_model_settings import end_of_text

LINES = ["the cat chased a mouse", "the dog chased a cat", "a king ruled the land"] * 5


@pytest.fixture(scope="module", params=["bpe", "word", "wordpiece", "unigram"])
def tokenizer(request):
    return Tokenizer.train_from_iterator(LINES, request.param, 300 if request.param == "bpe" else 60)


@pytest.fixture(scope="module")
def model(tokenizer):
    """No parameter is 0 or 1, so none may go astray unseen."""
    torch.manual_seed(3)
    model = Decoder(len(tokenizer.vocab), dim=24, layers=3, heads=4, context=16, dropout=0.2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "new" / "folder"
    gpt2.save(model, tokenizer, end_of_text(tokenizer), folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    theirs, told = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    return theirs.eval()


def test_transformers_gives_equal_logits(model, loaded, tokenizer):
    ids = torch.randint(len(tokenizer.vocab), (3, 16))
    with torch.no_grad():
        ours, theirs = model.head(model(ids)), loaded(ids).logits
    assert theirs.abs().max() > 1
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_the_loss_is_equal_in_training(model, loaded, tokenizer):
    ids = torch.randint(len(tokenizer.vocab), (2, 16))
    ours, theirs = copy.deepcopy(model).train(), copy.deepcopy(loaded).train()
    for part in [*ours.modules(), *theirs.modules()]:
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        elif isinstance(part, torch.nn.MultiheadAttention):
            part.dropout = 0.0
    loss = ours.head.loss(ours(ids[:, :-1]), ids[:, 1:])
    torch.testing.assert_close(loss, theirs(ids, labels=ids).loss, rtol=0, atol=1e-5)


def test_the_head_is_the_table(folder, loaded, tokenizer):
    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert "lm_head.weight" not in open_checkpoint(folder).tensors
    assert len(loaded.lm_head.weight) == len(tokenizer.vocab)


def test_its_tokenizer_gives_the_same_ids(folder, tokenizer):
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for text in ["the cat ruled", "unheard of!", ""]:
        assert theirs(text)["input_ids"] == tokenizer.pieces(text)  # no [CLS] … [SEP]: the model saw none
    end = tokenizer.vocab[end_of_text(tokenizer)]
    assert theirs.bos_token == theirs.eos_token == end
    assert theirs.pad_token == (end if tokenizer.pad_id is None else "[PAD]")
    assert theirs.model_max_length == 16
    assert theirs.unk_token == (None if tokenizer.unk_id is None else tokenizer.vocab[tokenizer.unk_id])


def test_text_goes_on(folder, loaded):
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    start = theirs(theirs.bos_token + "the cat", return_tensors="pt")
    given = loaded.generate(**start, max_new_tokens=5, do_sample=False)[0]
    assert given[: start["input_ids"].shape[1]].tolist() == start["input_ids"][0].tolist()
    assert theirs.decode(given, skip_special_tokens=True).startswith("the cat")
    assert loaded.generation_config.eos_token_id == theirs.eos_token_id


def test_our_own_layer_opens_it(folder, model, tokenizer):
    layer = TransformerInput.from_checkpoint(folder)
    head = LMHead.from_checkpoint(folder, layer.token)
    ids = torch.randint(len(tokenizer.vocab), (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(ids), model.input(ids))
    assert head.weight is layer.token.weight


def test_the_sizes_are_told(folder):
    config = json.loads((folder / "config.json").read_text())
    known = {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 16, "n_inner": 96, "model_type": "gpt2"}
    assert {key: config[key] for key in known} == known
    assert config["attn_pdrop"] == config["resid_pdrop"] == config["embd_pdrop"] == 0.2


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("", "no folder was named"),
        (None, "None names none; give its name"),
        (3, "3 names none"),
        ("a\0b", "can't make the folder"),
        ("x" * 300, "can't make the folder .*too long"),
        ("/proc/x", "can't make the folder /proc/x"),
    ],
)
def test_a_place_that_is_none_is_refused(model, tokenizer, place, message):
    with pytest.raises(OutputError, match=message):
        gpt2.save(model, tokenizer, 2, place)


def test_a_place_that_is_a_file_is_refused(model, tokenizer, write):
    file = write("here", "x")
    with pytest.raises(OutputError, match=r"here: a model takes a folder, and that is a file"):
        gpt2.save(model, tokenizer, 2, file)
    with pytest.raises(OutputError, match=r"can't make the folder .*: .*here is a file"):
        gpt2.save(model, tokenizer, 2, file / "in" / "it")


@pytest.mark.parametrize(
    "name", ["special_tokens_map.json", "pytorch_model.bin", "model.safetensors.index.json"]
)
def test_a_folder_with_what_transformers_would_read_too_is_refused(model, tokenizer, write, name):
    folder = write(name, "{}").parent
    with pytest.raises(OutputError, match=f"{name} lies there, which transformers would read"):
        gpt2.save(model, tokenizer, 2, folder)
    assert [path.name for path in folder.iterdir()] == [name]


def test_a_crash_leaves_no_old_weights_beside_a_new_tokenizer(model, tokenizer, tmp_path, monkeypatch):
    gpt2.save(model, tokenizer, 2, tmp_path)
    replacing = atomic.replacing

    def crashing(path):
        if path.name == "tokenizer_config.json":  # tokenizer.json is replaced by then
            raise KeyboardInterrupt
        return replacing(path)

    monkeypatch.setattr(atomic, "replacing", crashing)
    with pytest.raises(KeyboardInterrupt):
        gpt2.save(model, tokenizer, 2, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    monkeypatch.undo()
    gpt2.save(model, tokenizer, 2, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


def test_a_full_disk_leaves_the_old_model(model, tokenizer, tmp_path, monkeypatch):
    gpt2.save(model, tokenizer, 2, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(gpt2, "save_file", full)
    with pytest.raises(OutputError, match="No space left"):
        gpt2.save(model, tokenizer, 2, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
