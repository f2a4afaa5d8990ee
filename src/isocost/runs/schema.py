"""The shape of every file of a record, by its name: docs/records.md as shapes that are checked on reading.

A shape needs the keys that every reader indexes and every version has written; a reader that needs more gives a shape
of its own. Files of `laws` and `planner` have the shapes of their dataclasses, which those rooms register.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from isocost.disk.shape import UNKNOWN, AtLeast, Count, Each, Filled, FixedList, Keys, Maybe, Size
from isocost.screen.words import word
from isocost.units import STOPS
from isocost.worlds.spec import options as world_options

VERSION = 2     # of the records that this version writes, and the newest that it reads. 1 had n, B and learning rate as
                # fields of a job, a planned run, a forecast and a design; 2 has an arm
BINS = 17       # of a histogram of pass rates


@dataclass(frozen=True)
class Costs:
    """The charges of an account, in the fields of `isocost.types.Cost`; imported logs have some of them."""

    rollouts: float = 0
    prefill: float = 0
    decode: float = 0
    score: float = 0
    train: float = 0
    updates: float = 0
    env_steps: float = 0
    verify: float = 0
    seconds: float = 0
    reread: float = 0


NUMBER = float | None       # null is not a number
OBJECT = dict[str, Any]
HELD_OUT = Count | list[str] | None     # the number of problems, or their ids

def _of_kinds() -> dict[str, Any]:
    """The shapes of the options of all kinds of world."""
    found: dict[str, Any] = {}
    for name, f in world_options().items():
        kind, above = f.metadata["kind"], f.metadata["above"]
        shape = Annotated[int, AtLeast(above + 1)] if kind is int and above is not None else kind
        found[name] = shape if f.default is not None else shape | None
    return found


SETTING = Keys({}, {
    "model": str, "data": str, "verifier": str | None, "truth": str | None, "held_out": float,
    "held_out_data": str | None, "limit": Size | None, "skip_broken": bool, "temperature": float, "top_p": float,
    "top_k": Count, "max_tokens": int, "samples": Size, "evaluated": Size | None, "system": str, "device": str,
    "dtype": str,
    "threads": Size, "env": str, "max_turns": Count, "effort": str, **_of_kinds(),
}, rest=UNKNOWN)
ARM = Keys({}, rest=NUMBER)     # which values it needs is said where they are read
MODEL = Keys({}, {"name": str, "parameters": NUMBER, "learned": NUMBER})
PROBLEMS = Keys({}, {
    "spec": str, "train": Count, "select": HELD_OUT, "audit": HELD_OUT, "hash": str, "verifier": str,
    "verifier_source": str | None, "verifier_rule": Size, "truth": str, "truth_source": str | None, "truth_rule": Size,
    "environment": str, "environment_source": str,
})
LOG = Keys({}, {        # the log of an imported run
    "source": str, "name": str, "unit": str, "digest": str, "files": list[OBJECT], "about": OBJECT,
    "stated": Keys({}, {"scale": tuple[float, float] | None}), "metric": Keys({}, {"name": str | None, "kind": str}),
})
BUDGET = Filled(Keys({}, dict.fromkeys(STOPS, float), rest=UNKNOWN))
RUN = Keys({}, {
    "name": str, "seed": int, "arm": ARM, "purpose": str, "method": str, "recipe": OBJECT, "job": OBJECT,
    "budget": BUDGET, "seal": str | None, "model": Maybe(MODEL), "problems": Maybe(PROBLEMS),
    "code": OBJECT, "machine": OBJECT, "imported": LOG,
    "missing": list[str],
})
ARMED = RUN.needing(name=str, seed=int, arm=ARM)
BUDGETED = ARMED.needing(purpose=str, budget=BUDGET, model=MODEL)
TRAINED = BUDGETED.needing(     # by isocost: what resuming and evaluating it again need
    method=str, recipe=OBJECT, job=Keys({"setting": SETTING}), problems=PROBLEMS
)
IMPORTED = ARMED.needing(imported=LOG.needing(name=str, digest=str))
END = Keys({"reason": str}, {
    "detail": str, "bound": str, "steps": Count, "seconds": float, "signal": int | None, "bill": dict[str, Costs],
    "physical": dict[str, Costs], "fates": dict[str, int], "notes": list[str], "verifier_failures": dict[str, int],
    "timing": dict[str, NUMBER], "shares": dict[str, float], "tokens_per_second": NUMBER,
    "rollouts_per_second": NUMBER, "start_up": float, "evaluation_cpu": float, "load": float,
})
ENDED = END.needing(bill=dict[str, Costs], seconds=float)       # what summing its cost needs
BILLED = ENDED.needing(bill=Keys({"train": Costs}))             # and of an imported run
STUDY = Keys({"setting": SETTING}, {
    "seed": int, "method": str | None, "profiled": int, "metric": str, "phases": dict[str, float], "code": OBJECT,
})
TOKENS = Keys({}, {"fresh": Count, "reread": Count, "written": Count})
TURN = Keys({}, {"said": str, "shown": str, "reward": float, "fault": str, "key": str, "tokens": TOKENS})
ATTEMPT = Keys({}, {
    "attempt": int, "text": str, "reward": NUMBER, "mark": NUMBER, "stop": str, "fate": str, "tokens": TOKENS,
    "turns": Each(TURN), "left_out": Count,
})
SAID = Keys({}, {
    "step": float, "part": str, "kept": str, "id": str, "variant": str, "prompt": str, "opened": str,
    "attempts": Each(ATTEMPT),
})
PROFILE = Keys({
    "samples": Size, "right": Filled(list[int]), "mean": float, "histogram": Filled(list[Count]), "regime": str,
    "why": str,
    "dead": Each(Keys({"n": int, "share": float, "kind": str}, {"low": NUMBER, "high": NUMBER})),
    "recipe": Keys({"method": str, "why": str}, {"compares": bool}),
    "methods": Each(Keys({"name": str, "state": str}, {"why": str})),
    "lengths": Maybe(Keys({"mean": float, "p90": float, "truncated": NUMBER}, {
        "p50": float, "p99": float, "max": float, "prompt": NUMBER,
    })),
    "rate": Maybe(Keys({"rollouts_per_second": float}, {
        "tokens_per_second": float, "prompt_tokens_per_second": NUMBER, "sampled_tokens_per_second": NUMBER,
        "at_once": Size, "cached": float,
        "training": Keys({"call_seconds": float, "trained_tokens_per_second": NUMBER, "forward": float}),
    })), "found": list[str],
}, {
    "pass_at": Each(Keys({"k": Size, "value": float, "low": float, "high": float})), "server": Maybe(Keys({}, {
        "sent": Count, "answered": Count, "failed": Count, "unknown": Count, "repeated": dict[str, int],
        "examples": dict[str, str], "dropped": list[str],
    })),
    "money": Maybe(Keys({"amount": float, "currency": str, "price": str})),
    "stored": Maybe(Keys({"file": str, "sha256": str, "completions": Count}, {"read": NUMBER, "written": NUMBER})),
    "model": str, "parameters": NUMBER, "learned": Count, "problems": Count, "pool": Count, "select": Count,
    "audit": Count,
    "ids": list[str], "levels": list[Any], "unscored": Count, "verifier_failures": dict[str, int],
    "assign": list[float], "report": list[float],
    "graded": bool, "rewards": list[float], "tallies": Each(Each(tuple[float, int])), "unsolved": float,
    "h": float, "exact": bool, "solutions": NUMBER, "cost": Costs, "measuring": Costs, "sent": Costs,
    "truth": Keys({"verifier": str, "mean": float, "flawed": NUMBER}),
    "starting_rate": Keys({"lr": float, "rollouts": Size, "command": str}),
    "lost": Costs, "seconds": float, "examples": Each(SAID),
    "bands": Each(Keys({}, {"band": str, "problems": int, "assigned": NUMBER, "reported": NUMBER})),
    "columns": list[str],
    "by_limit": Each(Keys({
        "turns": Size, "success": float, **dict.fromkeys(("env_steps", "read", "reread", "written"), float),
        "cost": Maybe(dict[str, float]), "pass_at": Each(Keys({"k": Size, "value": float})),
        "dead": Each(Keys({"n": Size, "share": float})),
    })),
    "dialogues": Maybe(Keys({
        "turns": Keys({"mean": float, "p90": float, "limit": Count}), "ends": dict[str, float],
        "by_turn": Filled(Each(Keys({"turn": Size, "took": float, "success": float}))), "faults": dict[str, float],
        "listed": Each(Keys({"fault": str, "per_turn": float}, {"rollouts": float, "success": NUMBER})),
        "reread": float,
        "success_costs": Maybe(Keys(
            dict.fromkeys(("rollouts", "env_steps", "written", "read"), float), {"reread": float})),
    }, {
        "ended": Each(Keys({"end": str, "turn": Count, "rollouts": Count})),
        "failures": Each(Keys({"end": str, "share": float, "p10": Count, "p50": Count, "p90": Count})),
        "by_end": Each(Keys({"end": str, "env_steps": float})), "failed_steps": float,
        "faultless": Keys({"rollouts": float, "success": NUMBER}),
        "dead": Each(Keys({"n": Size, "failed": float, "succeeded": float})),
    })),
})
TRAINER = Keys({        # the first run of a user's trainer
    "exact": bool, "select": Count, "audit": Count, "base": float, "cost": Costs,
    "timing": Keys({"update": float, "problem": float, "rollout": float, "evaluation": float, "source": str},
                   {"start": float}),
}, {
    "pool": Size | None, "parameters": NUMBER, "lengths": Maybe(Keys({"mean": float})),
    "at": Keys({"lr": float, "nB": Size}), "end": float, "missing": list[str], "seconds": float,
})
COMPARE = Keys({"design": OBJECT, "expected": OBJECT, "seal": str}, {"pricing": Maybe(Costs)})
COMPARISON = Keys({}, {
    "arms": list[OBJECT], "answers": list[OBJECT], "best": str | None, "missing": list[str], "cost": NUMBER,
    "unit": str, "margin": float, "metric": str,
    "verdicts": Each(Keys({}, {"a": str, "b": str, "better": str | None, "by": str | None})),
})

# lines of streams
STEP = Keys({"step": float}, {
    "rollouts": float, "reward": NUMBER, "epoch": NUMBER, "decode": NUMBER, "completions/mean_length": NUMBER,
}, rest=NUMBER)
EVALUATION = Keys({"step": float, "rollouts": float}, {
    "eval/select": NUMBER, "eval/audit": NUMBER, "epoch": NUMBER, "eval/exact": bool, "eval/samples": int,
    "eval/unscored": int, "eval/length": NUMBER,
    "eval/histogram": list[Any], "eval/by_base": list[Any],
}, rest=NUMBER)
COUNTED = EVALUATION.needing(**{        # with the changes of single problems, by bin
    "eval/histogram": FixedList(Count, BINS), "eval/by_base": FixedList(NUMBER, BINS), "eval/forgotten": Count,
    "eval/learned": Count,
})
COUNTS = set(STOPS.values()) - {"rollouts", ""}     # what a run without rollouts may be counted in
GROUP = Keys({"rewards": list[NUMBER]}, {
    "step": Count, "id": str, "variant": str, "wave": int, "slot": int, "attempts": list[int], "fates": list[str],
    "cancelled": int, "unchosen": int, "version": int, "lengths": list[int], "stops": list[str],
    "outlooks": list[NUMBER], "turns": list[Count], "faults": list[dict[str, int]],
})
NAMED = GROUP.needing(step=Count, id=str, variant=str)
PLACED = GROUP.needing(wave=int, slot=int)
REPLAYED = NAMED.needing(wave=int, slot=int, attempts=list[int], fates=list[str], cancelled=int)    # by the ledger
CLOCK = Keys({"step": float}, dict.fromkeys(
    ("rollouts", "tokens", "seconds", "cpu", "sample", "score", "learn", "evaluate", "rss_mb"), float))
KEPT = Keys({"slot": int | None, "id": str | None, "rewards": list[NUMBER], "cost": Costs}, {
    "true": list[NUMBER],
    "lengths": list[int], "stops": list[str], "example": SAID, "turns": list[Count],
    "faults": list[dict[str, int]],
})
POOL = Keys({"id": str, "right": list[float]}, {        # the samples of one problem
    "score": list[float], "answer": list[int], "tokens": list[Count], "read": float, "level": Any,
    "scoring": float, "cost": Costs,
})
LIVE = Keys({"id": str, "strategy": str, "size": Size, "right": float, "samples": float, "tokens": float,
             "depth": float}, {"cost": Costs})      # an answer by a strategy that was run

STREAMS = ("metrics.jsonl", "journal.jsonl", "samples.jsonl", "timing.jsonl")      # that a checkpoint truncates
ACCOUNTS = dict[str, Costs]
STATE = Keys({      # of a checkpoint
    "step": Count, "offsets": Keys(dict.fromkeys(STREAMS, Count)), "sha256": str,
    "meter": Keys({"logical": ACCOUNTS, "physical": ACCOUNTS}, {"busy": dict[str, dict[str, float]]}),
}, {
    "ledger": Keys({"seed": int, "step": Count, "waves": Count, "drawn": int}, rest=UNKNOWN), "measured": Count,
    "base": list[NUMBER] | None, "best": OBJECT, "version": int, "kept": dict[str, list[OBJECT]],
    **dict.fromkeys(("seconds", "cpu", "start_up", "evaluation_cpu"), float),
    "checksums": dict[str, int], "shelf": list[OBJECT], "unfinished": list[OBJECT],
    "ahead": Keys({"waves": list[list[OBJECT]], "held": list[OBJECT]}),
})

_FILES: dict[str, Any] = {
    "run.json": RUN, "end.json": END, "study.json": STUDY, "profile.json": PROFILE,
    "trainer.json": TRAINER,
    "eval.json": Keys({}, {"spent": Costs, "cost": Costs}), "compare.json": COMPARE, "comparison.json": COMPARISON,
    "rates.json": Keys({"rates": dict[str, OBJECT]}, {"noise": dict[str, float] | None, "pilot": bool}),
    "gate.json": Keys({"runs": dict[str, list[str]], "probes": dict[str, list[str]], "rates": dict[str, float],
                       "unit": str, "metric": str}),
}
# Files of later rooms, which register their shapes: each with the command that makes it, if it can be made again.
_LATER = {
    "pilot.json": "plan", "rate.json": "pilot", "shift.json": "pilot", "law.json": "fit", "plan.json": "plan",
    "forecast.json": "", "audit.json": "audit",
}
_BESIDE: dict[str, Keys] = {}       # what may be in a registered file besides the fields of its dataclass
_NOTHING = Keys({})
_STREAMS: dict[str, Any] = {
    "metrics.jsonl": STEP, "journal.jsonl": GROUP, "samples.jsonl": SAID, "timing.jsonl": CLOCK,
    "lost.jsonl": Keys({"cost": Costs}, {"life": int, "step": int}), "profile.jsonl": KEPT,
    "attempts.jsonl": Keys({"attempt": Size}, {"after": str}), "pool.jsonl": POOL,
    "live.jsonl": LIVE,
}


def register(name: str, shape: Any, beside: dict[str, Any] | None = None, kind: str = "") -> None:
    """Give the file of this name its shape, as a rule a dataclass of a later room; `beside` are keys that it may have
    besides.

    `kind` is that of the studies whose file it is, where they are not of training: the file has it under "kind".

    Raises KeyError for a name that is neither in `_LATER` nor of another kind of study.
    """
    if name not in _LATER and not kind:
        raise KeyError(f"{name} is not a file that a later room registers")
    key = f"{kind}/{name}" if kind else name
    _FILES[key], _BESIDE[key] = shape, Keys({}, {**(beside or {}), **({"kind": str} if kind else {})})


def key_of(name: str, data: Any) -> str:
    """The key of the shape of this file: its name, after the kind of study that its data names if that has one."""
    key = f"{data.get('kind')}/{name}" if isinstance(data, dict) else name
    return key if key in _FILES else name


def of_file(name: str) -> Any:
    """The shape of a record's file of this name or key; any object if it has none, or none is registered."""
    return _FILES.get(name, OBJECT)


