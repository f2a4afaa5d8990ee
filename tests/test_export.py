"""A prescription in another trainer's words: every option is one that trainer has, and the sizes are the prescribed."""

import importlib
import json
import os
import re
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.recipe import calls, describe, tune
from isocost.runs.measure import UNNAMED
from isocost.steps.folder import found as found_study
from isocost.steps.outside.settle import trainer_of
from isocost.trainers.driving import export
from isocost.trainers.driving.export import Prescription, TrainerLoss, load
from isocost.trainers.driving.loss import loss_of
from isocost.traits import declared
from isocost.worlds.setting import Setting

HERE = Path(__file__).parent
SCHEMAS = HERE / "fixtures" / "schemas"
ASKED = {
    "study": "mine",
    "n": 4,
    "B": 8,
    "M": 300,
    "lr": 2e-4,
    "warmup": 10,
    "seed": 7,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 50,
    "max_tokens": 64,
    "problems": 2000,
}


@cache
def loss_by(method):
    return loss_of(describe(methods.load(method).recipe()))


def asked(method=None, **changes):
    return Prescription(**(ASKED | {"loss": loss_by(method) if method else None, "method": method} | changes))


def options(target, text):
    """Option -> value of a written file, read as that trainer reads it."""
    body = "".join(line + "\n" for line in text.splitlines() if not line.startswith("#"))
    if target == "trl":
        return dict(line.split(": ", 1) for line in body.splitlines())
    if target == "prime-rl":
        return {k: str(v) for k, v in flat(tomllib.loads(body)).items()}
    words = shlex.split(body.replace("\\\n", " "))
    if target == "openrlhf":
        out, name = {}, ""
        for word in words:
            if word.startswith("--"):
                name, out[word[2:]] = word[2:], ""
            elif name:
                out[name] = f"{out[name]} {word}".strip()
        return out
    return dict(w.split("=", 1) for w in words if "=" in w)


def flat(data, before=""):
    out = {}
    for k, v in data.items():
        out |= flat(v, f"{before}{k}.") if isinstance(v, dict) else {before + k: v}
    return out


@cache
def schema(target):
    return {x for x in (SCHEMAS / f"{target}.txt").read_text().splitlines() if not x.startswith("#")}


def known(option, names):
    return option in names or any(option.startswith(f"{n}.") for n in names if n.endswith("extra_body"))


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.stderr if code == 2 else done.output


def test_a_target_is_a_file():
    assert export.names() == ["nemo-rl", "openrlhf", "prime-rl", "skyrl", "trl", "verl"]
    for name in export.names():
        assert load(name).TITLE and load(name).VERSION and callable(load(name).write)
    with pytest.raises(UserError, match="unknown target 'slime'; expected one of nemo-rl"):
        load("slime")


@pytest.mark.parametrize("target", export.names())
def test_every_option_is_one_that_the_trainer_has(target):
    written = {m: options(target, load(target).write(asked(m))) for m in (None, *methods.names())}
    assert all(written.values())
    assert [(m, o) for m, found in written.items() for o in found if not known(o, schema(target))] == []


def test_a_wrong_option_is_found():
    assert not known("actor_rollout_ref.rollout.m", schema("verl"))


SIZES = {
    # n, B or nB, M, learning rate, rollouts per update
    "trl": {
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 8,
        "max_steps": 300,
        "learning_rate": 2e-4,
        "warmup_steps": 10,
        "max_completion_length": 64,
        "temperature": 0.7,
    },
    "verl": {
        "actor_rollout_ref.rollout.n": 4,
        "data.train_batch_size": 8,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
        "trainer.total_training_steps": 300,
        "actor_rollout_ref.actor.optim.lr": 2e-4,
        "trainer.total_epochs": 3,
        "actor_rollout_ref.actor.optim.lr_warmup_steps": 10,
        "data.max_response_length": 64,
    },
    "prime-rl": {
        "orchestrator.group_size": 4,
        "orchestrator.batch_size": 32,
        "max_steps": 300,
        "trainer.optim.lr": 2e-4,
        "trainer.scheduler.warmup_steps": 10,
        "trainer.scheduler.decay_steps": 0,
    },
    "nemo-rl": {
        "grpo.num_generations_per_prompt": 4,
        "grpo.num_prompts_per_step": 8,
        "policy.train_global_batch_size": 32,
        "grpo.max_num_steps": 300,
        "policy.optimizer.kwargs.lr": 2e-4,
    },
    "skyrl": {
        "generator.n_samples_per_prompt": 4,
        "trainer.train_batch_size": 8,
        "trainer.policy_mini_batch_size": 8,
        "trainer.max_training_steps": 300,
        "trainer.policy.optimizer_config.lr": 2e-4,
    },
    "openrlhf": {
        "rollout.n_samples_per_prompt": 4,
        "rollout.batch_size": 8,
        "train.batch_size": 32,
        "train.num_episodes": 2,
        "actor.adam.lr": 2e-4,
        "actor.lr_warmup_ratio": pytest.approx(10 / 300, abs=1e-6),
    },
}


