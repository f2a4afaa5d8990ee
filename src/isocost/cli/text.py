"""The terminal's text of the results of a study: the answer first, numbers with their intervals, then warnings.

`show(result, console)` prints one result or event by its type. Its functions for other types are in `text_*.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isocost.cli.text_dialogues import by_limit, dialogues, turn_limit
from isocost.cli.text_units import megabytes, more, units, whole_commands
from isocost.display import Text
from isocost.laws.curves import PASS
from isocost.laws.law import NotIdentified
from isocost.laws.tradeoff import Tradeoff, tradeoff
from isocost.planner.audit import MeanOfRuns
from isocost.planner.budget import Bill
from isocost.planner.learning_rate import NOISE, RateRule
from isocost.planner.stopping import StoppingVerdict
from isocost.runs import measure
from isocost.stats.intervals import Interval
from isocost.stats.posterior import USUAL
from isocost.stats.power import detectable
from isocost.steps.events import Extended, Opening, Sampled
from isocost.steps.limits import of_chosen
from isocost.steps.results import (
    MOST_CUT,
    Audit,
    Forecast,
    Law,
    NoLaw,
    Pilot,
    PilotPlan,
    Plan,
    Profile,
    ProfileCost,
    Trained,
    Whole,
)
from isocost.steps.trainer_profile import TrainerProfile
from isocost.terminal import echo
from isocost.units import FLOPS, ROLLOUTS, words
from isocost.words import counted, duration, word

# Each registers its texts when it is imported; those that import most come last.
OTHERS = (
    "text_run", "text_rollouts", "text_environments", "text_listing", "text_compare", "text_laws", "text_doctor",
)
NAMED = 5      # methods named in a line of many
SHOWN = 20      # evaluation points that are listed
BARS = " ▁▂▃▄▅▆▇█"


@singledispatch
def show(result: object, console: Console) -> None:
    """Print a result, or an event of a step. Raises TypeError for a type that no function is registered for."""
    for name in OTHERS:     # in turn, so that no command imports modules that it does not need
        importlib.import_module(f"isocost.cli.{name}")
        registered = show.dispatch(type(result))
        if registered is not show.dispatch(object):
            return registered(result, console)
    raise TypeError(f"no text for {type(result).__name__}")


def head(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


def interval(i: Interval) -> str:
    return f"{i.value:.3f} [{i.low:.3f}, {i.high:.3f}]"


@show.register
def opening(e: Opening, console: Console) -> None:
    console.print(
        f"[bold]isocost[/] study in {e.folder} (size {e.size}, seed {e.seed}): profile, plan, pilot, fit, plan, train, "
        "audit"
    )


@show.register
def profile_cost(c: ProfileCost, console: Console) -> None:
    """What profiling would cost at most."""
    console.print(
        f"profile of {c.model} on {c.data}: {counted(c.problems, 'problem')}, {c.rollouts:,} rollouts, at most "
        f"{c.tokens:,} tokens{'' if c.prompts else ' written, and the prompts'}"
        f"{'' if c.flops is None else f' and {c.flops:.1e} FLOP'}, {megabytes(c.memory_mb)} of memory, "
        f"{megabytes(c.disk_mb)} of disk"
        f"{'' if c.money is None else ', at most ' + money(c.money) + ('' if c.prompts else ' without the prompts')}; "
        "the profile itself measures how many seconds that takes here. Nothing was run"
    )


@show.register
def trainer_profile(p: TrainerProfile, console: Console) -> None:
    """What the first run of a user's trainer shows."""
    head(console, "profile: the first run of your trainer")
    console.print(f"  {p.command}", markup=False, soft_wrap=True)
    console.print(
        f"  {counted(p.updates, 'update')} of {p.at['n']} x {p.at['B']} rollouts at lr {p.at['lr']:.2g} in "
        f"{duration(p.seconds)}: held-out reward {p.base:.3f} before, {p.end:.3f} after"
    )
    each = f"{p.select} held-out problems, {counted(p.samples, 'sample')} each"
    console.print(f"  {each}: standard error of an evaluation at most {0.5 / (p.select * p.samples) ** 0.5:.3f}")
    console.print(
        f"  {p.timing['rollout']:.2g} s a rollout and {p.timing['start']:.2g} s to start a run ({p.timing['source']})"
    )
    for line in p.missing:
        console.print(f"  [yellow]missing: {escape(line)}[/]")
    console.print(f"  next: isocost plan {word(p.folder or '')} --budget ...", markup=False, soft_wrap=True)


