"""Model files: weights, config.json, tokenizers, indexes and GGUF that are broken, hostile or absurd."""

from __future__ import annotations

import json
import math
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from isocost.local.models import load
from isocost.types import Message

SHAPE = {
    "model_type": "llama", "vocab_size": 300, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama folder with every file, which loads."""
    folder = tmp_path_factory.mktemp("models") / "good"
    folder.mkdir()
    write_json(folder / "config.json", SHAPE)
    rows = {"input_layernorm": (16,), "post_attention_layernorm": (16,), "self_attn.q_proj": (16, 16),
            "self_attn.k_proj": (8, 16), "self_attn.v_proj": (8, 16), "self_attn.o_proj": (16, 16),
            "mlp.gate_proj": (24, 16), "mlp.up_proj": (24, 16), "mlp.down_proj": (16, 24)}
    shapes = {f"model.layers.{i}.{k}.weight": v for i in (0, 1) for k, v in rows.items()}
    shapes |= {"model.embed_tokens.weight": (300, 16), "model.norm.weight": (16,)}
    save_file({k: torch.full(v, 0.1) for k, v in shapes.items()}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text(tokenizer())
    write_json(folder / "tokenizer_config.json", {"eos_token": "<end>", "chat_template": "{{ messages[0].content }}"})
    write_json(folder / "generation_config.json", {"eos_token_id": 257})
    return folder


def tokenizer() -> str:
    """A byte-level BPE of no merges and two special tokens, as JSON."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken(x, special=True) for x in ("<turn>", "<end>")])
    return str(made.to_str())


def write_json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data))


def text(name: str, content: str | bytes) -> Damage:
    """Put something else into a file."""
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def change(name: str, **changes: Any) -> Damage:
    """Change keys of a JSON file; ... takes one out."""

    def damage(folder: Path) -> None:
        data = {**json.loads((folder / name).read_text()), **changes}
        write_json(folder / name, {k: v for k, v in data.items() if v is not ...})

    return damage


def config(**changes: Any) -> Damage:
    return change("config.json", **changes)


def tensors(edit: Callable[[dict[str, Any]], object]) -> Damage:
    """Change the stored tensors."""

    def damage(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        edit(found)
        save_file(found, folder / "model.safetensors")

    return damage


def cut(name: str, keep: float) -> Damage:
    return lambda folder: os.truncate(folder / name, int(keep * (folder / name).stat().st_size))


def header(raw: bytes, length: int | None = None) -> Damage:
    """A safetensors file of this header, which says that it has this length."""
    return text("model.safetensors", struct.pack("<Q", len(raw) if length is None else length) + raw)


def index(data: Any) -> Damage:
    return lambda folder: write_json(folder / "model.safetensors.index.json", data)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def at(key: str, value: float) -> Damage:
    def edit(found: dict[str, Any]) -> None:
        found[key].view(-1)[3] = value

    return tensors(edit)


def cast(key: str, kind: torch.dtype) -> Damage:
    return tensors(lambda found: found.update({key: found[key].to(kind)}))


def pipe(name: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


def smaller(folder: Path) -> None:
    """A model of fewer tokens than its tokenizer makes."""
    config(vocab_size=200)(folder)
    tensors(lambda found: found.update({EMBED: torch.ones(200, 16)}))(folder)


def only_pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"never": "read"}))