@pytest.mark.parametrize("method", [None, "grpo"])
@pytest.mark.parametrize("target", SIZES)
def test_the_sizes_are_the_prescribed_ones(target, method):
    """n = 4, B = 8: TRL, prime-rl and OpenRLHF's train batch count rollouts (32), the others problems (8)."""
    found = options(target, load(target).write(asked(method)))
    assert {k: float(found[k]) for k in SIZES[target]} == SIZES[target]


@pytest.mark.parametrize(("rate", "text"), [(1e-6, "1.0e-06"), (2.5e-5, "2.5e-05"), (3e-5, "3.0e-05"), (1e-4, "0.0001"),
                                            (1e7, "1.0e+07")])
def test_a_small_learning_rate_is_a_number_in_yaml(rate, text):
    """YAML 1.1, and so PyYAML, reads 1e-06 as text: GRPOConfig(**yaml) then has a rate that is no number."""
    number = re.compile(r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?")       # PyYAML's floats
    assert export.shown(rate) == text and number.fullmatch(text) and float(text) == rate
    assert f"learning_rate: {text}\n" in load("trl").write(asked(lr=rate))


@pytest.mark.parametrize("target", SIZES)
def test_mini_batches_are_a_quarter(target):
    """GSPO makes four updates of a batch: a mini-batch is 2 problems, 8 rollouts."""
    found = options(target, load(target).write(asked("gspo")))
    got = {
        "trl": ("gradient_accumulation_steps", 2),
        "verl": ("actor_rollout_ref.actor.ppo_mini_batch_size", 2),
        "nemo-rl": ("policy.train_global_batch_size", 8),
        "skyrl": ("trainer.policy_mini_batch_size", 2),
        "openrlhf": ("train.batch_size", 8),
        "prime-rl": ("orchestrator.batch_size", 32),
    }[target]
    assert int(found[got[0]]) == got[1]
    if target == "trl":
        assert (int(found["max_steps"]), int(found["steps_per_generation"])) == (1200, 8)


def test_a_function_is_not_exported_as_what_no_trainer_has():
    with pytest.raises(ValueError, match="exported advantage='length': expected mean, spread, others, batch"):
        TrainerLoss(advantage="length")



def test_the_method_is_read_off_the_recipe():
    easy = loss_of(describe(methods.load("isoeasy").recipe()))
    assert easy == TrainerLoss("clipped", 0.2, 0.2, cap=2.0, kl=1e-3, entropy=1e-3, advantage="mean", average="rollout")
    tuned = tune(methods.load("isoeasy").recipe(), "loss.high", 0.28)
    assert loss_of(describe(tuned)).high == 0.28
    dapo = loss_of(describe(methods.load("dapo").recipe()))
    assert (dapo.keep_mixed, dapo.refill, dapo.average) == (True, True, "token")
    assert dapo.odd == ("reward is isocost.methods.dapo:reward",)


def test_what_a_function_exports_is_a_field_of_the_shared_loss():
    """Functions declare it themselves: a misspelt field would raise only when that method is exported."""
    fields = set(TrainerLoss.__dataclass_fields__)
    for name in methods.names():
        for part in calls(describe(methods.load(name).recipe())):
            module, _, function = part["fn"].partition(":")
            for one in declared(getattr(importlib.import_module(module), function)).exports:
                assert {*one.values, *one.settings} <= fields, part["fn"]
                assert set(one.settings.values()) <= part.keys(), part["fn"]


def test_a_function_that_is_not_of_the_package_is_named_and_never_imported(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    recipe = describe(methods.load("grpo").recipe())
    for fn in ("stranger:uniform", "isocost.parts.choose:gone", "isocost.parts.gone:uniform"):
        assert loss_of({**recipe, "choose": {"fn": fn}}).odd == (f"choose is {fn}",)


@pytest.mark.parametrize(
    ("target", "method", "line"),
    [
        ("trl", "isoeasy", "KL by k2: TRL estimates it by k3"),
        ("trl", "dapo", "leaving out groups with one reward throughout, and refilling"),
        ("verl", "cispo", "the average per prompt"),
        ("nemo-rl", "isoeasy", "the entropy bonus 0.001"),
        ("prime-rl", "grpo", "the spread in the advantage"),
        ("openrlhf", "isohard", "the average per rollout: OpenRLHF averages over tokens"),
        ("openrlhf", None, "M exactly: 2 passes over 2000 problems are 500 updates, not 300"),
        ("skyrl", "dapo", "reward is isocost.methods.dapo:reward"),
    ],
)
def test_what_is_not_carried_over_is_said(target, method, line):
    head = [x for x in load(target).write(asked(method)).splitlines() if x.startswith("#")]
    left = head[head.index("# Not carried over:") + 1 :]
    assert any(line in x for x in left), left


@pytest.mark.parametrize(
    ("target", "passes", "updates"),
    [
        ("nemo-rl", "grpo.max_num_epochs", "grpo.max_num_steps"),
        ("skyrl", "trainer.epochs", "trainer.max_training_steps"),
        ("verl", "trainer.total_epochs", "trainer.total_training_steps"),
    ],
)
@pytest.mark.parametrize("method", [None, "grpo"])
def test_all_updates_are_made_however_few_the_problems_are(target, passes, updates, method):
    """These stop at the last pass or the last update, whichever comes first, and a pass is one update or more."""
    text = load(target).write(asked(method, problems=None))
    found = options(target, text)
    assert (found[passes], found[updates]) == ("300", "300") and "300 are enough for M = 300 updates" in text
    # 300 updates of 8 problems are 2400: one pass of 2000, part of a second, and one to spare.
    text = load(target).write(asked(method))
    assert options(target, text)[passes] == "3" and "are enough for" not in text


def test_a_method_that_refills_has_room_for_the_batches_it_takes():
    """30 batches of 8 problems for each of 300 updates are 72,000: 36 passes of 2000, and one to spare."""
    for target, passes in (("nemo-rl", "grpo.max_num_epochs"), ("skyrl", "trainer.epochs")):
        text = load(target).write(asked("dapo"))
        assert options(target, text)[passes] == "37"
        assert "37 are enough for M = 300 updates, at up to 30 batches an update; these end the run" in text
        assert options(target, load(target).write(asked("dapo", problems=None)))[passes] == "9000"
    text = load("openrlhf").write(asked("dapo", M=100))  # 800 problems of 2000, and as many again for those left out
    assert "data.max_samples" not in text and "100 updates take more" not in text
    assert "M updates take more than M x B of them; raise --train.num_episodes" in text


def test_less_than_one_pass_is_exact_in_openrlhf():
    found = options("openrlhf", load("openrlhf").write(asked("grpo", M=100)))
    assert (found["data.max_samples"], found["train.num_episodes"]) == ("800", "1")


def test_cispos_cap_is_where_each_trainer_counts_it_from():
    """Card: min(ratio, 5). TRL takes the cap itself, the others its distance from 1."""
    caps = {t: options(t, load(t).write(asked("cispo"))) for t in ("trl", "verl", "skyrl", "nemo-rl")}
    assert float(caps["trl"]["epsilon_high"]) == 5
    assert float(caps["verl"]["actor_rollout_ref.actor.clip_ratio_high"]) == 4
    assert float(caps["skyrl"]["trainer.algorithm.cispo.cispo_eps_clip_high"]) == 4
    assert (
        float(caps["nemo-rl"]["loss_fn.ratio_clip_max"]) == 4 and caps["nemo-rl"]["loss_fn.token_level_loss"] == "true"
    )


# from a study ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory, recorded):
    """Records of a study, made by arithmetic."""
    return recorded(tmp_path_factory.mktemp("studies") / "mine", "plan")


@pytest.mark.parametrize("target", SIZES)
def test_a_study_is_exported_and_read_back(study, target, tmp_path):
    plan = json.loads((study / "plan.json").read_text())
    arm = plan.get("arm") or plan["arms"][0]
    out = tmp_path / "x" / "config"
    assert said("export", study, "--to", target, "--out", out).strip() == str(out)
    text = out.read_text()
    assert text == said("export", study, "--to", target)
    assert f"n = {arm['n']} rollouts per problem, B = {arm['B']} problems per update, M = {arm['M']} updates" in text
    found = options(target, text)
    assert [o for o in found if not known(o, schema(target))] == []
    assert str(arm["n"]) in found.values()


SAMPLED = {"trl": ("temperature", "top_p", "top_k", "max_completion_length"),
           "verl": ("rollout.temperature", "rollout.top_p", "rollout.top_k", "data.max_response_length")}


@pytest.mark.parametrize("target", SAMPLED)
def test_a_study_of_a_users_trainer_exports_no_setting_that_its_script_has_and_nobody_said(target, study, tmp_path):
    """Its study.json has the defaults of isocost's own sampling, which its runs never had."""
    trainer = trainer_of("cmd: python t.py {n} {B} {lr} {seed} {out}", metrics="{out}/log.jsonl").data()
    home = found_study(tmp_path / "s", Setting.of(model=UNNAMED, data=UNNAMED), seed=0, method=None, trainer=trainer)
    (home.path / "plan.json").symlink_to(study / "plan.json")
    text = said("export", home.path, "--to", target)
    assert not any(o.endswith(SAMPLED[target]) for o in options(target, text))
    left = text[text.index("# Not carried over:"):]
    assert "the runs are your trainer's: python t.py {n} {B} {lr} {seed} {out}, so set the loss" in left
    assert "the maximum completion length: it is not in the logs" in left and "imported" not in left


MISSING = {     # files that are not there yet: (what the study is said to be, the commands that lead to a prescription)
    ("profile", "pilot", "law"): ("is not profiled yet", ["profile --out", "plan", "pilot", "fit", "plan"]),
    ("pilot", "law"): ("has no pilot yet", ["plan", "pilot", "fit", "plan"]),
    ("law", "runs"): ("has a pilot with 0 of 25 runs done", ["pilot", "fit", "plan"]),
    ("law",): ("has a pilot and no law yet", ["fit", "plan"]),
    (): ("is ready for one", ["plan"]),
}


@pytest.mark.parametrize("missing", MISSING, ids=lambda names: "+".join(names) or "plan")
def test_a_study_without_a_prescription_says_how_far_it_is_and_what_leads_to_one(study, missing, tmp_path):
    """A study whose pilot is only planned has a plan in the reader's words: what is missing is the prescription."""
    there = tmp_path / "mine"
    there.mkdir()
    for path in study.iterdir():
        if path.stem not in (*missing, "plan"):
            (there / path.name).symlink_to(path)
    state, steps = MISSING[missing]
    why = said("export", there, "--to", "trl", code=2)
    assert "has no prescription" in why and f"it {state}" in why and why.count("\n") == 1
    assert re.findall("`isocost (.*?)`", why) == [f"{step} {there}" for step in steps]


def test_an_imported_study_without_a_law_is_fitted_first(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"schema": 1, "setting": {}, "seed": 0, "imported": True}))
    assert f"Run `isocost fit {tmp_path}`, `isocost plan {tmp_path}`" in said("export", tmp_path, "--to", "trl", code=2)
    assert "unknown target 'x'" in said("export", tmp_path, "--to", "x", code=2)


