"""Stand-ins for trainers that need GPUs: each takes its trainer's options, and evaluates, logs, saves checkpoints and
continues as that trainer's source does (named at each function). What they learn is a formula.

    python tests/stand_in.py TRAINER OPTIONS...

DEATHS=11,20e in the environment: attempt 0 is killed (kill -9) within update 11, attempt 1 within the evaluation after
update 20.
FLUSH=3: PyTorch's writer of events, which loses what it holds when it is killed, writes after every third update.
"""

import json
import os
import shutil
import signal
import struct
import sys
import time
import tomllib
from math import exp
from pathlib import Path

from isocost.trainers.reading.wire import _masked

ATTEMPT = int(os.environ.get("ISOCOST_ATTEMPT", "0"))
DEATHS = [x for x in os.environ.get("DEATHS", "").split(",") if x]
FLUSH = int(os.environ.get("FLUSH", "1"))


def held(updates, lr):
    """The held-out reward of the policy after so many updates."""
    return 0.2 + 0.6 * (1 - exp(-50 * lr * updates))


def train(updates, lr):
    """One update: the training reward, or death."""
    die_at(str(updates))
    return held(updates - 1, lr) - 0.1


def evaluate(updates, lr):
    """An evaluation of the policy after so many updates, or death."""
    die_at(f"{updates}e")
    return held(updates, lr)


def die_at(place):
    if len(DEATHS) > ATTEMPT and place == DEATHS[ATTEMPT]:
        os.kill(os.getpid(), signal.SIGKILL)


def dotted(words):
    return dict(w.removeprefix("+").split("=", 1) for w in words if "=" in w)


def flags(words):
    """The options of argparse; the last of a name counts."""
    out = {}
    for a, b in zip(words, [*words[1:], "--"], strict=True):
        if a.startswith("--"):
            out[a[2:]] = True if b.startswith("--") else b
    return out


class Events:
    """TensorBoard events as PyTorch's SummaryWriter writes them, and holds them back."""

    def __init__(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / f"events.out.tfevents.{time.time():.6f}.vm.{os.getpid()}.0").open("wb")
        self.waiting, self.updates = [], 0
        self._put(b"\x09" + struct.pack("<d", time.time()) + b"\x1a\x0dbrain.Event:2")
        self.flush()

    def log(self, step, prefix="", **scalars):
        for tag, value in scalars.items():
            name = (prefix + tag).encode()
            held = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
            summary = b"\x0a" + bytes([len(held)]) + held
            at = b"\x10" + bytes([step]) if step < 128 else b"\x10" + bytes([step & 127 | 128, step >> 7])
            self._put(b"\x09" + struct.pack("<d", time.time()) + at + b"\x2a" + bytes([len(summary)]) + summary)

    def _put(self, event):
        size = struct.pack("<Q", len(event))
        frame = size + struct.pack("<I", _masked(size)) + event + struct.pack("<I", _masked(event))
        self.waiting.append(frame)

    def updated(self):
        self.updates += 1
        if self.updates % FLUSH == 0:
            self.flush()

    def flush(self):
        self.file.write(b"".join(self.waiting))
        self.file.flush()
        self.waiting = []


def verl(words):
    """verl/trainer/ppo/ray_trainer.py (fit), verl/utils/tracking.py (FileLogger opens "wb"), at b178a3c."""
    o = dotted(words)
    M, k, save = (int(o[f"trainer.{x}"]) for x in ("total_training_steps", "test_freq", "save_freq"))
    lr, folder = float(o["actor_rollout_ref.actor.optim.lr"]), Path(o["trainer.default_local_dir"])
    start = 0
    if o["trainer.resume_mode"] == "resume_path":
        start = int(o["trainer.resume_from_path"].split("global_step_")[-1])
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0) as file:
        def log(step, **data):
            file.write(json.dumps({"step": step, "data": data}, separators=(",", ":")).encode() + b"\n")

        if o["trainer.val_before_train"] == "true":
            log(start, **{"val-core/x/acc/mean@1": evaluate(start, lr)})
        for s in range(start + 1, M + 1):
            row = {"critic/score/mean": train(s, lr), "actor/lr": lr, "perf/time_per_step": 0.5}
            if s % k == 0 or s == M:
                row["val-core/x/acc/mean@1"] = evaluate(s, lr)
            if s % save == 0 or s == M:
                (folder / f"global_step_{s}" / "actor").mkdir(parents=True, exist_ok=True)
                (folder / "latest_checkpointed_iteration.txt").write_text(str(s))
            log(s, **row)


