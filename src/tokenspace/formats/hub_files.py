"""Which files of a repository hold its table: told by their names, and by the few small ones that say more.

A repository is one of these, the first that fits:

1. a StaticEmbedding or model2vec folder: ``modules.json`` says where its weights and tokenizer are;
2. a model's checkpoint: ``config.json``, the tokenizer's files, and ``model.safetensors``, or its index and
   only the shards that hold the embedding layer and the head; ``pytorch_model.bin`` where there are neither;
3. GGUF files alone: the only one, or all parts of the only model;
4. word vectors: the only file that can be a table, with the list of tokens beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath

from tokenspace import bounded_json, tokenizer_files
from tokenspace.errors import CheckpointError
from tokenspace.models.family import Family
from tokenspace.models.open import INDEX, PICKLE, PICKLE_INDEX, WEIGHTS
from tokenspace.models.recognition import recognised
from tokenspace.models.roles import bearing_family_names, is_head
from tokenspace.models.safetensors import listed
from tokenspace.models.shards import json_object, places
from tokenspace.models.siblings import part_names
from tokenspace.models.vocabulary import LINES

Read = Callable[[str], Path]  # a file by its name in the repository -> where it is on this machine
CONFIG, MODULES = "config.json", "modules.json"
GGUF = ".gguf"
TABLES = (".vec", ".bin", ".txt", ".npy", ".npz", ".safetensors", ".pt", ".pth", ".zip", ".gz")
_WITH_TOKENS_BESIDE = (".safetensors", ".npy", ".npz", ".bin", ".pt", ".pth")
_NO_TABLES = {
    tokenizer_files.VOCAB_TXT,
    tokenizer_files.MERGES,
    "requirements.txt",
    "license.txt",
    "readme.txt",
    "training_args.bin",
    "optimizer.bin",
    "optimizer.pt",
    "scheduler.pt",
    "scheduler.bin",
}
_CONFIGS = (tokenizer_files.CONFIG, tokenizer_files.ADDED, tokenizer_files.SPECIAL)


def safe(name: str) -> bool:
    """Whether a name stays within its repository's folder, on any system."""
    parts = name.split("/")
    return not any(part in ("", ".", "..") or set(part) & set("\\\0:") for part in parts)


def table_file(names: Collection[str], name: str, read: Read) -> Path:
    """One file, with what names its rows beside it."""
    _read_all([*_beside(names, name), *_parts(names, name)], read)
    return read(name)


def table(names: Collection[str], read: Read, repository: str) -> Path:
    """The folder, or the file, that holds the repository's table, with every file that opening it needs.

    ``CheckpointError``, naming ``repository``, if there is none, or several that no rule tells apart.
    """
    if MODULES in names and (held := _static(names, read)):
        return _folder([MODULES, *held], read)
    if CONFIG in names:
        weights = next((name for name in (WEIGHTS, INDEX, PICKLE, PICKLE_INDEX) if name in names), None)
        if weights in (INDEX, PICKLE_INDEX):
            return _sharded(names, weights, read, repository)
        if weights:
            modules = [MODULES] if MODULES in names else []
            return _folder([CONFIG, *modules, *_tokenizer(names), weights], read)
    held = [name for name in names if name.lower().endswith(GGUF)]
    kind = "GGUF files"
    if not held:
        held, kind = [name for name in names if _may_be_a_table(name)], "files that may be a table"
    if len(held) == 1 or (held and len(held) == len(_parts(names, held[0])) and kind == "GGUF files"):
        return table_file(names, min(held), read)
    if held:
        raise CheckpointError(
            f"{repository} has {len(held):,} {kind}; name one, as {repository}/{min(held)}: "
            f"{listed(sorted(held), 12)}"
        )
    raise CheckpointError(f"{repository} holds no table: its files are {listed(sorted(names), 12)}")


def _static(names: Collection[str], read: Read) -> list[str]:
    """The files of a sentence-transformers StaticEmbedding; none if the repository is something else."""
    held = []
    for kind, path in _modules(read(MODULES))[:1]:
        if kind.rsplit(".", 1)[-1] == "StaticEmbedding":
            folder = f"{path}/" if path and path != "." else ""
            weights = next((name for name in (WEIGHTS, PICKLE) if folder + name in names), WEIGHTS)
            wanted = (folder + weights, folder + tokenizer_files.JSON, CONFIG)
            held = [name for name in wanted if name in names]
    return held


