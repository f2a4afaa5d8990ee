"""Trainers that need GPUs, driven: their configuration against their options, and runs of stand-ins that log, save and
continue as each trainer's source does, killed and launched again."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

from isocost.errors import UserError
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.steps.events import SILENT
from isocost.steps.folder import found
from isocost.steps.outside import drive
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.settle import trainer_of
from isocost.steps.outside.trainer import profile_trainer
from isocost.trainers.driving.command import Sizes
from isocost.trainers.driving.drive import Begin, quoted
from isocost.trainers.driving.driven import KINDS
from isocost.worlds.setting import Setting
from stand_in import held
from test_drive import lines
from test_export import flat, known, schema

HERE = Path(__file__).parent
DRIVEN = json.loads((HERE / "fixtures" / "schemas" / "drive.json").read_text())
TRAINERS = list(DRIVEN)
SETTING = Setting.of(model="m", data="d", held_out=64.0, samples=4)
SIZES = Sizes("pilot-n4-s0", n=4, B=8, C=32 * 24, lr=2e-4, warmup=3, seed=7, points=(256, 512, 768), samples=3)
LATE = ("skyrl", "nemo-rl", "openrlhf", "slime")
OWN = {"openrlhf": "--data.max_samples 16"}
COMMAND = dict.fromkeys(TRAINERS, "{options}") | {"prime-rl": "@ {config}"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(drive, "TICK", 0.02)


def command(kind):
    return f"{kind}: {sys.executable} {HERE / 'stand_in.py'} {kind} {OWN.get(kind, '')} {COMMAND[kind]}"


def begun(tmp_path, kind, attempt=0, missing=(0, 8, 16, 24)):
    """A prepared attempt: (what it is started with, its options as key -> value)."""
    folder, out = tmp_path / "attempts" / str(attempt), tmp_path / "trainer"
    folder.mkdir(parents=True)
    out.mkdir(exist_ok=True)
    words = tuple(trainer_of(command(kind)).words)
    made = KINDS[kind].prepare(Begin(SIZES, out, folder, frozenset(missing), words))
    if kind == "prime-rl":
        return made, {k: str(v) for k, v in flat(tomllib.loads(Path(made.values["config"]).read_text())).items()}
    if kind in ("openrlhf", "slime"):
        pairs = zip(made.options, [*made.options[1:], "--"], strict=True)
        return made, {a[2:]: "" if b.startswith("--") else b for a, b in pairs if a.startswith("--")}
    return made, dict(w.split("=", 1) for w in made.options)


# configuration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TRAINERS)
def test_every_option_is_one_that_the_trainer_has(tmp_path, kind):
    """Those of evaluations, checkpoints and logs are recorded with the file and the commit where they were read."""
    _, options = begun(tmp_path, kind)
    (tmp_path / "b").mkdir()
    _, again = begun(tmp_path / "b", kind, attempt=1)
    names = set(DRIVEN[kind]["options"]) | (schema(kind) if kind != "slime" else set())
    assert [o for o in (*options, *again) if not known(o, names)] == []
    assert set(DRIVEN[kind]["options"]) - schema_of(kind) <= set(options) | set(again) | set(DRIVEN[kind]["when"])


def schema_of(kind):
    return schema(kind) if kind != "slime" else set()


EXPECTED = {
    "verl": {"actor_rollout_ref.rollout.n": 4, "data.train_batch_size": 8, "trainer.total_training_steps": 24,
             "actor_rollout_ref.actor.optim.lr": 2e-4, "actor_rollout_ref.actor.optim.lr_warmup_steps": 3,
             "data.seed": 7, "trainer.test_freq": 8, "trainer.save_freq": 8,
             "actor_rollout_ref.rollout.val_kwargs.n": 3},
    "prime-rl": {"orchestrator.group_size": 4, "orchestrator.batch_size": 32, "max_steps": 24, "trainer.optim.lr": 2e-4,
                 "trainer.scheduler.warmup_steps": 3, "orchestrator.eval.interval": 8, "ckpt.interval": 8,
                 "orchestrator.eval.group_size": 3},
    "skyrl": {"generator.n_samples_per_prompt": 4, "trainer.train_batch_size": 8, "trainer.max_training_steps": 24,
              "trainer.policy.optimizer_config.lr": 2e-4, "trainer.policy.optimizer_config.num_warmup_steps": 3,
              "trainer.seed": 7, "trainer.eval_interval": 8, "trainer.ckpt_interval": 8,
              "generator.eval_n_samples_per_prompt": 3},
    "nemo-rl": {"grpo.num_generations_per_prompt": 4, "grpo.num_prompts_per_step": 8, "grpo.max_num_steps": 24,
                "policy.optimizer.kwargs.lr": 2e-4, "policy.scheduler.0.kwargs.total_iters": 3, "grpo.seed": 7,
                "grpo.val_period": 8, "checkpointing.save_period": 8,
                "grpo.val_num_generations_per_prompt": 3},
    # 16 problems: 24 updates of 8 take 12 passes, which are 24 updates of 2 a pass; 3 of them are warm-up
    "openrlhf": {"rollout.n_samples_per_prompt": 4, "rollout.batch_size": 8, "train.batch_size": 32,
                 "train.num_episodes": 12, "actor.adam.lr": 2e-4, "actor.lr_warmup_ratio": 3 / 24, "train.seed": 7,
                 "eval.steps": 8, "ckpt.save_steps": 8, "eval.n_samples_per_prompt": 3},
    "slime": {"n-samples-per-prompt": 4, "rollout-batch-size": 8, "global-batch-size": 32, "num-rollout": 24,
              "lr": 2e-4, "lr-warmup-iters": 3, "seed": 7, "rollout-seed": 7, "eval-interval": 8, "save-interval": 8,
              "n-samples-per-eval-prompt": 3},
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_configuration_says_what_a_run_is(tmp_path, kind):
    _, options = begun(tmp_path, kind)
    assert {k: float(options[k]) for k in EXPECTED[kind]} == EXPECTED[kind]


@pytest.mark.parametrize("kind", TRAINERS)
def test_the_launch_line_is_the_users_command_with_the_options_of_the_run(tmp_path, kind):
    text = f"{kind}: bash run.sh --mine {OWN.get(kind, '')} {COMMAND[kind]}"
    home = found(tmp_path / "s", SETTING, seed=0, method=None, trainer=trainer_of(text).data())
    run = drive._Run.of(home, home.trainer, job(kind), home.runs / "pilot-n4-s0").driven
    launch = run.next_launch()
    assert launch.argv[:3] == ("bash", "run.sh", "--mine") and launch.key == "s/pilot-n4-s0/0"
    made = read_json(run.attempts[0] / "launch.json")
    assert made["argv"] == list(launch.argv) and made["env"]["ISOCOST_N"] == "4"
    assert str(run.out) in " ".join(launch.argv) or str(run.out) in Path(launch.argv[-1]).read_text()


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_command_without_its_configuration_is_refused(kind):
    with pytest.raises(UserError, match=rf"--trainer {kind}: the command needs \{{(options|config)\}}, which isocost"):
        trainer_of(f"{kind}: bash run.sh {{n}} {{B}} {{lr}} {{seed}} {{out}}")


def test_openrlhf_is_told_the_number_of_problems(tmp_path):
    with pytest.raises(UserError, match=r"add --data\.max_samples N to the command"):
        KINDS["openrlhf"].prepare(Begin(SIZES, tmp_path, tmp_path / "0", frozenset(), ("python",)))
    with pytest.raises(UserError, match="4 is less than the 8 problems of an update"):
        KINDS["openrlhf"].prepare(Begin(SIZES, tmp_path, tmp_path / "0", frozenset(), ("--data.max_samples=4",)))


def test_the_newest_checkpoint_is_one_that_skips_no_evaluation(tmp_path):
    def newest(missing, *, again, there=(8, 16, 24)):
        return Begin(SIZES, tmp_path, tmp_path / "1", frozenset(missing)).newest(there, again=again)

    assert newest({24}, again=False) == 16 and newest({24}, again=True) == 24
    assert newest({16, 24}, again=True) == 16 and newest({16, 24}, again=False) == 8
    assert newest({0, 8, 16, 24}, again=True) is None and newest((), again=False) == 24
    assert newest({8, 24}, again=False) is None and newest({8}, again=True, there=(6, 9)) == 6


def test_a_path_is_one_value_of_an_override():
    assert quoted(Path("/a/b-1_c.d")) == "/a/b-1_c.d"
    assert quoted(Path("/my runs/a=b,'c'")) == r"'/my runs/a=b,\'c\''"


# runs of stand-ins --------------------------------------------------------------------------------------------


def job(kind, M=24, lr=2e-3):
    return Job("pilot-n4-s0", SETTING, kind, 7, {"rollouts": 32 * M}, Arm(n=4, B=8, lr=lr),
               points=tuple(32 * u for u in (8, 16, M)), purpose="pilot")


def driven(tmp_path, kind, jobs=None, **more):
    """(the run's folder, its end.json) of a run by the stand-in."""
    home = found(tmp_path / "study", SETTING, seed=0, method=None, trainer=trainer_of(command(kind)).data(),
                 launch="local")
    if not KINDS[kind].base:
        home.write("study.json", home.asked | {"base": held(0, 2e-3)})
    (end,) = drive_jobs(home, jobs or [job(kind)], "pilot", SILENT, 1)
    return home.runs / "pilot-n4-s0", end


def evaluated(run):
    return [(x["rollouts"], round(x["eval/select"], 6)) for x in lines(run) if "eval/select" in x]


def alike(found, expected):
    """Equal rollouts; equal rewards to a float of 32 bits."""
    return [a for a, _ in found] == [a for a, _ in expected] and all(
        abs(a - b) < 1e-5 for (_, a), (_, b) in zip(found, expected, strict=True))


def trained(run):
    """Updates of the policy -> its training reward."""
    return {x["step"]: round(x["reward"], 6) for x in lines(run) if "reward" in x}


LAG = {"prime-rl": 2}       # updates that the stand-in's evaluations are behind, except the base's
CURVE = [0, 8, 16, 24]


def curve(kind, M=24):
    """(rollouts, reward) of the formula."""
    each = 33 if kind == "prime-rl" else 32     # it counts a discarded rollout of every update
    points = sorted({*CURVE, M} - {u for u in CURVE if u > M})
    return [(u * each, round(held(max(0, u - LAG.get(kind, 0)) if u else 0, 2e-3), 6)) for u in points]


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_run_is_a_record_of_what_its_log_holds(tmp_path, kind):
    run, end = driven(tmp_path, kind)
    assert alike(evaluated(run), curve(kind))
    rewards = trained(run)
    assert [rewards[s] for s in range(24)] == pytest.approx([held(s, 2e-3) - 0.1 for s in range(24)], abs=1e-5)
    assert end["reason"] == "spent" and len(list(run.glob("attempts/*"))) == 1
    assert end["bill"]["train"]["rollouts"] >= curve(kind)[-1][0]
    notes = " ".join(end["notes"])
    assert {"verl": "a seed that repeats a run", "prime-rl": "had u - 3 to u - 1 updates",
            "openrlhf": "learning rate of 0"}.get(kind, "") in notes


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_killed_run_is_continued_and_has_the_same_curve(tmp_path, kind, monkeypatch):
    """Killed with kill -9 within updates 11 and 20, after checkpoints at 8 and 16; TensorBoard writes every fifth time.
    What was logged and made again is lost. Of what was not logged, a bound is stated."""
    monkeypatch.setenv("DEATHS", "11,20")
    monkeypatch.setenv("FLUSH", "5")
    run, end = driven(tmp_path, kind)
    assert alike(evaluated(run), curve(kind))
    rewards = trained(run)
    assert all(rewards[s] == pytest.approx(held(s, 2e-3) - 0.1, abs=1e-5) for s in rewards)
    names = KINDS[kind].names([])
    logs = [[r for r in read_lines(p) if any(re.fullmatch(x, k) for x in names.reward for k in r)]
            for p in sorted(run.glob("attempts/*/log.jsonl"))]
    dead = [rows[-1]["step"] for rows in logs[:2]]
    assert len(logs) == 3 and dead == ([10, 18] if kind in LATE else [10, 19])
    starts = [read_json(p)["newest"] for p in sorted(run.glob("attempts/*/launch.json"))[1:]]
    again = sum(d - s for d, s in zip(dead, starts, strict=True))
    assert starts == [8, 16] and end["bill"]["lost"] == {"rollouts": 32 * again, "updates": again}
    (note,) = [n for n in end["notes"] if "2 attempts ended early" in n]
    bound = (16 - 10) + (24 - 18) if kind in LATE else 2       # no checkpoint at 16, and none at 24
    assert f"at most {32 * bound:,} rollouts" in note


@pytest.mark.parametrize("kind", LATE)
def test_a_checkpoint_whose_evaluation_was_lost_is_not_skipped(tmp_path, kind, monkeypatch):
    """The events of updates 7 to 10 are lost, so the evaluation after update 8 is not in any log."""
    monkeypatch.setenv("DEATHS", "11")
    monkeypatch.setenv("FLUSH", "6")
    run, _ = driven(tmp_path, kind)
    assert alike(evaluated(run), curve(kind))
    text = (run / "attempts" / "1" / "launch.json").read_text()
    assert ("global_step_8" in text) == (kind == "skyrl")       # which evaluates it again; the others begin anew
    if kind != "skyrl":
        assert len(list((run / "trainer").rglob("passed-over-*"))) >= 1


@pytest.mark.parametrize("kind", ["verl", *LATE])
def test_a_run_that_died_within_its_last_evaluation_makes_it_again(tmp_path, kind, monkeypatch):
    """OpenRLHF and slime have logged the last update and saved its checkpoint, which they would not evaluate again."""
    monkeypatch.setenv("DEATHS", "24e")
    run, end = driven(tmp_path, kind)
    assert alike(evaluated(run), curve(kind)) and len(list(run.glob("attempts/*"))) == 2
    lost = {"verl": 7, "nemo-rl": 7, "skyrl": 0, "openrlhf": 8, "slime": 8}
    assert end["bill"].get("lost", {}).get("updates", 0) == lost[kind]


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_longer_run_continues_the_shorter_one(tmp_path, kind):
    run, _ = driven(tmp_path, kind, [job(kind, M=16)])
    before = evaluated(run)
    run, end = driven(tmp_path, kind)
    assert alike(evaluated(run), curve(kind)) and evaluated(run)[:3] == before
    assert (len(list(run.glob("attempts/*"))) == 2 and "lost" not in end["bill"]) or kind == "openrlhf"


def test_the_base_of_a_trainer_that_does_not_evaluate_it_is_measured(tmp_path):
    """By a run of one update at a learning rate of 0, whose cost is counted."""
    made = profile_trainer(tmp_path / "s", trainer_of(command("openrlhf")), lr=2e-3, held_out=64, samples=4)
    assert made.base == pytest.approx(0.2, abs=1e-6) and made.end == pytest.approx(held(4, 2e-3), abs=1e-6)
    assert read_json(tmp_path / "s" / "study.json")["base"] == pytest.approx(0.2, abs=1e-6)
    before = read_json(tmp_path / "s" / "base" / "end.json")["bill"]["train"]["rollouts"]
    after = read_json(tmp_path / "s" / "profile" / "end.json")["bill"]["train"]["rollouts"]
    assert before >= 64 and made.cost["rollouts"] == before + after