def prime_rl(words):
    """prime_rl/orchestrator/orchestrator.py, prime_rl/monitors/file.py (opens "a") and entrypoints/rl.py (a used run
    folder is refused), at 559b447; the trainer's process writes rows into the same file."""
    o = tomllib.loads(Path(words[words.index("@") + 1]).read_text())
    run = Path(o["output_dir"]) / o["run"]["dir"]
    start = o.get("resume", {}).get("step", 0)
    if o.get("clean"):
        shutil.rmtree(run, ignore_errors=True)
    elif not start and run.exists() and any(run.iterdir()):
        sys.exit(f"Run directory '{run}' already contains artifacts from a previous run.")
    M, lr, k = o["max_steps"], o["trainer"]["optim"]["lr"], o["orchestrator"]["eval"]["interval"]
    nB, every = o["orchestrator"]["batch_size"], o["ckpt"]["interval"]
    run.mkdir(parents=True, exist_ok=True)
    with (run / "metrics.jsonl").open("a", buffering=1) as file:
        def log(step, **data):
            file.write(json.dumps({"step": step, "time": time.time(), **data}) + "\n")

        def measure(step, version):
            row = {"eval/env/effective/agent/avg@4": evaluate(version, lr), "eval/env/policy_version": float(version)}
            log(step, **row)

        if start == 0:
            measure(1, 0)
        elif o["orchestrator"]["eval"]["retrigger_on_resume"] and start % k == 0:
            measure(start, start)
        for s in range(start + 1, M + 1):
            reward = train(s, lr)
            log(s, **{"train/agg/all/agent/reward/mean": reward, "progress/rollouts": nB + 1, "time/step": 0.5})
            log(s, **{"optim/lr": lr, "loss/mean": 0.1})
            if s % every == 0 or s == M:
                for part in ("trainer", "orchestrator"):
                    (run / "checkpoints" / f"step_{s}" / part).mkdir(parents=True, exist_ok=True)
            if (s + 1) % k == 0 and s < M:
                measure(s + 1, max(0, s - 1))


def skyrl(words):
    """skyrl/train/trainer.py (train), skyrl/train/utils/tracking.py, at a956457."""
    o = dotted(words)
    M, k, save = (int(o[f"trainer.{x}"]) for x in ("max_training_steps", "eval_interval", "ckpt_interval"))
    lr, folder = float(o["trainer.policy.optimizer_config.lr"]), Path(o["trainer.ckpt_path"])
    start = int(o["trainer.resume_path"].split("global_step_")[-1]) if o["trainer.resume_mode"] == "from_path" else 0
    out = Events(os.environ["TENSORBOARD_DIR"])
    out.log(start, **{"eval/all/avg_score": evaluate(start, lr), "eval/x/avg_score": 0.0})
    for s in range(start + 1, M + 1):
        row = {"reward/avg_raw_reward": train(s, lr), "policy/policy_lr": lr, "timing/step": 0.5}
        if s % save == 0:
            checkpoint = folder / f"global_step_{s}"
            (checkpoint / "policy").mkdir(parents=True, exist_ok=True)
            (checkpoint / "trainer_state.pt").touch()
            (folder / "latest_ckpt_global_step.txt").write_text(str(s))
        if s % k == 0 or s == M:
            row["eval/all/avg_score"] = evaluate(s, lr)
        out.log(s, **row)
        out.updated()
    out.flush()


