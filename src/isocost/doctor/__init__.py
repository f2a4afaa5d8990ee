"""Is everything under a run sound, on this machine, with this model, template, sampler and verifier: `isocost doctor`.

Each check is one function from a `Case` to a `Finding`; `CHECKS` is their order, the ones that change weights last.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from isocost import meter as meters
from isocost.doctor import marks, policy, speed, words
from isocost.doctor.case import Case, examine
from isocost.doctor.finding import Finding
from isocost.errors import UserError
from isocost.types import Cost, plain
from isocost.worlds.setting import Opened

Check = Callable[[Case], Awaitable[Finding]]
CHECKS: tuple[Check, ...] = (
    words.template, words.end_ids, words.ends, words.answers, marks.answer_key, marks.reward_probes,
    policy.determinism, policy.batch_invariance, policy.cached_decode, policy.sampling, policy.draws,
    policy.gradient, speed.sampling_speed, policy.weights, speed.learning_speed,
)
FAILED = 3      # the command's exit code when something fails


@dataclass(frozen=True)
class Diagnosis:
    """All that was found, and what finding it cost."""

    findings: tuple[Finding, ...]
    cost: Cost
    seconds: float

    @property
    def code(self) -> int:
        return FAILED if any(f.verdict == "fail" for f in self.findings) else 0

    def data(self) -> dict[str, Any]:
        return {
            "schema": 1, "findings": [plain(f) for f in self.findings], "cost": self.cost.data(),
            "seconds": round(self.seconds, 2), "sound": self.code == 0,
        }


async def diagnose(
    opened: Opened, *, checks: Sequence[Check] = CHECKS, told: Callable[[Finding], None] = lambda found: None
) -> Diagnosis:
    """Run every check on a world that was just opened; `told` hears each finding as it is made.

    Everything is charged to the account `probe`. The world's weights have changed afterwards. A check that stops on
    an error of its own is a failure of what it looked at; UserErrors are the user's, and raised.
    """
    began, findings = time.perf_counter(), []
    with meters.on(meters.PROBE):
        case = await examine(opened)
        for check in checks:
            findings.append(await _checked(check, case))
            told(findings[-1])
    return Diagnosis(tuple(findings), opened.world.meter.of(meters.PROBE), time.perf_counter() - began)


async def _checked(check: Check, case: Case) -> Finding:
    try:
        return await check(case)
    except UserError:
        raise
    except Exception as error:   # whatever a broken engine, text or verifier raises is what there is to find
        name = check.__name__.replace("_", " ")
        return Finding(name, "fail", f"it stopped with {type(error).__name__}: {error}", policy.REPORT)