@show.register
def profile(p: Profile, console: Console) -> None:
    """The profile in a dozen lines."""
    head(console, f"profile: {p.regime}")
    console.print(f"  {p.why}")
    top = max(p.histogram) or 1
    bars = "".join(BARS[(8 * h + top - 1) // top] for h in p.histogram)
    shown = f"right of {p.samples}: 0 [{bars}] {p.samples}"
    if p.graded:
        shown = f"problems by their mean reward: 0 [{bars}] 1"
    what = "mean reward" if p.graded else "pass@1"
    console.print(f"  {what} {p.mean:.3f} over {counted(len(p.right), 'problem')}; {shown}")
    pass_at(p.pass_at, console)
    dead = "  ".join(
        f"n={d['n']}: {d['share']:.0%}"
        + ("" if d["kind"] == "unbiased" else f" [{d['low']:.0%}, {d['high']:.0%}]")
        for d in p.dead
    )
    console.print(f"  dead groups  {dead}")
    answers = "not known: no token was counted"
    if p.lengths:
        cut = p.lengths["truncated"]
        answers = (f"{p.lengths['mean']:.1f} tokens (90 % within {p.lengths['p90']:.0f}), "
                   f"{'cut completions not known' if cut is None else f'{cut:.1%} cut'}")
    where = "from its server" if p.server else "here"
    speed = f"; {p.rate['rollouts_per_second']:.3g} rollouts/s {where}" if p.rate else ""
    console.print(f"  answers: {answers}{speed}")
    if p.lengths and (p.lengths["truncated"] or 0) > MOST_CUT:
        console.print(f"[yellow]! {p.lengths['truncated']:.1%} of the completions were cut at their length limit, and "
                      "the numbers above are of cut answers: raise --max-tokens[/]")
    dialogues(p.dialogues, console)
    by_limit(p.by_limit, console)
    if p.stored:
        stored(p.stored, p.money, console)
    elif p.server or p.money:
        spent(p.cost or {}, p.money, p.server, console)
    console.print(f"  recipe {p.recipe['method']}: {p.recipe['why']}")
    for line in p.found[:8]:
        console.print(f"  [yellow]{line}[/]")
    by = {m["name"]: m for m in p.methods}
    if own := by.get(p.recipe["method"]):
        console.print(f"  its preconditions: {own['state']}: {own['why']}")

def pass_at(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    """pass@k beyond k = 1, with intervals; nothing where none was computed."""
    rows = [f"k={x['k']}: {x['value']:.3f} [{x['low']:.3f}, {x['high']:.3f}]" for x in found if x["k"] > 1]
    if rows:
        console.print(f"  pass@k  {'  '.join(rows)}", markup=False)


def money(m: Mapping[str, Any]) -> str:
    """An amount of money and its price."""
    return f"{m['amount']:.4g} {m['currency']} ({m['price']})"


def spent(
    cost: Mapping[str, Any], paid: Mapping[str, Any] | None, server: Mapping[str, Any] | None, console: Console
) -> None:
    """What sampling a model cost, and how its server answered."""
    worth = f", {money(paid)}" if paid else ""
    console.print(
        f"  cost: {cost.get('rollouts', 0):,} rollouts, {cost.get('prefill', 0):,} tokens read, "
        f"{cost.get('decode', 0):,} written{worth}", markup=False, highlight=False
    )
    if not server:
        return
    again = sum(server["repeated"].values())
    kinds = ", ".join(f"{k}: {n}" for k, n in sorted(server["repeated"].items()))
    console.print(f"  requests: {server['sent']:,} sent, {again:,} of them again{f' ({kinds})' if kinds else ''}, "
                  f"{server['failed']:,} failed", markup=False, highlight=False)
    lacks = []
    if server["failed"]:
        why = "; ".join(server["examples"].values())
        lacks.append(f"{counted(server['failed'], 'request')} failed for good and have no score: {why}")
    if server["unknown"]:
        lacks.append(f"{counted(server['unknown'], 'request')} ended without an answer; the server may bill what is "
                     "not counted here")
    if "seed" in server["dropped"]:
        lacks.append("the server takes no seed: the same command does not sample the same completions")
    if other := [k for k in server["dropped"] if k not in ("seed", "logprobs")]:
        lacks.append(f"the server does not take {', '.join(other)}: where it has defaults of its own, they hold")
    flags(console, lacks)


def stored(found: Mapping[str, Any], paid: Mapping[str, Any] | None, console: Console) -> None:
    """What stored completions are, and what they cost when they were sampled."""
    tokens = [f"{found[k]:,} tokens {k}" for k in ("read", "written") if found.get(k) is not None]
    worth = f"; sampling them cost {money(paid)}" if paid else ""
    what = ", ".join([f"{found['completions']:,} completions of {found['file']}", *tokens])
    console.print(f"  {what}{worth}", markup=False, highlight=False, soft_wrap=True)


def preconditions(methods: Sequence[Mapping[str, str]]) -> list[str]:
    """Of the methods whose preconditions fail or are not measured: how many, and a line for each reason.

    A line has at most `NAMED` names of methods; profile.json has all of them.
    """
    lines = []
    for state, said in (("fails", "preconditions fail for"), ("not measured", "preconditions are not measured for")):
        by: dict[str, list[str]] = {}
        for m in methods:
            if m["state"] == state:
                by.setdefault(m["why"], []).append(m["name"])
        if by:
            more = ":" if all(len(names) <= NAMED for names in by.values()) else " (all names are in profile.json):"
            lines.append(f"{said} {sum(map(len, by.values()))} of {counted(len(methods), 'method')}{more}")
        for why, names in sorted(by.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            lines.append(f"  {shown}: {why}")
    return lines


def bill(b: Bill, unit: str = ROLLOUTS) -> str:
    """What runs cost, in words; what is not known is left out."""
    parts = [f"{b.rollouts:,} {unit}"]
    if b.seconds:
        parts.append(duration(b.seconds) + " of run time")
    if b.flops:
        parts.append(f"{b.flops:.1e} {words(FLOPS)}")
    if b.memory_mb:
        parts.append(f"{megabytes(b.memory_mb)} of memory a run")
    if b.disk_mb:
        parts.append(f"{megabytes(b.disk_mb)} of disk")
    return ", ".join(parts)


@show.register
def pilot_plan(p: PilotPlan, console: Console) -> None:
    """What a pilot will run, what it can detect, and its cost."""
    head(console, "plan: no pilot" if p.direct else "plan of the pilot")
    console.print(f"  {p.why}")
    if p.limits_why:
        console.print(f"  {p.limits_why}")
    if p.direct:
        console.print(f"  fallback: {p.fallback_why}; {p.train_seeds} x {p.train_C:,} rollouts")
    else:
        console.print(f"  learning rate: {p.rate.why}")
        probes, at = len(p.of_purpose("probe")), [f"{x:,}" for x in p.points]
        shown = at if len(at) <= SHOWN else [*at[: SHOWN - 1], "...", at[-1]]
        edges = len(p.of_purpose("edge"))
        checks = f", {counted(edges, 'edge run')} at half and twice the rate" if edges else ""
        console.print(f"  {probes} probe runs, {len(p.of_purpose('pilot'))} grid runs{checks}; evaluated at "
                      f"{', '.join(shown)} rollouts")
        if p.reserve:
            console.print(f"  then {p.reserve:.3g} times the grid's cost where the choice is open: the leading n at "
                          "half and twice its rate, and longer runs of the n that are not behind", soft_wrap=True)
        console.print(f"  pilot: {bill(p.pilot_bill)}")
        if p.shares:
            console.print(f"  {p.shares}")
    console.print(f"  training{'' if p.direct else ' after it'}: {bill(p.train_bill)}")
    precision(console, p)
    flags(console, p.flags)
    whole_commands(console, (p.why, *p.flags), p.folder, p.budget)
    if p.elsewhere and not p.direct:
        elsewhere(console, p)
    if p.overridden:
        console.print(f"  {p.overridden}", markup=False, soft_wrap=True)
    units(console, p.units)
    if p.profiled is not None:
        beside(console, p, p.profiled)


def elsewhere(console: Console, p: PilotPlan) -> None:
    """The runs of a pilot that another trainer has to run, and what to do with their logs."""
    console.print(f"  {p.elsewhere}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("  run", "n", "B", "updates", "learning rate", "warm-up", "seed"):
        table.add_column(name, justify="left" if name == "  run" else "right")
    for r in p.runs:
        rate = f"{r.lr(p.rate):.2g}" if r.purpose == "probe" else f"by the probe ({r.lr(p.rate):.2g})"
        table.add_row(f"  {r.name}", str(r.n), str(r.B), str(r.M), rate, str(r.warmup), str(r.seed))
    console.print(table)


def precision(console: Console, p: PilotPlan) -> None:
    """What sampled evaluations cost and how precise they are; nothing where evaluations are exact."""
    e = p.evaluation
    if e.samples is None:
        return
    unit = ROLLOUTS if p.budget is None else p.budget.unit
    own = "" if p.direct else f"{p.evaluating(p.pilot_bill):.0%} of training in {words(unit)} in the pilot, "
    after = f"{p.evaluating(p.train_bill):.0%} " + ("of training in " + words(unit) if p.direct else "after it")
    console.print(
        f"  evaluation: {e.problems} held-out problems x {counted(e.samples, 'sample')}, standard error at most "
        f"{e.sd:.3f} on each split; it costs {own}{after}", highlight=False
    )
    if p.detectable is not None and p.sd_source != "measured":
        exact = detectable(p.seeds, len(p.grid), NOISE)
        console.print(
            f"  with exact evaluations the minimum detectable difference would be {exact:.3f} instead of "
            f"{p.detectable:.3f}", highlight=False
        )


def beside(console: Console, p: PilotPlan, profiled: int) -> None:
    """What is not in the budget: the profile, and evaluations except for the time and money they take."""
    e, evaluations = p.evaluation, p.bill.evaluations
    each = ", which are exact and sample nothing"
    if e.samples is not None:
        sampled = evaluations * e.rollouts
        each = f" x {counted(e.samples, 'sample')}: {sampled:,} rollouts, counted as time and money only"
    console.print(
        f"  not in the budget: profiling, {profiled:,} rollouts; {evaluations:,} evaluations of {e.problems} problems"
        f"{each}", highlight=False
    )


@show.register
def no_law(found: NoLaw, console: Console) -> None:
    """The result of `fit` for a plan without a pilot."""
    head(console, "no law")
    console.print(f"  nothing to fit: the study is planned without a pilot. {found.why}", highlight=False)
    console.print(f"  go on with `isocost train --plan {word(found.folder)}`", highlight=False, soft_wrap=True)


def flags(console: Console, texts: Iterable[str]) -> None:
    for text in texts:
        console.print(f"  [yellow]! {text}[/]")


@show.register
def rate(r: RateRule, console: Console) -> None:
    head(console, "learning rate")
    console.print(f"  {r.why}")
    flags(console, r.flags)


@show.register
def pilot(p: Pilot, console: Console) -> None:
    """The rule is an event of the pilot, so that it is shown before the grid runs."""
    console.print(f"  {p.shift.text}")


@show.register
def law(found: Law, console: Console) -> None:
    """What the law predicts at the end of the pilot, or why it is not identified."""
    title = "law" if found.metric == PASS else f"law of {found.metric}"
    head(console, title if found.refused is None else f"{title}: not identified")
    if found.refused is not None:
        console.print(f"  {found.refused.reason}\n  to resolve: {found.refused.settle}")
        if found.forecast_refused is None:
            console.print("  the curves themselves can be forecast; a plan needs the above")
        if found.extendable and found.refused.option:
            option = of_chosen(found.refused.option, found.turn_limit)
            console.print(f"      isocost pilot {word(found.folder)} {option}", highlight=False, soft_wrap=True)
    if found.forecast_refused not in (None, found.refused):
        console.print(f"  no forecast: {found.forecast_refused.reason}\n  to resolve: {found.forecast_refused.settle}")
    table = Table(box=None, pad_edge=False, show_header=True)
    end = "at their end, test split" if found.splits else "at their end"
    for name in ("  n", "B", "lr", "runs", found.unit, end, "diverged"):
        table.add_column(name, justify="right")
    for arm in found.arms:
        C = float(arm.C[-1])
        known = interval(found.predict(arm.n, C)[0])
        table.add_row(
            f"  {arm.n}", str(arm.B), f"{arm.lr:.1e}", str(len(arm.runs)), f"{C:,.0f}", known, str(arm.diverged)
        )
    console.print(table)
    if found.binned:
        console.print(f"  fitted to means over at most {USUAL} bins of each run's evaluations; a curve ends at the "
                      "mean C of its last bin")
    console.print(f"  {found.how_runs_differ}")
    if any(f.name == "fixed_batch" for f in found.flags) and found.arms:
        trade(console, tradeoff(found))
    elif isinstance(found.n_star, NotIdentified):
        console.print(f"  n*(C) is not identified: {found.n_star.reason}")
    elif found.n_star is not None:
        console.print(
            "  n*(C): " + "  ".join(f"{C:.0f}: {found.n_star.at(C).value:.1f}" for C in found.range)
        )
    flags(console, (f.text for f in found.flags))
    interference(console, found.interference)
    turn_limit(console, found)
    if found.advice:
        console.print(f"  {found.advice}", highlight=False, soft_wrap=True)


def trade(console: Console, t: Tradeoff) -> None:
    """n*(M) and B*(M) at one batch, or the winners and why no sigmoid goes through them."""
    if t.growth is None:
        why = t.refused.reason if t.refused else ""
        console.print(f"  n*(M) at n B = {t.batch} is not identified: {why}\n  best along the pilot: {t.path}")
        return
    for w in (t.winners[0], t.winners[-1]):
        n, B = t.n_at(w.M), t.B_at(w.M)
        told = " and ".join(f"{k}* = {i.value:.1f} [{i.low:.1f}, {i.high:.1f}]" for k, i in (("n", n), ("B", B)))
        after = f"after {counted(round(w.M), 'update')} of n B = {t.batch}"
        console.print(f"  {after}: {told} ({t.level:.0%})", highlight=False)


def interference(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """By n, held-out problems that regressed and how uniform the gains were; nothing where no record holds them."""
    if not rows:
        return
    told = "  ".join(
        f"n={r['n']}: {r['forgotten']:.1%}" + ("" if r["uniformity"] is None else f", {r['uniformity']:.2f}")
        for r in rows
    )
    chance = max((r["chance"] or 0.0 for r in rows), default=0.0)
    note = f" (by sampling alone up to {chance:.1%})" if chance else ""
    even = ", uniformity of gains (1: equal on every problem)" if any(r["uniformity"] is not None for r in rows) else ""
    console.print(f"  held-out problems that regressed vs. base{note}{even}: {told}")


@show.register
def plan(p: Plan, console: Console) -> None:
    """The prescription, and what follows from it: more compute, what its seeds can detect, runs to add, its cost."""
    measured = {"kind": "held-out", "unit": ROLLOUTS, "scale": measure.UNIT, **(p.measure or {})}
    a = p.arm
    limit = "" if p.turns is None else f", turn limit {p.turns}"
    head(console, f"prescription: n = {a.n}, B = {a.B}{limit}, M = {a.M}, lr = {a.lr:.2g}")
    if p.fallback:
        console.print(f"  fallback: {p.fallback}")
        whole_commands(console, (p.fallback,), p.folder, p.budget)
    else:
        console.print(f"  {p.chosen}")
    if p.risks:
        console.print(f"  {p.risks}", highlight=False)
    passes = "" if a.epochs is None else f", {a.epochs:.1f} passes over the problems"
    console.print(
        f"  C = {a.C:,} {measured['unit']} a run, {counted(p.seeds, 'seed')}, warm-up "
        f"{counted(a.warmup, 'update')}{passes}; against {p.comparison}"
    )
    if a.prediction:
        expected = a.prediction
        told = measure.in_its_units(measured["scale"], expected.value, expected.low, expected.high)
        console.print(
            f"  expected {measured['kind']} reward {interval(expected)} ({expected.level:.0%} prediction interval"
            + (")" if p.measure else ", test split)")
            + (told and f": {told}")
        )
    if p.growth:
        console.print(f"  {p.growth.text}", highlight=False)
    if p.more:
        more(console, p.more, measured["unit"])
    elif p.marginal:
        console.print(f"  twice the budget would buy {p.marginal.gain:+.3f} (n = {p.marginal.doubled_n})")
    if p.sees:
        console.print(f"  {p.sees.text}")
    for rank, run in enumerate(p.next):
        first = "to resolve:" if p.fallback else "to reduce the uncertainty:"
        console.print(f"  {'  or' if rank else first} {run['text']}")
        if p.extendable and run["option"]:
            console.print(f"      isocost pilot {word(p.folder)} {run['option']}", highlight=False, soft_wrap=True)
    console.print(f"  training: {bill(p.bill, measured['unit'])}")
    if e := p.evaluating:
        console.print(
            f"  evaluation: {counted(p.bill.evaluations, 'evaluation')} of {e['problems']} held-out problems x "
            f"{counted(e['samples'], 'sample')}, {e['rollouts']:,} rollouts: {e['share']:.0%} of the cost of training "
            f"in {words(e['unit'])}; standard error at most {e['sd']:.3f} on each split", highlight=False
        )
    units(console, p.units, measured["unit"])
    for check in p.checks:
        if not check.holds:
            console.print(f"  [yellow]! {check.text}[/]")
    flags(console, p.flags)


def verdict(
    console: Console, v: StoppingVerdict, per_cost: Mapping[str, float], *, over: Mapping[str, str],
    measured: Mapping[str, str]
) -> None:
    """A verdict on one run: the word first, then its reasons. `over` is the reason and the detail of its end, both
    empty while it trains. `measured` is what its rewards are, by `measure.of`; those of isocost's own runs have no name
    there, and are on the validation split."""
    colour = {"continue": "green", "stop": "red", "change n": "yellow"}[v.word]
    word = f"change n to {v.n}" if v.word == "change n" else v.word
    what = "" if v.metric == PASS else f"{v.metric} "
    latest = f"{what}{v.reward:.3f} on the validation split"
    if measured["metric"]:
        latest = f"{measured['metric']} {v.reward:.3f} ({measured['kind']} reward)"
    latest += f" after {v.C:,.0f} of {v.end:,.0f} {measured['unit']}"
    if over["reason"]:
        detail = f" ({over['detail']})" if over["detail"] else ""
        console.print(f"[bold]{v.run}[/]: ended, {over['reason']}{detail}\n  {latest}", highlight=False, soft_wrap=True)
        return
    console.print(f"[bold]{v.run}[/]: [{colour}]{word}[/]", highlight=False)
    f = v.final
    prior = "the law and its own curve" if v.prior == "law" else "its own curve alone"
    where = "" if measured["metric"] else ", on the test split"
    console.print(
        f"  {latest}; expected at the end{where}, {interval(f)} ({f.level:.0%} prediction interval, by "
        f"{prior}, {counted(v.looks, 'evaluation')})", highlight=False
    )
    console.print(f"  {v.why}", markup=False, highlight=False)
    if per_cost:
        told = "  ".join(f"{x:+.3g} {k.replace('_', ' ')}" for k, x in per_cost.items())
        console.print(f"  expected reward {told}", highlight=False)


@show.register
def forecast(f: Forecast, console: Console) -> None:
    """The sealed forecast, and the outcome that would falsify it."""
    head(console, f"forecast, sealed {f.seal[:12]}")
    console.print(f"  {f.why}")
    if f.value is not None and f.low is not None and f.high is not None:
        what = "reward" if f.metric == PASS else f.metric
        console.print(
            f"  {f.value:.3f} [{f.low:.3f}, {f.high:.3f}] mean held-out {what} of {counted(len(f.runs), 'run')} of "
            f"{f.C:,} rollouts{'' if f.turns is None else f' at a turn limit of {f.turns}'}"
        )
    for n in f.naive:
        console.print(f"  to beat: {n.name} {n.value:.3f} [{n.low:.3f}, {n.high:.3f}]")
    console.print(f"  wrong if: {f.falsifier}")


@show.register
def trained(t: Trained, console: Console) -> None:
    """Nothing more: the sealed forecast is an event, shown before the runs."""


@show.register
def audit(a: Audit, console: Console) -> None:
    """The verdict, the scores, and the difference between the arms."""
    head(console, f"audit: {a.verdict}")
    console.print(f"  {a.reason}")
    if a.rule:
        console.print(f"  ! {a.rule}", highlight=False)
    for s in a.scores:
        console.print(f"  interval score {s.score:.3f}  {s.name}: {s.value:.3f} [{s.low:.3f}, {s.high:.3f}]")
    if a.difference is not None and a.comparator is not None:
        console.print(f"  prescribed minus n = {a.comparator['n']}: {spread(a.difference)}; better: {a.better}")
    if a.leader is not None and a.leader.difference is not None:
        console.print(f"  prescribed minus n = {a.leader.arm['n']}, the best at the pilot's end: "
                      f"{spread(a.leader.difference)}; better: {a.leader.better}")
    if a.gain is not None:
        console.print(f"  gain over the base: {spread(a.gain)}")


def spread(s: MeanOfRuns) -> str:
    bounds = "" if s.low is None or s.high is None else f" [{s.low:+.3f}, {s.high:+.3f}]"
    return f"{s.mean:+.3f}{bounds} over {counted(s.count, 'seed')}"


@show.register
def plain_text(t: Text, console: Console) -> None:
    """The text as it is, in lines of any length."""
    echo(str(t), nl=False)


@show.register
def whole(w: Whole, console: Console) -> None:
    """Seconds by phase, and the path of the report."""
    head(console, "time")
    seconds = "  ".join(f"{k} {v:.0f} s" for k, v in w.phases.items())
    console.print(f"  {seconds}  = {sum(w.phases.values()):.0f} s")
    console.print(f"\nreport: {w.report.resolve()}")


@show.register
def extended(e: Extended, console: Console) -> None:
    console.print(
        f"  adds {e.rollouts:,} rollouts and about {duration(e.seconds)} of run time to a pilot of {e.before:,} "
        f"rollouts; time is {e.source}", highlight=False
    )


def pricing(console: Console, cost: Mapping[str, Any], folder: Path | None = None) -> None:
    """What estimating a cost has sampled, and the folder where that is recorded, if it is."""
    show(Sampled.of(cost, folder), console)
