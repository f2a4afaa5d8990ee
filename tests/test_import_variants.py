"""Every recorded log is the same curve whether it counts steps from 0 or from 1, was resumed, has a column that was
renamed in the middle, or lies in two files."""

import csv
import io
import json
import re
import struct

import pytest

from isocost.trainers.reading import logs as sources
from isocost.trainers.reading.record import resolve
from isocost.trainers.reading.wire import _masked, events
from logs_to_import import LOGS, stated

BOARD = next((LOGS / "trl" / "n4-s0" / "runs").glob("*/*tfevents*"))

# formats: a log as rows with `step`, and back --------------------------------------------------------------------


def state(text=None, rows=None):
    """TRL's trainer_state.json."""
    return json.loads(text)["log_history"] if rows is None else json.dumps({"log_history": rows, "global_step": 1})


def printed(text=None, rows=None):
    """What TRL prints, each line with the progress bar behind it."""
    if rows is None:
        return state(text)
    last = max(r["step"] for r in rows)
    each = ((r["step"], {k: str(v) for k, v in r.items() if k != "step"}) for r in rows)
    return "".join(f"{row!r}\n {100 * s // last}%|##  | {s}/{last} [00:01<00:10, 2.0s/it]\n" for s, row in each)


def swift(text=None, rows=None):
    """ms-swift's logging.jsonl."""
    if rows is None:
        return state(text)
    each = ({k: v for k, v in r.items() if k != "step"} | {"global_step/max_steps": f"{r['step']}/400"} for r in rows)
    return "".join(json.dumps(row) + "\n" for row in each)


def lines(text=None, rows=None):
    """JSON lines."""
    return [json.loads(x) for x in text.splitlines()] if rows is None else "".join(json.dumps(r) + "\n" for r in rows)


def nested(text=None, rows=None):
    """verl's JSON lines, whose columns are in `data`."""
    if rows is None:
        return [{"step": r["step"], **r["data"]} for r in lines(text)]
    return lines(rows=[{"step": r["step"], "data": {k: v for k, v in r.items() if k != "step"}} for r in rows])


def console(text=None, rows=None):
    """verl's console."""
    if rows is None:
        found = (re.search(r"step:(\d+) - (.*)$", x) for x in text.splitlines())
        each = ((int(m[1]), (part.rpartition(":") for part in m[2].split(" - "))) for m in found if m)
        return [{"step": s, **{k: v for k, _, v in parts}} for s, parts in each]
    each = ((r["step"], " - ".join(f"{k}:{v}" for k, v in r.items() if k != "step")) for r in rows)
    return "".join(f"step:{s} - {said}\n" for s, said in each)


def table(step):
    """CSV, its steps in this column."""
    def form(text=None, rows=None):
        if rows is None:
            every = csv.DictReader(io.StringIO(text))
            return [{"step": int(float(r[step])), **{k: v for k, v in r.items() if k != step and v}} for r in every]
        names = list(dict.fromkeys(k for r in rows for k in r if k != "step"))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows([[step, *names], *([r["step"], *(r.get(k, "") for k in names)] for r in rows)])
        return out.getvalue()
    return form


def board(text=None, rows=None):
    """An event file: one event per number."""
    if rows is None:
        return [{"step": step, "wall": wall, **scalars} for step, wall, scalars, _ in events(BOARD) if scalars]

    def field(number, body):
        return bytes([number << 3 | 2, len(body)]) + body

    def frame(event):
        size = struct.pack("<Q", len(event))
        return size + struct.pack("<I", _masked(size)) + event + struct.pack("<I", _masked(event))

    out = b""
    for r in rows:
        for tag, x in r.items():
            if tag not in ("step", "wall"):
                value = field(1, tag.encode()) + b"\x15" + struct.pack("<f", x)
                step = bytes([0x10, r["step"] & 0x7F | 0x80, r["step"] >> 7])
                out += frame(b"\x09" + struct.pack("<d", r["wall"]) + step + field(5, field(1, value)))
    return out


