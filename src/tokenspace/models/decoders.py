"""Decoders: GPT-2, LLaMA and those after them, which predict the next token."""

from __future__ import annotations

from dataclasses import replace

from tokenspace.models.family import Family, Recipe

_GPT2 = "openai/gpt-2 src/model.py"
_LLAMA = "meta-llama/llama llama/model.py"
_TRANSFORMERS = "huggingface/transformers 5.24"

GPT2_RECIPE = Recipe(
    name="gpt2",
    positions="learned",
    max_positions=1024,
    dropout=0.1,
    token_std=0.02,
    position_std=0.01,
    sources={
        "positions": f"{_GPT2}, model: wpe",
        "max_positions": f"{_GPT2}, default_hparams: n_ctx",
        "dropout": "Radford et al. 2018 (GPT), section 4.1; GPT-2's released code has none",
        "token_std": f"{_GPT2}, model: wte",
        "position_std": f"{_GPT2}, model: wpe",
    },
)

LLAMA_RECIPE = Recipe(
    name="llama",
    token_std=0.02,
    sources={
        "positions": f"{_LLAMA}, Transformer.forward: none added; rotary positions live in its attention",
        "token_std": f"{_TRANSFORMERS} LlamaConfig.initializer_range ({_LLAMA} leaves the rows undrawn)",
    },
)


def _rows_alone(name: str, std: float = 0.02, positions: str = "rotary", **numbers: object) -> Recipe:
    """A lookup and nothing else; positions, if any, live in attention."""
    config = f"{_TRANSFORMERS} configuration_{name}.py"
    sources = {"positions": f"{_TRANSFORMERS} modeling_{name}.py: {positions}, none added"}
    sources |= dict.fromkeys(("token_std", *numbers), f"{config}, with modeling_{name}.py")
    return Recipe(name=name, sources=sources, token_std=std, **numbers)  # type: ignore[arg-type]


GPT2 = Family(
    name="gpt2",
    model_types=("gpt2",),
    prefixes=("transformer.", ""),
    token="wte.weight",
    position="wpe.weight",
    dropout_key="embd_pdrop",
    head="lm_head.weight",
    tied=True,
    recipe=GPT2_RECIPE,
    source=f"{_GPT2}; {_TRANSFORMERS} modeling_gpt2.py for the tensors' names",
)

GPTJ = Family(
    name="gptj",
    model_types=("gptj",),
    prefixes=("transformer.", ""),
    token="wte.weight",
    dropout_key="embd_pdrop",
    head="lm_head.weight",
    head_bias="lm_head.bias",
    tied=False,
    recipe=_rows_alone("gptj"),
    source=f"{_TRANSFORMERS} modeling_gptj.py",
)

GPT_NEOX = Family(
    name="gpt_neox",
    model_types=("gpt_neox",),
    prefixes=("gpt_neox.", ""),
    token="embed_in.weight",
    dropout_key="hidden_dropout",
    head="embed_out.weight",
    tied=False,
    recipe=_rows_alone("gpt_neox"),
    source=f"{_TRANSFORMERS} modeling_gpt_neox.py",
)

OPT = Family(
    name="opt",
    model_types=("opt",),
    prefixes=("model.decoder.", "decoder.", ""),
    token="embed_tokens.weight",
    position="embed_positions.weight",
    position_offset=2,
    position_padding="mask",
    projection="project_in",
    projection_bias=False,
    head="lm_head.weight",
    tied=True,
    padding_id=1,
    recipe=Recipe(
        name="opt",
        positions="learned",
        max_positions=2048,
        token_std=0.02,
        position_std=0.02,
        padding_zeroed=True,
        sources={
            "positions": f"{_TRANSFORMERS} modeling_opt.py, OPTLearnedPositionalEmbedding",
            "max_positions": f"{_TRANSFORMERS} configuration_opt.py, max_position_embeddings",
            "token_std": f"{_TRANSFORMERS} configuration_opt.py, init_std",
            "position_std": f"{_TRANSFORMERS} configuration_opt.py, init_std",
            "padding_zeroed": f"{_TRANSFORMERS} modeling_opt.py: embed_tokens' padding_idx",
        },
    ),
    source=f"{_TRANSFORMERS} modeling_opt.py",
)

