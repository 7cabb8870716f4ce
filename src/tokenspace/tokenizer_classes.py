"""Special tokens and frames that transformers' tokenizer classes set by themselves.

The class is named by ``tokenizer_config.json``, else by ``config.json``, else it follows from the model's
type. Source: huggingface/transformers 5.24, ``models/*/tokenization_*.py`` and ``models/auto``.

====================================  =======================================================================
``defaults(name)``                    the special tokens of a class, for each role that no file names
``frame(name, json)``                 the tokens around a text and a pair, where the class replaces those of
                                      ``tokenizer.json``; None where it keeps them
====================================  =======================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

BERT = (
    *("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "SqueezeBert", "LayoutLM", "Lxmert"),
    *("RoFormer", "DPRQuestionEncoder", "LayoutLMv2"),
)
ROBERTA = ("Roberta", "Bart", "Longformer", "LED", "Mvp", "MPNet", "LayoutLMv3", "MarkupLM")
_END = "<|endoftext|>"
_SENTENCE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_BERT = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
_ROBERTA = {
    **_SENTENCE,
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "mask_token": "<mask>",
}
_ALBERT = {**_BERT, "bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "pad_token": "<pad>"}
_QWEN = {"eos_token": _END, "unk_token": _END, "pad_token": _END}
_DEFAULTS: dict[str, dict[str, str]] = {
    **dict.fromkeys(BERT, _BERT),
    **dict.fromkeys((*ROBERTA, "XLMRoberta", "Camembert"), _ROBERTA),
    "MPNet": {**_ROBERTA, "unk_token": "[UNK]"},
    "Albert": _ALBERT,
    "BigBird": {**_ALBERT, "bos_token": "<s>", "eos_token": "</s>"},
    "RemBert": _ALBERT,
    "Deberta": {**_BERT, "bos_token": "[CLS]", "eos_token": "[SEP]"},
    "DebertaV2": {**_BERT, "bos_token": "[CLS]", "eos_token": "[SEP]"},
    **dict.fromkeys(("GPT2", "Whisper"), dict.fromkeys(("bos_token", "eos_token", "unk_token"), _END)),
    **dict.fromkeys(("Qwen2", "Qwen3_5"), _QWEN),
    "GPTNeoX": {"bos_token": _END, "eos_token": _END, "unk_token": _END, "pad_token": "<|padding|>"},
    "CLIP": {**_QWEN, "bos_token": "<|startoftext|>"},
    **dict.fromkeys(("Llama", "CodeLlama"), _SENTENCE),
    "Gemma": {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Cohere": {
        "bos_token": "<BOS_TOKEN>",
        "eos_token": "<|END_OF_TURN_TOKEN|>",
        "unk_token": "<UNK>",
        "sep_token": "<SEP>",
        "pad_token": "<PAD>",
        "cls_token": "<CLS>",
        "mask_token": "<MASK_TOKEN>",
    },
    "T5": {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
}
_PIECES = {
    **dict.fromkeys((*BERT, "MPNet"), "WordPiece"),
    **dict.fromkeys(
        ("Albert", "BigBird", "RemBert", "DebertaV2", "XLMRoberta", "Camembert", "T5"), "Unigram"
    ),
}
"""The kind of pieces that a class splits words into; BPE, if it is not here."""
Frame = tuple[list[str], list[str]]
"""The parts of a text and of a pair: roles, ``$A:0`` and ``$B:1``."""


def _frame(begin: str, end: str, pair: str) -> Frame:
    return [begin, "$A:0", end], [begin, "$A:0", end, *pair.split()]


_LIKE_BERT = _frame("cls_token", "sep_token", "$B:1 sep_token:1")
_LIKE_ROBERTA = _frame("cls_token", "sep_token", "sep_token $B:0 sep_token")
_BY_ENDS = _frame("bos_token", "eos_token", "eos_token $B:0 eos_token")
_FRAMES: dict[str, Frame] = {
    **dict.fromkeys((*BERT, "Albert", "BigBird", "RemBert", "DebertaV2"), _LIKE_BERT),
    **dict.fromkeys((*ROBERTA, "Deberta"), _LIKE_ROBERTA),
    **dict.fromkeys(("XLMRoberta", "Camembert", "CLIP"), _BY_ENDS),
    "T5": (["$A:0", "eos_token"], ["$A:0", "eos_token", "$B:0", "eos_token"]),
    "GPTNeoX": (["$A:0"], ["$A:0", "$B:1"]),
}
_OF_CLASS = """
Bert: align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino
    layoutlm megatron-bert mm-grounding-dino mobilebert nezha nomic_bert qdqbert realm retribert
    squeezebert tvp vilt visual_bert
