"""Each finding about a head tells a fix; followed to the letter, transformers reloads the same model."""

import json
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tokenspace.checkpoint import audit
from tokenspace.models.open import open_checkpoint

transformers.logging.set_verbosity_error()
TIED = [
    "bert",
    "roberta",
    "distilbert",
    "albert",
    "electra",
    "deberta-v3",
    "modernbert",
    "xlm",
    "gpt2",
    "opt",
    "bloom",
    "t5",
    "bart",
    "llama-tied",
    "gemma",
    "gemma3",
    "falcon",
    "mpt",
    "mamba",
    "granite",
    "cohere",
]
UNTIED = ["llama", "gptj", "gpt_neox", "phi", "qwen2"]


@pytest.fixture
def model(small_checkpoint, tmp_path):
    """A copy of a small model's folder, with ways to change it and to reload it."""

    class Model:
        def __init__(self, name):
            self.small = small_checkpoint(name)
            self.folder = tmp_path / name
            shutil.copytree(self.small.folder, self.folder)
            self.opened = open_checkpoint(self.folder)
            self.head = self.opened.family.head
            self.table = self.small.module.get_input_embeddings().weight.detach().clone()

        def change(self, tensors=None, **settings):
            held = load_file(self.folder / "model.safetensors") | (tensors or {})
            held = {key: tensor for key, tensor in held.items() if tensor is not None}
            save_file(held, self.folder / "model.safetensors", {"format": "pt"})
            config = json.loads((self.folder / "config.json").read_text()) | settings
            (self.folder / "config.json").write_text(json.dumps(config))

        def logits(self):
            made = getattr(transformers, self.small.spec.model).from_pretrained(self.folder).eval()
            with torch.no_grad():
                return made(**self.small.inputs(), return_dict=True).logits

        def finding(self, code):
            found = audit(open_checkpoint(self.folder)).findings
            (one,) = (finding for finding in found if finding.code == code)
            return one

    return Model


@pytest.mark.parametrize("name", TIED)
def test_a_copy_that_may_be_left_out(model, name):
    made = model(name)
    made.change({made.head: made.table})
    before = made.logits()
    assert "may be left out" in made.finding("head-copy").fix
    made.change({made.head: None})
    torch.testing.assert_close(made.logits(), before)


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "gptj", "gemma", "distilbert"])
def test_a_copy_that_a_reload_needs(model, name):
    made = model(name)
    made.change({made.head: made.table}, tie_word_embeddings=False)
    before = made.logits()
    finding = made.finding("head-copy")
    assert finding.fix.startswith("keep it")
    assert "not tied" in finding.message
    torch.testing.assert_close(made.logits(), before)
    made.change({made.head: None})
    assert not torch.equal(made.logits(), made.logits())  # drawn at random, as the finding says


@pytest.mark.parametrize("name", TIED)
def test_a_flag_that_says_tied_of_a_head_that_differs(model, name):
    made = model(name)
    torch.manual_seed(1)
    made.change({made.head: torch.randn_like(made.table)})
    before = made.logits()
    fix = made.finding("tie-flag").fix
    bias = made.opened.find(made.opened.family.head_bias)
    if fix.startswith("set tie_word_embeddings to false"):
        made.change(tie_word_embeddings=False)
    elif "store the head's bias as" in fix:
        other = fix.split("store the head's bias as '")[1].split("'")[0]
        numbers = load_file(made.folder / "model.safetensors")[bias.name]
        made.change({other: numbers}, tie_word_embeddings=False)
    else:
        assert fix.startswith("keep both tensors")
    torch.testing.assert_close(made.logits(), before)


@pytest.mark.parametrize("name", ["gpt2", "llama-tied", "gemma", "opt"])
def test_a_head_that_is_neither_stored_nor_tied(model, name):
    made = model(name)
    before = made.logits()
    made.change({made.head: None}, tie_word_embeddings=False)
    assert not torch.equal(made.logits(), made.logits())
    finding = made.finding("no-head")
    assert finding.severity == "error"
    assert "set tie_word_embeddings to true" in finding.fix
    made.change(tie_word_embeddings=True)
    torch.testing.assert_close(made.logits(), before)
    assert not any(each.code == "no-head" for each in audit(open_checkpoint(made.folder)).findings)


@pytest.mark.parametrize("name", ["bart", "mbart"])
def test_stacks_that_the_flag_leaves_without_a_table(model, name):
    made = model(name)
    before = made.logits()
    made.change(tie_word_embeddings=False)
    finding = made.finding("stacks-untied")
    assert (finding.severity, finding.fix) == ("error", "set tie_word_embeddings to true")
    assert not torch.equal(made.logits(), made.logits())
    made.change(tie_word_embeddings=True)
    torch.testing.assert_close(made.logits(), before)
    torch.manual_seed(1)
    made.change({"lm_head.weight": torch.randn_like(made.table)}, tie_word_embeddings=False)
    assert made.finding("stacks-untied").fix.startswith("store a copy of the table under each")
    stacks = {f"model.{stack}.embed_tokens.weight": made.table.clone() for stack in ("encoder", "decoder")}
    made.change(stacks)
    torch.testing.assert_close(made.logits(), made.logits())
    assert not audit(open_checkpoint(made.folder)).failed


@pytest.mark.parametrize("name", UNTIED)
def test_an_untied_head_that_is_missing_is_an_error(model, name):
    made = model(name)
    made.change({made.head: None})
    assert made.finding("no-head").severity == "error"
    base = made.small.module.base_model.__class__.__name__
    made.change(architectures=[base])
    assert made.finding("no-head").severity == "info"


@pytest.mark.parametrize("name", ["gpt2", "llama-tied", "bert"])
def test_a_vocab_size_set_as_the_fix_says_reloads(model, name):
    made = model(name)
    before = made.logits()
    made.change(vocab_size=61)
    assert made.finding("vocab-size").fix == "set vocab_size to 60 in config.json"
    made.change(vocab_size=60)
    torch.testing.assert_close(made.logits(), before)
