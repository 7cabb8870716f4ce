import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

import tokenspace as ts
from tokenspace.cli import main


def run(*arguments: str, stdin: str | None = None, color: bool = False):
    result = CliRunner().invoke(main, arguments, input=stdin, color=color, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


def documents(*arguments: str, stdin: str | None = None) -> list[dict]:
    """The JSON lines on stdout, which holds nothing else."""
    return [json.loads(line) for line in run(*arguments, "--json", stdin=stdin).stdout.splitlines()]


def test_json_is_as_designed():
    (document,) = documents("embed", "The cat sat")
    assert list(document) == ["text", "recipe", "d_model", "scale", "tokens", "steps"]
    assert (document["text"], document["recipe"]) == ("The cat sat", "original")
    assert (document["d_model"], document["scale"]) == (100, 10.0)
    table = ts.load("wordnet")
    assert document["tokens"] == [
        {"token": token, "id": table.vocab.id(token), "position": t, "segment": 0}
        for t, token in enumerate(["the", "cat", "sat"])
    ]
    assert list(document["steps"]) == ["lookup", "scaled", "position", "dropout", "output"]
    rows = table.lookup([token["id"] for token in document["tokens"]])
    np.testing.assert_array_equal(np.float32(document["steps"]["lookup"]), rows)  # to the last bit
    steps = {name: np.float32(values) for name, values in document["steps"].items()}
    np.testing.assert_allclose(steps["output"], rows * 10 + steps["position"], rtol=1e-6, atol=1e-6)


def test_a_recipe_has_only_its_own_steps():
    (bert,) = documents("embed", "the cat", "--recipe", "bert")
    assert list(bert["steps"]) == ["lookup", "position", "segment", "normalized", "dropout", "output"]
    assert bert["scale"] is None
    (llama,) = documents("embed", "the cat", "--recipe", "llama")
    assert list(llama["steps"]) == ["lookup", "output"]
    assert llama["steps"]["lookup"] == llama["steps"]["output"]


def test_a_pair_shows_segments():
    (document,) = documents("embed", "the cat", "--pair", "a dog")
    assert document["recipe"] == "bert"
    assert [token["segment"] for token in document["tokens"]] == [0, 0, 0, 1, 1, 1]
    assert "segment 1" in run("embed", "the cat", "--pair", "a dog").stdout


def test_a_pair_under_a_recipe_without_segments_says_so():
    assert "adds no rows for segments" in run("embed", "a", "--pair", "b", "--recipe", "gpt2").stdout
    assert "adds no rows" not in run("embed", "a", "--pair", "b").stdout


def test_a_pair_through_a_checkpoint_keeps_its_own_recipe(minilm_folder):
    (document,) = documents("embed", "the cat", "--pair", "a dog", "-t", str(minilm_folder))
    assert document["d_model"] == 384
    assert document["tokens"][0]["token"] == "[CLS]"


def test_lines_of_stdin_are_a_padded_batch():
    long, short = documents("embed", stdin="the cat sat on the mat\n\na dog\n")
    assert long["attention_mask"] == [1] * 6
    assert short["attention_mask"] == [1, 1, 0, 0, 0, 0]
    assert [token["token"] for token in short["tokens"]] == ["a", "dog", *["[PAD]"] * 4]
    assert np.shape(long["steps"]["output"]) == np.shape(short["steps"]["output"]) == (6, 100)
    (alone,) = documents("embed", "a dog")
    assert alone["steps"]["output"] == short["steps"]["output"][:2]
    assert "(2, 6, 100)" in run("embed", stdin="the cat sat on the mat\n\na dog\n").stdout


def test_one_line_of_stdin_is_one_text():
    assert documents("embed", stdin="a dog\n") == documents("embed", "a", "dog")


def test_the_walk_names_each_step_and_shape():
    shown = run("embed", "the cat sat on the mat").stdout
    for part in ("tokens", "lookup", "scaled", "position", "output", "(6, 100)", "× √100 = 10", "sinusoidal"):
        assert part in shown
    assert "the row of position 0 again" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line.startswith("  "))
    row = ts.load("wordnet")["cat"]
    assert f"{row[0]:8.3f}{row[1]:8.3f}" in shown


def test_drawn_tables_are_said_to_be_untrained():
    assert "drawn at random, untrained" in run("embed", "cat", "--recipe", "gpt2").stdout
    assert "untrained" not in run("embed", "cat").stdout


def test_unknown_words_are_told_on_stderr():
    result = run("embed", "the blorfle sat")
    assert "'blorfle'" in result.stderr or "blorfle is not in the vocabulary" in result.stderr
    assert "[UNK]" in result.stdout


