"""Models of each family, built small and random by transformers and saved: the truth that layers are held to.

The ``small_checkpoint`` fixture (tests/conftest.py) makes each once a session: ``small_checkpoint("bert")``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

V, D, T = 60, 16, 12  # vocabulary rows, width, the most positions


@dataclass
class Spec:
    """How to build a family: ``first`` is its body's first layer, ``head`` the module of the last product."""

    model: str
    first: str
    head: str
    settings: dict[str, Any] = field(default_factory=dict)
    pad: int = 0
    dtype: torch.dtype = torch.float32
    segments: int = 0
    languages: int = 0
    decoder: bool = False  # encoder-decoder: it needs decoder_input_ids too
    hidden_is_output: bool = False  # the hidden state is what ``head`` returns, not what it takes


@dataclass
class SmallModel:
    """A saved model: its ``folder``, the transformers ``module`` in evaluation mode, and how it was built."""

    folder: Path
    module: Any
    spec: Spec

    def inputs(self, padding: str | None = None) -> dict[str, torch.Tensor]:
        """Two texts of 8 tokens for ``module(**inputs)``; the second one padded by 3, "left" or "right"."""
        generator = torch.Generator().manual_seed(1)
        allowed = torch.tensor([i for i in range(V) if i != self.spec.pad])
        ids = allowed[torch.randint(len(allowed), (2, 8), generator=generator)]
        ids[0, 5] = ids[0, 2]
        mask = torch.ones_like(ids)
        if padding:
            place = slice(0, 3) if padding == "left" else slice(5, 8)
            ids[1, place] = self.spec.pad
            mask[1, place] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self.spec.segments:
            inputs["token_type_ids"] = torch.randint(self.spec.segments, ids.shape, generator=generator)
        if self.spec.languages:
            inputs["langs"] = torch.randint(self.spec.languages, ids.shape, generator=generator)
        if self.spec.decoder:
            inputs["decoder_input_ids"] = ids
        return inputs

    def hidden_input(self, **inputs: torch.Tensor) -> torch.Tensor:
        """What the first layer of the body is given, (B, T, D)."""
        return self._given(self.spec.first, inputs)[0]

    def hidden_and_logits(self, **inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The hidden states that the last product takes, and the logits that come out in the end."""
        return self._given(self.spec.head, inputs, output=self.spec.hidden_is_output)

    def _given(self, path: str, inputs: dict[str, torch.Tensor], output: bool = False):
        seen: list[torch.Tensor] = []

        def keep(_module, args, kwargs, result):
            taken = result if output else args[0] if args else kwargs["hidden_states"]
            seen.append(taken.detach().clone())

        handle = attrgetter(path)(self.module).register_forward_hook(keep, with_kwargs=True)
        try:
            with torch.no_grad():
                logits = self.module(**inputs, return_dict=True).logits
        finally:
            handle.remove()
        return seen[0], logits


_ENCODER = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": T,
}
_GPT2 = {"vocab_size": V, "n_embd": D, "n_layer": 1, "n_head": 2, "n_positions": T}
_GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
_LLAMA = _ENCODER | {"num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GEMMA = _LLAMA | {"head_dim": 8}
_T5 = {"vocab_size": V, "d_model": D, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
_T5 |= {"decoder_start_token_id": 0}
_BART = {
    "vocab_size": V,
    "d_model": D,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": T,
}
_OPT = {
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 24,
    "max_position_embeddings": T,
    "word_embed_proj_dim": D,
}
_XLM = {"vocab_size": V, "emb_dim": D, "n_layers": 1, "n_heads": 2, "max_position_embeddings": T}
_ROBERTA = _ENCODER | {"pad_token_id": 1, "max_position_embeddings": T + 2, "type_vocab_size": 1}

SPECS: dict[str, Spec] = {
    "bert": Spec("BertForMaskedLM", "bert.encoder.layer.0", "cls.predictions.decoder", _ENCODER, segments=2),
    "roberta": Spec("RobertaForMaskedLM", "roberta.encoder.layer.0", "lm_head.decoder", _ROBERTA, pad=1),
    **{
        f"roberta-padding-{name}": Spec(
            "RobertaForMaskedLM",
            "roberta.encoder.layer.0",
            "lm_head.decoder",
            _ROBERTA | {"pad_token_id": pad, "max_position_embeddings": T + pad + 1},
            pad=pad,
        )
        for name, pad in {"0": 0, "3": 3, "last": V - 1}.items()
    },
    "xlm-roberta": Spec(
        "XLMRobertaForMaskedLM", "roberta.encoder.layer.0", "lm_head.decoder", _ROBERTA, pad=1
    ),
    "camembert": Spec("CamembertForMaskedLM", "roberta.encoder.layer.0", "lm_head.decoder", _ROBERTA, pad=1),
    "distilbert": Spec(
        "DistilBertForMaskedLM",
        "distilbert.transformer.layer.0",
        "vocab_projector",
        {
            "vocab_size": V,
            "dim": D,
            "n_layers": 1,
            "n_heads": 2,
            "hidden_dim": 24,
            "max_position_embeddings": T,
        },
    ),
    "albert": Spec(
        "AlbertForMaskedLM",
        "albert.encoder.albert_layer_groups.0",
        "predictions.decoder",
        _ENCODER | {"embedding_size": 6},
        segments=2,
    ),
    "electra": Spec(
        "ElectraForMaskedLM",
        "electra.encoder.layer.0",
        "generator_lm_head",
        _ENCODER | {"embedding_size": D},
        segments=2,
    ),
    "electra-projected": Spec(
        "ElectraForMaskedLM",
        "electra.encoder.layer.0",
        "generator_lm_head",
        _ENCODER | {"embedding_size": 6},
        segments=2,
    ),
    "deberta-v3": Spec(
        "DebertaV2ForMaskedLM",
        "deberta.encoder.layer.0",
        "cls.predictions.decoder",
        _ENCODER
        | {
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_biased_input": False,
            "pos_att_type": ["p2c", "c2p"],
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_buckets": 4,
        },
    ),
    "modernbert": Spec(
        "ModernBertForMaskedLM",
        "model.layers.0",
        "decoder",
        _ENCODER
        | {"pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
        pad=3,
    ),
    "xlm": Spec(
        "XLMWithLMHeadModel",
        "transformer.attentions.0",
        "pred_layer.proj",
        _XLM | {"n_langs": 3, "use_lang_emb": True},
        pad=2,
        languages=3,
    ),
    "xlm-sinusoidal": Spec(
        "XLMWithLMHeadModel",
        "transformer.attentions.0",
        "pred_layer.proj",
        _XLM | {"n_langs": 1, "sinusoidal_embeddings": True},
        pad=2,
    ),
    "gpt2": Spec("GPT2LMHeadModel", "transformer.h.0", "lm_head", _GPT2),
    "gptj": Spec("GPTJForCausalLM", "transformer.h.0", "lm_head", _GPT2 | {"rotary_dim": 4}),
    "gpt_neox": Spec("GPTNeoXForCausalLM", "gpt_neox.layers.0", "lm_head", _ENCODER),
    "opt": Spec("OPTForCausalLM", "model.decoder.layers.0", "lm_head", _OPT, pad=1),
    "opt-projected": Spec(
        "OPTForCausalLM",
        "model.decoder.layers.0",
        "lm_head",
        _OPT | {"word_embed_proj_dim": 6, "do_layer_norm_before": False},
        pad=1,
    ),
    "bloom": Spec(
        "BloomForCausalLM",
        "transformer.h.0",
        "lm_head",
        {"vocab_size": V, "hidden_size": D, "n_layer": 1, "n_head": 2, "pad_token_id": 3},
        pad=3,
    ),
    "t5": Spec(
        "T5ForConditionalGeneration",
        "encoder.block.0",
        "decoder.final_layer_norm",
        _T5,
        decoder=True,
        hidden_is_output=True,
    ),
    "t5-untied": Spec("T5ForConditionalGeneration", "encoder.block.0", "lm_head", _T5, decoder=True),
    "mt5": Spec("MT5ForConditionalGeneration", "encoder.block.0", "lm_head", _T5, decoder=True),
    "bart": Spec(
        "BartForConditionalGeneration", "model.encoder.layers.0", "lm_head", _BART, pad=1, decoder=True
    ),
    "mbart": Spec(
        "MBartForConditionalGeneration",
        "model.encoder.layers.0",
        "lm_head",
        _BART | {"scale_embedding": True},
        pad=1,
        decoder=True,
    ),
    "llama": Spec("LlamaForCausalLM", "model.layers.0", "lm_head", _LLAMA),
    "llama-tied": Spec(
        "LlamaForCausalLM", "model.layers.0", "lm_head", _LLAMA | {"tie_word_embeddings": True}
    ),
    "mistral": Spec("MistralForCausalLM", "model.layers.0", "lm_head", _LLAMA),
    "qwen2": Spec("Qwen2ForCausalLM", "model.layers.0", "lm_head", _LLAMA),
    "qwen3": Spec("Qwen3ForCausalLM", "model.layers.0", "lm_head", _GEMMA),
    "gemma": Spec("GemmaForCausalLM", "model.layers.0", "lm_head", _GEMMA),
    "gemma-bf16": Spec(
        "GemmaForCausalLM",
        "model.layers.0",
        "lm_head",
        _GEMMA | {"hidden_size": 12},  # sqrt(12) is not exact in bfloat16
        dtype=torch.bfloat16,
    ),
    "gemma2": Spec(
        "Gemma2ForCausalLM", "model.layers.0", "lm_head", _GEMMA | {"final_logit_softcapping": 5.0}
    ),
    "gemma3": Spec("Gemma3ForCausalLM", "model.layers.0", "lm_head", _GEMMA),
    "gemma3-images": Spec(
        "Gemma3ForConditionalGeneration",
        "model.language_model.layers.0",
        "lm_head",
        {
            "text_config": _GEMMA,
            "vision_config": {
                "hidden_size": D,
                "intermediate_size": 24,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 28,
                "patch_size": 14,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": V,
            "boi_token_index": V,
            "eoi_token_index": V,
        },
    ),
    "falcon": Spec(
        "FalconForCausalLM",
        "transformer.h.0",
        "lm_head",
        {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 1, "num_attention_heads": 2},
    ),
    "mpt": Spec(
        "MptForCausalLM",
        "transformer.blocks.0",
        "lm_head",
        {"vocab_size": V, "d_model": D, "n_layers": 1, "n_heads": 2, "max_seq_len": T},
    ),
    "phi": Spec("PhiForCausalLM", "model.layers.0", "lm_head", _LLAMA | {"num_key_value_heads": 2}),
    "mamba": Spec(
        "MambaForCausalLM",
        "backbone.layers.0",
        "lm_head",
        {"vocab_size": V, "hidden_size": D, "num_hidden_layers": 1, "state_size": 4},
    ),
    "granite": Spec(
        "GraniteForCausalLM",
        "model.layers.0",
        "lm_head",
        _LLAMA | {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "tie_word_embeddings": True},
    ),
    "cohere": Spec("CohereForCausalLM", "model.layers.0", "lm_head", _LLAMA | {"logit_scale": 0.0625}),
}

_OWN_HEADS = ("t5-untied", "mt5")  # transformers ties every T5 it makes; the hub's files hold a second table


def build(name: str, folder: Path) -> SmallModel:
    """Make the model ``name`` of SPECS, each number of it drawn at random, and save it in ``folder``."""
    spec = SPECS[name]
    model = getattr(transformers, spec.model)
    settings = dict(spec.settings)
    if name in _OWN_HEADS:
        settings["tie_word_embeddings"] = False
    torch.manual_seed(0)
    module = model(model.config_class(**settings)).to(spec.dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
        if hasattr(module, "final_logits_bias"):
            module.final_logits_bias.normal_()
    module.save_pretrained(folder)
    if name in _OWN_HEADS:
        _own_head(module, folder)
    return SmallModel(folder, module, spec)


def _own_head(module: Any, folder: Path) -> None:
    module.lm_head.weight = torch.nn.Parameter(torch.randn(V, D))
    tensors = load_file(folder / "model.safetensors")
    save_file(
        tensors | {"lm_head.weight": module.lm_head.weight.detach()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    config = json.loads((folder / "config.json").read_text())
    config.pop("scale_decoder_outputs", None)
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))


def cached(make_folder: Callable[[str], Path]) -> Callable[[str], SmallModel]:
    """``build``, each name once."""
    made: dict[str, SmallModel] = {}

    def small_checkpoint(name: str) -> SmallModel:
        if name not in made:
            made[name] = build(name, make_folder(name))
        return made[name]

    return small_checkpoint
