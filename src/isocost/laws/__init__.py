"""From records to laws, plans, forecasts and audits. Reads records; never imports what trains."""

from isocost.laws.curves import Curve, curves
from isocost.laws.fit import fit_law
from isocost.laws.law import Arm, Band, Fit, Flag, Frontier, Growth, Law, NotIdentified
from isocost.stats.intervals import Interval

__all__ = ["Arm", "Band", "Curve", "Fit", "Flag", "Frontier", "Growth", "Interval", "Law", "NotIdentified", "curves",
           "fit_law"]
