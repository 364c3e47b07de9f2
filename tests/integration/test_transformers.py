"""Hugging Face models and PEFT adapters as they come, from a config: nothing is downloaded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import accord
from accord.data import Federation, from_arrays, from_huggingface
from accord.runs.reader import load as read

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'accord-fl[transformers]'")
pytest.importorskip("peft", reason="peft is not installed: pip install 'accord-fl[transformers]'")
pytest.importorskip("datasets", reason="datasets is not installed: pip install 'accord-fl[transformers]'")

import datasets
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPE = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
SHAPE |= {"intermediate_size": 16, "max_position_embeddings": 8}
QUIET: dict[str, Any] = {"rounds": 2, "lr": 0.05, "batch": 8, "verbose": False, "device": "cpu"}


def bert(kind: Any = BertForSequenceClassification, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind(BertConfig(**SHAPE, **options))


def lora(model: nn.Module) -> PeftModel:
    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"]))


def rows() -> list[dict[str, Any]]:
    """Texts of 4 to 8 words, as a tokeniser leaves them."""
    draw, made = torch.Generator().manual_seed(0), []
    for number in range(60):
        length = 4 + number % 5
        words = torch.randint(1, 32, (length,), generator=draw).tolist()
        row = {"input_ids": words, "token_type_ids": [0] * length, "attention_mask": [1] * length}
        made.append({**row, "label": words[0] % 2, "tags": [word % 2 for word in words], "owner": f"o{number % 4}"})
    return made


def texts(**options: Any) -> Federation:
    return from_huggingface(datasets.Dataset.from_list(rows()), "owner", unseen=1, **options)


class Wrapped(nn.Module):
    """What a user had to write before: the same model of one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.bert = bert()

    def forward(self, x: Tensor) -> Tensor:
        words, kinds, mask = x.split(8, dim=1)
        return self.bert(input_ids=words, token_type_ids=kinds, attention_mask=mask).logits


@pytest.mark.parametrize("engine", ["sequential", "processes"])
def test_as_it_comes_equals_a_wrapper_of_one_tensor(engine: str) -> None:
    fed = texts()
    flat = {
        name: (fed.x[[*range(n, 60, 4)]], fed.y[[*range(n, 60, 4)]]) for n, name in enumerate(("o0", "o1", "o2", "o3"))
    }
    found = accord.fit(bert(), fed, engine=engine, optimiser="adamw", **QUIET | {"lr": 0.001})
    wrapped = from_arrays(flat, unseen=1)
    expected = accord.fit(Wrapped(), wrapped, engine=engine, optimiser="adamw", **QUIET | {"lr": 0.001})
    assert torch.equal(found.last.vector, expected.last.vector) and found.rows == expected.rows


def test_lanes_agree_and_what_they_cannot_do_is_said() -> None:
    words = _words()
    one, many = (
        accord.fit(bert(attn_implementation="eager"), words, engine=e, **QUIET) for e in ("sequential", "vectorised")
    )
    torch.testing.assert_close(one.last.vector, many.last.vector, rtol=1e-3, atol=1e-5)
    with pytest.warns(
        UserWarning, match="cannot be run for many clients at once at layer .*clients are trained one by one"
    ):
        masked = accord.fit(bert(), texts(), engine="vectorised", **QUIET)
    assert torch.equal(masked.last.vector, accord.fit(bert(), texts(), engine="sequential", **QUIET).last.vector)


def _words() -> Federation:
    """Texts of one length, which need no mask."""
    even = [{**row, "input_ids": (row["input_ids"] * 2)[:8]} for row in rows()]
    return from_huggingface(datasets.Dataset.from_list(even), "owner", features="input_ids", unseen=1)


def test_a_label_for_each_word() -> None:
    run = accord.fit(
        bert(BertForTokenClassification), texts(label="tags"), metrics=["accuracy", "perplexity"],
        optimiser="adamw", **QUIET | {"lr": 0.02, "rounds": 15},
    )  # fmt: skip
    metrics = run.history[-1][1].splits["unseen"].metrics
    assert metrics["accuracy"].by_sample > 0.9 and metrics["perplexity"].by_sample < 1.4  # type: ignore[operator]


@pytest.mark.parametrize("engine", ["sequential", "processes", "vectorised"])
def test_an_adapter_is_all_that_is_trained_and_is_saved_as_one(engine: str, tmp_path: Path) -> None:
    base = bert(attn_implementation="eager")
    before = {name: value.clone() for name, value in base.state_dict().items()}
    model = lora(base)
    run = accord.fit(
        model, _words(), accord.fedavg(mask=accord.gma(0.4)), engine=engine, folder=tmp_path, **QUIET | {"lr": 0.5}
    )
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert len(run.last.vector) == trainable < 700
    trained, first = run.model(), dict(model.named_parameters())
    assert isinstance(trained, PeftModel) and run.folder is not None
    changed = {name for name, value in trained.named_parameters() if not torch.equal(value, first[name])}
    assert changed and all(first[name].requires_grad for name in changed)
    assert {"adapter_config.json", "adapter_model.safetensors"} <= {p.name for p in (run.folder / "adapter").iterdir()}
    assert (
        sum(value.numel() for value in load_file(run.folder / "adapter" / "adapter_model.safetensors").values())
        == trainable
    )

    fresh = bert(attn_implementation="eager")
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    again = PeftModel.from_pretrained(fresh, run.folder / "adapter").eval()
    words = torch.arange(8)[None]
    assert torch.equal(again(input_ids=words).logits, trained(input_ids=words).logits)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_damaged_adapter_is_told(name: str, tmp_path: Path) -> None:
    run = accord.fit(lora(bert()), _words(), folder=tmp_path, **QUIET)
    assert run.folder is not None and read(run.folder).status == "done"
    file = run.folder / "adapter" / name
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert read(run.folder).status.startswith(f"damaged: adapter/{name} is damaged")


def test_a_model_without_an_adapter_has_none(tmp_path: Path) -> None:
    run = accord.fit(bert(), texts(), folder=tmp_path, **QUIET)
    assert run.folder is not None and not (run.folder / "adapter").exists()


def example(name: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def unseen(text: str) -> list[float]:
    """Accuracy on unseen clients, by sample, of every run in the text."""
    return [float(line.split()[3]) for line in text.splitlines() if line.startswith("unseen  ")]


@pytest.mark.slow
def test_bert_learns_with_adamw_and_stays_at_chance_with_sgd(tmp_path: Path) -> None:
    adamw, sgd = unseen(example("bert", tmp_path))
    assert adamw == 100.0 and sgd < 65.0


@pytest.mark.slow
def test_the_lora_example(tmp_path: Path) -> None:
    text = example("lora", tmp_path)
    assert unseen(text)[0] > 90.0 and "6,722 of 26,468 parameters" in text
    assert text.rstrip().endswith("answers as the run's model: True")
