"""What is known of real models: families and recipes as data, and checkpoints opened by their headers."""

from tokenspace.models.families import FAMILIES, RECIPES, Family, Recipe
from tokenspace.models.open import Checkpoint, load_table, open_checkpoint

__all__ = ["FAMILIES", "RECIPES", "Checkpoint", "Family", "Recipe", "load_table", "open_checkpoint"]
