"""The sealed forecast: the reward expected of a prescription, written once, before its first token is sampled.

The forecast is of the mean held-out reward (`audit` split) of K new runs at C rollouts. Its hash is in forecast.json
and in every run trained under it; `audit` raises an error for a run without it.

The seal depends on the forecast and its inputs, not on measured times: equal studies have equal seals (`SEAL`).
Forecasts sealed by earlier versions still verify.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from math import log2, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from isocost.disk.shape import AtLeast, AtMost, Plain, built
from isocost.errors import UserError
from isocost.laws import naive
from isocost.laws.curves import PASS, Curve
from isocost.laws.law import Law
from isocost.planner.bill import Bill
from isocost.planner.training.prescription import BESIDE, Plan, PlannedArm
from isocost.planner.training.study_runs import TRAINED_ARM, OfArm
from isocost.runs.arm import OLD, Arm
from isocost.runs.files import RunFiles, read_json, runs_of
from isocost.runs.schema import VERSION
from isocost.screen.words import counted
from isocost.stats.intervals import Interval, student
from isocost.stats.power import LEVEL

SEAL = 4            # version of the seal: 1 hashed plan and law with measured times, 2 without, 3 has arms as mappings,
                    # 4 has the bill
NUMBERS = 2         # the last version that sealed n, B and a turn limit as numbers, and its comparators by their n
UNBILLED = 3        # the last version without a bill
CLOCK = ("seconds", "timing", "chosen")     # keys of plan and law that seal 2 excludes: measured times, and a text that
                                            # had times in it
PILOTED = ("probe", "pilot", "edge")        # purposes of the runs that a forecast is made from
CHANGED = "forecast.json was changed after it was sealed: its hash differs from its seal"
_LEAVES = {float, int, str}
_ARMS = ("arm", "comparator", "leader")
_FLAT = ("value", "low", "high", "level")
_PARTS = {"plan": "plan.json", "law": "law.json", "records": "the pilot's records"}     # by their key in `hashes`


@dataclass(frozen=True)
class Naive:
    """A simple forecast to compare with. Its interval is for the run-to-run noise only; that of a line, for the line's
    own earlier errors."""

    name: str
    value: float
    low: float
    high: float


class SealedFile(Plain):
    """A forecast whose field `seal` is the hash of its other fields."""

    seal: str

    def sealed(self) -> Self:
        return replace(self, seal=self._hash())

    def _hash(self) -> str:
        return digest({k: v for k, v in self.data().items() if k != "seal"})

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """The forecast that `data()` wrote. Raises UserError if it was changed since it was sealed."""
        found = super().of(data)
        if found.seal != found._hash():
            raise UserError(CHANGED)
        return found


@dataclass(frozen=True)
class Forecast(OfArm):
    """The reward expected of `runs` (K of them, by name) at C rollouts each, and the outcome that would falsify it.

    `interval` is the prediction interval of the mean of K new runs; None if there is no law for this n: `why` then
    gives the reason, and the audit's verdict is "cannot tell". `base` is the mean audit reward before training. `arm`
    and `comparator` have n, B and, if one was planned, the turn limit of training; a comparator that was sealed by an
    earlier version has its n alone. `lengths` are the rollouts of each run by name where they differ (arms that cost
    the same in another unit than rollouts). `leader` is the arm that was best at the pilot's end, if it is a third one,
    and `leader_runs` are its runs. `hashes` are of the plan, the law, the pilot's records and the code, and `rules`
    there are those of the method where they are not 1; `seal` is the hash of all other fields, by `seal_version`.

    `bill` is what the runs are expected to cost together, None where no run of the study was billed. The seal holds its
    tokens, FLOP and environment steps; `bill_seal` is a hash of the seal and the whole bill, with its times and money.
    """

    arm: Annotated[Arm, TRAINED_ARM]
    C: int
    runs: tuple[str, ...]
    comparator: Annotated[Arm, TRAINED_ARM] | None
    comparator_runs: tuple[str, ...]
    interval: Interval | None
    base: float | None
    naive: tuple[Naive, ...]
    falsifier: str
    why: str
    extrapolation: float | None
    epochs: float | None
    pilot_epochs: float | None
    claim: bool
    flags: tuple[str, ...]
    hashes: dict[str, str]
    seal: str = ""
    seal_version: Annotated[int, AtLeast(1), AtMost(SEAL)] = 1
    lengths: dict[str, int] | None = None
    leader: Annotated[Arm, TRAINED_ARM] | None = None
    leader_runs: tuple[str, ...] = ()
    bill: Bill | None = None
    bill_seal: str = ""

    OLDER: ClassVar = {"arm": TRAINED_ARM, "comparator": int, "leader": int}

    def length(self, run: str) -> int:
        """The rollouts of one of its runs."""
        return self.C if self.lengths is None else self.lengths[run]

    @property
    def value(self) -> float | None:
        return self.interval.value if self.interval else None

    @property
    def low(self) -> float | None:
        return self.interval.low if self.interval else None

    @property
    def high(self) -> float | None:
        return self.interval.high if self.interval else None

    @property
    def level(self) -> float:
        """The share of such intervals that should contain their outcome."""
        return self.interval.level if self.interval else LEVEL

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, as the version that sealed it wrote them; value, low, high and level of the interval are
        repeated at the top level."""
        arms = {k: getattr(self, k) for k in _ARMS}
        out = {"schema": VERSION, **asdict(self), **{k: getattr(self, k) for k in _FLAT},
               **{k: arm and arm.data() for k, arm in arms.items()}}
        if self.seal_version <= NUMBERS:
            out |= {"schema": 1, "n": self.n, "B": self.B, **({"turns": self.turns} if self.turns else {}),
                    **{k: arm and arm["n"] for k, arm in arms.items()}}
            del out["arm"]
        if self.seal_version <= UNBILLED:
            del out["bill"], out["bill_seal"]
        if self.seal_version == 1:      # version 1 has no such key
            del out["seal_version"]
        for key in ("lengths", "leader"):       # nor have forecasts without one
            if out[key] is None:
                del out[key]
        if self.leader is None:
            del out["leader_runs"]
        return out

    @staticmethod
    def of(data: Mapping[str, Any]) -> Forecast:
        """The forecast that `data()` wrote. Raises UserError if it was changed since it was sealed."""
        d = dict(data)
        for key in ("comparator", "leader"):
            other = d.get(key)
            d[key] = None if other is None else Arm(other if isinstance(other, Mapping) else {"n": other})
        d["arm"] = Arm.of(data)
        if "arm" in data and (both := sorted(set(OLD) & set(data))):
            raise UserError(f"forecast.json was changed after it was sealed: it has {', '.join(both)} besides its arm")
        found: Forecast = built(Forecast, d)
        verify_seal(found)
        return found


