"""Questions to whole checkpoints, answered from their files' headers."""

from tokenspace.checkpoint.audit import Audit, Finding, TensorRole, Tying, audit
from tokenspace.checkpoint.parameters import CheckpointParameters, count

__all__ = ["Audit", "CheckpointParameters", "Finding", "TensorRole", "Tying", "audit", "count"]
