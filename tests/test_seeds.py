"""The texts this project started from: each numeric example with the value that is right, each claim checked.

Where a text's number is off, the test holds the computed one and says what the text has.
"""

import math
from pathlib import Path

import numpy as np
import pytest

from tokenspace import formats
from tokenspace.errors import TokenIdError
from tokenspace.geometry import analogy, cosine, neighbors, relations, similarities, similarity
from tokenspace.initializers import normal, truncated_normal, xavier_normal, xavier_uniform
from tokenspace.reference import (
    Dropout,
    Embedding,
    LearnedPositionalEmbedding,
    LMHead,
    Projection,
    SegmentEmbedding,
    SinusoidalPositionalEncoding,
    SkipGram,
    TransformerInput,
    one_hot,
    sinusoidal,
)
from tokenspace.table import Table
from tokenspace.vocab import Vocab

WORDS = ["a", "cat", "sat", "on", "mat"]
E = np.arange(1, 21).reshape(5, 4) / 10  # 0.1, 0.2, … 2.0


class TestTheNumericExamples:
    def test_three_rows_of_a_five_by_four_table(self):
        ids = [WORDS.index(word) for word in ("a", "cat", "sat")]
        assert ids == [0, 1, 2]
        rows = Embedding.from_weight(E).forward(ids)
        expected = [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2]]
        assert rows.shape == (3, 4)
        assert rows.tolist() == expected

    def test_its_batch_of_two_texts(self):
        batch = Embedding.from_weight(E).forward([[0, 1, 2], [1, 2, 4]])
        assert batch.shape == (2, 3, 4)
        assert batch.tolist() == [
            [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2]],
            [[0.5, 0.6, 0.7, 0.8], [0.9, 1.0, 1.1, 1.2], [1.7, 1.8, 1.9, 2.0]],
        ]

    def test_king_less_man_plus_woman(self):
        words = ["king", "man", "woman", "queen", "cat"]
        rows = [[0.52, 0.93, -0.12, 0.45], [0.30, 0.85, -0.20, 0.15], [0.25, 0.70, -0.05, 0.35]]
        queen = [0.47, 0.78, 0.03, 0.65]  # the text has -0.07 for 0.03
        table = Table(np.array([*rows, queen, [-0.5, 0.6, 0.7, 0.8]], np.float32), Vocab(words))
        assert table["king"] - table["man"] + table["woman"] == pytest.approx(table["queen"], abs=1e-6)
        hits = analogy(table, "man", "king", "woman", k=2)
        assert [hit.token for hit in hits] == ["queen", "cat"]
        assert hits[0].score > 0.99

    def test_cosines_of_cat_with_dog_and_car(self):
        cat, dog, car = [0.5, 0.6, 0.7, 0.8], [0.52, 0.58, 0.72, 0.79], [0.1, -0.5, 0.2, 0.9]
        assert cosine(cat, dog) == pytest.approx(0.9996, abs=5e-5)  # the text has 0.998
        assert cosine(cat, car) == pytest.approx(0.4389, abs=5e-5)  # the text has 0.543

    @pytest.mark.parametrize(
        ("width", "millions"), [(64, 3.2), (128, 6.4), (768, 38.4), (1280, 64.0), (12_288, 614.4)]
    )
    def test_parameters_of_fifty_thousand_rows(self, width, millions):
        table = np.broadcast_to(np.float32(0), (50_000, width))  # no memory behind it
        assert Embedding.from_weight(table).weight.size == millions * 1e6  # the text rounds the last to 614M

    def test_the_tables_share_of_gpt2_small(self):
        """One third, the text says; it is 31 %: 12 layers of 12·D² + 13·D numbers stand beside it."""
        token = Embedding.from_weight(np.broadcast_to(np.float32(0), (50_257, 768)))
        position = LearnedPositionalEmbedding.from_weight(np.broadcast_to(np.float32(0), (1_024, 768)))
        tables = [array.size for array in TransformerInput(token, position).parameters().values()]
        assert tables == [38_597_376, 786_432]
        total = sum(tables) + 12 * (12 * 768**2 + 13 * 768) + 2 * 768
        assert total == 124_439_808
        assert tables[0] / total == pytest.approx(0.31, abs=0.005)

    def test_a_one_hot_row_selects_the_fourth_row_of_four(self, rng):
        table = rng.normal(size=(4, 6))
        assert one_hot(3, 4).tolist() == [0, 0, 0, 1]
        assert np.array_equal(one_hot(3, 4) @ table, table[3])

    def test_the_standard_deviation_of_a_table_768_wide(self, rng):
        weight = normal((2_000, 768), rng)
        assert 1 / math.sqrt(768) == pytest.approx(0.036, abs=1e-4)
        assert weight.std() == pytest.approx(0.0361, rel=0.01)
        assert (abs(weight) < 0.1).mean() > 0.99  # "typically between -0.1 and 0.1"

    def test_xavier_for_two_thousand_rows_128_wide(self, rng):
        assert xavier_normal((2_000, 128), rng).std() == pytest.approx(math.sqrt(2 / 2_128), rel=0.01)
        assert abs(xavier_uniform((2_000, 128), rng)).max() <= math.sqrt(6 / 2_128)

    def test_a_truncated_draw_stays_within_two_standard_deviations(self, rng):
        assert abs(normal((2_000, 128), rng, std=0.02)).max() > 0.08
        assert 0.0399 < abs(truncated_normal((2_000, 128), rng, std=0.02)).max() <= 0.0400001


