"""RC with its summary buffer: accuracy rises beyond the rounds that were trained on.

The problems are the puzzles' chains at their first level, of 1 to 13 operations. "3+5-4-6%7>" is posed; a step takes 6
to 11 tokens and an answer has 12, so an answer has room for one operation, and each round before it for one more. A
summary is the problem that is left, "1-4-6%7>" after the first step. It is a rest of the prompt and therefore may be
longer than a trace; the paper's is shorter. Training uses chains of 1 to 7 operations. Of the held-out chains a quarter
has one operation (no round), a quarter 2 to 4 (up to 3 rounds), a quarter 5 to 7 (up to 6) and a quarter 8 to 13 (up to
12). A guess is right once in 5 to 10 times.

The shipped base cannot summarise, so it is taught further, for a minute: chains from any step on, and after "=" the
problem that is left. One in eight of the steps that it is taught is off by one; this is what RL can improve. Its
answers are cut at 12 tokens in these lessons as well. The same policy thinks and summarises, and RC does not train
summaries. An earlier base, for chains of up to 26 operations, lost terms when it summarised, and was dropped before RL.

With the buffer, the rounds of a problem go on from one of its latest summaries, each equally likely, so states after 6
and more rounds are trained on although a group plays only three. The measurement is the policies at the end of
training, played for up to 12 rounds, two attempts at every held-out problem. The learning rate is 5e-5 and not tuned,
because answers without rounds, by which probes decide, are right on few of these problems.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts, theme

ROUNDS, TRAINED = (0, 1, 2, 3, 6, 12), 3
THINK, ROOM, CONDENSE = 12, 34, "{summary}{trace}="
PLAIN = f"rc@play.room={ROOM},play.condense={CONDENSE}"
BUFFER = f"rc_buffered@schedule.room={ROOM},schedule.condense={CONDENSE}"
BUFFERED = "experiments/headlines/methods/" + BUFFER.replace("@", ".py@")
BASE = "before training"
NAMES = {PLAIN: "RC, no buffer", BUFFER: "RC, buffer"}
WHERE = "comparisons/headline-puzzles_rc"
AGAIN = "rc"          # the headline of the older world that asked this
ALT = ("Held-out share right over rounds of thinking before the answer, 0 to 12, for RC with and without its buffer "
       "and the base; three rounds, those of a group, are marked; bands lie between the runs of an arm")


def prepare(home: Path) -> None:
    """The chains, and the shipped base taught to go on from any step and to write the problem that is left."""
    import bases
    from isocost import chance
    from isocost.local import weights
    from isocost.tasks.builtin import chain
    from isocost.tasks.builtin.drawn import STEP

    longest, slips, think = 13, 0.125, 12

    def left(value: int, pairs: Any, m: int) -> str:
        return f"{value}{''.join(f'{s}{x}' for s, x in pairs)}%{m}>"

    def posed(draw: Any, count: int) -> tuple[int, Any, int]:
        m = 5 + int(draw.integers(6))
        pairs = [("+-"[int(draw.integers(2))], 2 + int(draw.integers(8))) for _ in range(count)]
        return int(draw.integers(m)), pairs, m

    def steps_of(draw: Any, value: int, pairs: Any, m: int) -> tuple[list[str], list[int]]:
        steps, values = [], []
        for pair in pairs:
            (step,), value = chain.worked(value, [pair], m)
            if draw.random() < slips:
                value = (value + (1 if draw.random() < 0.5 else -1)) % m
                step = f"{step.rpartition('=')[0]}={value}"
            steps.append(step + STEP)
            values.append(value)
        return steps, values

    def lesson(step: int) -> list[tuple[str, str]]:
        draw, rows = chance.generator(0, chance.Purpose.INIT, 7, step), []
        for _ in range(96):
            value, pairs, m = posed(draw, 1 + int(draw.integers(longest)))
            first, done = left(value, pairs, m), int(draw.integers(len(pairs) + 1)) if draw.random() < 0.8 else 0
            at = chain.worked(value, pairs[:done], m)[1] if done else value
            rest = pairs[done:]
            before = first + (left(at, rest, m) if done else "")
            steps, values = steps_of(draw, at, rest, m)
            text = "".join(steps) + str(values[-1] if values else at)
            if draw.random() < 0.5:
                rows.append((before, text if len(text) < think else text[:think] + bases.lessons.END))
                continue
            trace = text[:think]
            whole = trace.count(STEP)
            now = values[whole - 1] if whole else at
            rows.append((before + trace + "=", left(now, rest[whole:], m)))
        return rows

    def lines(counts: list[int], draw: Any, seen: set[str]) -> str:
        out = []
        for count in counts:
            while (prompt := left(*(drawn := posed(draw, count)))) in seen:
                pass
            seen.add(prompt)
            out.append({"prompt": prompt, "answer": str(chain.worked(*drawn)[1]), "level": count})
        return "".join(json.dumps(x) + "\n" for x in out)

    if (home / "base" / "config.json").exists():
        return
    draw, seen = chance.generator(0, chance.Purpose.CHOOSE, 8), set[str]()
    quarters = ((1, 1), (2, 4), (5, 7), (8, 13))
    held = [a + k % (b - a + 1) for a, b in quarters for k in range(48)]
    for name, counts in (("train", [1 + k % 7 for k in range(280)]), ("held", held)):
        (home / f"{name}.jsonl").write_text(lines(counts, draw, seen), encoding="utf-8")
    weights.save_model(home / "base", bases.taught_further(lesson, 500, 1.5e-3, report=50))


def numbers(folder: Path) -> dict[str, float]:
    """The share right after so many rounds, of this run's policy, and with RC's also of the base.

    An answer after k rounds is what a longer walk goes on from, so that one walk holds them all.
    """
    from isocost import meter, methods
    from isocost.methods import rc
    from isocost.runs.evaluate import evaluate
    from isocost.runs.run import Job
    from isocost.seams import Pace
    from isocost.worlds.setting import open_setting

    job = Job.of(json.loads((folder / "run.json").read_text())["job"])
    play = partial(rc.walked, rounds=ROUNDS[-1], room=ROOM, condense=CONDENSE)
    recipe, pace, out = methods.load("reinforce").recipe().but(play=play), Pace(0.0, job.setting.lengths.max_tokens), {}

    def measure(model: str, name: str) -> None:
        opened = open_setting(job.setting.but(model=model))
        world, audit = opened.world, opened.sides.audit

        async def measured() -> dict[str, float]:
            found = await evaluate(recipe, world, audit, pace, samples=2, seed=job.seed, exact=False)
            walks, right = [r for g in found.groups for r in g.rollouts], {}
            with meter.on(meter.EVALUATION):
                for k in ROUNDS:
                    said = [r.but(final=world.text.decode(r.segments[2 * k].reply().tolist())) for r in walks]
                    scores = [s.value for s in await world.grade(said) if s is not None]
                    right[f"{name}after {k}"] = sum(scores) / len(scores)
            return right

        out.update(asyncio.run(measured()))
        opened.grader.close()

    measure(str(folder / "final"), "")
    if job.method == "rc":
        measure(job.setting.model, f"{BASE}, ")
    return out


def picture(record: Mapping[str, Any]) -> theme.Spec:
    """What rounds are worth to each arm, and to the base."""
    rows = [{"arm": NAMES[label], "run": seed, "rounds": k, "reward": run[f"after {k}"]}
            for label, runs in record["runs"].items() for seed, run in runs.items() for k in ROUNDS]
    rows += [{"arm": BASE, "run": seed, "rounds": k, "reward": run[f"{BASE}, after {k}"]}
             for seed, run in record["runs"][PLAIN].items() for k in ROUNDS]
    return arm_charts.by_rounds(rows, TRAINED, ALT, BASE)


HEADLINE = Headline(
    title="RC with its summary buffer",
    methods={"rc": (0, 1, 2, 3, 4)},
    own=("rc",),
    claim="With the summary buffer accuracy rises with rounds to four times those of a group.",
    arms=(PLAIN, BUFFERED),
    options=("--model", f"{WHERE}/base", "--data", f"{WHERE}/train.jsonl", "--held-out-data", f"{WHERE}/held.jsonl",
             "--verifier", "final", "--max-tokens", str(THINK), "-n", "22", "-B", "8", "--threads", "1",
             "--samples", "2", "--evaluations", "1", "--seeds", "5", "--budget", "6e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("three rounds against none", (BUFFER, "after 3"), (BUFFER, "after 0"), (0.02, float("inf"))),
        Question("six rounds against three", (BUFFER, "after 6"), (BUFFER, "after 3")),
        Question("twelve rounds against six", (BUFFER, "after 12"), (BUFFER, "after 6")),
        Question("twelve rounds: trained against the base", (BUFFER, "after 12"), (PLAIN, f"{BASE}, after 12"),
                 (0.02, float("inf"))),
        Question("twelve rounds: the buffer against none", (BUFFER, "after 12"), (PLAIN, "after 12")),
    ),
    numbers=numbers,
    rate=5e-5,
    prepare=prepare,
)