def _modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each step that ``modules.json`` lists; none if it lists nothing."""
    try:
        steps = bounded_json.parse(path.read_bytes())
    except (OSError, ValueError):
        return []
    if not isinstance(steps, list):
        return []
    objects = [step for step in steps if isinstance(step, dict)]
    return [
        (str(step.get("type")), str(step.get("path", "")).removeprefix("./").strip("/")) for step in objects
    ]


def _sharded(names: Collection[str], index: str, read: Read, repository: str) -> Path:
    root = _folder([CONFIG, index], read)
    where = places(root / index, json_object(root / index))
    family, prefix = recognised(json_object(root / CONFIG), where)
    if family is not None:
        wanted = {where[name] for name in _layer(family, prefix, where)}
        return _folder([*_tokenizer(names), *_there(wanted, names, index, repository)], read)
    bearing = {where[name] for name in bearing_family_names(where)}
    if len(bearing) == 1:
        (shard,) = _there(bearing, names, index, repository)
        _read_all(_there({where[name] for name in where if is_head(name)}, names, index, repository), read)
        return table_file(names, shard, read)
    shards = sorted(set(where.values()))
    raise CheckpointError(
        f"{repository}: its model type is not a known family, and {len(shards)} files hold its tensors; name "
        f"the one with the input table, as {repository}/{shards[0] if shards else WEIGHTS}"
    )


def _layer(family: Family, prefix: str, where: Collection[str]) -> list[str]:
    """The tensors of the embedding layer and the head that the files hold."""
    parts = ("weight", "bias", "gamma", "beta")
    called: list[str | None] = [family.token, *family.token_copies, family.head]
    called += [family.head_bias, family.untied_head_bias, family.position, family.segment]
    called += [extra.tensor for extra in (family.extras or {}).values()]
    called += [f"{both}.{part}" for both in (family.layer_norm, family.projection) if both for part in parts]
    forms = (form for name in called if name for form in (prefix + name, name))
    return [name for name in dict.fromkeys(forms) if name in where]


def _there(wanted: Iterable[str], names: Collection[str], index: str, repository: str) -> list[str]:
    for name in sorted(wanted):
        if name not in names:
            raise CheckpointError(f"{repository} has no {name}, which its {index} names")
    return sorted(wanted)


def _tokenizer(names: Collection[str], folder: str = "") -> list[str]:
    """The files of a folder's tokenizer, those alone that are read."""
    held = [name for name in tokenizer_files.TOKENIZER_FILES if folder + name in names]
    if tokenizer_files.JSON in held:
        held = [tokenizer_files.JSON]
    elif tokenizer_files.MERGES in held:
        held = [name for name in held if name != tokenizer_files.VOCAB_TXT]
    return [folder + name for name in (*held, *_CONFIGS) if folder + name in names]


def _beside(names: Collection[str], name: str) -> list[str]:
    """What may name the rows of the table in file ``name``, and say which tensor it is."""
    path = PurePosixPath(name)
    if path.suffix.lower() not in _WITH_TOKENS_BESIDE:
        return []
    folder = name.removesuffix(path.name)
    lines = folder + path.stem + LINES
    tokens = [lines] if lines in names else _tokenizer(names, folder)
    return [*tokens, *([folder + CONFIG] if folder + CONFIG in names else [])]


def _parts(names: Collection[str], name: str) -> list[str]:
    """The files of the GGUF model that ``name`` is a part of; none if it is no part."""
    path = PurePosixPath(name)
    if path.suffix.lower() != GGUF:
        return []
    folder = name.removesuffix(path.name)
    return [folder + part for part in part_names(path.name) or [] if folder + part in names]


def _may_be_a_table(name: str) -> bool:
    lowered = PurePosixPath(name).name.lower()
    return lowered.endswith(TABLES) and lowered not in _NO_TABLES and not lowered.endswith(LINES)


def _folder(names: list[str], read: Read) -> Path:
    """The folder that holds these files of the repository."""
    first = _read_all(names, read)[0]
    return first.parents[len(PurePosixPath(names[0]).parts) - 1]


def _read_all(names: list[str], read: Read) -> list[Path]:
    return [read(name) for name in names]