class TestTheToyTablesFile:
    def test_it_is_the_numeric_example(self):
        table = formats.load(Path(__file__).parent.parent / "examples" / "toy.vec")
        assert list(table.vocab) == WORDS
        assert np.array_equal(table.weight, E.astype(np.float32))
        assert np.array_equal(
            table.lookup([[0, 1, 2], [1, 2, 4]]), E.astype(np.float32)[[[0, 1, 2], [1, 2, 4]]]
        )


class TestGeometryOfRealTables:
    """What the texts expect of cosines, and what README and docs/concepts.md say of it."""

    @pytest.fixture
    def wordnet(self):
        return formats.load("wordnet")

    def test_king_and_queen_are_nearer_than_either_to_prince_or_princess(self, wordnet):
        cosines = similarities(wordnet, ["king", "queen", "prince", "princess"]).cosine
        assert cosines[0, 1] == pytest.approx(0.632, abs=5e-4)
        assert cosines[:2, 2:].max() == pytest.approx(0.463, abs=5e-4)

    @pytest.mark.parametrize(("word", "other", "rank"), [("king", "queen", 16), ("cat", "dog", 649)])
    def test_how_far_down_a_neighbor_stands(self, wordnet, word, other, rank):
        hits = [hit.token for hit in neighbors(wordnet, word, k=700)]
        assert hits.index(other) + 1 == rank

    @pytest.mark.parametrize(
        ("a", "b", "built_in", "bert"),
        [
            ("happy", "joyful", 0.54, 0.37),  # the texts expect 0.75 to 0.85
            ("doctor", "hospital", 0.30, 0.42),  # 0.55 to 0.65
            ("cat", "democracy", 0.0, -0.08),  # 0.05 to 0.15
            ("hot", "cold", 0.50, 0.36),  # 0.40 to 0.55
        ],
    )
    def test_cosines_of_the_four_kinds(self, wordnet, minilm, a, b, built_in, bert):
        found = [round(similarity(table, a, b).cosine, 2) + 0.0 for table in (wordnet, minilm)]
        assert found == [built_in, bert]
        page = (Path(__file__).parent.parent / "docs" / "concepts.md").read_text()
        assert f"| {a}, {b} | {found[0]:.2f} | {found[1]:.2f} |" in page

    def test_synonyms_come_first_and_unrelated_words_last(self, wordnet, minilm):
        for table in (wordnet, minilm):
            means = {each.name: each.mean for each in relations(table).relations}
            assert max(means, key=means.get) == "synonyms"
            assert min(means, key=means.get) == "unrelated"
            assert means["antonyms"] > 2 * means["unrelated"]

    def test_words_of_a_kind_gather(self, wordnet, minilm):
        groups = ["king queen prince princess monarch royal", "cat dog bird fish horse elephant"]
        groups += ["one two three four five six", ". , ! ? ; :"]
        for table in (wordnet, minilm):
            cosines = similarities(table, " ".join(groups).split()).cosine
            cosines[np.eye(24, dtype=bool)] = np.nan
            means = np.nanmean(cosines.reshape(4, 6, 4, 6), axis=(1, 3))
            assert (means.argmax(axis=1) == np.arange(4)).all()

    def test_an_analogy_scales_rows_to_length_1_first(self, wordnet):
        rows = [wordnet[word] for word in ("man", "king", "woman")]
        man, king, woman = (row / np.linalg.norm(row) for row in rows)
        (hit,) = analogy(wordnet, "man", "king", "woman", k=1)
        assert hit.score == pytest.approx(cosine(king - man + woman, wordnet["queen"]), abs=1e-6)
        assert round(hit.score, 4) == 0.6075
        assert round(cosine(rows[1] - rows[0] + rows[2], wordnet["queen"]), 4) == 0.6556


