"""Questions to whole checkpoints, answered from their files' headers."""

from tokenspace.checkpoint.parameters import CheckpointParameters, count

__all__ = ["CheckpointParameters", "count"]
