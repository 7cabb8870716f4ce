"""How many parameters a checkpoint's files hold, and what its embedding table's share of them is.

Files hold more than parameters: the same numbers under a second name, masks, and ids. What counts is what
training moves, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tokenspace.errors import CheckpointError
from tokenspace.models.open import Checkpoint, same_bits
from tokenspace.models.safetensors import TensorInfo

_BUFFER_NAMES = (".masked_bias", ".inv_freq", "final_logits_bias")  # constants that files store


@dataclass(frozen=True)
class CheckpointParameters:
    """What ``count`` found. ``copies``: tensors left out because another has their numbers, with its name;
    ``buffers``: tensors left out because training moves none of their numbers. ``tied`` is None if neither
    the tensors nor ``config.json`` tell.
    """

    input: TensorInfo
    vocab: int
    dim: int
    embedding: int
    head: int
    total: int
    tied: bool | None
    copies: dict[str, str]
    buffers: tuple[str, ...]

    @property
    def fraction(self) -> float:
        """The embedding table's share of the whole."""
        return self.embedding / self.total


def count(checkpoint: Checkpoint) -> CheckpointParameters:
    """Count every parameter in ``checkpoint``'s files once; ``head`` is what the head adds, its bias with it.

    Sizes come from the headers; numbers are read only to tell whether two tensors are copies: one with the
    input table's shape, and a bias that BERT's kin store under two names. ``CheckpointError`` if the input
    table is not known, or weights are quantized.
    """
    table = checkpoint.input_embedding
    for tensor in checkpoint.tensors.values():
        if not _is_floating(tensor) and tensor.name.endswith("weight"):
            raise CheckpointError(
                f"{checkpoint.folder}: {tensor.name!r} is {tensor.dtype}, a quantized weight, whose shape "
                "need not tell how many parameters it stands for; count the model that it was made from"
            )
    buffers = tuple(name for name, tensor in checkpoint.tensors.items() if _is_buffer(tensor))
    copies = _copies(checkpoint, table)
    counted = {
        name: math.prod(tensor.shape)
        for name, tensor in checkpoint.tensors.items()
        if name not in copies and name not in buffers
    }
    parts = [tensor.name for tensor in (checkpoint.head, checkpoint.head_bias) if tensor]
    head = sum(counted.get(copies.get(name, name), 0) for name in parts)
    if not sum(counted.values()):
        raise CheckpointError(
            f"{checkpoint.folder} holds no parameters: {table.name!r} is {list(table.shape)}"
        )
    vocab, dim = table.shape
    return CheckpointParameters(
        input=table,
        vocab=vocab,
        dim=dim,
        embedding=counted[table.name],
        head=head,
        total=sum(counted.values()),
        tied=checkpoint.tied,
        copies=copies,
        buffers=buffers,
    )


def _copies(checkpoint: Checkpoint, table: TensorInfo) -> dict[str, str]:
    """Each tensor that repeats another, with the other's name."""
    copies = {}
    for name, tensor in checkpoint.tensors.items():
        original = table
        if name.endswith(".decoder.bias"):
            original = checkpoint.tensors.get(name.removesuffix("decoder.bias") + "bias", table)
        if tensor is not original and same_bits(tensor, original):
            copies[name] = original.name
    return copies


def _is_buffer(tensor: TensorInfo) -> bool:
    """A mask, an id, a rotation's frequencies: integers, or what older files are known to store.

    GPT-2's files hold ``attn.bias``, the causal mask as a (1, 1, T, T) tensor of floats.
    """
    mask = tensor.name.endswith(".bias") and len(tensor.shape) == 4
    return not _is_floating(tensor) or mask or tensor.name.endswith(_BUFFER_NAMES)


def _is_floating(tensor: TensorInfo) -> bool:
    return tensor.dtype.startswith(("F", "BF"))