class TestTheLookup:
    def test_two_texts_share_the_rows_of_their_shared_tokens(self, rng):
        embedding = Embedding(2_000, 128, rng)
        x = embedding.forward([[42, 156, 89], [42, 201, 89]])
        assert x.shape == (2, 3, 128)
        assert np.array_equal(x[0, 0], x[1, 0])
        assert np.array_equal(x[0, 2], x[1, 2])
        assert not np.array_equal(x[0, 1], x[1, 1])

    def test_the_thousand_by_64_table(self, rng):
        embedding = Embedding(1_000, 64, rng)
        assert embedding.forward([[1, 2, 3], [4, 5, 6]]).shape == (2, 3, 64)
        repeated = embedding.forward([[1, 1, 1]])
        assert np.array_equal(repeated[0, 0], repeated[0, 1])
        # Before training two rows have nothing in common: cosines of 64 random numbers spread by 1/8.
        cosines = [cosine(embedding.weight[row], embedding.weight[row + 1]) for row in range(999)]
        assert np.std(cosines) == pytest.approx(1 / 8, rel=0.1)
        assert abs(np.mean(cosines)) < 0.02

    def test_the_last_of_two_thousand_rows_is_1999(self, rng):
        embedding = Embedding(2_000, 4, rng)
        assert np.array_equal(embedding.forward(1_999), embedding.weight[-1])
        with pytest.raises(TokenIdError, match="valid: 0 to 1,999"):
            embedding.forward(2_000)

    def test_the_one_hot_product_is_the_lookup(self, rng):
        embedding = Embedding(5_000, 128, rng)
        ids = rng.integers(0, 5_000, (2, 7))
        assert one_hot(156, 5_000).shape == (5_000,)
        assert one_hot(156, 5_000).sum() == one_hot(156, 5_000)[156] == 1
        assert np.array_equal(embedding.forward_one_hot(ids), embedding.forward(ids))

    def test_one_hot_vectors_are_orthogonal_and_equally_far_apart(self):
        vectors = one_hot(np.arange(9), 9)
        assert np.array_equal(vectors @ vectors.T, np.eye(9))
        distances = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
        assert distances[~np.eye(9, dtype=bool)] == pytest.approx(math.sqrt(2))

    def test_twice_the_width_is_twice_the_table_and_four_times_a_square_layer(self, rng):
        narrow, wide = (Embedding(50, width, rng).weight.size for width in (64, 128))
        assert wide == 2 * narrow
        narrow, wide = (Projection(width, width, rng).weight.size for width in (64, 128))
        assert wide == 4 * narrow