def test_predictions_and_gradient_in_json():
    (document,) = documents("embed", "the cat and the dog", "--predict", "--gradient")
    assert len(document["predictions"]) == 5
    first = document["predictions"][1][0]
    assert set(first) == {"token", "id", "logit", "probability"}
    assert first["token"] == "cat"
    gradient = document["gradient"]
    assert (gradient["rows_moved"], gradient["rows_in_table"]) == (3, 33_003)
    the = gradient["rows"][0]
    assert (the["token"], the["positions"]) == ("the", [0, 3])
    assert (the["gradient_lookup"], the["gradient_head"]) == pytest.approx((19.46, 4.624), rel=1e-3)
    assert (the["gradient"], the["cosine"]) == pytest.approx((19.36, 0.6198), rel=1e-3)
    assert document["scoring"] == {
        "hidden": "output",
        "rows": "table",
        "no_head": None,
        "untrained": {"rows": 3, "first": ["[PAD]", "[UNK]", "[SEP]"]},
    }


def test_the_gradient_of_a_tied_table_in_the_terminal():
    lines = run("embed", "The cat sat the cat", "--gradient").stdout.splitlines()[-6:]
    assert lines[0].strip() == (
        "guessing costs ln 33,003 = 10.4; position 1 costs most, 194.4: cat is scored 194.4 above sat"
    )
    assert lines[1].split()[:6] == ["lookup", "+", "head", "=", "total", "cosine"]
    rows = {line.split()[0]: line.split()[1:5] for line in lines[2:5]}
    assert rows["cat"][2:] == ["24.14", "0.8945"]
    assert rows["sat"][2:] == ["18.41", "0.8208"]
    assert rows["the"][2:] == ["24.26", "0.5073"]
    assert "the last: no next token" in run("embed", "the dog", "--gradient").stdout


def test_a_loss_below_that_of_guessing_is_not_explained(tmp_path):
    rows = np.array([[0.1, 0.2], [0.1, 0.3], [0.2, 0.1]], np.float32)
    ts.save(ts.Table(rows, ts.Vocab(["a", "cat", "sat"])), tmp_path / "t.vec")
    arguments = ("embed", "a cat", "--gradient", "-t", str(tmp_path / "t.vec"), "--recipe", "llama")
    assert "\n  guessing costs ln 3 = 1.1\n" in run(*arguments).stdout
    ts.save(
        ts.Table(rows[::-1] * np.float32([[9], [1], [1]]), ts.Vocab(["a", "cat", "sat"])), tmp_path / "t.vec"
    )
    assert "position 0 costs most" in run(*arguments).stdout


def test_the_columns_of_a_gradient_stay_apart():
    lines = run("embed", "the cat sat", "--gradient", "--recipe", "llama").stdout.splitlines()
    (the,) = [line.split() for line in lines if "at position 0" in line and "no next" not in line][-1:]
    assert the[:5] == ["the", "2.169", "8.861e-05", "2.169", "0.9902"]


def test_a_token_read_as_a_row_of_zeros_says_so():
    shown = run("embed", "the blorfle", "--predict").stdout
    assert "  [UNK]: read as a row of zeros, never trained; its scores say nothing of it\n" in shown
    assert "read as a row of zeros" not in run("embed", "the cat", "--predict").stdout
    lines = run("embed", "the cat", "--pair", "a dog", "--gradient").stdout.splitlines()
    (sep,) = [line.split() for line in lines if line.startswith("  [SEP]") and "summed" in line]
    assert sep[4] == "none"


def test_a_table_that_train_made_proposes_words(tmp_path):
    (tmp_path / "n.txt").write_text("the cat chased the dog\nthe dog chased the cat\n" * 100)
    table = str(tmp_path / "n.safetensors")
    run("train", str(tmp_path / "n.txt"), "-o", table, "--threads", "1", "--dim", "16", "--epochs", "5")
    shown = run("embed", "the cat", "--predict", "-t", table).stdout
    heading, *rows, left_out = shown.splitlines()[-4:]
    assert "E[id] @ the table's own output rows, as skip-gram was trained" in heading
    assert all("[" not in row for row in rows)
    assert left_out == "  left out: 3 rows of zeros, never trained (id 0, 1, 2)"
    (document,) = documents("embed", "the cat", "--predict", "-t", table)
    assert document["scoring"]["hidden"] == "lookup"


def test_a_change_of_the_text_is_said_where_it_happens():
    lines = run("embed", "The cat The dog").stdout.splitlines()
    assert lines[1] == "normalized the cat the dog"
    assert lines[2].strip().startswith("The → the: changed by the tokenizer")
    assert "normalized" not in run("embed", "the cat").stdout


@pytest.mark.parametrize("name", ["toy.vec", "toy.txt", "toy.safetensors", "toy/"])
def test_a_table_of_words_is_walked_by_words(name, tmp_path):
    rows = np.arange(1, 21, dtype=np.float32).reshape(5, 4) / 10
    ts.save(ts.Table(rows, ts.Vocab(["a", "cat", "sat", "on", "mat"])), f"{tmp_path}/{name}")
    place = str(tmp_path / name)
    result = run("embed", "The cat sat on a mat.", "-t", place, "--json")
    tokens = [token["token"] for token in json.loads(result.stdout)["tokens"]]
    assert tokens == ["cat", "sat", "on", "a", "mat"]
    left_out = "is not in the vocabulary, which has no unknown token: left out"
    assert result.stderr.splitlines() == [f"The {left_out}", f". {left_out}"]
    assert "cat" in run("heatmap", "--text", "the cat", "-t", place).stdout
    refused = CliRunner().invoke(main, ["embed", "zebra", "-t", place])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "no word of a text is in the vocabulary: zebra" in refused.stderr


