"""The report: every section, missing and broken records, escaping, and the page in a real browser."""

from __future__ import annotations

import asyncio
import csv
import html
import io
import json
import math
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import CHROMIUM, needs_browser, opened
from fixtures.study_records import NASTY, write_json, write_run, write_study
from isocost import report
from isocost.envs.adapters.browser import Browser
from isocost.errors import UserError
from isocost.laws.law import Fit, FittedArm, Law
from isocost.planner.training.n_growth import n_growth
from isocost.report import charts, theme
from isocost.report.html import brief, csv_text, esc, interval, json_in_html, names, rate, sentence, signed, span
from isocost.report.records import ReportRecords, law_of, load
from isocost.report.sections import contest, fit, headline, outcome, problems
from isocost.report.sections.outcome import trained_lines
from isocost.report.sections.overview import NEAR, apart, overview_plot
from isocost.runs.files import FATES
from isocost.stats.intervals import Noise, spread
from isocost.types import Fate

SECTIONS = [
    "profile",
    "rate",
    "curves",
    "fit",
    "frontier",
    "outcome",
    "spent",
    "time",
    "recipe",
    "rollouts",
    "flags",
    "provenance",
]


class Page(HTMLParser):
    """What a browser would see of a page: elements with their attributes, text by section, scripts."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.scripts: dict[str, str] = {}
        self.words: list[str] = []
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("id") or f"script {len(self.scripts)}"
            self.scripts[self._script] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.words.append(data)
        else:
            self.scripts[self._script] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def of(self, tag: str) -> list[dict[str, Any]]:
        return [attributes for name, attributes in self.elements if name == tag]


def _rows(page: str, key: str) -> list[dict[str, str]]:
    """The numbers behind a plot, as its CSV download has them."""
    link = next(a["href"] for a in Page(page).of("a") if a.get("download") == f"{key}.csv")
    return list(csv.DictReader(io.StringIO(urllib.parse.unquote(link.split(",", 1)[1]))))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, recorded: Callable[..., Path]) -> Path:
    return recorded(tmp_path_factory.mktemp("reports") / "whole")


@pytest.fixture(scope="module")
def page(study: Path) -> str:
    return report.write(study).read_text(encoding="utf-8")


# the whole page ---------------------------------------------------------------------------------------------


def test_sections_stand_in_order_after_the_headline(page: str):
    seen = Page(page)
    assert [a["id"] for a in seen.of("section")] == SECTIONS
    assert page.index('id="answer"') < page.index('id="profile"')
    assert not any("empty" in (a.get("class") or "") for a in seen.of("p")), "a whole study leaves nothing to fill"


def test_headline_names_the_prescription_the_outcome_and_the_verdict(study: Path, page: str):
    plan, audit = (json.loads((study / f"{x}.json").read_text()) for x in ("plan", "audit"))
    top = Page(page[: page.index("<nav")]).text
    assert f"Use n = {plan['arm']['n']}" in top
    for n in plan["equal"]:
        assert str(n) in top
    assert f"{audit['outcome']['mean']:.3f}" in top
    assert {"hit": "held", "miss": "missed"}.get(audit["verdict"], audit["verdict"]) in top


def test_nothing_is_fetched(page: str):
    seen = Page(page)
    for _tag, attributes in seen.elements:
        for name in ("src", "href", "data", "action", "poster", "srcset"):
            where = attributes.get(name) or ""
            assert where == "" or where.startswith(("#", "data:")), f"{name}={where}"
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert seen.of("link") == []


def test_only_the_two_scripts_of_the_page_may_run(page: str):
    policy = next(a["content"] for a in Page(page).of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    runnable = [a for a in Page(page).of("script") if a.get("type") != "application/json"]
    assert len(runnable) == 2
    assert policy.count("'sha256-") == 2
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_what_the_model_wrote_is_shown_and_not_obeyed(page: str):
    assert esc(NASTY) in page
    assert "<img src=x" not in page
    assert '<script>alert("x")' not in page
    assert "&lt;/script&gt;&lt;script&gt;alert(" in page
    assert "\x00" not in page
    page.encode("utf-8")  # a lone surrogate in a record must not get this far


def test_names_from_records_are_escaped(tmp_path: Path):
    write_run(tmp_path, "a", "run", 4, 1024, 1)
    about = json.loads((tmp_path / "a" / "run.json").read_text())
    bad = "<script>x</script>"
    about |= {
        "name": bad,
        "method": bad,
        "machine": {"processor": bad},
        "recipe": {"name": bad, bad: {"fn": bad, "k": bad}},
    }
    write_json(tmp_path / "a" / "run.json", about)
    text = report.write(tmp_path).read_text()
    assert bad not in text
    assert len(re.findall(r"<script>", text)) == 2


def test_every_plot_has_words_and_numbers_beside_it(page: str):
    seen = Page(page)
    plots = [a for a in seen.of("div") if a.get("class") == "plot"]
    links = [a for a in seen.of("a") if a.get("download")]
    assert len(plots) == len(seen.of("figure")) == len(links) >= 5
    for plot, link in zip(plots, links, strict=True):
        spec = json.loads(seen.scripts[plot["data-spec"]])
        assert plot["role"] == "img"
        assert spec["description"] == plot["aria-label"]
        assert len(plot["aria-label"]) > 30
        rows = _rows(page, link["download"].removesuffix(".csv"))
        assert rows
        assert all(None not in r for r in rows)


def test_the_same_records_give_the_same_bytes(study: Path, page: str, tmp_path: Path):
    assert report.write(study, tmp_path / "again.html").read_text(encoding="utf-8") == page
    assert [p.name for p in tmp_path.iterdir()] == ["again.html"], "no temporary file stays behind"


def test_compute_axes_are_logarithmic(page: str):
    spec = Page(page).scripts["spec-reward"]
    assert '"type":"log"' in spec


def test_colours_follow_the_theme(page: str):
    for name in theme.PALETTE:
        assert page.count(f"--{name}:") == 3, "light, dark and print"
    config_and_specs = " ".join(v for k, v in Page(page).scripts.items() if k.startswith(("spec-", "plot-config")))
    assert not re.findall(r'"#[0-9a-f]{6}"', config_and_specs), "a fixed colour would not turn dark"


# what the numbers say ---------------------------------------------------------------------------------------


def test_fates_sum_to_the_meter_and_say_so(study: Path, page: str):
    total = sum(sum(r.fates.values()) for r in load(study).runs) + 8192
    assert "The fates sum to the metered total: " in page
    assert f"= {total:,}." in Page(page).text
    wasted = sum(n for r in load(study).runs for fate, n in r.fates.items() if fate not in ("trained", "evaluation"))
    assert f"; {wasted:,} were paid for and gave no training signal" in Page(page).text and wasted > 0


@pytest.mark.parametrize(("unit", "of_run"), [
    ("rollouts", lambda C: C + 8), ("tokens", lambda C: 3 * C + 20), ("flops", lambda C: 107_000 * (72 * C + 40)),
])
def test_a_budget_is_compared_with_what_was_spent_in_its_unit(study: Path, tmp_path: Path, unit, of_run):
    """A run of C reads 6, writes 3 and trains 9 tokens a rollout, and lost 8 rollouts of 20 tokens: 8 P 9 C + 2 P 20.

    Its evaluations scored 2816 x 9 tokens; the profile read and wrote what its bill says.
    """
    other = shutil.copytree(study, tmp_path / "other")
    found = load(other)
    whole, trained = (
        sum(of_run(r.bill["train"]["rollouts"]) for r in runs) for runs in (found.runs, found.of("train"))
    )
    pilot = json.loads((other / "pilot.json").read_text())
    write_json(other / "pilot.json", pilot | {"budget": {"amount": 2.0 * whole, "unit": unit, "asked": ""}})
    text = _part(report.write(other).read_text(), "spent")
    show = {"flops": lambda x: f"{x:.2e}"}.get(unit, lambda x: f"{x:,.0f}")
    assert f"training {show(trained)} {100 * trained / whole / 2:.1f} % sum {show(whole)} 50.0 %" in text
    evaluated = len(found.runs) * 107_000 * 2 * 256 * 9 * 11 if unit == "flops" else 0
    assert f"not in the budget: evaluations {show(evaluated)}" in text
    assert f"spent {show(whole)}, 50.0 % of it." in text


def test_time_at_the_head_is_the_runs_own(study: Path, tmp_path: Path):
    """Phases of commands that were killed are not written down; what the runs and the profile took is."""
    other = shutil.copytree(study, tmp_path / "other")
    write_json(other / "study.json", json.loads((other / "study.json").read_text()) | {"phases": {"train": 1.0}})
    found = load(other)
    seconds = sum(r.seconds for r in found.runs) + found["profile"]["cost"]["seconds"]
    text = Page(report.write(other).read_text()).text
    assert f"rollouts, {span(seconds)} of run time" in text and seconds > 100


def test_fates_that_do_not_sum_are_called_out(tmp_path: Path):
    home = write_run(tmp_path, "a", "run", 4, 1024, 1)
    end = json.loads((home / "end.json").read_text())
    end["fates"]["trained"] -= 5
    write_json(home / "end.json", end)
    text = Page(report.write(tmp_path).read_text()).text
    assert "The fates do not sum to the metered total" in text
    assert "the meter counted 1,032" in text


def test_what_was_not_recorded_is_a_dash_and_no_zero(tmp_path: Path):
    """Two runs whose bills hold rollouts and updates alone, and one token count of the first; no memory, no work."""
    for seed, more in ((0, {"decode": 700}), (1, {})):
        home = write_run(tmp_path, f"a{seed}", "run", 4, 1024, seed)
        end = json.loads((home / "end.json").read_text())
        write_json(home / "end.json", end | {"bill": {"train": {"rollouts": 1024, "updates": 32, **more}}})
        (home / "timing.jsonl").write_text('{"step": 32, "rollouts": 1024, "seconds": 60}\n')
    text = Page(report.write(tmp_path).read_text()).text
    assert "train 2,048 – 700 – – 64 – –" in text
    assert "2 min 00 s – – – – 17 /s –" in text and "0 MB" not in text


def test_fates_are_those_of_the_types():
    assert set(FATES) == {str(f) for f in Fate}
    assert all(f in theme.PALETTE for f in FATES)


def test_an_asymptote_is_shown_with_its_uncertainty(study: Path, page: str):
    """As the drawn curve has it, over every form, and not as the sigmoid's own best point."""
    law = law_of(load(study))
    assert law is not None
    for n in law.ns:
        level, half = law.parameter(n, "A"), law.parameter(n, "Cmid")
        assert f">{interval(level.data())}</td><td class=\"number\">{brief(half.value)} [{brief(half.low)}, " in page


