"""TRL as a study's trainer: its configuration, its log from checkpoints and from what it prints, and real runs."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from isocost.errors import UserError
from isocost.laws.curves import curves
from isocost.laws.fit import fit_law
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.steps.events import SILENT
from isocost.steps.folder import found
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.settle import trainer_of
from isocost.trainers import trl
from isocost.trainers.driving.command import Sizes
from isocost.trainers.driving.drive import Begin
from isocost.worlds.setting import Setting
from test_drive import killer, lines
from test_export import trl_python

HOME = Path(__file__).parent.parent
SETTING = Setting.of(model="tiny", data="sums", held_out=128.0, samples=4)
SIZES = Sizes("a", n=4, B=8, C=4 * 8 * 24, lr=1e-4, warmup=1, seed=5, points=(256, 512, 768))


def state(folder, step, lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": lines}))
    return lines


def trained(begin, end):
    return [{"step": s, "reward": s / 100, "loss": 0.1} for s in range(begin + 1, end + 1)]


def printed(rows):
    return "".join(f"{ {k: str(v) for k, v in r.items() if k != 'step'} }\n" for r in rows)


@pytest.fixture
def run(tmp_path):
    """(the trainer's folder, the folder of an attempt)."""
    out, attempt = tmp_path / "trainer", tmp_path / "attempts" / "0"
    out.mkdir()
    attempt.mkdir(parents=True)
    return out, attempt


def launched(out, attempt, sizes=SIZES):
    made = trl.prepared(Begin(sizes, out, attempt))
    (attempt / "launch.json").write_text("{}")
    os.utime(attempt / "launch.json", (1, 1))
    return made.values, made.options, made.kept


def test_a_configuration_is_trls_own(run):
    values, options, kept = launched(*run)
    text = Path(values["config"]).read_text()
    config = dict(line.split(": ", 1) for line in text.splitlines())
    assert config["num_generations"] == "4" and config["gradient_accumulation_steps"] == "8"
    assert config["max_steps"] == "24" and config["eval_steps"] == config["save_steps"] == "8"
    assert config["eval_on_start"] == "true" and config["warmup_steps"] == "1" and "resume" not in text
    assert options[options.index("--learning_rate") + 1] == "0.0001" and kept == {"prefix": 0, "resumed": 0}


@pytest.mark.parametrize(("n", "samples", "batch"), [(2, 4, 8), (32, 4, 8), (8, 1, 8), (8, 3, 9), (4, 16, 16)])
def test_an_evaluation_samples_what_the_study_says_and_not_n(run, n, samples, batch):
    """TRL's default is n for each prompt, in batches of 8, which n = 16 and 32 do not divide."""
    values, *_ = launched(*run, replace(SIZES, n=n, samples=samples))
    config = dict(line.split(": ", 1) for line in Path(values["config"]).read_text().splitlines())
    assert config["num_generations_eval"] == str(samples) and config["per_device_eval_batch_size"] == str(batch)


@pytest.mark.parametrize(("own", "said"), [
    ({}, None), ({"temperature": 0.5}, None),
    ({"num_generations_eval": None}, "num_generations_eval = None, and isocost asked for 4"),
    ({"num_generations": 8}, "num_generations = 8, and isocost asked for 4"),
    ({"learning_rate": 1e-6}, "learning_rate = 1e-06, and isocost asked for 0.0001"),
    ({"max_steps": 600}, "max_steps = 600, and isocost asked for 24"),
])
def test_a_script_that_replaces_the_configuration_is_refused(run, own, said):
    """By the arguments that transformers pickles with every checkpoint, which are read and never unpickled."""
    out, attempt = run
    values, _, kept = launched(out, attempt, replace(SIZES, samples=4))
    asked = {k: json.loads(v) for k, v in (x.split(": ", 1) for x in Path(values["config"]).read_text().splitlines())}
    lines = state(out / "checkpoint-8", 8, trained(0, 8))
    assert trl.logged(Path(), attempt, kept, []) == lines
    torch.save(Namespace(**{**asked, **own}), out / "checkpoint-8" / "training_args.bin")
    if said is None:
        assert trl.logged(Path(), attempt, kept, []) == lines
    else:
        with pytest.raises(UserError, match=said):
            trl.logged(Path(), attempt, kept, [])
    (out / "checkpoint-8" / "training_args.bin").write_bytes(b"PK half a file")
    assert trl.logged(Path(), attempt, kept, []) == lines


def test_it_continues_from_the_last_whole_checkpoint(run):
    """A checkpoint whose process was killed while it was written is put aside."""
    out, attempt = run
    lines = state(out / "checkpoint-8", 8, trained(0, 8))
    (out / "checkpoint-16").mkdir()
    values, _, kept = launched(out, attempt)
    assert f'resume_from_checkpoint: "{out / "checkpoint-8"}"' in Path(values["config"]).read_text()
    assert kept == {"prefix": len(lines), "resumed": 8}
    assert [p.name for p in out.glob("*16*")] == ["passed-over-checkpoint-16-0"]


def test_the_log_is_the_checkpoints_history_and_behind_it_what_was_printed(run):
    out, attempt = run
    first = state(out / "checkpoint-8", 8, [{"step": 0, "eval_reward": 0.5}, *trained(0, 8)])
    _, _, kept = launched(out, attempt)
    again = {"step": 8, "eval_reward": 0.25}
    text = "Loading\n" + printed([again, *trained(8, 10)]) + "{'train_runtime': '4.8'}\n{'loss': 'torn"
    (attempt / "output.txt").write_text(text)
    assert trl.logged(Path(), attempt, kept, []) == trained(8, 10)
    state(out / "checkpoint-16", 16, [*first, again, *trained(8, 16)])
    assert trl.logged(Path(), attempt, kept, []) == [again, *trained(8, 16)]


def ended(tmp_path, text):
    """What is said of a study whose TRL script is this text."""
    (tmp_path / "train.py").write_text(text)
    asked = f"trl: {sys.executable} {tmp_path / 'train.py'} --config {{config}}"
    home = found(tmp_path / "s", SETTING, seed=0, method=None, trainer=trainer_of(asked).data(), launch="local")
    with pytest.raises(UserError) as e:
        drive_jobs(home, [replace(job(4, 0), name="profile")], "profile", SILENT, 1)
    return str(e.value), len(list((home.runs / "profile" / "attempts").iterdir()))


ROWS = "".join(f"print({{'loss': '0.1', 'reward': '{k / 100}'}})\n" for k in range(60))


def test_a_script_that_trains_without_the_configuration_is_told_to_use_it(tmp_path):
    """It trained in its own folder, as long as it liked: one attempt shows that."""
    said, attempts = ended(tmp_path, ROWS)
    out = tmp_path / "s" / "runs" / "profile" / "trainer"
    assert attempts == 1 and "metrics" not in said and "--map" not in said and "'reward': '0.59'" in said
    assert said.startswith(f"run profile: the command ended and wrote nothing in {out}: let it train with the settings "
                           "in {config}, its output folder among them, and call trainer.save_state() behind trainer.tr")


def test_a_script_that_does_not_evaluate_is_told_what_evaluates(tmp_path):
    state = "import json, os\nout = os.environ['ISOCOST_OUT'] + '/checkpoint-16'\nos.makedirs(out, exist_ok=True)\n"
    rows = "rows = [{'step': k + 1, 'reward': k / 100} for k in range(16)]\n"
    said, _ = ended(tmp_path, state + rows + "json.dump({'log_history': rows}, open(out + '/trainer_state.json', 'w'))")
    assert "trainer_state.json has no held-out reward; give GRPOTrainer an eval_dataset, or name its column" in said


def test_a_script_that_fails_before_its_first_line_is_tried_twice(tmp_path):
    said, attempts = ended(tmp_path, "dict(**{'output_dir': 1}, **{'output_dir': 2})")
    assert attempts == 2 and "multiple values for keyword argument 'output_dir'" in said
    assert "2 attempts in a row logged nothing in" in said and "--metrics" not in said
    assert "whose folder is in {config}" in said


# real runs ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("model")
    make = HOME / "examples" / "trl" / "make_model.py"
    subprocess.run([trl_python(), make, HOME / "src" / "isocost" / "local" / "base", out], check=True)
    return out


def asked(tiny):
    return f"trl: {trl_python()} {HOME / 'examples' / 'trl' / 'train.py'} --model {tiny} --config {{config}}"


def job(n, seed):
    size = 4 * n
    return Job(f"pilot-n{n}-s{seed}", SETTING, "trl", seed, {"rollouts": 16 * size}, Arm(n=n, B=4, lr=1e-4),
               points=(8 * size, 16 * size), purpose="pilot")


@pytest.mark.slow
@pytest.mark.skipif(trl_python() is None, reason="no Python with TRL (BENCH_TRL_PYTHON or .venv-trl)")
def test_a_killed_trl_run_is_the_run_that_was_not_killed(tmp_path, tiny):
    """To the bit in every reward; the rollouts that were lost are counted, although TRL logs none of them."""
    made = {}
    for name in ("whole", "killed"):
        home = found(tmp_path / name, SETTING, seed=0, method=None, trainer=trainer_of(asked(tiny)).data())
        run = home.runs / "pilot-n4-s1"
        watch = SILENT if name == "whole" else killer(run, {0: 12}, log="attempts/0/output.txt", word=b"'reward'")
        (end,) = drive_jobs(home, [job(4, 1)], "pilot", watch, 1)
        made[name] = run, end
    (whole, _), (killed, end) = made["whole"], made["killed"]
    assert lines(killed) == lines(whole)
    rows = read_lines(killed / "attempts" / "0" / "log.jsonl")
    lost = max(r["step"] for r in rows if "reward" in r) - 8
    assert lost >= 1 and end["bill"]["lost"] == {"rollouts": 16 * lost, "updates": lost}


@pytest.mark.slow
@pytest.mark.skipif(trl_python() is None, reason="no Python with TRL (BENCH_TRL_PYTHON or .venv-trl)")
def test_the_law_of_runs_of_which_half_were_killed_is_that_of_runs_that_were_not(tmp_path, tiny):
    """n = 2, 4, 8 and three seeds: the fitted law is equal to the bit, and the lost rollouts are exact."""
    jobs = [job(n, seed) for n in (2, 4, 8) for seed in (0, 1, 2)]
    laws, lost = {}, {}
    for name in ("whole", "killed"):
        home = found(tmp_path / name, SETTING, seed=0, method=None, trainer=trainer_of(asked(tiny)).data())
        for k, one in enumerate(jobs):
            harmed = name == "killed" and k % 2 == 0
            kills = killer(home.runs / one.name, {0: 11}, log="attempts/0/output.txt", word=b"'reward'")
            (end,) = drive_jobs(home, [one], "pilot", kills if harmed else SILENT, 1)
            if harmed:
                rows = read_lines(home.runs / one.name / "attempts" / "0" / "log.jsonl")
                lost[one.name] = (max(r["step"] for r in rows if "reward" in r) - 8, end["bill"]["lost"]["updates"])
        laws[name] = json.dumps(fit_law(curves(tmp_path / name), seed=0).data(), sort_keys=True)
    assert laws["whole"] == laws["killed"]
    assert len(lost) == 5 and all(a == b >= 1 for a, b in lost.values())
    print("lost updates", sum(b for _, b in lost.values()), "of", 16 * len(jobs))


@pytest.mark.slow
@pytest.mark.skipif(trl_python() is None, reason="no Python with TRL (BENCH_TRL_PYTHON or .venv-trl)")
def test_a_study_from_profile_to_audit_through_trl(tmp_path, tiny):
    """The study of docs/your_trainer.md."""
    def said(*words, codes=(0,)):
        done = subprocess.run([sys.executable, "-m", "isocost", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode in codes, done.stderr
        return done.stdout

    said("profile", "--out", "s", "--held-out", "128", "--samples", "4", "--lr", "2e-4", "--trainer", asked(tiny))
    assert "6 probe runs" in said("plan", "s", "--budget", "30k-rollouts")
    for step in (("pilot", "s"), ("fit", "s"), ("plan", "s"), ("train", "--plan", "s")):
        said(*step)
    said("audit", "s", codes=(0, 3, 4))
    audit = read_json(tmp_path / "s" / "audit.json")
    assert 0 < audit["outcome"]["mean"] < 1 and audit["verdict"] in ("hit", "miss", "cannot tell", "uninformative")
    trained = [c for c in curves(tmp_path / "s") if c.purpose == "train"]
    assert trained and all(c.C[0] == 0 for c in trained)