TRL = (LOGS / "trl" / "n4-s0" / "trainer_state.json", "reward", "eval_reward")
OLD_TRL = ("rewards/mean", "eval_sums_reward")
CASES = {  # format, file, columns of rewards, other names of theirs (None: no other is known), name of a file, --map
    "trl": (state, *TRL, OLD_TRL, "{}/trainer_state.json", {}),
    "trl-resumed": (state, LOGS / "trl-resumed" / "resumed.json", "reward", "eval_reward", OLD_TRL, "{}.json", {}),
    "trl-printed": (printed, *TRL, OLD_TRL, "{}.log", {}),
    "swift": (swift, *TRL, OLD_TRL, "{}/logging.jsonl", {}),
    "verl": (nested, LOGS / "verl" / "gsm8k-n8.jsonl", "critic/score/mean", "val-core/openai/gsm8k/reward/mean@1",
             ("critic/rewards/mean", "val/test_score/openai/gsm8k"), "{}.jsonl", {}),
    "verl-console": (console, LOGS / "verl" / "console.log", "critic/score/mean", "val-core/openai/gsm8k/reward/mean@1",
                     ("critic/rewards/mean", "val/test_score/openai/gsm8k"), "{}.log", {}),
    "prime-rl": (lines, LOGS / "prime-rl" / "reverse-text" / "metrics.jsonl", "train/agg/all/agent/reward/mean",
                 "eval/reverse-text/effective/agent/avg@4", ("reward/all/mean", "eval/reverse-text/agent/avg@4"),
                 "{}/metrics.jsonl", {}),
    "tinker": (lines, LOGS / "tinker" / "arithmetic" / "metrics.jsonl", "env/all/reward/total",
               "test/env/all/reward/total", (None, "math/env/all/reward/total"), "{}/metrics.jsonl", {}),
    "wandb": (table("_step"), LOGS / "exports" / "wandb_history.csv", "critic/score/mean",
              "val-core/openai/gsm8k/reward/mean@1", ("critic/rewards/mean", "val/test_score/openai/gsm8k"), "{}.csv",
              {}),
    "tensorboard": (board, BOARD, "train/reward", "eval/reward", (None, "eval/sums_reward"), "{}/events.out.tfevents.1",
                    {}),
    "csv": (table("step"), LOGS / "reasoning" / "tracking_metrics.csv", "reward_avg", None, ("score", None), "{}.csv",
            {"reward": "reward_avg"}),
    "jsonl": (lines, LOGS / "countdown" / "metrics.jsonl", "reward", None, ("score", None), "{}.jsonl", {}),
}


OTHERS = re.compile(     # what is kept besides steps and rewards: rates, lengths, clocks, counts, what names a format
    r"wall|_runtime|epoch|reward_std|learning_rate|.*/lr|eval.*runtime|step_time|completions/mean_length|time.*/.*step|"
    r"progress/(total_)?rollouts|.*/policy_version|time/total|actor/pg_loss|total_steps"
)


def rows_of(name):
    """A log's rows with a reward, a training reward and an evaluation of one line in one row."""
    form, path, reward, held, *_ = CASES[name]
    rows = form(None if form is board else path.read_text())
    if name == "csv":       # the second of the two runs in that table
        rows = [r for r in rows if r["total_steps"] == "500"]
    if form is board:
        rows = list(by_step(rows).values())
    rows = [r for r in rows if any(r.get(c) not in (None, "") for c in (reward, held))]
    return [{k: v for k, v in r.items() if k in ("step", reward, held) or OTHERS.fullmatch(k)} for r in rows]


def by_step(rows):
    out = {}
    for r in rows:
        out[r["step"]] = {**r, **out.get(r["step"], {}), **{k: v for k, v in r.items() if k != "wall"}}
    return out


