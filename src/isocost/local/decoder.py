"""The Llama family in one file: Llama, SmolLM2, Qwen2, Qwen2.5 and Qwen3 are settings of `Config`.

Rows are padded on the right and positions start at 0, so causal attention never reads padding, and no mask is needed.
The residual stream and the head are float32 whatever the body's dtype is: the sampler and the learner run this same
code, so their log-probs differ by rounding only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isocost.errors import UserError

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]   # (.., H, D), (.., K, D), (.., K, D) -> (.., H, D)

FAMILIES = ("llama", "qwen2", "qwen3")
SCALINGS = {    # of rope: the settings that each needs
    "default": (), "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclass(frozen=True)
class Backend:
    """What computes a model: a device, the dtype of the body, kernels ("native", "graphs" or "torch"), threads."""

    device: torch.device
    body: torch.dtype = torch.float32
    kernels: str = "torch"
    threads: int = 1


@dataclass(frozen=True)
class Config:
    """The shape of a decoder. `Config.of` reads a Hugging Face config.json, `data` writes one."""

    vocab: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int                       # inner width of the gated feed-forward
    max_len: int = 2048            # tokens a row may have
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = field(default=None, hash=False)
    norm_eps: float = 1e-5
    tied: bool = True              # the head is the embedding
    qkv_bias: bool = False         # Qwen2
    qk_norm: bool = False          # Qwen3: RMS norm of each query and key head
    family: str = "llama"

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Config:
        """From the contents of a Hugging Face config.json; UserError for unsupported settings."""
        family = data.get("model_type", "llama")
        if family not in FAMILIES:
            raise unread(f"model_type is {family!r}; this decoder reads {', '.join(FAMILIES)}")
        if data.get("use_sliding_window"):
            raise unread("use_sliding_window is true; only full attention is supported")
        if data.get("mlp_bias") or (family == "llama" and data.get("attention_bias")):
            raise unread("the model has biases in its attention or feed-forward that this decoder does not support")
        if data.get("hidden_act", "silu") != "silu":
            raise unread(f"hidden_act is {data['hidden_act']!r}; this decoder has silu only")
        if data.get("quantization_config"):
            raise unread("the model is quantised (quantization_config); give it in floating point")
        rope = dict(data.get("rope_parameters") or data.get("rope_scaling") or {})
        theta = float(rope.pop("rope_theta", data.get("rope_theta", 10_000.0)))
        kind = rope.get("rope_type", rope.get("type", "default"))
        heads, hidden = int(data["num_attention_heads"]), int(data["hidden_size"])
        kv_heads = int(data.get("num_key_value_heads") or heads)
        head_dim = int(data.get("head_dim") or hidden // heads)
        if heads % kv_heads:
            raise UserError(f"num_attention_heads is {heads}, expected a multiple of num_key_value_heads, {kv_heads}")
        if head_dim % 2 or not head_dim:
            raise UserError(f"head_dim is {head_dim} (hidden_size {hidden}, {heads} heads), expected an even number")
        if kind not in SCALINGS:
            raise unread(f"rope scaling is {kind!r}; this decoder does {', '.join(SCALINGS)}")
        if missing := [k for k in SCALINGS[kind] if k not in rope]:
            raise UserError(f"rope scaling {kind!r} has no {missing[0]}")
        if kind == "llama3" and not float(rope["high_freq_factor"]) > float(rope["low_freq_factor"]):
            raise UserError(f"high_freq_factor is {rope['high_freq_factor']}, expected more than low_freq_factor, "
                            f"{rope['low_freq_factor']}")
        return cls(
            vocab=int(data["vocab_size"]), hidden=hidden, layers=int(data["num_hidden_layers"]), heads=heads,
            kv_heads=kv_heads, head_dim=head_dim, mlp=int(data["intermediate_size"]),
            max_len=int(data.get("max_position_embeddings", 2048)), rope_theta=theta,
            rope_scaling=None if kind == "default" else rope, norm_eps=float(data.get("rms_norm_eps", 1e-6)),
            tied=bool(data.get("tie_word_embeddings", False)), qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3", family=family,
        )

    def data(self) -> dict[str, Any]:
        """The contents of a Hugging Face config.json."""
        name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[self.family]
        return {
            "architectures": [f"{name}ForCausalLM"], "model_type": self.family, "vocab_size": self.vocab,
            "hidden_size": self.hidden, "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads, "head_dim": self.head_dim, "intermediate_size": self.mlp,
            "max_position_embeddings": self.max_len, "rope_theta": self.rope_theta,
            "rope_scaling": None if self.rope_scaling is None else dict(self.rope_scaling),
            "rms_norm_eps": self.norm_eps, "tie_word_embeddings": self.tied, "hidden_act": "silu",
            "attention_bias": self.qkv_bias, "torch_dtype": "float32",
        }


def unread(why: str) -> UserError:
    """The error for a model that this decoder does not compute, with what works for any model."""
    return UserError(f"{why}. Without loading it, isocost plans a model that your own trainer trains (--trainer), that "
                     "a server samples (--model openai:URL#MODEL), or whose completions are in a file (--completions)")


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary positions on (.., heads, D): each pair of neighbours is a complex number, which is rotated."""
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Full causal attention on (N, T, heads, D)."""
    return attention(q, k, v, None)


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attention on (N, T, heads, D) with a bias of (N, 1, T, T) on its scores; causal without one."""
    grouped = q.shape[-2] != k.shape[-2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None, enable_gqa=grouped)
    return out.transpose(1, 2)


def wide(body: torch.dtype) -> torch.dtype:
    """The type of the residual stream, the head and the master weights: at least float32."""
    return torch.float64 if body == torch.float64 else torch.float32


