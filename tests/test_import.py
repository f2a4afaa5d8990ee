"""Logs of other trainers come in as what they are: real files, numbers worked by hand, planted faults in one line."""

import ast
import itertools
import json
import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from docs.build import sources as sources_page
from isocost import trainers
from isocost.errors import UserError
from isocost.laws.curves import curves
from isocost.laws.law import Law
from isocost.laws.tracks import tracks
from isocost.planner.budget import Budget
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescribe import prescribe
from isocost.planner.training.prescription import Plan
from isocost.planner.training.study_runs import whole
from isocost.report.page import render
from isocost.report.records import load
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.steps.outside import imported
from isocost.trainers import cleanrl, sb3, tensorboard
from isocost.trainers.reading import logs as sources
from isocost.trainers.reading import names, points, wire
from isocost.trainers.reading.record import ImportOptions, resolve
from logs_to_import import LOGS, ONE, one, said
from trees import nodes
from trees import sources as modules

HERE = Path(__file__).parent
TRL = LOGS / "trl"
NAMES = ("--names", "n{n}-s{seed}")
# A path of every source, and what recognises it.
KNOWN = {
    "trl": TRL / "n2-s0",
    "verl": LOGS / "verl" / "gsm8k-n8.jsonl",
    "prime-rl": LOGS / "prime-rl" / "reverse-text",
    "tinker": LOGS / "tinker" / "arithmetic",
    "sb3": LOGS / "sb3" / "envs4-s0",
    "cleanrl": LOGS / "cleanrl" / "CartPole-v1__ppo__0",
    "wandb": LOGS / "exports" / "wandb_history.csv",
    "tensorboard": next((TRL / "n4-s0" / "runs").iterdir()),
}


def told(run):
    """(C, reward, seconds) of every evaluation."""
    return [(C, p.reward, p.seconds) for C, p in run.evaluations]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """The nine real TRL runs as a study, fitted, planned and reported."""
    out = tmp_path_factory.mktemp("studies") / "theirs"
    text = said("import", *sorted(TRL.iterdir()), *NAMES, "--B", 8, "--out", out, "--data", "sums, one carry")
    fit = said("fit", out)
    plan = said("plan", out, "--budget", "20k-rollouts")
    said("report", out)
    return out, text, fit, plan


# what is found ------------------------------------------------------------------------------------------------


def test_a_source_is_a_file_and_every_file_keeps_the_shape():
    home = Path(trainers.__file__).parent
    assert set(sources.names()) == {
        p.stem.replace("_", "-") for p in home.glob("*.py") if "\nTITLE = " in (text := p.read_text())
        and "\ndef read(" in text
    }
    for name in sources.names():
        source = sources.load(name)
        assert source.TITLE and source.READS and source.GIVES and source.LACKS
        assert callable(source.recognise) and callable(source.read)


def test_a_new_source_is_found_without_being_registered(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from isocost.trainers.reading.logs import Log, Point\nTITLE = READS = GIVES = LACKS = 'x'\n"
        "def recognise(path): return path.suffix == '.mine'\n"
        "def read(path, columns): return [Log('mine', 'm', (path,), held=(Point(0, .1), Point(5, .2)), held_column='x',"
        " facts={'n': 2, 'B': 3, 'lr': 1e-3, 'seed': 0})]\n"
    )
    monkeypatch.setattr(trainers, "__path__", [*trainers.__path__, str(tmp_path)])
    (tmp_path / "a.mine").write_text("x")
    assert told(one(tmp_path / "a.mine")) == [(0, 0.1, None), (30, 0.2, None)]


@pytest.mark.parametrize(("name", "path"), KNOWN.items(), ids=str)
def test_the_first_that_recognises_a_log_is_its_own(name, path):
    assert next(n for n in sources.names() if sources.load(n).recognise(path)) == name


def test_logs_are_read_without_the_trainers_packages():
    banned = {"torch", "wandb", "tensorboard", "pickle", "pandas", "stable_baselines3", "trl", "isocost.runs.record"}
    for module, source in modules().items():
        if module.startswith("trainers/") and not module.startswith("trainers/driving/"):
            found = {a.name for n in nodes(source) if isinstance(n, ast.Import) for a in n.names}
            found |= {n.module for n in nodes(source) if isinstance(n, ast.ImportFrom)}
            assert not found & banned, module


# TRL ----------------------------------------------------------------------------------------------------------


def test_trl_by_hand():
    """n = 4, B = 8: a step is 32 rollouts; the clock is step_time x steps, and the evaluations before."""
    history = json.loads((TRL / "n4-s0" / "trainer_state.json").read_text())["log_history"]
    held = {h["step"]: h["eval_reward"] for h in history if "eval_reward" in h}
    times = {h["step"]: h["step_time"] for h in history if "step_time" in h}
    first, second = (
        next(h["eval_runtime"] for h in history if h["step"] == s and "eval_runtime" in h) for s in (0, 32)
    )
    run = one(TRL / "n4-s0")
    assert (run.arm["n"], run.arm["B"], run.seed, run.kind, run.metric) == (4, 8, 0, "held-out", "eval_reward")
    assert run.arm["lr"] == pytest.approx(4e-4 * (32 / 256) ** 0.5)
    assert [(C, r) for C, r, _ in told(run)] == [(32 * s, r) for s, r in held.items()]
    seconds = [s for *_, s in told(run)]
    assert seconds[:3] == pytest.approx([0, first + 32 * times[32], first + second + 32 * (times[32] + times[64])])
    assert run.C == 5120


def test_the_event_file_of_a_run_says_what_its_trainer_state_says():
    state, board = one(TRL / "n4-s0"), one(TRL / "n4-s0" / "runs")
    assert (state.arm.only("n", "B"), state.seed) == (board.arm.only("n", "B"), board.seed)
    assert [C for C, *_ in told(state)] == [C for C, *_ in told(board)]
    assert [r for _, r, _ in told(board)] == pytest.approx([r for _, r, _ in told(state)], abs=1e-7)
    assert board.seconds == pytest.approx(state.seconds, rel=0.2)  # wall time, and the trainer's own parts of it


