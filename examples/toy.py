"""A table of five words, walked, drawn and trained: python toy.py toy.vec"""

import sys

import rich

import tokenspace as ts
from tokenspace.plots import Heatmap
from tokenspace.reference import Embedding, LMHead, SinusoidalPositionalEncoding, TransformerInput

table = ts.load(sys.argv[1])
words = list(table.vocab)
token = Embedding.from_weight(table.weight.copy())

layer = TransformerInput(token, SinusoidalPositionalEncoding(table.dim))
for name, rows in layer.steps([[words.index(word) for word in ["a", "cat", "sat"]]]).items():
    print(name, rows.shape, rows[0].round(2), sep="\n")
rich.print(Heatmap.of(table, words))

ids, head = range(len(words)), LMHead(token)  # each word predicts the next, by the table it is read from
for step in range(301):
    hidden = token.forward(ids[:-1])
    loss = head.loss(hidden, ids[1:])
    if step % 100 == 0:
        best = (hidden @ token.weight.T).argmax(axis=-1)
        print(f"step {step:3}: loss {loss:.4f}, after a, cat, sat, on:", *(words[i] for i in best))
    token.backward(head.backward())
    token.step(learning_rate=0.1)
