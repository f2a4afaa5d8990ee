"""Steps as functions: what they return, print and draw, and a study from Python."""

import asyncio
import builtins
import copy
import importlib
import json
import tarfile
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import FrozenInstanceError, replace
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import isocost
from isocost import gather
from isocost.cli import commands
from isocost.cli.printer import Printer, show
from isocost.disk.jsonfile import page
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.training import pilot as pilots
from isocost.planner.training import prescription as plans
from isocost.runs.arm import Arm
from isocost.runs.record import read_json
from isocost.screen.display import OfPlanner, Result, Row, Table, TextResult
from isocost.steps import api, kinds
from isocost.steps.events import SILENT, Evaluated, Observer, Started, Warned
from isocost.steps.look.evaluate import EvaluationResult, ModelEvaluation, evaluate
from isocost.steps.look.listing import Listing, RunRow
from isocost.steps.outside.trainer import TrainerProfile
from isocost.steps.quickstart import QuickstartResult
from isocost.steps.settings import setting_with
from isocost.steps.study import StudyRecord
from isocost.steps.training.audit import AuditResult, audit
from isocost.steps.training.fit import LawResult, NoLaw, fit
from isocost.steps.training.pilot import PilotResult, pilot
from isocost.steps.training.plan import plan
from isocost.steps.training.plans import PilotPlanResult, PlanOptions, PlanResult
from isocost.steps.training.profile import ProfileCost, ProfileResult, profile
from isocost.steps.training.single import RunCost, RunEnd, train_one
from isocost.steps.training.train import ForecastResult, TrainResult, train
from isocost.worlds.setting import Setting
from trees import sources

ARCHIVE = Path(__file__).parent / "fixtures" / "records_cf90da5.tar.xz"
DATA = "sums:base=easy,count=40"


class Kept(Observer):
    """Keeps what a step says."""

    def __init__(self):
        self.events, self.ran = [], []

    def on(self, event):
        self.events.append(event)

    @contextmanager
    def running(self, title, folder, jobs):
        self.ran.append((title, [job.name for job in jobs]))
        yield lambda: None


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Recorded studies: `tiny`, sealed and audited, and `imp`, of imported logs."""
    here = tmp_path_factory.mktemp("records")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(here, filter="data")
    return here / "before"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 64 rollouts: its folder, its result, and what it said."""
    out, kept = tmp_path_factory.mktemp("runs") / "r", Kept()
    end = train_one("grpo", setting_with(data=DATA), budget="64-rollouts", out=out, rollouts=4, groups=4, lr=1e-4,
                    evaluations=1, observer=kept)
    return out, end, kept


def printed(*args, code=0):
    """What a command printed."""
    done = CliRunner().invoke(commands.main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.stderr)
    return done.stdout


def plain(result):
    return json.loads(page(result.to_dict()))


# results and --json ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "step", "kind"), [
    (("plan", "tiny"), lambda old: plan(StudyRecord.read(old / "tiny")), PlanResult),
    (("plan", "imp"), lambda old: kinds.plan(StudyRecord.read(old / "imp"), {}), PlanResult),
    (("fit", "tiny"), lambda old: fit(StudyRecord.read(old / "tiny")), LawResult),
    (("fit", "imp"), lambda old: fit(StudyRecord.read(old / "imp")), LawResult),
    (("pilot", "tiny"), lambda old: pilot(StudyRecord.read(old / "tiny")), PilotResult),
    (("pilot", "tiny", "--dry-run"), lambda old: pilot(StudyRecord.read(old / "tiny"), dry_run=True), PilotPlanResult),
    (("train", "--plan", "tiny"), lambda old: train(StudyRecord.read(old / "tiny")), TrainResult),
    (("train", "--plan", "tiny", "--dry-run"), lambda old: train(StudyRecord.read(old / "tiny"), dry_run=True),
     PlanResult),
    (("audit", "tiny"), lambda old: audit(StudyRecord.read(old / "tiny")), AuditResult),
], ids=lambda x: " ".join(x) if isinstance(x, tuple) else "")
def test_to_dict_is_what_the_command_prints_as_json(old, monkeypatch, command, step, kind):
    monkeypatch.chdir(old)
    found = step(old)
    assert type(found) is kind
    code = found.exit_code if isinstance(found, AuditResult) else 0
    assert json.loads(printed(*command, "--json", code=code)) == plain(found)