GPT2: blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip instructblipvideo
    jais2 opt phi starcoder2
Qwen2: audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl internvl lighton_ocr
    moss_transcribe_diarize ovis2 qianfan_ocr qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl
    qwen3 qwen3_asr qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice
Qwen3_5: qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp
GPTNeoX: falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm
Roberta: bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta roberta-prelayernorm
XLMRoberta: gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod
Gemma: diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2
    t5gemma zaya
Cohere: aya_vision cohere cohere2
CLIP: aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip
T5: mt5 musicgen musicgen_melody switch_transformers t5
Albert: albert yoso
Llama: idefics idefics2
Deberta: deberta
DebertaV2: deberta-v2
Camembert: camembert
BigBird: big_bird
MPNet: mpnet
RemBert: rembert
Whisper: whisper
Lxmert: lxmert
LED: led
Mvp: mvp
LayoutLMv3: layoutlmv3
CodeLlama: code_llama
"""
"""Models' types by the class that reads their tokenizer; an indented line goes on with the one before."""
_TYPES = {
    kind: line.partition(":")[0]
    for line in _OF_CLASS.replace("\n    ", " ").strip().splitlines()
    for kind in line.partition(":")[2].split()
}
BERT_TYPES = tuple(kind for kind, name in _TYPES.items() if name == "Bert")
GPT2_TYPES = tuple(kind for kind, name in _TYPES.items() if name == "GPT2")
_FILE_ALONE = """
EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm cohere_asr ernie4_5
ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2
gpt_bigcode gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared h2ovl_chat hyperclovax
hyperclovax_vlm internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next
mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3
mistral mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo molmo2 nemo_speechlm nemotron
nvfp4 nystromformer olmo2 olmo3 olmo_hybrid omniasr opencua openvla paddleocr_vl pegasus_x persimmon phi3
phi3_v phimoe pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava voxtral
voxtral_realtime xlm-roberta-xl
"""
"""Models' types whose tokenizer.json counts, whatever class the folder names."""
_BY_TYPE = ("qwen2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp", "hyperclovax_vision_v2")
"""Models' types whose class counts, whatever class the folder names."""


def class_name(config: Mapping[str, Any], model: Mapping[str, Any], described: Mapping[str, Any]) -> str:
    """Return the class, without ``Tokenizer`` and ``Fast``, that reads a folder's ``tokenizer.json``; "" for
    one that takes the file as it is.

    >>> class_name({"tokenizer_class": "LlamaTokenizerFast"}, {"model_type": "llama"}, {})
    'Llama'
    >>> class_name({"tokenizer_class": "LlamaTokenizerFast"}, {"model_type": "mistral"}, {})
    ''
    """
    kind = model.get("model_type")
    kind = kind if isinstance(kind, str) else ""
    named = next((each["tokenizer_class"] for each in (config, model) if each.get("tokenizer_class")), None)
    if kind in _BY_TYPE or not isinstance(named, str):
        name = _TYPES.get(kind, "")
    else:
        name = "" if kind in _FILE_ALONE.split() else named.removesuffix("Fast").removesuffix("Tokenizer")
    steps = json.dumps([described.get("pre_tokenizer"), described.get("decoder")])
    if name == "Llama" and "ByteLevel" in steps:
        return ""
    pieces = described.get("model")
    pieces = pieces.get("type") if isinstance(pieces, dict) else None
    return name if pieces in (None, _PIECES.get(name, "BPE")) else ""  # a class of another kind can't read it


def defaults(name: str) -> dict[str, str]:
    """Return the special token of each role that the class sets where no file does."""
    return _DEFAULTS.get(name, {})


def frame(name: str) -> Frame | None:
    """Return the parts that the class puts around texts in place of the file's; None if it keeps those."""
    return _FRAMES.get(name)
