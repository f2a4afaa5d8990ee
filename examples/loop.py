"""The whole loop in one file, to be read: GRPO trains the toy world from scratch, and nothing is imported from isocost.

    python examples/loop.py

Ten questions, "0?" to "9?", each have one letter as answer. The policy is a table of logits over four tokens. One step:
choose questions, sample n completions of each, verify them, compare each with its siblings, and update the policy.

The numbers are those of a run of isocost with the same recipe, to the last bit (`tests/test_reading_copy.py`). In the
package, the world is `isocost.worlds.toy`, the loop `isocost.loop` and `isocost.feed`, the method
`isocost.methods.grpo` with `isocost.parts`. Not here: sampling while training, environments of several turns, several
updates a batch, truncated sampling, checkpoints and files.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# --------------------------------------------------------------------------------------------------- the toy world

ALPHABET = "abc.0123456789?!"       # the policy writes the first four tokens and reads all sixteen
SAYS, END = 4, 3                    # it says tokens 0 to 3; token 3, ".", ends a completion
LONGEST = 8                         # tokens of a completion at most
PROMPTS = [[ALPHABET.index(str(k)), ALPHABET.index("?")] for k in range(10)]
ANSWERS = [ALPHABET.index("abc"[k % 3]) for k in range(10)]


# ------------------------------------------------------------------------------------------------------ the settings

@dataclass(frozen=True)
class Settings:
    """The options of `isocost train`: n and B of the arm, the learning rate and its warm-up, and the budget C."""

    seed: int = 0
    n: int = 8                      # completions of each question in a step: the group
    B: int = 8                      # questions of a step
    lr: float = 0.03                # of the update, after `warmup` steps
    warmup: int = 10                # steps in which the learning rate rises linearly
    budget: int = 4096              # rollouts; C
    points: tuple[int, ...] = (1024, 2048)      # rollouts after which to evaluate, besides the start and the end


# ---------------------------------------------------------------------------------------------------- random numbers
# Every random number has an address, and is a pure function of it. So the order of sampling, the size of a batch and a
# resumed run cannot change a draw, and there is no global generator. Philox-4x32-10: Salmon et al. 2011, "Parallel
# random numbers: as easy as 1, 2, 3".

TRAIN, CHOOSE, INIT = 0, 3, 6       # what a draw is for: two purposes never share a number


def philox(counter: list[np.ndarray], key: tuple[int, int]) -> np.ndarray:
    """Ten rounds of multiply and xor: four counter words of 32 bits -> four random words, (.., 4)."""
    a, b, c, d = (np.asarray(x, dtype=np.uint64) for x in counter)
    first, second = key
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (q >> half) ^ b ^ np.uint64(first), q & low, (p >> half) ^ d ^ np.uint64(second), p & low
        first, second = (first + 0x9E3779B9) & 0xFFFFFFFF, (second + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([a, b, c, d], -1)


def uniforms(seed: int, wave: int, slot: int, count: int) -> np.ndarray:
    """(count, LONGEST) numbers in (0, 1): one for each completion of a group and each of its tokens."""
    attempt, block = np.meshgrid(np.arange(count), np.arange(LONGEST // 4), indexing="ij")  # four tokens are a block
    address = [block, attempt, np.full_like(block, slot), np.full_like(block, wave)]
    key = seed & 0xFFFFFFFF, ((seed >> 32) & 0xFFFFFF) << 8 | TRAIN
    return (philox(address, key).reshape(count, LONGEST) + 0.5) / 2.0**32


def generator(*address: int) -> np.random.Generator:
    """A numpy generator of its own for an address: (seed, purpose, ..)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(address)))


# -------------------------------------------------------------------------------------------------------- the policy

def new_policy(seed: int) -> list[Tensor]:
    """[first, last], each (16, 4): noise, with the right answer and the end made likelier so that groups are mixed."""
    first, last = 0.3 * torch.from_numpy(generator(seed, INIT).normal(size=(2, len(ALPHABET), SAYS)))
    for prompt, answer in zip(PROMPTS, ANSWERS, strict=True):
        first[prompt[0], answer] += 1.0
    last[:SAYS, END] += 1.5
    return [first.clone().requires_grad_(), last.clone().requires_grad_()]


def logits(policy: list[Tensor], tokens: Tensor) -> Tensor:
    """logits_t = first[token 0] + last[token t], of the token after each: (N, T) -> (N, T, 4)."""
    first, last = policy
    return first[tokens[:, :1]] + last[tokens]


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


# ---------------------------------------------------------------------------------------------------------- sampling

@dataclass
class Rollout:
    """One completion."""

    question: int
    tokens: list[int]
    done: bool = False              # it wrote the end token
    reward: float = 0.0


