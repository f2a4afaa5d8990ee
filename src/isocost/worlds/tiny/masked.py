"""A world of masked diffusion: a policy fills the masked places of an answer, several in each pass, in any order.

A token of the policy is a pass: 4 bits for each of the 8 places say what it wrote there, or nothing. So a step of the
trajectory is a unit, whose log-prob is the sum over the places that it filled, each given the state before the pass.
The learner computes it again from the same states. A token of the prompt is a character. A pass reads all 14 places and
is charged as so many tokens.

In a pass a symbol is drawn for every masked place, and the most confident ones stay. Which stay is decided by their
probability, and is no part of the log-prob (CJ-GRPO, arXiv:2509.23924). With `one_pass` the learner takes every place's
log-prob from the state without any answer, as in one-step estimates (diffu-GRPO, arXiv:2504.12216), which the sampler's
do not equal.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from isocost import chance
from isocost.batch import Batch, Forward
from isocost.can import LEARNER, Can
from isocost.errors import UserError
from isocost.meter import Meter, payer
from isocost.tasks.builtin.places import PLACES
from isocost.types import Cost, Message, Place, Said, Segment, Stop
from isocost.world import OnTokens, World
from isocost.worlds.spec import Opening, Spec
from isocost.worlds.tiny.engine import PassEngine
from isocost.worlds.tiny.learner import ModuleLearner

SYMBOLS = "0123456789+=E"       # E ends an answer and fills the rest
END, MASK = SYMBOLS.index("E"), len(SYMBOLS)
ASKED = 6                       # characters of a prompt
SHIFT = 4 * np.arange(PLACES, dtype=np.int64)
WIDTH, HEADS, LAYERS = 32, 4, 2
BASE = Path(__file__).with_name("masked.safetensors")
WIDE = torch.float64


def passes_of(cells: ndarray) -> ndarray:
    """(.., 8) symbols, −1 for none -> (..) tokens."""
    return ((cells + 1) << SHIFT).sum(-1)


def cells_of(tokens: ndarray) -> ndarray:
    """(..) tokens -> (.., 8) symbols, −1 where the pass wrote none."""
    return (np.asarray(tokens, dtype=np.int64)[..., None] >> SHIFT & 15) - 1


class CellText:
    """The text of places: a prompt is a sum, an answer what its places hold before the first end."""

    ends: tuple[int, ...] = ()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """The characters of a sum. Raises UserError for a text of another length, or with other characters."""
        text = "\n".join(m.content for m in messages)
        if unknown := set(text) - set(SYMBOLS):
            raise UserError(f"{text!r} has {min(unknown)!r}; this policy reads {SYMBOLS}")
        if len(text) != ASKED:
            raise UserError(f"{text!r} has {len(text)} characters; this policy reads {ASKED}")
        return [SYMBOLS.index(c) for c in text]

    def encode(self, text: str) -> list[int]:
        """Nothing for no text. Raises UserError for any other, because passes are not known from what they wrote."""
        if text:
            raise UserError(f"a policy that fills places reads no text but a sum, so not {text!r}: choose another "
                            "method")
        return []

    def decode(self, tokens: Sequence[int]) -> str:
        """What passes have written, "?" where nothing is."""
        filled = cells_of(np.array(tokens, dtype=np.int64).reshape(-1)).max(0, initial=-1)
        return "".join(SYMBOLS[c] if c >= 0 else "?" for c in filled.tolist()).partition("E")[0]

    def answer(self, messages: Sequence[Message]) -> list[int]:
        """Nothing answers here. Raises UserError."""
        raise UserError("a policy that fills places has no turns: leave out --env")


class TwoWayBlock(nn.Module):
    """Attention in both directions, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = (nn.LayerNorm(WIDTH, dtype=WIDE) for _ in range(2))
        self.read, self.out = nn.Linear(WIDTH, 3 * WIDTH, dtype=WIDE), nn.Linear(WIDTH, WIDTH, dtype=WIDE)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, dtype=WIDE), nn.Linear(4 * WIDTH, WIDTH, dtype=WIDE)

    def forward(self, x: Tensor) -> Tensor:  # (K, 14, WIDTH)
        each = self.read(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*each).transpose(1, 2).flatten(-2)
        x = x + self.out(seen)
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