class TestScaleAndPosition:
    @pytest.mark.parametrize("width", [64, 512, 768])
    def test_scaled_rows_and_positions_are_of_one_order(self, width, rng):
        embedding = Embedding.from_weight(normal((1_000, width), rng), scale="sqrt")
        rows = np.linalg.norm(embedding.forward(np.arange(1_000)), axis=1)
        positions = np.linalg.norm(sinusoidal(np.arange(512), width), axis=1)
        assert rows == pytest.approx(math.sqrt(width), rel=0.4)
        assert rows.mean() == pytest.approx(math.sqrt(width), rel=0.01)
        assert positions == pytest.approx(math.sqrt(width / 2), rel=1e-5)  # each sine and cosine give 1
        assert 1 < rows.mean() / positions.mean() < 2

    def test_unscaled_rows_would_drown(self, rng):
        rows = np.linalg.norm(Embedding(1_000, 512, rng).forward(np.arange(1_000)), axis=1)
        positions = np.linalg.norm(sinusoidal(np.arange(512), 512), axis=1)
        assert rows.mean() == pytest.approx(1, rel=0.01)
        assert positions.mean() / rows.mean() == pytest.approx(16, rel=0.02)

    @pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
    @pytest.mark.parametrize(
        ("one", "other"),
        [("the dog chased the cat", "the cat chased the dog"), ("cat sat", "sat cat")],
    )
    def test_the_order_of_words_is_seen_only_with_positions(self, kind, one, other, rng):
        words = ["the", "dog", "chased", "cat", "sat"]
        ids = [[words.index(word) for word in text.split()] for text in (one, other)]
        token = Embedding(len(words), 16, rng)
        position = (
            SinusoidalPositionalEncoding(16)
            if kind == "sinusoidal"
            else LearnedPositionalEmbedding(8, 16, rng)
        )

        def rows_as_a_multiset(x: np.ndarray) -> list:
            return sorted(map(tuple, x.tolist()))

        bare = TransformerInput(token)
        a, b = (bare.forward([text])[0] for text in ids)
        assert rows_as_a_multiset(a) == rows_as_a_multiset(b)
        whole = TransformerInput(token, position)
        a, b = (whole.forward([text])[0] for text in ids)
        assert rows_as_a_multiset(a) != rows_as_a_multiset(b)

    def test_the_input_is_the_sum_of_what_and_where(self, rng):
        token, position = Embedding(9, 8, rng), LearnedPositionalEmbedding(4, 8, rng)
        x = TransformerInput(token, position).forward([[7, 7, 2]])
        assert np.array_equal(x[0], token.weight[[7, 7, 2]] + position.weight[:3])

    def test_berts_three_embeddings(self, rng):
        token, position = Embedding(9, 8, rng), LearnedPositionalEmbedding(4, 8, rng)
        segment = SegmentEmbedding(2, 8, rng)
        assert segment.weight.size == 2 * 8
        bert = TransformerInput(token, position, segment)
        x = bert.forward([[7, 7, 2]], segment_ids=[[0, 0, 1]])
        rows = token.weight[[7, 7, 2]] + position.weight[:3] + segment.weight[[0, 0, 1]]
        assert x[0] == pytest.approx(rows)

    def test_a_model_without_segments_adds_none(self, rng):
        gpt = TransformerInput(Embedding(9, 8, rng), LearnedPositionalEmbedding(4, 8, rng))
        assert list(gpt.steps([[1, 2]])) == ["lookup", "position", "output"]

    @pytest.mark.parametrize("name", ["language", "role", "modality"])
    def test_other_tables_are_added_the_same_way(self, name, rng):
        token, extra = Embedding(9, 8, rng), SegmentEmbedding(3, 8, rng, name=name)
        x = TransformerInput(token, extras={name: extra}).forward([[4, 5]], extra_ids={name: [[2, 0]]})
        assert np.array_equal(x[0], token.weight[[4, 5]] + extra.weight[[2, 0]])

    def test_the_pipeline_scales_adds_and_drops_in_that_order(self, rng):
        token = Embedding(9, 8, rng, scale="sqrt")
        layer = TransformerInput(token, SinusoidalPositionalEncoding(8), dropout=Dropout(0.1, rng))
        steps = layer.steps([[1, 2, 3]], training=True)
        assert list(steps) == ["lookup", "scaled", "position", "dropout", "output"]
        assert steps["scaled"] == pytest.approx(steps["lookup"] * math.sqrt(8))
        before = steps["scaled"] + steps["position"]
        kept = steps["output"] != 0
        assert steps["output"][kept] == pytest.approx(before[kept] / 0.9)
        assert layer.forward([[1, 2, 3]]) == pytest.approx(before)