def test_a_rejected_rate_and_its_reason_are_shown(page: str):
    rejected = [r["run"] for r in _rows(page, "learning-rate") if r["probe"] == "rejected"]
    assert rejected == ["probe-n32-x4-s0"]
    assert "fell below the base" in page


@pytest.mark.parametrize(("rewards", "zero"), [((0.03, 0.03), True), ((0.03, 0.05), False)])
def test_rates_that_changed_nothing_are_drawn_above_0(rewards: tuple[float, ...], zero: bool):
    """One height alone makes no scale: its axis was labelled 0."""
    rows = [{"lr": 1e-4, "nB": 2, "reward": r, "probe": "kept", "run": "a"} for r in rewards]
    assert charts.rates(rows, 0.03, "")["layer"][0]["encoding"]["y"]["scale"]["zero"] is zero


def test_a_refusal_leads(study: Path, tmp_path: Path):
    for name in ("study.json", "profile.json", "plan.json", "law.json"):
        shutil.copy(study / name, tmp_path / name)
    law = json.loads((tmp_path / "law.json").read_text())
    law["refused"] = {"reason": "two arms have one run each", "settle": "two more seeds an arm", "rollouts": 81920.0}
    write_json(tmp_path / "law.json", law)
    top = Page(report.write(tmp_path).read_text().split("<nav")[0]).text
    assert "The pilot does not identify a law. Fallback:" in top and "Two arms have one run each." in top
    assert "To resolve: two more seeds an arm (about 81.9k rollouts)." in top


