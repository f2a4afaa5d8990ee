"""A generator's own predictions as its input, from coarse to fine.
A word of 8 letters of 4 kinds is one of 256; a scale of 1, 2, 4 or 8 letters has the first of each block. A perceptron
reads a view, half of whose letters are replaced at random, and the coarser scales, and predicts a scale. Teacher
forcing reads true scales. After 400 updates of it each arm has 400 more. The method adds a second pass: its coarser
scales are the first one's likeliest letters, and its output should be that of the first (divergence, γ = 1). Student
forcing asks it for the true word. Errors are wrong letters in 4,000 generated words.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from experiments.studies import Question
from isocost.chance import Purpose, generator

PAPER = ("SAR", "2512.06421")
QUESTIONS = (
    Question("Do errors grow less from the first scale to the last than with teacher forcing, at equal updates "
             "(difference)?", "updates", below=0.0, effect=0.005),
    Question("At equal passes: teacher forcing has 400 updates more?", "passes", below=0.0, effect=0.005),
    Question("Fewer errors in the words than with teacher forcing, at equal updates?", "word", below=0.0, effect=0.005),
    Question("Fewer than with student forcing?", "student", below=0.0, effect=0.005),
)
WORDS, LETTERS, LENGTH, SCALES, WIDTH, BATCH, MOST = 256, 4, 8, (1, 2, 4, 8), 64, 64, 20
BLUR, UPDATES, SHOWN, LR = 0.5, 400, 4_000, 3e-3


def made(rng: np.random.Generator) -> nn.Sequential:
    """The network, from the view, the scale and the coarser scales to the logits of 8 places; weights by `rng`."""
    sizes = (LENGTH * LETTERS + len(SCALES) + (len(SCALES) - 1) * LENGTH * LETTERS, WIDTH, WIDTH, LENGTH * LETTERS)
    net = nn.Sequential(nn.Linear(sizes[0], sizes[1]), nn.ReLU(), nn.Linear(sizes[1], sizes[2]), nn.ReLU(),
                        nn.Linear(sizes[2], sizes[3]))
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.from_numpy(rng.normal(size=p.shape)) / p.shape[-1] ** 0.5 if p.ndim > 1 else 0 * p)
    return net


def scaled(word: Tensor, size: int) -> Tensor:
    """(N, 8) letters -> the first of each block, repeated: a scale, upsampled."""
    return word[:, :: LENGTH // size].repeat_interleave(LENGTH // size, -1)


def logits(net: nn.Module, view: Tensor, coarser: list[Tensor]) -> Tensor:
    """(N, 8, 4) logits of the next scale; equal within the blocks of the scale."""
    at, count = len(coarser), len(view)
    shown = torch.zeros(count, len(SCALES), LENGTH, LETTERS)
    for i, word in enumerate((view, *coarser)):
        shown[:, i] = nn.functional.one_hot(word, LETTERS)
    where = nn.functional.one_hot(torch.full((count,), at), len(SCALES))
    out = net(torch.cat((where.float(), shown.flatten(1)), -1)).view(count, SCALES[at], -1, LETTERS).mean(2)
    return out.repeat_interleave(LENGTH // SCALES[at], 1)


def likeliest(out: Tensor, size: int) -> Tensor:
    """(N, 8) letters of a scale, upsampled."""
    return scaled(out.argmax(-1), size)


def forced(net: nn.Module, view: Tensor, scales: list[Tensor]) -> list[Tensor]:
    """Logits of every scale, where those before it are given."""
    return [logits(net, view, scales[:i]) for i in range(len(SCALES))]


def extra(first: list[Tensor], second: list[Tensor]) -> Tensor:
    """The divergence of the second pass from the first, without gradient through the first: mean over scales."""
    pairs = zip(first, second, strict=True)
    return sum(((a := x.detach().log_softmax(-1)).exp() * (a - y.log_softmax(-1))).sum(-1).mean()
               for x, y in pairs) / len(SCALES)


def true_loss(out: list[Tensor], word: Tensor) -> Tensor:
    """Cross-entropy of true letters, mean over scales."""
    return sum(nn.functional.cross_entropy(x.flatten(0, 1), scaled(word, size).flatten())
               for x, size in zip(out, SCALES, strict=True)) / len(SCALES)


def posed(words: Tensor, rng: np.random.Generator, count: int) -> tuple[Tensor, Tensor]:
    """(count, 8) words, and views of them."""
    word = words[torch.from_numpy(rng.integers(WORDS, size=count))]
    other = torch.from_numpy(rng.integers(LETTERS, size=word.shape))
    return word, torch.where(torch.from_numpy(rng.random(word.shape) < BLUR), other, word)


def trained(net: nn.Module, words: Tensor, rng: np.random.Generator, updates: int, kind: str) -> None:
    """So many updates of teacher forcing, with the terms of "sar" or "student"."""
    adam = torch.optim.Adam(net.parameters(), LR)
    for _ in range(updates):
        word, view = posed(words, rng, BATCH)
        first = forced(net, view, [scaled(word, size) for size in SCALES])
        loss = true_loss(first, word)
        if kind != "teacher":
            second = forced(net, view, [likeliest(x, size) for x, size in zip(first, SCALES, strict=True)])
            loss = loss + (extra(first, second) if kind == "sar" else true_loss(second, word))
        adam.zero_grad()
        loss.backward()
        adam.step()


@torch.no_grad()
def errors(net: nn.Module, word: Tensor, view: Tensor) -> ndarray:
    """(4,) the share of wrong letters of each scale, in words that are generated scale by scale."""
    told = list[Tensor]()
    for size in SCALES:
        told.append(likeliest(logits(net, view, told), size))
    return np.array([float((x != scaled(word, size)).double().mean()) for x, size in zip(told, SCALES, strict=True)])


def measure(seed: int) -> Mapping[str, float]:
    rng, got = generator(seed, Purpose.TRAIN, 13), {}
    words = torch.from_numpy(rng.integers(LETTERS, size=(WORDS, LENGTH)))
    start = made(rng)
    trained(start, words, rng, UPDATES, "teacher")
    word, view = posed(words, generator(seed, Purpose.EVALUATION, 13), SHOWN)
    for name, kind, updates in (("teacher", "teacher", UPDATES), ("passes", "teacher", 2 * UPDATES),
                                ("sar", "sar", UPDATES), ("student", "student", UPDATES)):
        net = made(rng)
        net.load_state_dict(start.state_dict())
        trained(net, words, generator(seed, Purpose.TRAIN, 14), updates, kind)
        got[name] = errors(net, word, view)
    growth = {k: float(x[-1] - x[0]) for k, x in got.items()}
    return {"updates": growth["sar"] - growth["teacher"], "passes": growth["sar"] - growth["passes"],
            "word": float(got["sar"][-1] - got["teacher"][-1]), "student": float(got["sar"][-1] - got["student"][-1]),
            **{f"{k} {size}": float(e) for k, x in got.items() for size, e in zip(SCALES, x, strict=True)}}