@torch.no_grad()
def sample(policy: list[Tensor], question: int, draws: np.ndarray, bill: Counter) -> list[Rollout]:
    """A group of completions: each token is the first whose cumulative probability reaches its uniform draw."""
    prompt = PROMPTS[question]
    before = torch.tensor([[prompt[0], *range(SAYS), prompt[-1]]])      # token 0, then what the next may follow
    # Normalised twice: the sampler of the world does it again after truncation (top-k, top-p), which is off here.
    after = log_softmax(log_softmax(logits(policy, before)))[0, 1:].exp().numpy().cumsum(-1).tolist()
    rollouts = [Rollout(question, []) for _ in draws]
    for rollout, row in zip(rollouts, draws.tolist(), strict=True):
        for draw in row:
            up_to = after[rollout.tokens[-1] if rollout.tokens else SAYS]
            rollout.tokens.append(min(bisect_left(up_to, draw), SAYS - 1))
            if rollout.tokens[-1] == END:
                rollout.done = True
                break
    bill["rollouts"] += len(rollouts)                                   # every completion that began
    bill["prefill"] += len(prompt) * len(rollouts)                      # tokens read
    bill["decode"] += sum(len(r.tokens) for r in rollouts)              # tokens written
    return rollouts


def verify(rollouts: list[Rollout], bill: Counter) -> None:
    """The reward: 1 for the letter of the answer and then the end, else 0."""
    for rollout in rollouts:
        rollout.reward = float(rollout.done and rollout.tokens == [ANSWERS[rollout.question], END])
    bill["verify"] += len(rollouts)


def choose(seed: int, drawn: int, count: int) -> list[int]:
    """The next questions: each once an epoch, in an order of its own for each epoch. `drawn` were drawn before."""
    chosen = []
    for at in range(drawn, drawn + count):
        epoch, place = divmod(at, len(PROMPTS))
        chosen.append(int(generator(seed, CHOOSE, epoch).permutation(len(PROMPTS))[place]))
    return chosen


# ------------------------------------------------------------------------------------------------------------ credit

@dataclass
class Batch:
    """Right-padded rows, one for each completion. `mask` is true where the policy wrote the token."""

    tokens: Tensor                  # (N, T), prompt and completion
    mask: Tensor                    # (N, T)
    length: Tensor                  # (N,), tokens that are not padding
    advantage: Tensor               # (N, T), float32 as in large worlds
    weight: Tensor                  # (N, T)


def pack(groups: list[list[Rollout]]) -> Batch:
    """A step's groups as one batch, with credit."""
    rollouts = [r for group in groups for r in group]
    rows = [PROMPTS[r.question] + r.tokens for r in rollouts]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    length = torch.tensor([len(row) for row in rows])
    at = torch.arange(width)
    mask = (at >= 2) & (at < length[:, None])                           # a prompt has two tokens
    A = torch.cat([advantage(torch.tensor([r.reward for r in group])) for group in groups])
    wrote = mask.sum(-1, dtype=torch.float32)
    w = 1 / wrote / len(rollouts)                                       # w_it = 1 / (R |y_i|): rollouts weigh the same
    return Batch(tokens, mask, length, A[:, None] * mask, w[:, None] * mask)


def advantage(r: Tensor) -> Tensor:
    """A_i = (r_i - mean r) / (std r + 1e-6) within a group, GRPO (arXiv:2402.03300); equal rewards teach nothing."""
    if (r == r[0]).all():
        return torch.zeros_like(r)
    return (r - r.mean()) / (r.std() + 1e-6)


# ------------------------------------------------------------------------------------------------------------ update

def update(policy: list[Tensor], batch: Batch, adam: Adam, lr: float, bill: Counter) -> dict[str, float]:
    """One step of Adam on L = sum_it w_it max(-A ρ, -A clip(ρ, 1 ± 0.2)); returns the metrics."""
    log_p = log_softmax(logits(policy, batch.tokens)[:, :-1])           # log π(. | before), for tokens 1 .. T-1
    chosen = log_p.gather(-1, batch.tokens[:, 1:, None].clamp(max=SAYS - 1))[..., 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    mask, A = batch.mask[:, 1:], batch.advantage[:, 1:]

    # ρ = π / π_old. The batch is trained on once and by the policy that sampled it, so π_old is π and ρ is 1: the
    # gradient of ρ is that of log π, and the clip is not active. It is with several updates a batch, or stale rollouts.
    chosen = chosen.masked_fill(~mask, 0.0)
    ratio = (chosen - chosen.detach()).exp()
    per_token = torch.maximum(-A * ratio, -A * ratio.clamp(0.8, 1.2))
    below, above = (ratio < 0.8) & (A < 0), (ratio > 1.2) & (A > 0)
    loss = (per_token * batch.weight[:, 1:])[mask].sum()

    gradient = torch.autograd.grad(loss, policy)
    norm = torch.stack([g.norm() for g in gradient]).norm()             # |g| over all parameters
    scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)                        # g <- g min(1, 1 / |g|)
    adam.step(policy, [g * scale for g in gradient], lr)
    bill["train"] += int(batch.length.sum())                            # tokens through forward and backward
    bill["updates"] += 1

    def mean(x: Tensor) -> float:
        return float(x[mask].detach().sum()) / int(mask.sum())

    return {
        "loss": float(loss.detach()), "entropy": mean(entropy), "clip_ratio/low_mean": mean(below.float()),
        "clip_ratio/high_mean": mean(above.float()), "clip_ratio/region_mean": mean((below | above).float()),
        "grad_norm": float(norm), "learning_rate": lr,
    }


