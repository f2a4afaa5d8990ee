"""The sections that answer: what the problems are like, which rate holds, what each n reaches, and whether it came true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.report import charts
from isocost.report.accounts import Section, empty
from isocost.report.html import (
    Safe,
    brief,
    count,
    figure,
    interval,
    join,
    names,
    p,
    percent,
    rate,
    share,
    sentence,
    signed,
    table,
    tag,
)
from isocost.report.records import Data, Run, Study, as_dict, as_list, number

if TYPE_CHECKING:
    from isocost.laws.fit import Law

GRID = 72      # points of a drawn curve
SPLIT = "eval/audit"   # what is reported; `select` chose


def law_of(study: Study) -> Law | None:
    """The fitted law, if there is one that this version reads."""
    if not study["law"]:
        return None
    from isocost.laws.fit import Law

    return Law.of(study["law"])


# profile ----------------------------------------------------------------------------------------------------


def profile(study: Study) -> Section:
    """pass@1 over problems, groups without a signal at each n, lengths, and which methods fit."""
    told, title = study["profile"], "The problems, for this model"
    if not told:
        return Section("profile", title, empty("Pass rates have not been measured.", "isocost profile"))
    samples, counts = int(told.get("samples") or 16), as_list(told.get("histogram"))
    rows = [_bin(k, samples, c) for k, c in enumerate(counts)]
    alt_text = f"Histogram of problems by right answers out of {samples}: " + ", ".join(f"{k}: {c}" for k, c in enumerate(counts))
    caption = f"Problems by how many of {samples} samples were right. Pale bars earn the same throughout a group of {samples}."
    plot = figure("pass-rates", charts.histogram(rows, alt_text), alt_text, caption, rows) if rows else ""
    return Section("profile", title, join(_regime(told, samples), plot, _dead(told, samples), _bands(told), _lengths(told), _methods(told)))


def _bin(right: int, samples: int, problems: Any) -> Data:
    kind = "all or none right" if right in (0, samples) else "some right"
    return {"right": right, "samples": samples, "pass1": right / samples, "problems": problems, "kind": kind}


def _regime(told: Data, samples: int) -> Safe:
    size = len(as_list(told.get("right"))) or sum(as_list(told.get("histogram")))
    chosen = as_dict(told.get("recipe"))
    lead = f"{str(told.get('regime', 'unknown')).capitalize()}: {told.get('why', '')}."
    facts = f"Mean pass@1 is {share(told.get('mean'))} over {count(size)} problems with {samples} samples each; "
    facts += f"h = {share(told.get('h'))} of them have 0 or 1 right."
    recipe = f"The recipe that follows is {chosen['method']}: {chosen.get('why', '')}." if chosen.get("method") else ""
    return join(p(lead, cls="lead"), p(facts), p(recipe) if recipe else "")


def _dead(told: Data, samples: int) -> Safe:
    rows = [{k: d.get(k) for k in ("n", "share", "low", "high", "kind")} for d in map(as_dict, as_list(told.get("dead")))]
    if not rows:
        return Safe("")
    worst, best = rows[0], rows[-1]
    alt_text = "Share of groups whose rollouts all earn the same: " + ", ".join(f"{percent(r['share'])} at n = {r['n']}" for r in rows)
    text = f"A group whose rollouts all earn the same teaches nothing: {percent(worst['share'])} of them at n = {worst['n']}, "
    text += f"{percent(best['share'])} at n = {best['n']}."
    caption = f"Filled: unbiased, from the {samples} samples. Hollow: a beta-binomial fitted to the set. Bars are 90 % intervals over problems."
    plot = figure("dead-groups", charts.dead_groups(rows, alt_text), alt_text, caption, rows)
    body = [[r["n"], percent(r["share"]), f"{percent(r['low'])} to {percent(r['high'])}", r["kind"]] for r in rows]
    return join(tag("h3", "Dead groups at each n"), p(text), plot, table(["n", "dead groups", "interval", "estimate"], body, "Dead groups"))


def _bands(told: Data) -> Safe:
    body = [[b.get("band"), count(b.get("problems")), share(b.get("assigned")), share(b.get("reported"))] for b in map(as_dict, as_list(told.get("bands")))]
    if not body:
        return Safe("")
    note = "One half of the samples says how hard a problem is, the other half how often it is solved: the second column of rates is the honest one."
    return join(tag("h3", "Difficulty"), p(note), table(["band", "problems", "rate that put it there", "rate on the other half"], body, "Difficulty bands"))


def _lengths(told: Data) -> Safe:
    lengths, speed = as_dict(told.get("lengths")), as_dict(told.get("rate"))
    if not lengths:
        return Safe("")
    text = f"Answers have {share(lengths.get('mean'), 1)} tokens on average (median {brief(lengths.get('p50'))}, 90 % below {brief(lengths.get('p90'))}, "
    text += f"99 % below {brief(lengths.get('p99'))}, longest {brief(lengths.get('max'))}); {percent(lengths.get('truncated'))} were cut off."
    if number(speed.get("rollouts_per_second")):
        text += f" This machine samples {brief(speed['rollouts_per_second'])} rollouts, {brief(speed.get('tokens_per_second'))} tokens per second."
    return join(tag("h3", "Lengths"), p(text))


def _methods(told: Data) -> Safe:
    body = [[m.get("name"), m.get("state"), m.get("why")] for m in map(as_dict, as_list(told.get("methods")))]
    if not body:
        return Safe("")
    return join(tag("h3", "Which methods' preconditions hold"), table(["method", "precondition", "why"], body, "Methods"))


# learning rate ----------------------------------------------------------------------------------------------


def learning_rate(study: Study) -> Section:
    """The probe: reward at the end against rate, per batch; the rule that follows; whether n* moves with it."""
    told, title = study["rate"], "Learning rate"
    rows = _probe_rows(study)
    if not told and not rows:
        return Section("rate", title, empty("The learning rate has not been measured.", "isocost pilot"))
    lead = f"{sentence(told.get('why') or 'The rule is not fitted yet')}"
    plot: Any = ""
    if rows:
        base = [r["base"] for r in rows if r["base"] is not None]
        alt_text = "Held-out reward after each probe run: " + "; ".join(
            f"rate {rate(r['lr'])} at {r['nB']} rollouts per update gives {share(r['reward'])}" for r in rows)
        caption = "Each point is one short run. A cross is a setting that fell below the base: it cannot be chosen, and bounds the rate allowed."
        spec = charts.rates(rows, sum(base) / len(base) if base else None, alt_text)
        plot = figure("learning-rate", spec, alt_text, caption, rows)
    notes = [p(sentence(f)) for f in as_list(told.get("flags"))]
    return Section("rate", title, join(p(lead, cls="lead"), plot, *notes, _rule_table(study), _shift(study)))


def _probe_rows(study: Study) -> list[Data]:
    refused = {as_dict(t).get("run") for t in as_list(study["rate"].get("refused"))}
    rows = []
    for run in study.of("probe"):
        if not run.evaluations or not run.lr or not run.n:
            continue
        first, last = run.evaluations[0], run.evaluations[-1]
        rows.append({
            "run": run.name, "lr": run.lr, "nB": run.n * int(run.arm.get("B") or 0), "reward": last.get("eval/select"),
            "base": number(first.get("eval/select")), "refused": "refused" if run.name in refused or run.diverged else "kept",
        })
    return sorted(rows, key=lambda r: (r["nB"], r["lr"]))


def _rule_table(study: Study) -> Safe:
    arms = {(r.n, r.arm.get("B"), r.lr) for r in study.of("pilot") if r.n and r.lr}
    if not arms:
        return Safe("")
    body = [[n, b, count(n * b) if b else "–", rate(lr)] for n, b, lr in sorted(arms, key=lambda a: (a[0] or 0, a[2] or 0))]
    return table(["n", "B", "rollouts per update, nB", "learning rate"], body, "What the rule gives each arm of the grid")


def _shift(study: Study) -> Safe:
    found = study["shift"]
    if not found:
        return Safe("")
    note = sentence(found.get("text", ""))
    return tag("div", tag("b", "n* depends on the learning rate here"), p(note), cls="flag") if found.get("moved") else p(note)


# reward against compute -------------------------------------------------------------------------------------


def curves(study: Study) -> Section:
    """What each n reaches with how much compute: means over seeds, fitted curves, bands."""
    title, runs = "Reward against compute", [r for r in study.of("pilot") if r.evaluations]
    if not runs:
        return _plain(study, title)
    points, law = _means(runs), law_of(study)
    fits = _fitted(law) if law else []
    chosen = prescribed_n(study)
    rows = [*({"kind": "observed", **r} for r in points), *({"kind": "fitted", **r} for r in fits)]
    alt_text = "Held-out reward against training rollouts, one curve for each n. At the end of the pilot: " + ", ".join(_ends(points))
    caption = "Points are means over seeds of every evaluation, none filtered. Lines are fitted curves, shades their 90 % confidence bands. "
    caption += "Click a legend entry to single out an n; drag to pan, ctrl + wheel or pinch to zoom, double-click to reset."
    plot = figure("reward", charts.curves(points, fits, alt_text, chosen), alt_text, caption, rows)
    lead = f"{len(runs)} pilot runs over n = {names(sorted({r.n for r in runs if r.n}))}; at their last common budget {_order(points)}."
    return Section("curves", title, join(p(lead, cls="lead"), plot, _arm_table(law, runs), _left_out(runs)))


def _means(runs: Sequence[Run]) -> list[Data]:
    """Mean, lowest and highest over seeds at each (n, C); the base apart, for a log axis has no zero."""
    by: dict[tuple[int, float], list[float]] = {}
    for run in runs:
        if run.diverged or run.n is None:
            continue
        for line in run.evaluations:
            c, y = number(line.get("rollouts")), number(line.get(SPLIT, line.get("eval/select")))
            if c and y is not None:
                by.setdefault((run.n, c), []).append(y)
    return [
        {"n": n, "C": c, "reward": sum(v) / len(v), "low": min(v), "high": max(v), "runs": len(v)}
        for (n, c), v in sorted(by.items())
    ]


def _fitted(law: Law) -> list[Data]:
    rows = []
    low, high = law.range
    for n in law.ns:
        band = law.curve(n, np.geomspace(low, high, GRID))
        rows += [{"n": n, "C": c, "reward": v, "low": a, "high": b} for c, v, a, b in _columns(band, 4)]
    return rows


def _columns(band: Any, digits: int) -> list[tuple[float, ...]]:
    columns = (band.C, band.value, band.low, band.high)
    return [(round(float(c), 1), *(round(float(x), digits + 1) for x in rest)) for c, *rest in zip(*columns, strict=True)]


def _last_points(points: Sequence[Data]) -> list[Data]:
    """Each n at the largest C that every n reached."""
    ends = [max(r["C"] for r in points if r["n"] == n) for n in {r["n"] for r in points}]
    end = min(ends, default=math.inf)
    return [max((r for r in points if r["n"] == n and r["C"] <= end), key=lambda r: r["C"]) for n in sorted({r["n"] for r in points})]


def _ends(points: Sequence[Data]) -> list[str]:
    return [f"n = {r['n']} {share(r['reward'])}" for r in _last_points(points)]


def _order(points: Sequence[Data]) -> str:
    ends = sorted(_last_points(points), key=lambda r: -r["reward"])
    if not ends:
        return "no run has been evaluated"
    first, last = ends[0], ends[-1]
    if first is last:
        return f"n = {first['n']} stands at {share(first['reward'])}"
    return f"n = {first['n']} leads with {share(first['reward'])} and n = {last['n']} is last with {share(last['reward'])}"


def _arm_table(law: Law | None, runs: Sequence[Run]) -> Safe:
    if law is None:
        return p("The curves are not fitted yet: ", tag("code", "isocost fit"), ".", cls="empty")
    end, body = law.range[1], []
    for arm in law.arms:
        confidence, prediction = law.predict(arm.n, end, max(len(arm.runs), 1))
        shape = arm.fits[1].parameters
        words = f"{share(shape['R0'])} → {share(shape['A'])}, half way at {brief(shape['Cmid'])}, slope {share(shape['b'], 2)}"
        body.append([arm.n, len(arm.runs), arm.diverged, interval(confidence.data()), interval(prediction.data()), words])
    head = ["n", "runs", "diverged", f"mean curve at {brief(end)}", "mean of as many new runs", "sigmoid: base → asymptote"]
    note = f"90 % intervals. The run is the unit; run-to-run variance is pooled over arms ({share(law.dof, 0)} degrees of freedom)."
    return join(table(head, body, "Fitted arms"), p(note, cls="soft"))


def _left_out(runs: Sequence[Run]) -> Safe:
    gone = [r.name for r in runs if r.diverged]
    if not gone:
        return Safe("")
    return tag("div", tag("b", f"{len(gone)} diverged"), p(f"{names(gone)} fell below the base by 3 standard errors: counted, and left out of the fit."), cls="flag")


def _plain(study: Study, title: str) -> Section:
    """Runs without a pilot: one line each."""
    rows = []
    for run in study.of("run", "train"):
        for line in run.evaluations:
            c, y = number(line.get("rollouts")), number(line.get(SPLIT, line.get("eval/select")))
            if c and y is not None:
                rows.append({"run": run.name, "C": c, "reward": y})
    if not rows:
        return Section("curves", title, empty("No run of a pilot has been evaluated.", "isocost pilot"))
    ends = {r["run"]: r["reward"] for r in rows}
    alt_text = "Held-out reward against training rollouts, one line for each run. At the end: " + ", ".join(f"{k} {share(v)}" for k, v in ends.items())
    plot = figure("reward", charts.plain_curves(rows, alt_text), alt_text, "One line for each run. Click a legend entry to single one out.", rows)
    best = max(ends, key=lambda k: ends[k])
    lead = f"{len(ends)} {'run' if len(ends) == 1 else 'runs'} without a pilot; {best} ends highest, at {share(ends[best])}."
    return Section("curves", title, join(p(lead, cls="lead"), plot))


# frontier ---------------------------------------------------------------------------------------------------


def frontier(study: Study) -> Section:
    """The upper envelope of fitted curves, and n*(C) where it is identified, else the set of equal n's."""
    title, law = "The frontier, and which n", law_of(study)
    if law is None:
        return Section("frontier", title, empty("No law has been fitted.", "isocost fit"))
    low, end = law.range
    top = max(_budget(study) or end, end)
    band = law.frontier(np.geomspace(low, top, GRID))
    rows = [{"C": c, "reward": v, "low": a, "high": b, "n": int(n)} for (c, v, a, b), n in zip(_columns(band, 4), band.n, strict=True)]
    alt_text = f"Best fitted held-out reward against training rollouts, from {share(rows[0]['reward'])} at {brief(low)} to {share(rows[-1]['reward'])} at {brief(top)}."
    caption = "The upper envelope of the fitted curves with its 90 % band. Circles are record-breaking means: they rise with luck, and are for display only."
    observed = _records(_means([r for r in study.of("pilot") if r.evaluations]))
    fence = end if top > end else None
    plot = figure("frontier", charts.frontier(rows, observed, fence, alt_text), alt_text, caption, rows)
    return Section("frontier", title, join(_set_sentence(study, law), plot, _which(study, law, low, top, fence)))


