"""Claims about offline methods, each in a situation in which it can fail, on sets made here.

    python -m experiments.control.offline lock|modes|weighting|distance > experiments/results/control_offline_NAME.json

"lock" is exact. Others have several sets, made with seeds of their own, and several runs on each; settings are paired.
An interval is Student's at 90 % over the means of the sets; a claim holds where the interval lies beyond its margin.
Margins and settings were fixed before the records were made; alpha in "modes" is chosen on other sets.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from scipy.special import stdtrit

from isocost.chance import Purpose, generator
from isocost.control import methods
from isocost.control.data import make
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Luck
from isocost.control.methods import fql
from isocost.control.networks import Params
from isocost.control.parts import flow
from isocost.control.replay import Replay, gathered
from isocost.control.tasks import open_task
from isocost.control.tasks.maze import _home

LEVEL, SIZES = 0.9, {"batch": 64, "width": 64}


def interval(differences: ndarray) -> list[float]:
    """Mean, low, high over the means of the sets: (sets, runs)."""
    each = differences.mean(1)
    half = each.std(ddof=1) / len(each) ** 0.5 * float(stdtrit(len(each) - 1, (1 + LEVEL) / 2))
    return [round(float(x), 4) for x in (each.mean(), each.mean() - half, each.mean() + half)]


def trained(
    method: str, task: Any, rows: torch.Tensor, seeds: range, updates: int, rate: float = 1e-3, **settings: str
) -> Loop:
    """Runs of these seeds in one stack, after so many updates. Settings have _ for the dot: sample_weighting."""
    agent = methods.tuned(methods.agent(method, **SIZES), {k.replace("_", ".", 1): v for k, v in settings.items()})
    loop = Loop(agent, task, [StackedRun(s, 1.0, rate) for s in seeds], 1, rows)
    loop.advance([updates] * len(seeds))
    return loop


# the lock: exact ----------------------------------------------------------------------------------------------------


def lock() -> dict[str, Any]:
    """Sweeps until the first state's value is right, against ⌈H/n⌉: rows of right actions, through the replay's n-step
    returns. And the value that n-step targets with a maximum end at where the actions in between are uniform."""
    gamma, rows = 0.99, []
    for length in (8, 16, 32, 64):
        task = open_task(f"lock:{length}")
        state, made = np.arange(length, dtype=float)[:, None], np.eye(length)
        after, reward, ended = task.step(state, task.right(state))
        told = np.concatenate((made, task.right(state), reward[:, None], task.observe(after), ended[:, None],
                               np.zeros((length, 1))), -1)
        replay = Replay.of_set(task.space, 1, torch.from_numpy(told).double()).view([0])
        for steps in (1, 2, 4, 8):
            batch = gathered(replay, torch.arange(length)[None], gamma=gamma, steps=steps)
            value, sweeps, after_eight = torch.zeros(length, dtype=torch.double), 0, 0.0
            while abs(float(value[0]) - gamma ** (length - 1)) > 1e-9:
                value = batch.reward[0] + batch.discount[0] * (batch.following[0] @ value)
                sweeps += 1
                after_eight = float(value[0]) if sweeps == 8 else after_eight
            known = float(value[0]) if sweeps <= 8 else after_eight
            rows.append({"length": length, "steps": steps, "sweeps": sweeps, "wanted": -(-length // steps),
                         "error_after_8_sweeps": round(gamma ** (length - 1) - known, 6),
                         "share_of_the_value_under_uniform_actions": round(_uniform(length, steps, gamma), 6)})
    return {"claim": "n-step targets carry a reward back in ⌈H/n⌉ sweeps", "rows": rows,
            "holds": all(r["sweeps"] == r["wanted"] for r in rows)}


def _uniform(length: int, steps: int, gamma: float) -> float:
    """V(s0) / γ^(H−1) at the fixed point of n-step targets whose actions after the first are uniform: exact."""
    best = np.zeros(length)
    for _ in range(4000):
        ahead = best
        for _ in range(steps - 1):      # one more uniform step before the maximum: right, or back to the start
            ahead = 0.5 * np.append(gamma * ahead[1:], 1.0) + 0.5 * gamma * ahead[0]
        new = np.maximum(np.append(gamma * ahead[1:], 1.0), gamma * ahead[0])
        if np.abs(new - best).max() < 1e-13:
            break
        best = new
    return float(best[0] / gamma ** (length - 1))


# FQL on two modes ---------------------------------------------------------------------------------------------------

MODES_MARGIN = 0.05     # of Q: the one-step actor is as good as the flow that its critic picks from


def modes() -> dict[str, Any]:
    """The bandit's two peaks, each with half of the set (sd 0.2): the actor against the best of 8 of its own flow."""
    task = open_task("bandit")

    def drawn(seed: int) -> torch.Tensor:
        rng = generator(seed, Purpose.PROFILE, 7)
        action = np.clip(rng.choice((-0.5, 0.5), (4000, 1)) + 0.2 * rng.standard_normal((4000, 2)), -1, 1)
        one = np.ones((4000, 1))
        made = np.concatenate((one, action, task.value(action)[:, None], one, one, 0 * one), -1)
        return torch.from_numpy(made).float()

    def measured(sets: range, alpha: float) -> dict[str, ndarray]:
        out: dict[str, list[ndarray]] = {}
        for k in sets:
            loop = trained("fql", task, drawn(k), range(3), 2000, losses_alpha=str(alpha))
            p, many = Params(loop.networks, loop.weights), 512
            with torch.no_grad():
                luck, s = Luck([r.source for r in loop.runs], [0] * 3, "measure"), torch.ones(3, many, 1)
                actor = fql.one_step(p, s, luck.normal("z", many, 2)).clamp(-1, 1)
                wide = s.repeat_interleave(8, 1)
                cloned = flow.carried(p, "flow", wide, luck.normal("x", 8 * many, 2), 10).clamp(-1, 1)
                best = p("critic", wide, cloned)[..., 0].mean(1).unflatten(-1, (-1, 8)).argmax(-1)
            groups = cloned.unflatten(1, (-1, 8))
            picked = groups.gather(2, best[..., None, None].expand(-1, -1, 1, 2))[:, :, 0]
            for name, action in (("actor", actor), ("flow", groups[:, :, 0]), ("best of 8", picked)):
                a = action.double().numpy()
                out.setdefault(f"{name}: value", []).append(task.value(a).mean(-1))
                out.setdefault(f"{name}: share on the better mode", []).append((a.sum(-1) > 0).mean(-1))
        return {name: np.stack(x) for name, x in out.items()}

    tried = {alpha: measured(range(100, 102), alpha) for alpha in (0.3, 1.0, 3.0, 10.0)}
    alpha = max(tried, key=lambda a: tried[a]["actor: value"].mean())
    found = measured(range(8), alpha)
    away = interval(found["actor: value"] - found["best of 8: value"])
    agent = methods.agent("fql", **SIZES)
    nets = agent.networks(task.space, agent)
    cost = {"actor": nets["actor"].multiplications, "flow": 10 * nets["flow"].multiplications,
            "best of 8": 80 * nets["flow"].multiplications + 16 * nets["critic"].multiplications}
    return {"claim": "FQL's one-step actor equals its flow improved by the critic, cheaper", "alpha": alpha,
            "chosen on other sets": {str(a): round(float(x["actor: value"].mean()), 4) for a, x in tried.items()},
            "sets": 8, "runs": 24, "updates": 2000, **{k: interval(v) for k, v in found.items()},
            "multiplications of an action": cost, "margin": MODES_MARGIN, "difference of value": away,
            "holds": away[1] > -MODES_MARGIN}


