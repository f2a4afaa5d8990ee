"""Hugging Face folders, read and written; the embedded base is one.

Only safetensors and JSON are read; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from isocost.disk.jsonfile import parsed, read_json, read_text
from isocost.disk.shape import AtLeast, AtMost, Count, Each, Either, Filled, Keys, Maybe, flaw
from isocost.errors import UserError, foreign, naming
from isocost.local.decoder import Config
from isocost.local.tokenizer import Characters, HubTokenizer
from isocost.world import Text, Weights, World

log = logging.getLogger("isocost")

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json",
    "chat_template.jinja", "vocab.json", "merges.txt",
)
FLOATS = ("F64", "F32", "F16", "BF16")      # what weights may be stored as, by safetensors' names
FETCH = "fetch or export the model again"   # what to do about a file that is broken
SINGLE, INDEX_FILE, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"
BUFFERS = ("rotary_emb.inv_freq",)          # tensors of old files that follow from config.json
UNMERGED = re.compile(r"\.(lora_[AB]|lora_embedding_[AB]|base_layer)\.")     # in peft's names of tensors
SHOWN = 3           # names that a message lists


def _up_to(most: int, least: int = 1) -> Any:
    return Annotated[int, AtLeast(least), AtMost(most)]


ENDS = int | list[int] | None
POSITIVE = Annotated[float, AtLeast(1e-30), AtMost(1e30)]
ROPE = Maybe(Keys({}, {
    "rope_theta": POSITIVE, "rope_type": str, "type": str, "factor": POSITIVE, "low_freq_factor": POSITIVE,
    "high_freq_factor": POSITIVE, "original_max_position_embeddings": POSITIVE,
}))
CONFIG = Keys({     # of config.json; the bounds are far above any model, and keep what is allocated within reason
    "vocab_size": _up_to(2**22), "hidden_size": _up_to(2**17), "num_hidden_layers": _up_to(2**11),
    "num_attention_heads": _up_to(2**12), "intermediate_size": _up_to(2**20),
}, {
    "num_key_value_heads": Maybe(_up_to(2**12)), "head_dim": Maybe(_up_to(2**12, 2)),
    "max_position_embeddings": _up_to(2**21), "rope_theta": POSITIVE, "rope_parameters": ROPE, "rope_scaling": ROPE,
    "rms_norm_eps": POSITIVE, "tie_word_embeddings": bool, "model_type": str, "hidden_act": str,
    "use_sliding_window": bool | None, "mlp_bias": bool, "attention_bias": bool, "eos_token_id": ENDS, "alphabet": str,
})
STARTING_RATE = Keys({"lr": POSITIVE, "rollouts": Count, "command": str})
INDEX = Keys({"weight_map": Filled(dict[str, str])})
SPELLING = Either((str, Keys({"content": str}), None))
TOKENIZERS = {
    "tokenizer.json": Keys({}, {"added_tokens": Maybe(Each(Keys({"id": Count, "content": str})))}),
    "tokenizer_config.json": Keys({}, {
        "chat_template": Either((str, Each(Keys({"name": str, "template": str})), None)),
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), SPELLING),
    }),
    "generation_config.json": Keys({}, {"eos_token_id": ENDS}),
}


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

    @property
    def starting_rate(self) -> Mapping[str, Any] | None:
        """The learning rate that its maker measured: `lr` at `rollouts` per update, and the `command`; None if none."""
        made = self.extra.get("made")
        own = made.get("starting_rate") if isinstance(made, Mapping) else None
        return None if own is None or flaw(own, STARTING_RATE) else own

    def but(self, **changes: Any) -> Model:
        return replace(self, **changes)


def tokenizer_files(folder: Path) -> dict[str, str]:
    return {f: read_text(folder / f) for f in TOKENIZER_FILES if (folder / f).is_file()}


def load_folder(folder: Path) -> Model:
    """A Hugging Face folder. Raises UserError, naming the file, for what is missing, broken, or does not fit."""
    data = read_json(folder / "config.json", CONFIG)
    with naming(folder / "config.json"):
        config = Config.of(data)
    extra = {k: v for k, v in data.items() if k not in config.data()}
    files = tokenizer_files(folder)
    with naming(folder):
        stored = Stored(folder)
        weights, text = from_hub(config, stored), text_of(data, files)
        fitting(text, config)
    stored.name_unread()
    return Model(str(folder), config, weights, text, extra, files)


def fitting(text: Characters | HubTokenizer, config: Config) -> None:
    """Raises UserError where a tokenizer makes tokens that the model has no row for."""
    if text.size > config.vocab:
        raise UserError(f"the tokenizer has tokens up to {text.size - 1} and the model's vocab_size is {config.vocab}: "
                        "use the tokenizer that the model was trained with")
    if bad := [end for end in text.ends if not 0 <= end < config.vocab]:
        raise UserError(f"the end token {bad[0]} is not below the model's vocab_size {config.vocab}: correct "
                        "eos_token_id in generation_config.json and config.json")


def save(folder: Path, world: World) -> None:
    """Write the policy of a world as a Hugging Face folder, whole or not at all, over an older one. Raises OSError."""
    part = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(part, ignore_errors=True)
    try:
        save_model(part, world.about.model, world.learner.weights())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except OSError as e:
        shutil.rmtree(part, ignore_errors=True)     # on a full disk, a part of it only takes up room
        raise OSError(e.errno, e.strerror, str(folder)) from e


def save_model(folder: str | Path, model: Model, weights: Weights | None = None, *, head: bool = False) -> None:
    """Write a Hugging Face folder; `weights` in place of the model's; with `head` also a head that is its embedding."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = dict(to_hub(model.config, model.weights if weights is None else weights))
    if head:
        tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"].clone())
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


