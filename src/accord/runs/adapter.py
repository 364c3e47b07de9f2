"""Adapters (PEFT, LoRA) in the layout of their own library, beside accord's own file of the whole model."""

import sys
from pathlib import Path

from torch import nn


def save_adapter(module: nn.Module, folder: Path) -> list[Path]:
    """Writes `adapter_config.json` and `adapter_model.safetensors`, as `peft.PeftModel.from_pretrained` reads them, and
    gives them; nothing for a module that is no PEFT model."""
    peft = sys.modules.get("peft")  # there is no such model unless it is imported
    if peft is None or not isinstance(module, peft.PeftModel):
        return []
    # peft's "auto" may ask the hub for the base model's settings; embeddings belong to an adapter that trains them
    embeddings = any(p.requires_grad for name, p in module.named_parameters() if "embed" in name)
    module.save_pretrained(str(folder), save_embedding_layers=embeddings)
    return sorted(
        path for path in folder.rglob("adapter_*") if path.is_file()
    )  # and not the card, which is for editing
