"""Which strategy answers a request: the one that it names, else what its budget pays for, else the server's.

Without a plan, a budget in tokens is a limit of what the tries of one answer may write: n is as large as completions of
the longest length fit, and no larger than the strategy says. With a plan, the planner prescribes for the budget, as
`isocost plan` does. Both depend on nothing that is measured while serving, so a request repeats its answer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

from isocost import strategies
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.planner.test_time.prescribe import AnswerGoal, StrategyPlan, prescribe
from isocost.recipe import knobs
from isocost.steps.serving.answers import Choose, ChosenStrategy
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.answer import arm_settings, specs
from isocost.steps.test_time.profile import live_of, parts_of
from isocost.types import Problem
from isocost.units import TOKENS

PLAIN = "one"       # the strategy that writes one completion, which is the answer
WHOLE = "all"       # the band of all problems


def by_strategy(default: str) -> Choose:
    """The choice of a server that has one strategy for requests that name none. Raises UserError for an unknown one."""
    parsed = cache(strategies.parse)
    parsed(default)

    def choose(strategy: str, budget: str, limit: int, problem: Problem) -> ChosenStrategy:
        if strategy != default and ("/" in strategy or ".py" in strategy):
            raise UserError(f"strategy {strategy!r}: a request names no file and no address: start the server "
                            "with `isocost serve --strategy`")
        found = parsed(strategy or default)
        return _chosen(_within(budget, found, limit) if budget else found)

    return choose


def by_plan(study: StudyRecord, price: str | None) -> tuple[Choose, str]:
    """The choice of a server of a study of strategies, and its plan in words. `price` is per token, for budgets in
    money. Raises UserError before a plan.
    """
    about, split = study.asked, parts_of(study)
    live = [m for m in live_of(study, split.select.ids) if not m.arm]
    named = by_strategy(PLAIN)
    planned = StrategyPlan.of(study.record("plan.json", "plan"))
    arms, sampled = arm_settings(about), {k: x for k, x in split.arms.items() if k not in split.policies}
    if arm := next((b.arm for b in planned.each if b.arm in split.policies), ""):
        raise UserError(f"the plan answers with {planned.label}, and the server of a study has the study's own model: "
                        f"serve {arm} by `isocost serve MODEL --strategy ...`")

    @cache
    def of(budget: str) -> tuple[StrategyPlan, dict[str, strategies.Strategy]]:
        if not budget:
            return planned, specs(planned, about["scorer"])
        asked = AnswerGoal.of(budget if "/" in budget else f"{budget}/answer", None, price, None)
        made = prescribe(replace(split, arms=sampled), about["strategies"], asked, about["seed"], live)
        return made, specs(made, about["scorer"])

    def choose(strategy: str, budget: str, limit: int, problem: Problem) -> ChosenStrategy:
        if strategy:
            return named(strategy, budget, limit, problem)
        plan, ways = of(budget)
        band = str(problem.meta.get(about["band_by"])) if WHOLE not in ways else WHOLE
        if band not in ways and (band := plan.each[-1].band) != "other":
            raise UserError(f"the plan is by {about['band_by']}, which is not known of this question: name a strategy")
        arm = next((b.arm for b in plan.each if b.band == band), plan.each[0].arm)
        return replace(_chosen(ways[band], "" if band == WHOLE else band), arm=arms.get(arm, {}))

    of("")
    return choose, planned.label


def _chosen(found: strategies.Strategy, band: str = "") -> ChosenStrategy:
    inner = [strategies.parse(str(found.settings[k])).most for k, v in knobs(found.play).items()
             if callable(v) and k != "scorer"]
    width = max(found.most, *inner) + int(found.settings.get("probe", 0)) if inner else found.most
    return ChosenStrategy(str(found), found.play, width, found.name == PLAIN, band)


def _within(budget: str, asked: strategies.Strategy, limit: int) -> strategies.Strategy:
    """A strategy of at most the size that a budget pays for. Raises UserError for one that pays for none."""
    paid = Budget.parse(budget.strip().removesuffix("/answer"))
    if paid.unit != TOKENS:
        raise UserError(f"budget {budget!r}: without a plan it counts tokens only, such as 800-tokens; money needs a "
                        "plan, `isocost serve STUDY`")
    most = int(paid.amount // limit)
    if most < 1:
        raise UserError(f"budget {budget!r} is below one completion of {limit} tokens: lower max_tokens, or raise it")
    said = ":" in str(asked)
    for size in range(min(most, asked.most), 0, -1):
        with suppress(UserError):       # sizes that the strategy does not divide
            return asked if size == asked.most else strategies.parse(f"{asked}{',' if said else ':'}n={size}")
    raise UserError(f"budget {budget!r}: {asked} has no size of {most} completions or fewer")
