"""Outside logs are read as what they are: under any name, in old formats, several runs in one table, resumed, crashed.

Real logs where there are public ones with a licence (tests/fixtures/logs/README.md), else in the tool's format."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.laws.curves import curves
from isocost.runs.files import read_json, read_lines
from isocost.trainers import jsonl, tensorboard, trl
from isocost.trainers.reading import logs as sources
from isocost.trainers.reading import points
from isocost.trainers.reading.text import number
from isocost.trainers.reading.wire import _masked
from logs_to_import import LOGS, ONE, one, said

RESUMED = LOGS / "trl-resumed" / "resumed.json"
SPARSE = LOGS / "drqv2" / "cartpole_swingup_sparse.csv"
COUNTDOWN = LOGS / "countdown" / "metrics.jsonl"
TRACKING = LOGS / "reasoning" / "tracking_metrics.csv"


def told(run):
    """(C, reward) of every evaluation."""
    return [(C, p.reward) for C, p in run.evaluations]


def table(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def training_only(path, out):
    """A trainer's state without its evaluations, written to `out`."""
    state = json.loads(path.read_text())
    state["log_history"] = [h for h in state["log_history"] if "eval_reward" not in h]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(state, indent=2))
    return out


# under any name -----------------------------------------------------------------------------------------------

BOARD = next((LOGS / "trl" / "n4-s0" / "runs").glob("*/*tfevents*"))
RENAMED = {  # a file of every trainer under a name that is not its own -> the source and the path it came from
    "state_of_n4.json": ("trl", LOGS / "trl" / "n4-s1" / "trainer_state.json"),
    "state.txt": ("trl", LOGS / "trl" / "n4-s1" / "trainer_state.json"),
    "verl.txt": ("verl", LOGS / "verl" / "gsm8k-n8.jsonl"),
    "verl.out": ("verl", LOGS / "verl" / "console.log"),
    "orchestrator.log": ("prime-rl", LOGS / "prime-rl" / "reverse-text" / "metrics.jsonl"),
    "tinker.json": ("tinker", LOGS / "tinker" / "arithmetic" / "metrics.jsonl"),
    "progress-0.csv": ("sb3", LOGS / "sb3" / "envs4-s0" / "progress.csv"),
    "evaluated.npz": ("sb3", LOGS / "sb3" / "envs4-s0" / "evaluations.npz"),
    "episodes.txt": ("sb3", LOGS / "sb3" / "envs4-s0" / "0.monitor.csv"),
    "board": ("tensorboard", BOARD),
    "ppo.bin": ("cleanrl", next((LOGS / "cleanrl").glob("*/*tfevents*"))),
    "offline.bin": ("wandb", next((LOGS / "wandb").glob("*/*.wandb"))),
    "history.txt": ("wandb", LOGS / "exports" / "wandb_history.csv"),
}


def rewards(log):
    return [(p.updates, p.reward) for p in (log.held or log.train)]


@pytest.mark.parametrize(("name", "source", "path"), [(k, *v) for k, v in RENAMED.items()], ids=RENAMED)
def test_a_renamed_file_is_recognised_by_its_content(tmp_path, name, source, path):
    shutil.copy(path, tmp_path / name)
    (own,), (named,), (folder,) = (
        sources.logs(tmp_path / name), sources.logs(tmp_path / name, source), sources.logs(tmp_path)
    )
    assert own.source == named.source == folder.source == source
    (original,) = sources.logs(path, source)
    if name not in ("progress-0.csv", "evaluated.npz", "episodes.txt"):  # those lie beside others of their run
        assert np.array_equal(rewards(own), rewards(original), equal_nan=True)
    assert rewards(own) == rewards(named) == rewards(folder) or np.isnan(own.train[0].updates if own.train else np.nan)
    if source in ("trl", "sb3"):
        assert own.name == Path(name).stem


def test_a_trl_log_is_a_file_a_renamed_file_or_a_folder(tmp_path):
    """All give one record; a folder of renamed files is as many runs, named by their files."""
    source = LOGS / "trl" / "n2-s1" / "trainer_state.json"
    for name in ("n2-s1.json", "n2-s2.json"):
        shutil.copy(LOGS / "trl" / Path(name).stem / "trainer_state.json", tmp_path / name)
    sizes = ("--n", 2, "--B", 8, "--seed", 1)
    texts = []
    for i, asked in enumerate(([source], [source.parent], [tmp_path / "n2-s1.json"],
                               [tmp_path / "n2-s1.json", "--from", "trl"], [source.parent, "--from", "trl"])):
        out = tmp_path / f"out{i}"
        texts.append(said("import", *asked, *sizes, "--out", out).replace(str(out), "OUT"))
        assert read_json(out / "run.json")["imported"]["digest"] == read_json(tmp_path / "out0" / "run.json")[
            "imported"]["digest"]
    assert len(set(texts)) == 1 and "6 points to 5,120 rollouts" in texts[0]
    text = said("import", tmp_path, "--names", "n{n}-s{seed}", "--B", 8, "--out", tmp_path / "both")
    assert "from n2-s1 (trl)" in text and "from n2-s2 (trl)" in text


