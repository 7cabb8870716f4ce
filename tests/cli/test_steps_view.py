import os

import numpy as np
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

import tokenspace as ts
from tokenspace.cli import main
from tokenspace.walk import Pipeline


def drawn(*arguments: str, stdin: str | None = None, columns: int = 80) -> str:
    environment = {"COLUMNS": str(columns)}
    result = CliRunner().invoke(
        main, ["embed", "--steps", *arguments], input=stdin, env=environment, catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    return result.stdout


def boxes(drawing: str) -> list[list[str]]:
    """The lines inside each box."""
    found: list[list[str]] = []
    for line in drawing.splitlines():
        if line.startswith("┌"):
            found.append([])
        elif line.startswith("│"):
            found[-1].append(line.strip("│").strip())
    return found


def test_every_step_of_the_recipe_is_a_box_and_no_other():
    names = [box[0].split()[0] for box in boxes(drawn("The cat sat"))]
    assert names == ["text", "tokens", "ids", "lookup", "scaled", "position", "dropout", "output"]
    names = [box[0].split()[0] for box in boxes(drawn("The cat", "--recipe", "bert"))]
    assert names[3:] == ["lookup", "position", "segment", "normalized", "dropout", "output"]
    names = [box[0].split()[0] for box in boxes(drawn("The cat", "--recipe", "llama"))]
    assert names[3:] == ["lookup", "output"]


def test_a_box_holds_the_shape_and_the_first_tokens_numbers():
    (walk,) = Pipeline.open().walk(["The cat sat"])
    by_name = {box[0].split()[0]: " ".join(box) for box in boxes(drawn("The cat sat"))}
    assert "(3,) the cat sat" in " ".join(by_name["tokens"].split())
    ids = " ".join(str(ts.load("wordnet").vocab.id(token)) for token in ("the", "cat", "sat"))
    assert ids in " ".join(by_name["ids"].split())
    for name in ("lookup", "scaled", "position", "output"):
        assert "(3, 100)" in by_name[name]
        row = walk.steps[name][0]
        assert f"{row[0]:8.3f}{row[1]:8.3f}" in by_name[name]
        assert by_name[name].endswith(f"…{row[-1]:8.3f}")
    assert "× √100 = 10" in by_name["scaled"]
    assert "position 0" in by_name["position"]
    np.testing.assert_allclose(
        walk.steps["output"][0], walk.steps["scaled"][0] + walk.steps["position"][0], atol=1e-6
    )


def test_a_batch_has_three_axes():
    drawing = drawn(stdin="the cat sat on the mat\na dog\n")
    assert "(2, 6)" in drawing
    assert drawing.count("(2, 6, 100)") == 4
    assert "the first of 2" in drawing


def test_a_pair_and_what_was_drawn_at_random():
    drawing = drawn("the cat", "--pair", "a dog")
    assert "the cat  +  a dog" in drawing
    assert "segment 0" in drawing
    assert "drawn at random, untrained" in drawing


def test_boxes_are_joined_and_lead_to_the_transformer():
    lines = drawn("The cat sat").splitlines()
    middles = {line.index(joint) for line in lines for joint in "┬▼┴" if joint in line}
    assert len(middles) == 1
    assert lines[-1].strip() == "the transformer's first layer"
    assert sum("▼" in line for line in lines) == sum(line.startswith("└") for line in lines) == 8


@pytest.mark.parametrize("columns", [12, 20, 41, 80, 200])
@pytest.mark.parametrize("text", ["The cat sat", "東京 タワー " * 20, "cat " * 100])
def test_the_box_is_as_wide_as_it_should_be(columns, text):
    lines = [
        line for line in drawn(text, "--recipe", "bert", columns=columns).splitlines() if line[0] in "┌│└"
    ]
    assert {cell_len(line) for line in lines} == {min(columns, 80)}
    assert {line[-1] for line in lines} == set("┐│┘")


def test_predictions_follow_the_drawing():
    drawing = drawn("the cat", "--predict")
    assert drawing.index("the transformer's first layer") < drawing.index("cat 100.0%")
    assert os.linesep + "predict " in drawing