def test_wandbs_offline_file_is_read_without_wandb():
    run = one(LOGS / "wandb" / next((LOGS / "wandb").iterdir()).name)
    assert (run.arm["n"], run.arm["B"], run.seed, run.log.name) == (4, 8, 3, "n4-s3")
    assert [C for C, *_ in told(run)] == [0, 64, 128, 192]
    # Seed 3's base is seed 2's: the same policy, and nearly the same 1,008 samples of it.
    assert told(run)[0][1] == pytest.approx(one(TRL / "n2-s2", n=2, B=8, seed=2).evaluations[0][1].reward, abs=0.05)
    assert run.log.about["trainer_says"]["loss_type"] == "grpo"


def test_training_reward_is_of_the_policy_that_earned_it(tmp_path):
    """Averages over 32 steps are of policies with 0 to 31 updates: at 15.5, not at 32."""
    state = json.loads((TRL / "n4-s0" / "trainer_state.json").read_text())
    state["log_history"] = [h for h in state["log_history"] if "eval_reward" not in h]
    (tmp_path / "n4").mkdir()
    (tmp_path / "n4" / "trainer_state.json").write_text(json.dumps(state))
    run = one(tmp_path / "n4", n=4, B=8, seed=0)
    assert run.kind == "training" and run.metric == "reward"
    assert [C for C, *_ in told(run)] == [32 * u for u in (15.5, 47.5, 79.5, 111.5, 143.5)]
    assert any(m.startswith("a held-out measure: no column is known to be one") for m in run.missing)
    assert any(m.startswith("the base: no reward before the first update") for m in run.missing)


def test_two_updates_of_a_generation_are_half_as_many_problems():
    """generation_batch_size 64 over 4 device steps, 2 accumulated: 32 rollouts an update, 16 with two iterations."""
    config = {
        "num_generations": 8,
        "generation_batch_size": 64,
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 2,
        "num_iterations": 1,
    }
    assert names.facts_of(config)[0] == {"n": 8, "B": 4}
    assert names.facts_of(config | {"num_iterations": 2})[0]["B"] == 2
    assert "B" not in names.facts_of(config | {"num_iterations": 8})[0]  # half a problem is no batch size


def test_the_order_of_mini_batches_is_no_seed_of_a_run():
    """verl shuffles mini-batches by one seed, 42 where nobody set it, whatever else a run differs in."""
    config = {"actor_rollout_ref": {"actor": {"data_loader_seed": 42}}, "data": {"seed": None}}
    assert "seed" not in names.facts_of(config)[0]
    assert names.facts_of(config | {"data": {"seed": 3}})[0]["seed"] == 3


@pytest.mark.parametrize(("config", "warmup"), [
    ({"warmup_steps": 20}, 20),
    ({"warmup_steps": 20, "lr_scheduler_type": "constant"}, None),  # that schedule has none
    ({"warmup_steps": 0.1}, None),  # a share of a run whose length is not recorded
    ({"actor_rollout_ref": {"actor": {"optim": {"lr_warmup_steps": -1}}}}, None),
    ({"trainer": {"scheduler": {"type": "linear", "warmup_steps": 5}}}, 5),
])
def test_a_warm_up_is_what_a_configuration_states_in_updates(config, warmup):
    assert names.facts_of(config)[1].get("warmup") == warmup


@pytest.mark.parametrize(
    ("rates", "said"), [((0.5, 1.0, 0.9), False), ((0.5, 1.0, 0.89, 1.0), True), ((0.2, 0.2, 1.0), False), ((), False)]
)
def test_a_rate_that_falls_below_nine_tenths_of_its_highest_is_not_constant(tmp_path, rates, said):
    rows = "".join(f"{i},0.1,{x}\n" for i, x in enumerate(rates, 1))
    (tmp_path / "a.csv").write_text(f"step,reward,lr\n0,0.1,\n{rows}")
    run = one(tmp_path / "a.csv", n=2, B=3, lr=None if rates else 1e-3)
    assert any(m.startswith("a constant learning rate") for m in run.missing) == said
    assert run.arm["lr"] == max(rates, default=1e-3)


def test_cells_that_are_no_number_are_counted_by_column(tmp_path):
    """Of 6 lines 3 held-out cells and 1 rate are no number; the empty cell says nothing."""
    lines = ("0,0.1,1", "1,nan,1", "2,61%,x", "3,,1", "4,inf,1", "5,0.5,1")
    (tmp_path / "a.csv").write_text("step,held_out,lr\n" + "\n".join(lines) + "\n")
    run = one(tmp_path / "a.csv", n=2, B=3)
    assert told(run) == [(0, 0.1, None), (30, 0.5, None)] and run.log.end is None
    assert "held_out in 3 of 5 lines: NaN, infinite or text, and left out" in run.missing
    assert "lr in 1 of 6 lines: NaN, infinite or text, and left out" in run.missing


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("0.1 0.2 nan nan", "diverged"),
        ("0.1 0.2 inf", "diverged"),
        ("0.1 nan 0.2 nan", "spent"),  # evaluated at every other line
        ("0.1 nan 0.2 nan nan", "diverged"),
        ("0.1 0.2 x", "spent"),
    ],
)
def test_a_run_whose_reward_is_nan_to_its_end_diverged(tmp_path, cells, reason):
    rows = "".join(f"{i},{x}\n" for i, x in enumerate(cells.split()))
    (tmp_path / "a.csv").write_text(f"step,held_out\n{rows}")
    text = said("import", tmp_path / "a.csv", *ONE, "--out", tmp_path / "run")
    assert read_json(tmp_path / "run" / "end.json")["reason"] == reason
    assert ("diverged: held_out is NaN or infinite to the log's end" in text) == (reason == "diverged")
    (track,) = tracks([tmp_path / "run"])
    assert track.diverged == (reason == "diverged") and track.reward[-1] == 0.2


def test_sb3s_evaluations_may_end_in_nan(tmp_path):
    np.savez(tmp_path / "evaluations.npz", timesteps=np.array([1, 2, 3]), results=np.array([[1.0], [2], [np.nan]]))
    (log,) = sources.logs(tmp_path)
    assert [p.reward for p in log.held] == [1, 2] and log.end == "diverged"
    assert "results in 1 of 3 lines: NaN, infinite or text, and left out" in log.missing


def test_seconds_that_run_backwards_are_not_known(tmp_path):
    (tmp_path / "a.csv").write_text("step,held_out,seconds\n0,0.1,0\n1,0.2,9\n2,0.3,4\n")
    run = one(tmp_path / "a.csv", n=2, B=3, lr=1e-3)
    assert run.seconds is None
    assert [m for m in run.missing if m.startswith("seconds")] == [
        "seconds: seconds decreases, so the time of a step is not known"
    ]