def test_hashes_are_of_the_files(study: Path, page: str):
    for name, digest in load(study).hashes().items():
        assert name in page
        assert digest in page


# how far to believe it --------------------------------------------------------------------------------------


def _arm(n: int, audit: list[list[float]], C: list[float], curve: tuple[float, float, float]) -> Any:
    """An arm whose fitted curve is a sigmoid with the parameters A, Cmid, b, for every form, draw and fold."""
    rewards, seeds = np.array(audit), tuple(range(len(audit)))
    points = np.array([curve])
    draws = np.column_stack([np.zeros(6), np.tile(curve, (6, 1))])
    own = Fit({"R0": 0.0, **dict(zip(("A", "Cmid", "b"), curve, strict=True))}, points, draws,
              np.tile(points, (len(audit), 1, 1)))
    return FittedArm(n, 8, 1e-3, tuple(f"n{n}-s{s}" for s in seeds), seeds, 0, np.array(C), rewards, rewards,
               np.ones(len(C)), np.ones(len(C)), True, (own, own))


def _law(*arms: Any) -> Any:
    """A law of these arms whose base is 0, its noise pooled as the fit pools it."""
    C = arms[0].C
    rows = [row for arm in arms for row in (arm.audit - arm.audit.mean(0)) / spread(arm.audit.mean(0))]
    dof = float(sum(len(arm.runs) - 1 for arm in arms))
    return Law(arms, (0.0, 0.0), Noise(C, np.array([rows, rows]), dof), np.ones(6), (1.0,), (1.0,), 0.01, 0.9, 0)


def test_each_run_is_compared_with_the_band_of_the_others():
    # Three runs of n = 2 on one curve through 1/2 and a quiet arm beside them. Without its third run n = 2 has two runs
    # at 0.5 -+ 0.01: squares 2 * (0.01 / 0.25)^2 = 0.0032; the quiet arm adds none. Pooled over 2 + 1 - 1 = 2 degrees
    # of freedom: sd = 0.25 * sqrt(0.0016) = 0.01. The band of one new run: t(0.95, 2) = 2.9200 times 0.01 sqrt(1.5).
    curve = (1.0, 4.0, 1.0)
    arms = _arm(2, [[0.49], [0.51], [0.60]], [4.0], curve), _arm(4, [[0.5], [0.5]], [4.0], curve)
    rows = {r["run"]: r for r in fit.leave_one_out(_law(*arms))}
    third = rows["n2-s2"]
    half = 2.9200 * 0.01 * math.sqrt(1.5)
    assert (third["low"], third["high"]) == (pytest.approx(0.5 - half, abs=1e-5), pytest.approx(0.5 + half, abs=1e-5))
    assert not third["held"]
    assert third["place"] == pytest.approx((0.1 + half) / (2 * half), abs=1e-3)
    assert rows["n4-s0"]["held"] and rows["n4-s0"]["place"] == 0.5


def test_too_few_runs_give_no_band():
    assert fit.leave_one_out(_law(_arm(2, [[0.49], [0.51]], [4.0], (1.0, 4.0, 1.0)))) == []
    assert "too few runs" in fit._coverage(_law(_arm(2, [[0.49], [0.51]], [4.0], (1.0, 4.0, 1.0))))


def test_what_lies_past_the_pilot_is_shaded_and_counted(study: Path, page: str):
    plan = json.loads((study / "plan.json").read_text())
    ratio = plan["arm"]["C"] / plan["pilot_C"]
    assert ratio > 1
    spec = json.loads(Page(page).scripts["spec-reward"])
    epochs = plan["arm"]["epochs"] / plan["pilot_epochs"]
    assert f"up to\\n{ratio:.1f}x the pilot's\\nrollouts, {epochs:.1f}x its\\nepochs" in json.dumps(spec)
    shade = next(x for x in spec["layer"] if x["mark"]["type"] == "rect")
    where = json.dumps(spec)
    assert shade["encoding"]["x2"]["field"] == "C2"
    assert f'"C": {plan["pilot_C"]}' in where and f'"C2": {float(plan["arm"]["C"])}' in where
    past = [r for r in _rows(page, "reward") if r["beyond"] == "True"]
    assert {r["n"] for r in past} == {str(n) for n in (2, 4, 8, 16, 32)}
    assert {r["n"] for r in past if r["low"]} == {str(plan["arm"]["n"])}, "one band beyond the pilot, the prescribed"