def _records(points: Sequence[Data]) -> list[Data]:
    """The running maximum over C of mean rewards."""
    best, out = -math.inf, []
    for r in sorted(points, key=lambda r: (r["C"], -r["reward"])):
        if r["reward"] > best:
            best = r["reward"]
            out.append({k: r[k] for k in ("C", "reward", "n")})
    return out


def _which(study: Study, law: Law, low: float, top: float, fence: float | None) -> Safe:
    from isocost.laws.fit import Refusal

    if law.n_star is not None and not isinstance(law.n_star, Refusal):
        grid = np.geomspace(low, top, GRID)
        found = [law.n_star.at(float(c)) for c in grid]
        rows = [{"C": round(float(c), 1), "n": x.value, "low": max(x.low, 1), "high": x.high} for c, x in zip(grid, found, strict=True)]
        alt_text = f"n* grows from {share(rows[0]['n'], 1)} at {brief(low)} rollouts to {share(rows[-1]['n'], 1)} at {brief(top)}."
        caption = "The best n as compute grows: log2 n* is a sigmoid in ln C. The shade is its 90 % confidence band."
        return join(tag("h3", "n*(C)"), figure("n-star", charts.equals([], rows, fence, alt_text), alt_text, caption, rows))
    rows = _standing(law, np.geomspace(low, top, 25))
    sets = [law.equal_set(float(c)) for c in (low, law.range[1])]
    alt_text = f"Which n are equal to the best within the margin: {names(sets[0])} at {brief(low)} rollouts, {names(sets[1])} at the end of the pilot."
    caption = f"At each C, the n whose predicted reward is within {law.margin:g}, or within what can be told apart, of the best."
    plot = figure("equal-n", charts.equals(rows, [], fence, alt_text), alt_text, caption, rows)
    return join(tag("h3", "The set of equal n's"), _why_not(law.n_star), plot)