class Filler(nn.Module):
    """The policy: what each place of an answer holds, given the prompt and the places that are filled."""

    def __init__(self) -> None:
        super().__init__()
        self.symbol = nn.Embedding(MASK + 1, WIDTH, dtype=WIDE)
        self.place = nn.Parameter(torch.zeros(ASKED + PLACES, WIDTH, dtype=WIDE))
        self.blocks = nn.ModuleList(TwoWayBlock() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, MASK, dtype=WIDE)

    def forward(self, states: Tensor, warm: Tensor) -> tuple[Tensor, Tensor]:
        """(K, 14) symbols, (K,) temperatures -> (K, 8, 13) log-probs of the places, and (K, 8) their entropies."""
        x = self.symbol(states) + self.place
        for block in self.blocks:
            x = block(x)
        logp = torch.log_softmax(self.head(x[:, ASKED:]) / warm[:, None, None], -1)
        return logp, -(logp.exp() * logp).sum(-1)


def sizes_of(passes: int, doubling: bool) -> list[int]:
    """How many places each pass fills: as many in each, or 1, 2, 4, ..; the last one fills the rest."""
    if doubling:
        passes = PLACES.bit_length() - 1
    each = [2**i if doubling else PLACES // passes for i in range(passes - 1)]
    return [*each, PLACES - sum(each)]


class MaskedEngine(PassEngine):
    """Fills places of all attempts that wait for a pass together."""

    def __init__(self, policy: Filler, meter: Meter, sizes: Sequence[int], end: float):
        super().__init__(policy, meter)
        self.sizes, self.end = sizes, end

    async def generate(
        self, start: Segment, attempts: Sequence[int], *, place: Place, turn: int, max_tokens: int,
        stop: Sequence[str] = (), ends: Sequence[int] = (), on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """See `isocost.world.Engine`."""
        paying, seconds, done = payer(), 0.0, len(start) - ASKED       # passes so far
        room = max(min(max_tokens, len(self.sizes) - done), 0)
        u = chance.uniforms(place, attempts, turn, PLACES * done, PLACES * max(room, 1))
        u = u.reshape(len(attempts), -1, PLACES)
        prompt = np.broadcast_to(start.tokens[:ASKED], (len(attempts), ASKED))
        filled = cells_of(start.tokens[ASKED:]).max(0, initial=-1)
        cells = np.broadcast_to(filled, (len(attempts), PLACES)).copy()
        warm = torch.full((len(attempts),), start.sampling.temperature, dtype=WIDE)
        path, chances = list[ndarray](), list[ndarray]()
        try:
            for i in range(room):
                if place.wave_key in self.halted:
                    break
                state = np.concatenate((prompt, np.where(cells < 0, MASK, cells)), 1)
                out, _, spent = await self.passed(torch.from_numpy(state), warm)
                seconds += spent
                share = (done + i) / max(len(self.sizes) - 1, 1)
                drawn, logp, stays = chosen(out.numpy(), u[:, i], cells < 0, self.sizes[done + i],
                                            self.end + (1 - self.end) * share)
                cells = np.where(stays, drawn, cells)
                path.append(passes_of(np.where(stays, drawn, -1)))
                chances.append(np.where(stays, logp, 0.0).sum(-1))
                if on_tokens is not None:
                    for attempt, token in zip(attempts, path[-1].tolist(), strict=True):
                        on_tokens(attempt, [token])
        finally:
            decode = len(path) * len(attempts) * (ASKED + PLACES)
            began = len(attempts) if path or not room else 0         # nothing is left to write after the last pass
            self.meter.charge(Cost(decode=decode, seconds=seconds), to=paying, started=began)
        over = done + len(path) == len(self.sizes)
        why = Stop.DONE if over else Stop.LENGTH if len(path) == room else Stop.CANCELLED
        if not path:
            return [Said.nothing(why) for _ in attempts]
        version, logps = np.full(len(path), self.version), np.stack(chances, 1).astype(np.float32)
        return [Said(t, p, version, why) for t, p in zip(np.stack(path, 1), logps, strict=True)]


def chosen(logp: ndarray, u: ndarray, masked: ndarray, size: int, end: float) -> tuple[ndarray, ndarray, ndarray]:
    """The symbol drawn for each place (G, 8) from log-probs (G, 8, 13), its log-prob, and whether it stays.

    The `size` most confident masked places stay, ties to the first; `end` is a factor on the confidence of an end.
    """
    p = np.exp(logp)
    drawn = np.minimum((p.cumsum(-1) < u[..., None]).sum(-1), MASK - 1)
    own = np.take_along_axis(logp, drawn[..., None], -1)[..., 0]
    sure = np.where(masked, np.exp(own) * np.where(drawn == END, end, 1.0), -1.0)
    order = np.argsort(-sure, -1, kind="stable")[:, :size]
    stays = np.zeros_like(masked)
    np.put_along_axis(stays, order, True, -1)
    return drawn, own, stays & masked


class MaskedLearner(ModuleLearner):
    """Adam on the network, in double precision."""

    can, timed = LEARNER - {Can.TRUNCATION, Can.CRITIC, Can.TEXT}, True

    def __init__(self, policy: Filler, meter: Meter, one_pass: bool):
        super().__init__(policy, meter)
        self.one_pass = one_pass

    def forward(self, batch: Batch) -> Forward:
        """Log-probs and entropies of passes: sums over the places that a pass filled."""
        row, at = torch.nonzero(batch.mask, as_tuple=True)
        wrote = torch.from_numpy(cells_of(batch.tokens[:, ASKED:].numpy()))               # (N, passes, 8)
        before = wrote.cummax(1).values.roll(1, 1)
        before[:, :1] = -1
        state = torch.full_like(wrote, -1) if self.one_pass else before
        cells, own = state[row, at - ASKED], wrote[row, at - ASKED]
        states = torch.cat((batch.tokens[row, :ASKED], torch.where(cells < 0, MASK, cells)), 1)
        logp, entropy = self.policy(states, batch.temperature.to(WIDE)[row])
        each = logp.gather(-1, own.clamp(min=0)[..., None])[..., 0]
        zero = torch.zeros(batch.tokens.shape, dtype=WIDE)
        return Forward(*(zero.index_put((row, at), (x * (own >= 0)).sum(-1)) for x in (each, entropy)))

    def passed(self, batch: Batch) -> int:
        """All places in each pass; with `one_pass` one pass a row."""
        passes = batch.mask.any(-1).sum() if self.one_pass else batch.mask.sum()
        return int(passes) * (ASKED + PLACES)


def open_world(spec: Spec, opening: Opening) -> World:
    """The masked policy that ships. Raises UserError for another name, or for options that are out of range."""
    from safetensors.torch import load_file

    own, meter = opening.options, opening.meter
    if spec.name != "sums":
        raise UserError(f"there is no masked policy {spec.name!r}: give {Spec(spec.kind, 'sums')}")
    if own.passes > PLACES:
        raise UserError(f"--passes is {own.passes}; an answer has {PLACES} places")
    if not 0 < own.end_factor <= 1:
        raise UserError(f"--end-factor is {own.end_factor:g}: give a number above 0, and at most 1")
    policy = Filler()
    policy.load_state_dict({k: v.to(WIDE) for k, v in load_file(BASE).items()})
    engine = MaskedEngine(copy.deepcopy(policy), meter, sizes_of(own.passes, own.doubling), own.end_factor)
    reference = MaskedLearner(copy.deepcopy(policy), meter, own.one_pass) if opening.reference else None
    return World(opening.problems, engine, MaskedLearner(policy, meter, own.one_pass), CellText(), opening.grade, meter,
                 reference=reference)
