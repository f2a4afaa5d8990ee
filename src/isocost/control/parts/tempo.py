"""Tempos: schedules of random actions, updates, delayed actors and resets."""

from __future__ import annotations

from isocost.control.types import Progress, Tempo

NEVER = 1 << 60     # updates


def steady(
    so_far: Progress, *, warmup: int = 200, tau: float = 0.005, slow_every: int = 1, actor_every: int = 1,
    reset_every: int = 0,
) -> Tempo:
    """Random actions for `warmup` samples, for which no update is owed; then the same to the end.

    The actor is trained in every `actor_every`-th update; all networks start again after every `reset_every` updates.
    """
    warm = so_far.samples < warmup
    reset = bool(reset_every and so_far.updates and so_far.updates % reset_every == 0)
    every = {"actor": actor_every, "temperature": actor_every} if actor_every > 1 else {}
    return Tempo(random=warm, learns=not warm, every=every, tau=tau, slow_every=slow_every, reset=reset)


def offline(
    so_far: Progress, *, tau: float = 0.005, slow_every: int = 1, actor_every: int = 1, sampled: bool = False
) -> Tempo:
    """Updates alone, from a fixed set. `sampled`: evaluated actions are drawn from the policy."""
    every = {"actor": actor_every} if actor_every > 1 else {}
    return Tempo(acts=False, sampled=sampled, every=every, tau=tau, slow_every=slow_every)


def model_first(so_far: Progress, *, fitted: int = 1000, tau: float = 0.005) -> Tempo:
    """Updates from a fixed set: `fitted` of the model alone, then of all networks but the model."""
    waits = ("model",) if so_far.updates >= fitted else ("actor", "critic", "temperature", "value")
    return Tempo(acts=False, every=dict.fromkeys(waits, NEVER), tau=tau)


def from_set(
    so_far: Progress, *, warmup: int = 200, tau: float = 0.005, actor_every: int = 1, random: bool = False,
    keeps: bool = False, sampled: bool = False,
) -> Tempo:
    """The run's updates on the set; `warmup` samples, for which no update is owed; then as `steady`.

    In the warm-up the policy that the set has trained acts, or with `random` uniform actions. With `keeps` the set
    stays in use to the end.
    """
    if so_far.before:
        return offline(so_far, tau=tau, sampled=sampled)
    warm = so_far.samples < warmup
    every = {"actor": actor_every, "temperature": actor_every} if actor_every > 1 else {}
    return Tempo(random=random and warm, learns=not warm, every=every, tau=tau, keeps=keeps, sampled=sampled)