BLOOM = Family(
    name="bloom",
    model_types=("bloom",),
    prefixes=("transformer.", ""),
    token="word_embeddings.weight",
    layer_norm="word_embeddings_layernorm",
    layer_norm_eps_key="layer_norm_epsilon",
    head="lm_head.weight",
    tied=True,
    recipe=_rows_alone("bloom", positions="ALiBi", layer_norm_eps=1e-5),
    source=f"{_TRANSFORMERS} modeling_bloom.py",
)

FALCON = Family(
    name="falcon",
    model_types=("falcon",),
    prefixes=("transformer.", ""),
    token="word_embeddings.weight",
    head="lm_head.weight",
    tied=True,
    recipe=_rows_alone("falcon", positions="rotary or ALiBi"),
    source=f"{_TRANSFORMERS} modeling_falcon.py",
)

MPT = Family(
    name="mpt",
    model_types=("mpt",),
    prefixes=("transformer.", ""),
    token="wte.weight",
    head="lm_head.weight",
    tied=True,
    recipe=_rows_alone("mpt", positions="ALiBi"),
    source=f"{_TRANSFORMERS} modeling_mpt.py",
)

MAMBA = Family(
    name="mamba",
    model_types=("mamba",),
    prefixes=("backbone.", ""),
    token="embeddings.weight",
    head="lm_head.weight",
    tied=True,
    recipe=_rows_alone("mamba", std=0.1, positions="a state space model"),
    source=f"{_TRANSFORMERS} modeling_mamba.py",
)

LLAMA = Family(
    name="llama",
    model_types=("llama",),
    prefixes=("model.", ""),
    token="embed_tokens.weight",
    head="lm_head.weight",
    tied=False,
    recipe=LLAMA_RECIPE,
    source=f"{_LLAMA}; {_TRANSFORMERS} modeling_llama.py for the tensors' names",
)


def _like_llama(name: str, recipe: Recipe | None = None, **facts: object) -> Family:
    """LLaMA's names, with what differs."""
    changed: dict[str, object] = {
        "model_types": (name,),
        "recipe": recipe or _rows_alone(name, padding_zeroed=True),
        "source": f"{_TRANSFORMERS} modeling_{name}.py",
    }
    return replace(LLAMA, name=name, **(changed | facts))  # type: ignore[arg-type]


PHI = _like_llama("phi", head_bias="lm_head.bias", dropout_key="embd_pdrop")
GRANITE = _like_llama("granite", scale_key="embedding_multiplier", logit_divisor_key="logits_scaling")
COHERE = _like_llama("cohere", tied=True, padding_id=0, logit_scale_key="logit_scale", logit_scale=0.0625)


def _gemma(name: str, **facts: object) -> Family:
    """Rows are multiplied by sqrt(D), rounded to their own dtype: 55.5 for D 3,072 in bfloat16."""
    recipe = Recipe(
        name=name,
        scaled=True,
        token_std=0.01,
        padding_zeroed=True,
        sources={
            "positions": f"{_TRANSFORMERS} modeling_{name}.py: rotary, none added",
            "scaled": f"google-deepmind/gemma Embedder.encode; {_TRANSFORMERS} modeling_{name}.py",
            "token_std": "google-deepmind/gemma Embedder: flax's nn.initializers.normal(), 0.01; "
            f"{_TRANSFORMERS} configuration_{name}.py has 0.02",
            "padding_zeroed": f"{_TRANSFORMERS} modeling_{name}.py: embed_tokens' padding_idx",
        },
    )
    return _like_llama(name, recipe, tied=True, padding_id=0, scale_in_weights_dtype=True, **facts)


GEMMA = _gemma("gemma")
GEMMA2 = _gemma("gemma2", soft_cap_key="final_logit_softcapping", soft_cap=30.0)
GEMMA3 = _gemma(
    "gemma3",
    model_types=("gemma3_text", "gemma3"),
    prefixes=("model.", "model.language_model.", "language_model.model.", ""),  # with images: the latter
    soft_cap_key="final_logit_softcapping",
)

DECODERS = (
    GPT2,
    GPTJ,
    GPT_NEOX,
    OPT,
    BLOOM,
    FALCON,
    MPT,
    MAMBA,
    LLAMA,
    _like_llama("mistral"),
    _like_llama("qwen2"),
    _like_llama("qwen3"),
    PHI,
    GRANITE,
    COHERE,
    GEMMA,
    GEMMA2,
    GEMMA3,
)
