"""The profile of a task of control: what a sample and an update cost, and the rate about which a pilot is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from isocost.disk.jsonfile import finite, write_json
from isocost.disk.shape import built
from isocost.errors import UserError
from isocost.laws.value_fit import OFFLINE, SIGMAS
from isocost.laws.value_fit import SEEDS as LEAST_SEEDS
from isocost.planner.control.curves import levels, return_curves
from isocost.planner.control.pilot import COUNT, KIND, ControlCosts, ControlRunPlan, plan_control_pilot
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.files import RunFiles, read_json
from isocost.runs.source import CONTROL
from isocost.screen.display import Result, Row, Table, folder_field
from isocost.screen.words import duration, grouped, word
from isocost.stats.forms import peak
from isocost.steps.control.runs import Trained, run_all
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import StudyFolder, writes
from isocost.units import SECONDS

RATES, SEEDS, SIGMA = (3e-4, 1e-3, 3e-3, 1e-2), 2, 2.0
RATE = 3e-4         # of SAC's paper and of Stable-Baselines3, where a method names none
BATCH, TIMED, TIMED_BATCH = 64, 400, 256    # of the runs that choose the rate; samples and batch of a run for its time
MORE = 10           # times the profile's samples: what a pilot of longer runs would take is said
MOVES = 0.1         # of the way from random actions to the reference: a smaller gain is no return that moves
SAMPLES, WIDTH = 3000, 64
DATA = "data"       # key of study.json: the set that the runs learn from before their first sample


@dataclass(frozen=True)
class FromSet:
    """What a study of offline to online has besides: the file of the set, the numbers of updates on it that are
    compared, updates per sample, and settings "SEAM.NAME=VALUE"."""

    data: str
    updates: tuple[int, ...]
    sigma: float = SIGMA
    sets: tuple[str, ...] = ()

    def asked(self, task: str) -> dict[str, Any]:
        """As study.json has it. Raises UserError for fewer than three numbers, and for a set that does not fit."""
        if len(set(self.updates)) < SIGMAS or min(self.updates) < 1:
            raise UserError(f"--offline-updates {','.join(map(str, self.updates))}: a study compares at least {SIGMAS} "
                            "numbers above 0, such as 500,1000,2000,4000")
        if bad := next((s for s in self.sets if "=" not in s), None):
            raise UserError(f"--set {bad!r} has no value; write SEAM.NAME=VALUE, such as tempo.warmup=200")
        return {DATA: self.data, "hash": set_hash(self.data, task), OFFLINE: sorted(set(self.updates)),
                "sigma": self.sigma, "sets": dict(s.split("=", 1) for s in self.sets)}


def set_hash(data: str, task: str) -> str:
    """The hash of a set's transitions. Raises UserError as `isocost.control.data.read`."""
    from isocost.runs.control import set_of

    return str(set_of(data, task).card["hash"])

@dataclass(frozen=True)
class ControlProfile(Result):
    """What the profile of a task measured.

    `random` and `reference` are the task's returns of random actions and of its reference policy; `by_rate` is (rate,
    mean return over a run, return at its end); `rate` and `batch` are the centre of the grid; `samples` those of a run,
    and `default` the method's own arm: one update per sample, its own batch, and the rate that is usual. `offline` are
    the numbers of updates on a set that are compared, at `sigma` updates per sample.
    """

    task: str
    method: str
    width: int
    random: float
    reference: float
    batch: int
    rate: float
    samples: int
    by_rate: tuple[tuple[float, float, float], ...]
    default: Arm
    costs: ControlCosts
    seconds: float
    offline: tuple[int, ...] = ()
    sigma: float = SIGMA
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return f"{self.method} on {self.task}"

    def rows(self) -> list[Row | Table]:
        """The task, the costs, and the rates that were tried."""
        c = self.costs
        update = c.update_seconds + c.example_seconds * self.batch
        cells = [(f"{r:g}", f"{mean:.4g}", f"{end:.4g}") for r, mean, end in self.by_rate]
        out: list[Row | Table] = [
            Row("return", f"{self.random:.4g} of random actions, {self.reference:.4g} of the reference"),
            Row("cost", f"a sample {c.sample_seconds * 1e3:.3g} ms and {c.sample_flop:.3g} FLOP of its action; an "
                        f"update of {self.batch} {update * 1e3:.3g} ms and "
                        f"{c.update_flop + c.example_flop * self.batch:.3g} FLOP, {self.width} wide"
                        + f"; one on the set {c.first_seconds * 1e3:.3g} ms and {c.first_flop:.3g} FLOP"
                        * bool(self.offline)),
            Table(("rate", "mean return", "at the end"), cells),
            Row("centre", f"batch {self.batch}, rate {self.rate:.2g}; runs of {grouped(self.samples)} samples"),
            Row("time", duration(self.seconds)),
        ]
        if self.folder is not None:
            out.append(Row("next", f"isocost plan {word(self.folder)} --budget 10m --return RETURN", "command"))
        return out

    def to_dict(self) -> dict[str, Any]:
        """profile.json."""
        left = ("folder",) if self.offline else ("folder", "offline", "sigma")
        told = {**asdict(self), "costs": self.costs.data()}
        return {"kind": KIND, **{k: v for k, v in finite(told).items() if k not in left}}

    @staticmethod
    def of(data: Mapping[str, Any], folder: Path | None = None) -> ControlProfile:
        """The profile that `to_dict()` wrote."""
        found: ControlProfile = built(ControlProfile, data)
        return replace(found, folder=folder)