# trajectory weighting -----------------------------------------------------------------------------------------------

LEARNERS, SUCCESS_MARGIN = ("flowbc", "iql", "rebrac"), 0.1


def weighting() -> dict[str, Any]:
    """maze:8, 5 % of the trajectories along the corridor, 95 % of random actions: share of 32 episodes that arrive."""
    task, found = open_task("maze:8"), {}
    sets = [make(task, {"random": 0.95, "navigate": 0.05}, 20_000, k) for k in range(6)]
    for learner in LEARNERS:
        for name in ("none", "return", "advantage"):
            arrived = []
            for made in sets:
                loop = trained(learner, task, made.rows, range(2), 2000, sample_weighting=name)
                steps = loop.evaluate(range(2), 32)[1]
                arrived.append((steps < task.limit).mean(-1))
            found[learner, name] = np.stack(arrived)
    card = sets[0].card["behaviours"]
    rows = [{"learner": learner, "weighting": name, "arrive": interval(found[learner, name]),
             "gain": interval(found[learner, name] - found[learner, "none"])} for learner, name in found]
    return {"claim": "drawing good trajectories more often helps any learner on a mixed set", "rows": rows, "sets": 6,
            "runs": 12, "updates": 2000, "first set": card, "temperature": 0.1, "margin": SUCCESS_MARGIN,
            "holds": all(r["gain"][1] > SUCCESS_MARGIN for r in rows if r["weighting"] == "advantage")}


