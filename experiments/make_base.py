"""Makes the embedded base model: `python experiments/make_base.py --out DIR`.

A small decoder, taught sums by imitation and stopped early. Most of its lessons are sums without a carry, so it is
nearly sure of those, unsure of the others and hopeless at some: pass rates are spread over [0, 1] with both ends
full, as those of a pretrained model on a mixed set are. It also learns to write worked answers when the prompt
asks for them. The same seed gives the same weights on the same machine and number of threads.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from torch import Tensor

from isocost import chance
from isocost.local import embedded, weights
from isocost.local.decoder import Config, Decoder
from isocost.local.tokenizer import Characters
from isocost.tasks import sums as family

END = len(family.ALPHABET)       # the one special token: it ends an answer, and pads
IDS = {c: i for i, c in enumerate(family.ALPHABET)}


@dataclass(frozen=True, slots=True)
class Lessons:
    """How the base is taught. The defaults made the one that is shipped."""

    seed: int = 0
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    steps: int = 450
    rows: int = 256              # sums per step
    lr: float = 2e-3             # peak; warmed up over a tenth of the steps, then down to nothing by a cosine
    mix: tuple[float, float, float] = (0.85, 0.13, 0.02)   # shares of lessons with no, one and two carries
    worked: float = 0.25         # share of lessons that are worked answers


Batch = tuple[Tensor, Tensor]         # tokens, and what each position should say next


def config(lessons: Lessons) -> Config:
    """The decoder's shape: its vocabulary is the alphabet and the end token."""
    return Config(
        vocab=END + 1, hidden=lessons.hidden, layers=lessons.layers, heads=lessons.heads, kv_heads=lessons.heads,
        head_dim=lessons.hidden // lessons.heads, mlp=2 * lessons.hidden, max_len=128,
    )


def teach(lessons: Lessons, lesson: Callable[[Lessons, int], Batch] | None = None) -> Decoder:
    """Train a decoder from random weights on `steps` batches of correct answers, the loss on answers alone.

    `lesson` gives the batch of a step in place of the base's own, whose `mix` and `worked` are then not asked for.
    """
    lesson = lesson or _lesson
    start = int(chance.generator(lessons.seed, chance.Purpose.INIT).integers(2**62))
    model = Decoder.from_config(config(lessons), torch.Generator().manual_seed(start))
    optimiser = torch.optim.AdamW(model.parameters(), lr=lessons.lr, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda k: pace(k, lessons.steps))
    for step in range(lessons.steps):
        tokens, target = lesson(lessons, step)
        logits = model.logits(model(tokens))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten(), ignore_index=-1)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model


@torch.no_grad()
def rates(model: Decoder, temperature: float = 1.0) -> ndarray:
    """(100, 100) chance that the model answers a+b right, end token included; nan below 10."""
    out = np.full((100, 100), np.nan, dtype=np.float32)
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    for at in range(0, len(pairs), 2048):
        some = pairs[at : at + 2048]
        tokens, target = padded([(f"{a}+{b}=", str(a + b)) for a, b in some])
        logp = F.log_softmax(model.logits(model(tokens))[:, :-1] / temperature, -1)
        said = target[:, 1:]
        each = logp.gather(-1, said.clamp(min=0)[..., None])[..., 0].where(said >= 0, 0.0).sum(1).exp()
        for (a, b), p in zip(some, each.tolist(), strict=True):
            out[a, b] = p
    return out


def _lesson(lessons: Lessons, step: int) -> tuple[Tensor, Tensor]:
    """One batch: rows of prompt and answer, and what each position should say next (-1 where nobody asks)."""
    draw = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
    pools, rows = _pools(), []
    levels = draw.choice(len(pools), lessons.rows, p=lessons.mix)
    for level, worked in zip(levels.tolist(), draw.random(lessons.rows), strict=True):
        a, b = pools[level][int(draw.integers(len(pools[level])))]
        work = 0 if worked >= lessons.worked else 1 if worked < lessons.worked / 2 else 2
        rows.append((f"{a}+{b}{family.MARKS[work]}", family.solution(a, b, work)))
    return padded(rows)


