"""Curves whose single rewards are noisy by an unknown amount, as in another trainer's log: means over bins.

A log of training rewards has one noisy value per step, of other prompts each time, and nothing says how noisy. A law
uses few points of a run (`posterior.thinned`), so single ones would lose nearly all of what the log says. Here a run
becomes its means over bins that are even in ln C. The noise of one value follows from second differences:
y(k) - (y(k-1) + y(k+1)) / 2 has 3/2 of the variance of one value, and nothing of a smooth curve (Gasser, Sroka and
Jennen-Steinmetz, 1986). A run with known evaluation noise is left as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy import ndarray

from isocost.laws.curves import Curve, point_noise
from isocost.stats.intervals import PRIOR_SD, Noise
from isocost.stats.posterior import USUAL

EARLY = 0.05        # share of a run's updates whose mean is used as the base of a training reward
MANY = 27           # evaluations from which on a single noisy run is forecast: three in a bin
LOGGED_SD, LOGGED_DOF = 0.05, 4.0   # run-to-run sd assumed for single runs of training reward, at reward 1/2


def logged_noise(C: ndarray) -> Noise:
    """The run-to-run noise that is assumed for a single run of training reward."""
    return Noise(C, np.full((2, 1, len(C)), LOGGED_SD / 0.25 * np.sqrt(LOGGED_DOF)), LOGGED_DOF)


def binned(curve: Curve) -> Curve:
    """A noisy curve as its base and at most `USUAL` means over bins even in ln C, with their standard errors.

    The base of a training reward is the mean of the rewards up to `EARLY` of the run; that of evaluations is their
    first. A curve that is not noisy is returned as it is, and so is one of at most `USUAL` evaluations: too few for an
    estimate of their noise.
    """
    if not curve.noisy or (curve.C > 0).sum() <= USUAL:
        return curve
    start, after = curve.C == 0, np.flatnonzero(curve.C > 0)
    at = np.log(curve.C[after])
    edges = np.linspace(at[0], at[-1], USUAL + 1)[1:-1]
    groups = [after[found] for found in (np.searchsorted(edges, at) == i for i in range(USUAL)) if found.any()]
    if start.any():
        early = EARLY * curve.C[-1] if curve.training else 0.0
        groups.insert(0, np.flatnonzero(early >= curve.C))
    noise = [point_noise(values) for values in (curve.select, curve.audit)]
    C = np.array([np.exp(np.log(curve.C[group]).mean()) for group in groups[int(start.any()):]])

    def means(values: ndarray) -> ndarray:
        return np.array([values[group].mean() for group in groups])

    return replace(
        curve, C=np.concatenate([[0.0], C]) if start.any() else C, select=means(curve.select),
        audit=means(curve.audit), seconds=means(curve.seconds), epochs=means(curve.epochs), train=None,
        error=np.array([[sd / math.sqrt(len(group)) for group in groups] for sd in noise]))


def evened(residuals: ndarray, error: ndarray, dof: float) -> ndarray:
    """Residuals (2, I, K) of noisy runs with one run-to-run sd at every C, at least `PRIOR_SD`; no points' noise."""
    variance = (residuals**2).sum(1) / dof                                                      # (2, K)
    noise = (error**2).mean(1)
    sd = np.sqrt(np.maximum((variance - noise).mean(1), (PRIOR_SD / 0.25) ** 2))[:, None]
    scale = np.where(variance > 0, sd / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    alike = sd * math.sqrt(dof / residuals.shape[1])        # where all seeds coincide
    return np.asarray(np.where((variance > 0)[:, None], residuals * scale[:, None], alike[:, None]))
