"""What imported studies claim: a curve that misses its own data is flagged, what was not measured is called assumed,
and nothing in a study of training rewards is called held out."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.laws import identify as caution
from isocost.laws.curves import curves
from isocost.laws.fit import fit_law
from isocost.laws.law import AUDIT, Law
from isocost.runs.files import read_json
from isocost.trainers.driving.export import load
from truth import planted

NAMES = ("--names", "n{n}-s{seed}", "--B", 8)
HELD_OUT = ("held-out reward", "problems that choose", "validation split", "audit problems", "select problems",
            "over-fitting: n=", "held to")


def said(*args, code=0):
    """What a command printed, in one line; a mistake is on stderr, with exit code 2."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return " ".join((done.stderr if code == 2 else done.output).split())


def page(study):
    """A report's text: its scripts and plots left out."""
    said("report", study)
    html = (study / "report.html").read_text()
    body = re.sub(r"<(script|style).*?</\1>", "", html[html.index("<body"):], flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split())


def logs(folder, seeds, rewards=None, noise=0.08, M=200):
    """Trainer's states of TRL with training reward only: n = 4 and 8, M logged updates, one reward an update.

    Unless given, rewards are noisy about a curve; those of n = 4 leap by 0.35 in the last tenth, as no curve here can.
    """
    for n in (4, 8):
        for seed in range(seeds):
            draw = np.random.default_rng(100 * seed + n)
            C = n * 8 * np.arange(M)
            r = 0.2 + 0.4 / (1 + (1500 / np.maximum(C, 1)) ** 1.2) + noise * draw.standard_normal(M)
            r[-M // 10 :] += 0.35 * (n == 4)
            r = np.clip(r, 0, 1) if rewards is None else np.array(rewards) + 0.001 * seed + 0.0001 * n
            history = [
                {"step": s + 1, "epoch": s / 50, "reward": float(x), "learning_rate": 1e-6, "step_time": 1.5,
                 "completions/mean_length": 10.0, "completions/max_length": 12.0}
                for s, x in enumerate(r)
            ]
            path = folder / f"n{n}-s{seed}" / "trainer_state.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"global_step": M, "log_history": history}))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """One run per n, training reward only, fitted, planned and reported: (folder, import, fit, plan, report)."""
    folder = tmp_path_factory.mktemp("single")
    brought = said("import", *logs(folder / "logs", 1), *NAMES, "--out", folder / "study")
    fitted = said("fit", folder / "study")
    planned = said("plan", folder / "study", "--budget", "20k-rollouts")
    return folder / "study", brought, fitted, planned, page(folder / "study")


# a curve that misses what it saw ------------------------------------------------------------------------------


def test_a_curve_that_misses_its_own_tail_is_flagged_in_fit_plan_and_report(single):
    out, _, fitted, planned, report = single
    law = Law.of(read_json(out / "law.json"))
    (text,) = [f.text for f in law.flags if f.name == "misfit" and "n=4" in f.text]
    (run,) = [c for c in curves(out) if c.arm["n"] == 4]
    seen, curve = run.audit[-20:].mean(), law.paths(4, run.C[-20:], AUDIT).mean()  # a tenth of 200
    assert seen > 0.8 and curve < seen - 0.1
    assert f"the curve of n=4 does not fit its runs: fitted {curve:.3f}, mean of the last 20 evaluations " in text
    assert f"{seen:.3f} (standard error 0.0" in text
    assert text in fitted and text in planned and text[1:] in report


def pilot(seeds, points=24, held_out=256):
    rng = np.random.default_rng(5)
    return planted.plant("sigmoid", rng).pilot(
        planted.Design(ns=(4, 16), seeds=seeds, points=points, held_out=held_out), rng
    )


def test_a_curve_through_its_data_is_not_flagged_and_one_beside_it_is():
    """The arm's data moved away from its curve by a known step at their end: 0.1 is flagged, 0.01 is not."""
    law = fit_law(pilot(3), draws=60)
    assert not caution._misfits(law)
    arm = law.arms[0]
    last = max(caution.LAST, round(caution.TAIL * len(arm.C)))
    assert last == 8
    for step, missed in ((0.01, False), (0.1, True), (-0.1, True)):
        moved = arm.audit.copy()
        moved[:, -last:] = law.paths(arm.n, arm.C[-last:], AUDIT).mean(0) + step
        found = caution._misfits(replace(law, arms=(replace(arm, audit=moved), *law.arms[1:])))
        assert [f.name for f in found] == ["misfit"] * missed


def test_too_few_evaluations_for_a_scatter_are_not_flagged():
    law = fit_law(pilot(2, points=caution.FEWEST - 1), draws=60)
    off = replace(law, arms=tuple(replace(a, audit=np.clip(a.audit + 0.3, 0, 1)) for a in law.arms))
    assert caution._misfits(off) == []


# what is known of how runs differ -----------------------------------------------------------------------------


def test_what_was_not_measured_is_called_assumed_and_never_counted(single):
    out, _, fitted, planned, report = single
    assert not Law.of(read_json(out / "law.json")).measured
    for text in (fitted, planned, report):
        assert "no interval can be given" not in text and "degrees of freedom" not in text
        assert "the standard deviation between runs was not measured, so every interval assumes 0.050" in text
    assert "run-to-run sd 0.050 at reward 1/2: assumed, not measured, because no n has two runs" in fitted
    assert "n=4 has 1, n=8 has 1; the noise is assumed" in fitted


def test_measured_values_are_printed_with_their_degrees_of_freedom():
    law = fit_law(pilot(2), draws=60)
    assert law.measured and law.how_runs_differ.endswith("pooled over arms (2 degrees of freedom)")


# training reward ----------------------------------------------------------------------------------------------


def test_nothing_in_a_study_of_training_rewards_is_called_held_out(single):
    out, brought, fitted, planned, report = single
    once = "earned on the problems that were trained on: nothing here is held out, so over-fitting cannot be detected"
    assert once in fitted and once in planned and once in report
    exported = [said("export", out, "--to", target) for target in ("trl", "openrlhf")]
    assert all("Expected training reward" in text for text in exported)
    listed = said("ls", out)
    assert "training" in listed and "held-out" not in listed
    for text in (fitted, planned, report, *exported, brought.split("missing: ", 1)[0]):
        assert [w for w in HELD_OUT if w in text] == []
    assert "fallback" in planned and "split" not in planned     # there is no validation or test split


def test_training_reward_alone_never_over_fits(tmp_path):
    """A spike, then high rewards and a low last one: of held-out rewards that would be called over-fitting."""
    rewards = [*np.linspace(0.1, 0.3, 30), 0.97, *np.linspace(0.5, 0.92, 30), 0.6]
    said("import", *logs(tmp_path / "logs", 3, rewards, M=len(rewards)), *NAMES, "--out", tmp_path / "study")
    assert "over-fitting: n=" not in said("fit", tmp_path / "study")


def test_seconds_of_logs_are_not_called_busy(single, tmp_path):
    """Arms by folders; their seconds are wall time of the logs, and the comparison's record says so too."""
    out, *_ = single
    for name in ("pilot-n4-s0", "pilot-n8-s0"):
        shutil.copytree(out / "runs" / name, tmp_path / name[6:8] / name)
    arms = (tmp_path / "n4", tmp_path / "n8")
    done = CliRunner().invoke(main, ["compare", *map(str, arms), "--unit", "seconds", "--out", str(tmp_path / "c")])
    text = " ".join(done.output.split())
    assert done.exit_code in (0, 3, 4), done.output
    assert "298 wall-clock seconds (logged) per run" in text and "busy" not in text
    assert "wall-clock time from their logs, with evaluations and pauses" in text
    assert "which problems the runs were trained on is not in their logs" in text
    report = page(tmp_path / "c")
    assert "wall-clock seconds (logged)" in report and "busy" not in report
    html = (tmp_path / "c" / "report.html").read_text()
    assert "raining reward" in html and "eld-out reward" not in html.split("<main>", 1)[1]


def test_rewards_on_another_scale_are_said_to_be(tmp_path):
    files = logs(tmp_path / "logs", 1)
    said("import", *files, *NAMES, "--scale", "0,2", "--out", tmp_path / "study")
    text = "rewards are on a scale from 0 to 1, which is 0 to 2 in the logs"
    assert text in said("fit", tmp_path / "study") and text[1:] in page(tmp_path / "study")


# exports ------------------------------------------------------------------------------------------------------

OPTIONS = {  # the option that bounds an answer, and what the trainer takes without it
    "trl": ("max_completion_length", "512"),
    "verl": ("data.max_response_length", "512"),
    "prime-rl": ("max_completion_tokens", "unset"),
    "nemo-rl": ("policy.generation.max_new_tokens", "policy.max_total_sequence_length"),
    "skyrl": ("generator.sampling_params.max_generate_length", "1024"),
    "openrlhf": ("rollout.max_new_tokens", "unset"),
}


@pytest.mark.parametrize("target", OPTIONS)
def test_an_export_lists_the_sampling_that_is_not_in_the_logs(single, target):
    """The logs' longest answer has 12 tokens; without the bound a trainer would take its own."""
    out, *_ = single
    text = CliRunner().invoke(main, ["export", str(out), "--to", target]).output
    head = [x for x in text.splitlines() if x.startswith("#")]
    left = "\n".join(head[head.index("# Not carried over:") + 1:])
    option, default = OPTIONS[target]
    assert f"{option} stays at its default, {default}" in left
    assert "the longest completion in the logs has 12 tokens" in left
    assert "sampling settings that are not in the logs, which stay at their defaults: " in left
    assert "temperature 1" in left
    assert option not in "".join(x for x in text.splitlines() if not x.startswith("#"))


@pytest.mark.parametrize("target", OPTIONS)
def test_a_stated_value_is_written_and_not_listed_as_missing(target):
    from test_export import asked

    text = load(target).write(asked(None))
    assert "not in the logs" not in text and OPTIONS[target][0].rsplit(".", 1)[-1] in text
