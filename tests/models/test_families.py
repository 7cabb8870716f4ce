import dataclasses
import math

import pytest
import torch

from tokenspace.errors import CheckpointError
from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe, find

FREE_OF_SOURCE = {"name", "sources"}


ALL_RECIPES = {id(recipe): recipe for recipe in (*RECIPES.values(), *(family.recipe for family in FAMILIES))}


@pytest.mark.parametrize("recipe", ALL_RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_number_of_a_recipe_has_a_source(recipe):
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}
    stated = {name for name in defaults.keys() - FREE_OF_SOURCE if getattr(recipe, name) != defaults[name]}
    assert stated <= recipe.sources.keys()
    assert recipe.sources.keys() <= defaults.keys()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_names_what_its_recipe_adds(family):
    recipe = family.recipe
    assert recipe.name == family.name
    if family.position_setting is None:
        assert (family.position is not None) == (recipe.positions == "learned")
    assert (recipe.max_positions is not None) == (recipe.positions == "learned")
    assert (recipe.position_std is not None) == (recipe.positions == "learned")
    assert (recipe.segment_std is not None) == (recipe.segments > 0)
    assert family.segment is not None or not recipe.segments
    assert (family.layer_norm is not None) == (recipe.layer_norm_eps is not None)
    assert family.layer_norm is not None or family.layer_norm_eps_key is None
    assert family.dropout_key is not None or not recipe.dropout


@pytest.mark.parametrize(
    ("name", "family"), [("bert", "bert"), ("deberta-v2", "deberta-v3"), ("gemma3_text", "gemma3")]
)
def test_a_family_is_found_by_its_name_or_a_model_type(name, family):
    assert find(name).name == family


def test_a_family_that_is_not_known():
    with pytest.raises(CheckpointError, match=r"'llamma' is not a known family; close names: 'llama'"):
        find("llamma")
    with pytest.raises(CheckpointError, match=r"'zzzz' is not a known family; known: bert, roberta"):
        find("zzzz")


def test_no_two_families_claim_one_model_type():
    claimed = [kind for family in FAMILIES for kind in family.model_types]
    assert len(claimed) == len(set(claimed))


def test_facts_can_not_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        FAMILIES[0].tied = False  # type: ignore[misc]
    assert dataclasses.is_dataclass(Family)


def test_bert_true_std_is_what_its_source_note_says():
    cut = torch.nn.init.trunc_normal_(torch.empty(400_000), std=0.02, a=-0.04, b=0.04)
    assert math.isclose(float(cut.std()), 0.0176, rel_tol=0.01)
    assert "0.0176" in RECIPES["bert"].sources["truncated"]
