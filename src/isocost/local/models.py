"""Models by name: the embedded base, SmolLM2's GGUF, a Hugging Face folder, or an adapter in peft's format."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from isocost.disk.jsonfile import read_json
from isocost.errors import UserError, naming
from isocost.local import lora
from isocost.local.decoder import Config
from isocost.local.embedded import EMBEDDED
from isocost.local.gguf import load_smollm2, reading_smollm2
from isocost.local.weights import Model, load_folder, text_of, tokenizer_files
from isocost.world import Text

HUB = re.compile(r"[\w.-]+/[\w.-]+")      # how the Hub names a model


def load(name: str) -> Model:
    """An embedded model, "smollm2", a folder, or an adapter's base model with the adapter; else raises UserError."""
    if name in EMBEDDED:
        return load_folder(EMBEDDED[name]).but(name=name)
    if name == "smollm2":
        return load_smollm2()
    if lora.is_adapter(Path(name)):
        return lora.merged(Path(name), load)
    if (Path(name) / "config.json").is_file():
        return load_folder(Path(name))
    if (Path(name) / lora.TENSORS).is_file():
        raise UserError(f"{name} holds {lora.TENSORS}, a LoRA adapter, without its {lora.SETTINGS}, which names its "
                        "base model: put that file beside it, or give a model that the adapter was merged into")
    there = ""
    if HUB.fullmatch(name) and not Path(name).exists():
        own = shlex.quote(f"models/{name.rpartition('/')[2]}")
        there = f". From the Hugging Face Hub: `hf download {name} --local-dir {own}`, then --model {own}"
    raise UserError(f"no model {name!r}: give 'tiny', 'tiny-puzzles', 'smollm2', or a folder that holds config.json "
                    f"and *.safetensors{there}")


def reading(name: str) -> tuple[Text, int]:
    """The text of a model, and the tokens its context holds, without its weights. Raises UserError as `load` does."""
    if name == "smollm2":
        return reading_smollm2()
    folder = EMBEDDED.get(name) or Path(name)
    if lora.is_adapter(folder):
        return reading(lora.base_of(folder))
    if not (folder / "config.json").is_file():
        model = load(name)      # says what is wrong with the name
        return model.text, model.config.max_len
    data = read_json(folder / "config.json")
    with naming(folder / "config.json"):
        return text_of(data, tokenizer_files(folder)), Config.of(data).max_len
