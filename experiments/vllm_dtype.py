"""How far is a vLLM server's arithmetic from the learner's, in fp32 and in bf16? The witness of docs/vllm.md measures.

    python experiments/vllm_dtype.py --python served/bin/python --out experiments/results/vllm_dtype.json

Design, fixed before the first number of the record:

- Two random Llama models with heads of 64: 2 layers of 128, and 8 layers of 256. A vLLM server of each in float32 and
  in bfloat16, and against each server a learner in fp32 and one in bf16.
- Eight draws of weights for each pair (a random walk from the model's, normal steps of 0.02), each loaded by the server
  from the learner; then the gap: the largest difference of log-probs on the witness's completion, at temperatures 0.5,
  1 and 1.5. Once more with an adapter of rank 8 (normal factors of 0.02), which the server adds to its own weights.
- What a bound lets through: the gap after one update of a learner whose server keeps the weights from before it, at
  learning rates of 1e-6 to 1e-3, with all weights and with the adapter. GRPO on eight answers that are rewarded by
  their even digits; server and learner in fp32, where the gap without the update is below 1e-5.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isocost import methods
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.local.decoder import Config, Decoder
from isocost.local.lora import LoraLearner
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model, save_model
from isocost.loop import train
from isocost.world import World
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting, open_setting

SHAPES = {"2 x 128": (2, 128), "8 x 256": (8, 256)}      # layers, width
SERVERS, LEARNERS = ("float32", "bfloat16"), ("fp32", "bf16")
TEMPERATURES = (0.5, 1.0, 1.5)
DRAWS, SPREAD, RANK = 8, 0.02, 8
RATES = (1e-6, 1e-5, 1e-4, 1e-3)
ACCEPTED = 10.0         # nats: nothing ends for its gap here
ALPHABET = "0123456789+=:?;"
REWARD = '''def even(prompts, completions, **columns):
    return [sum(c in "02468" for c in said) / 8 for said in completions]
'''


def random_model(folder: Path, layers: int = 2, hidden: int = 128) -> Path:
    """A random model whose heads are of a size that vLLM computes on a processor."""
    heads = hidden // 64
    config = Config(vocab=16, hidden=hidden, layers=layers, heads=heads, kv_heads=heads, head_dim=64, mlp=2 * hidden,
                    max_len=512)
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
def serving(python: str, folder: Path, log: Path, dtype: str = "float32", *more: str) -> Iterator[str]:
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
        "--dtype", dtype, "--max-model-len", "512", "--max-num-seqs", "32", "--enforce-eager",
        "--logprobs-mode", "processed_logprobs", "--enable-lora", "--max-lora-rank", "16", *more,
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


@contextmanager
def opened(url: str, folder: Path, **changes: Any) -> Iterator[World]:
    """The world of the model in this folder, sampled by the server."""
    given: dict[str, Any] = {"max_tokens": 8, "witness": ACCEPTED, "verifier": f"{folder / 'even.py'}:even", **changes}
    found = open_setting(
        Setting.of(model=f"vllm:{url}#{folder}", data="sums:base=easy,count=60", **given),
        limits=RequestLimits(concurrency=8, timeout=300.0),
    )
    try:
        yield found.world
    finally:
        found.close()


def drawn(world: World, seed: int) -> None:
    """Give the learner other weights, or another adapter, and load them."""
    learner, generator = world.learner, torch.Generator().manual_seed(seed)
    if isinstance(learner, LoraLearner):
        learner.set_adapter({k: SPREAD * torch.randn(v.shape, generator=generator)
                             for k, v in learner.adapter().items()})
    else:
        for w in learner.weights().values():
            w.add_(SPREAD * torch.randn(w.shape, generator=generator))
    world.engine.restore(learner.weights(), seed)


def gaps(url: str, folder: Path, dtype: str, lora: int | None) -> list[dict[str, Any]]:
    """The gaps of all draws, at each temperature."""
    out = []
    for temperature in TEMPERATURES:
        with opened(url, folder, dtype=dtype, temperature=temperature, lora=lora) as world:
            for seed in range(DRAWS):
                drawn(world, seed)
            found = world.engine.gaps[1:]       # type: ignore[attr-defined]
            out.append({"temperature": temperature, "loads": world.about.service["loads"], "gaps": found,
                        "median": float(np.median(found)), "largest": max(found)})
    return out


def missed(url: str, folder: Path, lora: int | None) -> list[dict[str, Any]]:
    """The gap after one update that does not reach the server, by learning rate."""
    out = []
    for rate in RATES:
        with opened(url, folder, lora=lora) as world:
            learner, engine = world.learner, world.engine
            update, engine.carrier.take = learner.update, lambda weights: None      # type: ignore[attr-defined]
            learner.update = lambda batch, loss, update=update, rate=rate, **_: update(     # type: ignore[method-assign]
                batch, loss, lr=rate)

            async def go(world: World = world) -> None:
                recipe = methods.load("grpo").recipe(groups=2, rollouts=4)
                async for _ in train(recipe, world, Ledger(seed=4), {"rollouts": 8}):
                    pass

            asyncio.run(go())
            out.append({"lr": rate, "gap": engine.gaps[-1]})        # type: ignore[attr-defined]
    return out


def main(python: str, keep: Any, record: dict[str, Any]) -> None:
    """Measure what the record lacks; `keep` stores it after each server."""
    for shape, (layers, hidden) in SHAPES.items():
        for dtype in SERVERS:
            if any((r["model"], r["server"]) == (shape, dtype) for r in record["rows"]):
                continue
            with tempfile.TemporaryDirectory() as home:
                folder = random_model(Path(home) / "model", layers, hidden)
                with serving(python, folder, Path(home) / "log", dtype) as url:
                    for learner in LEARNERS:
                        for lora in (None, RANK):
                            record["rows"].append({"model": shape, "server": dtype, "learner": learner, "lora": lora,
                                                   "at": gaps(url, folder, learner, lora)})
                    if dtype == "float32":
                        record["missed"] += [{"model": shape, "lora": lora, "at": missed(url, folder, lora)}
                                             for lora in (None, RANK)]
            keep(record)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", required=True, help="a python with vLLM")
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    before: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {
        "command": f"python experiments/vllm_dtype.py --python served/bin/python --out {given.out}",
        "torch": torch.__version__, "rows": [], "missed": [],
    }
    try:
        main(given.python, lambda record: given.out.write_text(json.dumps(record, indent=1) + "\n"), before)
    except UserError as e:
        sys.exit(str(e))
