"""Configurations of trainers in one vocabulary: what export writes is read back, and files in the shape of public ones.

The files here were written for these tests, with the keys that public recipes of the trainers have.
"""

import json

import pytest
from click.testing import CliRunner

from fixtures.study_records import write_run
from isocost import methods
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.steps.look.listing import compare
from isocost.trainers.driving import export
from isocost.trainers.driving.export import load
from isocost.trainers.reading import configs
from test_export import ASKED, HERE, asked, known, schema

SUFFIX = {"trl": "yaml", "prime-rl": "toml"}
# Words of the loss that a target does not have, as the file's "Not carried over" says.
OTHER = {
    "openrlhf": {"average"}, ("openrlhf", "dapo"): set(), ("openrlhf", "rloo"): {"surrogate", "average"},
    ("openrlhf", "cispo"): {"surrogate", "high", "average"}, "prime-rl": {"advantage"},
    ("nemo-rl", "rloo"): {"average"}, ("nemo-rl", "cispo"): {"average"}, ("skyrl", "rloo"): {"surrogate", "average"},
    ("trl", "rloo"): {"surrogate", "advantage", "average"}, ("trl", "cispo"): {"average"},
    ("verl", "cispo"): {"average"},
}
VERL = """
# GRPO on two sets
set -x
TRAIN="['$HOME/a.parquet', '$HOME/b.parquet']"
max_tokens=$((1024 * 2))
: "${LR:=1e-6}"

python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    data.train_files="$TRAIN" \\
    data.train_batch_size=512 \\
    data.max_response_length=$max_tokens \\
    actor_rollout_ref.model.path=${MODEL:-Qwen/Qwen3-4B} \\
    actor_rollout_ref.actor.optim.lr=$LR \\
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.kl_loss_coef=0.002 \\
    actor_rollout_ref.actor.clip_ratio=0.3 \\
    actor_rollout_ref.rollout.n=8 \\
    trainer.total_epochs=15 $@
"""
TRL = """
model_name_or_path: Qwen/Qwen3-4B
dataset_name: AI-MO/NuminaMath-TIR
num_processes: 4
per_device_train_batch_size: 16
gradient_accumulation_steps: 8
num_generations: 8
learning_rate: 1e-6
max_completion_length: 2048
loss_type: grpo
scale_rewards: false
gradient_checkpointing_kwargs:
  use_reentrant: false
"""


def put(path, text):
    path.write_text(text)
    return str(path)


def values(found):
    return {w: v.value for w, v in found.words.items() if v.value is not None}


@pytest.fixture
def two(tmp_path):
    return put(tmp_path / "verl.sh", VERL), put(tmp_path / "trl.yaml", TRL)


@pytest.mark.parametrize("method", ["grpo", "dapo", "gspo", "cispo", "rloo"])
@pytest.mark.parametrize("target", export.names())
def test_what_export_writes_is_read_back(target, method, tmp_path):
    """One table of names: sizes and sampling are the prescribed ones, and the loss is, as far as the target has it."""
    p = asked(method)
    file = put(tmp_path / f"it.{SUFFIX.get(target, 'sh')}", load(target).write(p))
    found = configs.read(file)
    if target == "trl":     # its batch is that of one process, and the file does not say how many there are
        file = put(tmp_path / "one.yaml", (tmp_path / "it.yaml").read_text() + "num_processes: 1\n")
        assert found.of("B").value is None and "number of processes" in found.of("B").where
        found = configs.read(file)
    assert found.trainer == load(target).TITLE
    said = values(found)
    updates = p.loss.epochs * p.loss.minibatches
    assert (said["n"], said["B"], said.get("updates", updates)) == (ASKED["n"], ASKED["B"], updates)
    wanted = {k: ASKED[k] for k in ("lr", "temperature", "top_p", "top_k", "max_tokens", "seed")}
    if target == "openrlhf":
        del wanted["top_k"]
    if target == "prime-rl":
        del wanted["seed"], wanted["top_k"]
    assert {k: said.get(k) for k in wanted} == pytest.approx(wanted)
    words = ("surrogate", "low", "high", "kl", "entropy", "advantage", "average")
    other = {w for w in words if w in said and said[w] != pytest.approx(getattr(p.loss, w))}
    assert other == OTHER.get((target, method), OTHER.get(target, set()))
    assert target == "prime-rl" or {"surrogate", "advantage", "average"} <= set(said)


