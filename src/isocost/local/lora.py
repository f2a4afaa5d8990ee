"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685), trained here and stored in peft's format.

    W = W0 + (α / r) B A,   A (r, in) uniform in ±1/√in, B (out, r) zero at the start

for each linear map of attention and feed-forward, by Hugging Face's names. Model and sampler compute with W itself, so
the two agree as they do without adapters, with any kernel. An update takes the gradient G of W, and from it those of
the factors: ∂A = (α/r) Bᵀ G, ∂B = (α/r) G Aᵀ. Adam has moments of the factors only; no memory is saved beside that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.can import Can
from isocost.disk.jsonfile import read_json
from isocost.disk.shape import Either, Keys, Maybe, Size
from isocost.errors import UserError, foreign, naming
from isocost.local.decoder import Backend, Config
from isocost.local.learner import LocalLearner, LossFn
from isocost.local.weights import Model, halved, paired, read_tensors, save, save_tensors
from isocost.meter import Meter
from isocost.types import Cost
from isocost.world import Weights, World

ALPHA = 32.0        # α, at any rank: the value of the Tinker API's services
SEED = 0            # of A
TENSORS, SETTINGS = "adapter_model.safetensors", "adapter_config.json"
PREFIX = "base_model.model."        # of tensors' names in peft
PARTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CONFIG = Keys({"r": Size, "lora_alpha": Either((int, float))}, {
    "base_model_name_or_path": Maybe(str), "target_modules": Either((str, list[str], None)), "use_rslora": bool,
})
PLAIN: Mapping[str, tuple[Any, ...]] = {      # settings of peft that are read at these values only
    "peft_type": ("LORA",), "bias": ("none",), "fan_in_fan_out": (False,), "use_dora": (False,),
    "modules_to_save": (None, []), "rank_pattern": ({}, None), "alpha_pattern": ({}, None),
    "layers_to_transform": (None,), "layer_replication": (None,), "trainable_token_indices": (None,),
}
FIX = "export the adapter again"


@dataclass(frozen=True)
class LinearMap:
    """Where a linear map is: its name at Hugging Face, the decoder's tensor, and its rows there.

    `pair` is the head size where the decoder keeps rows that rotate together side by side, else 0.
    """

    name: str
    tensor: str
    rows: slice
    shape: tuple[int, int]
    pair: int = 0

    def inwards(self, b: Tensor) -> Tensor:
        """B as the decoder orders its rows."""
        return paired(b, self.pair) if self.pair else b

    def outwards(self, b: Tensor) -> Tensor:
        """The inverse of `inwards`."""
        return halved(b, self.pair) if self.pair else b


def places(config: Config) -> list[LinearMap]:
    """Every linear map of a decoder but the embedding and the head."""
    c, q, kv = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    out: list[LinearMap] = []
    for i in range(c.layers):
        here, there = f"blocks.{i}.", f"model.layers.{i}."
        for name, tensor, first, rows, width, pair in (
            ("self_attn.q_proj", "qkv", 0, q, c.hidden, c.head_dim),
            ("self_attn.k_proj", "qkv", q, kv, c.hidden, c.head_dim),
            ("self_attn.v_proj", "qkv", q + kv, kv, c.hidden, 0),
            ("self_attn.o_proj", "out", 0, c.hidden, q, 0),
            ("mlp.gate_proj", "gate_up", 0, c.mlp, c.hidden, 0),
            ("mlp.up_proj", "gate_up", c.mlp, c.mlp, c.hidden, 0),
            ("mlp.down_proj", "down", 0, c.hidden, c.mlp, 0),
        ):
            out.append(LinearMap(there + name, here + tensor, slice(first, first + rows), (rows, width), pair))
    return out


def count(config: Config, rank: int) -> int:
    """How many numbers the adapters of a rank have."""
    return sum(rank * sum(p.shape) for p in places(config))


