"""The plan of a study of strategies, run on a file of problems: one line an answer, with its bill."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost import meter
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.test_time.prescribe import BandStrategy, StrategyPlan
from isocost.planner.token_price import TokenPrice
from isocost.runs.files import no_link
from isocost.runs.measure import UNNAMED
from isocost.runs.schema import VERSION
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import counted
from isocost.steps.events import SILENT, Observer
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.profile import scorer_of, spec_of
from isocost.steps.test_time.sampling import Line, once, played
from isocost.strategies import Strategy, parse
from isocost.tasks.load import ANSWERS, load_problems
from isocost.tasks.rows import rows_of
from isocost.types import Cost, Place, Problem, Stop
from isocost.worlds.http import RequestLimits

UNKNOWN = "?"       # stands for the answer of a row that has none


@dataclass(frozen=True)
class StrategyAnswers(Result):
    """What `answer` did: answers in the file, of which `new` were made now, and what these took. right: the share of
    the answers that are right, where the rows have a reference; None without one."""

    file: str
    answers: int
    new: int
    tokens: float
    depth: float
    unanswered: int
    right: float | None
    planned: str
    money: Mapping[str, Any] | None = None

    @property
    def heading(self) -> str:
        return f"{counted(self.answers, 'answer')} in {self.file}, {self.new} of them new"

    def rows(self) -> list[Row | Table]:
        """What an answer took."""
        none = f"{counted(self.unanswered, 'row')} without an answer: no try had a score"
        return given(
            Row("strategy", self.planned),
            Row("an answer", f"{self.tokens:,.1f} tokens written, {self.depth:,.1f} of them one after the other"),
            Row("money", "" if self.money is None else f"{self.money['amount']:,.4g} {self.money['currency']} in all"),
            Row("right", "" if self.right is None else f"{self.right:.3f} of those with a reference"),
            Row("", none if self.unanswered else "", "flag"),
        )

    def to_dict(self) -> dict[str, Any]:
        return {"schema": VERSION, **vars(self)}


def answer(
    study: StudyRecord, data: str, out: Path, *, seed: int = 0, price: str | None = None,
    limits: RequestLimits = RequestLimits(), observer: Observer = SILENT,
) -> StrategyAnswers:
    """Answer the problems of `data` as planned, and append each answer to `out`; ids that are there are left out.
    `price` is per token. Rows need no answer, unless the scorer is the verifier. Raises UserError before a plan, for a
    study of stored completions, and for problems that the plan cannot be run on."""
    from isocost.worlds.setting import open_setting

    plan, asked = StrategyPlan.of(study.record("plan.json", "plan")), study.asked
    arms = arm_settings(asked)
    if study.setting.model == UNNAMED or "samples" not in asked:
        raise UserError(f"{study.path} was made of stored completions, so it has no model to answer with: profile one "
                        "with `isocost profile --model ... --strategies ...`")
    cost = None if price is None else TokenPrice.parse(price)
    with tempfile.TemporaryDirectory() as folder:
        spec, known = _problems(data, Path(folder), asked["exact"])
        setting = study.setting.but(data=spec, held_out_data=None, limit=None)
        model = {k: v for k, v in arms.get(plan.each[0].arm, {}).items() if k == "model"}       # of a policy
        opened = open_setting(setting.but(**model), learn=False, whole=True, limits=limits)
    ways = specs(plan, asked["scorer"])

    async def one(slot: int, problem: Problem) -> Line:
        band = _band(problem, plan, ways, str(asked["band_by"]))
        arm = next((b.arm for b in plan.each if b.band == band), plan.each[0].arm)
        place = Place(seed, 0, slot, int(Purpose.EVALUATION))
        text, took = await played(ways[band], problem, opened, setting.but(**arms.get(arm, {})).measured, place)
        lost, right, bill = text.stop is Stop.ERROR, None, took.pop("cost")
        if known and not lost:
            (mark,) = await opened.world.grade([text])
            right = None if mark is None else float(mark.value)
        return {"answer": None if lost else text.final, "strategy": str(ways[band]), "band": band,
                "score": text.numbers.get("score"), **took, "right": right, "cost": bill}

    async def every(there: Sequence[Line], tell: Callable[[int, int], None]) -> list[Line]:
        with meter.on(meter.EVALUATION):
            return await once(there, out, opened.sides.train, one, tell)

    try:
        no_link(out)
        there = _lines(out)
        with observer.counting("answer") as tell:
            made = finished(every(there, lambda done, total: tell("answers", done, total)))
    finally:
        opened.close()
    lines = list({x["id"]: x for x in (*there, *made)}.values())
    marks = [x["right"] for x in lines if x.get("right") is not None]
    return StrategyAnswers(
        str(out), len(lines), len(lines) - len({x["id"] for x in there}), _mean(lines, "tokens"),
        _mean(lines, "depth"), sum(x["answer"] is None for x in lines), sum(marks) / len(marks) if marks else None,
        plan.label, None if cost is None else cost.of(sum((Cost.of(x["cost"]) for x in lines), Cost())).data(),
    )


def arm_settings(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By the name of an arm, what it changes in the setting; a policy of several runs answers by the first."""
    every = [*asked.get("arms", ()), *({"name": c["policy"], "model": c["model"]}
                                       for c in reversed(asked.get("checkpoints", ())))]
    return {arm["name"]: {k: v for k, v in arm.items() if k != "name"} for arm in every}