def _why_not(refusal: Any) -> Safe:
    if refusal is None:
        return Safe("")
    return p(f"n*(C) is not drawn: {refusal.reason} {sentence(refusal.settle)}")


def _standing(law: Law, grid: np.ndarray) -> list[Data]:
    values = np.stack([law.curve(n, grid).value for n in law.ns])
    rows = []
    for i, c in enumerate(grid[:-1]):
        middle = float(np.sqrt(c * grid[i + 1]))
        equal, best = law.equal_set(middle), law.best(middle)
        for j, n in enumerate(law.ns):
            standing = "best" if n == best else "equal to the best" if n in equal else "worse"
            behind = float(values[:, i].max() - values[j, i])
            rows.append({"C": round(float(c), 1), "C2": round(float(grid[i + 1]), 1), "n": n, "standing": standing, "behind": round(behind, 4)})
    return rows


def _set_sentence(study: Study, law: Law) -> Safe:
    equal, plan = equal_set(study), study["plan"]
    c = _budget(study) or law.range[1]
    where = f"At {count(c)} rollouts per run" if plan else "At the end of the pilot"
    equal = equal or law.equal_set(c)
    lead = f"{where} n = {names(equal)} {'is best' if len(equal) == 1 else 'are equal'} to within {law.margin:g}, or to within what can be told apart."
    more: list[Any] = []
    twice = as_dict(plan.get("marginal"))
    if twice:
        doubled = as_dict(twice.get("doubled"))
        more.append(p(f"Twice the budget would buy {signed(twice.get('gain'))}: {interval(doubled)} at n = {twice.get('doubled_n')}."))
    ratio = number(plan.get("extrapolation"))
    if ratio and ratio > 1:
        more.append(p(f"The prescription reaches {ratio:.3g} times beyond the pilot's largest run; what stands right of the dashed line is extrapolated."))
    return join(p(lead, cls="lead"), *more)