def test_a_log_history_saved_by_itself_is_read(tmp_path):
    state = json.loads((LOGS / "trl" / "n4-s1" / "trainer_state.json").read_text())
    table(tmp_path / "history.json", json.dumps(state["log_history"]))
    run = one(tmp_path / "history.json", n=4, B=8)
    assert run.log.source == "trl" and told(run) == told(one(LOGS / "trl" / "n4-s1", n=4, B=8))


# several runs in one table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["held_out", "reward"])
def test_three_stacked_seeds_are_three_runs_and_never_one(tmp_path, column):
    """63 lines of DrQ-v2's own curves: seeds 4, 5 and 8, 21 lines each. 5 and 8 earn nothing throughout."""
    ask = ("--map", "step=frame", "--map", f"{column}=episode_reward", "--n", 1, "--B", 1, "--lr", 1e-4,
           "--scale", "0,1000", "--out", tmp_path / "out")
    text = said("import", SPARSE, *ask, code=2)
    assert "frame goes back from 400000 to 0, so this is more than one run" in text
    assert "separate the runs with --map seed=seed" in text and not (tmp_path / "out").exists()
    text = said("import", SPARSE, *ask, "--map", "seed=seed")
    runs = sorted((tmp_path / "out" / "runs").iterdir())
    assert [read_json(r / "run.json")["seed"] for r in runs] == [4, 5, 8]
    assert [read_json(r / "run.json")["imported"]["name"] for r in runs] == [
        f"cartpole_swingup_sparse-s{s}" for s in (4, 5, 8)
    ]
    assert text.count("21 points to 400,000 rollouts") == 3
    assert "the seed" not in text.split("missing: ", 1)[1]


def test_a_table_of_n_and_seeds_is_separated_by_both(tmp_path):
    """Sorted by step, not by run: every step is there four times. n is the table's, and B is given."""
    rows = "".join(
        f"{step},{n},{seed},{0.1 * n / 4 + seed / 100 + step / 100:.3f}\n"
        for step in (0, 1, 2) for n in (4, 8) for seed in (0, 1)
    )
    path = table(tmp_path / "sweep.csv", f"step,n,seed,held_out\n{rows}")
    text = said("import", path, "--B", 3, "--lr", 1e-3, "--n", 4, "--out", tmp_path / "out", code=2)
    assert "step is 0 in two lines" in text and "separate the runs with --map n=n --map seed=seed" in text
    said("import", path, "--B", 3, "--lr", 1e-3, "--map", "n=n", "--map", "seed=seed", "--out", tmp_path / "out")
    found = curves(tmp_path / "out")
    assert [(c.arm["n"], c.seed, c.C.tolist()) for c in found] == [
        (n, s, [0, 3 * n, 6 * n]) for n in (4, 8) for s in (0, 1)
    ]
    assert found[3].select.tolist() == [0.21, 0.22, 0.23]


def test_a_run_that_was_restarted_is_distinguished(tmp_path):
    """The log of reasoning-from-scratch: 5 steps of a run of 300, then another of 500, in one file."""
    ask = (TRACKING, "--map", "reward=reward_avg", "--n", 8, "--B", 1, "--lr", 1e-6, "--out", tmp_path / "out")
    text = said("import", *ask, code=2)
    assert "step goes back from 5 to 1" in text and "--map run=total_steps" in text
    text = said("import", *ask, "--map", "run=total_steps")
    assert "from 300 (csv)" in text and "5 points to 40 " in text
    assert "from 500 (csv)" in text and "35 points to 280 " in text


@pytest.mark.parametrize(("cell", "why"), [("a", "expected an integer in seed, got 'a': give --map run=seed"),
                                           ("", "seed is empty in a line")])
def test_a_seed_that_is_none_is_one_line(tmp_path, cell, why):
    path = table(tmp_path / "a.csv", f"step,held_out,seed\n0,0.1,1\n1,0.2,{cell}\n")
    assert why in said("import", path, *ONE, "--map", "seed=seed", "--out", tmp_path / "out", code=2)


