"""`tokenspace train --objective lm` in this process: what is refused before work, resumed, told."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tokenspace as ts
from tokenspace.cli import main, train_lm

TEXT = "the cat chased the mouse .\nthe dog chased the mouse .\nThe king ruled the land .\n" * 100
SIZES = ("--dim", "8", "--layers", "1", "--heads", "1", "--context", "8", "--epochs", "1", "--threads", "1")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    return tmp_path


def train(*arguments, file="text.txt", output="t", sizes=SIZES):
    command = ["train", file, "-o", output, "--objective", "lm", *sizes, *arguments]
    return CliRunner().invoke(main, command)


def is_refused(result, message):
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.stderr
    assert message in result.stderr
    return True


@pytest.mark.parametrize(
    ("output", "checkpoint", "message"),
    [
        ("t", "", "no folder was named for the model"),
        ("t", "t", "t is written there too"),
        ("t", "t/in/it", "t is written there too"),
        ("other/model.safetensors", "other", "other/model.safetensors is written there too"),
        ("m.safetensors", "m.training", "m.training is written there too"),
        ("t", "texts", "a text to learn from lies there (config.json)"),
        ("t", "text.txt/x", "text.txt is a file"),
        ("t", "/proc/x", "can't make the folder /proc/x"),
        ("t", "foreign", "merges.txt lies there, which transformers would read"),
        ("t", "blocked", "config.json: it is a directory"),
    ],
)
def test_a_folder_that_can_not_take_the_model_is_refused_before_work(folder, output, checkpoint, message):
    for name in ("other", "texts", "foreign", "blocked/config.json"):
        (folder / name).mkdir(parents=True)
    (folder / "texts" / "config.json").write_text(TEXT)
    (folder / "foreign" / "merges.txt").write_text("")
    before = sorted(folder.rglob("*"))
    result = train("--checkpoint", checkpoint, file="texts/config.json", output=output)
    assert is_refused(result, message)
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_can_not_be_written_is_refused(folder):
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (folder / "locked").mkdir(0o500)
    assert is_refused(train("--checkpoint", "locked/model"), "can't make the folder locked/model: Perm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--init", "wordnet"],
            "the table given as init is 100 wide, dim is 8: leave dim out, or make it 100",
        ),
        (["--heads", "3"], "3 heads can't share a width of 8"),
    ],
)
def test_a_setting_that_can_not_be_is_refused_before_work(folder, arguments, message):
    assert is_refused(train("--tokenizer", "wordpiece", *arguments), message)
    assert os.listdir(folder) == ["text.txt"]


@pytest.fixture
def rows(folder):
    """A table to begin with."""
    table = ts.Table(np.ones((2, 8), np.float32), ts.Vocab(["Ġcat", "cat"]))
    ts.save(table, folder / "rows.safetensors")
    return "rows.safetensors"


def test_a_finished_output_is_resumed_with_the_same_settings_alone(folder, rows):
    begun = ("--vocab-size", "280")
    assert train(*begun).exit_code == 0
    made = ts.load("t").provenance
    known = {"kind": "bpe", "vocab_size": 280, "lowercase": False}
    assert known.items() <= made["tokenizer"].items()
    assert "init" not in made
    before = (folder / "t").read_bytes()
    ts.load("t").tokenizer.inner.save("tokenizer.json")
    for arguments, message in [
        (["--vocab-size", "290"], "tokenizer vocab_size 280, not 290"),
        ([*begun, "--lowercase"], "tokenizer lowercase False, not True"),
        (["--tokenizer", "wordpiece", *begun], "tokenizer kind bpe, not wordpiece"),
        (["--tokenizer", "tokenizer.json", "--seed", "2"], "seed 1, not 2"),
        ([*begun, "--init", rows], "init none, not "),
    ]:
        assert is_refused(train("--resume", *arguments), message)
    assert is_refused(train("--resume", *begun, "--checkpoint", "m"), "can't be saved in m any more")
    assert train("--resume", *begun).stderr.startswith("t is finished")
    assert (folder / "t").read_bytes() == before
    assert not (folder / "m").exists()


def test_a_finished_output_of_a_given_tokenizer_and_rows(folder, rows):
    for name, lines in (("one", ["the cat"]), ("two", ["the dog"])):
        ts.Tokenizer.train_from_iterator(lines).inner.save(f"{name}.json")
    begun = ("--tokenizer", "one.json", "--init", rows)
    first = train(*begun, "--checkpoint", "model", "--json")
    assert first.exit_code == 0, first.stderr
    assert list(json.loads(first.stdout))[-2:] == ["output", "checkpoint"]
    assert json.loads(first.stdout)["checkpoint"] == "model"
    about = ts.load("t").provenance["init"]
    assert (about["matched"], about["total"]) == (1, 5)
    assert is_refused(train("--resume", *begun[:2]), f"init {about['table_sha256'][:12]}, not none")
    assert is_refused(train("--resume", "--tokenizer", "two.json", *begun[2:]), "tokenizer sha256 ")
    again = train("--resume", *begun, "--checkpoint", "model", "--json")
    assert json.loads(again.stdout)["checkpoint"] == "model"
    assert "checkpoint" not in json.loads(train("--resume", *begun, "--json").stdout)


def test_scores_are_in_the_loss_file_and_chosen_epochs_in_the_answer(folder):
    (folder / "pairs.tsv").write_text("Ġcat Ġdog 9\nĠcat Ġking 1\nĠdog Ġmouse 4\n")
    result = train("--evaluate", "pairs.tsv", "--json", sizes=(*SIZES[:8], "--threads", "1"))
    assert result.exit_code == 0, result.stderr
    about = json.loads(result.stdout)
    assert about["epochs"] == ts.load("t").provenance["settings"]["epochs"] == 20
    last = json.loads((folder / "t.loss.jsonl").read_text().splitlines()[-1])
    assert last == {"tokens": about["tokens"], "epoch": 20, "epochs": 20, "scores": about["scores"]}
    assert CliRunner().invoke(main, ["loss", "t.loss.jsonl"]).exit_code == 0


def test_a_resumed_run_tells_what_it_read_itself(folder, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(train_lm, "EarlyEnd", Impatient)
        first = train("--json", "--epochs", "3")
    assert first.exit_code == 130, first.stderr
    assert "--resume goes on" in first.stderr
    second = train("--json", "--epochs", "3", "--resume")
    assert second.exit_code == 0, second.stderr
    read = [json.loads(result.stdout)["tokens"] for result in (first, second)]
    assert sum(read) == ts.load("t").provenance["tokens_read"]
    assert min(read) > 0
    assert f"{read[1]:,} tokens in " in second.stderr
    assert sorted(os.listdir(folder)) == ["t", "t.loss.jsonl", "text.txt"]


@pytest.mark.parametrize("name", ["state.safetensors", "corpus/ids"])
def test_a_run_with_a_bit_turned_is_refused_in_one_line(folder, monkeypatch, name):
    with monkeypatch.context() as patched:
        patched.setattr(train_lm, "EarlyEnd", Impatient)
        assert train("--epochs", "3").exit_code == 130
    path = folder / "t.training" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    table = (folder / "t").read_bytes()
    assert is_refused(train("--epochs", "3", "--resume"), f"t.training/{name} ")
    assert (folder / "t").read_bytes() == table
    assert path.read_bytes() == content


class Impatient(train_lm.EarlyEnd):
    """Ctrl-C after three steps."""

    def __call__(self):
        state = Path("t.training", "corpus", "streams.json")
        self.asked = getattr(self, "asked", 0) + state.exists()
        return self.asked > 3


@pytest.mark.parametrize("saved", [False, True])
def test_an_interrupt_at_once_leaves_a_folder_only_if_it_can_be_resumed(folder, monkeypatch, saved):
    def interrupted(*_, run, **__):
        if saved:
            run.save({"weight": np.ones(1, np.float32)}, {"tokens": 1})
        raise KeyboardInterrupt

    monkeypatch.setattr(train_lm, "language_model", interrupted)
    result = train()
    assert result.exit_code == 130
    assert (folder / "t.training").exists() == saved
    assert ("interrupted: --resume goes on from what was saved last" in result.stderr) == saved


def test_ctrl_c_before_the_first_step_leaves_nothing(folder, monkeypatch):
    monkeypatch.setattr(Impatient, "__call__", lambda self: Path("t.training/corpus/streams.json").exists())
    monkeypatch.setattr(train_lm, "EarlyEnd", Impatient)
    assert train().exit_code == 130
    assert os.listdir(folder) == ["text.txt"]
