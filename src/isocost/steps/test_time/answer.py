"""The plan of a study of strategies, run on a file of problems: one line an answer, with its bill."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost import meter
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.gather import finished, together
from isocost.planner.test_time.prescribe import BandStrategy, StrategyPlan
from isocost.planner.token_price import TokenPrice
from isocost.runs.files import Stream, no_link
from isocost.runs.measure import UNNAMED
from isocost.runs.schema import VERSION
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import counted
from isocost.steps.events import SILENT, Observer
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.profile import spec_of
from isocost.strategies import Strategy, parse
from isocost.strategies.paths import written
from isocost.tasks.load import ANSWERS, load_problems
from isocost.tasks.rows import rows_of
from isocost.types import Cost, Place, Problem, Stop
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Opened

UNKNOWN = "?"       # stands for the answer of a row that has none


@dataclass(frozen=True)
class StrategyAnswers(Result):
    """What `answer` did: answers in the file, of which `new` were made now, and what these took.

    right: the share of the answers that are right, where the rows have a reference; None without one.
    """

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
        """How many answers there are."""
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
        """Plain data for JSON."""
        return {"schema": VERSION, **vars(self)}


def answer(
    study: StudyRecord, data: str, out: Path, *, seed: int = 0, price: str | None = None,
    limits: RequestLimits = RequestLimits(), observer: Observer = SILENT,
) -> StrategyAnswers:
    """Answer the problems of `data` as planned, and append each answer to `out`; ids that are there are left out.
    `price` is per token.

    Rows need no answer, unless the scorer is the verifier. Raises UserError before a plan, for a study of stored
    completions, and for problems that the plan cannot be run on.
    """
    from isocost.worlds.setting import open_setting

    plan, asked = StrategyPlan.of(study.record("plan.json", "plan")), study.asked
    if study.setting.model == UNNAMED or "samples" not in asked:
        raise UserError(f"{study.path} was made of stored completions, so it has no model to answer with: profile one "
                        "with `isocost profile --model ... --strategies ...`")
    cost = None if price is None else TokenPrice.parse(price)
    with tempfile.TemporaryDirectory() as folder:
        spec, known = _problems(data, Path(folder), asked["exact"])
        setting = study.setting.but(data=spec, held_out_data=None, limit=None)
        opened = open_setting(setting, learn=False, whole=True, limits=limits)
    ways = specs(plan, asked["scorer"])
    try:
        no_link(out)
        there = {x["id"]: x for x in _lines(out)}
        todo = [p for p in opened.sides.train if p.id not in there]
        with observer.counting("answer") as tell, closing(Stream.mended(out)) as stream:
            work = _Work(opened, ways, plan, str(asked["band_by"]), seed, known, _arms(asked))
            done = 0
            tell("answers", done, len(todo))

            async def each(slot: int, problem: Problem) -> dict[str, Any]:
                nonlocal done
                line = await work.one(slot, problem)
                stream.write(line)
                done += 1
                tell("answers", done, len(todo))
                return line

            async def every() -> list[dict[str, Any]]:
                with meter.on(meter.EVALUATION):
                    return await together(*(each(i, p) for i, p in enumerate(todo)))

            made = finished(every())
    finally:
        opened.close()
    lines = [*there.values(), *made]
    marks = [x["right"] for x in lines if x.get("right") is not None]
    return StrategyAnswers(
        str(out), len(lines), len(made), _mean(lines, "tokens"), _mean(lines, "depth"),
        sum(x["answer"] is None for x in lines), sum(marks) / len(marks) if marks else None, plan.label,
        None if cost is None else cost.of(sum((Cost.of(x["cost"]) for x in lines), Cost())).data(),
    )


def specs(plan: StrategyPlan, scorer: str | None) -> dict[str, Strategy]:
    """The strategies that a plan runs: by band where a column tells it, else one under "all"."""
    def own(b: BandStrategy) -> str:
        return spec_of(b.strategy, b.size, scorer)

    if len(plan.each) == 1:
        return {"all": parse(own(plan.each[0]))}
    if not plan.probe:
        return {b.band: parse(own(b)) for b in plan.each}
    hard, easy, medium = plan.each[0], plan.each[-1], plan.each[len(plan.each) // 2]
    chooses = "outcome" if scorer in (None, "verifier") else scorer
    bands = ",".join(f"{k}=({own(b)})" for k, b in (("hard", hard), ("medium", medium), ("easy", easy)))
    return {"all": parse(f"by-band:probe={plan.probe},low={plan.edges[0]!r},high={plan.edges[-1]!r},{bands},"
                         f"scorer=({chooses})")}


@dataclass(frozen=True)
class _Work:
    """What answers one problem."""

    opened: Opened
    ways: Mapping[str, Strategy]
    plan: StrategyPlan
    band_by: str
    seed: int
    known: bool
    arms: Mapping[str, Mapping[str, Any]]

    async def one(self, slot: int, problem: Problem) -> dict[str, Any]:
        """The line of an answer."""
        band = str(problem.meta.get(self.band_by)) if len(self.ways) > 1 else "all"
        if band not in self.ways and (band := self.plan.each[-1].band) != "other":
            raise UserError(f"{problem.id!r} has {self.band_by} {problem.meta.get(self.band_by)!r}, and the plan has "
                            f"{', '.join(self.ways)}: name one of them in each row")
        way, world = self.ways[band], self.opened.world
        arm = self.arms.get(next((b.arm for b in self.plan.each if b.band == band), self.plan.each[0].arm), {})
        pace = self.opened.setting.but(**arm).measured
        with meter.tab() as tab, meter.begins(True):
            (text,) = await way.play(problem, [0], world, pace, Place(self.seed, 0, slot, int(Purpose.EVALUATION)))
        lost = text.stop is Stop.ERROR
        right = None
        if self.known and not lost:
            (mark,) = await world.grade([text])
            right = None if mark is None else float(mark.value)
        notes = text.numbers
        return {
            "id": problem.id, "answer": None if lost else text.final, "strategy": str(way), "band": band,
            "score": notes.get("score"), "tries": notes.get("tries", 1.0), "tokens": float(tab.cost.decode),
            "depth": notes.get("depth", float(written(text))), "right": right, "cost": tab.cost.data(),
        }


def _arms(asked: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sampling settings by the arm's name."""
    return {arm["name"]: {k: v for k, v in arm.items() if k != "name"} for arm in asked.get("arms", ())}


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


def _lines(out: Path) -> list[dict[str, Any]]:
    if not out.exists():
        return []
    text = out.read_text(encoding="utf-8")
    found = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if any(not isinstance(x, dict) or "id" not in x or "tokens" not in x for x in found):
        raise UserError(f"{out} has lines that are no answers of isocost: name another --out")
    return found


def _mean(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(x[key] for x in lines) / max(len(lines), 1)
