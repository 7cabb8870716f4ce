"""A walk through the embedding layer with real numbers: ``python -m tokenspace.reference``."""

from __future__ import annotations

import numpy as np

from tokenspace.reference import Embedding, LMHead, TransformerInput
from tokenspace.reference.positional import SinusoidalPositionalEncoding

WORDS = ["the", "cat", "and", "dog", "sat"]
V, D = len(WORDS), 4


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of two vectors; ``geometry.cosine`` stands above this room, which imports nothing from there."""
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def heading(number: int, text: str) -> None:
    print(f"\n{number}. {text}\n")


def show_rows(rows: np.ndarray, names: list[str]) -> None:
    for name, row in zip(names, rows, strict=True):
        print(f"    {name:>10}  {' '.join(f'{value:+.4f}' for value in row)}")


def main() -> None:
    embedding = Embedding(V, D, np.random.default_rng(3))
    table = embedding.weight
    sentence = ["the", "cat", "and", "the", "dog"]
    ids = np.array([[WORDS.index(word) for word in sentence]])

    heading(1, f"The table E: V = {V} tokens, D = {D} numbers each, drawn from N(0, 1/D)")
    show_rows(table, [f"{word} {row}" for row, word in enumerate(WORDS)])

    heading(2, 'Lookup: "the cat and the dog" takes a row of E for each token id')
    print(f"    ids {ids[0]}, shape (B, T) = {ids.shape}")
    x = embedding.forward(ids)
    show_rows(x[0], sentence)
    print(f'    shape (B, T, D) = {x.shape}; both "the" are the same row: {np.array_equal(x[0, 0], x[0, 3])}')

    heading(3, "The same by a product: one-hot rows (T, V) times E (V, D)")
    product = embedding.forward_one_hot(ids)
    print(f"    largest difference from the lookup: {np.abs(product - x).max():.1f}")
    print(f"    numbers multiplied for each token: {V * D} by the product, none by the lookup")

    heading(4, "The transformer's input: × sqrt(D), + position")
    layer = TransformerInput(Embedding.from_weight(table, scale="sqrt"), SinusoidalPositionalEncoding(D))
    for name, value in layer.steps(ids).items():
        print(f"    {name}")
        show_rows(value[0, [0, 3]], ["the, at 0", "the, at 3"])
    print('    the two "the" now differ, by where they stand')

    heading(5, "Backward: a row's gradient is the sum over the positions of its token")
    upstream = np.arange(1.0, 6.0)[None, :, None] * np.ones((1, 5, D))
    show_rows(upstream[0], sentence)
    gradient = embedding.backward(upstream)
    print("    gives E the gradient")
    show_rows(gradient, WORDS)
    print('    "the" stands at positions 0 and 3: 1 + 4 = 5; "sat" was not used: 0')

    heading(6, "One step of gradient descent changes only the rows used")
    before = table.copy()
    changed = embedding.step(learning_rate=0.1)
    show_rows(table - before, WORDS)
    print(f"    changed: {[WORDS[row] for row in changed]}")

    heading(7, 'Learning: pull "cat" and "dog" to one target; cosine before and after')
    pair, target = np.array([[WORDS.index("cat"), WORDS.index("dog")]]), np.full(D, 0.5)
    start = cosine(table[1], table[3])
    for _ in range(20):
        embedding.backward(2 * (embedding.forward(pair) - target))
        embedding.step(learning_rate=0.05)
    print(f"    cosine(cat, dog)  before {start:+.4f}  after {cosine(table[1], table[3]):+.4f}")

    heading(8, "A tied head: hidden @ E.T scores each token; E's gradient has two parts")
    head = LMHead(embedding)
    hidden, labels = embedding.forward([[0, 1]]), [[1, 2]]
    print(f"    the, cat -> cat, and: loss {head.loss(hidden, labels):.4f}; ln V = {np.log(V):.4f}")
    lookup_part = embedding.backward(head.backward())
    assert embedding.gradient is not None
    print("    from the lookup")
    show_rows(lookup_part, WORDS)
    print("    from the head")
    show_rows(embedding.gradient - lookup_part, WORDS)


if __name__ == "__main__":
    main()
