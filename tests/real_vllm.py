"""A real vLLM server for tests, of a random model that it can compute on a processor."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from isocost.local.decoder import Config, Decoder
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model, save_model

ALPHABET = "0123456789+=:?;"
REWARD = '''def even(prompts, completions, **columns):
    return [sum(c in "02468" for c in said) / 8 for said in completions]
'''


def random_model(folder: Path) -> Path:
    """A random model whose heads are of a size that vLLM computes on a processor."""
    config = Config(vocab=16, hidden=128, layers=2, heads=2, kv_heads=2, head_dim=64, mlp=256, max_len=512)
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(0))
    weights = {k: v.detach().clone() for k, v in decoder.named_parameters()}
    weights["embed"] *= 0.3     # so that tokens other than the last one are likely, too
    save_model(folder, Model("random", config, weights, Characters(ALPHABET, 15), {
        "alphabet": ALPHABET, "eos_token_id": 15, "architectures": ["LlamaForCausalLM"],
    }))
    words = {c: i for i, c in enumerate([*ALPHABET, "<end>"])}      # vLLM gives the text of each token as well
    tokenizer = {
        "version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": words, "unk_token": "?"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
        "decoder": {"type": "Fuse"}, "normalizer": None, "post_processor": None, "truncation": None, "padding": None,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>",
    }))
    (folder / "even.py").write_text(REWARD)
    return folder


@contextmanager
def serving(python: str, folder: Path, log: Path) -> Iterator[str]:
    """The address of a vLLM server of the model in this folder, with adapters, that ends with the block."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    environment = {
        **os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": "",
    }
    command = [
        str(Path(python).with_name("vllm")), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "32", "--enforce-eager",
        "--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "16",
    ]
    url = f"http://127.0.0.1:{port}"
    with open(log, "w") as out:
        server = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        until = time.monotonic() + 900
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{url}/health", timeout=5).close()
                break
            assert server.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(1)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