class TestLearning:
    IDS = ([[42, 156, 89, 42, 201]],)  # "the cat and the dog"

    @pytest.fixture
    def embedding(self, rng):
        embedding = Embedding(2_000, 16, rng)
        embedding.forward(*self.IDS)
        return embedding

    def test_the_gradient_of_the_is_the_sum_of_both_its_places(self, embedding, rng):
        upstream = rng.normal(size=(1, 5, 16))
        gradient = embedding.backward(upstream)
        assert gradient[42] == pytest.approx(upstream[0, 0] + upstream[0, 3], rel=1e-5, abs=1e-6)
        for position, token in ((1, 156), (2, 89), (4, 201)):
            assert gradient[token] == pytest.approx(upstream[0, position], rel=1e-6)
        assert np.flatnonzero(gradient.any(axis=1)).tolist() == [42, 89, 156, 201]

    def test_one_step_changes_only_the_rows_used(self, embedding, rng):
        before = embedding.weight.copy()
        gradient = embedding.backward(rng.normal(size=(1, 5, 16)))
        assert embedding.step(0.1).tolist() == [42, 89, 156, 201]
        changed = (embedding.weight != before).any(axis=1)
        assert np.flatnonzero(changed).tolist() == [42, 89, 156, 201]
        assert embedding.weight[156] == pytest.approx(before[156] - 0.1 * gradient[156])

    def test_training_nudges_words_of_one_context_together(self, rng):
        """cat and dog stand in the contexts 0 to 3, car and planet in 4 to 7."""
        model = SkipGram(8, 16, rng)
        cat, dog, car = 0, 1, 2
        centers = np.repeat([cat, dog, car, 3], 4)
        contexts = np.array([0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2)
        for _ in range(200):
            _, d_center, d_context = model.softmax_loss(centers, contexts)
            model.center -= 0.1 * d_center
            model.context -= 0.1 * d_context
        assert cosine(model.center[cat], model.center[dog]) > 0.9
        assert cosine(model.center[cat], model.center[car]) < 0

    def test_skip_gram_is_the_negative_log_likelihood_of_a_softmax_of_dot_products(self, rng):
        center, context = rng.normal(size=(2, 5, 3))
        scores = np.exp(context @ center[1])
        loss = SkipGram.from_weights(center, context).softmax_loss([1], [4]).loss
        assert loss == pytest.approx(-math.log(scores[4] / scores.sum()))


class TestWeightTying:
    def test_the_output_matrix_is_the_transposed_table(self, rng):
        embedding, hidden = Embedding(50, 8, rng), rng.normal(size=(2, 3, 8))
        logits = LMHead(embedding).forward(hidden)
        assert logits.shape == (2, 3, 50)
        assert logits == pytest.approx(hidden @ embedding.weight.T)

    def test_it_halves_the_parameters_of_both_layers(self, rng):
        embedding = Embedding(50, 8, rng)
        tied, untied = LMHead(embedding), LMHead.untied(normal((50, 8), rng))

        def count(head: LMHead) -> int:
            arrays = {id(array): array.size for array in (embedding.weight, head.weight)}
            return sum(arrays.values())

        assert 2 * count(tied) == count(untied) == 2 * 50 * 8

    def test_a_hidden_state_close_to_a_row_scores_that_token_highest(self, rng):
        rows = rng.normal(size=(50, 64))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hidden = rows + 0.02 * rng.normal(size=rows.shape)
        assert LMHead(Embedding.from_weight(rows)).forward(hidden).argmax(axis=1).tolist() == list(range(50))

    def test_one_table_serves_encoder_decoder_and_output(self, rng):
        """T5's three-way sharing: three uses, one gradient."""
        shared = Embedding(20, 8, rng)
        encoder, decoder, head = TransformerInput(shared), TransformerInput(shared), LMHead(shared)
        parts = []
        for layer in (encoder, decoder):
            layer.forward([[1, 2]])
            layer.backward(np.ones((1, 2, 8)))
            parts.append(shared.gradient.copy())
        head.loss(rng.normal(size=(3, 8)), [4, 5, 6])
        head.backward()
        assert np.array_equal(parts[1], 2 * parts[0])
        assert (shared.gradient != parts[1]).any()
        assert encoder.token.weight is decoder.token.weight is head.weight