def open_tensors(path: Path) -> Any:
    """A file of safetensors, open. Where its path is not UTF-8, which safetensors rejects, by way of a descriptor."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        with open(path, "rb") as file:
            return safe_open(f"/proc/self/fd/{file.fileno()}", framework="pt")
    return safe_open(path, framework="pt")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file of safetensors."""
    file = open_tensors(path)
    names: list[str] = file.keys()
    return {name: file.get_tensor(name) for name in names}


def checksum(weights: Weights) -> str:
    """A hash of names and bytes: the sampler holds the learner's weights when the two are equal."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


class Stored(Mapping[str, Tensor]):
    """A folder's safetensors by name, in float32, each read when it is asked for.

    As in transformers, the files are model.safetensors or, without it, those that the index names; others are not read.

    Raises UserError for a file that is missing or broken, for a tensor that two files hold with different values, and,
    when it is asked for, for a tensor of integers or of 8-bit floats, which mean nothing without the scales of their
    format, and for one that is not finite.
    """

    def __init__(self, folder: Path):
        self.folder, self._asked = folder, set[str]()
        there, index = sorted(p.name for p in folder.glob("*.safetensors")), folder / INDEX_FILE
        if (folder / SINGLE).is_file():
            named = [SINGLE]
        elif index.is_file():
            named = sorted(set(read_json(index, INDEX)["weight_map"].values()))
        else:
            raise UserError(f"{folder} holds {_without(there)}")
        self.unread_files = [name for name in there if name not in (*named, ADAPTER)]
        self._files: dict[str, Any] = {}      # name of a tensor -> the open file that holds it
        for name in named:
            if Path(name).name != name:
                raise UserError(f"{index} names {name!r}, which is not a file of its own folder; correct it")
            if not (folder / name).is_file():
                raise UserError(f"{folder / name} is named by the index but missing")
            with foreign(folder / name, FETCH):
                file = open_tensors(folder / name)
                keys: list[str] = file.keys()
            for key in keys:
                if key in self._files and not torch.equal(self._read(key, *self._files[key]),
                                                          self._read(key, folder / name, file)):
                    raise UserError(f"{key} is in {self._files[key][0]} and in {name}, with other values; {FETCH}")
                self._files[key] = (folder / name, file)

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._read(name, *self._files[name])
        self._asked.add(name)
        return tensor

    def _read(self, name: str, path: Path, file: Any) -> Tensor:
        with foreign(path, FETCH):
            kind = file.get_slice(name).get_dtype()
        if kind not in FLOATS:
            raise UserError(f"{path}: {name} is stored as {kind}; quantised weights are not read. Give the model in "
                            f"one of {', '.join(FLOATS)}")
        with foreign(path, FETCH):
            tensor: Tensor = file.get_tensor(name).float()
        if not bool(tensor.isfinite().all()):
            raise UserError(f"{path}: {name} contains NaN or infinite values; {FETCH}")
        return tensor

    def name_unread(self) -> None:
        """Warn of the files of weights beside those that were read, and of the tensors that nothing asked for."""
        if self.unread_files:
            log.warning("%s: %s not read: transformers, too, takes %s", self.folder, _list(self.unread_files),
                        SINGLE if (self.folder / SINGLE).is_file() else f"the files in {INDEX_FILE}")
        left = sorted(k for k in self._files if k not in self._asked and not k.endswith(BUFFERS))
        if left:
            log.warning("%s: %s in its files of weights not used, because config.json does not ask for them: check "
                        "that the two belong together", self.folder, _list(left))

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _without(files: list[str]) -> str:
    """What a folder holds that has neither model.safetensors nor its index, and what to do."""
    if not files:
        return "no *.safetensors (other formats are not read: they can run code)"
    if files == [ADAPTER]:
        return (f"{ADAPTER}, an unmerged LoRA adapter, and no model: put its adapter_config.json beside it, which "
                "names its base model, or save the model after merge_and_unload()")
    return (f"no {SINGLE} and no {INDEX_FILE}, only {_list(files)}: which of its files are the model's is not known; "
            f"rename the one with all weights to {SINGLE}, or save the model again with save_pretrained")


def _list(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def text_of(data: Mapping[str, Any], files: Mapping[str, str]) -> Characters | HubTokenizer:
    """The tokenizer that a model's config.json and its files describe. Ends are the union of what the configs name."""
    if "alphabet" in data:
        if not isinstance(end := data.get("eos_token_id"), int):
            raise UserError("config.json has an alphabet, and one eos_token_id goes with it")
        return Characters(data["alphabet"], end)
    if "tokenizer.json" not in files:
        raise UserError("the folder holds no tokenizer.json; other tokenizer formats are not read")
    read = {name: _document(name, files.get(name, "{}"), shape) for name, shape in TOKENIZERS.items()}
    settings, generation = read["tokenizer_config.json"], read["generation_config.json"]
    names = {k: v for k in ("bos_token", "eos_token", "pad_token", "unk_token")
             if isinstance(v := _content(settings.get(k)), str)}
    template = files.get("chat_template.jinja", settings.get("chat_template"))
    if isinstance(template, list):     # several named templates: the one called default
        template = {t["name"]: t["template"] for t in template}.get("default")
    added = {t["content"]: t["id"] for t in read["tokenizer.json"].get("added_tokens") or []}
    named = generation.get("eos_token_id"), data.get("eos_token_id"), added.get(names.get("eos_token", ""))
    ends = [end for some in named for end in _ids(some)]
    if not ends:
        raise UserError("no end token is named in generation_config.json, config.json or tokenizer_config.json")
    return HubTokenizer(files["tokenizer.json"], ends, template, names)