def beside(name: str) -> Keys:
    """The keys that a file of this name or key may have besides the fields of its dataclass."""
    return _BESIDE.get(name, _NOTHING)


def of_line(name: str, line: Any) -> Any:
    """The shape of a line of the stream of this name."""
    if name.startswith("paid-"):
        return list[Any]
    if name == "metrics.jsonl" and isinstance(line, dict) and is_evaluation(line):
        if "rollouts" not in line and COUNTS & line.keys():
            return STEP         # of a run that is counted in something else
        return COUNTED if "eval/by_base" in line else EVALUATION
    return _STREAMS.get(name, OBJECT)


def is_evaluation(line: dict[str, Any]) -> bool:
    """Whether a line of metrics.jsonl is that of an evaluation; all others are those of steps."""
    return "eval/select" in line or "eval/audit" in line


def absent(path: Path) -> str:
    """The meaning of a missing file, to append to the message that it is missing."""
    kind = {"run.json": "a run record", "study.json": "a study"}.get(path.name)
    return f": {path.parent} is not {kind}" if kind else ""


def remedy(path: Path) -> str:
    """How to recover from a file that cannot be used."""
    name = path.name
    if (name in ("run.json", "end.json", *_STREAMS) and name != "profile.jsonl") or name.startswith("paid-"):
        return f"restore it from a copy, or remove the run's folder {path.parent} and run it again"
    if _LATER.get(name):
        return f"restore it from a copy, or remove it and run `isocost {_LATER[name]} {word(path.parent)}` again"
    if name in (*_FILES, *_LATER, "profile.jsonl"):
        return f"restore it from a copy, or start again in another folder than {path.parent}"
    return "restore it from a copy, or fetch it again"
