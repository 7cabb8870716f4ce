"""From text files to a decoder and its table: it learns, goes on after a kill, tells, and stops."""

import math
import signal
import subprocess
import sys
import textwrap
from collections import Counter

import numpy as np
import pytest
import torch

from tokenspace.errors import CorpusError, OutputError, ShapeError, VocabError
from tokenspace.geometry import table_sha256
from tokenspace.table import Table
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.language_model import language_model
from tokenspace.train.run import Run
from tokenspace.vocab import Vocab

SMALL = {"dim": 16, "layers": 1, "heads": 2, "context": 16, "vocab_size": 300, "threads": 1, "rate": 1e-2}


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    """Sentences of two kinds: animals chase animals, kings rule lands. Each ends in a word of its kind."""
    rng = np.random.default_rng(0)
    animals, places = ["cat", "dog", "mouse", "bird"], ["land", "city", "town", "isle"]
    lines = []
    for _ in range(400):
        if rng.random() < 0.5:
            lines.append(f"the {rng.choice(animals)} chased a {rng.choice(animals)} away")
        else:
            lines.append(f"a {rng.choice(['king', 'queen'])} ruled the {rng.choice(places)} well")
    path = tmp_path_factory.mktemp("corpus") / "farm.txt"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def words(farm):
    return Tokenizer.train([farm])


@pytest.fixture(scope="module")
def learned(farm, words):
    lines, events = [], []
    model = language_model(
        farm,
        **SMALL | {"epochs": 15},
        tokenizer=words,
        held_out=0.1,
        on_loss=lines.append,
        progress=events.append,
    )
    return model, lines, events


def test_it_learns_more_than_how_frequent_tokens_are(learned, farm, words):
    model, *_ = learned
    ids = [id for line in farm.read_text().splitlines() for id in [*words.encode(line).ids.tolist(), 2]]
    shares = np.array([*Counter(ids).values()]) / len(ids)
    unigram = math.exp(-(shares * np.log(shares)).sum())
    assert model.perplexity < unigram / 3


def test_it_learns_where_a_sentence_ends(learned, words):
    model, *_ = learned
    ids = torch.tensor([[2, *words.encode("the cat chased a dog away").ids.tolist()]])
    with torch.no_grad():
        ends = model.model.head(model.model(ids))[0].softmax(-1)[:, 2]
    assert ends[-1] > 0.9
    assert ends[:-1].max() < 0.1


def test_words_of_a_kind_end_nearer_than_others(learned):
    table = learned[0].table
    unit = {word: table[word] / np.linalg.norm(table[word]) for word in ("cat", "dog", "city", "town")}
    assert min(unit["cat"] @ unit["dog"], unit["city"] @ unit["town"]) > unit["cat"] @ unit["city"] + 0.3


def test_the_table_is_the_head_and_says_what_made_it(learned, farm):
    model, *_ = learned
    about = model.table.provenance
    np.testing.assert_array_equal(model.table.weight, model.model.head.weight.detach().numpy())
    assert model.table.output is None
    assert list(model.table.vocab) == list(model.tokenizer.vocab)
    assert about["objective"] == "next token, in a decoder of GPT-2's architecture"
    assert about["corpus"][0]["name"] == "farm.txt"
    assert about["corpus"][0]["bytes"] == farm.stat().st_size
    assert {"dim": 16, "epochs": 15, "held_out": 0.1, "seed": 1}.items() <= about["settings"].items()
    assert set(about["versions"]) == {"numpy", "torch", "tokenizers"}
    assert math.exp(about["held_out_loss"]) == pytest.approx(model.perplexity, rel=1e-5)
    assert about["parameters"] == sum(p.numel() for p in model.model.parameters())
    assert "interrupted_at" not in about