def test_seeds_that_coincide_are_two_runs_and_a_copy_is_not(tmp_path):
    """Success that is 0 or 1 throughout says nothing of whose it is; graded rewards that agree to the last digit do."""
    for name, cells in (("n2-s0", "0 0 1 1"), ("n2-s1", "0 0 1 1"), ("n2-s2", "0 0 0 0"), ("n2-s3", "0 0 0 0")):
        table(tmp_path / "flat" / f"{name}.csv", "step,held_out\n" + "".join(
            f"{i},{x}\n" for i, x in enumerate(cells.split())))
    ask = ("--B", 3, "--lr", 1e-3, "--names", "n{n}-s{seed}")
    said("import", tmp_path / "flat", *ask, "--out", tmp_path / "out")
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    unnamed = (*sorted((tmp_path / "flat").iterdir())[:2], "--n", 2, *ask[:4])
    assert "is the same log as" in said("import", *unnamed, "--out", tmp_path / "unnamed", code=2)
    for name in ("n2-s0", "n2-s1"):
        table(tmp_path / "graded" / f"{name}.csv", "step,held_out\n0,0.1\n1,0.2\n2,0.35\n")
    text = said("import", tmp_path / "graded", *ask, "--out", tmp_path / "copy", code=2)
    assert "is the same log as" in text


# verl's console -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), [("january", 4), ("v0.1", 1)])
def test_old_verl_counts_updates_from_0_and_prints_its_base(name, n):
    """Line `step:4` is the fifth update, after which it was validated; the base is printed to every digit."""
    path = LOGS / "verl" / f"old-{name}.log"
    run = one(path, n=1 if name == "v0.1" else None)
    assert (run.arm["n"], run.arm["B"], run.arm["lr"]) == (n, 32, 1e-6)
    size = 32 * n
    assert [C for C, _ in told(run)] == [0, 5 * size, 10 * size] and 10 * size == run.C
    assert told(run)[0][1] == pytest.approx(0.2085384, abs=1e-9)  # and 0.208 in the line that repeats it
    assert run.metric == "val/test_score/openai/gsm8k"
    assert not any(m.startswith(("the base", "a single", "seconds", "tokens")) for m in run.missing)
    assert run.seconds == pytest.approx(10 * 30 + 2 * 6)  # parts of every step, and two validations
    assert [p.updates for p in run.log.train] == list(range(10))
    assert run.log.about["model"] == "Qwen/Qwen2.5-0.5B-Instruct" and run.log.about["max_tokens"] == 256
    assert (run.log.about["top_p"], run.log.about["top_k"]) == (1, 0)  # verl's -1 is no top-k


def unconfigured(tmp_path, *changes):
    """The log of January without its configuration: nothing in it tells the rate but its lines."""
    lines = (LOGS / "verl" / "old-january.log").read_text().splitlines()
    text = "\n".join(line for line in lines if "step:" in line or "metrics: " in line)
    for old, new in changes:
        text = text.replace(old, new)
    return table(tmp_path / "old.log", text + "\n")


def test_verls_rate_in_units_of_1e_4_is_known_to_its_digits(tmp_path):
    path = unconfigured(tmp_path)
    run = one(path, n=4, B=32)
    assert run.arm["lr"] == pytest.approx(1e-6, rel=1e-12)
    assert "the exact learning rate: the log rounds it to within 5e-08 (--lr sets it)" in run.missing
    assert one(path, n=4, B=32, lr=1.04e-6).arm["lr"] == 1.04e-6
    with pytest.raises(UserError, match=r"lr is 1e-06 by the log, 1\.2e-06 by --lr"):
        one(path, n=4, B=32, lr=1.2e-6)


def test_a_rate_that_verl_rounded_to_nothing_is_not_known(tmp_path):
    """Until July 2025 the console prints `actor/lr:0.000` for 1e-6: that is no rate of 0."""
    path = unconfigured(tmp_path, ("actor/lr(1e-4):0.010", "actor/lr:0.000"))
    with pytest.raises(UserError, match="does not say lr"):
        one(path, n=4, B=32)
    assert one(path, n=4, B=32, lr=1e-6).arm["lr"] == 1e-6


def test_verls_final_validation_in_a_line_of_its_own_stands_at_the_updates_made(tmp_path):
    """Where steps count from 1, verl 0.2 logs the validation after its last update under the next step's number."""
    text = "step:0 - val/test_score/x:0.100\n" + "".join(
        f"step:{s} - critic/score/mean:0.{s}00 - actor/lr:0.000\n" for s in (1, 2, 3)
    ) + "step:4 - val/test_score/x:0.300\n"
    run = one(table(tmp_path / "a.log", text), n=2, B=3, lr=1e-6)
    assert told(run) == [(0, 0.1), (18, 0.3)]