# folders ------------------------------------------------------------------------------------------------------


def test_a_folder_of_runs_is_those_runs():
    """Nine runs, one of which has an event file two folders further down."""
    found = sources.logs(TRL)
    assert [(x.name, x.source) for x in found] == [(p.name, "trl") for p in sorted(TRL.iterdir())]
    assert [x.source for x in sources.logs(TRL, "tensorboard")] == ["tensorboard"]


def test_event_files_of_several_runs_are_several_runs(tmp_path):
    source = next((TRL / "n4-s0" / "runs").glob("*/*tfevents*"))
    for folder in ("runs/n4-s1", "other/n4-s2/runs/Nov21_19-14-17_vm", "n4-s0"):
        (tmp_path / folder).mkdir(parents=True)
        shutil.copy(source, tmp_path / folder)
    (tmp_path / "latest").symlink_to(tmp_path / "n4-s0")
    (tmp_path / "other" / "up").symlink_to(tmp_path)
    assert sorted(x.name for x in sources.logs(tmp_path)) == ["n4-s0", "n4-s1", "n4-s2"]


def test_a_folder_of_csv_is_its_files(tmp_path):
    for name in ("n4-s1", "n4-s0"):
        (tmp_path / f"{name}.csv").write_text("step,held_out\n0,0.1\n2,0.2\n")
    for source in (None, "csv"):
        assert [x.name for x in sources.logs(tmp_path, source)] == ["n4-s0", "n4-s1"]


# the other trainers -------------------------------------------------------------------------------------------


def test_verls_file_and_console_say_the_same():
    lines = one(LOGS / "verl" / "gsm8k-n8.jsonl", n=8, B=32)
    console = one(LOGS / "verl" / "console.log", n=8, B=32)
    assert told(lines) == told(console)
    assert [C for C, *_ in told(lines)] == [0, 1280, 2560, 3840, 5120]
    assert [s for *_, s in told(lines)] == pytest.approx([0, 157.5, 315, 472.5, 630])
    assert any(m.startswith("rollouts before filtering") for m in lines.missing)


def test_verls_generation_batches_are_of_a_size_that_no_log_holds(tmp_path):
    """The column alone does not count C; a column of rollouts does."""
    rows = [json.loads(line) for line in (LOGS / "verl" / "gsm8k-n8.jsonl").read_text().splitlines()]
    for row in rows:
        row["data"] |= {"train/num_gen_batches": 3, "begun": row["step"] * 3 * 256}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = one(tmp_path / "a.jsonl", n=8, B=32)
    assert run.C == 5120 and any("train/num_gen_batches counts batches of a size" in m for m in run.missing)
    run = one(tmp_path / "a.jsonl", columns={"rollouts": "begun"}, n=8, B=32)
    assert run.C == 3 * 5120 and not any(m.startswith("rollouts before filtering") for m in run.missing)


