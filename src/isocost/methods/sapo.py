"""SAPO: runs publish their rollouts as text, and each trains on its own and on some that the others published.

    a step: I own groups, and J of other runs, drawn uniformly from those whose rewards differ
    old of a foreign token = the run's own log-prob, so ρ = 1 at first;   A of GRPO;  clip 1 − 0.2, 1 + 0.28;  no KL
    Amico et al. 2025, "Sharing is Caring", arXiv:2509.08721
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost import chance
from isocost.batch import Batch
from isocost.credit import credited
from isocost.disk.jsonfile import line, write_text
from isocost.methods import Card, grpo
from isocost.parts import loss
from isocost.parts.improve import policy
from isocost.scorers import pretends
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment, Stop
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("SAPO", "2509.08721", 2025, "grpo", "Half own and half foreign rollouts earn more than own ones alone.")


@asks("text")
@bounds(foreign="[0, inf)", newest="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, folder: str = "", foreign: float = 1.0,
    newest: int = 1, inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement, with `foreign` groups of other runs for each own one, from the last `newest` steps (SAPO).

    A step's groups are published as `folder`/SEED/STEP.jsonl; other seeds are other runs. Those of steps before this
    one are read, as far as they are there, so a run repeats exactly where the others have ended. Foreign rollouts cost
    training tokens alone, and are counted in the run that began them. Only answers of one turn are published. Without a
    `folder` nothing is shared.
    """
    if not folder or pretends():
        return {**inner(batch, recipe, world, ledger), "foreign": 0.0}
    mine = Path(folder, f"{ledger.seed}")
    mine.mkdir(parents=True, exist_ok=True)
    own = [said for g in batch.groups if (said := published(g, world))]
    write_text(mine / f"{ledger.step}.jsonl", "".join(f"{line(said)}\n" for said in own))
    steps = range(max(ledger.step - newest, 0), ledger.step)
    files = [p for k in steps for p in sorted(Path(folder).glob(f"*/{k}.jsonl")) if p.parent.name != mine.name]
    found = [json.loads(text) for p in files for text in p.read_text(encoding="utf-8").splitlines()]
    rng = chance.generator(ledger.seed, chance.Purpose.REPLAY, ledger.step)
    wanted = min(round(foreign * len(batch.groups)), len(found))
    sampling = recipe.pace(ledger).sampling
    chosen = [taken(found[i], k, world, sampling) for k, i in enumerate(rng.permutation(len(found))[:wanted].tolist())]
    if chosen:
        batch = credited([*batch.groups, *chosen], recipe, world, ledger)
    return {**inner(batch, recipe, world, ledger), "foreign": float(len(chosen))}


def published(group: Group, world: World) -> dict[str, Any]:
    """A group as text, with its rewards; empty if these are equal, or if it has several turns."""
    if len(set(group.rewards.tolist())) < 2 or any(len(r.segments) > 1 or r.turns for r in group.rollouts):
        return {}
    said = [[t for t in r.segments[0].tokens[r.segments[0].own].tolist() if t not in world.text.ends]
            for r in group.rollouts]
    return {"id": group.problem.id, "prompt": [[m.role, m.content] for m in group.problem.prompt],
            "texts": [world.text.decode(x) for x in said], "stops": [str(r.stop) for r in group.rollouts],
            "rewards": [r.score.value if r.score else None for r in group.rollouts]}


def taken(said: dict[str, Any], number: int, world: World, sampling: Sampling) -> Group:
    """A published group as if the policy had written it now; its slots come after all own ones."""
    problem = Problem(said["id"], tuple(Message(*m) for m in said["prompt"]))
    start, now, made = world.text.prompt(problem.prompt), world.engine.version, []
    for k, (text, stop, reward) in enumerate(zip(said["texts"], said["stops"], said["rewards"], strict=True)):
        tokens = [*world.text.encode(text), *(world.text.ends[:1] if stop == Stop.DONE else ())]
        if tokens and reward is not None:
            words = Said(np.array(tokens), np.zeros(len(tokens), np.float32), np.full(len(tokens), now), Stop(stop))
            whole = Segment.given(start, Role.PROMPT, sampling).wrote(words)
            made.append(Rollout(problem, (whole,), text, Stop(stop), k, Score(reward), origin="peer"))
    return Group(problem, tuple(made), Place(0, 2**30, number))


def recipe(**changes: Any) -> Recipe:
    # The paper's best is as many foreign samples as own ones, 4 and 4; here groups. Each run there scores foreign
    # answers by its own verifier; here the published reward is taken. A swarm is runs with one folder and other seeds.
    # Left out: peers of other models, which need other tokens, and the network between them.
    learn = partial(improve, folder="", foreign=1.0, newest=1, inner=policy)
    clip = partial(loss.clipped, low=0.2, high=0.28)
    return grpo.recipe(name="sapo", loss=clip, improve=learn).but(**changes)