def test_a_resumed_verl_console_begins_where_it_was_resumed(tmp_path):
    """It validates the checkpoint of step 100 first: that is no base."""
    printed = "\"Initial validation metrics: {'val/test_score/x': 0.5004}\"\nstep:100 - val/test_score/x:0.500\n"
    text = printed + "".join(
        f"step:{s} - critic/score/mean:0.5 - actor/lr:1e-06{' - val/test_score/x:0.6' if s == 102 else ''}\n"
        for s in (101, 102)
    )
    run = one(table(tmp_path / "a.log", text), n=2, B=3)
    assert told(run) == [(600, 0.5004), (612, 0.6)] and [p.updates for p in run.log.train] == [100, 101]
    assert any(m.startswith("the base: no reward") for m in run.missing)


# TRL ----------------------------------------------------------------------------------------------------------


def test_an_evaluation_that_a_resume_repeats_is_one_of_its_policy():
    """A real run that stopped at step 24 and was resumed with eval_on_start: two measures of one policy."""
    history = json.loads(RESUMED.read_text())["log_history"]
    twice = [h["eval_reward"] for h in history if h["step"] == 24 and "eval_reward" in h]
    run = one(RESUMED, n=4, B=8, scale=(0, 2))
    assert len(twice) == 2 and [C for C, _ in told(run)] == [0, 384, 768, 1152, 1536]
    assert told(run)[2][1] == pytest.approx(twice[0] / 2)
    assert [m for m in run.missing if "was measured again at step 24" in m and "the first is used" in m]


def test_an_evaluation_where_a_run_was_resumed_is_no_point_of_its_curve(tmp_path):
    """It depends on when the run was killed. The state says every how many updates the trainer evaluates."""
    state = json.loads(RESUMED.read_text())
    before = next(i for i, h in enumerate(state["log_history"]) if h["step"] == 18)
    state["log_history"].insert(before, {"step": 16, "eval_reward": 1.9, "eval_rewards/right/mean": 0.9})
    whole = one(RESUMED, n=4, B=8, scale=(0, 2))
    extra = one(table(tmp_path / "a.json", json.dumps(state)), n=4, B=8, scale=(0, 2))
    assert told(extra) == told(whole)
    assert [m for m in extra.missing if m.startswith("evaluations at step 16: a resumed run's")]


def test_a_prime_rl_log_that_a_resume_appended_to_is_the_curve_of_the_whole_run(tmp_path):
    """The lines since the checkpoint are in it twice; those of the continued run count, and the others are named."""
    folder = shutil.copytree(LOGS / "prime-rl" / "reverse-text", tmp_path / "run")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(x)["step"] for x in lines]
    killed, checkpoint = max(steps) - 3, max(steps) - 7
    first = [x for x, s in zip(lines, steps, strict=True) if s <= killed]
    again = [x for x, s in zip(lines, steps, strict=True) if s > checkpoint]
    whole = one(folder)
    (folder / "metrics.jsonl").write_text("\n".join([*first, *again]) + "\n")
    resumed = one(folder)
    assert told(resumed) == told(whole) and resumed.log.train == whole.log.train and resumed.C == whole.C
    (said,) = (m for m in resumed.missing if m.startswith("what a resume lost"))
    trained = [s for x, s in zip(lines, steps, strict=True) if checkpoint < s <= killed and '"train/agg/all' in x]
    assert f"continued 1 time, and {len(trained)} lines (step {trained[0]} to {trained[-1]})" in said


def test_a_sum_of_rewards_names_its_parts_and_its_scale(tmp_path):
    text = said("import", RESUMED, "--n", 4, "--B", 8, "--out", tmp_path / "out", code=2)
    assert "the log does not say how large eval_reward can be" in text
    assert "it is the sum of eval_rewards/formed/mean, eval_rewards/right/mean" in text
    assert "--map held_out=eval_rewards/formed/mean" in text and "--scale LOW,HIGH" in text
    said("import", RESUMED, "--n", 4, "--B", 8, "--out", tmp_path / "a", "--map", "held_out=eval_rewards/right/mean")
    path = training_only(RESUMED, tmp_path / "train" / "trainer_state.json")
    text = said("import", path, "--n", 4, "--B", 8, "--out", tmp_path / "b", code=2)
    assert "--map reward=rewards/formed/mean" in text and "--scale LOW,HIGH" in text
    said("import", path, "--n", 4, "--B", 8, "--out", tmp_path / "b", "--map", "reward=rewards/right/mean")


def sums(tmp_path, *parts, total=0.8):
    """A table of TRL's names, as a notebook shows it, with one update's rewards below 1."""
    head = ",".join(("step", "reward", *(f"rewards / {p}" for p in parts)))
    return table(tmp_path / "a.csv", f"{head}\n" + "".join(f"{s},{total},{',0.4' * len(parts)}\n".replace(",,", ",")
                                                           for s in (1, 2)))