# forecast against outcome -----------------------------------------------------------------------------------


def prescribed_arm(study: Study) -> Data:
    """The plan's first arm; empty without a plan."""
    arms = as_list(study["plan"].get("arms"))
    return as_dict(study["plan"].get("arm")) or as_dict(arms[0] if arms else None)


def comparator(study: Study) -> Data:
    """The arm that the prescription is compared with; empty where nothing is."""
    return next((a for a in map(as_dict, as_list(study["plan"].get("arms"))) if a.get("role") == "comparator"), {})


def prescribed_n(study: Study) -> int | None:
    n = number(prescribed_arm(study).get("n"))
    return None if n is None else int(n)


def equal_set(study: Study) -> list[int]:
    return [int(n) for n in as_list(study["plan"].get("equal")) if number(n)]


def verdict_of(study: Study) -> str:
    return str(study["audit"].get("verdict") or "").replace("_", " ")


def _budget(study: Study) -> float | None:
    return number(prescribed_arm(study).get("C"))


def outcome(study: Study) -> Section:
    """The sealed forecast, the naive ones, what came of it, and the arm beside it."""
    title, told = "Forecast against outcome", outcome_of(study)
    if not told.get("forecast") and not told.get("values"):
        return Section("outcome", title, empty("Nothing is forecast yet.", "isocost plan"))
    parts = [_verdict_words(study, told), _trained(study, told), _forest(told), _difference_plot(told), _runs_of_arms(told)]
    return Section("outcome", title, join(*parts))