def test_defaults_and_other_names_are_of_keys_that_the_trainer_has():
    """The lists of options are the trainers' own."""
    checked = 0
    for name in export.names():
        module = load(name)
        keys = {*getattr(module, "ABSENT", ("", {}))[1]}
        keys |= {k for today in getattr(module, "ALIASES", {}).values() if isinstance(today, tuple) for k in today}
        assert [k for k in keys if not known(k, schema(name))] == [], name
        checked += len(keys)
    assert checked > 60 and (HERE / "fixtures" / "schemas").is_dir()


def test_two_trainers(two):
    """Sizes in problems and updates whatever a trainer counts, each with its own key; defaults by version."""
    found = compare(*two)
    a, b = values(found.a), values(found.b)
    assert (a["n"], a["B"], a["updates"]) == (8, 512, 4) and (b["n"], b["B"], b["updates"]) == (8, 64, 1)
    assert (a["low"], a["high"], a["kl"], a["estimate"]) == (0.3, 0.3, 0.002, "k3")
    assert (b["low"], b["high"], b["kl"], b["advantage"], b["average"]) == (0.2, 0.2, 0.0, "mean", "rollout")
    assert "estimate" not in b      # without a KL term there is none
    assert {"n", "lr", "max_tokens", "model", "temperature"} <= set(found.equal)
    assert {"B", "updates", "kl", "low", "high", "advantage", "average", "data"} == set(found.differ)
    assert {"seed", "estimate"} <= set(found.half)
    assert found.b.of("kl").where == "beta = 0, default of TRL 1.10"
    assert found.a.of("low").where == "actor_rollout_ref.actor.clip_ratio = 0.3"
    assert found.a.of("model").value == "Qwen/Qwen3-4B" and found.a.of("data").value[1] == "$HOME/b.parquet"
    assert dict(found.a.others) == {"trainer.total_epochs": 15}
    assert dict(found.b.others) == {"gradient_checkpointing_kwargs.use_reentrant": False}


def test_the_command(two):
    done = CliRunner().invoke(main, ["diff", *two])
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "learning rate" in next(line for line in lines if line.startswith("equal: "))
    assert ("KL coefficient: 0.002 (actor_rollout_ref.actor.kl_loss_coef) | 0 (beta, default of TRL 1.10)") in lines
    assert "advantage: (r - mean r) / standard deviation (algorithm.adv_estimator = grpo; algorithm.norm_adv_by_std_in_grpo = true, default of verl 0.8) | r - mean r (scale_rewards = none)" in lines  # noqa: E501
    assert "! defaults are of verl 0.8 and TRL 1.10; another version may have others" in lines
    assert f"not compared, of {two[0]}: 1 key: trainer.total_epochs" in " ".join(done.stdout.split())
    said = json.loads(CliRunner().invoke(main, ["diff", *two, "--json"]).stdout)
    assert said == compare(*two).to_dict() and "kl" in said["different"]
    assert said["b"]["settings"]["B"]["value"] == 64


def test_one_trainer_twice_compares_its_other_keys_too(two, tmp_path):
    other = put(tmp_path / "other.sh", VERL.replace("total_epochs=15", "total_epochs=3"))
    found = compare(two[0], other)
    assert not found.differ and found.own == ("trainer.total_epochs",)
    assert "    trainer.total_epochs: 15 | 3" in CliRunner().invoke(main, ["diff", two[0], other]).stdout


def test_a_method_and_a_run_against_a_file(two, tmp_path):
    found = compare("dapo", two[1])
    assert found.a.trainer == "isocost" and {"high", "average", "B"} <= set(found.differ) and "kl" in found.equal
    run = write_run(tmp_path / "study", "a0", "pilot", 4, 512, 3)
    run = next((tmp_path / "study").rglob("run.json")).parent
    found = compare(two[0], str(run))
    assert (found.b.of("n").value, found.b.of("seed").value) == (4, 3) and "n" in found.differ