def test_without_extrapolation_nothing_is_shaded(study: Path):
    found = load(study)
    plan = {**found["plan"], "pilot_C": found["plan"]["arm"]["C"]}
    assert outcome.reach_of(replace(found, files={**found.files, "plan": plan})) == []


def test_the_seal_and_the_runs_that_carry_it_are_beside_the_outcome(study: Path, page: str):
    told, seal = _part(page, "outcome"), json.loads((study / "forecast.json").read_text())["seal"]
    trained = [r for r in load(study).of("train") if r.about["seal"] == seal]
    assert f"Seal {seal[:12]}" in told and f"all of {len(trained)} trained runs have it" in told
    scores = json.loads((study / "audit.json").read_text())["scores"]
    assert [s for s in scores if f"interval score {s['score']:.3f} {s['name']}" not in told] == []


def test_a_recipe_is_compared_with_what_its_run_recorded(tmp_path: Path):
    """Defaults and the parent's recipe are the run's own: what is installed when a report is read may be another code.
    """
    run = write_run(tmp_path, "one", "run", 4, 64, 0)
    about = json.loads((run / "run.json").read_text())
    loss = {"fn": "isocost.parts.loss:clipped", "low": 0.2, "high": 0.9}
    parent = {"method": "grpo", "recipe": {**about["recipe"], "name": "grpo", "loss": {**loss, "high": 0.7}}}
    write_json(run / "run.json", about | {
        "method": "./mine.py", "recipe": about["recipe"] | {"loss": loss | {"high": 0.95}},
        "defaults": about["recipe"] | {"loss": loss}, "parent": parent,
    })
    said = _part(report.write(tmp_path).read_text(encoding="utf-8"), "recipe")
    assert "What ./mine.py changes in grpo" in said
    assert "clipped(high = 0.7, low = 0.2)" in said and "clipped(high = 0.9, low = 0.2)" in said
    assert "high = 0.95" in said
    own = {"fn": "isocost.methods.isoeasy:advantage", "std": False}
    parent["recipe"] |= {"advantage": own | {"fn": "isocost.methods.grpo:advantage"}}
    write_json(run / "run.json", about | {"defaults": about["recipe"] | {"advantage": own}, "parent": parent})
    said = _part(report.write(tmp_path).read_text(encoding="utf-8"), "recipe")
    assert "methods.grpo:advantage(std = False)" in said and "methods.isoeasy:advantage(std = False)" in said


def _part(page: str, key: str) -> str:
    """A section's text."""
    return Page(page[page.index(f'<section id="{key}"') :].split("</section>")[0]).text


def test_a_law_or_a_forecast_changed_after_the_seal_shows(study: Path, tmp_path: Path):
    shutil.copytree(study, tmp_path / "s")
    law = json.loads((tmp_path / "s" / "law.json").read_text())
    write_json(tmp_path / "s" / "law.json", law | {"margin": 0.02})
    forecast = json.loads((tmp_path / "s" / "forecast.json").read_text())
    write_json(tmp_path / "s" / "forecast.json", forecast | {"falsifier": "nothing"})
    page = report.write(tmp_path / "s").read_text()
    top = Page(page.split("<nav")[0]).text
    assert "Changed after the seal: forecast.json, law.json." in top and "whether it held is not known" in top
    assert "The forecast held" not in Page(page).text and "the forecast held" not in top


def test_a_run_of_another_seal_shows(study: Path, tmp_path: Path):
    other = shutil.copytree(study, tmp_path / "s")
    one = load(other).of("train")[0]
    write_json(one.folder / "run.json", one.about | {"seal": "another"})
    assert f"without the seal: {one.name}." in _part(report.write(other).read_text(), "outcome")


def test_what_was_sealed_is_shown_and_not_a_plan_made_anew(study: Path, tmp_path: Path):
    again = shutil.copytree(study, tmp_path / "again")
    plan = json.loads((again / "plan.json").read_text())
    for arm in (plan["arm"], *plan["arms"]):
        arm["C"] *= 2
        if arm["prediction"]:
            arm["prediction"] |= {"value": 0.111, "low": 0.1, "high": 0.122}
    write_json(again / "plan.json", plan)
    sealed, told = json.loads((again / "forecast.json").read_text()), outcome.outcome_of(load(again))
    assert (told["C"], told["forecast"]["value"]) == (sealed["C"], sealed["value"])


def test_whether_the_best_n_grows_is_said_beside_the_frontier(study: Path, page: str, tmp_path: Path):
    said = n_growth(4000, 100, [10] + [0] * 15 + [90])
    assert said is not None and said.text not in _part(page, "frontier")
    copy = shutil.copytree(study, tmp_path / "s")
    plan = json.loads((copy / "plan.json").read_text(encoding="utf-8"))
    write_json(copy / "plan.json", {**plan, "growth": said.data()})
    assert " ".join(said.text.split()) in " ".join(_part(report.write(copy).read_text(), "frontier").split())


