import gzip
import json
import os
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

from tokenspace.checkpoint import count
from tokenspace.errors import CheckpointError
from tokenspace.models.open import open_checkpoint, same_bits
from tokenspace.models.pickled import open_pickle
from tokenspace.models.safetensors import read
from tokenspace.reference.recipes import from_checkpoint, head_from_checkpoint
from tokenspace.source import Source


def save(folder, small, shards=1, **settings):
    """A small model's weights as ``.bin``, as older versions of transformers wrote them."""
    (folder / "config.json").write_bytes((small.folder / "config.json").read_bytes())
    state = small.module.state_dict()  # a tied head is in it too, under its own name
    names = list(state)
    if shards == 1:
        torch.save(state, folder / "pytorch_model.bin", **settings)
        return folder
    places = {name: f"pytorch_model-{i % shards + 1}.bin" for i, name in enumerate(names)}
    for shard in set(places.values()):
        torch.save({name: state[name] for name in names if places[name] == shard}, folder / shard, **settings)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


@pytest.mark.parametrize(
    ("shards", "zipped"), [(1, True), (1, False), (3, True)], ids=["one", "before zip", "three"]
)
@pytest.mark.parametrize("name", ["bert", "llama", "t5-untied"])
def test_the_layer_and_the_head_are_those_of_safetensors(small_checkpoint, tmp_path, name, shards, zipped):
    small = small_checkpoint(name)
    theirs = open_checkpoint(small.folder)
    ours = open_checkpoint(save(tmp_path, small, shards, _use_new_zipfile_serialization=zipped))
    ids = small.inputs()["input_ids"].numpy()
    np.testing.assert_array_equal(from_checkpoint(ours).forward(ids), from_checkpoint(theirs).forward(ids))
    hidden = np.ones((1, 16), np.float32)
    np.testing.assert_array_equal(
        head_from_checkpoint(ours).forward(hidden), head_from_checkpoint(theirs).forward(hidden)
    )
    assert ours.tied is theirs.tied
    assert count(ours).total == count(theirs).total == sum(p.numel() for p in small.module.parameters())
    assert not read(ours.input_embedding).flags.writeable


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.bool])
def test_every_dtype_keeps_its_numbers(tmp_path, dtype):
    tensor = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]).to(dtype).t()  # not contiguous
    torch.save({"x": tensor}, tmp_path / "x.bin")
    found = open_pickle(tmp_path / "x.bin")["x"]
    assert found.shape == (3, 2)
    np.testing.assert_array_equal(read(found).astype(np.float32), tensor.float().numpy())
    assert dtype != torch.bfloat16 or (found.dtype, read(found).dtype) == ("BF16", ml_dtypes.bfloat16)


def test_a_number_stored_once_for_many_places_is_not_copied(tmp_path):
    torch.save({"x": torch.ones(1, 1).expand(10**7, 10**7), "y": torch.ones(1)}, tmp_path / "x.pt")
    found = open_pickle(tmp_path / "x.pt")["x"]
    assert found.shape == (10**7, 10**7)
    assert read(found)[10**6, 5] == 1


def test_bits_are_compared_where_they_lie(tmp_path):
    wide = torch.arange(6.0).reshape(2, 3)
    torch.save(
        {"a": wide.t(), "b": wide.t().contiguous(), "c": wide.t() + 1, "d": torch.tensor(1.0)}, tmp_path / "x"
    )
    a, b, c, d = open_pickle(tmp_path / "x").values()
    assert same_bits(a, b)
    assert not same_bits(a, c)
    assert same_bits(d, d)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": {"state_dict": state}},
        lambda state: {"module": state, "step": 1.0},
        lambda state: {"model_state_dict": state, "optimizer": {}},
    ],
)
def test_a_dict_within_a_dict(tmp_path, wrap):
    torch.save(wrap({"wte.weight": torch.ones(2, 3)}), tmp_path / "x.pt")
    assert list(open_pickle(tmp_path / "x.pt")) == ["wte.weight"]


def test_a_tensor_alone(tmp_path):
    torch.save(torch.ones(2, 3, requires_grad=True), tmp_path / "x.pt")
    assert list(open_pickle(tmp_path / "x.pt")) == ["tensor"]


def test_a_dict_without_tensors_holds_none(tmp_path):
    deep = {}
    for _ in range(9):
        deep = {"model": deep}
    torch.save(deep, tmp_path / "x.pt")
    assert open_pickle(tmp_path / "x.pt") == {}


def test_what_a_source_unpacks(tmp_path):
    torch.save({"x": torch.ones(2, 3)}, tmp_path / "x.pt")
    (tmp_path / "x.pt.gz").write_bytes(gzip.compress((tmp_path / "x.pt").read_bytes()))
    np.testing.assert_array_equal(read(open_pickle(Source(tmp_path / "x.pt.gz"))["x"]), np.ones((2, 3)))


def test_safetensors_go_first(small_checkpoint, tmp_path):
    save(tmp_path, small_checkpoint("bert"))
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "kept")
    (tmp_path / "pytorch_model.bin").write_bytes(b"junk")
    (tmp_path / "model.safetensors").write_bytes(
        (small_checkpoint("bert").folder / "model.safetensors").read_bytes()
    )
    assert open_checkpoint(tmp_path).family.name == "bert"


class Exploit:
    def __reduce__(self):
        return os.mkdir, ("pickle-was-run",)


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_pickle_is_not_run(tmp_path, monkeypatch, zipped):
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Exploit()}, "evil.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"weights-only loader can't open .*evil\.bin") as caught:
        open_pickle(tmp_path / "evil.bin")
    assert "\n" not in str(caught.value)
    assert "it holds a whole module or other objects ('posix.mkdir')" in str(caught.value)
    assert not (tmp_path / "pickle-was-run").exists()


def test_a_whole_module_is_told_as_that_and_damage_as_damage(tmp_path):
    torch.save(torch.nn.Embedding(3, 2), tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"whole module .*sparse\.Embedding.*state_dict\(\)") as caught:
        open_pickle(tmp_path / "x.pt")
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"a": 1}, protocol=5))
    with pytest.raises(
        CheckpointError, match=r"x\.pt: it ends after 1 of the 5 pickles that torch"
    ) as damaged:
        open_pickle(tmp_path / "x.pt")
    for error in (caught, damaged):
        assert "\x1b" not in str(error.value)
        assert "weights_only=" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04", b"\x80\x02}q\x00."], ids=repr)
def test_what_is_no_checkpoint(tmp_path, content):
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.bin"):
        open_pickle(tmp_path / "x.bin")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([torch.zeros(2)], "holds a list"),
        ({"x": torch.zeros(2, dtype=torch.complex128)}, "'x' is complex128"),
    ],
    ids=["a list", "complex"],
)
def test_tensors_that_are_none_of_a_models(tmp_path, content, says):
    torch.save(content, tmp_path / "x.bin")
    with pytest.raises(CheckpointError, match=says):
        open_pickle(tmp_path / "x.bin")


def test_without_torch_the_extra_is_named(small_checkpoint, tmp_path):
    save(tmp_path, small_checkpoint("bert"))
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from tokenspace.errors import MissingExtra\n"
        "from tokenspace.models.open import open_checkpoint\n"
        "try: open_checkpoint(sys.argv[1])\n"
        "except MissingExtra as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert "weights-only loader" in run.stdout
    assert "pip install 'torch>=2.13' 'numba>=0.61'" in run.stdout
