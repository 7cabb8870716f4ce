"""What is known of real models, as data: families, recipes, sizes; and checkpoints, opened by header."""

from tokenspace.models import parameters, sizes
from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe
from tokenspace.models.open import Checkpoint, load_table, open_checkpoint

__all__ = [
    "FAMILIES",
    "RECIPES",
    "Checkpoint",
    "Family",
    "Recipe",
    "load_table",
    "open_checkpoint",
    "parameters",
    "sizes",
]