def test_the_headline_compares_at_equal_cost_and_with_the_best_at_the_pilots_end_too(tmp_path: Path):
    gained = {"value": None, "mean": 0.02, "low": 0.01, "high": 0.03}
    lost = {"n": 2, "difference": {"mean": -0.01, "low": -0.03, "high": 0.01}}
    data = {"n": 4, "other_n": 8, "difference": {"value": 0.02, "low": 0.01, "high": 0.03}}

    def said(budget, audit) -> str:
        return headline._difference(ReportRecords(tmp_path, {"plan": {"budget": budget}, "audit": audit}, ()), data)

    alone = said(None, {"difference": gained})
    assert alone.startswith("At equal rollouts the reward of n = 4 minus that of n = 8 is +0.020 [+0.010, +0.030]")
    assert alone.endswith("the prescription is better.")
    timed = said({"amount": 60.0, "unit": "seconds"}, {"difference": gained, "leader": lost})
    assert timed.startswith("At equal seconds the reward of n = 4 minus that of n = 8 is +0.020 ")
    assert timed.endswith("Minus that of n = 2, the best at the pilot's end, it is −0.010 [−0.030, +0.010].")


def test_a_fallback_is_not_called_best(study: Path, tmp_path: Path):
    other = shutil.copytree(study, tmp_path / "other")
    plan = json.loads((other / "plan.json").read_text())
    write_json(other / "plan.json", plan | {"fallback": "the law refuses", "equal": [plan["arm"]["n"]]})
    page = Page(report.write(other).read_text()).text
    assert "no n is called best" in page and "is best to within" not in page


def test_only_n_that_were_tried_and_are_known_are_called_worse(study: Path):
    found = load(study)
    arm = found["plan"]["arm"]
    plan = {**found["plan"], "equal": [arm["n"]], "fallback": "", "risk": None}     # as earlier versions planned
    now = {"risk": {"reward": 0.0, "share": None}, "chosen": f"n = {arm['n']}: it has the highest expected reward"}
    law = law_of(found)

    def top(law, **changes):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(headline, "law_of", lambda study: law)
            return headline._sentence(replace(found, files={**found.files, "plan": plan | changes}), {})

    assert top(law).endswith("rollouts, every other n is worse.")
    alone = replace(law, arms=tuple(a for a in law.arms if a.n == arm["n"]))
    assert top(alone).endswith("rollouts, no other n was tried.") and top(alone, **now) == top(alone)
    assert top(law, **now) == f"Use n = {arm['n']}: it has the highest expected reward."
    more = now | {"chosen": f"{now['chosen']}; n = 2 is equal, within 0.01"}
    for changes, below in ((now, ""), (more, "n = 2 is equal, within 0.01")):     # nothing is said twice
        assert headline._chosen(replace(found, files={**found.files, "plan": plan | changes}))[1] == below
    other = next(n for n in law.ns if n != arm["n"])
    unknown = type("Unknown", (), {"ns": law.ns, "unknown": lambda self, C: [other]})()
    assert top(unknown).endswith(f"rollouts, the reward of n = {other} is not identified, every other n is worse.")


def test_a_graded_profile_is_not_called_pass_1(study: Path):
    found = load(study)
    files = {"profile": {**found["profile"], "graded": True}}
    top = Page(headline.answer(replace(found, files=files, runs=()))).text
    assert "mean reward is" in top and "pass@1" not in top


def test_a_page_of_another_metric_is_of_that_metric_throughout(study: Path, tmp_path: Path):
    """The same study with half of its pass@1 as best@4: points and outcomes are those, and no word says otherwise."""
    other = shutil.copytree(study, tmp_path / "other")
    write_json(other / "study.json", json.loads((other / "study.json").read_text()) | {"metric": "best@4"})
    for path in other.glob("runs/*/metrics.jsonl"):
        lines = [json.loads(x) for x in path.read_text().splitlines()]
        halves = [{f"{k}/best@4": x[k] / 2 for k in ("eval/select", "eval/audit") if k in x} for x in lines]
        path.write_text("".join(json.dumps(x | half) + "\n" for x, half in zip(lines, halves, strict=True)))
    before, now = load(study), load(other)
    for a, b in zip(before.runs, now.runs, strict=True):
        assert [x["eval/audit"] for x in b.evaluations] == [x["eval/audit"] / 2 for x in a.evaluations]
    page = report.write(other).read_text()
    assert "held-out best@4" in page and "eld-out reward" not in page


# a comparison -----------------------------------------------------------------------------------------------


def _comparison(folder: Path) -> Path:
    """Two arms of three runs each, judged by the judge itself."""
    from isocost.compare.judge import compare
    from isocost.laws.tracks import tracks

    for arm, n in (("mine", 4), ("yours", 32)):
        for seed in (1, 2, 3):
            write_run(folder / "runs", f"train-{arm}-s{seed}", "train", n, 8192, seed)
    arms = {a: tracks(sorted((folder / "runs").glob(f"train-{a}-s*")), "rollouts", "pass@1") for a in ("mine", "yours")}
    told = compare(arms, unit="rollouts", margin=0.01, seed=0)
    write_json(folder / "comparison.json", {"schema": 1, **told.data()})
    return folder