def test_the_losses_are_told_with_the_held_out_perplexity_on_the_way(learned):
    model, lines, events = learned
    held_out = [line["held_out_perplexity"] for line in lines if "held_out_perplexity" in line]
    assert len(held_out) == 10
    assert held_out[-1] == pytest.approx(model.perplexity, abs=1e-3)
    assert held_out[-1] < min(held_out) * 1.05 < held_out[0] / 2
    tokens = [line["tokens"] for line in lines]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] == model.provenance["tokens_read"]
    for line, event in zip(lines, events, strict=True):
        assert (line["tokens"], line["epoch"], line["epochs"]) == (event.tokens, event.epoch, event.epochs)
        assert line["loss"] == pytest.approx(event.loss, abs=1e-6)
        assert line["tokens_per_second"] == pytest.approx(event.tokens_per_second, rel=0.01)
    assert (events[-1].epoch, events[-1].epochs, events[-1].fraction) == (15, 15, 1.0)
    assert events[-1].eta_seconds == 0
    assert 0 < events[0].fraction < 1
    assert lines[-1]["loss"] < lines[0]["loss"] - 1


def weights(model):
    return [value.numpy() for value in model.model.state_dict().values()]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(farm):
    settings = SMALL | {"epochs": 1, "dropout": 0.1}
    first, second, other = (weights(language_model(farm, **settings, seed=seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_the_callers_torch_is_left_as_it_was(farm):
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    language_model(farm, **SMALL | {"threads": threads + 1}, epochs=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


KILLED = """
import os, signal, sys
from pathlib import Path
from tokenspace.train.language_model import language_model
from tokenspace.train.run import Run

told = []
def die(line):
    told.append(line)
    if len(told) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

with Run.begin(Path(sys.argv[2]), {}, resume=False) as run:
    language_model(sys.argv[1], run=run, on_loss=die, checkpoint_minutes=0.0, **SETTINGS)
"""


@pytest.mark.parametrize("line", [2, 7])
def test_a_killed_run_goes_on_to_the_same_bits(torch_forks, farm, tmp_path, line):
    settings = SMALL | {"epochs": 3, "dropout": 0.1, "held_out": 0.1}
    whole = language_model(farm, **settings)
    code = textwrap.dedent(KILLED).replace("SETTINGS", repr(settings))
    folder = tmp_path / "t.training"
    killed = torch_forks.run("-c", code, str(farm), str(folder), str(line))
    assert killed.returncode == -signal.SIGKILL
    with Run.begin(folder, {}, resume=True) as run:
        before = run.load()[1]["step"]
        assert 0 < before < whole.provenance["steps"]
        again = language_model(farm, run=run, **settings)
        about = run.load()[1]
    assert all(np.array_equal(a, b) for a, b in zip(weights(whole), weights(again), strict=True))
    assert again.perplexity == whole.perplexity
    assert again.provenance == whole.provenance
    assert about["step"] == whole.provenance["steps"]


def test_a_run_that_was_done_is_not_trained_again(farm, tmp_path):
    settings = SMALL | {"epochs": 1}
    with Run.begin(tmp_path / "run", {}, resume=False) as run:
        first = language_model(farm, run=run, **settings)
        events = []
        again = language_model(farm, run=run, progress=events.append, **settings)
    assert not events or events[-1].fraction == 1
    assert all(np.array_equal(a, b) for a, b in zip(weights(first), weights(again), strict=True))


def test_text_that_changed_is_not_gone_on_with(farm, tmp_path):
    copy = tmp_path / "farm.txt"
    copy.write_bytes(farm.read_bytes())
    with Run.begin(tmp_path / "run", {}, resume=False) as run:
        language_model(copy, run=run, **SMALL, epochs=1)
        copy.write_bytes(farm.read_bytes() + b"\nthe end")
        with pytest.raises(CorpusError, match="changed since this run began"):
            language_model(copy, run=run, **SMALL, epochs=1)


def test_minutes_end_a_run(farm):
    events = []
    model = language_model(farm, **SMALL, minutes=3 / 60, progress=events.append)
    assert model.provenance["steps"] > 1
    assert "interrupted_at" not in model.provenance
    assert events[-1].fraction == 1
    assert events[-1].epochs >= events[-1].epoch


def test_told_to_stop_it_keeps_what_there_is_and_can_go_on(farm, tmp_path):
    settings, asked = SMALL | {"epochs": 2}, []

    def stop():
        asked.append(True)
        return training and len(asked) > 5

    training = []
    with Run.begin(tmp_path / "run", {}, resume=False) as run:
        stopped = language_model(
            farm, run=run, stop=stop, on_note=lambda note: (training.append(note), asked.clear()), **settings
        )
        assert 0 < stopped.provenance["interrupted_at"] < 1
        assert stopped.provenance["steps"] == 5
        on = language_model(farm, run=run, **settings)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(weights(on), weights(language_model(farm, **settings)), strict=True)
    )


def test_told_to_stop_before_anything_is_learned_it_has_nothing_to_give(farm, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        language_model(farm, **SMALL, stop=lambda: True)
    told = []
    with Run.begin(tmp_path / "run", {}, resume=False) as run:
        with pytest.raises(KeyboardInterrupt):  # the text is ready by the first note
            language_model(farm, run=run, **SMALL, on_note=told.append, stop=lambda: bool(told))
        assert not run.has_state


def test_ctrl_c_keeps_what_there_is(farm):
    told = []

    def interrupt(event):
        told.append(event)
        if len(told) == 1:
            raise KeyboardInterrupt

    model = language_model(farm, **SMALL, epochs=4, progress=interrupt)
    assert 0 < model.provenance["interrupted_at"] < 1


def test_rows_of_a_given_table_are_begun_with(farm, words):
    rng = np.random.default_rng(0)
    given = Table(rng.normal(size=(len(words.vocab), 16)).astype(np.float32), words.vocab)
    notes = []
    settings = SMALL | {"rate": 1e-30, "epochs": 1}
    model = language_model(farm, **settings, tokenizer=words, init=given, on_note=notes.append)
    matched = [i for i in range(len(words.vocab)) if words.vocab[i] not in ("[PAD]", "[SEP]", "[UNK]")]
    np.testing.assert_allclose(model.table.weight[matched], given.weight[matched], atol=1e-6)
    assert any("tokens begin with a row of the given table" in note for note in notes)
    about = model.provenance["init"]
    assert about["table_sha256"] == table_sha256(given)
    assert (about["matched"], about["total"]) == (len(words.vocab), len(words.vocab))


def test_the_width_is_that_of_the_rows_begun_with(tmp_path):
    """A text that isn't there shows that nothing was read before."""
    narrow = Table(np.zeros((1, 8), np.float32), Vocab(["cat"]))
    with pytest.raises(ShapeError, match="init is 8 wide, dim is 16: leave dim out, or make it 8"):
        language_model(tmp_path / "nothing", **SMALL, init=narrow)
    (tmp_path / "text").write_text("the cat\n" * 40)
    settings = {name: value for name, value in SMALL.items() if name != "dim"}
    assert language_model(tmp_path / "text", **settings, epochs=1, init=narrow).table.dim == 8


def test_a_run_is_gone_on_with_as_it_was_begun(farm, words, tmp_path):
    given = Table(np.zeros((len(words.vocab), 16), np.float32), words.vocab)
    settings = SMALL | {"epochs": 1}
    with Run.begin(tmp_path / "run", {}, resume=False) as run:
        with pytest.raises(CorpusError, match="too few for a context"):
            language_model(farm, run=run, **settings | {"context": 100_000, "held_out": 0.5})
        fresh = language_model(farm, run=run, **settings)  # nothing was learned, so all is made anew
        assert fresh.provenance["held_out_tokens"] < fresh.provenance["tokens"] / 10
        for other, named in [
            ({"dim": 32, "seed": 2}, r"dim 16 then, 32 now; seed 1 then, 2 now\)"),
            ({"tokenizer": words}, r"vocab_size 300 then, none now; .*tokenizer none then, \w{12} now"),
            ({"init": given}, r"init none then, \w{12} now"),
        ]:
            with pytest.raises(OutputError, match=named):
                language_model(farm, run=run, **settings | other)
        assert language_model(farm, run=run, **settings | {"threads": 2}).perplexity == fresh.perplexity


def test_a_text_of_a_few_lines_is_learned_whole(tmp_path):
    (tmp_path / "text").write_text("the cat chased a mouse " * 30 + "\nthe end")
    notes = []
    model = language_model(tmp_path / "text", **SMALL, epochs=2, on_note=notes.append)
    assert any(note.startswith("nothing is held out: the text has only 2 lines") for note in notes)
    assert model.perplexity is None
    assert (model.provenance["held_out_tokens"], model.provenance["held_out_loss"]) == (0, None)


def test_the_epochs_that_were_chosen_or_begun_are_recorded(farm):
    def stopped_after(steps, **settings):
        notes, asked = [], []
        return language_model(
            farm,
            **SMALL | {"batch": 64} | settings,
            on_note=notes.append,
            stop=lambda: bool(notes) and (asked.append(1) or len(asked) > steps),
        ).provenance

    assert stopped_after(1)["settings"]["epochs"] == 20
    assert 1 < stopped_after(9, minutes=100.0)["settings"]["epochs"] < 9


def test_without_a_tokenizer_byte_pairs_are_learned(farm):
    model = language_model(farm, **SMALL, epochs=1)
    assert model.tokenizer.kind == "bpe"
    assert len(model.tokenizer.vocab) <= 300
    assert model.tokenizer.decode(model.tokenizer.encode("Ünheard of").ids) == "Ünheard of"
    folded = language_model(farm, **SMALL, epochs=1, lowercase=True)
    assert folded.tokenizer.encode("CAT").ids.tolist() == folded.tokenizer.encode("cat").ids.tolist()


def test_the_ends_of_lines_are_no_part_of_what_is_learned(tmp_path):
    (tmp_path / "text").write_text("a cat  \na dog  \n" * 40)
    learned = language_model(tmp_path / "text", **SMALL, epochs=1)
    assert [token for token in learned.tokenizer.vocab if "Ċ" in token] == ["Ċ"]


def test_it_reads_stdin(torch_forks, farm):
    code = (
        "from tokenspace.train.language_model import language_model\n"
        f"model = language_model('-', epochs=1, **{SMALL!r})\n"
        "print(model.provenance['corpus'][0]['name'], model.provenance['texts'])"
    )
    assert torch_forks.run("-c", code, stdin=farm.read_bytes()).stdout == b"stdin 400\n"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"context": 100_000}, CorpusError, r"tokens, too few for a context of 100,000; lower the context"),
        ({"heads": 3}, ShapeError, "3 heads can't share a width of 16"),
        ({"held_out": 1.0}, ShapeError, "held_out must be at least 0 and below 1"),
        ({"dropout": -0.1}, ShapeError, "dropout must be at least 0"),
        ({"epochs": 0}, ShapeError, "epochs must be an integer, 1 or more"),
        ({"minutes": 0}, ShapeError, "minutes must be a positive"),
        ({"rate": float("nan")}, ShapeError, "rate must be a positive"),
        ({"batch": 1.5}, ShapeError, "batch must be an integer"),
        ({"vocab_size": 10}, VocabError, "vocab_size 10 is too small"),
        ({"seed": 2**63}, ShapeError, "seed must be an integer from 0 to 9,223,372,036,854,775,807; found"),
        ({"checkpoint_minutes": -1}, ShapeError, "checkpoint_minutes must be 0 or more, found -1"),
        ({"lowercase": "no"}, ShapeError, "lowercase must be True or False, found 'no'"),
        ({"tokenizer": "bpe"}, VocabError, "tokenizer must be a Tokenizer, found str"),
        ({"init": "wordnet"}, ShapeError, "init must be a Table, found str"),
        ({"run": "t.training"}, OutputError, "run must be a Run, found str"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_can_not_be_is_refused(farm, settings, error, message):
    with pytest.raises(error, match=message):
        language_model(farm, **SMALL | {"epochs": 1} | settings)


def test_a_tokenizer_must_have_a_token_that_ends_a_text(farm):
    import tokenizers

    bare = Tokenizer.from_json(tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, "a")).to_str())
    with pytest.raises(VocabError, match=r"no token that ends a text \(known ones: \[SEP\] "):
        language_model(farm, **SMALL, tokenizer=bare)


def test_without_torch_it_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tokenspace\n"
        "from tokenspace.train.language_model import language_model\n"
        "try:\n    language_model('text')\n"
        "except tokenspace.MissingExtra as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "training a language model needs packages that are not installed; "
        "run: pip install 'torch>=2.13' 'numba>=0.61'\n"
    )