def write(folder, name, rows, part="run", file=""):
    form, *_, place, _ = CASES[name]
    path = folder / place.format(part)
    path = path.with_name(file or path.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    made = form(rows=rows)
    path.write_bytes(made) if isinstance(made, bytes) else path.write_text(made)
    return path


def curve(name, *paths, columns=None, seeds=(0, 0)):
    """(C, reward) of every point of the only run in these files, those of training, and its rollouts in all."""
    found = []
    for path in paths:
        for log in sources.logs(path, None, CASES[name][-1] if columns is None else columns):
            sources.add(found, log, seeds)
    (log,) = found
    asked = {"n": 4, "B": 8, "lr": 1e-6} | {k: v for k, v in log.facts.items() if k != "nB"}
    run = resolve(log, stated(**asked, scale=(-10, 10)))
    return ([(C, round(p.reward, 7)) for C, p in run.evaluations],
            [(p.updates, round(p.reward, 7)) for p in run.log.train], run.C)


def cut(rows, share):
    """The number of rows before a share of the last step."""
    return next(i for i, r in enumerate(rows) if r["step"] > share * rows[-1]["step"])


def apart(rows, reward, held):
    """Rows in which a training reward and an evaluation are in lines of their own, as some trainers log them."""
    out = []
    for r in rows:
        both = r.get(reward) not in (None, "") and r.get(held) not in (None, "")
        if both:
            out.append({k: v for k, v in r.items() if k != held})
        out.append({k: v for k, v in r.items() if not both or k in ("wall", "step", held)})
    return out


@pytest.mark.parametrize("name", [name for name in CASES if name != "trl-printed"])     # its steps are the bar's
def test_a_log_that_counts_from_the_other_number_is_the_same_curve(name, tmp_path):
    """An evaluation stands before the update of its line or behind it, its base at 0 or at -1."""
    _, _, reward, held, *_ = CASES[name]
    rows = rows_of(name)
    want = curve(name, write(tmp_path / "as-it-is", name, rows))
    if name == "tinker":
        ways = {"from 1": [{**r, "step": r["step"] + 1} for r in rows]}
    else:
        ways = {
            "before": [{**r, "step": r["step"] - (r.get(reward) not in (None, ""))} for r in apart(rows, reward, held)],
            "behind": [{**r, "step": max(0, r["step"] - 1)} for r in rows],
            "below": [{**r, "step": r["step"] - 1} for r in rows],
        }
    if name in ("verl-console", "tensorboard"):
        del ways["below"]       # neither writes a step below 0
    for way, changed in ways.items():
        assert curve(name, write(tmp_path / way, name, changed)) == want, way


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_log_is_the_curve_of_the_whole_run(name, tmp_path):
    """Stopped at two thirds of its steps and continued from one third: the lines between are there twice."""
    rows = rows_of(name)
    want = curve(name, write(tmp_path / "whole", name, rows))
    first, again = rows[:cut(rows, 2 / 3)], rows[cut(rows, 1 / 3):]
    if name == "tensorboard":   # a process writes a file of its own
        write(tmp_path / "twice", name, again, file="events.out.tfevents.2")
        path = write(tmp_path / "twice", name, first).parent
    else:
        path = write(tmp_path / "twice", name, [*first, *again])
    assert curve(name, path) == want


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_log_in_two_files_is_the_curve_of_the_whole_run(name, overlap, tmp_path):
    """In the order of their names or not, and only if they are known to be of one run: by a seed, or by their names."""
    rows = rows_of(name)
    want = curve(name, write(tmp_path / "whole", name, rows))
    first, again = rows[:cut(rows, 2 / 3)], rows[cut(rows, 1 / 3 if overlap else 2 / 3):]
    a, b = write(tmp_path / "a", name, first, "x"), write(tmp_path / "b", name, again, "y")
    assert curve(name, a, b) == curve(name, b, a) == want
    parts = [write(tmp_path / "parts", name, own, f"run-part{i}") for i, own in enumerate((first, again), 1)]
    assert curve(name, *parts, seeds=(None, None)) == want
    if name != "csv":       # whose reward has a name of its own, so that no file of a folder is known to be a log
        assert curve(name, tmp_path / "parts") == want
    for seeds in ((0, 1), (None, None)):
        found = []
        for path in (a, b):
            for log in sources.logs(path, None, CASES[name][-1]):
                sources.add(found, log, seeds)
        assert len(found) == 2
        said = any(m.startswith("its first lines: it begins after") for m in found[1].missing)
        assert said == (seeds == (None, None))


@pytest.mark.parametrize("which", [0, 1], ids=["training", "held-out"])
@pytest.mark.parametrize("name", CASES)
def test_a_log_whose_reward_is_renamed_in_the_middle_is_the_same_curve(name, which, tmp_path):
    """Under the trainer's other name without a word, under any name where --map gives both."""
    _, _, *columns, others, _, mapped = CASES[name]
    old, new, option = columns[which], others[which], ("reward", "held_out")[which]
    if old is None or (which == 0 and name == "trl-printed"):      # that knows printed lines by their reward
        return
    rows = rows_of(name)
    want = curve(name, write(tmp_path / "whole", name, rows))
    for word in (new, "quite_another"):
        if word is None:
            continue
        middle = cut(rows, 1 / 2)
        renamed = [*rows[:middle], *({word if k == old else k: v for k, v in r.items()} for r in rows[middle:])]
        path = write(tmp_path / word.replace("/", "-"), name, renamed)
        if word == new and name not in ("csv", "jsonl"):
            assert curve(name, path) == want
        (log,) = sources.logs(path, None, mapped)
        said = [m for m in log.missing if f"--map {option}=" in m and m.startswith(("one name", "lines without"))]
        assert len(said) == 1, log.missing
        assert curve(name, path, columns={**mapped, option: f"{old},{word}"}) == want