def nemo_rl(words):
    """nemo_rl/algorithms/grpo.py (grpo_train), nemo_rl/utils/checkpoint.py, examples/run_grpo.py, at 7ea279a."""
    o = dotted(words)
    M, k, save = int(o["grpo.max_num_steps"]), int(o["grpo.val_period"]), int(o["checkpointing.save_period"])
    lr, folder = float(o["policy.optimizer.kwargs.lr"]), Path(o["checkpointing.checkpoint_dir"])
    start = max((int(p.name[5:]) for p in folder.glob("step_*")), default=0)
    out = Events(Path(o["logger.log_dir"]) / "exp_001" / "tensorboard")
    if start == 0:
        out.log(0, **{"validation/accuracy": evaluate(0, lr)})
    for s in range(start + 1, M + 1):
        reward = train(s, lr)
        if s % k == 0 or s == M:
            out.log(s, **{"validation/accuracy": evaluate(s, lr)})
        if s % save == 0 or s == M:
            (folder / f"step_{s}").mkdir(parents=True, exist_ok=True)
        out.log(s, **{"train/reward": reward, "train/lr": lr, "timing/train/total_step_time": 0.5})
        out.updated()
    out.flush()


def openrlhf(words):
    """openrlhf/trainer/ppo_trainer.py (fit), openrlhf/utils/logging_utils.py, at 3c3be62. No evaluation at the start,
    and no end after M updates."""
    o = flags(words)
    problems, B = int(o["data.max_samples"]), int(o["rollout.batch_size"])
    most = problems // B * int(o["train.num_episodes"])
    lr, k, save = float(o["actor.adam.lr"]), int(o["eval.steps"]), int(o["ckpt.save_steps"])
    folder = Path(o["ckpt.path"]) / "_actor"
    start = 0
    if o.get("ckpt.load_enable") and folder.exists():
        start = int((folder / "latest").read_text().removeprefix("global_step"))
        assert (folder / f"global_step{start}").is_dir()
    out = Events(Path(o["logger.tensorboard_dir"]) / "ppo")
    for s in range(start + 1, most + 1):
        out.log(s, "train/", **{"rollout/reward_mean": train(s, lr), "actor_lr": lr, "timing/step_total": 0.5})
        if s % save == 0:
            (folder / f"global_step{s}").mkdir(parents=True, exist_ok=True)
            (folder / "latest").write_text(f"global_step{s}")
        out.updated()
        if s % k == 0:
            out.log(s, "eval/", eval_x_pass1=evaluate(s, lr), eval_x_pass4=0.9)
        time.sleep(0.01)
    out.flush()


def slime(words):
    """train.py, slime/observability/rollout_metrics.py, slime/utils/arguments.py, at 624b824."""
    o = flags(words)
    M, k, save = int(o["num-rollout"]), int(o["eval-interval"]), int(o["save-interval"])
    lr, folder, mark = float(o["lr"]), Path(o["load"]), Path(o["load"]) / "latest_checkpointed_iteration.txt"
    start = (int(o.get("ckpt-step", mark.read_text())) + 1) if mark.exists() else 0
    out = Events(os.environ["TENSORBOARD_DIR"])
    for r in range(start, M):
        if r == 0:
            out.log(0, **{"eval/x": evaluate(0, lr), "eval/x-truncated_ratio": 0.5})
        out.log(r, **{"rollout/raw_reward": train(r + 1, lr), "train/lr-pg_0": lr})
        if (r + 1) % save == 0 or r == M - 1:
            (folder / f"iter_{r:07d}").mkdir(parents=True, exist_ok=True)
            mark.write_text(str(r))
        out.updated()
        if (r + 1) % k == 0:
            out.log(r, **{"eval/x": evaluate(r + 1, lr), "eval/x-truncated_ratio": 0.5})
    out.flush()


if __name__ == "__main__":
    trainers = {f.__name__.replace("_", "-"): f for f in (verl, prime_rl, skyrl, nemo_rl, openrlhf, slime)}
    trainers[sys.argv[1]](sys.argv[2:])
