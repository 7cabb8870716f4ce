"""From a text file to sentences, with a small decoder-only model: python tiny_decoder.py farm.txt"""

import sys
from pathlib import Path

import torch
from torch import nn

import tokenspace as ts
from tokenspace.nn import LMHead, TransformerInput


class TinyDecoder(nn.Module):
    def __init__(self, rows: int, width: int = 32) -> None:
        super().__init__()
        self.input = TransformerInput.from_recipe("gpt2", vocab_size=rows, d_model=width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = LMHead(self.input.token)  # tied: the rows that were read are the rows that are scored

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.body(self.input(ids), mask=mask, is_causal=True)


def main(path: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the same numbers every time; a model this small gains nothing from more
    tokenizer = ts.Tokenizer.train([path])
    end = tokenizer.vocab.id("[SEP]")
    lines = [[end, *tokenizer.encode(line).ids, end] for line in Path(path).read_text().splitlines()]
    length = max(map(len, lines))
    inputs = torch.tensor([line[:-1] + [end] * (length - len(line)) for line in lines])
    labels = torch.tensor([line[1:] + [-100] * (length - len(line)) for line in lines])

    model = TinyDecoder(len(tokenizer.vocab))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(1, 25):
        for batch in torch.randperm(len(lines)).split(64):
            loss = model.head.loss(model(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch in (1, 8, 24):
            print(f"epoch {epoch}: loss {loss.item():.2f}")

    model.eval()
    for start in ("the old cat eats", "every morning the", "in the evening the cow"):
        ids = [end, *tokenizer.encode(start).ids]
        while len(ids) < length and (ids[-1] != end or len(ids) == 1):
            ids.append(int(model.head(model(torch.tensor([ids])))[0, -1].argmax()))
        print(tokenizer.decode(ids))
    table = ts.Table(model.input.token.weight.detach().numpy(), tokenizer.vocab)
    for word in ("cow", "morning"):
        print(word, "is near", *(hit.token for hit in ts.geometry.neighbors(table, word, k=3)))


if __name__ == "__main__":
    main(*sys.argv[1:])
