# A small BERT over owners of text, with AdamW on the clients. With SGD at accord's usual rate it is at chance after 20
# rounds (53 % of unseen owners' texts right), with AdamW all are. The task is made up: does a text have a certain word
# in it? Nothing is downloaded. Needs: pip install "accord-fl[transformers]"
# Run it with: python examples/bert.py

import argparse

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import accord

WORDS, LENGTH, WANTED = 32, 12, 7


class Reader(nn.Module):
    """Reads texts as word numbers, `[B, 12]`, and gives logits `[B, 2]`."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=LENGTH,
            num_labels=2,
            attn_implementation="eager",  # in plain torch operations, which can be batched over clients
        )
        self.bert = BertForSequenceClassification(config)

    def forward(self, words: Tensor) -> Tensor:
        return self.bert(input_ids=words).logits


def owner(number: int, texts: int = 150) -> tuple[Tensor, Tensor]:
    """Random texts, half of which have the wanted word somewhere."""
    generator = torch.Generator().manual_seed(number)
    words = torch.randint(WANTED + 1, WORDS, (texts, LENGTH), generator=generator)
    has = torch.randint(0, 2, (texts,), generator=generator)
    place = torch.randint(0, LENGTH, (texts,), generator=generator)
    words[torch.arange(texts)[has == 1], place[has == 1]] = WANTED
    return words, has


def main() -> None:
    parser = argparse.ArgumentParser(description="A BERT from a config, with AdamW and with SGD on the clients.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", default="auto")
    asked = parser.parse_args()
    fed = accord.data.from_arrays({f"owner-{n}": owner(n) for n in range(8)}, unseen=2, heldout=0.2, name="texts")
    for optimiser, lr in (("adamw", 0.001), ("sgd", 0.01)):
        torch.manual_seed(0)  # the module draws its first weights from torch
        run = accord.fit(
            Reader(), fed, rounds=asked.rounds, epochs=2, batch=16, lr=lr, optimiser=optimiser, engine=asked.engine
        )
        print(f"{optimiser}: {run}\n")


if __name__ == "__main__":
    main()