def test_a_sum_below_1_needs_its_scale_too(tmp_path):
    """What it can be at most is in no log: 0.8 of 2 is not 0.8 of 1. A function under two names is one."""
    ask = (*ONE, "--out", tmp_path / "out")
    text = said("import", sums(tmp_path, "format", "right"), *ask, code=2)
    assert "does not say how large reward can be; it is the sum of rewards / format, rewards / right: fit one" in text
    said("import", sums(tmp_path, "format", "right"), *ask, "--scale", "0,2")
    assert told(one(sums(tmp_path, "a", "b"), n=2, B=3, lr=1, scale=(0, 2))) == [(0, 0.4), (6, 0.4)]
    for parts in (("right",), ("right", "right / mean"), ("right / mean", "right / std")):
        assert points._parts("reward", ["reward", *(f"rewards / {p}" for p in parts)]) == [f"rewards / {parts[0]}"]
    sets = ["eval_math_rewards/a/mean", "eval_math_rewards/b/mean", "eval_code_rewards/a/mean", "rewards/a/mean"]
    assert points._parts("eval_math_reward", sets) == sets[:2]


# steps ----------------------------------------------------------------------------------------------------------------


def test_a_table_that_counts_from_0_begins_at_the_base(tmp_path):
    """40 updates of 6 rollouts: the first reward is of the base, the second of one update, and all took 240."""
    rows = [f"{s},0.{s + 10}" for s in range(40)]
    run = one(table(tmp_path / "a.csv", "step,reward\n" + "\n".join(rows) + "\n"), n=2, B=3, lr=1)
    assert [C for C, _ in told(run)][:3] == [0, 6, 12] and run.C == 240
    assert "steps that count from 1: here step = s is update s+1" in run.missing
    said("import", tmp_path / "a.csv", *ONE, "--out", tmp_path / "out")
    lines = list(read_lines(tmp_path / "out" / "metrics.jsonl"))
    assert min(x["step"] for x in lines) == 0 and sum("reward" in x for x in lines) == 40
    text = table(tmp_path / "b.csv", "step,held_out\n-2,0.1\n0,0.2\n")
    with pytest.raises(UserError, match="step is -2; steps count from 0 or 1"):
        one(text, n=2, B=3, lr=1)


def micro(tmp_path, *rows):
    head = "_step,_runtime,train/global_step,train/reward,train/learning_rate"
    lines = (f"{i},{3 * i},{row}" for i, row in enumerate(rows))
    return table(tmp_path / "history.csv", "\n".join([head, *lines]) + "\n")


def test_lines_of_one_step_are_averaged_where_a_second_clock_rises(tmp_path):
    run = one(micro(tmp_path, "1,0.1,", "1,0.3,", "1,,1e-6", "2,0.5,", "2,0.7,", "2,,1e-6"), n=2, B=3)
    assert told(run) == [(0, pytest.approx(0.2)), (6, pytest.approx(0.6))] and run.arm["lr"] == 1e-6
    said_so = "one line per train/global_step: train/reward is in up to 2 lines of one, and their mean is read"
    assert said_so in run.missing


def test_rewards_in_lines_without_a_step_are_refused_for_that_reason(tmp_path):
    with pytest.raises(UserError, match=r"train/reward is in 2 lines, and train/global_step in none of them"):
        one(micro(tmp_path, ",0.1,", ",0.3,", "1,,1e-6"), n=2, B=3)


def test_two_held_out_sets_one_after_the_other_are_not_one_curve(tmp_path):
    """From 0.62 to 0.1: that is another set, and it is named with the command that would join the two."""
    a, b = "val-core/easy/acc/mean@1", "val-core/hard/acc/mean@1"
    rows = [{"step": s, "data": {a if s < 3 else b: x}} for s, x in enumerate((0.5, 0.58, 0.62, 0.1, 0.13, 0.15))]
    run = one(table(tmp_path / "a.jsonl", "".join(json.dumps(r) + "\n" for r in rows)), n=2, B=3, lr=1)
    assert run.metric == a and [C for C, _ in told(run)] == [0, 6, 12]
    assert f"other held-out rewards: {a} is read, {b} not (--map held_out=COLUMN)" in run.missing
    run = one(tmp_path / "a.jsonl", columns={"held_out": f"{a},{b}"}, n=2, B=3, lr=1)
    assert len(told(run)) == 6


