"""Special tokens that a folder's settings name: beginning, end, padding and others, and where they are put.

====================================  =======================================================================
``tokenizer_config.json``             ``bos_token`` and the like, ``additional_special_tokens``,
                                      ``add_bos_token``, ``add_eos_token``
``special_tokens_map.json``           the same tokens, where the first has no ``added_tokens_decoder``
====================================  =======================================================================

A token that the vocabulary lacks is added after the last id, in this order: the roles below, then a model's
own (``image_token``), then the others, as transformers' AutoTokenizer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenspace.errors import CheckpointError

if TYPE_CHECKING:
    import tokenizers

    from tokenspace.tokenizer_classes import Frame

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OTHERS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_DECODER = "added_tokens_decoder"


def merged(config: dict[str, Any], special: dict[str, Any]) -> dict[str, Any]:
    """The settings of ``tokenizer_config.json``, and of ``special_tokens_map.json`` where they count."""
    if _DECODER in config:
        return config
    first = {key: config[key] for key in _OTHERS if config.get(key)}
    return {**config, **special, **first}


def content(value: Any) -> str | None:
    """The text of a token in settings: a string, or an object with ``content``; None if it is neither."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def named(settings: dict[str, Any]) -> dict[str, Any]:
    """The special tokens that ``settings`` name, each with its setting, in the order they are added in."""
    found: dict[str, Any] = {}
    for value in _values(settings):
        if text := content(value):
            found.setdefault(text, value)
    return found


def add_named(inner: tokenizers.Tokenizer, settings: dict[str, Any]) -> None:
    """Make the tokens that ``settings`` name special ones of ``inner``."""
    from tokenizers import AddedToken

    held = {token.content for token in inner.get_added_tokens_decoder().values()}
    new = []
    for text, value in named(settings).items():
        if text in held:
            continue
        flags = {key: bool(value[key]) for key in _FLAGS if key in value} if isinstance(value, dict) else {}
        new.append(AddedToken(text, special=True, **flags))
    inner.add_special_tokens(new)  # at once: each call builds the search for them again


def frame_by_flags(inner: tokenizers.Tokenizer, settings: dict[str, Any]) -> None:
    """Have the beginning's and the end's token put around each text, if ``settings`` ask for it."""
    roles = [f"{role}_token" for role in ("bos", "eos") if _flag(settings, f"add_{role}_token")]
    roles = [role for role in roles if content(settings.get(role))]
    if roles:
        begin, end = ([role] if role in roles else [] for role in ("bos_token", "eos_token"))
        single = [*begin, "$A:0", *end]
        second = [f"{part}:1" for part in begin], [f"{part}:1" for part in end]
        frame(inner, settings, (single, [*single, *second[0], "$B:1", *second[1]]))


def frame(inner: tokenizers.Tokenizer, settings: dict[str, Any], parts: Frame) -> None:
    """Have the tokens of the roles in ``parts`` put around a text and a pair; nothing is changed if a role
    has no token.
    """
    from tokenizers import processors

    roles = [part.partition(":")[0] for part in parts[1] if part[0] != "$"]
    if not all(content(settings.get(role)) for role in roles):
        return

    single, pair = ([_written(part, settings) for part in each] for each in parts)
    names = {part.rsplit(":", 1)[0] for part in (*single, *pair) if part[0] != "$"}
    inner.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, inner.token_to_id(name)) for name in sorted(names)]
    )


def _written(part: str, settings: dict[str, Any]) -> str:
    """A part of a template, with the token of its role."""
    name, _, segment = part.partition(":")
    return part if name[0] == "$" else f"{content(settings[name])}:{segment or 0}"


def check_readable(settings: dict[str, Any], file: Any) -> None:
    """``CheckpointError`` names a setting that changes ids and can't be followed here."""
    if _flag(settings, "split_special_tokens"):
        raise CheckpointError(
            f"{file} sets split_special_tokens, with which special tokens in a text are split as others are; "
            "that is not read here: take it away"
        )


def _values(settings: dict[str, Any]) -> list[Any]:
    values = [settings[role] for role in ROLES if settings.get(role)]
    own = {key: value for key, value in settings.items() if key.endswith("_token") and key not in ROLES}
    values += own.values()
    more = next((settings[key] for key in _OTHERS if settings.get(key)), None)  # the first is its new name
    return values + (
        more if isinstance(more, list) else list(more.values()) if isinstance(more, dict) else []
    )


def _flag(settings: dict[str, Any], key: str) -> bool:
    value = settings.get(key)
    if not (value is None or isinstance(value, bool)):
        raise CheckpointError(f"{key} in tokenizer_config.json must be true, false or null, found {value!r}")
    return bool(value)
