"""Hugging Face `generate` as a contender, and its forward pass as a judge. Run as `python -m bench.hf_side`."""

from __future__ import annotations

import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.worker import serve

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROWS = 8        # of one forward pass of the judge: logits of a large vocabulary are wide
live: dict[str, Any] = {}


def opened(folder: str, prompts: list[list[int]], threads: int, dtype: str, device: str, cache: str) -> dict[str, Any]:
    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).to(device).eval()
    model.generation_config.eos_token_id = None     # every row writes as many tokens as it may
    model.generation_config.pad_token_id = 0
    live.update(model=model, prompts=torch.tensor(prompts, device=device), cache=None if cache == "dynamic" else cache)
    return {"parameters": sum(p.numel() for p in model.parameters())}


def decode(batch: int, new: int) -> dict[str, Any]:
    rows = live["prompts"][:batch]
    wall, cpu = time.perf_counter(), time.process_time()
    with torch.inference_mode():
        out = live["model"].generate(
            input_ids=rows, attention_mask=torch.ones_like(rows), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
            min_new_tokens=new, max_new_tokens=new, cache_implementation=live["cache"],
        ).cpu()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"seconds": wall, "cpu_seconds": cpu, "tokens": (out.shape[1] - rows.shape[1]) * len(out)}


@torch.inference_mode()
def judge(tokens: list[list[int]]) -> dict[str, Any]:
    """The log-prob of every token that a contender wrote after the prompts, from one forward pass."""
    prompts = live["prompts"][: len(tokens)]
    rows, start = torch.cat((prompts, torch.tensor(tokens, device=prompts.device)), 1), prompts.shape[1]
    out: list[list[float]] = []
    for part in rows.split(ROWS):
        logits = live["model"](part).logits[:, start - 1 : -1]
        dist = torch.log_softmax(logits.double(), -1)
        out += dist.gather(-1, part[:, start:, None])[..., 0].tolist()
    return {"logp": out}


if __name__ == "__main__":
    serve(open_decoding=opened, decode=decode, judge=judge)