class Adam:
    """m <- 0.9 m + 0.1 g,  v <- 0.999 v + 0.001 g²,  θ <- θ - lr m̂ / (√v̂ + 1e-8)        Kingma & Ba, 2015"""

    def __init__(self, policy: list[Tensor]):
        self.t, self.m, self.v = 0, [torch.zeros_like(p) for p in policy], [torch.zeros_like(p) for p in policy]

    @torch.no_grad()
    def step(self, policy: list[Tensor], gradient: list[Tensor], lr: float) -> None:
        self.t += 1
        for p, g, m, v in zip(policy, gradient, self.m, self.v, strict=True):
            m.lerp_(g, 1 - 0.9)
            v.mul_(0.999).addcmul_(g, g, value=1 - 0.999)
            m_bias, v_bias = 1 - 0.9**self.t, 1 - 0.999**self.t         # m̂ = m / m_bias, v̂ = v / v_bias
            p.addcdiv_(m, (v.sqrt() / v_bias**0.5).add_(1e-8), value=-lr / m_bias)


# -------------------------------------------------------------------------------------------------------- evaluation

@torch.no_grad()
def evaluate(policy: list[Tensor]) -> list[float]:
    """pass@1 of each question, exact: π(answer | prompt) π(end | prompt, answer)."""
    rows = torch.tensor([[*prompt, answer] for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)])
    log_p = log_softmax(log_softmax(logits(policy, rows)[:, 1:]))       # after "?", and after the answer
    return (log_p[:, 0].gather(-1, rows[:, 2:])[:, 0] + log_p[:, 1, END]).exp().tolist()


# ---------------------------------------------------------------------------------------------------------- the loop

def train(s: Settings) -> Iterator[dict[str, float]]:
    """Train until the budget cannot pay for another step; yields each line of metrics, of steps and of evaluations."""
    policy = new_policy(s.seed)
    adam, bill, step, drawn, points = Adam(policy), Counter(), 0, 0, [x for x in s.points if x > 0]

    def evaluation() -> dict[str, float]:
        return {"step": step, "rollouts": bill["rollouts"], "eval/pass@1": float(np.mean(evaluate(policy)))}

    yield evaluation()
    while bill["rollouts"] + s.n * s.B <= s.budget:
        questions = choose(s.seed, drawn, s.B)
        drawn += s.B
        groups = [sample(policy, q, uniforms(s.seed, step, slot, s.n), bill) for slot, q in enumerate(questions)]
        for group in groups:
            verify(group, bill)
        lr = s.lr * min(1.0, (step + 1) / s.warmup) if s.warmup else s.lr
        learned = update(policy, pack(groups), adam, lr, bill)
        yield {"step": step, **counts(bill), **summary(groups), "epoch": round(drawn / len(PROMPTS), 6), **learned}
        step += 1
        if points and bill["rollouts"] >= points[0]:
            points = [x for x in points if x > bill["rollouts"]]
            yield evaluation()
            evaluated = step
    if step and evaluated < step:
        yield evaluation()


BILLED = ("rollouts", "prefill", "decode", "score", "train", "updates", "env_steps", "verify")


def counts(bill: Counter) -> dict[str, int]:
    """The bill so far. `score` is 0 because no old log-probs are needed, `env_steps` because no environment answers."""
    return {name: bill[name] for name in BILLED}


def summary(groups: list[list[Rollout]]) -> dict[str, float]:
    """What a step's completions were like, under TRL's names."""
    rewards = np.array([[r.reward for r in group] for group in groups])         # (B, n)
    lengths = [len(r.tokens) for group in groups for r in group]
    stds = rewards.std(1)
    return {
        "reward": float(rewards.mean()), "reward_std": float(stds.mean()),
        "frac_reward_zero_std": float((stds == 0).mean()),
        "completions/mean_length": sum(lengths) / len(lengths), "completions/max_length": float(max(lengths)),
        "completions/clipped_ratio": sum(not r.done for group in groups for r in group) / len(lengths),
    }


if __name__ == "__main__":
    for line in train(Settings()):
        if "eval/pass@1" in line:
            print(f"{line['rollouts']:5} rollouts: pass@1 {line['eval/pass@1']:.4f}")
