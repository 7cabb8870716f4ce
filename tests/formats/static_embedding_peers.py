"""Run as a program: what model2vec and sentence-transformers make of our folders, and folders of theirs.

Arguments: where to write, a JSON list of sentences, our folders. In one process, since both import slowly.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

WORDS = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, "dog": 4}
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "[UNK]"},
}


def write_theirs(out: Path) -> None:
    """Each kind of folder that they write, in ``out/theirs``; and in ``theirs.npz`` what is in it."""
    tokenizer = Tokenizer.from_str(json.dumps(TOKENIZER))
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(len(WORDS), 4)).astype(np.float32)
    factors = rng.uniform(size=len(WORDS))
    mapping = np.array([0, 1, 2, 1, 2])
    np.savez(out / "theirs.npz", rows=rows, folded=(rows[:3][mapping] * factors[:, None]).astype(np.float32))
    out = out / "theirs"
    models = {
        "model2vec": StaticModel(rows, tokenizer),
        "half": StaticModel(rows.astype(np.float16), tokenizer, normalize=True),
        "double": StaticModel(rows.astype(np.float64), tokenizer),
        "int8": StaticModel((rows * 50).astype(np.int8), tokenizer),
        "folded": StaticModel(rows[:3], tokenizer, weights=factors, token_mapping=mapping),
    }
    for name, model in models.items():
        model.save_pretrained(out / name)
    static = StaticEmbedding(tokenizer, embedding_weights=rows)
    SentenceTransformer(modules=[static], device="cpu").save(str(out / "sbert"))
    (out / "bare").mkdir()
    (out / "pickled").mkdir()
    static.save(str(out / "bare"))
    static.save(str(out / "pickled"), safe_serialization=False)
    (out / "pickled" / "modules.json").write_bytes((out / "sbert" / "modules.json").read_bytes())


def main(out: Path, sentences: list[str], folders: list[str]) -> None:
    write_theirs(out)
    found = {}
    for folder in folders:
        name = Path(folder).name
        found[f"{name}.model2vec"] = StaticModel.from_pretrained(folder).encode(sentences)
        sbert = SentenceTransformer(folder, device="cpu").encode(sentences)
        found[f"{name}.sbert"] = sbert
        static = StaticEmbedding.load(folder)
        with torch.no_grad():
            plain = static(static.preprocess(sentences))["sentence_embedding"].numpy()
        found[f"{name}.static"] = plain
    np.savez(out / "ours.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:])
