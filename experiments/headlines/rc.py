"""RC: accuracy rises for four times as many rounds as were trained on.

The problems are chains: from a number, add seven a given number of times, modulo a hundred. "85:11;" is a problem and
means 11 times from 85. Every step writes the number and the remaining count, "92:10;", and the last step writes the
number alone. An answer has 15 tokens, and a step takes 6, so an answer has room for three steps, and each round before
it for two more: 3 rounds make 9 and 12 make 27. Training uses chains of 1 to 9 steps. Of the held-out chains a quarter
fits an answer, a quarter needs up to 3 rounds, a quarter up to 6, a quarter up to 12.

A summary is the last whole step, 6 tokens and an end. The embedded model cannot summarise: in its training data an
answer continues and never repeats a step, and of seven wordings none carried more than one round's work to the next. So
the base is another small model, made here in a minute, trained on what an instruction-following model can do: chains
from any step on, and after "=" the last whole step repeated. One in five of its steps was one too far; this is what RL
can improve. The same policy thinks and summarises, and RC never trains the summary, as in the paper.

The measurement is the policies at the end of training, played for up to 12 rounds, with four attempts at every held-out
problem and random numbers of each run's own seed. The line of GRPO shows the same rounds after training without any, at
equal cost. Learning rates are tuned as everywhere, by answers without rounds and in short probes, and are high, 0.0002.
Summaries suffer from this rate: nothing rewards them, they degrade, and after training two policies of eight could no
longer summarise. Rates chosen by reward after three rounds were tried as well; they were no lower, and that run was not
finished.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from headline import Headline, Question
from isocost.report import arm_charts, theme

ROUNDS, TRAINED = (0, 1, 2, 3, 6, 12), 3
ROOM, CONDENSE = 7, "{summary}{trace}="
RC, PLAIN = f"rc@play.room={ROOM},play.condense={CONDENSE}", "grpo"
BASE = "before training"
NAMES = {RC: "RC", PLAIN: "GRPO"}
WHERE = "comparisons/headline-rc"
ALT = ("Held-out reward over rounds of thinking before the answer, 0 to 12, for RC, GRPO and the base; three rounds, "
       "those trained on, are marked; bands lie between the runs of an arm")


def prepare(home: Path) -> None:
    """The chains, and a base that can do them and sum up, but slips at one step in five."""
    import torch

    import bases as make
    from isocost import chance

    adds, slips, longest, room, width = 7, 0.2, 27, 15, 40

    def worked(number: int, left: int, draw: Any) -> str:
        said = ""
        for k in range(left - 1, -1, -1):
            number = (number + adds + int(draw.random() < slips)) % 100
            said += f"{number:02d}" + (f":{k:02d};" if k else "")
        return said

    def row(draw: Any) -> tuple[str, str]:
        sums_up = draw.random() < 0.5
        number, left = int(draw.integers(100)), int(draw.integers(1, longest + 1))
        if sums_up and draw.random() < 0.3:
            left = int(draw.integers(1, 4))         # a chain that is done is summed up for the rest of its rounds
        posed, at = f"{number:02d}:{left:02d};", int(draw.integers(left)) if draw.random() < 0.8 else 0
        number, left = (number + adds * at) % 100, left - at
        summary, went = f"{number:02d}:{left:02d};" if at else "", worked(number, left, draw)
        if not sums_up:
            return posed + summary, went
        whole = (posed + summary + went[:room]).split(";")[:-1]
        return posed + summary + went[:room] + "=", whole[-1] + ";"

    def lesson(lessons: make.Lessons, step: int) -> tuple[make.Tensor, make.Tensor]:
        draw = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
        tokens, target = make.padded([row(draw) for _ in range(lessons.rows)])
        return tokens[:, :width], target[:, :width]

    def chains(lengths: list[int], draw: Any, seen: set[str]) -> str:
        lines = []
        for left in lengths:
            while (posed := f"{(number := int(draw.integers(100))):02d}:{left:02d};") in seen:
                pass
            seen.add(posed)
            lines.append({"prompt": posed, "answer": f"{(number + adds * left) % 100:02d}", "level": left})
        return "".join(json.dumps(x) + "\n" for x in lines)

    if (home / "base" / "config.json").exists():
        return
    draw, seen = chance.generator(0, chance.Purpose.CHOOSE, 7), set[str]()
    reach = [1, *(2 * k + 4 for k in (0, 3, 6, 12))]        # where what takes 0, 3, 6 and 12 rounds begins
    held = [a + k % (b - a) for a, b in pairwise(reach) for k in range(48)]
    for name, lengths in (("train", [1 + k % 9 for k in range(270)]), ("held", held)):
        (home / f"{name}.jsonl").write_text(chains(lengths, draw, seen), encoding="utf-8")
    torch.set_num_threads(1)
    lessons = make.Lessons(steps=800, rows=128)
    make.save(home / "base", make.taught_in_torch(lessons, lesson), {"lessons": asdict(lessons)})


def numbers(folder: Path) -> dict[str, float]:
    """The share right after so many rounds, of this run's policy, and with RC's also of the base; and what it cost.

    An answer after k rounds is what a longer walk goes on from, so that one walk holds them all.
    """
    from isocost import meter, methods
    from isocost.methods import rc as rounds
    from isocost.runs.evaluate import evaluate
    from isocost.runs.run import Job
    from isocost.seams import Pace
    from isocost.worlds.setting import open_setting

    job = Job.of(json.loads((folder / "run.json").read_text())["job"])
    play = partial(rounds.walked, rounds=ROUNDS[-1], room=ROOM, condense=CONDENSE)
    recipe, pace, out = methods.load("reinforce").recipe().but(play=play), Pace(0.0, job.setting.lengths.max_tokens), {}

    def measure(model: str, name: str) -> None:
        opened = open_setting(job.setting.but(model=model))
        world, audit = opened.world, opened.sides.audit

        async def measured() -> dict[str, float]:
            found = await evaluate(recipe, world, audit, pace, samples=4, seed=job.seed, exact=False)
            walks, right = [r for g in found.groups for r in g.rollouts], {}
            with meter.on(meter.EVALUATION):
                for k in ROUNDS:
                    said = [r.but(final=world.text.decode(r.segments[2 * k].reply().tolist())) for r in walks]
                    scores = [s.value for s in await world.grade(said) if s is not None]
                    right[f"{name}after {k}"] = sum(scores) / len(scores)
            return right

        out.update(asyncio.run(measured()))
        spent = world.meter.of(meter.EVALUATION)
        out.update({f"{name}rollouts measured": spent.rollouts, f"{name}tokens measured": spent.decode})
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
             for seed, run in record["runs"][RC].items() for k in ROUNDS]
    return arm_charts.by_rounds(rows, TRAINED, ALT, BASE)


HEADLINE = Headline(
    title="RC beyond the rounds it was trained on",
    methods={"rc": (0, 1, 2, 3)},
    own=("rc",),
    claim="Accuracy rises with rounds to four times those trained on.",
    arms=(RC, PLAIN),
    options=("--model", f"{WHERE}/base", "--data", f"{WHERE}/train.jsonl", "--held-out-data", f"{WHERE}/held.jsonl",
             "--verifier", "final", "--max-tokens", "15", "-n", "22", "-B", "8", "--threads", "1", "--lr", "1e-4",
             "--evaluations", "4", "--seeds", "8", "--budget", "4e12flop"),
    questions=(         # 0.02 is the difference that held-out sets are made to show
        Question("three rounds, as trained on, against none", (RC, "after 3"), (RC, "after 0"), (0.02, float("inf"))),
        Question("six rounds against three", (RC, "after 6"), (RC, "after 3")),
        Question("twelve rounds against six", (RC, "after 12"), (RC, "after 6")),
        Question("twelve rounds: trained against the base", (RC, "after 12"), (RC, f"{BASE}, after 12"),
                 (0.02, float("inf"))),
    ),
    prepare=prepare,
    numbers=numbers,
)