@writes(new=True)
def profile_control(
    out: Path, task: str, *, method: str = "sac", seed: int = 0, samples: int = SAMPLES, width: int = WIDTH,
    of: FromSet | None = None, observer: Observer = SILENT,
) -> ControlProfile:
    """Begin a study of a task: eight short runs at four rates, and two for the time of a larger batch; of methods that
    learn from a set first, the eight alone, at the middle number of updates on it.

    Raises UserError for a folder with another study, a task or method that does not exist or do not fit, a method that
    needs a set without one, and a return that does not move.
    """
    from isocost.control import methods

    if (made := methods.agent(method)).prepare:
        raise UserError(f"{method} learns from its last rollout, and a plan is for methods with a replay: leave "
                        f"--method out, or train it alone (`isocost train {method} --control {task} --budget "
                        "50k-env-steps`), and `isocost compare` its runs with others")
    if made.offline:
        raise UserError(f"{method} learns from a set alone, and a plan is for methods that take samples: leave "
                        f"--method out, or train it alone: `isocost collect {task}`, then `isocost train {method} "
                        f"--control {task} --offline FILE`")
    if made.warms != (of is not None):
        raise UserError(f"{method} takes samples of its own, and no set: leave --offline out" if of else
                        f"{method} learns from a set first: give --offline FILE, which `isocost collect {task}` makes, "
                        "and --offline-updates 500,1000,2000,4000")
    asked = {"task": task, "method": method, "seed": seed, "samples": samples, "width": width,
             **(of.asked(task) if of else {})}
    home = StudyFolder(out)
    if home.has("study.json"):
        there = home.asked
        if differs := [k for k, v in asked.items() if there.get(k) != v]:
            raise UserError(f"{out} already contains a study with different settings ({differs[0]} was "
                            f"{there.get(differs[0])!r} and is now {asked[differs[0]]!r}); choose another --out, or "
                            "remove it")
        if home.has("profile.json"):
            return ControlProfile.of(home.record("profile.json", "profile"), out)
    write_json(out / "study.json", {"schema": records.SCHEMA, "kind": "control", "source": CONTROL.name, **asked,
                                    "phases": {}, "code": records.code()})
    with home.phase("profile"):
        found = _measure(out, asked, observer)
    home.write("profile.json", found.to_dict())
    return found


