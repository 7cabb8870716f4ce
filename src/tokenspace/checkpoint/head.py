"""Findings on a model's head: whether it is stored, tied, of the right size, and what a reload makes of it.

Each fix was applied to small models and reloaded with huggingface/transformers 5.24, which gives the same
logits afterwards (``tests/checkpoint/test_head_fixes.py``).
"""

from __future__ import annotations

import re

from tokenspace.checkpoint.findings import Finding, Tying
from tokenspace.models.open import Checkpoint, same_bits
from tokenspace.models.roles import is_head
from tokenspace.models.safetensors import TensorInfo

_SCORING = re.compile(
    r"(ForCausalLM|LMHeadModel|LMHead|ForMaskedLM|ForConditionalGeneration|ForPreTraining|ForSeq2SeqLM|"
    r"ForTextToText|ForSpeechToText|ForVisionText2Text|BertGenerationDecoder)$"
)
_NO_SCORES = {"ElectraForPreTraining"}  # it tells replaced tokens from others
_FLAG_TIES_STACKS = ("bart", "mbart")  # T5 and mT5 share the table between their stacks in any case


def scores_tokens(checkpoint: Checkpoint) -> bool | None:
    """Return whether the classes that ``config.json`` names as architectures have a head over the vocabulary;
    None if it names none.
    """
    named = checkpoint.config.get("architectures")
    if not isinstance(named, list) or not named:
        return None
    return any(isinstance(each, str) and _SCORING.search(each) and each not in _NO_SCORES for each in named)


def tying_of(checkpoint: Checkpoint, table: TensorInfo | None) -> Tying:
    """The evidence of tying in the files."""
    flag = checkpoint.setting("tie_word_embeddings")
    stored = checkpoint.stored_head
    return Tying(
        flag if isinstance(flag, bool) else None,
        stored.name if stored else None,
        same_bits(stored, table) if stored and table is not None else None,
    )


def check_head(checkpoint: Checkpoint, table: TensorInfo, tying: Tying) -> list[Finding]:
    """Findings on the head of a checkpoint whose input table is known."""
    findings = _table_name(checkpoint, table, tying) + _stacks(checkpoint, table, tying)
    own, rows = checkpoint.head, table.shape[0]
    if own is not None and tying.flag:
        message = f"config.json says that {own.name!r} is tied to {table.name!r}, but they differ"
        findings.append(Finding("tie-flag", "warning", message, _untie(checkpoint)))
    if own is not None and own.shape != table.shape:
        message = (
            f"{own.name!r} is {list(own.shape)}, the table {table.name!r} {list(table.shape)}: their rows "
            "are not the same tokens', or their widths differ"
        )
        fix = "take both from the model that they were trained in; for a table alone: convert --tensor NAME"
        findings.append(Finding("head-rows", "warning", message, fix))
    if tying.equal:
        findings.append(_copy(checkpoint, tying))
    if tying.stored is None and not checkpoint.tied and not _is_table(checkpoint, table):
        findings += _no_head(checkpoint, table)
    findings += _bias(checkpoint, tying, own, rows)
    return findings


def _is_table(checkpoint: Checkpoint, table: TensorInfo) -> bool:
    return checkpoint.family is not None and checkpoint.find(checkpoint.family.head) == table


def _table_name(checkpoint: Checkpoint, table: TensorInfo, tying: Tying) -> list[Finding]:
    """Return the findings on a table that is stored under another of its names."""
    family = checkpoint.family
    if family is None or table.name in (checkpoint.prefix + family.token, family.token):
        return []
    message = f"the input table is stored as {table.name!r}, the other name of a tied pair, not as "
    message += f"{checkpoint.prefix + family.token!r}"
    if tying.flag is False and not family.hidden_scale_keys and _is_table(checkpoint, table):
        message += "; but config.json says that they are not tied: a reload starts the table at random"
        fix = "set tie_word_embeddings to true"
        return [Finding("table-untied", "error", message, fix)]
    fix = "nothing: transformers 5 ties both to the name that is there"
    return [Finding("table-name", "info", message, fix)]


def _stacks(checkpoint: Checkpoint, table: TensorInfo, tying: Tying) -> list[Finding]:
    """The finding on stacks of an encoder-decoder that share the table by the flag alone, and it is false."""
    family = checkpoint.family
    if family is None or family.name not in _FLAG_TIES_STACKS or tying.flag is not False:
        return []
    missing = [name for name in family.token_copies if checkpoint.find(name) is None]
    if not missing:
        return []
    message = (
        f"config.json ties nothing, and {', '.join(map(repr, missing))} are not stored: a reload starts "
    )
    message += f"them at random beside {table.name!r}"
    fix = "store a copy of the table under each of these names"
    if tying.stored is None or tying.equal:
        fix = "set tie_word_embeddings to true"
    return [Finding("stacks-untied", "error", message, fix)]


