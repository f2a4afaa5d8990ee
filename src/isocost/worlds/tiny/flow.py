"""A world of denoising: a flow-matching policy moves a point of the plane from noise to a target in ten steps.

A token is a point: its integer has the bits of two float32 numbers. A prompt is one token, the direction of the target.
An answer is the path, 11 tokens: the noise that it begins with, and the point after each step. The engine charges one
decoded token for each step, which is one pass of the network; reading a prompt and drawing the first point cost none.

Time t falls from 1 (noise) to 0 (data), in steps of δ, and the network v(x, t, prompt) gives dx/dt. A step with noise
is of a stochastic equation with the same marginals (flow-SDE; Flow-GRPO, arXiv:2505.05470; pi_RL, arXiv:2510.25889):

    x0 = x − v t,  x1 = x + v (1 − t),  σ² = a² t / (1 − t),  1 − t of the second step in the first
    x' ~ N( x0 (1 − t + δ) + x1 (t − δ − σ² δ / (2t)),  δ σ² )

a is the noise level times the temperature; at 0 it is Euler's step. With learned noise the mean is Euler's, and the
standard deviation a network's (flow-noise). The last step has no noise, so its log-prob is 0; the log-prob of the first
point does not depend on the policy. All others are densities, and may be positive.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, cos, log, pi, radians, sin
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from isocost import chance
from isocost.batch import Batch, Forward
from isocost.can import LEARNER, Can
from isocost.errors import UserError
from isocost.meter import Meter, payer
from isocost.ops import rounded
from isocost.tasks.builtin.modes import STATES
from isocost.types import Cost, Message, Place, Said, Segment, Stop
from isocost.world import OnTokens, World
from isocost.worlds.spec import Opening, Spec
from isocost.worlds.tiny.engine import PassEngine
from isocost.worlds.tiny.learner import ModuleLearner, TableAdam

STEPS = STATES - 1
BASE = Path(__file__).with_name("flow2d.safetensors")
WIDTH = 64
LEAST, MOST = 0.05, 0.8     # of a learned standard deviation, divided by the square root of a step
WIDE = torch.float64


def tokens_of(points: ndarray) -> ndarray:
    """(.., 2) points -> (..) tokens."""
    return np.ascontiguousarray(points, dtype="<f4").view("<i8")[..., 0].astype(np.int64)


def points_of(tokens: ndarray) -> ndarray:
    """(..) tokens -> (.., 2) points."""
    flat = np.ascontiguousarray(tokens, dtype="<i8")
    return flat.view("<f4").reshape(*flat.shape, 2).astype(np.float64)


class PlaneText:
    """The text of points: a prompt is a direction in degrees, an answer "x y", the last point of a path."""

    ends: tuple[int, ...] = ()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The direction, as a point at distance 1. Raises UserError for anything but one number."""
        text = "\n".join(m.content for m in messages)
        try:
            angle = radians(float(text))
            return tokens_of(np.array([[cos(angle), sin(angle)]])).tolist()
        except ValueError:
            raise UserError(f"{text!r} is not a direction: give degrees, such as 45.0") from None

    def encode(self, text: str) -> list[int]:
        """Nothing for no text. Raises UserError for any other, because a path is not known from its last point."""
        if text:
            raise UserError(f"a policy of points reads no text but a direction, so not {text!r}: choose another method")
        return []

    def decode(self, tokens: Sequence[int]) -> str:
        """The last of the points."""
        return " ".join(f"{x:.6f}" for x in points_of(np.array(tokens[-1:])).ravel())

    def answer(self, messages: Sequence[Message]) -> list[int]:
        """Nothing answers here. Raises UserError."""
        raise UserError("a policy of points has no turns: leave out --env")