def test_a_comparison_shows_its_answers_and_all_curves(tmp_path: Path):
    text = report.write(_comparison(tmp_path)).read_text()
    told, seen = json.loads((tmp_path / "comparison.json").read_text()), Page(text)
    assert [a["id"] for a in seen.of("section")][:2] == ["answers", "curves"]
    assert not {"outcome", "frontier"} & {a["id"] for a in seen.of("section")}
    rows = _rows(text, "reward")
    assert {r["run"] for r in rows} == {Path(x).name for a in told["arms"] for x in a["runs"]}
    assert {r["arm"] for r in rows} == {"mine", "yours"}
    for verdict in told["verdicts"]:
        words = f"{verdict['better']} is better" if verdict["better"] in ("mine", "yours") else "cannot tell"
        assert words in _part(text, "answers")
    if told["best"]:
        assert f"{told['best']} is better (" in seen.text and "at 8,192 rollouts per run" in seen.text
    assert len([r for r in _rows(text, "arms") if r["role"] == "run"]) == 6


def test_rates_of_a_comparison_are_in_the_order_of_its_arms(tmp_path: Path):
    found = load(_comparison(tmp_path))
    answer = {**found["comparison"], "rates": {"mine": 1e-4, "yours": 2e-4}}
    answer["arms"] = answer["arms"][::-1]
    text = contest.answers(replace(found, files={**found.files, "comparison": answer})).body.split("<table>")[1]
    assert text.index("yours") < text.index("mine") and text.index("0.0002") < text.index("0.0001")


def test_a_comparison_under_way_has_no_answer_yet(tmp_path: Path):
    _comparison(tmp_path)
    (tmp_path / "comparison.json").unlink()
    write_json(tmp_path / "compare.json", {"schema": 1, "design": {"arms": {"mine": "mine", "yours": "yours"}}})
    text = report.write(tmp_path).read_text()
    assert "mine and yours are being compared; there is no answer yet" in Page(text).text
    assert "isocost compare" in _part(text, "answers")
    assert {r["arm"] for r in _rows(text, "reward")} == {"mine", "yours"}


def test_the_mean_of_an_arm_is_over_its_kth_evaluations():
    rows = [{"arm": "a", "run": r, "C": c, "reward": y}
            for r, c, y in (("s1", 100, 0.2), ("s1", 400, 0.6), ("s2", 100, 0.4), ("s2", 900, 0.8))]
    first, second = contest.means(rows)
    assert (first["C"], first["reward"]) == (100.0, 0.3)
    assert (second["C"], second["reward"]) == (600.0, 0.7)       # the geometric mean of 400 and 900
    assert contest.means(rows[:-1]) == [], "runs that differ in their evaluations have no common mean"


# missing and broken records ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("upto", "step"), [("profile", "isocost pilot"), ("pilot", "isocost fit"), ("plan", "isocost train")]
)
def test_a_study_under_way_says_what_comes_next(recorded: Callable[..., Path], tmp_path: Path, upto: str, step: str):
    text = Page(report.write(recorded(tmp_path, upto)).read_text())
    assert [a["id"] for a in text.of("section")] == SECTIONS
    assert step in text.text


def test_a_direct_plan_promises_no_law(study: Path):
    found = load(study)
    direct = replace(found, files={"plan": {**found["plan"], "direct": True}})
    assert "the plan fixed n" in fit.fit(direct).body
    assert "isocost fit" in fit.fit(replace(found, files={})).body


def test_runs_without_a_study(tmp_path: Path):
    for seed in (1, 2):
        write_run(tmp_path, f"mine-{seed}", "run", 8, 2048, seed)
    text = Page(report.write(tmp_path).read_text())
    assert "2 runs: held-out reward went from" in text.text
    assert "spec-reward" in text.scripts
    one = Page(report.write(tmp_path / "mine-1", tmp_path / "one.html").read_text())
    assert "One run: held-out reward went from" in one.text


def test_a_run_under_way_counts_its_journal(tmp_path: Path):
    home = write_run(tmp_path, "a", "run", 4, 1024, 1, finished=False)
    (home / "journal.jsonl").write_text('{"fates": ["trained", "dead"]}\n{"fates": ["stale"]}\n{"fates": ["tra')
    assert load(tmp_path).runs[0].fates == {"trained": 1, "dead": 1, "stale": 1}
    assert "has not ended" in Page(report.write(tmp_path).read_text()).text


def test_broken_records_are_named_and_the_page_opens(tmp_path: Path):
    write_study(tmp_path, upto="profile")
    (tmp_path / "rate.json").write_text("{torn")
    (tmp_path / "audit.json").write_text("[1, 2]")
    text = Page(report.write(tmp_path).read_text()).text
    assert "rate.json" in text
    assert "is not whole JSON" in text
    assert "it is a list of 2, expected an object" in text


def test_nothing_to_report_is_the_users_mistake(tmp_path: Path):
    with pytest.raises(UserError, match="neither a study nor a run"):
        report.write(tmp_path)
    with pytest.raises(UserError, match="is not a directory"):
        report.write(tmp_path / "nowhere")


def test_odd_values_do_not_stop_the_page(tmp_path: Path):
    write_study(tmp_path, upto="profile")
    told = json.loads((tmp_path / "profile.json").read_text())
    told |= {"mean": None, "dead": [], "histogram": None, "lengths": {}, "methods": None, "recipe": None, "cost": {}}
    write_json(tmp_path / "profile.json", told)
    assert [a["id"] for a in Page(report.write(tmp_path).read_text()).of("section")] == SECTIONS