def test_a_checkpoint_saved_without_its_head_says_what_scores(small_checkpoint, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(small_checkpoint("gpt2").folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    tokenizer = ts.Tokenizer.train_from_iterator(["the cat and the dog sat"])
    (folder / "tokenizer.json").write_text(tokenizer.to_json())
    shown = run("embed", "the cat", "--predict", "-t", str(folder)).stdout
    assert "hidden @ E.T, the same table in place of a head" in shown
    assert "holds no head" in shown
    shown = run("embed", "the cat", "--gradient", "-t", str(folder)).stdout
    assert "holds no head" in shown
    assert "through the table in place of a head: " in shown
    assert "tied head" not in shown
    (document,) = documents("embed", "the cat", "--gradient", "-t", str(folder))
    assert "holds no head" in document["scoring"]["no_head"]


def test_predictions_and_gradient_in_the_terminal():
    shown = run("embed", "the cat and the dog", "--predict", "--gradient").stdout
    assert "cat 100.0%" in shown
    assert "summed over positions 0, 3" in shown
    assert "rows moved through the lookup: 3 of 33,003; through the tied head: 33,003" in shown


@pytest.mark.parametrize("token", ["\x1b[31mred", "\u202eabc", "a\tb", "\n"])
def test_tokens_can_not_drive_the_terminal(token, tmp_path):
    tokenizer = ts.Tokenizer.train_from_iterator(["x y"])
    description = json.loads(tokenizer.to_json())
    description["added_tokens"].append(
        {"id": 5, "content": token, "special": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    )
    tokenizer = ts.Tokenizer.from_json(json.dumps(description))
    table = ts.Table(np.ones((len(tokenizer.vocab), 4), np.float32), tokenizer.vocab, tokenizer)
    ts.save(table, tmp_path / "t")
    result = run("embed", f"x{token}y", "-t", str(tmp_path / "t"))
    assert token not in result.stdout.replace("\n", " ") or token == "\n"
    assert repr(token)[1:-1][:13] in result.stdout


def test_padding_predicts_nothing():
    shown = run("embed", "--predict", "--gradient", stdin="the cat sat on\nthe dog\n").stdout
    predictions = shown[shown.index("predict ") :]
    assert "[PAD]" not in predictions
    assert "the dog" not in predictions
    _, short = documents("embed", "--predict", "--gradient", stdin="the cat sat on\nthe dog\n")
    (alone,) = documents("embed", "the dog", "--predict", "--gradient")
    assert short["predictions"] == alone["predictions"]
    assert short["gradient"] == alone["gradient"]


@pytest.mark.parametrize("columns", [20, 40])
def test_narrow_terminals_cut_rows_rather_than_wrap_them(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = run("embed", "the cat").stdout
    rows = [line for line in shown.splitlines() if line.startswith("  the") and "." in line]
    assert len(rows) == 4
    assert all(len(line) <= columns for line in rows)


def test_a_long_text_shows_its_first_and_last_rows():
    shown = run("embed", " ".join(["cat"] * 100)).stdout
    assert "60 more rows" in shown


@pytest.fixture
def pieces(tmp_path) -> str:
    """A vocab.txt, alone in its folder."""
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\n##s\n")
    return str(tmp_path / "vocab.txt")


def test_splits_in_json(pieces):
    texts = documents("embed", "--split", pieces, "--split", "wordnet", stdin="the cats\ncat\n")
    assert [document["text"] for document in texts] == ["the cats", "cat"]
    assert [split["name"] for split in texts[0]["splits"]] == ["wordnet", pieces]
    assert texts[0]["splits"][1] == {
        "name": pieces,
        "kind": "wordpiece",
        "tokens": ["[CLS]", "the", "cat", "##s", "[SEP]"],
        "ids": [2, 4, 5, 6, 3],
        "added": ["[CLS]", "[SEP]"],
    }
    assert "splits" not in documents("embed", "cat")[0]


def test_splits_in_the_terminal(pieces):
    result = run("embed", "the cats", "--split", pieces)
    assert result.stdout.splitlines()[-5:] == [
        "splits     the cats, as each tokenizer splits it",
        "  wordnet                   word       2 tokens, adds nothing",
        "    the cats",
        "  …" + pieces[-23:] + "  wordpiece  5 tokens, adds [CLS] [SEP]",
        "    [CLS] the cat ##s [SEP]",
    ]
    assert result.stderr == f"{pieces}: text is lower-cased, BERT's default: no file says whether\n"