@cache
def _pools() -> tuple[list[tuple[int, int]], ...]:
    """Every pair of two-digit numbers, by how many columns carry."""
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    return tuple([p for p in pairs if len(family.carries(*p)) == level] for level in range(3))


def padded(rows: Sequence[tuple[str, str]], alphabet: str = family.ALPHABET) -> tuple[Tensor, Tensor]:
    """(N, T) tokens padded on the right, and the (N, T) tokens to be said, -1 outside the answers.

    A token is a character's place in the alphabet; the end token comes after the last.
    """
    of, end = {c: i for i, c in enumerate(alphabet)}, len(alphabet)
    longest = max(len(p) + len(a) for p, a in rows) + 1
    tokens, target = np.full((len(rows), longest), end), np.full((len(rows), longest), -1)
    for i, (prompt, answer) in enumerate(rows):
        ids = [of[c] for c in prompt + answer] + [end]
        tokens[i, : len(ids)] = ids
        target[i, len(prompt) : len(ids)] = ids[len(prompt) :]
    return torch.from_numpy(tokens), torch.from_numpy(target)


def pace(step: int, steps: int) -> float:
    """Share of the peak learning rate: a tenth of the steps up, then a cosine down to nothing."""
    warm = max(1, steps // 10)
    return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * step / steps)))


def summary(rate: ndarray) -> dict[str, Any]:
    """What a study needs to know of a base: mean pass@1, by level, in tenths, and the sizes of its splits."""
    known = {(a, b): float(rate[a, b]) for pool in _pools() for a, b in pool}
    values = np.array(list(known.values()))
    within = {name: int(((values >= low) & (values <= high)).sum())
              for name, (low, high) in (("easy", family.EASY), ("hard", family.HARD))}
    levels = [float(np.mean([known[p] for p in pool])) for pool in _pools()]
    return {
        "mean": round(float(values.mean()), 4), "levels": [round(x, 4) for x in levels],
        "tenths": np.histogram(values, 10, (0.0, 1.0))[0].tolist(), **within, "problems": len(values),
    }


def save(folder: Path, model: Decoder, made: dict[str, Any], alphabet: str = family.ALPHABET) -> None:
    """Write a taught decoder as a Hugging Face folder, and how it was `made`."""
    end = len(alphabet)
    extra = {"alphabet": alphabet, "eos_token_id": end, "pad_token_id": end, "made": made}
    state = {k: v.detach() for k, v in model.named_parameters()}
    weights.save_model(folder, weights.Model("tiny", model.config, state, Characters(alphabet, end), extra))


def write(folder: Path, model: Decoder, lessons: Lessons) -> dict[str, Any]:
    """Write the base as a Hugging Face folder, with `rates.json` beside it. Gives the summary it records."""
    rate = rates(model)
    facts = summary(rate)
    save(folder, model, {"lessons": asdict(lessons), "pass_at_1": facts})
    table = [[round(float(p), 4) for p in row[10:]] for row in rate[10:]]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in table)
    (folder / family.RATES.name).write_text(f'{{"first": 10, "pass_at_1": [\n{lines}\n]}}\n', encoding="utf-8")
    return facts


def main() -> None:
    """Make the base from the command line; every setting of `Lessons` but the mix is an option."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=embedded.BASE, help="folder to write (default: the package's own)")
    for name, value in asdict(Lessons()).items():
        if not isinstance(value, tuple):
            parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    said = vars(parser.parse_args())
    out = said.pop("out")
    torch.set_num_threads(1)
    lessons = Lessons(**said)
    print(json.dumps(write(out, teach(lessons), lessons)))


if __name__ == "__main__":
    main()