def test_other_validation_sets_of_a_log_are_named(tmp_path):
    aime, gsm = "val-core/aime24/acc/mean@32", "val-core/openai/gsm8k/reward/mean@1"
    rows = [{"step": i, "data": {"critic/score/mean": 0.1, "actor/lr": 1e-6, aime: 0.1, gsm: 0.5}} for i in (0, 1)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"other held-out rewards: {aime} is read, {gsm} not (--map held_out=COLUMN)"
    run = one(tmp_path / "a.jsonl", n=2, B=3)
    assert run.metric == aime and text in run.missing
    run = one(tmp_path / "a.jsonl", columns={"held_out": gsm}, n=2, B=3)
    assert run.metric == gsm and not any(m.startswith("other held-out") for m in run.missing)


def test_prime_rl_counts_the_rollouts_returned_and_not_those_trained_on():
    """136 rollouts a step for a batch of 128; an evaluation stands at its policy's version, not at its row's step."""
    run = one(LOGS / "prime-rl" / "reverse-text")
    assert (run.arm["n"], run.arm["B"], run.arm["lr"]) == (16, 8, 3e-6)
    assert [(C, s) for C, _, s in told(run)] == [(136 * v, 20.0 * v) for v in (0, 4, 8, 12, 16)]
    assert run.C == 16 * 136


def test_tinker_evaluates_before_the_iteration_of_the_same_row():
    run = one(LOGS / "tinker" / "arithmetic")
    assert (run.arm["n"], run.arm["B"], run.arm["lr"]) == (4, 16, 4e-5)
    assert [C for C, *_ in told(run)] == [64 * i for i in (0, 5, 10, 15)]
    assert [s for *_, s in told(run)] == pytest.approx([0, 69, 138, 207])  # 12 s a step, 9 more where it evaluates
    assert run.C == 64 * 20
    first = run.log.train[0]
    assert (first.updates, first.done, first.after) == (0, 1, None)


def test_tinkers_answers_are_as_long_as_their_turns_together(tmp_path):
    """4.5 tokens a turn, and three turns: 13.5 an answer."""
    shutil.copytree(LOGS / "tinker" / "arithmetic", tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text().replace('turns_per_episode": 1.0', 'turns_per_episode": 3.0'))
    config = json.loads((tmp_path / "run" / "config.json").read_text()) | {"remove_constant_reward_groups": True}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    run = one(tmp_path / "run")
    assert run.log.train[0].more["completions/mean_length"] == 13.5
    assert any(m.startswith("training reward of all groups") for m in run.missing)


def test_sb3_evaluates_the_policy_from_before_the_update():
    """4 environments x 256 steps: what is measured at 1,024 steps is the base."""
    run = one(LOGS / "sb3" / "envs4-s0", n=4, lr=1e-3, scale=(0, 500))
    arrays = np.load(LOGS / "sb3" / "envs4-s0" / "evaluations.npz")
    assert (run.arm["n"], run.arm["B"], run.log.unit) == (4, 256, "environment steps")
    assert [C for C, *_ in told(run)] == [t - 1024 for t in arrays["timesteps"]]
    assert [r for _, r, _ in told(run)] == pytest.approx(list(arrays["results"].mean(1) / 500))


def test_an_npz_that_only_pickle_could_read_is_refused_and_so_is_a_bare_npy(tmp_path):
    np.savez(tmp_path / "evaluations.npz", timesteps=np.array([1]), results=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="cannot be read as plain arrays"):
        sources.logs(tmp_path)
    with zipfile.ZipFile(tmp_path / "evaluations.npz", "w") as box:
        box.writestr("timesteps.npy", b"not an array")
    with pytest.raises(UserError, match="cannot be read as plain arrays"):
        sources.logs(tmp_path)
    with (tmp_path / "evaluations.npz").open("wb") as bare:
        np.save(bare, np.zeros(3))
    with pytest.raises(UserError, match="not a zip file"):
        sources.logs(tmp_path)


def test_monitor_files_alone_are_episodes_in_order_of_time(tmp_path):
    (tmp_path / "0.monitor.csv").write_text('#{"t_start": 1}\nr,l,t\n10,10,0.5\n30,30,2.0\n')
    (tmp_path / "1.monitor.csv").write_text('#{"t_start": 1}\nr,l,t\n20,20,1.0\n')
    points = sb3._monitored(sorted(tmp_path.glob("*monitor.csv")))
    assert [(p.rollouts, p.reward, p.seconds) for p in points] == [(10, 10, 0.5), (30, 20, 1.0), (60, 30, 2.0)]


def test_cleanrls_episodes_are_averaged_over_an_update():
    rows = [{"step": s, "wall": s / 10, "r": r} for s, r in ((3, 1.0), (8, 3.0), (9, 5.0), (20, 7.0))]
    points = cleanrl.windows(rows, "r", 8)
    assert [(p.updates, p.rollouts, p.reward) for p in points] == [(0, 0, 2.0), (1, 8, 5.0), (2, 16, 7.0)]
    run = one(KNOWN["cleanrl"], scale=(0, 500))
    assert (run.arm["n"], run.arm["B"], run.arm["lr"], run.seed, run.kind) == (4, 256, pytest.approx(1e-3), 0,
                                                                               "training")


def test_episodes_that_end_together_all_count(monkeypatch):
    ends = [(8, 1.0, {"r": 1.0}, {}), (8, 1.0, {"r": 3.0}, {}), (16, 2.0, {"r": 5.0}, {})]
    monkeypatch.setattr(tensorboard, "events", lambda path: iter(ends))
    rows, _ = tensorboard.board([Path("a")], apart=True)
    assert [(p.updates, p.reward) for p in cleanrl.windows(rows, "r", 8)] == [(0, 2.0), (1, 5.0)]
    assert [row["r"] for row in tensorboard.board([Path("a")])[0]] == [2.0, 5.0]


@pytest.mark.parametrize("name", ["sb3", "cleanrl"])
def test_a_column_that_nothing_would_read_is_refused(name):
    with pytest.raises(UserError, match=f"--map held_out=... is not for {name}"):
        sources.logs(KNOWN[name], columns={"held_out": "x"})


def test_wandbs_exports():
    history = one(LOGS / "exports" / "wandb_history.csv", n=8, B=32)
    lines = one(LOGS / "verl" / "gsm8k-n8.jsonl", n=8, B=32)
    assert [(C, r) for C, r, _ in told(history)] == [(C, r) for C, r, _ in told(lines)]
    chart = sources.logs(LOGS / "exports" / "wandb_chart.csv")
    assert [c.name for c in chart] == ["gsm8k-n4-s0", "gsm8k-n8-s0"]
    four = resolve(chart[0], ImportOptions(Arm(B=32, lr=1e-6), pattern="n{n}-s{seed}"))
    assert (four.arm["n"], four.seed) == (4, 0) and [C for C, *_ in told(four)] == [0, 640, 1280, 1920, 2560]


def test_wandbs_count_of_lines_is_not_transformers_count_of_updates(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("_step,train/reward,train/global_step\n0,0.1,10\n1,0.2,20\n")
    assert [C for C, *_ in told(one(path, n=1, B=1, lr=1))] == [4.5, 14.5]
    path.write_text("_step,train/reward\n0,0.1\n1,0.2\n")
    with pytest.raises(UserError, match="no column 'train/global_step', which counts steps"):
        sources.logs(path)


def test_a_reward_of_ones_own_in_wandb_is_nobodys_trainer(tmp_path):
    path = tmp_path / "history.csv"
    path.write_text("_step,reward\n1,0.1\n2,0.2\n")
    run = one(path, n=1, B=1, lr=1)
    assert [C for C, *_ in told(run)] == [0, 1]
    assert any(m.startswith("rollouts before filtering: the log counts steps") for m in run.missing)


def test_named_evaluation_sets_of_transformers_are_held_out(tmp_path):
    log = [{"step": 1, "reward": 0.5}, {"step": 1, "eval_math_reward": 0.4}, {"step": 1, "eval_code_reward": 0.3}]
    written(tmp_path, json.dumps({"log_history": log}), "trainer_state.json")
    run = one(tmp_path, n=2, B=2, lr=1e-6)
    assert (run.metric, run.kind) == ("eval_math_reward", "held-out")
    assert any("eval_math_reward is read, eval_code_reward not" in m for m in run.missing)


def test_a_bill_in_tokens_is_of_what_each_line_is_of(tmp_path):
    """10 steps of 2 rollouts of 100 tokens and 30 of 200: 2,000 + 12,000, not the mean of the lines times all."""
    path = written(tmp_path, "step,reward,length\n10,0.1,100\n40,0.2,200\n")
    said("import", path, "--n", 2, "--B", 1, "--lr", 1, "--base", 0, "--out", tmp_path / "out")
    assert read_json(tmp_path / "out" / "end.json")["bill"]["train"]["decode"] == 14_000


def test_a_chart_over_time_is_refused(tmp_path):
    path = tmp_path / "chart.csv"
    path.write_text('"Relative Time (Process)","a - val/reward"\n0,0.1\n60,0.2\n')
    with pytest.raises(UserError, match=r"is a chart over Relative Time \(Process\): export it over steps"):
        sources.logs(path)


def test_prime_rl_without_a_count_of_rollouts_says_so(tmp_path):
    path = tmp_path / "metrics.jsonl"
    text = (LOGS / "prime-rl" / "reverse-text" / "metrics.jsonl").read_text()
    path.write_text(text.replace('"progress/rollouts"', '"progress/other"'))
    run = one(path, "prime-rl", n=16, B=8)
    assert any(m.startswith("rollouts before filtering: the log has no progress/rollouts") for m in run.missing)


def test_plain_csv_by_its_own_and_by_named_columns(tmp_path):
    (tmp_path / "a.csv").write_text("step,held_out,rollouts,seconds\n0,0.1,0,0\n2,0.2,100,7\n")
    run = one(tmp_path / "a.csv", n=2, B=3, lr=1e-3)
    assert told(run) == [(0, 0.1, 0.0), (100, 0.2, 7.0)]
    (tmp_path / "b.csv").write_text("update,score\n0,10\n4,60\n")
    run = one(tmp_path / "b.csv", "csv", {"step": "update", "held_out": "score"}, n=2, B=3, lr=1e-3, scale=(0, 100))
    assert told(run) == [(0, 0.1, None), (24, 0.6, None)]
    assert "seconds" in run.missing


def test_a_folder_without_csv_says_what_to_name(tmp_path):
    (tmp_path / "a.txt").write_text("step,reward\n1,0.1\n")
    with pytest.raises(UserError, match=r"is a folder, and no \.csv in it .*: name its files"):
        sources.logs(tmp_path, "csv")


def test_a_csv_that_names_its_columns_otherwise_needs_no_from(tmp_path):
    (tmp_path / "a.csv").write_text("step,score\n0,0.1\n4,0.6\n")
    assert told(one(tmp_path / "a.csv", columns={"held_out": "score"}, n=2, B=3, lr=1e-3)) == [
        (0, 0.1, None),
        (24, 0.6, None),
    ]


def test_a_csv_of_excel_or_of_pandas_is_read(tmp_path):
    """A mark before the header, and a column of row numbers that has no name."""
    (tmp_path / "a.csv").write_text("\ufeffstep,held_out\n0,0.1\n4,0.6\n", encoding="utf-8")
    assert [C for C, *_ in told(one(tmp_path / "a.csv", n=2, B=3, lr=1e-3))] == [0, 24]
    (tmp_path / "b.csv").write_text(",_step,my\n7,1,0.1\n8,2,0.6\n")
    assert sources.logs(tmp_path / "b.csv", columns={"reward": "my"})[0].facts == {}


def test_a_names_numbers_are_read_whole_or_not_at_all(tmp_path):
    path = written(tmp_path, "step,held_out\n0,0.1\n3,0.2\n", "n8-s1-lr1.5e-6.csv")
    for pattern in ("n{n}-s{seed}-lr{lr}", "n{n}", "s{seed}-lr{lr}"):
        run = one(path, n=None if "{n}" in pattern else 8, B=3, lr=1.5e-6, seed=1, pattern=pattern)
        assert (run.arm["n"], run.arm["lr"], run.seed) == (8, 1.5e-6, 1)


def test_a_stated_rate_is_the_logs_own_to_one_part_in_a_hundred(tmp_path):
    path = written(tmp_path, "step,held_out,lr\n0,0.1,0.001\n3,0.2,0.001\n")
    assert one(path, n=2, B=3, lr=0.00101).arm["lr"] == 0.00101
    with pytest.raises(UserError, match=r"lr is 0\.001 by the log, 0\.00102 by --lr"):
        one(path, n=2, B=3, lr=0.00102)


# the binary formats -------------------------------------------------------------------------------------------


def test_protobuf_by_hand():
    """Field 1, varint 300; field 2, the bytes 'hi'; field 3, the float 1.5 (the encoding's own examples)."""
    data = b"\x08\xac\x02" + b"\x12\x02hi" + b"\x1d" + struct.pack("<f", 1.5)
    found = list(wire.fields(data))
    assert found[:2] == [(1, 300), (2, b"hi")] and wire.number(found[2][1]) == 1.5
    for cut in range(1, len(data)):
        if cut in (3, 7):
            continue
        with pytest.raises(ValueError, match="past the end"):
            list(wire.fields(data[:cut]))


def test_tfrecords_checksum_is_the_published_one():
    """CRC-32C of '123456789' is e3069283; masked as TFRecord does."""
    crc = 0xE3069283
    assert wire._masked(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_torn_end_is_left_out_and_a_broken_middle_is_an_error(tmp_path):
    source = next((TRL / "n4-s0" / "runs").glob("*/*tfevents*"))
    data = source.read_bytes()
    torn, broken = tmp_path / "a.tfevents.1", tmp_path / "b.tfevents.1"
    torn.write_bytes(data[:-5])
    assert 0 < len(list(wire.events(source))) - len(list(wire.events(torn))) <= 1
    (size,) = struct.unpack_from("<Q", data)
    second = 16 + size
    broken.write_bytes(data[:second] + b"\xff" + data[second + 1 :])
    with pytest.raises(UserError, match="the frame at byte"):
        list(wire.events(broken))
    wandb = next((LOGS / "wandb").glob("*/*.wandb")).read_bytes()
    cut = tmp_path / "run.wandb"
    cut.write_bytes(wandb[: len(wandb) // 2])
    assert 0 < len(wire.offline(cut)[0]) < 60
    cut.write_bytes(wandb[:5000] + b"\x00\x01" + wandb[5002:])
    with pytest.raises(UserError, match="not a whole offline wandb file"):
        wire.offline(cut)
    cut.write_bytes(b"something else")
    with pytest.raises(UserError, match="begin with ':W&B'"):
        wire.offline(cut)


# records ------------------------------------------------------------------------------------------------------


def test_a_record_holds_what_the_log_said_and_names_what_it_did_not(tmp_path):
    said("import", TRL / "n2-s1", "--n", 2, "--B", 8, "--seed", 1, "--out", tmp_path / "mine")
    record = read_json(tmp_path / "mine" / "run.json")
    assert record["arm"] == {"n": 2, "B": 8, "lr": 1e-4, "warmup": None, "multiplier": 1.0}
    assert record["imported"]["metric"] == {"name": "eval_reward", "kind": "held-out"}
    assert record["imported"]["stated"] == {"n": 2, "B": 8, "seed": 1}
    assert record["missing"] == [
        "a second held-out half: eval_reward both chooses and is reported",
        "the number of held-out problems, and of samples of each",
    ]
    assert read_json(tmp_path / "mine" / "end.json")["bill"]["train"]["rollouts"] == 5120
    lines = read_lines(tmp_path / "mine" / "metrics.jsonl")
    steps = [x["step"] for x in lines if "eval/select" not in x]
    assert steps == [63, 127, 191, 255, 319]
    (curve,) = curves([tmp_path / "mine"])
    assert list(curve.C) == [0, 1024, 2048, 3072, 4096, 5120] and np.isfinite(curve.seconds).all()
    assert curve.train is not None and np.isnan(curve.train[0]) and np.isfinite(curve.train[1:]).all()
    assert "0.588 -> 0.827" in said("ls", tmp_path)
    assert read_json(tmp_path / "mine" / "end.json")["notes"] == [f"missing: {m}" for m in record["missing"]]


def test_importing_again_changes_nothing_and_another_run_is_refused(tmp_path):
    ask = ("--n", 2, "--B", 8, "--seed", 1, "--out", tmp_path / "mine")
    said("import", TRL / "n2-s1", *ask)
    before = {p.name: p.read_bytes() for p in (tmp_path / "mine").iterdir()}
    said("import", TRL / "n2-s1", *ask)
    assert before == {p.name: p.read_bytes() for p in (tmp_path / "mine").iterdir()}
    assert "already contains another run" in said("import", TRL / "n2-s2", *ask, code=2)


# studies ------------------------------------------------------------------------------------------------------


def test_real_trl_runs_become_a_law_a_plan_and_a_report(theirs):
    out, text, fit, plan = theirs
    assert text.count("6 points to 5,120 rollouts") == 9
    law = Law.of(read_json(out / "law.json"))
    assert law.refused is None and law.ns == (2, 4, 8) and all(len(a.runs) == 3 for a in law.arms)
    assert "one held-out number (eval_reward) both chooses n and is reported" in fit
    made = Plan.of(read_json(out / "plan.json"))
    assert made.arm.n in law.ns and made.arm.B == 8 and made.arm.C == made.arm.n * 8 * made.arm.M <= 20000
    assert made.arm.C > 20000 - 2 * 64  # all of the budget, to within whole updates of every n
    assert made.arm.lr == pytest.approx(4e-4 * (made.arm.n * 8 / 256) ** 0.5, rel=1e-6)
    assert f"n = {made.arm.n}, B = 8" in plan
    page = (out / "report.html").read_text()
    assert "eval_reward" in page and "sums, one carry" in page


def test_an_imported_study_is_held_to_nothing_that_only_our_own_runs_can_have(theirs):
    out, _, _, plan = theirs
    made = Plan.of(read_json(out / "plan.json"))
    assert [c.name for c in made.checks] == ["reach", "warmup"] and imported.THEIRS in made.flags
    assert "seeds per arm (at least" not in plan and "what they cost is not in the budget" in " ".join(plan.split())
    page = (out / "report.html").read_text()
    assert not any(step in page for step in ("isocost train --plan", "isocost pilot", "isocost profile"))
    assert "their logs do not contain this" in page


def test_a_law_of_training_reward_says_so(tmp_path):
    for path in sorted(TRL.iterdir()):
        shutil.copytree(path, tmp_path / "logs" / path.name)
        state = json.loads((path / "trainer_state.json").read_text())
        state["log_history"] = [h for h in state["log_history"] if "eval_reward" not in h]
        (tmp_path / "logs" / path.name / "trainer_state.json").write_text(json.dumps(state))
    out = tmp_path / "theirs"
    sources = sorted((tmp_path / "logs").iterdir())
    told = said("import", *sources, *NAMES, "--B", 8, "--out", out, "--base", 0.588)
    assert "missing: a held-out measure: no column is known to be one, so training reward (reward)" in told
    assert "(training)" in told and "the base: no reward" not in told
    assert "these are training rewards (reward)" in said("fit", out)
    page = render(load(out))
    assert "these are training rewards (reward)" in page.replace("These are", "these are")
    assert "training reward" in page and "eld-out reward" not in page.split("<main>", 1)[1].split("</main>")[0]


def test_runs_can_be_added_and_the_law_is_forgotten(tmp_path):
    out = tmp_path / "theirs"
    runs = sorted(TRL.iterdir())
    said("import", *runs[:6], *NAMES, "--B", 8, "--out", out)
    said("fit", out)
    assert (out / "law.json").exists()
    said("import", runs[6], *NAMES, "--B", 8, "--out", out)
    assert not (out / "law.json").exists()
    assert len(read_json(out / "pilot.json")["runs"]) == 7


def test_an_imported_study_is_not_trained_here(theirs):
    out, *_ = theirs
    for command in (("pilot", out), ("train", "--plan", out)):
        assert "isocost export" in said(*command, code=2)
    assert "takes --budget only" in said("plan", out, "--size", "quick", code=2)
    assert "cannot be counted" in said("plan", out, "--budget", "1e15flop", code=2)


def test_the_rate_rule_is_the_one_the_runs_followed(theirs):
    out, *_ = theirs
    rule = imported.rule_of(curves(out))
    assert rule.exponent == pytest.approx(0.5, abs=1e-9) and not rule.flags and not rule.measured
    assert rule.at(32) == pytest.approx(4e-4 * (32 / 256) ** 0.5)


def test_seeds_nobody_told_are_numbered_in_order(tmp_path):
    said("import", *(TRL / f"n2-s{i}" for i in (2, 0)), "--n", 2, "--B", 8, "--out", tmp_path / "theirs")
    runs = sorted((tmp_path / "theirs" / "runs").iterdir())
    assert [(r.name, read_json(r / "run.json")["imported"]["name"]) for r in runs] == [
        ("pilot-n2-s0", "n2-s2"),
        ("pilot-n2-s1", "n2-s0"),
    ]


def test_runs_of_known_seeds_are_numbered_by_them(tmp_path):
    """In any order, and beside a record whose name has the number of another seed, as older versions gave it."""
    out = tmp_path / "theirs"
    ask = (*NAMES, "--B", 8, "--out", out)
    said("import", TRL / "n2-s2", TRL / "n2-s0", *ask)

    def runs():
        return {r.name: read_json(r / "run.json")["seed"] for r in (out / "runs").iterdir()}

    assert runs() == {"pilot-n2-s0": 0, "pilot-n2-s2": 2}
    (out / "runs" / "pilot-n2-s0").rename(out / "runs" / "pilot-n2-s1")
    record = out / "runs" / "pilot-n2-s1" / "run.json"
    record.write_text(json.dumps(read_json(record) | {"name": "pilot-n2-s1"}))
    said("import", TRL / "n2-s1", *ask)
    assert runs() == {"pilot-n2-s0": 1, "pilot-n2-s1": 0, "pilot-n2-s2": 2}
    assert {(c.run, c.seed) for c in curves(out)} == {("pilot-n2-s0", 1), ("pilot-n2-s1", 0), ("pilot-n2-s2", 2)}


def test_lengths_of_many_n_are_rounded_for_each_by_itself(tmp_path):
    """The least common multiple of n = 2, 8, .. 116 is beyond any budget; a pilot's of a few n stays what it was."""
    ns = range(2, 122, 6)
    for n in ns:
        rows = "".join(f"{s},0.{200 + 3 * s + n}\n" for s in range(1, 41))
        (tmp_path / "logs").mkdir(exist_ok=True)
        written(tmp_path / "logs", f"step,reward\n{rows}", f"n{n}-s0.csv")
    out = tmp_path / "many"
    said("import", tmp_path / "logs", *NAMES, "--B", 8, "--lr", 1e-6, "--out", out)
    pilot, seen = PilotPlan.of(read_json(out / "pilot.json")), curves(out)
    longest = max(c.C[-1] for c in seen)
    assert pilot.unit == 116 * 8 and 3 * longest < pilot.train_C <= 4 * longest
    for rollouts in (None, 1_000, 90_001, 200_000):
        budget = Budget(rollouts, "rollouts") if rollouts else None
        asked = replace(pilot, budget=budget)
        arm = prescribe(None, pilot.rate, budget, pilot.timing, pilot=asked, curves=seen, spent=imported.NOTHING).arm
        size = arm.n * arm.B
        most = min(rollouts, 8 * max(c.C[-1] for c in seen if c.arm["n"] == arm.n)) if rollouts else 4 * longest
        assert size * arm.M == arm.C and most - 2 * max(size, 0 if rollouts else pilot.unit) < arm.C <= most
    assert whole((2, 4, 8), 8, 5120) == whole((2, 4, 8), 8) == 64 and whole((3, 5, 7), 1, 840) == 840


# the page ----------------------------------------------------------------------------------------------------


def test_the_page_lists_every_source_and_shows_what_is_printed(theirs):
    page = (HERE.parent / "docs" / "import.md").read_text(encoding="utf-8")
    assert page == sources_page.listed(page), "run: python -m docs.build.sources docs/import.md"
    assert sources_page.listed(page.replace("| `sb3` |", "| `sb4` |")) == page and "| `sb3` |" in page
    out, text, *_ = theirs
    for line in text.replace(str(out), "studies/theirs").splitlines():
        assert line in page


# planted faults -----------------------------------------------------------------------------------------------


def written(tmp_path, text, name="a.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name




@pytest.mark.parametrize(
    ("text", "name", "options", "why"),
    [
        ("step,reward\n1,0.1\n2,5\n", "a.csv", ONE, "reward is 5, outside [0, 1]"),
        ("step,reward\n1,0.1\n2,5\n", "a.csv", (*ONE, "--scale", "0,4"), "outside --scale 0,4"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--scale", "4,0"), "--scale takes the least first"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--map", "reward=score"), "no column 'score'; it has step, reward"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--map", "rewards=reward"), "--map does not take 'rewards'"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--map", "reward"), "--map takes NAME=COLUMN"),
        ("step,reward\n1,0.1\n2,0.2\n1,0.1\n2,0.3\n", "a.csv", ONE, "step goes back from 2 to 1, so this is more"),
        ("step,reward\n1,0.1\n2\n3,0.1\n", "a.csv", ONE, "line 3: 1 cells where the header has 2"),
        ("step,reward\n1,0.1\n", "a.csv", ("--B", 3, "--lr", 1), "does not say n (rollouts per problem): give --n"),
        ("step,reward\n1,0.1\n", "a.csv", ("--n", 3, "--lr", 1), "does not say B (problems per update): give --B"),
        ("step,reward\n1,0.1\n", "a.csv", ("--n", 3, "--B", 1), "does not say lr (learning rate): give --lr"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--names", "n{n}"), "does not fit --names 'n{n}'"),
        ("step,reward\n1,0.1\n", "n4.csv", (*ONE, "--names", "n{n}"), "n is 4 by the name, 2 by --n"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--names", "n{m}"), "--names 'n{m}' holds {m}; it may hold"),
        ("step,held_out\n0,0.1\n", "a.csv", (*ONE, "--base", 0.1), "its log has the base's reward"),
        ("step,held_out\n0,0.1\n", "n8-s0.5.csv", ("--B", 3, "--lr", 1, *NAMES), "does not fit --names"),
        ("step,held_out\n0,0.1\n", "n8.5-s1.csv", ("--B", 3, "--lr", 1, *NAMES), "does not fit --names"),
        ("step,held_out\n0,0.1\n", "n8-se.csv", ("--B", 3, "--lr", 1, *NAMES), "n, B and seed are whole numbers"),
        ("step,held_out\n0,0.1\n", "n8-lr3e-6x.csv", ("--B", 3, "--names", "n{n}-lr{lr}"), "does not fit --names"),
        ("step,reward\n1,0.1\n", "n2-n2.csv", (*ONE, "--names", "n{n}-n{n}"), "holds {n} twice"),
        (
            "step,reward,rollouts\n4,0.1,28\n5,0.2,29\n",
            "a.csv",
            ONE,
            "its rollouts are 5.8 a step, fewer than n x B = 2 x 3 = 6",
        ),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--scale", "0,inf"), "--scale takes two finite numbers"),
        ("step,score\n1,0.1\n", "a.csv", ONE, "no column 'reward'; it has step, score"),
        ("update,reward\n1,0.1\n", "a.csv", ONE, "no column 'step', which counts steps; it has update, reward"),
        ("step;reward\n1;0,1\n", "a.csv", ONE, "its cells are separated by ';'"),
        ("step\treward\n1\t0.1\n", "a.csv", ONE, "its cells are separated by '\\t'"),
        ("step,reward\n", "a.csv", ONE, "holds a header (step, reward) and no line below it"),
        ("", "a.csv", ONE, "is empty"),
        ("packed", "a.csv.gz", ONE, "is compressed: decompress it first"),
        ("step,reward\n-14,0.1\n-10,0.1\n", "a.csv", ONE, "step is -14; steps count from 0 or 1"),
        ("step,reward,reward\n1,0.1,0.2\n", "a.csv", ONE, "has the column 'reward' twice"),
        ("what is this\n", "a.txt", ONE, "is not a log of a known format"),
        ("", "a.json", ONE, "a.json is empty: give the folder or the file that the trainer wrote"),
        ("step,held_out\n0,0.1\n", "a.csv", (*ONE[:-2], "--B", "x"), "'x' is not a valid integer (see"),
        ("step,reward\n1,0.1\n", "a.csv", (*ONE, "--from", "tensorflow"), "unknown source 'tensorflow'"),
        ("", "a.csv", (*ONE, "--from", "csv"), "is empty"),
        ('{"log_history": [{"step": 1, "rew', "trainer_state.json", ONE, "is not whole JSON (line 1)"),
        ('{"log_history": [{"step": 1, "loss": 2.0}]}', "trainer_state.json", ONE, "no column 'reward'"),
        (
            '{"step":1,"data":{"critic/score/mean":0.1}}\n{"st\n{"step":2,"data":{}}\n',
            "a.jsonl",
            ONE,
            "line 2: not JSON",
        ),
    ],
    ids=lambda x: x[:24] if isinstance(x, str) else "",
)
def test_a_fault_is_one_line_that_names_it_and_writes_nothing(tmp_path, text, name, options, why):
    path = written(tmp_path, text, name)
    assert why in said("import", path, *options, "--out", tmp_path / "out", code=2)
    assert not (tmp_path / "out").exists()


def test_a_torn_last_line_is_left_out_and_named(tmp_path):
    whole = (LOGS / "verl" / "gsm8k-n8.jsonl").read_text()
    path = written(tmp_path, whole[:-40], "n8.jsonl")
    text = said("import", path, "--n", 8, "--B", 32, "--out", tmp_path / "out")
    assert "missing: the last line of n8.jsonl is incomplete and left out" in text and "4 points to 4,864" in text
    path = written(tmp_path, "step,held_out\n0,0.1\n3,0.2\n6", "b.csv")
    assert "the last line of b.csv is incomplete" in said("import", path, *ONE, "--out", tmp_path / "b")


@pytest.mark.parametrize(("end", "points"), [("0.", 2), ("5e-0", 2), ("0.\n", 3), ("0.2", 3), ("1", 3)])
def test_a_number_that_was_cut_at_the_end_of_a_table_is_left_out(tmp_path, end, points):
    path = written(tmp_path, f"step,held_out\n0,0.1\n3,0.2\n6,{end}", "b.csv")
    text = said("import", path, *ONE, "--out", tmp_path / "b")
    assert f"{points} points" in text and ("b.csv is incomplete" in text) == (points == 2)


def test_a_line_of_a_table_is_counted_as_an_editor_does(tmp_path):
    path = written(tmp_path, 'step,held_out,note\n0,0.1,"a\nb"\n\n3,0.2\n6,0.3,x\n', "b.csv")
    assert "b.csv, line 5: 2 cells where the header has 3" in said("import", path, *ONE, code=2)


def test_a_number_of_hundreds_of_digits_is_infinite(tmp_path):
    path = written(tmp_path, f'{{"step":0,"held_out":0.1}}\n{{"step":1,"held_out":1{"0" * 400}}}\n'
                             '{"step":2,"held_out":0.3}\n', "b.jsonl")
    assert "held_out in 1 of 3 lines: NaN, infinite or text" in said("import", path, *ONE, "--out", tmp_path / "b")


def test_one_seed_twice_and_one_log_twice_are_refused(tmp_path):
    shutil.copytree(TRL / "n2-s0", tmp_path / "again" / "n2-s9")
    out = ("--out", tmp_path / "theirs", "--B", 8)
    text = said("import", TRL / "n2-s0", TRL / "n2-s1", "--n", 2, "--seed", 0, *out, code=2)
    assert f"n2-s1 ({TRL}/n2-s1/trainer_state.json) and n2-s0 ({TRL}/n2-s0/trainer_state.json) are both n = 2" in text
    assert "seed 0; a seed counts once" in text
    text = said("import", TRL / "n2-s0", tmp_path / "again" / "n2-s9", *NAMES, *out, code=2)
    assert f"/again/n2-s9/trainer_state.json) is the same log as n2-s0 ({TRL}/n2-s0/trainer_state.json)" in text
    assert not (tmp_path / "theirs").exists()
    said("import", TRL / "n2-s0", TRL / "n2-s1", *NAMES, *out)
    text = said("import", TRL / "n2-s0", TRL / "n2-s1", *NAMES, *out, code=2)
    assert f"was imported before, as n2-s0 ({tmp_path}/theirs/runs/pilot-n2-s0): leave it out, or choose ano" in text


def test_a_folder_without_a_log_says_what_it_has(tmp_path):
    (tmp_path / "none").mkdir()
    assert "none is empty: give the folder" in said("import", tmp_path / "none", *ONE, code=2)
    packed = tmp_path / "packed" / "run" / "trainer_state.json.gz"
    packed.parent.mkdir(parents=True)
    packed.write_bytes(b"\x1f\x8b")
    text = said("import", tmp_path / "packed", *ONE, code=2)
    assert "but trainer_state.json.gz, which is compressed: decompress it first" in text


def test_held_out_and_training_reward_are_not_pooled(tmp_path):
    a = written(tmp_path, "step,held_out\n0,0.1\n3,0.2\n", "n2-s0.csv")
    b = written(tmp_path, "step,reward\n1,0.1\n3,0.2\n", "n2-s1.csv")
    text = said("import", a, b, "--B", 3, "--lr", 1, *NAMES, "--out", tmp_path / "out", code=2)
    assert f"the kind of reward of n2-s0 ({a}) is held-out, of n2-s1 ({b}) training: " in text


def test_a_study_of_ones_own_is_left_alone(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "study.json").write_text(
        '{"schema": 1, "setting": {"model": "tiny", "data": "sums"}, "seed": 0}'
    )
    assert "isocost's own runs" in said("import", TRL / "n2-s0", *NAMES, "--B", 8, "--out", tmp_path / "own", code=2)


def test_totals_of_rows_out_of_order_are_those_of_the_last_row_with_so_many_updates():
    """They are found by halving: of a log of 200,000 lines each line was compared with every other."""
    rng = np.random.default_rng(4)
    rows = [{"step": int(i), "took": x} for i, x in zip(rng.integers(12, size=60), rng.random(60), strict=True)]
    totals = points._totals(rows, names.Names("mine", "step", ("reward",), span="took", first=0))
    assert all(a.updates < b.updates for a, b in itertools.pairwise(totals))
    spent, last, every = 0.0, 0.0, []
    for row in rows:
        spent, last = spent + max(0.0, row["step"] + 1 - last) * row["took"], max(last, row["step"] + 1)
        every.append((row["step"] + 1, spent))
    for updates in (0.5, *range(1, 14)):
        seen = [s for done, s in every if done <= updates]
        assert points._spent(totals, updates).seconds == (pytest.approx(seen[-1]) if seen else None)