def test_the_lost_lines_of_a_resumed_tensorboard_log_are_named(tmp_path):
    for i, steps in ((1, range(1, 7)), (2, range(4, 10))):
        (tmp_path / f"events.out.tfevents.{i}").write_bytes(b"".join(event(s, 0.1 * s, i) for s in steps))
    run = one(tmp_path, columns={"reward": "train/reward"}, n=2, B=3, lr=1)
    assert [p.updates for p in run.log.train] == list(range(9))
    assert any(m.startswith("what a resume lost: the run was continued 1 time, and 3 lines (step 4 to 6)")
               for m in run.missing)


def test_ms_swifts_log_and_what_it_prints(tmp_path):
    rows = [{"loss": 0.0, "learning_rate": 1e-6, "reward": s / 10, "reward_std": 0.1, "completions/mean_length": 9.0,
             "global_step/max_steps": f"{s}/40", "elapsed_time": f"{s}m 30s"} for s in (2, 4, 6)]
    table(tmp_path / "v0" / "logging.jsonl", "".join(json.dumps(r) + "\n" for r in rows))
    table(tmp_path / "out.txt", "Map: 100%|##| 9/9 [00:00]\n" + "".join(f"{r}\n" for r in rows))
    run, out = one(tmp_path / "v0", n=2, B=3), one(tmp_path / "out.txt", n=2, B=3)
    assert (run.log.source, run.log.name, out.log.source, run.arm["lr"], run.C) == ("swift", "v0", "trl", 1e-6, 36)
    assert told(run) == told(out) == [(3, 0.2), (15, 0.4), (27, 0.6)] and run.seconds == 270.0
    assert run.log.train[0].more["completions/mean_length"] == 9.0


@pytest.mark.parametrize(("bars", "steps", "said_so"), [
    ("each", [10, 20, 30], False), ("late", [10, 20, 30], True), ("none", [1, 2, 3], True),
])
def test_what_trl_printed_has_the_steps_of_its_progress_bar(bars, steps, said_so, tmp_path):
    """Printed late, all lines are behind the last bar, 30 of 30: ten updates for each of three."""
    lines = [f"{{'loss': '0', 'reward': '0.{s}', 'completion_length': 9.0, 'epoch': 0.1}}\n" for s in (1, 2, 3)]
    bar = [f" {s}%|## | {s}/30 [01:00<00:10, 2.0s/it]\n" for s in (10, 20, 30)]
    text = {"each": "".join(a + b for a, b in zip(lines, bar, strict=True)), "late": "".join(bar + lines),
            "none": "".join(lines)}[bars]
    run = one(table(tmp_path / "a.log", text), n=2, B=3, lr=1)
    assert [p.done for p in run.log.train] == steps
    assert any(m.startswith("steps: what was printed has none") for m in run.missing) == said_so
    assert run.log.train[0].more["completions/mean_length"] == 9.0


def test_the_first_logged_mean_stands_for_the_base_where_it_is_of_few_updates(tmp_path):
    """Every second of 48 updates logged: the first mean is of updates 0 and 1, a twenty-fourth of the run."""
    path = training_only(RESUMED, tmp_path / "n4" / "trainer_state.json")
    rewards = [h["reward"] for h in json.loads(path.read_text())["log_history"] if "reward" in h]
    run = one(path, n=4, B=8, scale=(0, 2))
    assert [C for C, _ in told(run)][:4] == [0, 32 * 2.5, 32 * 4.5, 32 * 6.5]
    assert told(run)[0][1] == pytest.approx(rewards[0] / 2)
    (why,) = [m for m in run.missing if m.startswith("the base's own reward")]
    assert "the mean over updates 0 to 1, is used at C = 0" in why
    run = one(path, n=4, B=8, scale=(0, 2), base=1.0)  # the base's own reward, where it is known
    assert told(run)[0] == (0, 0.5) and told(run)[1][0] == 16 and not any("is used at C = 0" in m for m in run.missing)
    history = json.loads(path.read_text())
    history["log_history"] = history["log_history"][:10]  # a tenth of the run: too much for a base
    path.write_text(json.dumps(history))
    run = one(path, n=4, B=8, scale=(0, 2))
    assert told(run)[0][0] == 16
    assert any("the mean over updates 0 to 1 (logging_steps)" in m and "--base" in m for m in run.missing)


def test_a_log_that_begins_late_has_no_base(tmp_path):
    """Steps 200, 201, ...: the first line is one update's reward, of a policy with 199, and not the mean of 200."""
    rows = "".join(f"{s},0.{s - 150}\n" for s in range(200, 240))
    run = one(table(tmp_path / "late.csv", f"step,reward\n{rows}"), n=2, B=3, lr=1e-3)
    assert [C for C, _ in told(run)][:2] == [199 * 6, 200 * 6]
    assert any(m.startswith("the base: no reward") for m in run.missing)