def specs(plan: StrategyPlan, scorer: str | None) -> dict[str, Strategy]:
    """The strategies that a plan runs: by band where a column tells it, else one under "all"."""
    def own(b: BandStrategy) -> str:
        return spec_of(b.strategy, b.size, scorer)

    if len(plan.each) == 1:
        return {"all": parse(own(plan.each[0]))}
    if not plan.probe:
        return {b.band: parse(own(b)) for b in plan.each}
    hard, easy, medium = plan.each[0], plan.each[-1], plan.each[len(plan.each) // 2]
    bands = ",".join(f"{k}=({own(b)})" for k, b in (("hard", hard), ("medium", medium), ("easy", easy)))
    return {"all": parse(f"by-band:probe={plan.probe},low={plan.edges[0]!r},high={plan.edges[-1]!r},{bands},"
                         f"scorer=({scorer_of(scorer)})")}


def _band(problem: Problem, plan: StrategyPlan, ways: Mapping[str, Strategy], key: str) -> str:
    """The band of a problem. Raises UserError for one that the plan does not have."""
    band = str(problem.meta.get(key)) if len(ways) > 1 else "all"
    if band not in ways and (band := plan.each[-1].band) != "other":
        raise UserError(f"{problem.id!r} has {key} {problem.meta.get(key)!r}, and the plan has {', '.join(ways)}: name "
                        "one of them in each row")
    return band


def _problems(data: str, folder: Path, exact: bool) -> tuple[str, bool]:
    """What to load, and whether its rows have references. Rows without an answer get one that stands for none."""
    path = Path(data)
    if not path.is_file():
        return data, True
    rows = [row for _, row in rows_of(path, "problems")]
    bare = [i for i, row in enumerate(rows) if isinstance(row, Mapping) and not any(k in row for k in (
        *ANSWERS, "reward_model"))]
    if not bare:
        return data, True
    if exact:
        raise UserError(f"row {bare[0] + 1} of {data} has no answer, and the study's scorer is the verifier, which "
                        "needs one: profile with another --scorer")
    file = folder / "problems.jsonl"
    kept = [{**row, "answer": UNKNOWN} if i in set(bare) else row for i, row in enumerate(rows)]
    file.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    load_problems(str(file))      # an error names the row here, while the file is there
    return str(file), False


def _lines(out: Path) -> list[Line]:
    if not out.exists():
        return []
    text = out.read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if any(not isinstance(x, dict) or "id" not in x or "tokens" not in x for x in found):
        raise UserError(f"{out} has lines that are no answers of isocost: name another --out")
    return found


def _mean(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(x[key] for x in lines) / max(len(lines), 1)