def test_a_profile_is_its_record_and_its_dry_run_a_cost(tmp_path):
    options = ("--data", DATA, "--problems", 6, "--out", tmp_path / "s")
    setting = setting_with(data=DATA)
    cost = profile(tmp_path / "s", setting, problems=6, dry_run=True)
    assert json.loads(printed("profile", *options, "--dry-run", "--json")) == plain(cost)
    assert cost.rollouts == 96 and not (tmp_path / "s").exists()
    found = profile(tmp_path / "s", setting, problems=6)
    assert json.loads(printed("profile", *options, "--json")) == plain(found)
    assert plain(found) == read_json(tmp_path / "s" / "profile.json")
    planned = plan(StudyRecord.read(tmp_path / "s"), PlanOptions(size="tiny"))
    assert json.loads(printed("plan", tmp_path / "s", "--json")) == plain(planned)
    assert plain(planned) == read_json(tmp_path / "s" / "pilot.json")
    assert planned.profiled == 96 and isinstance(planned.plan, pilots.PilotPlan)


def test_a_run_returns_its_end_and_says_what_it_does(run):
    out, end, kept = run
    assert end.exit_code == 0 and plain(end) == read_json(out / "end.json")
    assert type(kept.events[0]) is Started
    points = [e for e in kept.events if isinstance(e, Evaluated)]
    assert [e.rollouts for e in points] == [0, 16, 64] and all(0 <= e.reward <= 1 for e in points)
    again = printed("train", "grpo", "--data", DATA, "--budget", "64-rollouts", "-n", 4, "-B", 4, "--lr", "1e-4",
                    "--evaluations", 1, "--out", out, "--json")
    assert json.loads(again) == plain(end)


def test_the_dry_run_of_a_run_is_a_cost(run, tmp_path):
    cost = train_one("grpo", setting_with(data=DATA), budget="64-rollouts", out=tmp_path / "r", rollouts=4, groups=4,
                     dry_run=True)
    assert cost.bill.rollouts == 64 and cost.to_dict() == cost.bill.data() | {"pricing": dict(cost.pricing)}
    assert read_json(tmp_path / "r" / "dry-run.json")["cost"] == cost.pricing


def test_a_policy_measured_again_has_intervals_and_a_paired_difference(run):
    out, _, _ = run
    found = evaluate(out, base=True)
    assert plain(found) == read_json(out / "eval.json")
    assert found.difference.value == pytest.approx(found.final.value - found.base.value)
    told = json.loads(printed("eval", out, "--base", "--json"))
    assert set(told) == set(plain(found)) and told["final"] == plain(found)["final"]


def test_results_are_frozen_and_every_one_has_a_text(old, run):
    _, end, _ = run
    made = [*(step(StudyRecord.read(old / "tiny")) for step in (plan, fit, audit)), end]
    for result in made:
        with pytest.raises(FrozenInstanceError):
            result.folder = None
    for kind in (ProfileResult, ProfileCost, TrainerProfile, PilotPlanResult, PilotResult, LawResult, NoLaw, PlanResult,
                 ForecastResult, TrainResult, AuditResult, QuickstartResult, RunCost, RunEnd, EvaluationResult,
                 ModelEvaluation):
        assert kind.rows is not Result.rows and kind.rows.__doc__, kind      # the terminal prints these
        assert not kind.__doc__.startswith(f"{kind.__name__}("), f"{kind.__name__} has no docstring of its own"


def test_only_a_study_and_texts_have_no_rows():
    for name in ("compare.gate", "doctor.finding", "steps.look.environments", "steps.look.kept_rollouts",
                 "steps.look.laws", "steps.look.listing", "steps.look.verdict", "steps.outside.importing"):
        importlib.import_module(f"isocost.{name}")
    kinds = {kind for found in (Result, *Result.__subclasses__()) for kind in found.__subclasses__()}
    bare = {k.__name__ for k in kinds - {TextResult, OfPlanner}
            if k.rows is Result.rows and not issubclass(k, TextResult) and k.__module__.startswith("isocost.")}
    assert bare == {"Study"}


def test_a_list_of_runs_names_the_sizes_that_their_arms_have():
    row = RunRow("r", "m", "train", Arm({"depth": 3, "lr": 1e-4}), 0, 10, "spent", "rollouts", "held-out", (0, 1), 0.1,
                 0.2)
    (table,) = Listing((row,)).rows()
    assert dict(zip(table.heads, *table.cells, strict=True)) == {
        "run": "r", "method": "m", "purpose": "train", "depth": "3", "lr": "1.0e-04", "seed": "0", "rollouts": "10",
        "held-out": "0.100 -> 0.200", "ended": "spent"}


