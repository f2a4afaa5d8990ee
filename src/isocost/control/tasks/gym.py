"""Any environment of Gymnasium with box or discrete spaces, by its id: `gym:HalfCheetah-v5`; MuJoCo and OGBench too.

The scale of its returns needs one that is known: the id's `reward_threshold`, or `gym:Pendulum-v1@-150`. States are
live, and are reached again by the actions of their episode, so the environment must repeat itself after a reset with
the same seed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.control.types import Space
from isocost.errors import RewardFailed, UserError

NEEDS = {"mujoco": "gymnasium[mujoco]"}     # named by a message: what has it
ADDS = ("ogbench",)     # packages that register ids of their own when they are imported
SUPPORTED = "boxes of numbers and discrete spaces are supported"


@dataclass(frozen=True, eq=False)
class Gymnasium:
    """An id of Gymnasium. A state is the number of its live environment, then the observation."""

    name: str
    id: str
    space: Space
    limit: int
    reference: float
    bounds: tuple[ndarray, ndarray]
    live: bool = True
    _numbers: dict[tuple[str, int, int], int] = field(default_factory=dict)
    _environments: list[Any] = field(default_factory=list)

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        if slot not in self._numbers:
            self._numbers[slot] = len(self._environments)
            self._environments.append(_made(self.id))
        number = self._numbers[slot]
        seed, outside = int(rng.integers(2**31)), np.random.get_state()
        np.random.seed(seed)        # OGBench draws its starts from this generator
        try:
            seen, _ = self._environments[number].reset(seed=seed)
        finally:
            np.random.set_state(outside)
        return np.concatenate(([float(number)], self._flat(number, seen)))

    def _flat(self, number: int, seen: Any) -> ndarray:
        space = self._environments[number].observation_space
        if hasattr(space, "n"):
            return np.eye(int(space.n))[int(seen) - int(space.start)]
        return np.asarray(seen, dtype=np.float64).ravel()

    def observe(self, state: ndarray) -> ndarray:
        return state[:, 1:]

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        rewards, ends, states = np.zeros(len(state)), np.zeros(len(state), bool), state.copy()
        for i, (row, act) in enumerate(zip(state, action, strict=True)):
            number = int(row[0])
            environment = self._environments[number]
            if self.space.discrete:
                given: Any = int(act[0]) + int(environment.action_space.start)
            else:
                given = act.reshape(environment.action_space.shape).astype(environment.action_space.dtype)
            seen, reward, ended, cut, _ = environment.step(given)
            if cut and not ended:
                raise RewardFailed(f"{self.name} cut an episode by itself before its limit of {self.limit} steps: only "
                                   "terminal states and the limit end one here")
            states[i, 1:], rewards[i], ends[i] = self._flat(number, seen), reward, ended
        return states, rewards, ends


def opened(size: str) -> Gymnasium:
    """Raises UserError for an id that does not exist or whose package is missing, and for spaces, limits and scales
    that cannot be used."""
    id, _, stated = size.partition("@")
    if find_spec("gymnasium") is None:
        raise UserError(f"gym:{id} needs Gymnasium: install it with `pip install gymnasium`")
    if not id:
        raise UserError("gym: names no environment; write gym:ID, such as gym:Pendulum-v1@-150")
    if id.startswith("dm_control/"):
        raise UserError(f"{id}: dm_control is not supported. dm_control 1.0.50 fails with mujoco 4.0.0, which pip "
                        "installs with it (AttributeError: 'MjModel' object has no attribute 'flex_vertedge'). Take "
                        "Gymnasium's own, such as gym:HalfCheetah-v5, or `isocost import` logs of it")
    spec = _spec(id)
    made = _made(id)
    seen, acts = made.observation_space, made.action_space
    for what, space in (("observations", seen), ("actions", acts)):
        if not (hasattr(space, "n") and space.shape == ()) and type(space).__name__ != "Box":
            raise UserError(f"{id} has {what} of kind {type(space).__name__}: {SUPPORTED}")
    if not hasattr(seen, "n") and (len(seen.shape) > 1 and seen.dtype == np.uint8):
        raise UserError(f"{id} has pixels of shape {seen.shape} as observations: {SUPPORTED}, no pixels")
    if not spec.max_episode_steps:
        raise UserError(f"{id} has no time limit, so an episode may never end: register it with max_episode_steps")
    if not hasattr(acts, "n") and not np.isfinite([acts.low, acts.high]).all():
        raise UserError(f"{id} has actions without bounds ({acts}): clip them with gymnasium.wrappers.RescaleAction")
    try:
        reference = float(stated) if stated else spec.reward_threshold
    except ValueError:
        raise UserError(f"gym:{size}: the return after the @ is {stated!r}, expected a number") from None
    if reference is None:
        raise UserError(f"{id} states no return at which it is solved, which is 1 of the scale of returns: write "
                        f"gym:{id}@RETURN, such as gym:Pendulum-v1@-150")
    many = int(seen.n) if hasattr(seen, "n") else int(np.prod(seen.shape))
    space = Space(many, 1, int(acts.n)) if hasattr(acts, "n") else Space(many, int(np.prod(acts.shape)))
    none = np.zeros(0)
    bounds = (none, none) if space.discrete else (acts.low.ravel().astype(float), acts.high.ravel().astype(float))
    task = Gymnasium(f"gym:{size}", id, space, int(spec.max_episode_steps), float(reference), bounds)
    first, again = (task.begin(np.random.default_rng(0), ("again", 0, 0)) for _ in range(2))
    if not np.array_equal(first, again, equal_nan=True):
        raise UserError(f"{id} begins elsewhere after a second reset with the same seed, so a resumed run would not be "
                        "the same: its reset must draw from self.np_random")
    return task


def _spec(id: str) -> Any:
    """What is registered of an id, by Gymnasium or by a package of `ADDS` that is installed.

    Raises UserError for an id that does not exist, with the nearest.
    """
    import gymnasium

    lacking = []
    for package in ("", *ADDS):
        try:
            importlib.import_module(package or "gymnasium")
            return gymnasium.spec(id)
        except ImportError:
            lacking.append(package)
        except gymnasium.error.Error:
            pass
    near = get_close_matches(id, gymnasium.registry, 1)
    raise UserError(f"Gymnasium has no {id}{f': did you mean {near[0]}?' if near else ''}"
                    + "".join(f"; ids of {p} need `pip install {p}`" for p in lacking))


def _made(id: str) -> Any:
    """An environment without its time limit, which the loop keeps. Raises UserError if its package is missing or too
    new for it."""
    import gymnasium

    try:
        return gymnasium.make(id, max_episode_steps=-1, disable_env_checker=True)
    except (ImportError, gymnasium.error.DependencyNotInstalled) as e:
        package = next((has for named, has in NEEDS.items() if named in str(e).lower()), "gymnasium")
        raise UserError(f"{id} needs a package that is missing ({e}): `pip install '{package}'`") from None
    except AttributeError as e:     # dm_control with a mujoco that it does not know
        raise UserError(f"{id} cannot use the version of its simulator that is installed ({e}); install an older one, "
                        "such as mujoco<4") from None