def outcome_of(study: Study) -> Data:
    """Forecast, naive forecasts, outcome and difference, from whichever of plan, forecast, audit and runs there are.

    Keys: forecast, naive, falsifier, seal, values, outcome, outcome_interval, runs, other_n, other_forecast,
    other_values, difference, C. What is not known is absent or None.
    """
    arm, other, sealed, audited = prescribed_arm(study), comparator(study), study["forecast"], study["audit"]
    values, others = _finals(study, arm), _finals(study, other)
    told: Data = {
        "C": number(sealed.get("C")) or number(arm.get("C")), "forecast": as_dict(sealed.get("interval")) or as_dict(arm.get("prediction")),
        "naive": [as_dict(x) for x in as_list(sealed.get("naive"))], "falsifier": sealed.get("falsifier"), "seal": sealed.get("hash"),
        "values": values, "runs": len(values), "outcome": _mean(values.values()), "outcome_interval": as_dict(audited.get("outcome")),
        "other_n": other.get("n"), "other_forecast": as_dict(other.get("prediction")), "other_values": others,
        "difference": as_dict(audited.get("difference")),
    }
    return told if any(told[k] for k in ("forecast", "values")) else {}


def _mean(values: Any) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _finals(study: Study, arm: Data) -> dict[str, float]:
    """Run name -> last held-out reward on the problems that are reported, for the trained runs of an arm that ended."""
    if not arm:
        return {}
    runs = [r for r in study.of("train") if r.finished and r.n == arm.get("n") and r.evaluations]
    found = {r.name: number(r.evaluations[-1].get(SPLIT)) for r in runs}
    return {k: v for k, v in found.items() if v is not None}


