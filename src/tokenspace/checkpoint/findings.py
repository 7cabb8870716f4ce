"""The parts of an audit: tensors with their roles, findings, the evidence of tying."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tokenspace.checkpoint.parameters import CheckpointParameters
from tokenspace.special_tokens import SpecialToken


class TensorRole(NamedTuple):
    """A tensor of the embedding layer or head, or any other with a vocabulary's dimension ("unknown")."""

    name: str
    role: str
    shape: tuple[int, ...]
    dtype: str
    shard: str


class Finding(NamedTuple):
    """A fault (``error``: a token id without a row, a head or table that a reload draws at random), a doubt
    (``warning``), or a fact worth knowing (``info``); and how to fix it. Following ``fix`` to the letter
    never changes what the model computes.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    message: str
    fix: str


class Tying(NamedTuple):
    """The three kinds of evidence: ``config.json``'s flag, a head's own tensor in the files, and equality of
    bits.
    """

    flag: bool | None
    stored: str | None
    equal: bool | None


@dataclass(frozen=True)
class Audit:
    """Result of ``audit`` and ``audit_gguf``. ``rows`` and ``parameters`` are None where the input table is
    not known, ``parameters`` too where files are missing, ``largest_id`` where there is no tokenizer, whose
    ``special`` tokens are then unknown, too.
    """

    family: str | None
    tensors: list[TensorRole]
    tied: bool | None
    tying: Tying
    rows: int | None
    largest_id: int | None
    parameters: CheckpointParameters | None
    findings: list[Finding]
    special: list[SpecialToken] = field(default_factory=list)
    has_config: bool = True  # a GGUF file has no config.json

    @property
    def failed(self) -> bool:
        """Return whether any finding is an error."""
        return any(finding.severity == "error" for finding in self.findings)


def by_severity(findings: list[Finding]) -> list[Finding]:
    """Errors first, then warnings."""
    return sorted(findings, key=lambda finding: ("error", "warning", "info").index(finding.severity))
