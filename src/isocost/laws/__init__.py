"""From records to laws. Reads records; never imports a trainer."""

from isocost.laws.curves import Curve, curves
from isocost.laws.fit import fit_law
from isocost.laws.law import Band, Fit, FittedArm, Flag, Frontier, Growth, Law, NotIdentified
from isocost.stats.intervals import Interval

__all__ = ["Band", "Curve", "Fit", "FittedArm", "Flag", "Frontier", "Growth", "Interval", "Law", "NotIdentified",
           "curves", "fit_law"]
