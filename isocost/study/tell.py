"""What the steps say in a terminal: the answer first, numbers with their intervals, what to do about what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost.laws.audit import Audit, Spread
from isocost.laws.budget import Bill
from isocost.laws.forecast import Forecast
from isocost.laws.law import Law, Refusal
from isocost.laws.noise import Interval
from isocost.laws.pilot import PilotPlan
from isocost.laws.plan import Plan
from isocost.laws.rate import RateRule
from isocost.run import Job
from isocost.setting import Setting
from isocost.study.home import Home
from isocost.study.show import duration

BARS = " ▁▂▃▄▅▆▇█"


def head(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


def interval(i: Interval) -> str:
    return f"{i.value:.3f} [{i.low:.3f}, {i.high:.3f}]"


def opening(console: Console, out: Path, size: str, seed: int) -> None:
    console.print(
        f"[bold]isocost[/] study in {out} (size {size}, seed {seed}): profile, plan, pilot, fit, plan, train, audit"
    )


def profile_cost(console: Console, setting: Setting, cost: Mapping[str, Any]) -> None:
    """What profiling would cost at most."""
    console.print(
        f"profile of {setting.model} on {setting.data}: {cost['problems']} problems, {cost['rollouts']} rollouts, at "
        f"most {cost['tokens']} tokens and {cost['flops']:.1e} FLOP, {cost['memory_mb']} MB of memory, "
        f"{cost['disk_mb']} MB of disk; how many seconds that takes here is what it measures. Nothing was run"
    )


def profile(console: Console, p: Mapping[str, Any]) -> None:
    """The profile in a dozen lines."""
    head(console, f"profile: {p['regime']}")
    console.print(f"  {p['why']}")
    top = max(p["histogram"]) or 1
    bars = "".join(BARS[(8 * h + top - 1) // top] for h in p["histogram"])
    console.print(
        f"  pass@1 {p['mean']:.3f} over {len(p['right'])} problems; right of {p['samples']}: 0 [{bars}] {p['samples']}"
    )
    dead = "  ".join(
        f"n={d['n']}: {d['share']:.0%}"
        + ("" if d["kind"] == "unbiased" else f" [{d['low']:.0%}, {d['high']:.0%}]")
        for d in p["dead"]
    )
    console.print(f"  dead groups  {dead}")
    lengths = p["lengths"]
    console.print(
        f"  answers: {lengths['mean']:.1f} tokens (90 % within {lengths['p90']:.0f}), {lengths['truncated']:.1%} cut; "
        f"{p['rate']['rollouts_per_second']:.0f} rollouts/s here"
    )
    console.print(f"  recipe {p['recipe']['method']}: {p['recipe']['why']}")
    for line in p["found"][:8]:
        console.print(f"  [yellow]{line}[/]")
    fails = [m["name"] for m in p["methods"] if m["state"] == "fails"]
    unknown = [m["name"] for m in p["methods"] if m["state"] == "not measured"]
    console.print(
        f"  preconditions: fail for {', '.join(fails) or 'none'}; not measured for {', '.join(unknown) or 'none'}"
    )


def bill(b: Bill) -> str:
    parts = [f"{b.rollouts} rollouts", duration(b.seconds) + " of run time"]
    if b.flops:
        parts.append(f"{b.flops:.1e} FLOP")
    if b.memory_mb:
        parts.append(f"{b.memory_mb:.0f} MB of memory a run")
    if b.disk_mb:
        parts.append(f"{b.disk_mb:.0f} MB of disk")
    return ", ".join(parts)


def pilot_plan(console: Console, p: PilotPlan) -> None:
    """What a pilot will do, and what it can see."""
    head(console, "plan: no pilot" if p.direct else "plan of the pilot")
    console.print(f"  {p.why}")
    if p.direct:
        console.print(f"  fallback: {p.fallback_why}; {p.train_seeds} x {p.train_C} rollouts")
    else:
        console.print(f"  learning rate: {p.rate.why}")
        probes = len(p.of_purpose("probe"))
        console.print(
            f"  {probes} probe runs, {len(p.of_purpose('pilot'))} grid runs, {len(p.of_purpose('edge'))} edge runs at "
            f"half and twice the rate; evaluated at {', '.join(str(x) for x in p.points)} rollouts"
        )
        console.print(f"  pilot: {bill(p.pilot_bill)}")
    console.print(f"  training after it: {bill(p.train_bill)}")
    flags(console, p.flags)


def flags(console: Console, texts: tuple[str, ...]) -> None:
    for text in texts:
        console.print(f"  [yellow]! {text}[/]")


def rate(console: Console, r: RateRule) -> None:
    head(console, "learning rate")
    console.print(f"  {r.why}")
    flags(console, r.flags)


def shift(console: Console, s: Mapping[str, Any]) -> None:
    console.print(f"  {s['text']}")


def law(console: Console, found: Law) -> None:
    """What the law says at the end of the pilot, or why it says nothing."""
    head(console, "law" if found.refused is None else "law: refused")
    if found.refused is not None:
        console.print(f"  {found.refused.reason}\n  what would settle it: {found.refused.settle}")
    table = Table(box=None, pad_edge=False, show_header=True)
    for name in ("  n", "B", "lr", "runs", "at the pilot's end", "diverged"):
        table.add_column(name, justify="right")
    end = found.range[1]
    for arm in found.arms:
        known = interval(found.predict(arm.n, end)[0])
        table.add_row(f"  {arm.n}", str(arm.B), f"{arm.lr:.1e}", str(len(arm.runs)), known, str(arm.diverged))
    console.print(table)
    console.print(
        f"  run-to-run sd {found.sd:.3f} at reward 1/2, pooled over arms ({found.dof:g} degrees of freedom)"
    )
    if isinstance(found.n_star, Refusal):
        console.print(f"  n*(C) cannot be told: {found.n_star.reason}")
    elif found.n_star is not None:
        console.print(
            "  n*(C): " + "  ".join(f"{C:.0f}: {found.n_star.at(C).value:.1f}" for C in found.range)
        )
    flags(console, tuple(f.text for f in found.flags))


def plan(console: Console, p: Plan) -> None:
    """The prescription."""
    a = p.arm
    head(console, f"prescription: n = {a.n}, B = {a.B}, M = {a.M}, lr = {a.lr:.2g}")
    if p.fallback:
        console.print(
            f"  fallback: {p.fallback}" + (f"\n  what would settle it: {p.settle}" if p.settle else "")
        )
    else:
        console.print(f"  {p.chosen}")
    passes = "" if a.epochs is None else f", {a.epochs:.1f} passes over the problems"
    console.print(
        f"  C = {a.C} rollouts a run, {p.seeds} seeds, warm-up {a.warmup} updates{passes}; against {p.comparison}"
    )
    if a.prediction:
        console.print(
            f"  expected held-out reward {interval(a.prediction)} ({a.prediction.level:.0%} prediction interval)"
        )
    if p.marginal:
        console.print(f"  twice the budget would buy {p.marginal.gain:+.3f} (n = {p.marginal.doubled_n})")
    console.print(f"  training: {bill(p.bill)}")
    for check in p.checks:
        if not check.holds:
            console.print(f"  [yellow]! {check.text}[/]")
    flags(console, p.flags)


def forecast(console: Console, f: Forecast) -> None:
    """What is promised, and what would show it wrong."""
    head(console, f"forecast, sealed {f.seal[:12]}")
    console.print(f"  {f.why}")
    if f.value is not None and f.low is not None and f.high is not None:
        console.print(
            f"  {f.value:.3f} [{f.low:.3f}, {f.high:.3f}] mean held-out reward of {len(f.runs)} runs of {f.C} rollouts"
        )
    for n in f.naive:
        console.print(f"  to beat: {n.name} {n.value:.3f} [{n.low:.3f}, {n.high:.3f}]")
    console.print(f"  wrong if: {f.falsifier}")


def audit(console: Console, a: Audit) -> None:
    """The verdict, the scores, and the difference between the arms."""
    head(console, f"audit: {a.verdict}")
    console.print(f"  {a.reason}")
    for s in a.scores:
        console.print(f"  interval score {s.score:.3f}  {s.name}: {s.value:.3f} [{s.low:.3f}, {s.high:.3f}]")
    if a.difference is not None:
        console.print(f"  prescribed minus n = {a.comparator}: {spread(a.difference)}; better: {a.better}")
    if a.gain is not None:
        console.print(f"  gain over the base: {spread(a.gain)}")


def spread(s: Spread) -> str:
    bounds = "" if s.low is None or s.high is None else f" [{s.low:+.3f}, {s.high:+.3f}]"
    return f"{s.mean:+.3f}{bounds} over {s.count} seeds"


def closing(console: Console, home: Home) -> None:
    """Where the time went, and where the report is."""
    phases = home.asked["phases"]
    head(console, "time")
    console.print(
        "  " + "  ".join(f"{k} {v:.0f} s" for k, v in phases.items()) + f"  = {sum(phases.values()):.0f} s"
    )
    console.print(f"\nreport: {(home.path / 'report.html').resolve()}")


def single(console: Console, job: Job) -> None:
    budget = ", ".join(f"{v:g} {k}" for k, v in job.budget.items())
    console.print(
        f"[bold]{job.method}[/] on {job.setting.data} with {job.setting.model}: n = {job.n}, B = {job.B}, "
        f"lr = {job.lr:.2g}, seed {job.seed}, {budget}"
    )


def single_cost(console: Console, b: Bill) -> None:
    console.print(f"  would cost {bill(b)}; a few answers were sampled to tell how fast, and nothing was trained")


def ended(console: Console, out: Path, end: Mapping[str, Any]) -> None:
    """Why a run ended and where its rollouts went."""
    fates = ", ".join(f"{k} {v}" for k, v in end["fates"].items() if v)
    console.print(
        f"  {end['reason']}: {end['detail']}\n  {end['steps']} steps in {duration(end['seconds'])}; rollouts: {fates}"
    )
    for note in end["notes"]:
        console.print(f"  [yellow]! {note}[/]")
    if end["verifier_failures"]:
        console.print(f"  [yellow]! verifier failures: {dict(end['verifier_failures'])}[/]")
    console.print(f"  record: {out}")


def evaluated(console: Console, found: Mapping[str, Any]) -> None:
    for name in ("base", "final", "difference"):
        if name in found:
            m, sign = found[name], "+" if name == "difference" else ""
            bounds = f"[{m['low']:{sign}.4f}, {m['high']:{sign}.4f}]"
            over = f"({m['level']:.0%} over {m['problems']} problems)"
            console.print(f"  {name:<10} {m['value']:{sign}.4f} {bounds} {over}", markup=False)
