"""MRT with budget forcing: every step must raise the chance, so answers are good at any budget.

The problems are the shortest puzzles. The shipped base cannot answer before its steps are done, so it is taught
further, for a minute: half of the lessons are the puzzles with slips, as it was taught at first, the other half stop
after any step, read ">;" and give the right answer at once. MRT cuts a trace after a random step, lets some attempts
read ">;" and answer, lets the others go on, and trains these on what they gain over those that stopped. GRPO is trained
on whole answers at equal FLOP, from the same base; both have their own n and B, and MRT half of its attempts for
training.

The measurement is budget forcing: every held-out problem is attempted twice, and each attempt is cut after the last
step that fits 4, 8, 12, 16, 24 or 32 tokens, reads ">;" and answers, unless it has ended by then. The regret is one
less the mean share right over these budgets: the paper's normalised regret with equal weights. Nothing was trained from
this base by RL before the questions were fixed.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts, theme

BUDGETS, WORDS, ROOM = (4, 8, 12, 16, 24, 32), ">;", 12
WORLD = "puzzles"
MRT, PLAIN = f"mrt@play.boundary=;,play.words={WORDS},play.room={ROOM}", "grpo"
WHERE = "comparisons/headline-puzzles_mrt"
BASE = "before training"
NAMES = {MRT: "MRT", PLAIN: "GRPO"}
ALT = ("Held-out share right over the tokens after which an answer is forced, 4 to 32, for MRT, GRPO and the base; "
       "bands lie between the runs of an arm")


def prepare(home: Path) -> None:
    """The shipped base, taught further to answer at once after any of its steps."""
    import bases
    from isocost import chance
    from isocost.local import weights
    from isocost.tasks.builtin import puzzles
    from isocost.tasks.builtin.drawn import STEP

    def lesson(step: int) -> list[tuple[str, str]]:
        draw, rows = chance.generator(0, chance.Purpose.INIT, 9, step), []
        for kind in (list(puzzles.KINDS)[i] for i in draw.integers(3, size=96).tolist()):
            level = 1 + int(draw.integers(puzzles.LEVELS))
            drawn = puzzles.draw(draw, kind, level, 1)
            if draw.random() < 0.5:
                rows.append((drawn.prompt, bases.lessons.SLIPS[kind](draw, drawn, bases.WHOLE.of["slips"][level - 1])))
                continue
            *steps, answer = drawn.solution.split(STEP)
            done = "".join(s + STEP for s in steps[: int(draw.integers(len(steps) + 1))])
            rows.append((f"{drawn.prompt}{done}>{STEP}", answer))
        return rows

    if not (home / "base" / "config.json").exists():
        weights.save_model(home / "base", bases.taught_further(lesson, 300, 1e-3, report=50))


def numbers(folder: Path) -> dict[str, float]:
    """The share right at each budget of this run's policy, with GRPO's also of the base, and the regret."""
    from isocost import methods
    from isocost.parts.play import episodes, given, sample
    from isocost.runs.evaluate import evaluate
    from isocost.runs.job import Job
    from isocost.seams import Pace
    from isocost.worlds.setting import open_setting

    job = Job.of(json.loads((folder / "run.json").read_text())["job"])
    pace, out = Pace(0.0, job.setting.lengths.max_tokens), {}

    async def forced(problem: Any, attempts: Any, world: Any, pace: Any, place: Any, start: Any = None, *,
                     budget: int) -> Any:
        whole = await sample(problem, attempts, world, pace, place, start)
        short, said = replace(pace, max_tokens=ROOM), []
        for r in whole:
            text = r.segments[-1]
            if text.written <= budget:
                said.append(r)
                continue
            first = int(text.own.nonzero()[0][0])
            cut = max(at for at in episodes(text, ";", world.text.decode) if at - first <= budget)
            again = given(text, cut, world.text.encode(WORDS))
            said += await sample(problem, [r.attempt], world, short, replace(place, wave=place.wave + 1), again)
        return said

    def measure(model: str, name: str) -> None:
        opened = open_setting(job.setting.but(model=model))
        right = []
        for budget in BUDGETS:
            recipe = methods.load("reinforce").recipe().but(play=partial(forced, budget=budget))
            found = asyncio.run(evaluate(
                recipe, opened.world, opened.sides.audit, pace, samples=2, seed=job.seed, exact=False))
            right.append(found.mean)
            out[f"{name}at {budget}"] = found.mean
        out[f"{name}regret"] = 1 - sum(right) / len(right)
        opened.grader.close()

    measure(str(folder / "final"), "")
    if job.method == PLAIN:
        measure(job.setting.model, f"{BASE}, ")
    return out


def picture(record: Mapping[str, Any]) -> theme.Spec:
    """Accuracy over budgets of every arm, and of the base."""
    rows = [{"arm": NAMES[label], "run": seed, "rounds": k, "reward": run[f"at {k}"]}
            for label, runs in record["runs"].items() for seed, run in runs.items() for k in BUDGETS]
    rows += [{"arm": BASE, "run": seed, "rounds": k, "reward": run[f"{BASE}, at {k}"]}
             for seed, run in record["runs"][PLAIN].items() for k in BUDGETS]
    return arm_charts.by_rounds(rows, None, ALT, BASE, "tokens after which an answer is forced")


HEADLINE = Headline(
    title="MRT with budget forcing",
    methods={"mrt": (0, 1, 2)},
    own=("mrt",),
    claim="Equal accuracy, and better answers where they are forced early.",
    arms=(PLAIN, MRT),
    options=("--model", f"{WHERE}/base", "--data", "puzzles:length=1,count=900", "--max-tokens", "48",
             "--held-out", "320", "--samples", "3", "--evaluations", "2", "--own-sizes", "--threads", "1",
             "--lr", "5e-5", "--seeds", "5", "--budget", "6e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("accuracy without a budget", (MRT, "pass@1"), (PLAIN, "pass@1"), (-0.02, float("inf"))),
        Question("regret over budgets: against GRPO", (MRT, "regret"), (PLAIN, "regret"), (float("-inf"), 0.0)),
        Question("tokens an answer: against GRPO", (MRT, "length"), (PLAIN, "length"), (float("-inf"), 0.0)),
    ),
    numbers=numbers,
    prepare=prepare,
)
