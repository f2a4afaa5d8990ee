"""DynaWeb: most attempts are played in a learned model of the environment, the rest in the environment itself.

    (o_{t+1}, r_{t+1}, end) ~ p(· | o_t, a_t),   p the most frequent of what followed (o_t, a_t) in real attempts
    GSPO on both kinds, each compared with its own siblings; real attempts alone take environment steps
    Ding et al. 2026, arXiv:2601.22149
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, gigpo, gspo
from isocost.parts import pace
from isocost.parts.episode import past
from isocost.seams import Attempts, Recipe
from isocost.traits import bounds, trait
from isocost.types import Fault, Group, Message, Problem, Rollout, Shown
from isocost.world import Environment, Luck, World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card(
    "DynaWeb", "2601.22149", 2026, "gspo", "Imagined attempts replace most environment steps at equal success.",
)
REAL, DREAM = "real", "dream"       # real groups are kept in the ledger; dreams are a cohort

needs = gigpo.needs


@dataclass(frozen=True)
class Transition:
    """What followed an action in a state: what was shown, the next state, whether it was a valid action."""

    shown: str
    key: str
    fault: str


@dataclass
class TransitionTable:
    """A model of an environment, counted from real attempts. States are those that the environment names."""

    next: dict[tuple[str, str], Counter[Transition]] = field(default_factory=lambda: defaultdict(Counter))
    pays: dict[tuple[str, str, str], Counter[tuple[float, bool]]] = field(default_factory=lambda: defaultdict(Counter))
    opens: dict[str, str] = field(default_factory=dict)     # the last word of what an episode opens with: its state

    def saw(self, rollout: Rollout, world: World) -> None:
        """Count a real attempt's turns. Rewards are counted for each answer that problems have."""
        words = [(world.text.decode(said.reply().tolist()), world.text.decode(seen.tolist()))
                 for said, _, seen in past((*rollout.segments, rollout.segments[-1].cut(0)))]
        turns, answer = rollout.turns, str(rollout.problem.answer)
        if not turns or len(words) < len(turns):
            return
        self.opens.setdefault(last_word(rollout.problem.text), turns[0].key)
        for i, turn in enumerate(turns):
            said, shown = words[i]
            over = i == len(turns) - 1
            if not over:
                self.next[turn.key, said][Transition(shown, turns[i + 1].key, str(turn.fault or ""))] += 1
            if not over or turn.reward:
                self.pays[answer, turn.key, said][turn.reward, over] += 1

    def __len__(self) -> int:
        return len(self.next)


def last_word(text: str) -> str:
    return text.split(" ")[-1]


class Dreamt:
    """An episode in a table: an `isocost.world.Environment` that takes no real steps.

    An action that was never seen in its state ends the episode without a reward: the model does not know what follows.
    """

    imagined = True

    def __init__(self, table: TransitionTable, depth: int, problem: Problem):
        self.table, self.left, self.problem = table, depth, problem
        self.key, self.said = table.opens[last_word(problem.text)], ""

    async def open(self) -> Shown:
        return Shown(tuple(self.problem.prompt), key=self.key)

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said, self.left = said, self.left - 1
        paid = self.table.pays.get((str(self.problem.answer), self.key, said))
        (reward, over), _ = paid.most_common(1)[0] if paid else ((0.0, False), 0)
        found = self.table.next.get((self.key, said))
        if over or found is None or self.left <= 0:
            fault = None if over or found is not None else Fault.tool("unknown to the model")
            return Shown((), True, reward, self.key, fault)
        known, _ = found.most_common(1)[0]
        self.key = known.key
        return Shown((Message("tool", known.shown),), False, reward, known.key, Fault.of(known.fault))

    def final(self) -> str:
        return self.said

    async def close(self) -> None:
        """It holds nothing."""


def dreamt(table: TransitionTable, depth: int, problem: Problem) -> Environment:
    return Dreamt(table, depth, problem)


@trait("needs_turns", "in_parts")
@bounds(real="(0, 1]", depth="[1, inf)", room="[1, inf)", least="[1, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    real: float = 0.25, depth: int = 12, room: int = 64, least: int = 32,
) -> list[Rollout]:
    """A share `real` of the attempts in the environment, at least one; the others are dreamt.

    The model is counted from the `room` latest groups of real attempts of earlier waves. All attempts are real until
    it knows `least` pairs of state and action, and for problems that open in a state that it has not seen. A dream ends
    after `depth` turns.
    """
    world, place = play.world, play.place
    if place.purpose != chance.Purpose.TRAIN:
        return await play(problem, attempts)
    table = learned([g for g in ledger.kept[REAL] if g.place.wave < place.wave][-room:], world)
    known = len(table) >= least and last_word(problem.text) in table.opens
    count = max(round(real * len(attempts)), 1) if known else len(attempts)
    asleep = replace(play, world=replace(world, env=partial(dreamt, table, depth)))
    awake, dreams = await together(play(problem, attempts[:count]), _some(asleep, problem, attempts[count:]))
    kept = sorted([*ledger.kept[REAL], Group(problem, tuple(awake), place)], key=_when)
    ledger.kept[REAL] = kept[max(len(kept) - 2 * room, 0) :]      # waves that overlap still find the latest `room`
    return [*awake, *(r.but(cohort=DREAM) for r in dreams)]


async def _some(play: Attempts, problem: Problem, attempts: Sequence[int]) -> list[Rollout]:
    return await play(problem, attempts) if attempts else []


def _when(group: Group) -> tuple[int, int]:
    return group.place.wave, group.place.slot


def learned(groups: Sequence[Group], world: World) -> TransitionTable:
    """The model that these real attempts give."""
    table = TransitionTable()
    for group in groups:
        for rollout in group.rollouts:
            table.saw(rollout, world)
    return table


def recipe(**changes: Any) -> Recipe:
    # The paper's model is a language model trained on transitions that were there before; this one is a table of what
    # the run itself has seen, for environments that name their states. It mixes in trajectories of experts; here the
    # real attempts are the policy's own. The quarter and 12 turns are ours; the paper's dreams have about 5 turns.
    return gspo.recipe(
        name="dynaweb", schedule=partial(schedule, real=0.25, depth=12, room=64, least=32),
        pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
