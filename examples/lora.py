# A LoRA adapter over owners of text: the base, a small BERT, is frozen, stays where it is and is the same before and
# after; what clients train, send and vote on is the adapter and the new head. In the run's folder it is saved as peft
# saves it. The base is first trained on public texts to find one word; the owners look for another. Nothing is
# downloaded. Needs: pip install "accord-fl[transformers]"
# Run it with: python examples/lora.py

import argparse

import datasets
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

import accord

WORDS, LONGEST = 32, 12


def texts(owner: str, wanted: int, seed: int, count: int) -> list[dict]:
    """Texts as a tokeniser leaves them: numbers of words, and a mask. Half have the wanted word somewhere."""
    draw, rows = torch.Generator().manual_seed(seed), []
    for number in range(count):
        length = int(torch.randint(6, LONGEST + 1, (1,), generator=draw))
        words = torch.randint(10, WORDS, (length,), generator=draw)
        if number % 2:
            words[int(torch.randint(0, length, (1,), generator=draw))] = wanted
        row = {"input_ids": words.tolist(), "attention_mask": [1] * length, "label": number % 2, "owner": owner}
        rows.append(row)
    return rows


def bert() -> BertForSequenceClassification:
    torch.manual_seed(0)  # the module draws its first weights from torch
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, max_position_embeddings=LONGEST, **shape))


def main() -> None:
    parser = argparse.ArgumentParser(description="A frozen BERT, and an adapter that owners train together.")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--folder", default="lora-runs")
    asked = parser.parse_args()
    training = {"epochs": 2, "batch": 16, "optimiser": "adamw", "evaluate_every": 100}

    public = datasets.Dataset.from_list(texts("public", wanted=5, seed=99, count=600))
    pretrained = accord.fit(bert(), accord.data.from_huggingface(public, "owner"), rounds=10, lr=0.001, **training)

    rows = [row for number in range(8) for row in texts(f"owner-{number}", wanted=7, seed=number, count=100)]
    fed = accord.data.from_huggingface(datasets.Dataset.from_list(rows), "owner", unseen=2, name="texts")
    lora = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value", "dense"])
    model = get_peft_model(pretrained.model(), lora)
    mask = accord.gma(0.4)
    run = accord.fit(
        model, fed, accord.fedavg(mask=mask), rounds=asked.rounds, lr=0.005, folder=asked.folder, **training
    )
    print(f"{len(run.last.vector):,} of {sum(p.numel() for p in model.parameters()):,} parameters are trained and sent")
    print(run)

    again = PeftModel.from_pretrained(pretrained.model(), run.folder / "adapter").eval()
    words, there = fed.fields.unpack(fed.x[:5])[1].values()
    same = torch.equal(again(words, there).logits, run.model()(words, there).logits)
    print(f"the adapter in {run.folder.name}/adapter, on the base, answers as the run's model: {same}")


if __name__ == "__main__":
    main()