Q, EMBED = "model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight"
WEIGHTS: dict[str, tuple[Damage, str]] = {
    "empty": (text("model.safetensors", b""), "model.safetensors cannot be read"),
    "cut in half": (cut("model.safetensors", 0.5), "model.safetensors cannot be read"),
    "cut in its header": (cut("model.safetensors", 0.01), "model.safetensors cannot be read"),
    "a byte short": (cut("model.safetensors", 0.9999), "model.safetensors cannot be read"),
    "a header of 2**63 bytes": (header(b"{}", 2**63), "model.safetensors cannot be read"),
    "a header of 90 MB that is not there": (header(b"{}", 90_000_000), "model.safetensors cannot be read"),
    "a header that is not JSON": (header(b"{" * 64), "model.safetensors cannot be read"),
    "a header that is a list": (header(b"[1, 2]"), "model.safetensors cannot be read"),
    "offsets beyond the end": (header(json.dumps(
        {Q: {"dtype": "F32", "shape": [16, 16], "data_offsets": [0, 2**40]}}).encode()), "cannot be read"),
    "offsets that overlap": (header(json.dumps({
        Q: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        EMBED: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode() + b"\0" * 4), "cannot be read"),
    "a shape that overflows": (header(json.dumps(
        {Q: {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}).encode() + b"\0" * 4),
        "cannot be read"),
    "text": (text("model.safetensors", "not tensors " * 50), "model.safetensors cannot be read"),
    "wrong rows": (tensors(lambda t: t.update({Q: torch.ones(8, 16)})), r"q_proj.weight has the shape \(8, 16\)"),
    "wrong columns": (tensors(lambda t: t.update({Q: torch.ones(16, 8)})), r"q_proj.weight has the shape \(16, 8\)"),
    "flat": (tensors(lambda t: t.update({Q: torch.ones(256)})), r"q_proj.weight has the shape \(256,\)"),
    "a scalar": (tensors(lambda t: t.update({Q: torch.tensor(1.0)})), r"q_proj.weight has the shape \(\)"),
    "another vocabulary": (tensors(lambda t: t.update({EMBED: torch.ones(50, 16)})), r"has the shape \(50, 16\)"),
    "NaN": (at(Q, math.nan), "q_proj.weight contains NaN"),
    "infinity": (at(EMBED, math.inf), "embed_tokens.weight contains NaN or infinite"),
    "int8": (cast(Q, torch.int8), "stored as I8; quantised weights are not read"),
    "uint8": (cast(Q, torch.uint8), "stored as U8; quantised weights are not read"),
    "int32": (cast(EMBED, torch.int32), "stored as I32; quantised weights are not read"),
    "bool": (cast(Q, torch.bool), "stored as BOOL"),
    "8-bit floats": (cast(Q, torch.float8_e4m3fn), "stored as F8_E4M3"),
    "a tensor missing": (tensors(lambda t: t.pop(Q)), "the weights lack model.layers.0.self_attn.q_proj.weight"),
    "no head of its own": (config(tie_word_embeddings=False), "the weights lack lm_head.weight"),
    "no file": (remove("model.safetensors"), "holds no \\*.safetensors"),
    "pickled only": (only_pickled, "other formats are not read: they can run code"),
}
INDEXES: dict[str, tuple[Damage, str]] = {
    "no weight_map": (index({"metadata": {}}), "index.json: weight_map is missing"),
    "a list": (index([1]), "index.json: it is a list of 1, expected an object"),
    "weight_map a list": (index({"weight_map": ["model.safetensors"]}), "weight_map is a list of 1"),
    "weight_map empty": (index({"weight_map": {}}), "weight_map is an empty object"),
    "a number for a file": (index({"weight_map": {Q: 7}}), "is 7, expected text"),
    "out of the folder": (index({"weight_map": {Q: "../good/model.safetensors"}}), "not a file of its own folder"),
    "an absolute path": (index({"weight_map": {Q: "/etc/passwd"}}), "not a file of its own folder"),
    "a shard that is missing": (index({"weight_map": {Q: "other.safetensors"}}), "named by the index but missing"),
    "torn": (text("model.safetensors.index.json", '{"weight_map": {"a'), "index.json is not whole JSON"),
}
CONFIGS: dict[str, tuple[Damage, str]] = {
    **{f"no {key}": (config(**{key: ...}), f"config.json: {key} is missing") for key in (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")},
    "0 heads": (config(num_attention_heads=0), "num_attention_heads is 0, expected at least 1"),
    "negative layers": (config(num_hidden_layers=-2), "num_hidden_layers is -2, expected at least 1"),
    "a word for a number": (config(hidden_size="large"), "hidden_size is 'large', expected an integer"),
    "a number in quotes": (config(vocab_size="300"), "vocab_size is '300', expected an integer"),
    "a fraction": (config(hidden_size=16.5), "hidden_size is 16.5, expected an integer"),
    "true for a number": (config(num_hidden_layers=True), "num_hidden_layers is true, expected an integer"),
    "null": (config(intermediate_size=None), "intermediate_size is null, expected an integer"),
    "10**9 layers": (config(num_hidden_layers=10**9), "expected at most 2048"),
    "a vocabulary of 10**12": (config(vocab_size=10**12), "vocab_size is 1e\\+12, expected at most"),
    "10**12 positions": (config(max_position_embeddings=10**12), "max_position_embeddings is 1e\\+12, expected at"),
    "an integer of 400 digits": (text("config.json", f'{{"vocab_size": {"9" * 400}}}'), "config.json: "),
    "an integer of 5000 digits": (text("config.json", f'{{"vocab_size": {"9" * 5000}}}'), "JSON that can be read"),
    "heads of an odd size": (config(head_dim=5), "head_dim is 5"),
    "more heads than columns": (config(num_attention_heads=64), "head_dim is 0"),
    "keys and values that do not divide": (config(num_key_value_heads=3), "a multiple of num_key_value_heads, 3"),
    "rope_scaling a list": (config(rope_scaling=[2.0]), "rope_scaling is a list of 1"),
    "an unknown rope scaling": (config(rope_scaling={"rope_type": "yarn", "factor": 2.0}), "rope scaling is 'yarn'"),
    "llama3 without its factor": (config(rope_scaling={**LLAMA3, "factor": None}), "rope_scaling.factor is null"),
    "linear without its factor": (config(rope_scaling={"rope_type": "linear"}), "'linear' has no factor"),
    "llama3 factors that cross": (config(rope_scaling={**LLAMA3, "high_freq_factor": 0.5}), "high_freq_factor is 0.5"),
    "a theta of 0": (config(rope_theta=0), "rope_theta is 0, expected at least"),
    "a theta that is not a number": (config(rope_theta=math.nan), "rope_theta is null, expected a number"),
    "a theta of 1e999": (text("config.json", json.dumps(SHAPE).replace("10000.0", "1e999")), "rope_theta is inf"),
    "a negative epsilon": (config(rms_norm_eps=-1e-5), "rms_norm_eps is -1e-05, expected at least"),
    "another family": (config(model_type="mamba"), "config.json: model_type is 'mamba'"),
    "a family that is a number": (config(model_type=3), "model_type is 3, expected text"),
    "quantised": (config(quantization_config={"quant_method": "gptq"}), "config.json: the model is quantised"),
    "biases": (config(attention_bias=True), "config.json: the model has biases"),
    "tied by a word": (config(tie_word_embeddings="yes"), "tie_word_embeddings is 'yes', expected true or false"),
    "a list": (text("config.json", "[]"), "config.json: it is an empty list, expected an object"),
    "a number": (text("config.json", "7"), "config.json: it is 7, expected an object"),
    "empty": (text("config.json", ""), "config.json is not whole JSON"),
    "torn": (cut("config.json", 0.5), "config.json is not whole JSON"),
    "not UTF-8": (text("config.json", b'{"model_type": "\xff\xfe"}'), "config.json is not UTF-8 text"),
    "nested 100,000 deep": (text("config.json", "[" * 100_000), "nested too deeply"),
    "2 GB": (lambda folder: os.truncate(folder / "config.json", 2**31), "config.json has 2,147,483,648 bytes"),
}
END = "<end>"
TOKENIZERS: dict[str, tuple[Damage, str]] = {
    "missing": (remove("tokenizer.json"), "holds no tokenizer.json"),
    "empty": (text("tokenizer.json", ""), "tokenizer.json is not whole JSON"),
    "an empty object": (text("tokenizer.json", "{}"), "tokenizer.json cannot be read"),
    "a list": (text("tokenizer.json", "[]"), "tokenizer.json: it is an empty list"),
    "torn": (cut("tokenizer.json", 0.7), "tokenizer.json is not whole JSON"),
    "not UTF-8": (text("tokenizer.json", b"\xff" * 40), "tokenizer.json is not UTF-8 text"),
    "an unknown kind of model": (change("tokenizer.json", model={"type": "Oracle"}), "tokenizer.json cannot be read"),
    "a vocabulary of words": (change("tokenizer.json", model={"type": "BPE", "vocab": {"a": "b"}, "merges": []}),
                              "tokenizer.json cannot be read"),
    "added tokens that are text": (change("tokenizer.json", added_tokens=[END]), r"added_tokens\[0\] is '<end>'"),
    "added tokens without ids": (change("tokenizer.json", added_tokens=[{"content": END}]), r"\[0\].id is missing"),
    "a token beyond the model": (smaller, "has tokens up to 257 and the model's vocab_size is 200"),
    "settings that are a list": (text("tokenizer_config.json", "[1]"), "tokenizer_config.json: it is a list of 1"),
    "settings that are torn": (cut("tokenizer_config.json", 0.5), "tokenizer_config.json is not whole JSON"),
    "a template that is not Jinja": (change("tokenizer_config.json", chat_template="{% for %}"), "chat template can"),
    "a template that is a number": (change("tokenizer_config.json", chat_template=7), "chat_template is 7"),
    "named templates without names": (change("tokenizer_config.json", chat_template=[{"template": "x"}]),
                                      r"chat_template\[0\].name is missing"),
    "an end token that is a number": (change("tokenizer_config.json", eos_token=7), "eos_token is 7"),
    "an end that is a word": (change("generation_config.json", eos_token_id="end"), "eos_token_id is 'end'"),
    "an end beyond the model": (change("generation_config.json", eos_token_id=9999), "end token 9999 is not below"),
    "a negative end": (change("generation_config.json", eos_token_id=-1), "end token -1 is not below"),
    "ends that are text": (config(eos_token_id=["a"]), r"config.json: eos_token_id\[0\] is 'a'"),
    "generation settings torn": (text("generation_config.json", "{"), "generation_config.json is not whole JSON"),
    "an alphabet with a letter twice": (config(alphabet="0120", eos_token_id=3), "holds a character twice"),
    "an alphabet without an end": (config(alphabet="012"), "one eos_token_id goes with it"),
    "an alphabet with two ends": (config(alphabet="012", eos_token_id=[1, 2]), "one eos_token_id goes with it"),
    "an alphabet that is a list": (config(alphabet=["0"], eos_token_id=3), "alphabet is a list of 1"),
    "an alphabet larger than the model": (config(alphabet="".join(map(chr, range(500, 900))), eos_token_id=3),
                                          "has tokens up to 399 and the model's vocab_size is 300"),
    "a pipe that nobody writes to": (pipe("config.json"), "no model"),
}
CASES = {f"{kind}: {name}": case for kind, cases in (
    ("weights", WEIGHTS), ("index", INDEXES), ("config", CONFIGS), ("tokenizer", TOKENIZERS)) for name, case in
    cases.items()}


def test_the_folder_that_is_damaged_below_loads_as_it_is(good: Path):
    found = load(str(good))
    assert found.parameters == 300 * 16 + 16 + 2 * (2 * 16 + 16 * 16 * 2 + 8 * 16 * 2 + 3 * 24 * 16)
    assert found.text.ends == (257,) and found.text.prompt([Message("user", "ab")]) == found.text.encode("ab")


@pytest.mark.parametrize("case", CASES)
def test_a_broken_model_folder_is_one_line(case: str, good: Path, tmp_path: Path, says):
    damage, expected = CASES[case]
    folder = tmp_path / "m"
    shutil.copytree(good, folder)
    if case.startswith("index"):        # which is read where there is no model.safetensors
        (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    damage(folder)
    line = says(lambda: load(str(folder)))
    assert str(folder) in line, "it names the folder"
    assert len(line) < 600
    assert re.search(expected, line), line


TEMPLATES = {
    "an undefined name": "{{ nothing.there }}", "arithmetic on text": "{{ 'a' / 2 }}",
    "Python's insides": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a long range": "{% for i in range(10**9) %}.{% endfor %}",
    "itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "a refusal": "{{ raise_exception('only two turns') }}",
    "an include": "{% include '/etc/passwd' %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_chat_template_that_fails_is_one_line(name: str, good: Path, tmp_path: Path, says):
    folder = tmp_path / "m"
    shutil.copytree(good, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATES[name])
    model = load(str(folder))
    assert "template" in says(lambda: model.text.prompt([Message("user", "1+1=")]))


@pytest.mark.parametrize("command", ["train", "doctor", "profile"])
def test_commands_refuse_a_broken_model_in_one_line(command: str, good: Path, tmp_path: Path, refused):
    folder = tmp_path / "m"
    shutil.copytree(good, folder)
    cut("model.safetensors", 0.5)(folder)
    args = {"train": ("train", "grpo", "--model", folder, "--budget", "1k-rollouts", "--out", tmp_path / "r"),
            "doctor": ("doctor", folder), "profile": ("profile", "--model", folder, "--out", tmp_path / "s")}[command]
    assert "model.safetensors cannot be read" in refused(*args)
    assert not (tmp_path / "r" / "run.json").exists() and not (tmp_path / "s").exists(), "it left nothing behind"


# GGUF ---------------------------------------------------------------------------------------------------------

MAGIC, STRING, ARRAY, UINT32 = b"GGUF", 8, 9, 4


def gguf_file(path: Path, facts: dict[str, Any] | None = None, edit: Callable[[dict[str, Any]], object] = dict,
              kind: Any = None) -> None:
    """A small Llama as the GGUF of SmolLM2 is laid out; facts that are ... are left out."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(path, "llama")
    letters = sorted(__import__("tokenizers").pre_tokenizers.ByteLevel.alphabet())
    every: dict[str, Any] = {
        "llama.vocab_size": 259, "llama.embedding_length": 16, "llama.block_count": 1, "llama.feed_forward_length": 24,
        "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.rope.dimension_count": 4,
        "llama.context_length": 64, "llama.rope.freq_base": 10000.0, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": [*letters, "ab", "<turn>", "<end>"],
        "tokenizer.ggml.token_type": [1] * 257 + [3, 3], "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 257, "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.chat_template": "{{ messages[0].content }}", **(facts or {}),
    }
    for k, v in every.items():
        if v is ...:
            continue
        if isinstance(v, list):
            writer.add_array(k, v)
        elif isinstance(v, str):
            writer.add_string(k, v)
        elif isinstance(v, float):
            writer.add_float32(k, v)
        else:
            writer.add_int32(k, v) if v < 0 else writer.add_uint32(k, v)
    shapes = {"token_embd": (259, 16), "output_norm": (16,)} | {f"blk.0.{k}": v for k, v in {
        "attn_norm": (16,), "ffn_norm": (16,), "attn_output": (16, 16), "ffn_down": (16, 24), "ffn_gate": (24, 16),
        "ffn_up": (24, 16), "attn_q": (16, 16), "attn_k": (8, 16), "attn_v": (8, 16)}.items()}
    stored: dict[str, Any] = {f"{k}.weight": np.full(v, 0.1, dtype=np.float32) for k, v in shapes.items()}
    edit(stored)
    for k, v in stored.items():
        writer.add_tensor(k, v)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def head(tensor_count: int, fact_count: int, rest: bytes = b"", magic: bytes = MAGIC, version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, tensor_count, fact_count) + rest


def fact(key: bytes, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


RAW = {
    "empty": b"", "another magic": head(0, 0, magic=b"GGML"), "text": b"not a model " * 9, "magic alone": MAGIC,
    "version 99": head(0, 0, version=99), "2**60 tensors": head(2**60, 0), "2**60 facts": head(0, 2**60),
    "a key of 2**60 letters": head(0, 1, struct.pack("<Q", 2**60) + b"x"),
    "a text of 2**60 letters": head(0, 1, fact(b"k", STRING, struct.pack("<Q", 2**60))),
    "an array of 2**60 numbers": head(0, 1, fact(b"k", ARRAY, struct.pack("<IQ", UINT32, 2**60))),
    "an array of 2**62 texts": head(0, 1, fact(b"k", ARRAY, struct.pack("<IQ", STRING, 2**62))),
    "an unknown type": head(0, 1, fact(b"k", 77, b"\0" * 8)),
    "a key that is not UTF-8": head(0, 1, fact(b"\xff\xfe", UINT32, b"\0" * 4)),
    "an alignment of 0": head(0, 1, fact(b"general.alignment", UINT32, b"\0" * 4)),
    "the same key twice": head(0, 2, fact(b"k", UINT32, b"\0" * 4) * 2),
    "a tensor of 2**31 dimensions": head(1, 0, struct.pack("<Q", 1) + b"t" + struct.pack("<I", 2**31)),
}
MADE: dict[str, tuple[dict[str, Any], str]] = {
    "no facts of its shape": ({"llama.block_count": ...}, "llama.block_count is missing"),
    "0 heads": ({"llama.attention.head_count": 0}, "head_count is 0, expected at least 1"),
    "a text for a size": ({"llama.embedding_length": "wide"}, "embedding_length is 'wide'"),
    "10**9 layers": ({"llama.block_count": 10**9}, "expected at most 2048"),
    "more layers than it has": ({"llama.block_count": 3}, "the weights lack blk.1"),
    "another width": ({"llama.embedding_length": 32}, "requires"),
    "another tokenizer": ({"tokenizer.ggml.pre": "qwen2"}, "only gpt2/smollm is read"),
    "no tokens": ({"tokenizer.ggml.tokens": ...}, "tokenizer.ggml.tokens is missing"),
    "an end beyond its tokens": ({"tokenizer.ggml.eos_token_id": 5000}, "eos_token_id is 5000"),
    "a negative end": ({"tokenizer.ggml.eos_token_id": -1}, "eos_token_id is -1, expected at least 0"),
    "no template": ({"tokenizer.chat_template": ...}, "chat_template is missing"),
}


def nan(stored: dict[str, Any]) -> None:
    stored["blk.0.ffn_up.weight"][0, 0] = np.nan


def shifted(stored: dict[str, Any]) -> None:
    stored["blk.0.attn_q.weight"] = np.ones((16, 24), dtype=np.float32)


def integers(stored: dict[str, Any]) -> None:
    stored["blk.0.attn_q.weight"] = np.ones((16, 16), dtype=np.int8)


EDITS = {"NaN": (nan, "ffn_up.weight contains NaN"), "another shape": (shifted, "attn_q.weight has the shape"),
         "int8": (integers, "attn_q.weight cannot be read"),
         "a tensor missing": (lambda stored: stored.pop("output_norm.weight"), "lack output_norm.weight")}


def read_gguf(path: Path) -> Any:
    from isocost.local.gguf import load_gguf

    return load_gguf(path)


def test_the_gguf_that_is_damaged_below_is_read(tmp_path: Path):
    gguf_file(tmp_path / "m.gguf")
    assert read_gguf(tmp_path / "m.gguf").config.vocab == 259


@pytest.mark.parametrize("name", RAW)
def test_a_gguf_of_absurd_counts_is_one_line(name: str, tmp_path: Path, says, limited):
    pytest.importorskip("gguf")
    (tmp_path / "m.gguf").write_bytes(RAW[name])
    with limited(2**31):
        assert "m.gguf" in says(lambda: read_gguf(tmp_path / "m.gguf"))


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.7, 0.999])
def test_a_truncated_gguf_is_one_line(keep: float, tmp_path: Path, says):
    gguf_file(tmp_path / "m.gguf")
    cut("m.gguf", keep)(tmp_path)
    assert "m.gguf cannot be read" in says(lambda: read_gguf(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", [*MADE, *EDITS])
def test_a_gguf_that_does_not_fit_together_is_one_line(name: str, tmp_path: Path, says):
    facts, expected = MADE.get(name, ({}, ""))
    edit, expected = EDITS.get(name, (dict, expected))
    gguf_file(tmp_path / "m.gguf", facts, edit)
    line = says(lambda: read_gguf(tmp_path / "m.gguf"))
    assert "m.gguf" in line and expected in line, line


def test_weights_cut_while_a_command_reads_them_kill_no_process(good: Path, tmp_path: Path):
    """In a process of its own: a mapped file that ends early would end it with SIGBUS."""
    folder = tmp_path / "m"
    shutil.copytree(good, folder)
    os.truncate(folder / "model.safetensors", 4096)
    code = "import sys; from isocost.cli.commands import main; sys.argv = ['isocost', 'doctor', sys.argv[1]]; main()"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "model.safetensors cannot be read" in done.stderr
