"""The sizes of well-known models, as data: one line a model, one source a family.

A line gives the name, D, layers, heads and the feed-forward's width F; what a family's models have in common
stands once above them. ``vocab`` counts the table's rows and ``tokens`` those that the tokenizer names: rows
past them are padding, for even sizes. Of models that also see images, the part for text is counted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tokenspace.errors import CheckpointError
from tokenspace.models import architectures as kinds
from tokenspace.models.architectures import Architecture


@dataclass(frozen=True)
class Model:
    """One model's sizes. ``tied`` is None where no head scores the vocabulary.

    ``kv_heads``: heads of keys and values where they are fewer; ``head_dim``: a head's width where it is not
    D / heads; ``own_table_width``: the table's width where it is not D; ``position_rows``: rows of a learned
    table of positions, with those that a family leaves unused (RoBERTa, OPT: 2); ``layers``: of each of the
    two stacks in an encoder-decoder.
    """

    name: str
    width: int
    layers: int
    heads: int
    ffn: int
    family: str
    architecture: Architecture
    vocab: int
    tokens: int
    tokenizer: str
    tied: bool | None
    source: str
    kv_heads: int | None = None
    head_dim: int | None = None
    own_table_width: int | None = None
    position_rows: int = 0
    segments: int = 0

    @property
    def table_width(self) -> int:
        return self.own_table_width or self.width

    @property
    def projected(self) -> bool:
        """Whether a projection stands between the table and the body."""
        return self.table_width != self.width

    @property
    def head_size(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def inner(self) -> int:
        """All queries of a token together."""
        return self.heads * self.head_size

    @property
    def kv_inner(self) -> int:
        """All keys of a token together; its values are as many."""
        return (self.kv_heads or self.heads) * self.head_size


def find(name: str) -> Model:
    """The model that a person means by ``name``: any case, with or without its owner and its hyphens, by one
    of its ``ALIASES`` too, and without the words that change no size (``-hf``, ``-Instruct``).

    >>> find("Meta-Llama/llama 3.2-1B-Instruct").name
    'llama-3.2-1b'
    >>> find("gtp2")
    Traceback (most recent call last):
    ...
    tokenspace.errors.CheckpointError: 'gtp2' is neither a known model nor a checkpoint's folder or a table;
    close names: 'gpt2'; `tokenspace params` lists all
    """
    key = _plain(name)
    known = {_plain(model): model for model in MODELS}
    aliases = {_plain(alias): model for alias, model in ALIASES.items()}
    for spelled in (key, _without_tuning(name)):
        if spelled in known or spelled in aliases:
            return MODELS[known.get(spelled) or aliases[spelled]]
    near = [known[other] for other in known if key and (other.startswith(key) or key.startswith(other))]
    near += [known[other] for other in difflib.get_close_matches(key, known, n=3, cutoff=0.7)]
    close = f"close names: {', '.join(repr(other) for other in dict.fromkeys(near[:4]))}; " if near else ""
    raise CheckpointError(
        f"{name!r} is neither a known model nor a checkpoint's folder or a table; {close}"
        "`tokenspace params` lists all"
    )


def _plain(name: str) -> str:
    owner_and_name = re.fullmatch(r"[^./~][^/]*/([^/]+)", name)  # not a path: ./gpt2, /models/gpt2, ~/gpt2
    return re.sub(r"[^a-z0-9./]", "", (owner_and_name[1] if owner_and_name else name).lower())


def _without_tuning(name: str) -> str:
    """``name`` without the words that say how a model was packed or tuned; v1_1 is v1.1 in some names."""
    return _plain(re.sub(r"(?<=\d)_(?=\d)", ".", _NO_SIZE.sub("", name)))


_NO_SIZE = re.compile(r"(?<![a-z0-9])(?:meta|hf|instruct|chat|it)(?=[-_ ]|$)", re.IGNORECASE)

# Names by which people know a model, or one of the same sizes
ALIASES = {
    "bloom-176b": "bloom",
    "gpt3-175b": "gpt3",
    "llama-30b": "llama-33b",  # its files' name
    "llama-3.1-8b": "llama-3-8b",
    "llama-3.1-70b": "llama-3-70b",
    "llama-3.3-70b": "llama-3-70b",
    "mistral-7b": "mistral-7b-v0.1",
    "phi-3-mini-4k": "phi-3-mini",
}

_WORDPIECE = "WordPiece"
_UNIGRAM = "Unigram"
_BYTE_BPE = "byte-level BPE"
_BPE = "BPE, byte fallback"  # of characters; what the vocabulary lacks is spelled in bytes

SOURCES = {
    "ALBERT": "Lan et al. 2020, table 1 and section 3.1",
    "BERT": "Devlin et al. 2019, section 3; vocab.txt of google-research/bert's files",
    "BLOOM": "BigScience Workshop 2022, table 3; config.json of bigscience/bloom-*",
    "DeBERTa-v3": "He et al. 2021 (DeBERTaV3); config.json of microsoft/deberta-v3-*; transformers#19301",
    "DistilBERT": "Sanh et al. 2019, section 3; BERT's tokenizer",
    "DistilGPT-2": "config.json of distilbert/distilgpt2; GPT-2's tokenizer",
    "ELECTRA": "Clark et al. 2020, appendix A (the discriminators); BERT's tokenizer",
    "Falcon": "Almazrouei et al. 2023; config.json of tiiuae/falcon-*",
    "Gemma 1": "Gemma Team 2024, tables 1 and 2 (there F counts both halves of the gate, rows are 256,128)",
    "Gemma 2": "Gemma Team 2024 (Gemma 2), tables 1 and 2 (there F counts both halves of the gate)",
    "Gemma 3": "Gemma Team 2025 (Gemma 3), table 1; config.json of google/gemma-3-*",
    "GPT-2": "Radford et al. 2019, table 2 and section 2.3; openai/gpt-2 src/model.py",
    "GPT-3": "Brown et al. 2020, tables 2.1 and D.1; GPT-2's tokenizer",
    "GPT-J": "kingoflolz/mesh-transformer-jax README; GPT-2's tokenizer",
    "GPT-NeoX": "Black et al. 2022, section 2; EleutherAI/gpt-neox configs/20B.yml",
    "LLaMA 1": "Touvron et al. 2023, table 2 and section 2.1; meta-llama/llama llama/model.py (F)",
    "LLaMA 2": "Touvron et al. 2023 (Llama 2), section 2.2; config.json of meta-llama/Llama-2-*",
    "LLaMA 3": "Grattafiori et al. 2024, table 3; config.json of meta-llama/Llama-3.2-*",
    "Mamba": "Gu & Dao 2023; config.json of state-spaces/mamba-*-hf; GPT-NeoX's tokenizer",
    "Mistral": "Jiang et al. 2023, table 1; mistralai/mistral-inference README (v0.3)",
    "MPT": "mosaicml/llm-foundry scripts/train/yamls/pretrain; GPT-NeoX's tokenizer",
    "mT5": "Xue et al. 2021, section 3.2; config.json of google/mt5-*",
    "OPT": "Zhang et al. 2022, table 1; facebookresearch/metaseq projects/OPT",
    "Phi": "Li et al. 2023 (phi-1.5), section 2.1; config.json of microsoft/phi-*",
    "Phi-3": "Abdin et al. 2024 (Phi-3), section 2; config.json of microsoft/Phi-3-mini-4k-instruct",
    "Pythia": "Biderman et al. 2023, table 1; EleutherAI/pythia models/*.yml",
    "Qwen 2.5": "Qwen Team 2024 (Qwen2.5), table 1; config.json of Qwen/Qwen2.5-* (D, F, rows)",
    "Qwen 3": "Qwen Team 2025 (Qwen3), table 1; config.json of Qwen/Qwen3-* (D, F, rows)",
    "RoBERTa": "Liu et al. 2019, section 4.4 and table 9; fairseq's dictionary of GPT-2's tokens",
    "T5": "Raffel et al. 2020, sections 2.2 and 3.7; transformers#8643 (rows and tokens)",
    "T5 v1.1": "google-research/text-to-text-transfer-transformer released_checkpoints.md; Flan-T5 too",
    "XLM-RoBERTa": "Conneau et al. 2020, section 3; fairseq's dictionary",
}


def _family(
    family: str, architecture: Architecture, vocab: int, tokens: int, tokenizer: str, **common: Any
) -> Callable[..., Model]:
    return partial(
        Model,
        **{
            "family": family,
            "architecture": architecture,
            "vocab": vocab,
            "tokens": tokens,
            "tokenizer": tokenizer,
            "source": SOURCES[family],
            **common,
        },
    )


_distilgpt2 = _family("DistilGPT-2", kinds.GPT2, 50257, 50257, _BYTE_BPE, tied=True, position_rows=1024)
_gpt2 = _family("GPT-2", kinds.GPT2, 50257, 50257, _BYTE_BPE, tied=True, position_rows=1024)
_gpt3 = _family("GPT-3", kinds.GPT3, 50257, 50257, _BYTE_BPE, tied=True, position_rows=2048)
_bert = _family("BERT", kinds.BERT, 30522, 30522, _WORDPIECE, tied=True, position_rows=512, segments=2)
_distilbert = _family("DistilBERT", kinds.DISTILBERT, 30522, 30522, _WORDPIECE, tied=True, position_rows=512)
_electra = _family(
    "ELECTRA", kinds.ELECTRA, 30522, 30522, _WORDPIECE, tied=None, position_rows=512, segments=2
)
_albert = _family("ALBERT", kinds.ALBERT, 30000, 30000, _UNIGRAM, tied=True, position_rows=512, segments=2)
_roberta = _family(
    "RoBERTa", kinds.ROBERTA, 50265, 50265, _BYTE_BPE, tied=True, position_rows=514, segments=1
)
_xlm_roberta = _family(
    "XLM-RoBERTa", kinds.XLM_ROBERTA, 250002, 250002, _UNIGRAM, tied=True, position_rows=514, segments=1
)
_deberta = _family("DeBERTa-v3", kinds.DEBERTA_V3, 128100, 128001, _UNIGRAM, tied=True)
_t5 = _family("T5", kinds.T5, 32128, 32100, _UNIGRAM, tied=True)
_t5_gated = _family("T5 v1.1", kinds.T5_GATED, 32128, 32100, _UNIGRAM, tied=False, head_dim=64)
_mt5 = _family("mT5", kinds.MT5, 250112, 250100, _UNIGRAM, tied=False, head_dim=64)
_llama = _family("LLaMA 1", kinds.LLAMA, 32000, 32000, _BPE, tied=False)
_llama2 = _family("LLaMA 2", kinds.LLAMA, 32000, 32000, _BPE, tied=False)
_llama3 = _family("LLaMA 3", kinds.LLAMA, 128256, 128256, _BYTE_BPE, tied=False, kv_heads=8)
_gemma = _family("Gemma 1", kinds.GEMMA, 256000, 256000, _BPE, tied=True, head_dim=256)
_gemma2 = _family("Gemma 2", kinds.GEMMA2, 256000, 256000, _BPE, tied=True, head_dim=256)
_gemma3 = _family("Gemma 3", kinds.GEMMA3, 262144, 262144, _BPE, tied=True, head_dim=256)
_bloom = _family("BLOOM", kinds.BLOOM, 250880, 250680, _BYTE_BPE, tied=True)
_mistral = _family("Mistral", kinds.MISTRAL, 32000, 32000, _BPE, tied=False, kv_heads=8)
_qwen2 = _family("Qwen 2.5", kinds.QWEN2, 152064, 151665, _BYTE_BPE, tied=False)
_qwen3 = _family("Qwen 3", kinds.QWEN3, 151936, 151669, _BYTE_BPE, tied=False, kv_heads=8, head_dim=128)
_opt = _family("OPT", kinds.OPT, 50272, 50265, _BYTE_BPE, tied=True, position_rows=2050)
_pythia = _family("Pythia", kinds.GPT_NEOX, 50304, 50277, _BYTE_BPE, tied=False)
_gpt_neox = _family("GPT-NeoX", kinds.GPT_NEOX, 50432, 50277, _BYTE_BPE, tied=False)
_gpt_j = _family("GPT-J", kinds.GPT_J, 50400, 50257, _BYTE_BPE, tied=False)
_phi = _family("Phi", kinds.PHI, 51200, 50295, _BYTE_BPE, tied=False)
_phi3 = _family("Phi-3", kinds.PHI3, 32064, 32011, _BPE, tied=False)
_falcon = _family("Falcon", kinds.FALCON, 65024, 65024, _BYTE_BPE, tied=True)
_mpt = _family("MPT", kinds.MPT, 50432, 50277, _BYTE_BPE, tied=True)
_mamba = _family("Mamba", kinds.MAMBA, 50280, 50277, _BYTE_BPE, tied=True)

_ALL = (
    _distilgpt2("distilgpt2", 768, 6, 12, 3072),
    _gpt2("gpt2", 768, 12, 12, 3072),
    _gpt2("gpt2-medium", 1024, 24, 16, 4096),
    _gpt2("gpt2-large", 1280, 36, 20, 5120),
    _gpt2("gpt2-xl", 1600, 48, 25, 6400),
    _gpt3("gpt3-small", 768, 12, 12, 3072),
    _gpt3("gpt3-medium", 1024, 24, 16, 4096),
    _gpt3("gpt3-large", 1536, 24, 16, 6144),
    _gpt3("gpt3-xl", 2048, 24, 16, 8192),  # the table's 24 heads of 128 don't fit 2,048; its total does
    _gpt3("gpt3-2.7b", 2560, 32, 32, 10240),
    _gpt3("gpt3-6.7b", 4096, 32, 32, 16384),
    _gpt3("gpt3-13b", 5120, 40, 40, 20480),  # the table's 5,140 is not 40 heads of 128, nor its total
    _gpt3("gpt3", 12288, 96, 96, 49152),
    _bert("bert-base-uncased", 768, 12, 12, 3072),
    _bert("bert-large-uncased", 1024, 24, 16, 4096),
    _bert("bert-base-cased", 768, 12, 12, 3072, vocab=28996, tokens=28996),
    _bert("bert-large-cased", 1024, 24, 16, 4096, vocab=28996, tokens=28996),
    _bert("bert-base-multilingual-cased", 768, 12, 12, 3072, vocab=119547, tokens=119547),
    _distilbert("distilbert-base-uncased", 768, 6, 12, 3072),
    _distilbert("distilbert-base-cased", 768, 6, 12, 3072, vocab=28996, tokens=28996),
    _electra("electra-small-discriminator", 256, 12, 4, 1024, own_table_width=128),
    _electra("electra-base-discriminator", 768, 12, 12, 3072),
    _electra("electra-large-discriminator", 1024, 24, 16, 4096),
    _albert("albert-base-v2", 768, 12, 12, 3072, own_table_width=128),
    _albert("albert-large-v2", 1024, 24, 16, 4096, own_table_width=128),
    _albert("albert-xlarge-v2", 2048, 24, 16, 8192, own_table_width=128),
    _albert("albert-xxlarge-v2", 4096, 12, 64, 16384, own_table_width=128),
    _roberta("roberta-base", 768, 12, 12, 3072),
    _roberta("roberta-large", 1024, 24, 16, 4096),
    _xlm_roberta("xlm-roberta-base", 768, 12, 12, 3072),
    _xlm_roberta("xlm-roberta-large", 1024, 24, 16, 4096),
    _deberta("deberta-v3-xsmall", 384, 12, 6, 1536),
    _deberta("deberta-v3-small", 768, 6, 12, 3072),
    _deberta("deberta-v3-base", 768, 12, 12, 3072),
    _deberta("deberta-v3-large", 1024, 24, 16, 4096),
    _t5("t5-small", 512, 6, 8, 2048),
    _t5("t5-base", 768, 12, 12, 3072),
    _t5("t5-large", 1024, 24, 16, 4096),
    _t5("t5-3b", 1024, 24, 32, 16384, head_dim=128),
    _t5("t5-11b", 1024, 24, 128, 65536, head_dim=128),
    *(
        model(f"{name}-{size}", *dimensions)
        for model, name in ((_t5_gated, "t5-v1.1"), (_t5_gated, "flan-t5"), (_mt5, "mt5"))
        for size, dimensions in {
            "small": (512, 8, 6, 1024),
            "base": (768, 12, 12, 2048),
            "large": (1024, 24, 16, 2816),
            "xl": (2048, 24, 32, 5120),
            "xxl": (4096, 24, 64, 10240),
        }.items()
    ),
    _llama("llama-7b", 4096, 32, 32, 11008),
    _llama("llama-13b", 5120, 40, 40, 13824),
    _llama("llama-33b", 6656, 60, 52, 17920),
    _llama("llama-65b", 8192, 80, 64, 22016),
    _llama2("llama-2-7b", 4096, 32, 32, 11008),
    _llama2("llama-2-13b", 5120, 40, 40, 13824),
    _llama2("llama-2-70b", 8192, 80, 64, 28672, kv_heads=8),
    _llama3("llama-3.2-1b", 2048, 16, 32, 8192, tied=True),
    _llama3("llama-3.2-3b", 3072, 28, 24, 8192, tied=True),
    _llama3("llama-3-8b", 4096, 32, 32, 14336),
    _llama3("llama-3-70b", 8192, 80, 64, 28672),
    _llama3("llama-3.1-405b", 16384, 126, 128, 53248),
    _gemma("gemma-2b", 2048, 18, 8, 16384, kv_heads=1),
    _gemma("gemma-7b", 3072, 28, 16, 24576),
    _gemma2("gemma-2-2b", 2304, 26, 8, 9216, kv_heads=4),
    _gemma2("gemma-2-9b", 3584, 42, 16, 14336, kv_heads=8),
    _gemma2("gemma-2-27b", 4608, 46, 32, 36864, kv_heads=16, head_dim=128),
    _gemma3("gemma-3-270m", 640, 18, 4, 2048, kv_heads=1),
    _gemma3("gemma-3-1b", 1152, 26, 4, 6912, kv_heads=1),
    _gemma3("gemma-3-4b", 2560, 34, 8, 10240, kv_heads=4, vocab=262208),
    _gemma3("gemma-3-12b", 3840, 48, 16, 15360, kv_heads=8, vocab=262208),
    _gemma3("gemma-3-27b", 5376, 62, 32, 21504, kv_heads=16, head_dim=128, vocab=262208),
    _bloom("bloom-560m", 1024, 24, 16, 4096),
    _bloom("bloom-1b1", 1536, 24, 16, 6144),
    _bloom("bloom-1b7", 2048, 24, 16, 8192),
    _bloom("bloom-3b", 2560, 30, 32, 10240),
    _bloom("bloom-7b1", 4096, 30, 32, 16384),
    _bloom("bloom", 14336, 70, 112, 57344),
    _mistral("mistral-7b-v0.1", 4096, 32, 32, 14336),
    _mistral("mistral-7b-v0.3", 4096, 32, 32, 14336, vocab=32768, tokens=32768),
    _qwen2("qwen2.5-0.5b", 896, 24, 14, 4864, kv_heads=2, vocab=151936, tied=True),
    _qwen2("qwen2.5-1.5b", 1536, 28, 12, 8960, kv_heads=2, vocab=151936, tied=True),
    _qwen2("qwen2.5-3b", 2048, 36, 16, 11008, kv_heads=2, vocab=151936, tied=True),
    _qwen2("qwen2.5-7b", 3584, 28, 28, 18944, kv_heads=4),
    _qwen2("qwen2.5-14b", 5120, 48, 40, 13824, kv_heads=8),
    _qwen2("qwen2.5-32b", 5120, 64, 40, 27648, kv_heads=8),
    _qwen2("qwen2.5-72b", 8192, 80, 64, 29568, kv_heads=8),
    _qwen3("qwen3-0.6b", 1024, 28, 16, 3072, tied=True),
    _qwen3("qwen3-1.7b", 2048, 28, 16, 6144, tied=True),
    _qwen3("qwen3-4b", 2560, 36, 32, 9728, tied=True),
    _qwen3("qwen3-8b", 4096, 36, 32, 12288),
    _qwen3("qwen3-14b", 5120, 40, 40, 17408),
    _qwen3("qwen3-32b", 5120, 64, 64, 25600),
    _opt("opt-125m", 768, 12, 12, 3072),
    _opt("opt-350m", 1024, 24, 16, 4096, architecture=kinds.OPT_POST_NORM, own_table_width=512),
    _opt("opt-1.3b", 2048, 24, 32, 8192),
    _opt("opt-2.7b", 2560, 32, 32, 10240),
    _opt("opt-6.7b", 4096, 32, 32, 16384),
    _opt("opt-13b", 5120, 40, 40, 20480),
    _opt("opt-30b", 7168, 48, 56, 28672),
    _opt("opt-66b", 9216, 64, 72, 36864),
    _opt("opt-175b", 12288, 96, 96, 49152),
    _pythia("pythia-14m", 128, 6, 4, 512),
    _pythia("pythia-31m", 256, 6, 8, 1024),
    _pythia("pythia-70m", 512, 6, 8, 2048),
    _pythia("pythia-160m", 768, 12, 12, 3072),
    _pythia("pythia-410m", 1024, 24, 16, 4096),
    _pythia("pythia-1b", 2048, 16, 8, 8192),
    _pythia("pythia-1.4b", 2048, 24, 16, 8192),
    _pythia("pythia-2.8b", 2560, 32, 32, 10240),
    _pythia("pythia-6.9b", 4096, 32, 32, 16384, vocab=50432),
    _pythia("pythia-12b", 5120, 36, 40, 20480, vocab=50688),
    _gpt_neox("gpt-neox-20b", 6144, 44, 64, 24576),
    _gpt_j("gpt-j-6b", 4096, 28, 16, 16384),
    _phi("phi-1.5", 2048, 24, 32, 8192),
    _phi("phi-2", 2560, 32, 32, 10240),
    _phi3("phi-3-mini", 3072, 32, 32, 8192),
    _falcon("falcon-7b", 4544, 32, 71, 18176, kv_heads=1),
    _falcon("falcon-40b", 8192, 60, 128, 32768, kv_heads=8, architecture=kinds.FALCON_TWO_NORMS),
    _mpt("mpt-7b", 4096, 32, 32, 16384),
    _mpt("mpt-30b", 7168, 48, 64, 28672),
    _mamba("mamba-130m", 768, 24, heads=1, ffn=0),
    _mamba("mamba-370m", 1024, 48, heads=1, ffn=0),
    _mamba("mamba-790m", 1536, 48, heads=1, ffn=0),
    _mamba("mamba-1.4b", 2048, 48, heads=1, ffn=0),
    _mamba("mamba-2.8b", 2560, 64, heads=1, ffn=0),
)

MODELS = {model.name: model for model in sorted(_ALL, key=lambda model: model.family.lower())}