def test_a_script_with_arrays(tmp_path):
    """Arrays, a launcher before the command, comments in them, and a word that the script does not say."""
    text = """
ROLLOUT=(
   --rollout-batch-size 32
   # --n-samples-per-prompt 4
   --n-samples-per-prompt 8
   --global-batch-size 64
)
ray start --head --num-gpus 8 --disable-usage-stats
ray job submit --address="http://127.0.0.1:8265" -- python3 train.py --lr 1e-6 \\
   "${ROLLOUT[@]}" $MORE --eps-clip 0.2 --eps-clip-high 0.28
"""
    found = configs.read(put(tmp_path / "run.sh", text))
    said = values(found)
    assert found.trainer == "slime" and (said["n"], said["B"], said["updates"], said["high"]) == (8, 32, 4, 0.28)
    assert found.notes == ("$MORE of its launch line is not known, so options in it are not read",)


def test_older_names_and_values_of_several_words(tmp_path):
    text = ("python3 -m openrlhf.cli.train_ppo_ray --n_samples_per_prompt 16 --rollout_batch_size 512 "
            "--train_batch_size 1024 --actor_learning_rate 1e-6 --eps_clip_low_high 0.2 0.27 "
            "--remote_rm_url /rewards/math.py --init_kl_coef 1e-4\n")
    said = values(configs.read(put(tmp_path / "run.sh", text)))
    assert (said["n"], said["B"], said["updates"], said["high"], said["kl"]) == (16, 512, 8, 0.27, 1e-4)


def test_files_on_top_of_others(tmp_path):
    """A base beside the file, values that are another key's, and asynchrony that is switched off."""
    base = ("grpo:\n  num_prompts_per_step: 32\n  num_generations_per_prompt: 16\n"
            "  async_grpo: {enabled: false, max_trajectory_age_steps: 1}\n"
            "policy:\n  max_total_sequence_length: 512\n  train_global_batch_size: 256\n  generation:\n"
            "    max_new_tokens: ${policy.max_total_sequence_length}\n")
    top = put(tmp_path / "top.yaml", "defaults: base.yaml\nloss_fn: {use_cispo: true, ratio_clip_max: 0.8}\n")
    with pytest.raises(UserError, match="at most"):
        configs.read(put(tmp_path / "lone.yaml", "defaults: base.yaml\nlogger: {log_dir: x}\n"))
    assert "on top of base.yaml" in configs.read(top).notes[0]
    put(tmp_path / "base.yaml", base)
    said = values(configs.read(top))
    assert (said["n"], said["B"], said["updates"], said["max_tokens"], said["max_age"]) == (16, 32, 2, 512, 0)
    assert (said["surrogate"], said["high"]) == ("truncated", 1.8)
    assert values(configs.read(tmp_path / "base.yaml"))["surrogate"] == "clipped"      # two flags that are absent


def test_folders_of_runs(tmp_path):
    said = values(configs.read(HERE / "fixtures" / "logs" / "tinker" / "arithmetic"))
    assert said["n"] and said["B"] and said["model"]
    put(tmp_path / "args.json", json.dumps({"rlhf_type": "grpo", "model": "m", "dataset": ["d"], "num_generations": 8,
                                            "learning_rate": 1e-6, "beta": 0.04}))
    found = configs.read(tmp_path)
    assert found.trainer == "ms-swift" and values(found)["kl"] == 0.04 and values(found)["data"] == ["d"]


@pytest.mark.parametrize(("name", "text", "why"), [
    ("a.sh", "echo nothing\n", "at most 0 keys of any trainer"),
    ("a.toml", "= 3\n", "is not TOML"),
    ("a.yaml", "a: [1\n", "is not YAML"),
    ("a.json", "[1]", "expected a configuration"),
    ("a.bin", "\0\0", "is not text"),
])
def test_what_cannot_be_read(name, text, why, tmp_path):
    done = CliRunner().invoke(main, ["diff", "grpo", put(tmp_path / name, text)])
    assert done.exit_code == 2 and why in done.stderr and done.stderr.count("\n") == 1


def test_a_file_that_is_not_there(two):
    done = CliRunner().invoke(main, ["diff", two[0], "nope.yaml"])
    assert done.exit_code == 2 and "there is no file nope.yaml" in done.stderr


def test_every_method_is_in_the_vocabulary():
    """A method's numbers have words, so that its recipe can be compared with a file."""
    for name in methods.names()[::9]:
        assert {"n", "B", "lr", "updates"} <= set(values(compare(name, str(HERE / "fixtures" / "logs" / "tinker" /
                                                                            "arithmetic")).a))
