"""Questions to whole checkpoints, answered from their files' headers."""

from tokenspace.checkpoint.audit import audit
from tokenspace.checkpoint.findings import Audit, Finding, TensorRole, Tying
from tokenspace.checkpoint.gguf import audit_gguf
from tokenspace.checkpoint.parameters import CheckpointParameters, count

__all__ = ["Audit", "CheckpointParameters", "Finding", "TensorRole", "Tying", "audit", "audit_gguf", "count"]