class Block(nn.Module):
    """Attention, then the gated feed-forward, each after its norm. Rows that rotate together are neighbours, as
    Meta's."""

    def __init__(self, config: Config, body: torch.dtype, device: torch.device | str | None):
        super().__init__()
        c, q, kv = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.heads, self.kv_heads, self.head_dim = c.heads, c.kv_heads, c.head_dim
        self.width, self.halves, self.eps, self.body = (c.hidden,), (c.mlp, c.mlp), c.norm_eps, body

        def new(*shape: int) -> nn.Parameter:
            return nn.Parameter((torch.zeros if len(shape) > 1 else torch.ones)(shape, device=device, dtype=wide(body)))

        self.norm1 = new(c.hidden)
        self.qkv = new(q + 2 * kv, c.hidden)
        self.qkv_bias = nn.Parameter(self.qkv.new_zeros(q + 2 * kv)) if c.qkv_bias else None
        self.q_norm = new(c.head_dim) if c.qk_norm else None
        self.k_norm = new(c.head_dim) if c.qk_norm else None
        self.out = new(c.hidden, q)
        self.norm2 = new(c.hidden)
        self.gate_up = new(2 * c.mlp, c.hidden)
        self.down = new(c.hidden, c.mlp)

    def forward(self, x: Tensor, turn: Tensor, attend: Attend) -> Tensor:
        attended = self._attention(torch.rms_norm(x, self.width, self.norm1, self.eps), turn, attend)
        x = x + self._linear(attended, self.out)
        both = self._linear(torch.rms_norm(x, self.width, self.norm2, self.eps), self.gate_up)
        gate, up = both.split_with_sizes(self.halves, -1)
        return x + self._linear(F.silu(gate) * up, self.down)

    def _attention(self, x: Tensor, turn: Tensor, attend: Attend) -> Tensor:
        qkv = self._linear(x, self.qkv, self.qkv_bias).view(*x.shape[:-1], -1, self.head_dim)
        qk, v = qkv.split_with_sizes((self.heads + self.kv_heads, self.kv_heads), -2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = qk.split_with_sizes((self.heads, self.kv_heads), -2)
            q = torch.rms_norm(q, (self.head_dim,), self.q_norm, self.eps)
            qk = torch.cat((q, torch.rms_norm(k, (self.head_dim,), self.k_norm, self.eps)), -2)
        qk = rotate(qk, turn)
        if x.dtype != self.body:
            qk, v = qk.to(self.body), v.to(self.body)
        q, k = qk.split_with_sizes((self.heads, self.kv_heads), -2)
        return attend(q, k, v).flatten(-2).to(x.dtype)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if x.dtype == self.body:
            return F.linear(x, weight, bias)
        wide = F.linear(x.to(self.body), weight.to(self.body)).float()
        return wide if bias is None else wide + bias.float()


class Decoder(nn.Module):
    """A decoder-only transformer: `forward` gives hidden states, `logits` the head's float32 product."""

    def __init__(
        self, config: Config, *, body: torch.dtype = torch.float32, device: torch.device | str | None = None
    ):
        super().__init__()
        self.config, self.body = config, body
        where: Any = {"device": device, "dtype": wide(body)}
        self.embed = nn.Parameter(torch.zeros(config.vocab, config.hidden, **where))
        self.blocks = nn.ModuleList(Block(config, body, device) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.hidden, **where))
        self.head = None if config.tied else nn.Parameter(torch.zeros(config.vocab, config.hidden, **where))
        self.register_buffer("turns", rotations(config).to(device), persistent=False)
        self.turns: Tensor
        self.layers: list[Block] = [b for b in self.blocks if isinstance(b, Block)]

    @classmethod
    def from_config(
        cls, config: Config, generator: torch.Generator | None = None, *, body: torch.dtype = torch.float32
    ) -> Decoder:
        """Random weights: normal with variance 1/inputs; for outputs to the residual stream over 2 x layers."""
        self = cls(config, body=body)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.ndim == 2:
                    last = name.endswith((".out", ".down"))
                    std = p.shape[1] ** -0.5 / (math.sqrt(2 * config.layers) if last else 1.0)
                    p.normal_(0.0, std, generator=generator)
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T) tokens, padded on the right -> (N, T, hidden) after the last norm."""
        return self.run(tokens, self.turns[: tokens.shape[1]], lambda layer: causal)

    def run(self, tokens: Tensor, turn: Tensor, attend: Callable[[int], Attend]) -> Tensor:
        """Tokens of any shape, each with its rotation (.., 1, D/2); `attend(layer)` computes their attention."""
        x = F.embedding(tokens, self.embed)
        for i, block in enumerate(self.layers):
            x = block.forward(x, turn, attend(i))
        return torch.rms_norm(x, (self.config.hidden,), self.norm, self.config.norm_eps)

    def logits(self, hidden: Tensor) -> Tensor:
        """(.., hidden) -> (.., V), in float32 (float64 if the body is) like the hidden states themselves."""
        return F.linear(hidden, self.embed if self.head is None else self.head)


def rotations(config: Config) -> Tensor:
    """e^(i angle) of each position and pair, (max_len and a little for padding, 1, D/2), in float32 throughout."""
    powers = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    position = torch.arange(config.max_len + 64, dtype=torch.float32)
    angle = position[:, None] * _scaled(1.0 / config.rope_theta**powers, config)
    return torch.complex(angle.cos(), angle.sin())[:, None]


def _scaled(frequency: Tensor, config: Config) -> Tensor:
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return frequency / float(scaling["factor"])
    # Llama 3.1: low frequencies are divided by `factor`, high ones are unchanged, those between are interpolated
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * frequency / (2 * math.pi)
    blend = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequency * (blend + (1.0 - blend) / float(scaling["factor"]))
