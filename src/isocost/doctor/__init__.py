"""Check that everything under a run is sound here: model, template, sampler, learner and verifier.

    from isocost.doctor import diagnose, diagnose_reward

    found = diagnose("tiny", "sums:level=1", temperature=0.7)
    found.sound, found.findings, found.to_dict()

    diagnose_reward("my_reward.py:reward", "mine.jsonl").false_negatives

The functions are imported when first used, so that a reward is audited (`isocost.doctor.reward`) without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocost.doctor.model import CHECKS, at_a_service, diagnose, run_checks
    from isocost.doctor.reward.audit import diagnose_reward

_HOMES = {**dict.fromkeys(("CHECKS", "at_a_service", "diagnose", "run_checks"), "model"),
          "diagnose_reward": "reward.audit"}
__all__ = ["CHECKS", "at_a_service", "diagnose", "diagnose_reward", "run_checks"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"isocost.doctor has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"isocost.doctor.{_HOMES[name]}"), name)