def rules_of(forecast: Forecast) -> dict[str, int]:
    """The rules by which the runs of a forecast are to be made, where they are not 1."""
    return dict(json.loads(forecast.hashes.get("rules", "{}")))


def digest(data: Any) -> str:
    """SHA-256 of plain data as canonical JSON (sorted keys, no spaces, finite numbers only)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(written: Mapping[str, Any], version: int = SEAL) -> str:
    """The digest of a plan or law as its file holds it (versions read different keys), without the keys of `BESIDE`."""
    own = {k: v for k, v in written.items() if k not in (*BESIDE, "metric")}
    return digest(own if version == 1 else _timeless(own))


def _timeless(data: Any) -> Any:
    """The same data without the keys of `CLOCK`, at every depth."""
    if isinstance(data, Mapping):
        return {k: v if type(v) in _LEAVES else _timeless(v) for k, v in data.items() if k not in CLOCK}
    if isinstance(data, list | tuple):
        kinds = set(map(type, data))
        if kinds == {list}:
            kinds = set(map(type, chain.from_iterable(data)))
        if kinds <= _LEAVES:        # numbers of a curve, one list or a list of lists: nearly all of a law
            return data
        return [v if type(v) in _LEAVES else _timeless(v) for v in data]
    return data


def records_hash(study: Path | Iterable[RunFiles]) -> str:
    """SHA-256 over the pilot's records: run.json and metrics.jsonl of every run of a study except trained ones."""
    whole = hashlib.sha256()
    for run in runs_of(study):
        planned = run.name.partition("-")[0]        # a planned run is named by its purpose, and need not be read
        if planned == "train" or (planned not in PILOTED and run.data.get("purpose") in ("train", "run")):
            continue
        for name in ("run.json", "metrics.jsonl"):
            inside = run.raw(name)
            whole.update(f"{run.name}/{name} {len(inside)}\n".encode() + inside)
    return whole.hexdigest()