def _verdict_words(study: Study, told: Data) -> Safe:
    forecast = as_dict(told["forecast"])
    text = f"Forecast {interval(forecast)}" if forecast else "There is no forecast with an interval"
    text += f" for the mean of {told['runs'] or 'the'} new runs at {count(told['C'])} rollouts; " if told["C"] else "; "
    text += f"outcome {share(told['outcome'])}." if told["outcome"] is not None else "the runs are still to come."
    verdict = verdict_of(study)
    more = [p(sentence(f"Verdict: {verdict}")), *(p(sentence(x)) for x in [study["audit"].get("why") or study["audit"].get("text")] if x)] if verdict else []
    if told["falsifier"]:
        more.append(p(tag("span", "Sealed before the first token: ", cls="soft"), sentence(told["falsifier"])))
    return join(p(text, cls="lead"), *more)


def _trained(study: Study, told: Data) -> Safe:
    rows, sealed = [], []
    for run in sorted(study.of("train"), key=lambda r: (r.n != prescribed_n(study), r.n or 0, r.name)):
        arm = f"n = {run.n}" + (", prescribed" if run.n == prescribed_n(study) else ", comparator")
        rows += [{"arm": arm, "seed": str(run.seed), "C": x["rollouts"], "reward": x[SPLIT]} for x in run.evaluations if number(x.get("rollouts")) and number(x.get(SPLIT)) is not None]
    forecast = as_dict(told["forecast"])
    if not rows:
        return Safe("")
    if forecast and told["C"]:
        sealed = [{"C": told["C"], "label": "forecast", **{k: forecast.get(k) for k in ("value", "low", "high")}}]
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    alt_text = f"Held-out reward against rollouts for the trained runs of {names(arms)}, with the sealed forecast {interval(forecast)} as a bar at its compute."
    caption = "Each line is one trained run. The grey bar is the sealed prediction interval for the mean of the prescribed runs, its tick the forecast."
    return figure("trained", charts.outcome_curves(rows, sealed, alt_text), alt_text, caption, rows)