def _copy(checkpoint: Checkpoint, tying: Tying) -> Finding:
    """A head that repeats the table may go where a reload would tie it, and nowhere else."""
    message = f"{tying.stored!r} repeats the table, bit by bit"
    family = checkpoint.family
    tied = tying.flag if tying.flag is not None else None if family is None else family.tied
    if tied:
        fix = "nothing; it may be left out, since a reload ties it to the table"
        return Finding("head-copy", "info", message, fix)
    said = "says that they are not tied" if tying.flag is False else "doesn't tie them"
    message += f"; config.json {said}: a reload needs both"
    return Finding("head-copy", "info", message, "keep it: without it a reload starts the head at random")


def _untie(checkpoint: Checkpoint) -> str:
    """How to make the flag agree with a head that differs, without a change of what the model computes."""
    family = checkpoint.family
    keep = "keep both tensors: transformers 5 loads them as they are, older versions tie them and lose one"
    if family is not None and family.hidden_scale_keys:
        return f"{keep}; the flag can't be cleared, since it also scales the decoder's output"
    if family is not None and family.token_copies:
        return f"{keep}; the flag can't be cleared, since it also ties both stacks to the table"
    if family is not None and family.untied_head_bias:
        bias = family.untied_head_bias
        return f"{keep}; if you set tie_word_embeddings to false, store the head's bias as {bias!r} too"
    return "set tie_word_embeddings to false" + _where(checkpoint) + ", or a version that ties them loses one"


def _where(checkpoint: Checkpoint) -> str:
    """Where the flag stands, if not at the top of ``config.json``."""
    return "" if "tie_word_embeddings" in checkpoint.config else " in config.json's text_config"


def _no_head(checkpoint: Checkpoint, table: TensorInfo) -> list[Finding]:
    family, scores = checkpoint.family, scores_tokens(checkpoint)
    if family is None and (scores is None or _may_have_a_head(checkpoint, table)):
        return []
    called = f" ({family.head!r})" if family else ""
    message = f"no head is stored{called}, and none is tied"
    if scores is False:
        return [Finding("no-head", "info", message, "nothing: this architecture scores no tokens")]
    if scores is None:
        message += "; config.json names no architecture that would need one"
        return [Finding("no-head", "info", message, "nothing, if the model scores no tokens")]
    named = ", ".join(map(str, checkpoint.config["architectures"][:2]))
    message += f", but {named} scores tokens: a program that loads it draws the head at random"
    fix = (
        "take the files from where they are whole; if the model was trained tied, set tie_word_embeddings to "
        "true; if it is to give vectors alone, name its base class in architectures"
    )
    return [Finding("no-head", "error", message, fix)]


def _may_have_a_head(checkpoint: Checkpoint, table: TensorInfo) -> bool:
    """Return whether a tensor beside the table may be the head of a family that is not known."""
    return any(
        is_head(name) or table.shape[0] in tensor.shape
        for name, tensor in checkpoint.tensors.items()
        if name != table.name
    )


def _bias(checkpoint: Checkpoint, tying: Tying, own: TensorInfo | None, rows: int) -> list[Finding]:
    family = checkpoint.family
    if family is None or family.head_bias is None:
        return []
    bias, name = checkpoint.head_bias, checkpoint.head_bias_name
    if bias is not None:
        scored = own.shape[0] if own is not None else rows
        if bias.shape[-1:] == (scored,):
            return []
        message = f"{bias.name!r} has {list(bias.shape)} numbers for a head of {scored:,} rows"
        fix = "take it from the model that it was trained in: one number is needed for each row"
        return [Finding("head-bias-rows", "warning", message, fix)]
    if family.head_bias_from_zero:
        return []
    if tying.stored:
        message = f"{tying.stored!r} is stored without its bias, {name!r}"
        fix = "add it from the model that it was trained in: transformers starts it at zero"
        return [Finding("head-bias-missing", "warning", message, fix)]
    if not checkpoint.tied:
        return []  # no-head says it
    message = f"no head is stored, nor its bias ({name!r})"
    if scores_tokens(checkpoint):
        named = ", ".join(map(str, checkpoint.config["architectures"][:2]))
        message += f", but {named} scores tokens: transformers starts what is missing anew"
        fix = "take the files from where they are whole, or name the base class in architectures"
        return [Finding("head-bias-missing", "warning", message, fix)]
    message += ": the model was saved without one"
    return [Finding("no-head", "info", message, "nothing, if the model scores no tokens")]