def seal(plan: Plan, law: Law | None, curves: Sequence[Curve] = (), *, records: str = "", code: str = "",
         files: Mapping[str, str] | None = None, rules: Mapping[str, int] = MappingProxyType({}),
         bill: Bill | None = None) -> Forecast:
    """The forecast of a plan, sealed, with its `bill`. `curves` are the study's; `records` and `code` are hashes, and
    `rules` those by which its runs will be made, where they are not 1.

    `files` are the hashes of plan and law as in their files (`digest_of`), if they were read from files.

    Nothing is forecast of runs that have not risen (`Law.still`). The naive forecasts are from the
    prescribed arm's pilot runs on the audit split: the last value stays constant; the gain of the last doubling of
    rollouts repeats in every further doubling (within [0, 1]); and the two of `laws.naive`.
    """
    arm, other = plan.arm, plan.comparator
    still = law.still(arm.n) if law is not None and arm.n in law.ns else ""
    prediction = None if still else arm.prediction
    own = [c for c in curves if c.purpose == "pilot" and c.arm["n"] == arm.n and not c.diverged
           and plan.turns in (None, c.arm.get("turns"))]
    base = float(np.mean([c.audit[0] for c in own])) if own else None
    bare = Forecast(
        arm=_arm(plan, arm), C=arm.C, runs=_names(plan, arm), comparator=_arm(plan, other) if other else None,
        comparator_runs=_names(plan, other), interval=prediction, base=base,
        naive=_naive(own, law, arm.C, plan.seeds, prediction),
        falsifier=_falsifier(plan, prediction, curves[0].metric if curves else PASS),
        why=f"no value is forecast: {still}" if still else _why(plan, law), extrapolation=plan.extrapolation,
        epochs=arm.epochs, pilot_epochs=plan.pilot_epochs, claim=plan.claim, flags=plan.flags,
        hashes={"plan": digest_of(plan.data()), "law": digest_of(law.data()) if law else "", **(files or {}),
                "records": records, "code": code,
                **({"rules": json.dumps(dict(rules), sort_keys=True)} if rules else {})},
        seal_version=SEAL,
        lengths={r.name: r.C for r in plan.runs} if len({r.C for r in plan.runs}) > 1 else None,
        leader=_arm(plan, plan.leader) if plan.leader else None, leader_runs=_names(plan, plan.leader), bill=bill,
    )
    sealed = replace(bare, seal=_hash(bare))
    return sealed if bill is None else replace(sealed, bill_seal=_bill_seal(sealed))


def _arm(plan: Plan, arm: PlannedArm) -> Arm:
    return Arm(n=arm.n, B=arm.B, turns=plan.turns)


def _names(plan: Plan, arm: PlannedArm | None) -> tuple[str, ...]:
    return tuple(r.name for r in plan.runs if arm is not None and r.n == arm.n)


def _why(plan: Plan, law: Law | None) -> str:
    if plan.direct:
        return f"no value is forecast: the study has no pilot, so the reward of n = {plan.arm.n} is not known"
    if plan.arm.prediction is None:
        return f"no value is forecast: {plan.fallback or 'there is no law'}"
    if law is not None and law.refused:
        return f"the law is not identified, so this is the arm's own curve: {law.refused.reason}"
    equal, undecided = (", ".join(str(n) for n in ns if n != plan.arm.n) for ns in (plan.equal, plan.undecided))
    parts = [f"n = {plan.arm.n} is prescribed", equal and f"n = {equal} within {plan.margin:g} of it",
             undecided and f"n = {undecided} undecided"]
    return "; ".join(filter(None, parts))


