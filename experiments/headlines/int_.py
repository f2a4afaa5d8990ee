"""InT: repaired attempts as a start for RL, against reference solutions as a start.

The problems are worked sums of two digits that carry twice. The base has seen few of them. It writes the columns in the
right form and mostly fails at a carry, so one attempt in twenty is right. InT samples until an attempt fails, replaces
the first wrong step by the right one, and imitates the attempt up to and including that step, if a continuation from it
is right. After 16 updates of this, about a sixth of a run, it continues as Dr. GRPO. (The paper's start is 67 updates
of 64 repairs.) In the paper the policy, given a reference solution, finds the step and phrases it. This model follows
no instructions, so the step comes from a perfect policy's answer: InT with faultless proposals. What reference
solutions teach depends on their wording. In the paper people wrote them, and the policy is unlikely to produce them.
Here they have the digits of a column in the other order, 4+6=10 where the policy writes 6+4=10, and are as right. A
second control imitates references in the policy's own words: 4.5 nats, against 31 for those in other words, of the
repaired problems. In those words a sum has one way to be written, and a repair is a part of its reference: whole
references are a far better start than repairs, and the claim does not extend to them. No other start length and no
other words were tried, and each arm ran once on another seed before the questions were fixed. Plain RL's short probe
chose a lower rate for it than for InT.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import theme

REPAIRS, PLAIN = "int_@guide.steps=16,play.boundary=;", "drgrpo"
OWN_WORDS, STRANGERS = REPAIRS + ",play.propose=solution,improve.own=true", "strangers@guide.steps=16"
NAMES = {PLAIN: "RL alone", REPAIRS: "repairs (InT)", STRANGERS: "references in other words",
         OWN_WORDS: "in its own words"}
ALT = ("Held-out reward over FLOP of Dr. GRPO alone, and begun with repairs (InT), with reference solutions in a "
       "stranger's words, and with the same in the policy's own words: thin lines are runs")


def numbers(folder: Path) -> dict[str, float]:
    """Of the repairing arm, what repairs come to while the policy is still the base: 256 problems, 8 attempts each.

    The share right of attempts from the start and of those that go on from a new step, and the nats of what is
    imitated: a repair up to its new step, and the references of the same problems.
    """
    from isocost.chance import Purpose
    from isocost.ledger import Ledger
    from isocost.methods import load as method
    from isocost.methods.int_ import REPAIRED
    from isocost.pack import pack
    from isocost.parts.play import opening
    from isocost.runs.run import Job, recipe_of
    from isocost.types import Group, Place, Role
    from isocost.worlds.setting import open_setting

    job = Job.of(json.loads((folder / "run.json").read_text())["job"])
    if job.method != "int_" or "play.propose" in job.sets:
        return {}
    recipe, opened, ledger = recipe_of(job), open_setting(job.setting), Ledger(seed=job.seed)
    world, pace = opened.world, recipe.pace(ledger)

    async def tried(slot: int) -> Group:
        place = Place(job.seed, 0, slot, Purpose.PROFILE)
        (problem,) = await recipe.guide(opened.sides.train[slot], world, ledger)
        rollouts = await recipe.play(problem, range(job.arm["n"]), world, pace, place)
        return await recipe.reward(Group(problem, tuple(rollouts), place), world)

    async def all_of_them() -> list[Group]:
        return list(await asyncio.gather(*map(tried, range(256))))

    def nats(groups: list[Group]) -> float:
        batch = pack(groups, version=world.engine.version)
        theirs = batch.role == int(Role.TEACHER)
        return -float(world.learner.score(batch.but(mask=theirs, kept=())).logp[theirs].sum()) / len(groups)

    def saying(group: Group, solution: str) -> Group:
        told = [*world.text.encode(solution), world.text.ends[0]]
        text = opening(group.problem, world, pace).read(told, Role.TEACHER)
        return group.of([group.rollouts[0].but(segments=(text,))])

    groups = asyncio.run(all_of_them())
    right = {cohort: [r.score.value > 0 for g in groups for r in g.rollouts if r.cohort == cohort and r.score]
             for cohort in ("", REPAIRED)}
    kept = [g for g in (recipe.select(g, ledger) for g in groups) if g and g.rollouts[0].cohort == REPAIRED]
    solutions = [str(g.problem.meta["solution"]) for g in kept]
    strange = method("experiments/headlines/methods/strangers.py").in_other_words
    opened.grader.close()
    return {
        "right": sum(right[""]) / len(right[""]),
        "right after a repair": sum(right[REPAIRED]) / len(right[REPAIRED]),
        "problems repaired": len(kept) / len(groups),
        "nats of a repair": nats(kept),
        "nats of a reference": nats([saying(g, strange(s)) for g, s in zip(kept, solutions, strict=True)]),
        "nats of a reference in its own words": nats([saying(*of) for of in zip(kept, solutions, strict=True)]),
    }


def picture(record: Mapping[str, Any]) -> theme.Spec:
    """Every arm's held-out reward, under names that can be read."""
    from headline import curves_of

    named = [{**row, "arm": NAMES[row["arm"]]} for row in record["curves"]]
    return curves_of({**record, "curves": named}, ALT)


HEADLINE = Headline(
    title="InT as a start for RL, against references in other words",
    methods={"int_": (0, 1, 2, 3, 4)},
    own=("int_",),
    claim="Begun with repairs of its own attempts, RL ends higher than begun with references in other words, or alone.",
    arms=(PLAIN, REPAIRS, "experiments/headlines/methods/" + STRANGERS.replace("@", ".py@"), OWN_WORDS),
    options=("--data", "sums:work=2,level=2,count=1000", "--max-tokens", "24", "--seeds", "8", "--budget", "7e12flop"),
    numbers=numbers,
    questions=(
        Question("the base is right more often after a repair than from the start", (REPAIRS, "right after a repair"),
                 (REPAIRS, "right")),
        Question("a repair is likelier to be said than a reference, in nats", (REPAIRS, "nats of a repair"),
                 (REPAIRS, "nats of a reference"), (float("-inf"), 0.0)),
        Question("held-out reward: repairs against references in other words", (REPAIRS, "pass@1"),
                 (STRANGERS, "pass@1")),
        Question("held-out reward: repairs against RL alone", (REPAIRS, "pass@1"), (PLAIN, "pass@1")),
        # 0.02 is the difference that held-out sets are made to show
        Question("held-out reward: repairs gain nothing over references in its own words", (REPAIRS, "pass@1"),
                 (OWN_WORDS, "pass@1"), (float("-inf"), 0.02)),
    ),
)