def test_a_rewards_name_with_a_slash_is_no_other_evaluation():
    """Older TRL wrote eval_rewards/NAME without /mean, beside eval_reward."""
    rows = [{"step": 0, "eval_reward": 0.5, "eval_rewards/right": 0.5, "eval_rewards/right_reward": 0.5}]
    assert points._others(trl.HISTORY.held, list(rows[0]), "eval_reward", None) == []


# JSON lines ---------------------------------------------------------------------------------------------------


def test_plain_json_lines_are_recognised_and_mapped(tmp_path):
    """A TRL run's own metrics of countdown_post_train: steps 2, 10, 20, ...; reward is a sum of up to 1.6."""
    rows = [json.loads(line) for line in COUNTDOWN.read_text().splitlines()]
    run = one(COUNTDOWN, n=10, B=4, scale=(0, 1.6))
    assert run.log.source == "jsonl" and run.arm["lr"] == max(r["learning_rate"] for r in rows if "learning_rate" in r)
    assert [C for C, _ in told(run)][:3] == [0, 40 * 5.5, 40 * 14.5]
    mapped = one(COUNTDOWN, "jsonl", {"reward": "accuracy", "length": "avg_gen_tokens"}, n=10, B=4)
    assert mapped.metric == "accuracy" and told(mapped)[1][1] == rows[1]["accuracy"]
    assert mapped.log.train[1].more["completions/mean_length"] == rows[1]["avg_gen_tokens"]
    text = said("import", COUNTDOWN, "--n", 10, "--B", 4, "--out", tmp_path / "out", code=2)
    assert "reward is 1.05552, outside [0, 1]" in text and "--scale LOW,HIGH" in text and "--map reward=COLUMN" in text


def test_json_lines_of_any_names_need_only_a_map(tmp_path):
    lines = [{"iter": i, "metrics": {"acc": i / 10}, "run": {"seed": s}} for s in (1, 2) for i in (0, 1, 2)]
    path = table(tmp_path / "log.txt", "".join(json.dumps(line) + "\n" for line in lines))
    text = said("import", path, *ONE, "--map", "step=iter", "--map", "held_out=metrics.acc", "--out", tmp_path / "x",
                code=2)
    assert "--map seed=run.seed" in text
    found = sources.logs(path, None, {"step": "iter", "held_out": "metrics.acc", "seed": "run.seed"})
    assert [x.name for x in found] == ["log-s1", "log-s2"]
    assert all([p.reward for p in x.held] == [0, 0.1, 0.2] for x in found)
    table(tmp_path / "list.json", json.dumps([{"step": i, "held_out": i / 10} for i in range(3)]))
    assert told(one(tmp_path / "list.json", n=2, B=3, lr=1e-3)) == [(0, 0), (6, 0.1), (12, 0.2)]
    table(tmp_path / "bad.json", "[1, 2]")
    assert "expected a list of objects, found a int" in said("import", tmp_path / "bad.json", *ONE, code=2)


# crashed runs -------------------------------------------------------------------------------------------------


def test_a_crashed_run_that_logged_nothing_is_skipped_and_named(tmp_path):
    """wandb's own file of a process that died after wandb.init, before its first line (as wandb 0.31 leaves it)."""
    shutil.copytree(LOGS / "wandb-crashed", tmp_path / "wandb")
    shutil.copytree(LOGS / "wandb", tmp_path / "wandb", dirs_exist_ok=True)
    (crashed,) = (LOGS / "wandb-crashed").iterdir()
    for paths in ([tmp_path / "wandb"], [tmp_path], sorted((tmp_path / "wandb").iterdir())):
        done = CliRunner().invoke(main, ["import", *map(str, paths), "--out", str(tmp_path / "out")])
        assert done.exit_code == 0 and "from n4-s3 (wandb)" in done.stdout
        assert f"skipped: {tmp_path}/wandb/{crashed.name}/" in done.stderr and "holds no logged line" in done.stderr
    assert "holds no logged line" in said("import", LOGS / "wandb-crashed", "--out", tmp_path / "none", code=2)


def test_runs_that_ended_before_a_reward_are_skipped_among_others(tmp_path):
    shutil.copytree(LOGS / "trl" / "n4-s1", tmp_path / "n4-s1")
    for name, history in (("n4-s2", []), ("n4-s3", [{"step": 1, "loss": 0.5}])):
        table(tmp_path / name / "trainer_state.json", json.dumps({"log_history": history}))
    skipped = []
    assert [x.name for x in sources.logs(tmp_path, skipped=skipped)] == ["n4-s1"]
    assert len(skipped) == 2 and "n4-s3" in skipped[1] and "no column 'reward'" in skipped[1]


# one log ------------------------------------------------------------------------------------------------------