def test_the_terminal_and_a_notebook_print_the_same_rows(old, capsys):
    study = isocost.open(old / "tiny")
    for found in (study.profile(), study.plan(), study.fit(), study.audit()):
        show(found, Console(width=1000))
        lines, html = capsys.readouterr().out.splitlines(), unescape(found._repr_html_())
        assert lines[:2] == ["", found.heading]
        for row in found.rows():
            if isinstance(row, Table):
                for cells in row.cells:
                    assert " ".join(cells).split() in [line.split() for line in lines]
                    assert all(f">{cell}</t" in html for cell in cells)
            else:
                said = f"! {row.text}" if row.kind == "flag" else row.text
                assert f"  {row.name}: {said}" in lines or f"  {said}" in lines
                same = [r for r in found.rows() if isinstance(r, Row) and r.text == row.text]
                assert html.count(f">{row.text}<") == len(same)


def test_what_stands_beside_a_plan_is_not_in_what_a_forecast_is_sealed_from(old):
    found = plan(StudyRecord.read(old / "tiny"))
    written = read_json(old / "tiny" / "plan.json")
    assert found.plan.data() == plans.Plan.of(written).data()
    assert not set(plans.BESIDE) & set(found.plan.data())
    sizes = ("n", "B", "M", "C", "lr")
    assert tuple(getattr(found, k) for k in sizes) == tuple(written["arm"][k] for k in sizes)
    assert found.forecast.interval == found.arm.prediction and found.forecast.runs == found.seeds


def test_a_result_has_what_the_value_of_the_planner_has(old):
    found = plan(StudyRecord.read(old / "tiny"))
    assert found.seeds == found.plan.seeds and found.arm is found.plan.arms[0] and found.risks == found.plan.risks
    with pytest.raises(AttributeError, match="no attribute"):
        _ = found.sedes
    assert not hasattr(found, "_private") and copy.copy(found) == found


# observers ------------------------------------------------------------------------------------------------------------


def test_a_step_hands_its_rule_its_forecast_and_its_jobs_to_the_observer(old):
    kept = Kept()
    pilot(StudyRecord.read(old / "tiny"), observer=kept)
    train(StudyRecord.read(old / "tiny"), workers=7, observer=kept)
    kinds = [type(e).__name__ for e in kept.events]
    assert kinds == ["RateRule", "ForecastResult", "Warned"]
    assert isinstance(kept.events[2], Warned) and "run with 7" in kept.events[2].text
    assert [title for title, _ in kept.ran] == ["learning-rate probe", "pilot", "training"]


def test_a_step_without_an_observer_prints_nothing(old, capfd):
    pilot(StudyRecord.read(old / "tiny"))
    fit(StudyRecord.read(old / "tiny"))
    plan(StudyRecord.read(old / "tiny"))
    train(StudyRecord.read(old / "tiny"))
    audit(StudyRecord.read(old / "tiny"))
    assert capfd.readouterr() == ("", "")


# in a notebook --------------------------------------------------------------------------------------------------------


def test_a_study_in_ipython_says_how_far_it_is_and_elsewhere_nothing(old, monkeypatch):
    assert isocost.open(old / "tiny").observer is SILENT
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    kept = Kept()
    assert isinstance(isocost.open(old / "tiny").observer, Printer)
    assert isinstance(isocost.study(out=old / "new").observer, Printer)
    assert isocost.open(old / "tiny", observer=kept).observer is kept


def test_the_html_is_of_the_result_and_not_of_the_file(old):
    found = audit(StudyRecord.read(old / "tiny"))
    hit = replace(found, audit=replace(found.audit, verdict="hit"))
    assert found.verdict != "hit" and "Audit: hit" in hit._repr_html_() and "<script" not in hit._repr_html_()


def test_the_plan_of_a_pilot_shows_its_runs(old):
    told = read_json(old / "tiny" / "pilot.json")
    shown = PilotPlanResult(pilots.PilotPlan.of(told), units=told.get("units"))._repr_html_()
    assert "Plan of the pilot" in shown and "6 probe runs, 6 grid runs" in shown and "in every unit" in shown


def in_a_loop(call):
    """The result of a call from inside a running event loop, as the cells of a notebook are run."""

    async def cell():
        return call()

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(cell())
    finally:
        loop.close()


def test_a_coroutine_ends_with_and_without_a_running_loop():
    async def work():
        return 3

    assert in_a_loop(lambda: finished(work())) == 3 == finished(work())


def test_a_coroutine_in_a_loop_keeps_the_context_and_raises():
    context = ContextVar("context", default=0)

    async def work():
        raise UserError(f"context {context.get()}")

    context.set(7)
    with pytest.raises(UserError, match="context 7"):
        in_a_loop(lambda: finished(work()))


