"""Special tokens that a folder's settings name: beginning, end, padding and others, and where they are put.

====================================  =======================================================================
``tokenizer_config.json``             ``bos_token`` and the like, ``additional_special_tokens``,
                                      ``add_bos_token``, ``add_eos_token``
``special_tokens_map.json``           the same tokens, where the first has no ``added_tokens_decoder``
====================================  =======================================================================

A token that the vocabulary lacks is added after the last id, in this order: the roles below, then the others,
as transformers' AutoTokenizer does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenspace.errors import CheckpointError

if TYPE_CHECKING:
    import tokenizers

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_OTHERS = ("extra_special_tokens", "additional_special_tokens")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
_DECODER = "added_tokens_decoder"


def merged(config: dict[str, Any], special: dict[str, Any]) -> dict[str, Any]:
    """The settings of ``tokenizer_config.json``, and of ``special_tokens_map.json`` where they count."""
    return config if _DECODER in config else {**config, **special}


def content(value: Any) -> str | None:
    """The text of a token in settings: a string, or an object with ``content``; None if it is neither."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def add_named(inner: tokenizers.Tokenizer, settings: dict[str, Any], default: str | None = None) -> None:
    """Make the tokens that ``settings`` name special ones of ``inner``. ``default`` is the name of a text's
    beginning and end where nothing is said of them.
    """
    from tokenizers import AddedToken

    held = {token.content for token in inner.get_added_tokens_decoder().values()}
    named: dict[str, Any] = {}
    for value in _values(settings):
        named.setdefault(content(value) or "", value)
    named.pop("", None)
    unsaid = default if any(role not in settings for role in ROLES[:3]) else None
    if unsaid is not None and (inner.token_to_id(unsaid) is not None or _is_missing(inner, named)):
        named = {unsaid: unsaid, **named}
    new = []
    for text, value in named.items():
        if text in held:
            continue
        flags = {key: bool(value[key]) for key in _FLAGS if key in value} if isinstance(value, dict) else {}
        new.append(AddedToken(text, special=True, **flags))
    inner.add_special_tokens(new)  # at once: each call builds the search for them again


def frame(inner: tokenizers.Tokenizer, settings: dict[str, Any], default: str) -> None:
    """Have the beginning's and the end's token put around each text, if ``settings`` ask for it."""
    from tokenizers import processors

    asked = [role for role in ("bos", "eos") if _flag(settings, f"add_{role}_token")]
    named = {role: content(settings.get(f"{role}_token", default)) for role in asked}
    tokens = {role: token for role, token in named.items() if token is not None}
    if not tokens:
        return
    parts = [tokens.get("bos"), "$", tokens.get("eos")]
    single, second = (
        [f"{'$' + name if part == '$' else part}:{segment}" for part in parts if part]
        for name, segment in (("A", 0), ("B", 1))
    )
    ids = [(token, inner.token_to_id(token)) for token in dict.fromkeys(tokens.values())]
    inner.post_processor = processors.TemplateProcessing(
        single=single, pair=[*single, *second], special_tokens=ids
    )


def check_readable(settings: dict[str, Any], file: Any) -> None:
    """``CheckpointError`` names a setting that changes ids and can't be followed here."""
    if _flag(settings, "split_special_tokens"):
        raise CheckpointError(
            f"{file} sets split_special_tokens, with which special tokens in a text are split as others are; "
            "that is not read here: take it away"
        )


def _values(settings: dict[str, Any]) -> list[Any]:
    values = [settings[role] for role in ROLES if settings.get(role)]
    for key in _OTHERS:
        more = settings.get(key)
        values += more if isinstance(more, list) else list(more.values()) if isinstance(more, dict) else []
        if more:
            break  # the first is the second's new name
    return values + [
        value
        for key, value in settings.items()
        if key.endswith("_token") and key not in ROLES and content(value)
    ]


def _is_missing(inner: tokenizers.Tokenizer, named: dict[str, Any]) -> bool:
    return any(inner.token_to_id(text) is None for text in named)


def _flag(settings: dict[str, Any], key: str) -> bool:
    value = settings.get(key)
    if not (value is None or isinstance(value, bool)):
        raise CheckpointError(f"{key} in tokenizer_config.json must be true, false or null, found {value!r}")
    return bool(value)