def _falsifier(plan: Plan, i: Interval | None, metric: str) -> str:
    arm = plan.arm
    if i is None:
        return "nothing is forecast, so nothing can be falsified"
    what, limit = "reward" if metric == PASS else metric, "" if plan.turns is None else f", turn limit {plan.turns}"
    return (f"a mean held-out {what} of {counted(plan.seeds, 'new run')} at n = {arm.n}, B = {arm.B}{limit}, C = "
            f"{arm.C:,} rollouts, on the test split, outside [{i.low:.4f}, {i.high:.4f}] ({i.level:.0%} prediction "
            "interval)")


def _naive(own: Sequence[Curve], law: Law | None, C: float, K: int, forecast: Interval | None) -> tuple[Naive, ...]:
    if not own or law is None:
        return ()
    end = min(float(c.C[-1]) for c in own)
    last = _mean_at(own, end)
    slope = last + (last - _mean_at(own, end / 2)) * log2(C / end)
    sd = float(law.noise.sd(np.array(end), np.array(last)))
    half = student(law.level, law.dof) * sd * sqrt(1 / K + 1 / len(own))
    values = {"last pilot value": last, "last doubling kept up": min(1.0, max(0.0, slope))}
    if forecast is not None:
        values["a quarter law, the rest last value"] = naive.mixture(forecast.value, last)
    found = tuple(Naive(k, v, max(0.0, v - half), min(1.0, v + half)) for k, v in values.items())
    points = np.unique(np.concatenate([c.C[(c.C > 0) & (end >= c.C)] for c in own]))
    seen = np.array([_mean_at(own, c) for c in points])
    return (*found, Naive("line, damped", *naive.line_interval(points, seen, C, law.level))) if len(points) else found


def _mean_at(own: Sequence[Curve], C: float) -> float:
    """Mean audit reward over runs at C, joined linearly in log C between evaluations (C = 0 apart)."""
    values = []
    for c in own:
        after = c.C > 0
        values.append(np.interp(np.log(C), np.log(c.C[after]), c.audit[after]) if after.any() else c.audit[0])
    return float(np.mean(values))


def _hash(f: Forecast) -> str:
    own = {k: v for k, v in f.data().items() if k not in ("seal", "bill_seal")}
    return digest(own if f.bill is None else own | {"bill": f.bill.counts})


def _bill_seal(f: Forecast) -> str:
    return digest({"seal": f.seal, "bill": f.bill and f.bill.data()})


def verify_seal(forecast: Forecast) -> None:
    """Raises UserError if a forecast or its bill was changed since it was sealed."""
    if forecast.seal != _hash(forecast):
        raise UserError(CHANGED)
    if forecast.bill is not None and forecast.bill_seal != _bill_seal(forecast):
        raise UserError("the bill in forecast.json was changed after it was sealed: its hash differs from its seal")


def changed(then: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, ...]:
    """The inputs of a forecast whose hashes differ from the sealed ones, as text; missing hashes are ignored."""
    return tuple(words for key, words in _PARTS.items() if then.get(key) and key in now and then[key] != now[key])


def write(forecast: Forecast, path: Path) -> Forecast:
    """Write forecast.json once, atomically. Raises UserError if the file has another forecast."""
    path = Path(path)
    if path.exists():
        existing = read(path)
        if existing.seal != forecast.seal:
            raise UserError(f"{path} has another forecast, seal {existing.seal[:16]}; a forecast is never rewritten")
        return existing
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".forecast-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            json.dump(forecast.data(), f, indent=1, sort_keys=True, allow_nan=False)
            f.flush()
            os.fsync(f.fileno())
        os.link(temporary, path)        # fails if another process sealed meanwhile; a rename would overwrite its file
    except FileExistsError:
        return write(forecast, path)
    finally:
        os.unlink(temporary)
    return forecast


def read(path: Path) -> Forecast:
    """The forecast in a file, its seal verified. Raises UserError if there is none, or it was changed."""
    if not os.path.lexists(path):
        raise UserError(f"{path} is missing: `isocost train --plan` seals the forecast before it trains")
    return Forecast.of(read_json(Path(path)))
