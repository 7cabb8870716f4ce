"""The files that fuzzing starts from: a small one of every kind that a table can come in, made by the library
that is at home there (gensim, NumPy, safetensors, torch, gguf, model2vec), by hand where there is none.

The same libraries give the same bytes in every run, so that a case is found again by its number.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

import tokenspace as ts

V, D = 6, 4
TOKENS = ["[PAD]", "[UNK]", "the", "cat", "é", "naïve"]
WEIGHT = (np.arange(V * D, dtype=np.float32).reshape(V, D) - 7) / 8


class Seed(NamedTuple):
    """Files by name, and which of them (``.``: their folder) a reader is given.

    ``packed`` says what is put around them once they are mutated: gzip around the one that is read, or a zip
    archive around them all.
    """

    name: str
    files: dict[str, bytes]
    read: str
    packed: str = ""


def seeds() -> list[Seed]:
    """Every kind, and those that are one file, itself no archive, also in gzip and in zip archives."""
    made = [seed for make in MAKERS for seed in make()]
    around = [
        seed._replace(name=f"{seed.name}, {packed}", packed=packed)
        for seed in made
        if seed.read != "." and not seed.files[seed.read].startswith(b"PK")
        for packed in ("gzip", "zip", "zip deflated")
    ]
    return made + around


def pack(seed: Seed, files: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """The files as they are written, and the path that is read."""
    if seed.packed == "gzip":
        return {**files, seed.read: gzip.compress(files[seed.read], 1, mtime=0)}, seed.read
    if seed.packed:
        return {"all.zip": zipped(files, seed.packed.endswith("deflated"))}, f"all.zip/{seed.read}"
    return files, seed.read


def zipped(files: dict[str, bytes], deflated: bool = False) -> bytes:
    """An archive of ``files`` without a date."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = archive.compression
            archive.writestr(entry, content)
    return held.getvalue()


def written(write: Callable[[Path], object]) -> dict[str, bytes]:
    """What ``write(folder)`` leaves in a folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def tokenizer_json() -> bytes:
    """WordLevel over ``TOKENS``, as the tokenizers library writes it."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.WordLevel({token: i for i, token in enumerate(TOKENS)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(["[PAD]", "[UNK]"])
    return inner.to_str().encode()


def _native() -> Iterator[Seed]:
    vocab = ts.Vocab(TOKENS, special=[0, 1])
    bare = ts.Table(WEIGHT.astype(np.float16), vocab, provenance={"made_by": "hand", "n": [1, 2.5]})
    tokenizer = ts.Tokenizer.from_json(tokenizer_json())
    whole = ts.Table(WEIGHT, vocab, tokenizer, WEIGHT * 2, {"made_by": "hand"})
    for name, table in (("native", bare), ("native, whole", whole)):
        yield Seed(name, written(lambda folder, table=table: ts.save(table, folder / "t")), "t")


def _keyed_vectors(**how: object) -> bytes:
    from gensim.models import KeyedVectors

    vectors = KeyedVectors(D)
    vectors.add_vectors(TOKENS, WEIGHT)
    return written(lambda folder: vectors.save_word2vec_format(folder / "t", **how))["t"]


def _word2vec() -> Iterator[Seed]:
    text, binary = _keyed_vectors(), _keyed_vectors(binary=True)
    yield Seed("word2vec-text", {"t": text}, "t")
    yield Seed("word2vec-binary", {"t": binary}, "t")  # gensim writes no newline after a vector, others do
    rows = [token.encode() + b" " + row.tobytes() + b"\n" for token, row in zip(TOKENS, WEIGHT, strict=True)]
    yield Seed("word2vec-binary, newlines", {"t": b"6 4\n" + b"".join(rows)}, "t")
    yield Seed("glove", {"t": text.partition(b"\n")[2] + b". . . 1 2 3 4\n"}, "t")


def _numpy() -> Iterator[Seed]:
    vocabulary = "".join(token + "\n" for token in TOKENS).encode()
    for kind, order in (("<f4", "C"), ("<f2", "F"), (">f8", "C")):
        held = io.BytesIO()
        np.save(held, np.asarray(WEIGHT, kind, order=order))
        name = f"numpy, {np.dtype(kind).name}"
        yield Seed(name, {"t.npy": held.getvalue(), "t.vocab.txt": vocabulary}, "t.npy")


def _tensors(dtype: object = np.float32) -> dict[str, np.ndarray]:
    table = WEIGHT.astype(dtype)
    return {
        "embeddings.word_embeddings.weight": table,
        "embeddings.position_embeddings.weight": table[:3].copy(),
        "encoder.bias": table[0].copy(),
    }


