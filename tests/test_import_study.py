"""Imported runs as a study: what may stand in one law, what its plan is counted in, and what it is billed as."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.laws.curves import curves
from isocost.laws.law import Law
from isocost.planner.training.prescription import Plan
from isocost.planner.training.standing import means
from isocost.report.page import render
from isocost.report.records import load
from isocost.runs.files import read_json
from isocost.runs.measure import in_its_units

TRUTH = {4: (0.66, 9000.0, 1.3), 8: (0.74, 14000.0, 1.25), 16: (0.80, 26000.0, 1.2)}  # A, Cmid, b; R0 is 0.2
LOGS = Path(__file__).parent / "fixtures" / "logs"
NAMES = ("--names", "n{n}-s{seed}", "--B", 16)


def said(*args, code=0):
    """What a command printed; a mistake is one line on stderr and exit code 2."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return " ".join((done.stderr if code == 2 else done.output).split())


def csv(path, rows, header="step,held_out"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *(",".join(f"{x:.10g}" for x in row) for row in rows)]) + "\n")
    return path


def logs(folder, C=80_000, seeds=3, update=0.5, rollout=0.02, tokens=None, lr=None, ns=(4, 8, 16)):
    """Runs of `TRUTH` with a little noise, 14 evaluations, `update` seconds an update and `rollout` a rollout."""
    draw = np.random.default_rng(1)
    for n in ns:
        A, Cmid, b = TRUTH[n]
        for seed in range(seeds):
            M = C // (16 * n)
            steps = [0, *np.unique(np.round(np.geomspace(M / 60, M, 14)).astype(int))]
            lift, rows = 0.006 * draw.standard_normal(), []
            for k in steps:
                y = 0.2 + (A + lift - 0.2) / (1 + (Cmid / max(k * 16 * n, 1e-9)) ** b) + 0.004 * draw.standard_normal()
                rows.append((k, y, k * (update + rollout * 16 * n), (lr or {}).get(n, 1e-6),
                             *((tokens[n], y) if tokens else ())))
            header = "step,held_out,seconds,lr" + (",length,reward" if tokens else "")
            csv(folder / f"n{n}-s{seed}.csv", rows, header)
    return sorted(folder.iterdir())


def test_a_run_is_at_most_eight_times_as_long_as_those_of_its_n(tmp_path):
    """Runs of equal updates, so of n = 4, 8 and 16 in proportion 1, 2 and 4: so are the lengths that are compared."""
    each = [logs(tmp_path / str(n), C=1200 * n * 16, ns=(n,)) for n in (4, 8, 16)]
    out = tmp_path / "theirs"
    said("import", *(x for some in each for x in some), *NAMES, "--out", out)
    said("fit", out)
    told, plan = said("plan", out, "--budget", "9M-rollouts"), Plan.of(read_json(out / "plan.json"))
    assert (plan.arm.n, plan.arm.C) == (16, 8 * 1200 * 16 * 16)
    assert "capped at 8 times the pilot's runs of n = 16; a longer pilot" in told
    at = ", ".join(f"{8 * 1200 * n * 16:,} rollouts at n = {n}" for n in (4, 8, 16))
    assert plan.chosen.startswith(
        f"n = 16: it has the highest expected reward at no more than 8 times the pilot's runs, {at}")


