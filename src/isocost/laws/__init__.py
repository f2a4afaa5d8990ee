"""From records to laws. Reads records; never imports a trainer."""

from isocost.laws.curves import Curve, curves
from isocost.laws.fit import fit_law
from isocost.laws.law import Band, Fit, FittedArm, Flag, Frontier, Growth, Law, Refusal
from isocost.stats.intervals import Interval

__all__ = ["Band", "Curve", "Fit", "FittedArm", "Flag", "Frontier", "Growth", "Interval", "Law", "Refusal", "curves",
           "fit_law"]
