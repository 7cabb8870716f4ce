"""What the bodies of transformer models are built of, as data: all that a parameter count needs beside sizes.

Two models with the same sizes differ by biases, norms, gates, and what stands before the head. Each
``Architecture`` states these once; ``models.parameters`` holds the formula and ``models.sizes`` the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Positions = Literal["learned", "rotary", "ALiBi", "relative", "none"]


@dataclass(frozen=True)
class Architecture:
    """The traits of one kind of body.

    ``counted_as``: the class of huggingface/transformers that has exactly these parameters, None if there is
    none. ``norm_vectors``: numbers that a norm holds for each channel: 2 for LayerNorm (scale and shift), 1
    for RMSNorm and for a LayerNorm without shift. ``gated``: the feed-forward has a third matrix, whose
    output multiplies that of the first. ``query_key_norm``: queries and keys are normed, head by head.
    ``encoder_decoder``: two stacks of ``layers`` each, the second one with cross-attention.
    ``shared_layers``: one layer's parameters serve at every depth. ``state_space``: Mamba's block stands in
    for attention and feed-forward. ``relative_buckets``: T5's table of one number a bucket and head, once a
    stack. ``positions_in_body``: learned positions are added after the projection, at the body's width.
    ``relative_rows``: DeBERTa's table of relative positions, rows of width D, with a norm of its own.

    ``head``: ``plain`` is one product with the (V, D) table; ``transform`` is BERT's, a D × D product and a
    norm before that; ``detector`` tells replaced tokens (ELECTRA) and scores no vocabulary.
    """

    counted_as: str | None
    positions: Positions
    norm_vectors: Literal[1, 2] = 2
    norms_per_layer: int = 2
    embedding_norm: bool = False
    final_norm: bool = True
    query_key_norm: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    gated: bool = False
    ffn_bias: bool = False
    projection_bias: bool = False
    positions_in_body: bool = False
    encoder_decoder: bool = False
    shared_layers: bool = False
    state_space: bool = False
    relative_buckets: int = 0
    relative_rows: int = 0
    head: Literal["plain", "transform", "detector"] = "plain"
    head_bias: bool = False


GPT2 = Architecture("GPT2LMHeadModel", "learned", qkv_bias=True, output_bias=True, ffn_bias=True)
GPT3 = replace(
    GPT2, counted_as=None
)  # Brown et al. 2020, 2.1: GPT-2's but for sparse attention: no parameters
OPT = replace(GPT2, counted_as="OPTForCausalLM")
OPT_POST_NORM = replace(OPT, final_norm=False, positions_in_body=True)  # 350m alone
BLOOM = replace(GPT2, counted_as="BloomForCausalLM", positions="ALiBi", embedding_norm=True)
GPT_NEOX = replace(GPT2, counted_as="GPTNeoXForCausalLM", positions="rotary")
GPT_J = Architecture("GPTJForCausalLM", "rotary", norms_per_layer=1, ffn_bias=True, head_bias=True)
PHI = replace(GPT_J, counted_as="PhiForCausalLM", qkv_bias=True, output_bias=True)
FALCON = Architecture("FalconForCausalLM", "rotary", norms_per_layer=1)  # 7b: attention and FFN share a norm
FALCON_TWO_NORMS = replace(FALCON, norms_per_layer=2)  # 40b: a norm each
MPT = Architecture("MptForCausalLM", "ALiBi", norm_vectors=1)

BERT = Architecture(
    "BertForMaskedLM",
    "learned",
    embedding_norm=True,
    final_norm=False,
    qkv_bias=True,
    output_bias=True,
    ffn_bias=True,
    projection_bias=True,
    head="transform",
    head_bias=True,
)
ROBERTA = replace(BERT, counted_as="RobertaForMaskedLM")
XLM_ROBERTA = replace(BERT, counted_as="XLMRobertaForMaskedLM")
DISTILBERT = replace(BERT, counted_as="DistilBertForMaskedLM")
ALBERT = replace(BERT, counted_as="AlbertForMaskedLM", shared_layers=True)
ELECTRA = replace(BERT, counted_as="ElectraForPreTraining", head="detector", head_bias=False)
DEBERTA_V3 = replace(BERT, counted_as="DebertaV2ForMaskedLM", positions="relative", relative_rows=512)

T5 = Architecture(
    "T5ForConditionalGeneration", "relative", norm_vectors=1, encoder_decoder=True, relative_buckets=32
)
T5_GATED = replace(T5, gated=True)  # v1.1 and Flan
MT5 = replace(T5_GATED, counted_as="MT5ForConditionalGeneration")

LLAMA = Architecture("LlamaForCausalLM", "rotary", norm_vectors=1, gated=True)
MISTRAL = replace(LLAMA, counted_as="MistralForCausalLM")
PHI3 = replace(LLAMA, counted_as="Phi3ForCausalLM")
QWEN2 = replace(LLAMA, counted_as="Qwen2ForCausalLM", qkv_bias=True)
QWEN3 = replace(LLAMA, counted_as="Qwen3ForCausalLM", query_key_norm=True)
GEMMA = replace(LLAMA, counted_as="GemmaForCausalLM")
GEMMA2 = replace(LLAMA, counted_as="Gemma2ForCausalLM", norms_per_layer=4)
GEMMA3 = replace(GEMMA2, counted_as="Gemma3ForCausalLM", query_key_norm=True)

MAMBA = Architecture("MambaForCausalLM", "none", norm_vectors=1, norms_per_layer=1, state_space=True)