def _document(name: str, text: str, shape: Keys) -> dict[str, Any]:
    """One of a tokenizer's files, from its text. Raises UserError naming what is wrong in it."""
    try:
        data = parsed(text)
    except ValueError as e:
        raise UserError(f"{name} {e}; {FETCH}") from None
    if wrong := flaw(data, shape):
        raise UserError(f"{name}: {wrong}; {FETCH}")
    return dict(data)


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _ids(value: Any) -> list[int]:
    return [] if value is None else [int(v) for v in (value if isinstance(value, list) else [value])]


_HUB = {
    "norm1": "input_layernorm", "norm2": "post_attention_layernorm", "out": "self_attn.o_proj", "down": "mlp.down_proj",
}


def from_hub(config: Config, hub: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's names and layout to the decoder's; UserError when a tensor is missing or of another shape."""
    c, width = config, config.heads * config.head_dim
    rows = {"q": width, "k": c.kv_heads * c.head_dim, "v": c.kv_heads * c.head_dim}
    own = {"norm1": (c.hidden,), "norm2": (c.hidden,), "out": (c.hidden, width), "down": (c.hidden, c.mlp)}

    if adapted := next((name for name in hub if UNMERGED.search(name)), None):
        raise UserError(f"the weights hold {adapted}, of an unmerged LoRA adapter: save the model after "
                        "merge_and_unload(), or give the folder of the adapter (adapter_config.json) as the model")

    def get(name: str, *shape: int) -> Tensor:
        if name not in hub:
            before = next((k.removesuffix(name) for k in hub if k.endswith("." + name)), None)
            how = f"; they hold {before}{name}: save the model itself, not what wraps it" if before else ""
            raise UserError(f"the weights lack {name}, which config.json asks for{how}")
        if (tensor := hub[name]).shape != shape:
            raise UserError(f"{name} has the shape {tuple(tensor.shape)}, but config.json requires {shape}: the two "
                            "files belong to different models")
        return tensor

    embed, head = "model.embed_tokens.weight", "lm_head.weight"
    if c.tied and embed not in hub and head in hub:     # as transformers: the two are one, under either name
        embed = head
    out = {"embed": get(embed, c.vocab, c.hidden), "norm": get("model.norm.weight", c.hidden)}
    if not c.tied:
        out["head"] = get(head, c.vocab, c.hidden)
    elif head in hub and not torch.equal(get(head, c.vocab, c.hidden), out["embed"]):
        raise UserError(f"config.json says that the head is the embedding (tie_word_embeddings is true), and {head} "
                        "holds other values: set tie_word_embeddings to false to use them, or remove the tensor")
    for i in range(c.layers):
        here, there = f"blocks.{i}.", f"model.layers.{i}."
        for ours, theirs in _HUB.items():
            out[here + ours] = get(f"{there}{theirs}.weight", *own[ours])
        out[here + "gate_up"] = torch.cat([get(f"{there}mlp.{x}_proj.weight", c.mlp, c.hidden) for x in ("gate", "up")])
        for part, across in (("weight", (c.hidden,)), ("bias", ())) if c.qkv_bias else (("weight", (c.hidden,)),):
            q, k, v = (get(f"{there}self_attn.{x}_proj.{part}", rows[x], *across) for x in "qkv")
            name = here + ("qkv" if part == "weight" else "qkv_bias")
            out[name] = torch.cat((paired(q, c.head_dim), paired(k, c.head_dim), v))
        if c.qk_norm:
            for x in "qk":
                out[f"{here}{x}_norm"] = paired(get(f"{there}self_attn.{x}_norm.weight", c.head_dim), c.head_dim)
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