class LoraLearner(LocalLearner):
    """`LocalLearner` that trains adapters of one rank; `weights()` are the merged ones."""

    def __init__(
        self, config: Config, weights: Weights, meter: Meter, backend: Backend, *, rank: int, alpha: float = ALPHA,
        **settings: Any,
    ):
        super().__init__(config, weights, meter, backend, **settings)
        if rank > (most := min(min(p.shape) for p in places(config))):
            raise UserError(f"--lora {rank} is more than the smallest side of the model's matrices, {most}: give less")
        self.rank, self.alpha, self.places = rank, alpha, places(config)
        self._base = {p.tensor: self._weights[p.tensor].clone() for p in self.places}
        self.learned = count(config, rank)
        self._factors, self._slopes = (torch.zeros(self.learned, device=self.device, dtype=self._flat.dtype)
                                       for _ in range(2))
        self._dense = dict(self.decoder.named_parameters())
        generator = torch.Generator().manual_seed(SEED)
        for a, _ in self._each(self._factors):
            a.copy_((torch.rand(a.shape, generator=generator) * 2 - 1) * a.shape[1] ** -0.5)

    @property
    def scale(self) -> float:
        """α / r."""
        return self.alpha / self.rank

    def _each(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Views of A (r, in) and B (out, r) of each place in a flat vector."""
        at, r = 0, self.rank
        for p in self.places:
            rows, width = p.shape
            yield flat[at : at + r * width].view(r, width), flat[at + r * width : at + r * (width + rows)].view(rows, r)
            at += r * (width + rows)

    @torch.no_grad()
    def _project(self) -> Tensor:
        """The gradients of the factors, from those of the weights."""
        for p, (a, b), (da, db) in zip(self.places, self._each(self._factors), self._each(self._slopes), strict=True):
            whole = self._dense[p.tensor].grad
            assert whole is not None
            g = whole[p.rows]
            torch.mul(b.T @ g, self.scale, out=da)
            torch.mul(g @ a.T, self.scale, out=db)
        return self._slopes

    @torch.no_grad()
    def _merge(self) -> None:
        """Set the weights to those of the factors."""
        for p, (a, b) in zip(self.places, self._each(self._factors), strict=True):
            torch.add(self._base[p.tensor][p.rows], b @ a, alpha=self.scale, out=self._weights[p.tensor][p.rows])

    def _descend(self, lr: float) -> float:
        return self._down(self._project(), lr)

    def _down(self, slopes: Tensor, lr: float) -> float:
        """One clipped step of AdamW on the factors; returns the norm of their gradient."""
        dense = self._flat, self._grad
        self._flat, self._grad = self._factors, slopes
        try:
            norm = super()._descend(lr)
        finally:
            self._flat, self._grad = dense
        self._merge()
        return norm

    def gradients(self, batch: Batch, loss: LossFn) -> Iterator[tuple[Tensor, dict[str, float]]]:
        """Each rollout's own gradient of the factors: see `LocalLearner.gradients`."""
        for _, seen in super().gradients(batch, loss):
            yield self._project(), seen

    def step(self, gradient: Tensor, *, lr: float) -> float:
        """One step down this gradient of the factors."""
        self._slopes.copy_(gradient)
        norm = self._down(self._slopes, lr)
        self.meter.charge(Cost(updates=1))
        return norm

    def state(self) -> dict[str, Tensor]:
        """A copy of the factors, by peft's names, and of Adam's state; the base is the model's."""
        first, second = self._moments
        adam = {"adam.first": first.clone(), "adam.second": second.clone(), "adam.steps": torch.tensor(self._steps)}
        return {**self.adapter(), **adam}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state()`; ValueError for the state of another adapter."""
        self.set_adapter({k: v for k, v in state.items() if not k.startswith("adam.")})
        first, second = (state[f"adam.{x}"].to(self.device, copy=True) for x in ("first", "second"))
        self._moments = first, second
        self._steps = float(state["adam.steps"])

    def adapter(self) -> dict[str, Tensor]:
        """The factors by peft's names, copied."""
        out: dict[str, Tensor] = {}
        for p, (a, b) in zip(self.places, self._each(self._factors), strict=True):
            out[f"{PREFIX}{p.name}.lora_A.weight"] = a.clone()
            out[f"{PREFIX}{p.name}.lora_B.weight"] = p.outwards(b).clone()
        return out

    @torch.no_grad()
    def set_adapter(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the factors from their names in peft; ValueError if they are not those of this adapter."""
        mine = self.adapter()
        if {k: v.shape for k, v in mine.items()} != {k: v.shape for k, v in tensors.items()}:
            raise ValueError("the state is of another adapter")
        for p, (a, b) in zip(self.places, self._each(self._factors), strict=True):
            a.copy_(tensors[f"{PREFIX}{p.name}.lora_A.weight"])
            b.copy_(p.inwards(tensors[f"{PREFIX}{p.name}.lora_B.weight"]))
        self._merge()


# peft's format ------------------------------------------------------------------------------------------------------


def save_adapter(folder: Path, learner: LoraLearner, base: str) -> None:
    """Write the adapter as peft does: adapter_model.safetensors and adapter_config.json. `base` names its model."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(learner.adapter(), folder / TENSORS, {"format": "pt"})
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": learner.rank,
        "lora_alpha": learner.alpha, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "use_rslora": False, "target_modules": sorted(PARTS),
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def export(folder: Path, world: World, base: str) -> None:
    """Write a trained policy: in `final` as a Hugging Face folder; an adapter also in `adapter`, as peft writes it.

    Nothing for a model whose weights stay elsewhere, or that is no language model. `base` names the model that was
    trained.
    """
    if Can.WEIGHTS in world.learner.can and world.about.model is not None:
        save(folder / "final", world)
    if isinstance(world.learner, LoraLearner):
        save_adapter(folder / "adapter", world.learner, base)


def merged(folder: Path, load: Callable[[str], Model]) -> Model:
    """The base model of an adapter in peft's format, with the adapter's change added to its weights.

    Raises UserError, naming the file, for a kind of adapter that is not read here, and for one of another model.
    """
    settings, name = _settings(folder), base_of(folder)
    if Path(name).resolve() == folder.resolve():
        raise UserError(f"{folder / SETTINGS}: base_model_name_or_path is the adapter itself; name its model there")
    with naming(f"{folder / SETTINGS}: base_model_name_or_path"):
        base = load(name)
    rank, alpha = settings["r"], float(settings["lora_alpha"])
    scale = alpha / rank ** (0.5 if settings.get("use_rslora") else 1.0)
    with foreign(folder / TENSORS, FIX):
        tensors = {k.replace(".default.", "."): v.float() for k, v in read_tensors(folder / TENSORS).items()}
    weights = {k: v.clone() for k, v in base.weights.items()}
    for p in places(base.config):
        a, b = (tensors.pop(f"{PREFIX}{p.name}.lora_{x}.weight", None) for x in "AB")
        if a is None or b is None:
            continue
        if (b.shape[0], a.shape[1]) != p.shape or a.shape[0] != b.shape[1]:
            raise UserError(f"{folder / TENSORS}: {p.name} changes a matrix of {b.shape[0]} x {a.shape[1]}; that of "
                            f"{base.name} has {p.shape[0]} x {p.shape[1]}: it is an adapter of another model")
        weights[p.tensor][p.rows] += scale * p.inwards(b @ a)
    if tensors:
        raise UserError(f"{folder / TENSORS}: {min(tensors)} is not read here: only adapters of attention and "
                        "feed-forward are")
    return base.but(name=str(folder), weights=weights)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter in peft's format."""
    return (folder / SETTINGS).is_file()


def _settings(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = read_json(folder / SETTINGS, CONFIG)
    for name, values in PLAIN.items():
        if name in settings and settings[name] not in values:
            raise UserError(f"{folder / SETTINGS}: {name} is {settings[name]!r}; adapters are read with "
                            f"{name} = {values[0]!r} only")
    return settings


def base_of(folder: Path) -> str:
    """The name of an adapter's base model."""
    return str(_settings(folder).get("base_model_name_or_path") or "")