# small pieces -----------------------------------------------------------------------------------------------


def test_escaping():
    assert esc('<b a="1">&') == "&lt;b a=&quot;1&quot;&gt;&amp;"
    assert esc("a\x00b\x1b[31m\tc\n") == "a␀b␛[31m\tc\n"
    assert esc("\ud800") == "?"
    assert esc("a\u202eb") == "a[U+202E]b"
    assert "</" not in json_in_html({"x": "</script><!--"})
    assert json.loads(json_in_html({"x": "</script>&", "y": float("nan")})) == {"x": "</script>&", "y": None}
    assert html.unescape(esc(NASTY[:40])) == NASTY[:40]


def test_numbers_read_well():
    assert interval({"value": 0.5, "low": -0.1, "high": 1}) == "0.500 [−0.100, 1.000]"
    assert interval({"value": 0.5, "low": None, "high": None}) == "0.500"
    assert (signed(0.0123), signed(-0.0002), signed(0.0)) == ("+0.012", "−0.0002", "+0.000")
    assert (brief(131072), brief(8192), brief(12), brief(None)) == ("131k", "8.19k", "12", "–")
    assert (span(3.42), span(68.1), span(7384), span(float("nan"))) == ("3.4 s", "1 min 08 s", "2 h 03 min", "–")
    assert (rate(6e-4), rate(1.0)) == ("6.0e−4", "1.0e0")
    assert (names([4]), names([2, 4, 8]), names([])) == ("4", "2, 4 and 8", "none")
    assert (sentence("the rule"), sentence("n=4 wins.")) == ("The rule.", "n=4 wins.")


def test_csv_keeps_every_column():
    assert csv_text([{"a": 1}, {"a": 2, "b": "x,y"}]) == 'a,b\n1,\n2,"x,y"\n'


def test_colours_of_n_are_ordered_and_apart():
    assert theme.series_colours(2) == ["var(--n0)", "var(--n6)"]
    assert len(set(theme.series_colours(7))) == 7
    assert len(theme.series_colours(9)) == 9
    assert theme.solid({"a": ["var(--n0)"]}, dark=True) == {"a": ["#fde725"]}


def test_the_main_plot_as_a_picture(study: Path):
    light, dark = (theme.svg(overview_plot(load(study))[0], dark=d) for d in (False, True))
    assert light.startswith("<svg")
    assert "var(--" not in light + dark
    assert light.count('stroke-width="3.2"') == 2, "the prescribed n stands out, seen and beyond"
    edge = re.search(r'transform="translate\((\d+),', light)
    assert edge and int(edge[1]) >= theme.ROOM["left"] + 40, "room for labels in a wider font than was measured with"
    assert theme.PALETTE["n0"][0] in light
    assert theme.PALETTE["n0"][1] in dark


def test_the_page_opens_with_the_study_in_one_picture(study: Path, page: str):
    _, alt_text, rows = overview_plot(load(study))
    kinds = {r["kind"] for r in rows}
    assert kinds == {"pilot", "run", "forecast", "mean at the end"} and "sealed forecast" in alt_text
    assert page.index('id="plot-overview"') < page.index("<nav") < page.index('id="plot-reward"')
    assert "At equal rollouts the reward of n = " in page
    audited = json.loads((study / "audit.json").read_text())
    plan = json.loads((study / "plan.json").read_text())
    arms = [plan["arm"]["n"], next(a["n"] for a in plan["arms"] if a["n"] != plan["arm"]["n"])]
    ends = {x["n"]: (x["C"], x["reward"]) for x in rows if x["kind"] == "mean at the end"}
    assert ends == {n: (plan["arm"]["C"], audited[k].get("value", audited[k].get("mean")))
                    for n, k in zip(arms, ("outcome", "comparison"), strict=True)}


