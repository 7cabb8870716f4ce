"""Arguments of a wrong type as a user meets them: without the annotation checks of the other tests."""

import json
import subprocess
import sys

import pytest

CASES = [
    ("vocab[1.5]", "TokenIdError: id 1.5 is outside this vocabulary of 2 tokens; ids are integers from 0 on"),
    ("vocab['the']", "TokenIdError: id 'the' is outside"),
    ("vocab[0:1]", "TokenIdError: id slice(0, 1, None) is outside"),
    ("vocab.kind(None)", "TokenIdError: id None is outside"),
    ("ts.Vocab(['a'], special=[0.5])", "TokenIdError: id 0.5 is outside"),
    (
        "ts.Vocab(['a'], encoding='bogus')",
        "VocabError: encoding 'bogus' is not known; allowed: word, wordpiece",
    ),
    ("table[0]", "VocabError: a table is indexed by a token, found 0"),
    ("ts.Table(table.weight, ['a', 'cat'])", "VocabError: vocab must be a Vocab, found list"),
    (
        "ts.Table(table.weight, vocab, provenance='hi')",
        "TableFormatError: provenance must be a dict, found str",
    ),
    ("save(float('nan'))", "TableFormatError: the provenance can't be written as JSON"),
    ("save({1, 2})", "TableFormatError: the provenance can't be written as JSON"),
    ("save('\\ud800')", "TableFormatError: the provenance can't be written as JSON"),
    ("ts.save(table, sys.argv[1], ['glove'])", "TableFormatError: there is no table format ['glove']"),
    ("ts.formats.convert('wordnet', sys.argv[1], 3)", "TableFormatError: there is no table format 3"),
    ("ts.formats.losses(table, ['glove'])", "TableFormatError: there is no table format ['glove']"),
    ("ts.Tokenizer.train_from_iterator(['a'], vocab_size='9')", "VocabError: vocab_size must be an integer"),
    *(
        (call, f"ShapeError: {name} must be an integer, found ")
        for value in (
            "1.5",
            "2.0",
            "True",
            "np.True_",
            "'3'",
            "None",
            "float('nan')",
            "[3]",
            "np.array([3, 4])",
        )
        for name, call in (
            ("vocab", f"parameters.table_parameters({value}, 2)"),
            ("dim", f"parameters.table_parameters(2, {value})"),
            ("layers", f"parameters.gpt2_shaped(2, 2, {value})"),
            ("ffn", f"parameters.gpt2_shaped(2, 2, 2, {value.replace('None', '[]')})"),
        )
    ),
    *(
        (f"ts.geometry.word_pairs(table, 'no', limit={limit})", "ShapeError: limit must be at least 1 row")
        for limit in ("1.5", "'5'", "float('nan')", "[]")
    ),
    *(
        (call, f"ShapeError: a Table is needed, found {found}")
        for call, found in (
            ("ts.plots.map('wordnet')", "str"),
            ("ts.plots.norms(ts.geometry.View(table))", "View"),
            ("ts.plots.heatmap('wordnet', ['cat'])", "str"),
            ("ts.plots.heatmap(ts.geometry.View(table), text='cat')", "View"),
            ("ts.plots.arrows('wordnet', 'a', 'b', 'c')", "str"),
        )
    ),
    ("ts.plots.heatmap(table, 1.5)", "ShapeError: a heat map shows words, ids or vectors"),
    (
        "ts.plots.write_page(ts.plots.Norms.of(table), sys.argv[1] + '.html', '')",
        "ShapeError: a page shows a plotly figure, found Norms; give its .figure()",
    ),
    (
        "ts.plots.write_page(5, sys.argv[1] + '.html', '')",
        "ShapeError: a page shows a plotly figure, found int",
    ),
    *(
        (f"ts.geometry.{score}(table, {files})", "CorpusError: a score is that of one file")
        for score in ("word_pairs", "analogy_questions")
        for files in ("['a', 'b']", "[]", "5", "b'a'", "None")
    ),
    *(
        (call.replace("VALUE", value), f"CorpusError: {message}, found {found}")
        for value, found in (("['a']", "list"), ("3", "int"), ("b'a'", "bytes"))
        for call, message in (
            ("pipeline.walk('a', pair=VALUE)", "pair must be one text (a str)"),
            ("pipeline.tokenizer.encode(VALUE)", "text must be one text (a str)"),
            ("pipeline.tokenizer.encode('a', VALUE)", "pair must be one text (a str)"),
            ("trained.encode(VALUE)", "text must be one text (a str)"),
            ("trained.encode('a', VALUE)", "pair must be one text (a str)"),
            ("ts.plots.heatmap(table, text=VALUE)", "text must be one text (a str)"),
        )
    ),
    *(
        (f"{call}({value})", f"CorpusError: {message}")
        for value, message in (
            ("b'ab'", "a text (str) or a list of texts is needed, found bytes"),
            ("3", "a text (str) or a list of texts is needed, found int"),
            ("{'a': 1}", "a text (str) or a list of texts is needed, found dict"),
            ("[b'ab']", "each text must be a str; the one at place 0 is bytes"),
            ("['a', 3]", "each text must be a str; the one at place 1 is int"),
        )
        for call in (
            "ts.Tokenizer.train_from_iterator",
            "pipeline.walk",
            "trained.encode_batch",
            "(lambda texts: ts.Tokenizer.train_from_iterator(texts, 'wordpiece'))",
        )
    ),
    *(
        (f"ts.Vocab({value})", f"VocabError: {message}")
        for value, message in (
            ("3", "a vocabulary is a list of tokens, found int"),
            ("'the'", "a vocabulary is a list of tokens, found str"),
            ("b'the'", "a vocabulary is a list of tokens, found bytes"),
            ("{'a': 0}", "a vocabulary is a list of tokens, found dict"),
            ("{'a'}", "a vocabulary is a list of tokens, found set"),
            ("[3]", "each token must be a str; the one at id 0 is int"),
            ("['a', b'a']", "each token must be a str; the one at id 1 is bytes"),
        )
    ),
    *(
        (call.replace("VALUE", value), f"VocabError: vocab must be a Vocab, found {found}")
        for value, found in (("'a cat'", "str"), ("{'a': 0}", "dict"), ("b'a'", "bytes"), ("3", "int"))
        for call in (
            "initializers.from_pretrained(VALUE, table, rng)",
            "nn_initializers.from_pretrained_(torch.empty(2, 3), VALUE, table)",
            "ts.Table(table.weight, VALUE)",
        )
    ),
    ("initializers.from_pretrained(vocab, 'wordnet', rng)", "ShapeError: a Table is needed, found str"),
    (
        "nn_initializers.from_pretrained_(torch.empty(2, 3), vocab, 'wordnet')",
        "ShapeError: a Table is needed, found str",
    ),
    ("ts.plots.heatmap(table, b'cat')", "ShapeError: a heat map shows words, ids or vectors"),
    ("ts.plots.heatmap(table, {'cat': 1})", "ShapeError: a heat map shows words, ids or vectors"),
    *(
        (f"ts.geometry.similarities(table, {words})", "ShapeError: words must be a list of one word or more")
        for words in ("3", "b'cat'", "'cat'", "{'cat': 1}", "iter([])", "None")
    ),
    *(
        (f"pipeline.gradient(walk, {rate})", "ShapeError: learning_rate must be a finite number")
        for rate in ("float('nan')", "float('inf')", "'x'", "None", "True", "[1]")
    ),
    *(
        (f"pipeline.predict(walk, {k})", f"ShapeError: k must be an integer, 1 or more; found {k}")
        for k in ("-1", "0", "1.5", "None", "'1'", "True")
    ),
]
SCRIPT = """
import json, sys
import numpy as np
import torch
import tokenspace as ts
from tokenspace import initializers
from tokenspace.models import parameters
from tokenspace.nn import initializers as nn_initializers
from tokenspace.walk import Pipeline
vocab = ts.Vocab(["a", "cat"])
table = ts.Table(np.ones((2, 3), np.float32), vocab)
rng = np.random.default_rng(0)
pipeline = Pipeline.under(table, "gpt2")
walk, = pipeline.walk("a cat")
trained = ts.Tokenizer.train_from_iterator("a cat")
def save(value):
    ts.save(ts.Table(table.weight, vocab, provenance={"value": value}), sys.argv[1])
found = []
for case in json.load(sys.stdin):
    try:
        found.append(repr(eval(case)))
    except ts.TokenspaceError as error:
        found.append(f"{type(error).__name__}: {error}")
    except Exception as error:
        found.append(f"raw {type(error).__name__}: {error}")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> dict[str, str]:
    cases = [case for case, _ in CASES]
    target = tmp_path_factory.mktemp("wrong") / "table"
    command = [sys.executable, "-c", SCRIPT, str(target)]
    run = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True, check=True)
    assert not target.exists()
    return dict(zip(cases, json.loads(run.stdout), strict=True))


@pytest.mark.parametrize(("case", "message"), CASES, ids=[case for case, _ in CASES])
def test_it_is_one_of_our_errors(answers, case, message):
    assert answers[case].startswith(message)