class Field(nn.Module):
    """A network of a point, a time and a direction, with two hidden layers."""

    def __init__(self, outputs: int):
        super().__init__()
        sizes = (2 + 4 + 2, WIDTH, WIDTH, outputs)
        self.layers = nn.ModuleList(nn.Linear(a, b, dtype=WIDE) for a, b in pairwise(sizes))

    def forward(self, x: Tensor, t: Tensor, prompt: Tensor) -> Tensor:
        """(K, 2), (K,), (K, 2) -> (K, outputs)"""
        h = torch.cat((x, torch.stack((t, t * t, torch.sin(3 * t), torch.cos(3 * t)), -1), prompt), -1)
        for layer in self.layers[:-1]:
            h = nn.functional.silu(layer(h))
        return self.layers[-1](h)

    def zeroed(self) -> Field:
        """The same with outputs of 0 at first, and hidden layers by address."""
        draw = chance.generator(0, chance.Purpose.INIT)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.from_numpy(draw.normal(size=p.shape)) / p.shape[-1] ** 0.5 if p.ndim > 1 else 0 * p)
            list(self.parameters())[-2].zero_()
        return self


class Flow(nn.Module):
    """The policy: v, and with learned noise a network of the standard deviation of a step."""

    def __init__(self, noise: float, learned: bool):
        super().__init__()
        self.velocity, self.level = Field(2), noise
        self.at = torch.arange(STEPS + 1)       # a path is at these of its steps; a cheap one skips some
        self.spread = Field(1).zeroed() if learned else None

    def forward(self, x: Tensor, k: Tensor, prompt: Tensor, warm: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (K, 2) and standard deviation (K,) of the point after step k = 0, 1, .. of a path, at a temperature."""
        d = (self.at[k + 1] - self.at[k]).to(WIDE) * (1 / STEPS)
        t = 1 - self.at[k].to(WIDE) * (1 / STEPS)
        v, last = self.velocity(x, t, prompt), self.at[k + 1] == STEPS
        if self.spread is not None:
            sd = LEAST + (MOST - LEAST) * torch.sigmoid(self.spread(x, t, prompt)[:, 0])
            return x - v * d[:, None], torch.where(last, 0.0, sd * warm * d.sqrt())
        variance = (self.level * warm) ** 2 * t / (1 - torch.where(k == 0, t - d, t))
        variance = variance.masked_fill(last, 0.0)
        clean, noise = x - v * t[:, None], x + v * (1 - t)[:, None]
        mean = clean * (1 - t + d)[:, None] + noise * (t - d - variance * d / (2 * t))[:, None]
        return mean, (variance * d).sqrt()


def density(x: Tensor, mean: Tensor | float, sd: Tensor) -> Tensor:
    """log N(x; mean, sd² I) of points (K, 2); 0 where sd is 0."""
    safe = torch.where(sd > 0, sd, 1.0)
    logp = -(((x - mean) / safe[:, None]).square().sum(-1) / 2 + 2 * safe.log() + log(2 * pi))
    return torch.where(sd > 0, logp, 0.0)


class FlowEngine(PassEngine):
    """Steps the points of all attempts that wait for a step together. A pass is charged as `price` tokens."""

    policy: Flow

    def __init__(self, policy: Flow, meter: Meter, price: float = 1.0):
        super().__init__(policy, meter)
        self.price, self._cheap = price, dict[tuple[int, int, float], FlowEngine]()

    def cheap(self, bits: int, steps: int, price: float) -> FlowEngine:
        """The same policy with matrices of `bits` bits (0: exact), in fewer steps, of which each is charged as `price`.

        A longer step has the sum of the noise of those that it stands for. So with exact weights and all steps, each
        attempt has the path that it has here. Raises UserError for more steps than a path has.
        """
        if steps > STEPS:
            raise UserError(f"a path has {STEPS} steps, so its cheap form cannot have {steps}")
        if (made := self._cheap.get((bits, steps, price))) is None:
            made = self._cheap[bits, steps, price] = FlowEngine(copy.deepcopy(self.policy), self.meter, price)
            made.policy.at, made.halted, made.version = _skipping(steps), self.halted, self.version
            for x in made.policy.parameters() if bits else ():
                x.data = rounded(x.data, bits)
        return made

    def restore(self, weights: Mapping[str, Tensor], version: int) -> None:
        """See `isocost.world.Engine`."""
        super().restore(weights, version)
        self._cheap.clear()

    async def generate(
        self, start: Segment, attempts: Sequence[int], *, place: Place, turn: int, max_tokens: int,
        stop: Sequence[str] = (), ends: Sequence[int] = (), on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """See `isocost.world.Engine`."""
        paying, seconds, done = payer(), 0.0, len(start) - 1      # points of the path so far
        ends_at = [0, *(self.policy.at + 1).tolist()]      # how many points of a whole path there are by then
        room = max(min(max_tokens, len(self.policy.at) - done), 0)
        left = max(STATES - ends_at[done], 1)
        u = chance.uniforms(place, attempts, turn, 2 * ends_at[done], 2 * left).reshape(len(attempts), -1, 2)
        away, turned = np.sqrt(-2 * np.log(u[..., :1])), 2 * pi * u[..., 1]
        normal = away * np.stack((np.cos(turned), np.sin(turned)), -1)
        shape = (len(attempts), 2)
        prompt, x = (torch.from_numpy(np.broadcast_to(points_of(start.tokens[i]), shape).copy()) for i in (0, -1))
        warm = torch.full((len(attempts),), start.sampling.temperature, dtype=WIDE)
        path, logp, passes = list[ndarray](), list[Tensor](), 0
        try:
            for i in range(room):
                if place.wave_key in self.halted:
                    break
                k = torch.full((len(attempts),), done + i - 1)
                mean, sd, spent = torch.zeros_like(x), torch.ones_like(warm), 0.0
                if done + i:
                    mean, sd, spent = await self.passed(x, k, prompt, warm)
                    passes += len(attempts)
                old, new = (ends_at[done + j] - ends_at[done] for j in (i, i + 1))
                noise = torch.from_numpy(normal[:, old:new].sum(1)) / (new - old) ** 0.5
                path.append(tokens_of((mean + sd[:, None] * noise).numpy()))
                x = torch.from_numpy(points_of(path[-1]))
                logp.append(density(x, mean, sd))
                seconds += spent
                if on_tokens is not None:
                    for attempt, token in zip(attempts, path[-1].tolist(), strict=True):
                        on_tokens(attempt, [token])
        finally:
            began = len(attempts) if path or not room else 0         # nothing is left to write at the end of a path
            made = Cost(decode=passes, seconds=seconds)
            self.meter.charge(made._replace(decode=ceil(self.price * passes)), made, to=paying, started=began)
        whole = done + len(path) == len(self.policy.at)
        why = Stop.DONE if whole else Stop.LENGTH if len(path) == room else Stop.CANCELLED
        if not path:
            return [Said.nothing(why) for _ in attempts]
        written, chances = np.stack(path, 1), torch.stack(logp, 1).numpy().astype(np.float32)
        version = np.full(len(path), self.version)
        return [Said(t, p, version, why) for t, p in zip(written, chances, strict=True)]


def _skipping(steps: int) -> Tensor:
    """The ends of so many steps, which are as equal as whole steps of the path can be, from 0 to STEPS."""
    return torch.from_numpy(np.linspace(0, STEPS, steps + 1).round().astype(np.int64))


def taken(batch: Batch) -> tuple[Tensor, ...]:
    """The K steps of the policy in a batch: row and position of the point after it, number, point before it, the point
    after it, prompt. Numbers begin with 0; the first point of a path is after step −1.
    """
    row, at = torch.nonzero(batch.mask, as_tuple=True)
    every = torch.from_numpy(points_of(batch.tokens.numpy()))
    return row, at, at - 2, every[row, at - 1], every[row, at], every[row, 0]


class FlowLearner(ModuleLearner):
    """Adam on the networks, in double precision."""

    can, timed = LEARNER - {Can.TRUNCATION, Can.TEXT}, True
    policy: Flow

    def forward(self, batch: Batch) -> Forward:
        """Log densities and entropies of the steps."""
        row, at, k, before, after, prompt = taken(batch)
        mean, sd = self.policy(before, k.clamp(min=0), prompt, batch.temperature.to(WIDE)[row])
        mean, sd = torch.where((k < 0)[:, None], 0.0, mean), torch.where(k < 0, 1.0, sd)
        entropy = torch.where(sd > 0, 2 * torch.where(sd > 0, sd, 1.0).log() + 1 + log(2 * pi), 0.0)
        zero = torch.zeros(batch.tokens.shape, dtype=WIDE)
        return Forward(*(zero.index_put((row, at), x) for x in (density(after, mean, sd), entropy)))

    def passed(self, batch: Batch) -> int:
        """The points of the paths: one pass each, of the first one too."""
        return int(batch.mask.sum())


class FlowCritic:
    """Adam on a network that predicts the reward at the point before each step; at first it predicts 0."""

    def __init__(self, meter: Meter):
        self.meter = meter
        self.restore({})

    def _predicted(self, batch: Batch) -> Tensor:
        row, at, k, before, _, prompt = taken(batch)
        start = (k < 0)[:, None]        # nothing but the prompt is known before the first point
        value = self.net(torch.where(start, 0.0, before), 1 - k.to(WIDE) / STEPS, prompt)[:, 0]
        return torch.zeros(batch.tokens.shape, dtype=WIDE).index_put((row, at), value)

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        """See `isocost.world.Critic`."""
        began = perf_counter()
        out = self._predicted(batch).to(batch.logp)
        self.meter.charge(Cost(score=int(batch.mask.sum()), seconds=perf_counter() - began))
        return out

    def fit(self, batch: Batch, target: Tensor, *, lr: float) -> dict[str, float]:
        """See `isocost.world.Critic`."""
        began = perf_counter()
        self.adam.zero_grad()
        loss = (self._predicted(batch) - target)[batch.mask].square().mean() / 2
        loss.backward()
        self.adam.step(lr)
        self.meter.charge(Cost(train=int(batch.mask.sum()), updates=1, seconds=perf_counter() - began))
        return {"critic/loss": float(loss.detach())}

    def state(self) -> dict[str, Tensor]:
        """See `isocost.world.Critic`."""
        own = {f"net.{k}": v.clone() for k, v in self.net.state_dict().items()}
        return own | self.adam.state() if self.adam.steps else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """See `isocost.world.Critic`."""
        self.net = Field(1).zeroed()
        self.adam = TableAdam(self.net.parameters())
        if state:
            self.net.load_state_dict({k: state[f"net.{k}"] for k in self.net.state_dict()})
            self.adam.restore(state)


def open_world(spec: Spec, opening: Opening) -> World:
    """The flow policy that ships. Raises UserError for another name, or a noise level that is not positive."""
    from safetensors.torch import load_file

    own = opening.options
    if spec.name != "modes":
        raise UserError(f"there is no flow policy {spec.name!r}: give {Spec(spec.kind, 'modes')}")
    if own.noise <= 0:
        raise UserError(f"--noise is {own.noise:g}: give a number above 0")
    policy = Flow(own.noise, own.learned_noise)
    policy.velocity.load_state_dict({k: v.to(WIDE) for k, v in load_file(BASE).items()})
    engine, learner, meter = FlowEngine(copy.deepcopy(policy), opening.meter), FlowLearner, opening.meter
    reference = learner(copy.deepcopy(policy), meter) if opening.reference else None
    return World(opening.problems, engine, learner(policy, meter), PlaneText(), opening.grade, meter,
                 reference=reference, critic=FlowCritic(meter))
