"""The models of the cases, written as Hugging Face folders that every contender loads."""

from __future__ import annotations

from pathlib import Path

import torch

from bench.task import END, FIRST, MARK, VOCAB, Task, written
from isocost.local.decoder import Config, Decoder
from isocost.local.models import load
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model, save_model

MEAN = 24           # tokens the fitted policy writes before it ends, on average
FIT_STEPS, FIT_ROWS, FIT_LENGTH = 150, 24, 160


def shape(hidden: int = 128, layers: int = 4, vocab: int = VOCAB, max_len: int = 1024) -> Config:
    """A Llama with heads of 32 and a feed-forward three times as wide; by default that of the RL step, 0.86M."""
    return Config(
        vocab=vocab, hidden=hidden, layers=layers, heads=hidden // 32, kv_heads=hidden // 32, head_dim=32,
        mlp=3 * hidden, max_len=max_len,
    )


def letters(end: int) -> Characters:
    """Token k is the character FIRST + k; an end token outside the vocabulary is none at all."""
    text = Characters(written(range(VOCAB)), end)
    if end >= VOCAB:
        text.ends = ()
    return text


def folder_of(task: Task, seed: int, home: Path) -> Path:
    """The folder with a task's initial weights, made if it is not there."""
    kind = "fitted" if task.ends else "random"
    folder = home / f"{kind}-{seed}"
    if not (folder / "model.safetensors").is_file():
        decoder = Decoder.from_config(shape(), torch.Generator().manual_seed(seed))
        if task.ends:
            fit(decoder, seed)
        write(folder, decoder, task.end)
    return folder


def write(folder: Path, decoder: Decoder, end: int) -> None:
    """A decoder as a Hugging Face folder."""
    weights = {k: p.detach() for k, p in decoder.named_parameters()}
    named = end if end < VOCAB else END     # a folder's end token has a row in the model; `read` replaces it
    extra = {"alphabet": written(range(VOCAB)), "eos_token_id": named, "pad_token_id": 0, "bos_token_id": None}
    save_model(folder, Model(str(folder), decoder.config, weights, letters(end), extra))


def read(folder: str | Path, end: int) -> Model:
    """A folder that `write` wrote, with the end token the case means."""
    return load(str(folder)).but(text=letters(end))


def fit(decoder: Decoder, seed: int) -> None:
    """Teach a policy two lengths: after a prompt that opens with MARK it goes on, after others it ends with chance
    1 / MEAN at every token. Everything else is equally likely.

    The target distribution is known, so the loss is the cross-entropy to it at every position of random rows.
    """
    draw = torch.Generator().manual_seed(seed)
    adam = torch.optim.AdamW(decoder.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(FIT_STEPS):
        rows = torch.randint(1, MARK, (FIT_ROWS, FIT_LENGTH), generator=draw)
        marked = torch.arange(FIT_ROWS) % 2 == 0
        rows[marked, 0] = MARK
        ends = torch.where(marked, 1e-5, 1.0 / MEAN)[:, None]
        logp = torch.log_softmax(decoder.logits(decoder(rows)), -1)
        loss = -(ends * logp[..., END] + (1 - ends) * logp[..., :MARK].mean(-1)).mean()
        adam.zero_grad()
        loss.backward()
        for group in adam.param_groups:
            group["lr"] = 2e-3 * (1 - step / FIT_STEPS)
        adam.step()


def random_folder(config: Config, home: Path, name: str) -> Path:
    """A folder of random weights of a given shape, for decoding only."""
    folder = home / name
    if not (folder / "model.safetensors").is_file():
        write(folder, Decoder.from_config(config, torch.Generator().manual_seed(0)), config.vocab)
    return folder


def smollm2_folder(home: Path) -> Path:
    """SmolLM2-135M as a Hugging Face folder. Raises UserError, naming the package, where it is not installed."""
    folder = home / "smollm2"
    if not (folder / "model.safetensors").is_file():
        save_model(folder, load("smollm2"))
    return folder


__all__ = ["FIRST", "folder_of", "letters", "random_folder", "read", "shape", "smollm2_folder", "write"]