def test_ctrl_c_in_a_loop_cancels_the_coroutine(monkeypatch):
    """The waiting thread is interrupted once the coroutine has begun."""
    begun, ended = threading.Event(), []

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    def interrupted(*args, **kwargs):
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(gather, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_a_loop(lambda: finished(work()))
    assert ended == [True]


def test_steps_run_inside_an_event_loop(tmp_path):
    """A diagnosis, a price and a run: each of them runs coroutines."""
    sizes = {"budget": "32-rollouts", "rollouts": 4, "groups": 4, "lr": 1e-4, "evaluations": 1}
    setting = setting_with(data=DATA)
    cost = in_a_loop(lambda: train_one("grpo", setting, out=tmp_path / "r", dry_run=True, **sizes))
    assert isinstance(cost, RunCost)
    assert in_a_loop(lambda: train_one("grpo", setting, out=tmp_path / "r", **sizes)).reason == "spent"
    assert isinstance(in_a_loop(lambda: evaluate(tmp_path / "r")), EvaluationResult)


def test_coroutines_are_run_in_one_place():
    """`asyncio.run` raises inside a running event loop: everything else calls `finished`.

    A harness process is another interpreter, perhaps without this package.
    """
    found = {module for module, source in sources().items() if "asyncio.run(" in source}
    assert found == {"gather.py", "envs/harness/process.py"}


# a study --------------------------------------------------------------------------------------------------------------


def test_a_study_creates_nothing_until_its_first_step(tmp_path):
    out = tmp_path / "s"
    study = isocost.study(data=DATA, out=out, problems=6)
    assert not out.exists() and repr(study) == f"Study({str(out)!r})"
    with pytest.raises(UserError, match="begin one with `isocost profile"):
        study.plan()
    assert study.profile().problems == 6 and (out / "profile.json").exists()
    again = isocost.open(out)
    assert again.profile().to_dict() == study.profile().to_dict() and again.to_dict()["profiled"] == 6
    assert isinstance(again.plan(budget="200k-rollouts"), PilotPlanResult)
    with pytest.raises(UserError, match="different settings"):
        isocost.study(data=DATA, out=out, problems=7).profile()


def test_a_study_that_is_none_and_a_setting_that_is_none_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no study\.json"):
        isocost.open(tmp_path)
    with pytest.raises((UserError, TypeError), match="temprature"):
        isocost.study(out=tmp_path, temprature=1.0)


def test_every_step_of_a_finished_study_returns_its_result(old):
    study = isocost.open(old / "tiny")
    law, found = study.fit(), study.plan()
    kinds = [study.profile(), found, study.pilot(), law, study.train(), study.audit()]
    assert [type(x).__name__ for x in kinds] == [
        f"{x}Result" for x in ("Profile", "Plan", "Pilot", "Law", "Train", "Audit")]
    at = law.predict(n=8, C=100_000)
    assert at == (at.confidence, at.prediction) and at.prediction.width >= at.confidence.width
    assert study.report(old / "page.html") == old / "page.html" and (old / "page.html").exists()
    assert "TRL" in str(study.export("trl")) and len(study.verdict().runs) == len(study.train().runs)


def test_runs_are_rows_with_a_run_each(old, monkeypatch):
    study = isocost.open(old / "tiny")
    monkeypatch.setattr(api, "find_spec", lambda name: None)
    rows = study.runs()
    assert len(rows) == len(list((old / "tiny" / "runs").glob("*/run.json")))
    assert {"purpose", "n", "B", "lr", "seed", "rollouts", "last", "ended"} <= set(rows[0]) and "kind" not in rows[0]


def test_runs_are_a_frame_where_pandas_is_installed(old):
    pandas = pytest.importorskip("pandas")
    frame = isocost.open(old / "tiny").runs()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(list((old / "tiny" / "runs").glob("*/run.json")))
    assert {"purpose", "n", "last"} <= set(frame.columns) and "kind" not in frame.columns


# the package's names --------------------------------------------------------------------------------------------------


def test_the_package_offers_its_names_and_no_others():
    assert set(isocost.__all__) <= set(dir(isocost))
    for name in isocost.__all__:
        assert getattr(isocost, name) is not None
    with pytest.raises(AttributeError, match="isocost has no 'plam'"):
        _ = isocost.plam


def test_commands_and_python_have_the_same_defaults():
    options = commands.main.commands["profile"].make_context("profile", ["--out", "s"]).params
    derived = {"model", "data", "env", "max_turns", "max_tokens", "threads"}
    for name, default in Setting().to_dict().items():
        if name in options and name not in derived:
            assert options[name] == default, name
    python = isocost.study.__kwdefaults__
    assert {k: options[k] for k in ("model", "seed", "method", "problems")} == {
        k: python[k] for k in ("model", "seed", "method", "problems")}