def test_the_best_at_the_pilots_end_is_drawn_at_its_own_rollouts(study: Path, tmp_path: Path):
    other = shutil.copytree(study, tmp_path / "other")
    plan, audited = (json.loads((other / f"{name}.json").read_text()) for name in ("plan", "audit"))
    run = next(r for r in load(other).of("train") if r.size("n") != plan["arm"]["n"])
    arms = [{**a, "role": "leader", "C": a["C"] // 2} if a["n"] == run.size("n") else a for a in plan["arms"]]
    write_json(other / "plan.json", plan | {"arms": arms})
    write_json(other / "audit.json", audited | {"leader": {
        "arm": {"n": run.size("n")}, "comparison": {"mean": 0.31, "low": 0.3, "high": 0.32, "values": [0.31]},
        "better": "leader", "difference": {"mean": -0.12, "low": -0.2, "high": -0.1, "values": [-0.12]}}})
    found = load(other)
    _, alt_text, rows = overview_plot(found)
    assert {"n": run.size("n"), "C": plan["arm"]["C"] // 2, "reward": 0.31, "kind": "mean at the end"} in rows
    assert f"n = {run.size('n')}: 0.310" in alt_text
    lines = {r["what"] for r in trained_lines(found) if r["n"] == run.size("n")}
    assert lines == {f"n = {run.size('n')}, best at the pilot's end"}
    page = report.write(other).read_text()
    assert "audit.json was written by another version" in page, "a leader of which the record has only a part"


def test_labels_are_moved_apart_and_no_further_than_needed():
    placed = apart([(0.9, "a"), (0.9, "b"), (0.5, "c")], extent=1.0)
    assert [text for _, text in placed] == ["c", "a", "b"]
    assert placed[0][0] == 0.5 and placed[2][0] - placed[1][0] == pytest.approx(NEAR)
    assert placed[1][0] + placed[2][0] == pytest.approx(1.8)


# in the browser ---------------------------------------------------------------------------------------------


def _browse(page: Path, profile: Path, *more: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--enable-logging=stderr",
        "--log-level=0",
        "--virtual-time-budget=10000",
        *more,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs_browser
def test_plots_draw_in_a_browser_without_a_network(study: Path, page: str, tmp_path: Path):
    out = tmp_path / "page.html"
    out.write_text(page, encoding="utf-8")
    found = _browse(out, tmp_path / "profile", "--dump-dom")
    said = [line for line in found.stderr.splitlines() if "CONSOLE" in line]
    assert said == []
    drawn = re.search(r'data-drawn="(\d+)/(\d+)"', found.stdout)
    assert drawn, "the drawing script did not finish"
    count = len(Page(page).of("figure"))
    assert drawn.groups() == (str(count), str(count))
    assert found.stdout.count("<svg") >= count
    assert found.stdout.count('class="plot failed"') == 0
    assert "<title>owned" not in found.stdout


LEGENDS = """[...document.querySelectorAll('.plot')].map((plot) => {
  const { left, right } = plot.getBoundingClientRect();
  const cut = [...plot.querySelectorAll('.role-legend text')].filter((t) => t.getBoundingClientRect().left < left - 1 ||
    t.getBoundingClientRect().right > right + 1);
  return [plot.dataset.spec, Number(plot.dataset.legend), cut.map((t) => t.textContent)]; })"""


@needs_browser
def test_legends_stay_in_their_pictures_at_the_width_of_a_phone(tmp_path: Path):
    """A legend has as many columns as fit; a window that is made narrower or wider changes that."""
    for seed in range(4):
        write_run(tmp_path, f"a-run-of-seed-{seed}", "run", 8, 2048, seed)
    out = report.write(tmp_path)

    async def look() -> None:
        browser = Browser()
        try:
            tab = await opened(browser, out, 390)
            found = await tab.run(LEGENDS)
            assert [x for x in found if x[2]] == []
            assert any(x[1] for x in found), "some legends are too wide for a phone"
            for width, narrow in ((1280, False), (390, True)):
                await browser.call("Emulation.setDeviceMetricsOverride", tab.session, width=width, height=900,
                                   deviceScaleFactor=1, mobile=False)
                for _ in range(100):
                    await asyncio.sleep(0.1)
                    found = await tab.run(LEGENDS)
                    if any(x[1] for x in found) == narrow and not any(x[2] for x in found):
                        break
                assert [x for x in found if x[2]] == [] and any(x[1] for x in found) == narrow
        finally:
            browser.close()

    asyncio.run(look())


@needs_browser
def test_a_page_under_way_draws_too(tmp_path: Path):
    out = report.write(write_study(tmp_path / "early", upto="profile"))
    found = _browse(out, tmp_path / "profile", "--dump-dom")
    assert [line for line in found.stderr.splitlines() if "CONSOLE" in line] == []
    drawn = re.search(r'data-drawn="(\d+)/(\d+)"', found.stdout)
    assert drawn
    assert drawn[1] == drawn[2] != "0"


def test_methods_of_one_precondition_share_a_row():
    rows = [{"name": x, "state": "holds", "why": "w"} for x in ("one", "two", "six")]
    assert "one, two, six" in str(problems._methods({"methods": rows}))


def test_the_script_of_reports_is_made_once_for_all_commands(tmp_path, monkeypatch):
    import vl_convert

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda *code, **how: made.append(code) or "a</script b<!-- c")
    first, second = theme.bundle.__wrapped__(), theme.bundle.__wrapped__()      # as two processes call it
    assert first == second == "a<\\/script b<\\!-- c" and len(made) == 1
    (kept,) = (tmp_path / "isocost").iterdir()
    kept.write_bytes(b"window.other()")
    assert theme.bundle.__wrapped__() == first and len(made) == 2
    monkeypatch.setattr(theme, "version", lambda name: "another")
    assert theme.bundle.__wrapped__() == first and len(made) == 3       # that of another version is not used


@pytest.mark.parametrize(("trainer", "whose"), [
    (None, "The runs were imported: their logs do not contain this"),
    ({"kind": "cmd", "command": "python t.py <b>"}, "The runs are of your trainer: its log does not contain this"),
])
def test_a_page_on_runs_of_a_trainer_says_who_launched_them(tmp_path, trainer, whose):
    """What nobody named is left out of the line on the study; runs that isocost launches were not imported."""
    there = write_study(tmp_path / "s", upto="pilot")
    about = json.loads((there / "study.json").read_text())
    about["setting"] |= {"model": "not named", "data": "not named"}
    write_json(there / "study.json", about | ({"trainer": trainer} if trainer else {"imported": True}))
    for run in (there / "runs").glob("*/run.json"):
        write_json(run, json.loads(run.read_text()) | {"imported": {"name": "x"}})
    (there / "profile.json").unlink()
    text = report.write(there).read_text()
    assert whose in text and "not named" not in text.split("<main")[0].split("</header>")[0]
    assert ("trained by python t.py &lt;b&gt;" in text) == bool(trainer)
