import dataclasses
import math

import pytest
import torch

from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe

FREE_OF_SOURCE = {"name", "sources"}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_every_number_of_a_recipe_has_a_source(recipe):
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}
    stated = {name for name in defaults.keys() - FREE_OF_SOURCE if getattr(recipe, name) != defaults[name]}
    assert stated <= recipe.sources.keys()
    assert recipe.sources.keys() <= defaults.keys()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_names_what_its_recipe_adds(family):
    assert (family.position is not None) == (family.recipe.positions == "learned")
    assert (family.segment is not None) == (family.recipe.segments > 0)
    assert (family.layer_norm is not None) == (family.recipe.layer_norm_eps is not None)
    assert (family.layer_norm_eps_key is not None) == (family.layer_norm is not None)
    assert (family.dropout_key is not None) == (family.recipe.dropout > 0)


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
