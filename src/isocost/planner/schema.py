"""The shapes of the files that laws and the planner write, registered by import: see `isocost.runs.schema`."""

from __future__ import annotations

from isocost.disk.shape import UNKNOWN, Count, Each, Keys, Maybe, Size
from isocost.laws.law import Law
from isocost.planner.audit import Audit
from isocost.planner.forecast import Forecast
from isocost.planner.test_time.outcome import StrategyAudit
from isocost.planner.test_time.prescribe import KIND, StrategyForecasts, StrategyPlan
from isocost.planner.test_time.profile import StrategyTable
from isocost.planner.training.learning_rate import RateRule, Shift
from isocost.planner.training.more import More
from isocost.planner.training.n_growth import NGrowth
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import Plan
from isocost.planner.training.turn_limits import LimitChoice
from isocost.runs.schema import NUMBER, register

_UNITS = Keys({
    "machine": Keys({}, {"devices": Size, "side_by_side": Size, "price": NUMBER, "currency": str}, rest=UNKNOWN),
    "rows": Each(Keys({"unit": str, "pilot": NUMBER, "training": NUMBER, "budget": NUMBER, "known": str, "why": str})),
})

register("pilot.json", PilotPlan, {"units": _UNITS})
register("rate.json", RateRule)
register("shift.json", Shift)
register("law.json", Law, {"metric": str, "turn_limit": LimitChoice})
register("plan.json", Plan, {
    "units": _UNITS, "more": Each(More), "sees": Maybe(Keys({"text": str})), "growth": Maybe(NGrowth),
    "next": Each(Keys({"text": str, "option": str})),
    "measure": Keys({}, {"kind": str, "unit": str, "scale": tuple[float, float]}),
    "evaluating": Maybe(Keys({}, {
        "problems": Size, "samples": Size, "rollouts": Count, "share": float, "unit": str, "sd": float,
    })),
})
register("forecast.json", Forecast)
register("audit.json", Audit)
register("profile.json", StrategyTable, kind=KIND)
register("plan.json", StrategyPlan, kind=KIND)
register("forecast.json", StrategyForecasts, kind=KIND)
register("audit.json", StrategyAudit, kind=KIND)

_INTERVAL = Keys(dict.fromkeys(("value", "low", "high", "level", "dof"), float), {"kind": str})
_CONTROL_ARM = Keys(dict.fromkeys(("sigma", "batch", "rate"), float), {"width": float}, rest=UNKNOWN)
_CONTROL_PLAN = Keys({
    "wanted": float, "unit": str, "arm": _CONTROL_ARM, "samples": Count, "seeds": Size, "cost": float,
    "sigma": Maybe(_INTERVAL), "arrival": Maybe(_INTERVAL), "final": Maybe(_INTERVAL), "budget": NUMBER,
    "rivals": dict[str, _CONTROL_ARM], "refused": str, "flags": list[str],      # type: ignore[valid-type]
})
_CONTROL_FILES = {
    "study.json": Keys({"task": str, "source": str}, {"method": str | None, "seed": int, "phases": dict[str, float]}),
    "profile.json": Keys({
        "task": str, "method": str, "width": Size, "random": float, "reference": float, "batch": Size, "rate": float,
        "samples": Size, "by_rate": Each(tuple[float, float, float]), "default": _CONTROL_ARM, "seconds": float,
        "costs": Keys(dict.fromkeys(
            ("sample_seconds", "update_seconds", "example_seconds", "update_flop", "example_flop"), float)),
    }),
    "pilot.json": Keys({
        "unit": str, "seeds": Size, "samples": Size, "cost": float, "why": str, "budget": Maybe(Keys({})),
        "runs": Each(Keys({"purpose": str, "arm": _CONTROL_ARM, "seed": int, "samples": Size})),
    }),
    "law.json": Keys({
        "runs": Count, "dropped": Each(tuple[float, str]),
        "laws": Each(Keys({
            "wanted": float, "missed": float, "sigmas": list[float], "samples": Each(_INTERVAL), "floor": float,
            "exponent": float, "falls": float, "spread": list[float],
            "slopes": Keys({"batch": Maybe(_INTERVAL), "rate": Maybe(_INTERVAL)}),
        })),
    }),
    "plan.json": _CONTROL_PLAN,
    "forecast.json": Keys({
        "plan": _CONTROL_PLAN, "runs": dict[str, list[str]], "spread": float, "falsifier": str,
        "hashes": dict[str, str], "seal": str,
    }),
    "audit.json": Keys({
        "verdict": str, "reason": str, "seal": str, "final_held": bool | None, "missing": list[str],
        "arms": Each(Keys({
            "name": str, "arm": _CONTROL_ARM, "count": Count, "arrived": Count, "samples": NUMBER, "final": float,
            "ratio": Maybe(_INTERVAL),
        })),
    }),
}
for _name, _shape in _CONTROL_FILES.items():
    register(_name, _shape, kind="control")