# the sign of the advantage at a distance ----------------------------------------------------------------------------

CELLS, SIGN_MARGIN = 32, 0.05


def distance() -> dict[str, Any]:
    """goalmaze:32: is the high value higher 2 cells nearer to the goal? With options of 1 step (HIQL) and of 8."""
    task = open_task(f"goalmaze:{CELLS}")
    sets = [make(task, {"navigate": 0.5, "stitch": 0.5}, 20_000, k) for k in range(5)]
    middle = np.stack([_home(c) for c in range(CELLS)])
    points = task.observe(middle)[:, :2]
    pairs = [(i, j) for i in range(CELLS) for j in range(CELLS) if abs(i - j) >= 3]
    here = np.array([np.r_[points[i], points[j]] for i, j in pairs])
    nearer = np.array([np.r_[points[i + 2 * np.sign(j - i)], points[j]] for i, j in pairs])
    far = np.array([abs(i - j) for i, j in pairs])
    forward = np.array([j > i for i, j in pairs])
    found: dict[int, ndarray] = {}
    for option in (1, 8):
        each = []
        for made in sets:
            loop = trained("ota", task, made.rows, range(2), 3000, sample_option=str(option))
            p = Params(loop.networks, loop.weights)
            with torch.no_grad():
                value = [p("critic", torch.from_numpy(x).float().expand(2, -1, -1))[..., 0].mean(1)
                         for x in (here, nearer)]
            each.append((value[1] > value[0]).numpy())
        found[option] = np.stack(each)      # (sets, runs, pairs)
    rows = []
    for low, high in ((3, 8), (8, 16), (16, 32)):
        at = (far >= low) & (far < high) & forward
        right = {option: x[..., at].mean(-1) for option, x in found.items()}
        rows.append({"cells away": [low, high - 1], "one step": interval(right[1]), "options of 8": interval(right[8]),
                     "gain": interval(right[8] - right[1])})
    return {"claim": "values over options keep the sign of the advantage at a distance", "rows": rows, "sets": 5,
            "runs": 10, "updates": 3000, "goals": "ahead in the corridor, 2 cells nearer against here",
            "margin": SIGN_MARGIN, "holds": rows[-1]["gain"][1] > SIGN_MARGIN}


CLAIMS: dict[str, Callable[[], dict[str, Any]]] = {"lock": lock, "modes": modes, "weighting": weighting,
                                                   "distance": distance}


def main() -> None:
    torch.set_num_threads(1)
    began = time.process_time()
    found = CLAIMS[sys.argv[1]]()
    json.dump({**found, "cpu_seconds": round(time.process_time() - began)}, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
