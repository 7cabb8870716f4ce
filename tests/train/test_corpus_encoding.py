"""Which tokenizers may be asked chunk by chunk: those of which it is known that white space ends all."""

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner

from tokenspace.tokenizer import Tokenizer
from tokenspace.train.corpus import prepare
from tokenspace.train.corpus_encoding import in_order, splits_at_spaces

LETTERS = {"<unk>": 0, "a": 1, "b": 2, "ab": 3, ".": 4}
MERGES = [("a", "b")]


def built(pre_tokenizer=None, normalizer=None, added=(), **bpe) -> Tokenizer:
    inner = Inner(models.BPE(vocab=LETTERS, merges=MERGES, unk_token="<unk>", **bpe))
    if pre_tokenizer is not None:
        inner.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        inner.normalizer = normalizer
    inner.add_tokens(list(added))
    return Tokenizer(inner.to_str())


SPLIT, PUNCTUATION = pre_tokenizers.WhitespaceSplit, pre_tokenizers.Punctuation
APART = {
    "split at white space": built(SPLIT()),
    "words": built(pre_tokenizers.Whitespace()),
    "as BERT": built(pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer()),
    "then punctuation": built(pre_tokenizers.Sequence([SPLIT(), PUNCTUATION()])),
    "a token added": built(SPLIT(), added=[AddedToken("ba", lstrip=True, rstrip=True)]),
}
TOGETHER = {
    "not split": built(),
    "punctuation first": built(pre_tokenizers.Sequence([PUNCTUATION(), SPLIT()])),
    "then spaces marked": built(pre_tokenizers.Sequence([SPLIT(), pre_tokenizers.Metaspace()])),
    "bytes": built(pre_tokenizers.ByteLevel()),
    "another pattern": built(pre_tokenizers.Split(Regex(r"\w+ ?"), behavior="removed", invert=True)),
    "spaces replaced": built(SPLIT(), normalizers.Replace(" ", "a")),
    "something put before": built(
        SPLIT(), normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("a")])
    ),
    "drawn at random": built(SPLIT(), dropout=0.5),
    "a token with a space": built(SPLIT(), added=[AddedToken("a b")]),
}


@pytest.mark.parametrize("name", APART)
def test_apart(name, write, tmp_path):
    tokenizer = APART[name]
    assert splits_at_spaces(tokenizer)
    content = "ab a.b ba \t b a\n\nabba ab.  ba ba\n"
    corpus = prepare(
        write("text.txt", content), tmp_path, tokenizer=tokenizer, min_count=None, lowercase=True, threads=1
    )
    encoded = [tokenizer.inner.encode(line).ids for line in content.splitlines()]
    assert corpus.ids(0, corpus.tokens).tolist() == [i for ids in encoded for i in ids if i != 0]


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name):
    assert not splits_at_spaces(TOGETHER[name])


def test_a_real_checkpoints_tokenizer_is_asked_chunk_by_chunk(minilm_folder, write, tmp_path):
    tokenizer = Tokenizer.load(minilm_folder)
    assert splits_at_spaces(tokenizer)
    content = "The cat's déjà-vu [MASK] [SEP]x 中文字 don't\tunbelievably…\n" * 3
    corpus = prepare(
        write("text.txt", content), tmp_path, tokenizer=tokenizer, min_count=None, lowercase=True, threads=1
    )
    wanted = tokenizer.inner.encode(content, add_special_tokens=False).ids
    assert corpus.ids(0, corpus.tokens).tolist() == [i for i in wanted if i != tokenizer.unk_id]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 100])
def test_results_come_in_order_and_things_are_taken_a_few_at_a_time(threads, count):
    taken = 0

    def things():
        nonlocal taken
        for n in range(count):
            taken += 1
            yield n

    found = []
    for result in in_order(lambda worker, n: (worker, n * n), things(), threads):
        found.append(result)
        assert taken - len(found) <= 8 * threads
    assert [square for _, square in found] == [n * n for n in range(count)]
    assert all(0 <= worker < threads for worker, _ in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_fails_is_raised_be_it_a_thing_or_its_source(threads):
    def broken(worker, n):
        raise ValueError(f"thing {n}")

    with pytest.raises(ValueError, match="thing 0"):
        list(in_order(broken, range(1), threads))

    def source():
        yield from range(20)
        raise ValueError("source")

    with pytest.raises(ValueError, match="source"):
        list(in_order(lambda worker, n: n, source(), threads))