def _forest(told: Data) -> Safe:
    rows: list[Data] = []
    if told["forecast"]:
        rows.append(_line("sealed forecast", told["forecast"], "interval"))
    rows += [_line(f"naive: {x.get('name', 'forecast')}", x.get("interval") or x, "guess") for x in told["naive"]]
    if told["outcome"] is not None:
        label = "outcome, mean of the prescribed runs"
        rows.append(_line(label, told["outcome_interval"] or {"value": told["outcome"]}, "outcome"))
        rows += [{"label": label, "value": v, "low": None, "high": None, "role": "run"} for v in told["values"].values()]
    if told["other_forecast"]:
        rows.append(_line(f"expected of n = {told['other_n']}", told["other_forecast"], "interval"))
    if told["other_values"]:
        label = f"outcome of n = {told['other_n']}"
        rows.append(_line(label, {"value": _mean(told["other_values"].values())}, "outcome"))
        rows += [{"label": label, "value": v, "low": None, "high": None, "role": "run"} for v in told["other_values"].values()]
    if not rows:
        return Safe("")
    alt_text = "Forecasts and outcomes: " + "; ".join(f"{r['label']} {interval(r)}" for r in rows if r["role"] != "run")
    caption = "Bars are 90 % intervals, hollow points the naive forecasts to beat, ticks single runs."
    plot = figure("forecast", charts.forest(rows, "held-out reward", alt_text), alt_text, caption, rows)
    body = [[r["label"], share(r["value"]), f"{share(r['low'])} to {share(r['high'])}" if number(r["low"]) is not None else ""] for r in rows if r["role"] != "run"]
    return join(tag("h3", "Forecasts and outcomes"), plot, table(["", "held-out reward", "90 % interval"], body, "Forecasts and outcomes"))


def _line(label: str, x: Any, role: str) -> Data:
    data = as_dict(x) or {"value": number(x)}
    return {"label": label, **{k: number(data.get(k)) for k in ("value", "low", "high")}, "role": role}


def _difference_plot(told: Data) -> Safe:
    difference = as_dict(told["difference"])
    if number(difference.get("value")) is None:
        return Safe("")
    pairs = list(zip(sorted(told["values"].values()), sorted(told["other_values"].values()), strict=False)) if not told.get("pairs") else told["pairs"]
    label = f"prescribed minus n = {told['other_n']}"
    rows = [_line(label, difference, "interval"), *({"label": label, "value": a - b, "low": None, "high": None, "role": "run"} for a, b in pairs)]
    alt_text = f"Paired difference {signed(difference['value'])}, interval {signed(difference.get('low'))} to {signed(difference.get('high'))}."
    caption = "Difference in held-out reward, paired by seed, with its 90 % interval; ticks are single pairs. The dashed line is no difference."
    text = f"{signed(difference['value'])} [{signed(difference.get('low'))}, {signed(difference.get('high'))}]."
    return join(tag("h3", "Difference between the arms"), p(text), figure("difference", charts.forest(rows, "difference in held-out reward", alt_text, zero=True), alt_text, caption, rows))


def _runs_of_arms(told: Data) -> Safe:
    body = [[k, share(v, 4)] for k, v in {**told["values"], **told["other_values"]}.items()]
    return table(["trained run", "held-out reward at the end"], body, "Trained runs") if body else Safe("")