def _checkpoint() -> Iterator[Seed]:
    from safetensors.numpy import save_file

    about = {"config.json": b'{"model_type": "bert", "vocab_size": 6, "hidden_size": 4}'}
    about["tokenizer.json"] = tokenizer_json()
    one = written(lambda folder: save_file(_tensors(ml_dtypes.bfloat16), folder / "model.safetensors"))
    yield Seed("folder", about | one, ".")
    lines = {"config.json": b'{"vocab_size": 6}', "vocab.txt": "\n".join(TOKENS).encode()}
    yield Seed("folder, vocab.txt", lines | one, ".")

    def write_shards(folder: Path) -> None:
        places = {}
        for i, (name, tensor) in enumerate(_tensors().items()):
            places[name] = f"model-{i}.safetensors"
            save_file({name: tensor}, folder / places[name])
        index = {"metadata": {"total_size": 160}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))

    yield Seed("folder, sharded", about | written(write_shards), ".")
    yield Seed("folder, pickle", about | {"pytorch_model.bin": _torch(legacy=False)}, ".")
    yield Seed("folder, legacy pickle", about | {"pytorch_model.bin": _torch(legacy=True)}, ".")
    merges = {"config.json": about["config.json"], "merges.txt": b"#version: 0.2\nt h\nth e\n"}
    merges["vocab.json"] = b'{"t": 0, "h": 1, "e": 2, "th": 3, "the": 4, "<|endoftext|>": 5}'
    merges["tokenizer_config.json"] = (
        b'{"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"5": {"content": "<|endoftext|>"}}}'
    )
    yield Seed("folder, merges.txt", merges | one, ".")


def _torch(legacy: bool) -> bytes:
    import torch

    held = io.BytesIO()
    tensors = {name: torch.from_numpy(tensor) for name, tensor in _tensors().items()}
    torch.save(tensors, held, _use_new_zipfile_serialization=not legacy)
    return held.getvalue()


def _plain() -> Iterator[Seed]:
    """A model's tensors in a file, and what names its rows beside it."""
    from safetensors.numpy import save_file

    beside = {"tokenizer.json": tokenizer_json()}
    one = {"embeddings.weight": WEIGHT.astype(np.float16), "bias": WEIGHT[0]}
    files = written(lambda folder: save_file(one, folder / "t.safetensors"))
    yield Seed("safetensors", files | beside, "t.safetensors")
    yield Seed("torch", {"t.pt": _torch(legacy=False)} | beside, "t.pt")
    yield Seed("torch, legacy", {"t.bin": _torch(legacy=True)} | beside, "t.bin")


def _npz() -> Iterator[Seed]:
    arrays = {"weight": WEIGHT, "tokens": np.array(TOKENS)}
    vocabulary = {"t.vocab.txt": "".join(token + "\n" for token in TOKENS).encode()}
    for save in (np.savez, np.savez_compressed):
        whole, bare = io.BytesIO(), io.BytesIO()
        save(whole, **arrays)
        save(bare, WEIGHT)
        yield Seed(f"npz, {save.__name__}", {"t.npz": whole.getvalue()}, "t.npz")
        yield Seed(f"npz, {save.__name__}, vocabulary", {"t.npz": bare.getvalue()} | vocabulary, "t.npz")


def _fasttext() -> Iterator[Seed]:
    from gensim.models.fasttext import FastText, save_facebook_model

    text = [TOKENS * 3]
    for sizes in ({"bucket": 12, "min_n": 2, "max_n": 3}, {"bucket": 1, "max_n": 0}):
        model = FastText(vector_size=D, min_count=1, workers=1, seed=1, sg=1, negative=2, **sizes)
        model.build_vocab(text)
        model.train(text, total_examples=1, epochs=1)
        files = written(lambda folder, model=model: save_facebook_model(model, str(folder / "t")))
        yield Seed(f"fasttext, {sizes['bucket']} buckets", files, "t")


def _gguf() -> Iterator[Seed]:
    import gguf

    kinds = gguf.GGMLQuantizationType
    for kind in (kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0):
        wide = np.tile(WEIGHT, 8)  # quantized types have blocks of 32

        def write(folder: Path, kind: gguf.GGMLQuantizationType = kind, wide: np.ndarray = wide) -> None:
            writer = gguf.GGUFWriter(folder / "t.gguf", "llama")
            writer.add_block_count(1)
            writer.add_tokenizer_model("llama")
            writer.add_token_list([token.encode() for token in TOKENS])
            writer.add_token_scores([0.0] * V)
            writer.add_token_types([3, 2, 1, 1, 1, 1])
            writer.add_tensor("output_norm.weight", wide[0])
            writer.add_tensor("token_embd.weight", gguf.quants.quantize(wide, kind), raw_dtype=kind)
            writer.add_tensor("output.weight", gguf.quants.quantize(-wide, kind), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()

        yield Seed(f"gguf, {kind.name}", written(write), "t.gguf")


def _static_embedding() -> Iterator[Seed]:
    from model2vec import StaticModel
    from safetensors.numpy import save
    from tokenizers import Tokenizer

    model = StaticModel(WEIGHT, Tokenizer.from_buffer(tokenizer_json()))
    files = written(model.save_pretrained)
    yield Seed("model2vec", {name: files[name] for name in files if name != "README.md"}, ".")
    module = "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding"
    modules = [{"idx": 0, "name": "0", "path": "0_StaticEmbedding", "type": module}]
    tensors = save({"embedding.weight": WEIGHT})
    yield Seed(  # as sentence-transformers 6.2 writes it; to import that takes longer than all the others
        "StaticEmbedding",
        {
            "modules.json": json.dumps(modules, indent=2).encode(),
            "config_sentence_transformers.json": b'{"model_type": "SentenceTransformer", "prompts": {}}',
            "0_StaticEmbedding/model.safetensors": tensors,
            "0_StaticEmbedding/tokenizer.json": tokenizer_json(),
        },
        ".",
    )


MAKERS = [_native, _word2vec, _numpy, _npz, _fasttext, _gguf, _plain, _checkpoint, _static_embedding]