def _measure(out: Path, asked: Mapping[str, Any], observer: Observer) -> ControlProfile:
    samples, width, seed = asked["samples"], asked["width"], asked["seed"]
    first, sigma = asked.get(OFFLINE, ()), asked.get("sigma", SIGMA)
    middle = {OFFLINE: first[len(first) // 2]} if first else {}
    runs = [ControlRunPlan("profile", Arm(sigma=sigma, batch=BATCH, rate=r, width=width, **middle), seed + s, samples)
            for r in RATES for s in range(SEEDS)]
    large = Arm(sigma=SIGMA, batch=TIMED_BATCH, rate=RATES[0], width=width)
    timed = [ControlRunPlan("profile", large, seed + s, min(samples, TIMED)) for s in range(0 if first else SEEDS)]
    of = Trained(asked["task"], asked["method"], None, asked.get(DATA), asked.get("sets", {}))
    folder = out / "profile"
    run_all(folder, [*runs, *timed], of, "profile", 1, observer)
    about = read_json(folder / runs[0].name / "run.json")
    low, high = about["scale"]["random"], about["scale"]["reference"]
    files = {r.name: RunFiles(folder / r.name) for r in (*runs, *timed)}
    curves = {c.run: c for c in return_curves([files[r.name] for r in runs])}
    by_rate = []
    for rate in RATES:
        own = [levels(curves[r.name]) for r in runs if r.arm["rate"] == rate and r.name in curves]
        if own:
            by_rate.append((rate, float(np.mean([x.mean() for x in own])), float(np.mean([x[-1] for x in own]))))
    gain = max(end for _, _, end in by_rate) - low if by_rate else 0.0
    costs = (_costs_after_set([files[r.name] for r in runs]) if first else
             _costs([files[r.name] for r in runs], [files[r.name] for r in timed]))
    if gain < MOVES * (high - low):
        raise UserError(f"{asked['task']}: the return of {asked['method']} does not move in {grouped(samples)} samples "
                        f"at any of the rates {', '.join(f'{r:g}' for r in RATES)}: {low + gain:.4g} at best, "
                        f"{low:.4g} of random actions and {high:.4g} of the reference. "
                        + _longer(asked, costs))
    at = np.log([r for r, _, _ in by_rate])
    rate = float(f"{np.exp(float(peak(at, np.array([mean for _, mean, _ in by_rate])))):.2g}")
    seconds = sum(float(f.end["seconds"]) for f in files.values()) / len(runs)
    from isocost.control import methods

    default = Arm(sigma=sigma if first else 1.0, batch=methods.agent(asked["method"]).batch, rate=RATE, width=width)
    return ControlProfile(asked["task"], asked["method"], width, low, high, BATCH, rate, samples, tuple(by_rate),
                          default, costs, seconds, tuple(first), sigma, out)


def _longer(asked: Mapping[str, Any], costs: ControlCosts) -> str:
    """What runs that are `MORE` times as long would take here, and what to do instead."""
    longer, price = MORE * asked["samples"], costs.price(SECONDS)
    centre = Arm(batch=BATCH, rate=RATES[1], width=asked["width"])
    pilots = [plan_control_pilot(centre, longer, price, None, seeds=n) for n in (COUNT, LEAST_SEEDS)]
    usual, least = (f"{len(p.runs)} runs, {duration(p.cost)} of run time" for p in pilots)
    return (f"Name another method, or more --length in a new --out: a pilot of {grouped(longer)} samples a run takes "
            f"{usual} here, and with --seeds {LEAST_SEEDS} {least}. Or import logs: `isocost import LOGS --control "
            f"{word(asked['task'])}`")


def _costs_after_set(runs: Sequence[RunFiles]) -> ControlCosts:
    """Costs at one batch: of the time of all updates, those on the set take the share of their FLOP."""
    acting = [f.end["bill"]["evaluation"] for f in runs]
    sample = sum(b["seconds"] for b in acting) / sum(b["env_steps"] for b in acting)
    bills, about = [f.end["bill"]["train"] for f in runs], runs[0].about()
    dear, usual, many = about[OFFLINE]["flop"], about["update"]["flop"], about[OFFLINE]["updates"]
    took = sum(b["seconds"] - sample * b["env_steps"] for b in bills)
    each = max(took, 0.0) / sum(many * dear + (b["updates"] - many) * usual for b in bills)      # seconds of a FLOP
    return ControlCosts(
        sample, each * usual, 0.0, float(usual), 0.0, float(about["action"]["flop"]),
        float(np.mean([b["seconds"] for b in acting])), float(np.mean([f.end["flop_of"]["evaluation"] for f in runs])),
        each * dear, float(dear))


def _costs(small: list[RunFiles], large: list[RunFiles]) -> ControlCosts:
    """Costs by two batch sizes: a line through what an update takes in them; a sample's is that of an evaluation."""
    pairs = []
    sample = float(np.mean([f.end["bill"]["evaluation"]["seconds"] / f.end["bill"]["evaluation"]["env_steps"]
                            for f in (*small, *large)]))
    for runs in (small, large):
        bills = [f.end["bill"]["train"] for f in runs]
        took = sum(b["seconds"] - sample * b["env_steps"] for b in bills) / sum(b["updates"] for b in bills)
        about = runs[0].about()
        pairs.append((float(about["arm"]["batch"]), max(took, 0.0), float(about["update"]["flop"])))
    (b0, s0, f0), (b1, s1, f1) = pairs
    each, flop = max((s1 - s0) / (b1 - b0), 0.0), (f1 - f0) / (b1 - b0)
    ends, action = [f.end for f in small], small[0].about().get("action", {"flop": 0})
    return ControlCosts(
        sample, max(s0 - each * b0, 0.0), each, max(f0 - flop * b0, 0.0), flop, float(action["flop"]),
        float(np.mean([e["bill"]["evaluation"]["seconds"] for e in ends])),
        float(np.mean([e.get("flop_of", {"evaluation": 0})["evaluation"] for e in ends])))
