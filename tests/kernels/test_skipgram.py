"""The compiled step is the reference's gradient; one thread repeats itself bit by bit, on any CPU."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tokenspace.kernels import skipgram, skipgram_loops, skipgram_vectors
from tokenspace.reference.skipgram import SkipGram

# contexts and targets even and odd, rows of several blocks, negatives that repeat or equal the center
CASES = {
    "one pair": (12, [3], [5, 1]),
    "D = 1": (1, [3, 4], [5, 1, 2]),
    "D = 100": (100, [3, 4, 6], [5, 1, 2, 8, 7, 9]),
    "D = 300": (300, [3, 4, 6, 2, 9], [5, 1, 2, 8]),
    "repeated context": (20, [3, 4, 3], [5, 1, 2, 0]),
    "a context twice in a row": (20, [3, 3, 4, 4, 4], [5, 1, 2, 0]),
    "repeated negative": (20, [3, 4], [5, 1, 1, 1]),
    "negative equals center": (20, [3, 4], [5, 1, 5, 2, 5]),
    "context is the center": (33, [5, 4], [5, 1, 4]),
    "no context": (16, [], [5, 1]),
}


STEPS = {"vectors": skipgram_vectors.step, "loops": skipgram_loops.step}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize(("dim", "contexts", "targets"), CASES.values(), ids=CASES)
def test_a_step_is_the_references_gradient_step(dim, contexts, targets, step, rng):
    inputs, outputs = rng.normal(0, 0.4, (2, 10, dim))
    rate = 0.3
    negatives = [target for target in targets[1:] if target != targets[0]]
    true = SkipGram.from_weights(inputs, outputs).negative_sampling_loss(
        np.array(contexts, int),
        np.full(len(contexts), targets[0]),
        np.tile(np.array(negatives, int), (len(contexts), 1)),
    )
    model = skipgram.Model(skipgram.padded(inputs), skipgram.padded(outputs))
    scratch = skipgram.scratch(dim, window=5, negative=len(targets) - 1)
    scratch.contexts[: len(contexts)] = contexts
    scratch.targets[:] = targets
    loss = step(model, len(contexts), np.float32(rate), scratch)
    assert loss == pytest.approx(true.loss, abs=1e-4)
    np.testing.assert_allclose(model.inputs[:, :dim], inputs - rate * true.d_center, atol=5e-6)
    np.testing.assert_allclose(model.outputs[:, :dim], outputs - rate * true.d_context, atol=5e-6)
    assert not model.inputs[:, dim:].any()
    assert not model.outputs[:, dim:].any()


@pytest.mark.parametrize(("dim", "contexts", "targets"), CASES.values(), ids=CASES)
def test_loops_and_vectors_give_the_same_bits(dim, contexts, targets, rng):
    inputs, outputs = rng.normal(0, 0.4, (2, 10, dim))
    found = []
    for step in STEPS.values():
        model = skipgram.Model(skipgram.padded(inputs), skipgram.padded(outputs))
        scratch = skipgram.scratch(dim, window=5, negative=len(targets) - 1)
        scratch.contexts[: len(contexts)] = contexts
        scratch.targets[:] = targets
        losses = [step(model, len(contexts), np.float32(0.3), scratch) for _ in range(3)]
        found.append((losses, model.inputs.tobytes(), model.outputs.tobytes()))
    assert found[0] == found[1]


def test_the_loops_round_a_sum_of_a_product_once(rng):
    x, y = rng.normal(size=(2, 100_000)).astype(np.float32)
    # near a tie in float32: rounding to float64 first would break it the wrong way
    z = (x * y * 2.0 ** rng.integers(-30, 30, len(x))).astype(np.float32)
    expected = (x.astype(np.longdouble) * y + z).astype(np.float32)
    found = [skipgram_loops._fma(*numbers) for numbers in zip(x, y, z, strict=True)]
    np.testing.assert_array_equal(found, expected)
    # the product is 2^-24 - 2^-70, so the sum lies just below a tie, and float64 would round it to the tie
    x, y, z = (np.float32(number) for number in (2**-12 + 2**-35, 2**-12 - 2**-35, 1 + 2**-23))
    assert skipgram_loops._fma(x, y, z) == z


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("score", [100.0, -100.0, np.nan, np.inf], ids=str)
def test_scores_beyond_the_table_are_clamped_and_never_read_outside_it(score, step):
    model = skipgram.Model(skipgram.padded(np.full((2, 1), score)), skipgram.padded(np.ones((2, 1))))
    scratch = skipgram.scratch(1, window=1, negative=1)
    scratch.targets[:] = 0, 1
    assert 0 <= step(model, 1, np.float32(0), scratch) <= 16.01


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("score", [-1e30, -1e4, -33.0, -9.0, 9.0, 33.0, 1e4, 1e30], ids=str)
def test_a_step_is_the_references_where_sigma_is_flat(score, step):
    """A pair that is right by far moves nothing, one that is wrong by far is pulled at the full rate."""
    inputs, outputs = np.ones((1, 1)), np.array([[score], [score]])
    true = SkipGram.from_weights(np.vstack([inputs, inputs]), outputs).negative_sampling_loss([0], [0], [[1]])
    model = skipgram.Model(skipgram.padded(inputs), skipgram.padded(np.float32(outputs)))
    scratch = skipgram.scratch(1, window=1, negative=1)
    scratch.targets[:] = 0, 1
    step(model, 1, np.float32(1), scratch)
    clamped = 3.4e-4  # the table of σ ends at ±8
    np.testing.assert_allclose(1 - model.inputs[0, 0], true.d_center[0, 0], rtol=1e-3, atol=2 * clamped * 9)
    if abs(score) < 1e4:  # beyond, a float32 has no place for so small a move
        np.testing.assert_allclose(score - model.outputs[:, 0], true.d_context[:, 0], atol=2 * clamped)
    if score > 32:
        assert model.outputs[0, 0] == np.float32(score)
    if score < -32:
        assert model.outputs[1, 0] == np.float32(score)


@pytest.mark.parametrize("words", [[0], [0, 1], [0, 1, 2]], ids=["one word", "two", "three"])
@pytest.mark.parametrize("window", [1, 5])
def test_rows_of_very_few_words_stay_small(words, window, rng):
    ids = np.resize(np.array(words, np.int32), 12_000)
    corpus = skipgram.Corpus(ids, np.arange(0, len(ids) + 1, 12))
    draws = skipgram.draws(np.bincount(ids), 0.0, window, rng)
    model = skipgram.Model(skipgram.padded(rng.normal(0, 0.1, (3, 16))), skipgram.padded(np.zeros((3, 16))))
    scratch = skipgram.scratch(16, window, negative=5)
    for seed in range(1, 101):
        loss, pairs = skipgram.train_sentences(
            0, 1000, corpus, model, draws, np.float32(0.05), np.uint64(seed), scratch
        )
    assert loss / pairs < np.log(2) * 6
    assert np.abs(model.inputs).max() < 10
    assert np.abs(model.outputs).max() < 10


def test_frequent_tokens_are_thinned_as_word2vec_does(rng):
    counts = np.array([0, 900, 90, 10])
    draws = skipgram.draws(counts, sample=0.01, window=5, rng=rng)
    ratio = 0.01 / (counts[1:] / 1000)
    np.testing.assert_allclose(draws.keep[1:] / 2**32, np.minimum(np.sqrt(ratio) + ratio, 1), atol=2**-31)
    assert (skipgram.draws(counts, 0.0, 5, rng).keep[1:] == 2**32 - 1).all()


def test_negatives_follow_the_counts_to_three_quarters(rng):
    counts = np.array([0, 1000, 100, 1, 0])
    negatives = skipgram.draws(counts, 1e-3, 5, rng).negatives
    assert len(negatives) == skipgram.NEGATIVES_TABLE
    expected = counts**0.75 / (counts**0.75).sum()
    np.testing.assert_allclose(np.bincount(negatives, minlength=5) / len(negatives), expected, atol=1e-6)
    assert not (negatives[:1000] == 1).all()  # shuffled


@pytest.mark.parametrize(("window", "pairs_a_sentence"), [(1, 6), (2, (6 + 10) / 2), (3, (6 + 10 + 12) / 3)])
def test_each_center_takes_a_window_of_random_reach(window, pairs_a_sentence, rng):
    sentences = 2000
    ids = np.tile(np.array([0, 1, 2, 3], np.int32), sentences)
    corpus = skipgram.Corpus(ids, np.arange(0, len(ids) + 1, 4))
    draws = skipgram.draws(np.bincount(ids), 0.0, window, rng)
    model = skipgram.Model(skipgram.padded(np.zeros((4, 4))), skipgram.padded(np.zeros((4, 4))))
    loss, pairs = skipgram.train_sentences(
        0,
        sentences,
        corpus,
        model,
        draws,
        np.float32(0),
        np.uint64(1),
        skipgram.scratch(4, window, negative=2),
    )
    assert pairs / sentences == pytest.approx(pairs_a_sentence, abs=0.1)
    # a quarter of the negatives are the center itself, and left out
    assert loss / pairs == pytest.approx(np.log(2) * (1 + 2 * 0.75), abs=0.03)


TINY_RUN = """
    import hashlib, numpy as np
    from tokenspace.kernels import skipgram, skipgram_loops, skipgram_vectors
    rng = np.random.default_rng(0)
    ids = (rng.random(4000) ** 2 * 200).astype(np.int32)
    draws = skipgram.draws(np.bincount(ids), 1e-3, 5, rng)
    inputs, outputs = skipgram.padded(rng.normal(0, 0.1, (200, 20))), skipgram.padded(np.zeros((200, 20)))
    model = skipgram.Model(inputs, outputs)
    done = skipgram.train_sentences(
        0, 160, skipgram.Corpus(ids, np.arange(0, 4001, 25)), model, draws, np.float32(0.05), np.uint64(5),
        skipgram.scratch(20, 5, 5),
    )
    print(done, hashlib.sha256(inputs.tobytes() + outputs.tobytes()).hexdigest())
"""


def tiny_run(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TINY_RUN)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_the_bits_do_not_depend_on_the_cpu_that_numba_compiles_for(tmp_path):
    here = tiny_run()
    assert tiny_run() == here
    plain = tiny_run(
        NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=str(tmp_path)
    )  # no AVX, no FMA
    assert plain == here


@pytest.mark.slow
def test_where_vectors_do_not_compile_loops_give_the_same_bits(tmp_path):
    assert tiny_run(NO_VECTORS="1", NUMBA_CACHE_DIR=str(tmp_path)) == tiny_run()