# the real package --------------------------------------------------------------------------------------------


def trl_python():
    """A Python that has TRL: BENCH_TRL_PYTHON or .venv-trl, as for the benchmarks."""
    found = Path(os.environ.get("BENCH_TRL_PYTHON", HERE.parent / ".venv-trl" / "bin" / "python"))
    return found if found.exists() else None


@pytest.mark.slow
@pytest.mark.skipif(trl_python() is None, reason="no Python with TRL (BENCH_TRL_PYTHON or .venv-trl)")
@pytest.mark.parametrize("method", ["isoeasy", "gspo", "cispo"])
def test_trl_trains_two_steps_by_it(method, tmp_path):
    """The package itself: it takes every option, samples n x B rollouts of B problems, and warms up."""
    config = tmp_path / "trl.yaml"
    config.write_text(load("trl").write(asked(method, max_tokens=4, top_k=0, top_p=1.0, temperature=1.0)))
    done = subprocess.run(
        [trl_python(), HERE / "fixtures" / "trl_steps.py", config, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(re.findall(r"^\{.*\}$", done.stdout, re.M)[-1])
    assert made["generation_batch_size"] == 32 and made["num_generations"] == 4 and made["problems_of_first"] == 8
    assert made["rollouts"] == (32 if method == "gspo" else 64)  # GSPO's two steps are of one generation
    assert made["rates"] == pytest.approx([0, 2e-4 / (40 if method == "gspo" else 10)])