# what may stand in one law ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "options", "what", "is_", "other"),
    [
        ("step,score", ("--from", "csv", "--map", "held_out=score"), "metric", "held_out", "score"),
        ("step,held_out", ("--scale", "0,2"), "scale", "from 0 to 1", "from 0 to 2"),
        ("step,held_out", ("--model", "Z"), "model", "A", "Z"),
        ("step,held_out", ("--data", "Q"), "data", "P", "Q"),
        ("step,reward", (), "kind of reward", "held-out", "training"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_one_law_cannot_hold_is_refused_naming_both(tmp_path, second, options, what, is_, other):
    out, rows = tmp_path / "mix", [(0, 0.2), (10, 0.3), (20, 0.4)]
    first = [csv(tmp_path / f"n4-s{i}.csv", [(k, y + i / 100) for k, y in rows]) for i in (0, 1)]
    said("import", *first, *NAMES, "--lr", 1e-6, "--model", "A", "--data", "P", "--out", out)
    log = csv(tmp_path / "n8-s0.csv", rows, second)
    text = said("import", log, *NAMES, "--lr", 1e-6, *options, "--out", out, code=2)
    assert f"the {what} of n4-s0 ({out}/runs/pilot-n4-s0) is {is_}, of n8-s0 ({log}) {other}: " in text
    assert len(list((out / "runs").iterdir())) == 2
    unnamed = csv(tmp_path / "n8-s0.csv", [(k, y + 0.1) for k, y in rows])
    said("import", unnamed, *NAMES, "--lr", 1e-6, "--out", out)  # a model and data that nobody gave are no others


# rewards at one C ---------------------------------------------------------------------------------------------


def test_arms_that_end_apart_are_read_at_one_C(tmp_path):
    """At 3,072, where n = 8 ends, n = 4 stands at 0.5 in fact and at 0.3 at its last evaluation before."""
    four = [(0, 0.1), (24, 0.3), (96, 0.7)]  # 0, 1,536 and 6,144 rollouts: 3,072 is half way in ln C
    eight = [(0, 0.1), (12, 0.2), (24, 0.4)]
    out = tmp_path / "study"
    files = [csv(tmp_path / "n4-s0.csv", four), csv(tmp_path / "n4-s1.csv", [*four[:2], (96, 0.74)]),
             csv(tmp_path / "n8-s0.csv", eight), csv(tmp_path / "n8-s1.csv", [*eight[:2], (24, 0.42)])]
    said("import", *files, *NAMES, "--lr", 1e-6, "--out", out)
    assert means(curves(out), {4: 1.0, 8: 1.0}) == pytest.approx({4: 0.51, 8: 0.41})
    assert read_json(out / "pilot.json")["sd"] == pytest.approx(0.02 / 2**0.5)  # 0.50 and 0.52, 0.40 and 0.42
    order = "n = 4 has the highest reward (0.510) and n = 8 the lowest (0.410)"
    assert order in re.sub(r"<[^>]+>", "", render(load(out)))


def test_the_fallback_is_the_best_at_one_C(tmp_path):
    """Truth at 7,936 rollouts: 0.411 for n = 4, 0.378 for n = 8; n = 4 goes on to 8,000."""
    out = tmp_path / "short"
    said("import", *logs(tmp_path / "logs", C=8000, ns=(4, 8)), *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "20k-rollouts")
    assert "fallback: n = 4, best at the pilot's largest common budget (0.41" in text


# what a plan is counted in ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """10 s an update and 5 ms a rollout: small n are dear."""
    folder = tmp_path_factory.mktemp("slow")
    said("import", *logs(folder / "logs", update=10, rollout=0.005), *NAMES, "--out", folder / "study")
    said("fit", folder / "study")
    return folder / "study"


def test_n_are_compared_at_what_a_budget_of_time_buys_of_each(slow):
    """3200 s: 10 + 0.005 nB seconds an update of nB rollouts, cut to whole updates of 256."""
    text = said("plan", slow, "--budget", "3200s")
    made = Plan.of(read_json(slow / "plan.json"))
    bought = {n: int(3200 / (10 / (16 * n) + 0.005) // 256) * 256 for n in (4, 8, 16)}
    assert ", ".join(f"{C:,} rollouts at n = {n}" for n, C in bought.items()) in text
    assert "n=16 is best" in text and "is the largest n with a curve" in text  # others may have been left out
    assert (made.arm.n, made.arm.C) == (16, bought[16]) and made.equal == (16,)
    assert made.marginal.n == made.marginal.doubled_n == 16 and made.marginal.gain > 0


def test_money_and_device_hours_are_time(slow):
    """2 usd at 2.5 a device-hour are 0.8 device-hours, on 8 devices 360 s."""
    priced = ("--price", "2.5usd/device-hour", "--devices", 8)
    text = said("plan", slow, "--budget", "2usd", *priced)
    money = Plan.of(read_json(slow / "plan.json"))
    assert money.budget.amount == pytest.approx(360) and "usd 1.9" in text and "asked 2usd" in text
    said("plan", slow, "--budget", "0.8device-hours", "--devices", 8)
    hours = Plan.of(read_json(slow / "plan.json"))
    said("plan", slow, "--budget", "360s")
    assert Plan.of(read_json(slow / "plan.json")).arm == hours.arm == money.arm
    assert "at least 0.0251 device-hours" in said("plan", slow, "--budget", "1e-4gpu-hours", "--devices", 8, code=2)
    assert "needs a --price" in said("plan", slow, "--budget", "2usd", code=2)


def test_a_price_beside_another_budget_is_printed_in_money(slow):
    assert "usd" not in said("plan", slow, "--budget", "20k-rollouts")
    text = said("plan", slow, "--price", "3.6usd/hour")  # of the budget as it was: 0.001 usd a second
    seconds = Plan.of(read_json(slow / "plan.json")).bill.seconds
    assert f"usd {seconds / 1000:.3g}" in text and "20,000 rollouts" in text


@pytest.mark.parametrize(
    ("budget", "least"), [("100-rollouts", "256 rollouts"), ("1s", "11.3 seconds"), ("0.1min", "11.3 seconds")]
)
def test_a_budget_that_pays_for_no_run_is_refused_with_the_least_that_does(slow, budget, least):
    """256 rollouts are a whole number of updates of every n; one update of n = 16 takes 10 + 256 x 0.005 s = 11.28."""
    assert f"give at least {least}" in said("plan", slow, "--budget", budget, code=2)
    said("plan", slow, "--budget", least.replace(" ", ""))


def test_a_token_budget_bills_each_n_with_its_own_length(tmp_path):
    out, tokens = tmp_path / "study", {4: 100, 8: 200, 16: 400}
    said("import", *logs(tmp_path / "logs", tokens=tokens), *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "10M-tokens")
    assert "99,840 rollouts at n = 4, 49,920 rollouts at n = 8, 24,832 rollouts at n = 16" in text
    made = Plan.of(read_json(out / "plan.json"))
    assert made.bill.tokens == pytest.approx(made.arm.C * tokens[made.arm.n], rel=1e-6) and made.bill.tokens <= 1e7


def test_with_one_batch_size_seconds_are_total_over_total(tmp_path):
    """n = 8 alone: 0.5 + 128 x 0.02 = 3.06 s an update of 128 rollouts, 0.02391 s a rollout."""
    out = tmp_path / "study"
    said("import", *logs(tmp_path / "logs", ns=(8,)), *NAMES, "--out", out)
    timing = read_json(out / "pilot.json")["timing"]
    assert timing["rollout"] == pytest.approx(3.06 / 128, rel=1e-3) and timing["update"] == 0
    assert timing["source"].startswith("measured on 42 stretches")
    said("fit", out)
    text = said("plan", out, "--budget", "1h")
    assert "0 s of run time" not in text and "cannot be counted" not in text


def test_where_no_seconds_are_known_none_are_printed(tmp_path):
    out, rows = tmp_path / "study", logs(tmp_path / "logs", seeds=5)
    for path in rows:
        lines = [line.split(",") for line in path.read_text().splitlines()]
        path.write_text("".join(f"{k},{y},{lr}\n" for k, y, _, lr in lines))
    said("import", *rows, *NAMES, "--out", out)
    said("fit", out)
    for budget in ("20k-rollouts", "60k-rollouts", "300k-rollouts"):
        text = said("plan", out, "--budget", budget)
        assert not re.search(r"\b0 s\b", text) and "cheapest" not in text and "run time" not in text
        assert read_json(out / "plan.json")["arm"]["seconds"] is None
    assert "cannot be counted" in said("plan", out, "--budget", "1h", code=2)
    assert "hold no seconds" in said("plan", out, "--devices", 8, code=2)


# what is prescribed -------------------------------------------------------------------------------------------


def test_an_arm_that_was_run_keeps_its_own_rate(tmp_path):
    rates = {4: 2e-6, 8: 1e-6, 16: 3e-6}
    out = tmp_path / "study"
    said("import", *logs(tmp_path / "logs", lr=rates), *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "200k-rollouts")
    made = Plan.of(read_json(out / "plan.json"))
    assert made.arm.lr == pytest.approx(rates[made.arm.n]) and f"lr = {rates[made.arm.n]:.2g}" in text
    assert "each arm keeps its own" in text


def test_training_reward_is_expected_as_such(tmp_path):
    rows = logs(tmp_path / "logs")
    for path in rows:
        path.write_text(path.read_text().replace("held_out", "reward"))
    out = tmp_path / "study"
    said("import", *rows, *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "200k-rollouts")
    assert "expected training reward" in text and "expected held-out reward" not in text


def test_a_run_that_diverged_does_not_shorten_the_reading_of_others(tmp_path):
    """Two runs of n = 4 at 0.5 and 0.6 where they end; a third fell to 0.01 at a tenth of that."""
    files = [csv(tmp_path / f"n4-s{s}.csv", [(0, 0.2), (10, 0.3), (100, y)]) for s, y in ((0, 0.5), (1, 0.6))]
    files.append(csv(tmp_path / "n4-s2.csv", [(0, 0.2), (5, 0.1), (10, 0.01)]))
    said("import", *files, *NAMES, "--lr", 1e-6, "--out", tmp_path / "out")
    assert read_json(tmp_path / "out" / "pilot.json")["sd"] == pytest.approx(0.1 / 2**0.5)


def test_the_law_prints_the_gain_of_more_rollouts_what_seeds_detect_and_the_next_runs(tmp_path):
    out = tmp_path / "study"
    said("import", *logs(tmp_path / "logs"), *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "100k-rollouts")
    made = read_json(out / "plan.json")
    twice = made["more"][0]
    assert (twice["times"], twice["cost"], twice["unit"]) == (2, made["arm"]["C"], "rollouts")
    assert "2 x the rollouts would buy +" in text and "to reduce the uncertainty: " in text
    n, seen = made["arm"]["n"], made["sees"]
    other = re.match(rf"n = {n} against n = (\d+): minimum detectable difference with 3 seeds per arm", seen["text"])
    law = Law.of(read_json(out / "law.json"))
    best = max((k for k in law.ns if k != n), key=lambda k: law.predict(k, made["arm"]["C"])[0].value)
    assert int(other[1]) == best and seen["text"] in text
    assert made["next"] and all(r["rollouts"] <= 9 * 80_000 for r in made["next"])


# warm-up and units, as the logs have them ---------------------------------------------------------------------


def at_rates(folder, rates):
    """A study of logs of these rates at steps 2, 10 and from 20 on."""
    for path in logs(folder / "logs"):
        lines = [line.split(",") for line in path.read_text().splitlines()]
        for i, cells in enumerate(lines[2:]):  # from the first step on; the base's line comes before any rate
            cells[0], cells[3] = str(10 * i + 2 if not i else 10 * i), str(rates[min(i, 2)])
        path.write_text("".join(",".join(cells) + "\n" for cells in (lines[0], [*lines[1][:3], ""], *lines[2:])))
    said("import", *sorted((folder / "logs").iterdir()), *NAMES, "--out", folder / "study")
    said("fit", folder / "study")
    return folder / "study"


@pytest.mark.parametrize(("rates", "warmup"), [
    ((1e-6, 1e-6, 1e-6), 0),  # constant
    ((2e-7, 9.95e-7, 1e-6), 10),  # at its highest from step 10 on
    ((1e-6, 9e-7, 8e-7), 0),  # it fell: a decay and no warm-up
])
def test_a_warm_up_is_exported_where_the_logs_had_one(tmp_path, rates, warmup):
    out = at_rates(tmp_path, rates)
    assert f"warm-up {warmup} update" in said("plan", out, "--budget", "100k-rollouts")
    text = said("export", out, "--to", "trl")
    assert re.search(rf"warmup_steps: {warmup}\b", text)
    assert ("the decay of the learning rate that the imported runs had" in text) == (rates[2] < 9e-7)


def test_a_warm_up_is_no_longer_than_the_run_and_told_where_it_is_much_of_it(tmp_path):
    out = at_rates(tmp_path, (2e-7, 5e-7, 1e-6))
    text = said("plan", out, "--budget", "1k-rollouts")
    arm = Plan.of(read_json(out / "plan.json")).arm
    assert arm.M < 20 and f"warm-up {arm.M} updates" in text
    had = f"the imported runs of n = {arm.n} warmed up for 20 updates"
    assert f"! {arm.M} of {arm.M} updates warm up (at most 5%): {had}" in text
    assert f"warmup_steps: {arm.M} " in said("export", out, "--to", "trl")
    text = said("plan", out, "--budget", "200k-rollouts")
    assert "warm-up 20 updates" in text and "updates warm up" not in text


def test_a_reward_that_is_not_from_0_to_1_is_expected_on_its_own_scale_too(tmp_path):
    """0.2 of 100 to 500 is 180."""
    assert in_its_units((100.0, 500.0), 0.2, 0.1, 0.35) == "180 [140, 240] on the logs' scale from 100 to 500"
    assert in_its_units((0.0, 1.0), 0.2, 0.1, 0.35) == ""
    out = tmp_path / "study"
    files = logs(tmp_path / "logs")
    for path in files:
        lines = [line.split(",") for line in path.read_text().splitlines()]
        for cells in lines[1:]:
            cells[1] = str(500 * float(cells[1]))
        path.write_text("".join(",".join(cells) + "\n" for cells in lines))
    said("import", *files, *NAMES, "--scale", "0,500", "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", "100k-rollouts")
    expected = Plan.of(read_json(out / "plan.json")).arm.prediction
    told = in_its_units((0, 500), expected.value, expected.low, expected.high)
    assert told.startswith(f"{500 * expected.value:.4g} [") and f"prediction interval): {told}" in text
    assert f"prediction interval: {told}. " in said("export", out, "--to", "trl")


@pytest.mark.parametrize("budget", ["100k-rollouts", "400k-rollouts"])
def test_passes_over_the_problems_are_those_of_the_logs_gone_on(tmp_path, budget):
    """16 of 800 problems an update: 12.5 passes of n = 8, and C / 800 n of the plan, flagged above 25."""
    files = logs(tmp_path / "logs", ns=(8, 16))
    for path in files:
        lines = [line.split(",") for line in path.read_text().splitlines()]
        rows = [(*map(float, cells), 16 * int(cells[0]) / 800) for cells in lines[1:]]
        csv(path, rows, ",".join((*lines[0], "epoch")))
    out = tmp_path / "study"
    said("import", *files, *NAMES, "--out", out)
    said("fit", out)
    text = said("plan", out, "--budget", budget)
    arm = Plan.of(read_json(out / "plan.json")).arm
    assert arm.epochs == arm.C / (800 * arm.n) and f"{arm.epochs:.1f} passes over the problems" in text
    told = f"extrapolates in epochs: {arm.epochs:.1f} passes over the training problems, the pilot made at most 12.5"
    assert (told in text) == (arm.epochs > 25) == (budget == "400k-rollouts")


def test_a_study_in_steps_of_an_environment_is_not_exported(tmp_path):
    out = tmp_path / "study"
    said("import", *sorted((LOGS / "sb3").iterdir()), "--names", "envs{n}-s{seed}", "--out", out, "--scale", "0,500")
    said("fit", out)
    said("plan", out)
    for target in ("trl", "verl"):
        text = said("export", out, "--to", target, code=2)
        assert "counts C in environment steps: its n are environments" in text


def test_a_study_in_steps_of_an_environment_is_printed_in_these(tmp_path):
    said("import", *sorted((LOGS / "sb3").glob("envs4-s*")), "--n", 4, "--scale", "0,500", "--out", tmp_path / "s")
    fit, plan = said("fit", tmp_path / "s"), said("plan", tmp_path / "s")
    assert "runs environment steps at their end" in fit
    assert "2 x the environment steps would buy" in plan and "environment steps more" in plan
    assert "at 45,056 environment steps, no other n was tried." in render(load(tmp_path / "s"))
    assert "environment steps 45,056 planned" in plan and "rollouts 45,056" not in plan


def test_a_long_log_is_fitted_to_bins_which_is_said(tmp_path):
    note = "fitted to means over at most 9 bins of each run's evaluations"
    for points in (9, 12):
        rows = "".join(f"{i},{0.3 + 0.03 * i}\n" for i in range(points + 1))
        (tmp_path / f"{points}.csv").write_text(f"step,held_out\n{rows}")
        said("import", tmp_path / f"{points}.csv", "--n", 4, "--B", 8, "--lr", 1e-3, "--out", tmp_path / str(points))
        assert (note in said("fit", tmp_path / str(points))) == (points > 9)


def test_a_log_with_an_evaluation_of_the_base_alone_is_planned_without_a_curve(tmp_path):
    rows = "".join(f"{i},{0.3 + 0.01 * i},{'0.2' if i == 0 else ''}\n" for i in range(12))
    (tmp_path / "a.csv").write_text(f"step,reward,held_out\n{rows}")
    said("import", tmp_path / "a.csv", "--n", 4, "--B", 8, "--lr", 1e-3, "--study", "--out", tmp_path / "s")
    said("fit", tmp_path / "s")
    assert "no run of the pilot has an evaluation after the base" in said("plan", tmp_path / "s")


def test_one_rate_for_all_sizes_is_called_that(tmp_path):
    for n in (4, 8):
        (tmp_path / f"n{n}.csv").write_text(f"step,held_out\n0,0.1\n3,0.2\n6,0.3{n}\n")
    said("import", *tmp_path.glob("n*.csv"), "--names", "n{n}", "--B", 8, "--lr", 1e-3, "--out", tmp_path / "s")
    assert "lr = 0.001 at any number of rollouts per update" in read_json(tmp_path / "s" / "rate.json")["why"]
    assert "model and problems not named: pilot" in said("ls", tmp_path / "s")


def test_held_out_reward_under_the_name_that_trl_gives_it_is_read_from_a_table(tmp_path):
    rows = [(k, 0.1 + 0.01 * k, 0.2 + 0.01 * k) for k in range(0, 41, 4)]
    table = csv(tmp_path / "n4-s0.csv", rows, "step,reward,eval_reward")
    told = said("import", table, *NAMES, "--lr", 1e-6, "--out", tmp_path / "theirs")
    assert "eval_reward 0.200 -> 0.600 (held-out)" in told