def test_one_run_gives_its_curve_and_says_what_is_missing(tmp_path):
    out = tmp_path / "one"
    said("import", LOGS / "trl" / "n4-s0", "--out", out)
    before = sorted(p.name for p in out.iterdir())
    text = " ".join(said("fit", out).split())
    assert "4 8 1.4e-04 1 5,120 0." in text
    assert "the standard deviation between runs was not measured" in text and "the only n with a curve" in text
    assert "isocost import LOG... --study --out STUDY" in text and "isocost pilot" not in text
    assert sorted(p.name for p in out.iterdir()) == before  # nothing is written
    assert json.loads(said("fit", out, "--json"))["arms"][0]["n"] == 4
    for command in (("plan", out), ("export", out, "--to", "trl")):
        text = said(*command, code=2)
        assert "is a run, not a study" in text and "--study --out STUDY" in text and "profile" not in text


def test_a_law_without_a_base_says_how_to_get_one(tmp_path):
    """Five means over 32 of 160 updates: the first is of too many to stand for the base."""
    path = training_only(LOGS / "trl" / "n4-s0" / "trainer_state.json", tmp_path / "n4-s0" / "trainer_state.json")
    for study in ((), ("--study",)):
        out = tmp_path / f"out{len(study)}"
        said("import", path, "--n", 4, "--B", 8, *study, "--out", out)
        text = said("fit", out, code=2)
        assert "before training (C = 0), which a law needs. Import again with --base REWARD" in text
        assert "eval_on_start: true" in text and "logging_steps: 1" in text


def test_one_log_can_be_a_study_to_which_others_are_added(tmp_path):
    out = tmp_path / "study"
    said("import", LOGS / "trl" / "n4-s0", "--study", "--out", out)
    assert "law: not identified" in said("fit", out)
    text = said("plan", out, "--budget", "10k-rollouts")
    assert "prescription: n = 4" in text and "isocost pilot" not in text
    assert "num_generations: 4" in said("export", out, "--to", "trl")
    said("import", LOGS / "trl" / "n4-s1", "--n", 4, "--B", 8, "--seed", 1, "--out", out)
    assert len(read_json(out / "pilot.json")["runs"]) == 2 and not (out / "law.json").exists()


# scales -------------------------------------------------------------------------------------------------------


def test_a_reward_is_printed_on_its_own_scale_too(tmp_path, monkeypatch):
    """0.1 and 0.6 of -100 to 300 are -60 and 140."""
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path / "a.csv", "step,held_out\n0,-60\n1,140\n")
    text = said("import", path, *ONE, "--scale=-100,300", "--out", tmp_path / "run")
    said_so = "-60 -> 140 of -100 to 300 in the log"
    assert f"held_out 0.100 -> 0.600 (held-out; {said_so})" in text
    assert f"0.100 -> 0.600 ({said_so})" in said("ls", ".")
    said("import", path, *ONE, "--scale=-100,300", "--study", "--out", tmp_path / "study")
    lines = list(read_lines(tmp_path / "study" / "runs" / "pilot-n2-s0" / "metrics.jsonl"))
    assert [x["eval/audit"] for x in lines] == pytest.approx([0.1, 0.6])


def field(number, body):
    return bytes([number << 3 | 2, len(body)]) + body


def frame(event):
    size = struct.pack("<Q", len(event))
    return size + struct.pack("<I", _masked(size)) + event + struct.pack("<I", _masked(event))


def event(step, reward, wall):
    """A TensorBoard event of a training reward."""
    value = field(5, field(1, field(1, b"train/reward") + b"\x15" + struct.pack("<f", reward)))
    return frame(b"\x09" + struct.pack("<d", wall) + bytes([0x10, step]) + value)


def test_a_text_called_args_of_another_program_is_no_configuration(tmp_path):
    text = field(5, field(1, field(1, b"args") + field(8, b"\x08\x07" + field(8, b"lr = 1e-3"))))
    value = b"\x10\x01" + field(5, field(1, field(1, b"train/reward") + b"\x15" + struct.pack("<f", 0.5)))
    (tmp_path / "events.out.tfevents.1").write_bytes(frame(text) + frame(value))
    (log,) = tensorboard.read(tmp_path, {"reward": "train/reward"})
    assert [p.reward for p in log.train] == [0.5] and not any(log.facts.values())


def test_a_line_that_is_nested_too_deeply_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "reward": 0.5}\n' + "[" * 20_000 + "\n" + '{"step": 2, "reward": 0.5}\n')
    with pytest.raises(UserError, match=r"line 2: not JSON that can be read: maximum recursion"):
        jsonl.read(path, {})


def test_an_integer_beyond_all_floats_is_no_number():
    assert number(10**400) is None and number(7) == 7.0 and number("7") is None and number(float("inf")) is None
