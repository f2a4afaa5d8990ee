"""Check a model, its template, sampler, learner and verifier on this machine.

Each check is one function from a `Case` to a `Finding`. `CHECKS` is their order; those that change weights come last.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from isocost import meter as meters
from isocost.can import Can
from isocost.doctor import marks, policy, sandbox, words
from isocost.doctor.case import Case, examine
from isocost.doctor.finding import Diagnosis, Finding, Subject
from isocost.doctor.service import diagnose_service
from isocost.errors import UserError
from isocost.gather import finished
from isocost.steps.events import SILENT, Observer, Tell, untold
from isocost.steps.settings import setting_with
from isocost.steps.training.pass_rates import OPENING
from isocost.worlds.setting import Opened, open_setting
from isocost.worlds.spec import spec_of

Check = Callable[[Case], Awaitable[Finding]]
CHECKS: tuple[Check, ...] = (
    words.template, words.end_ids, words.ends, words.answers, marks.answer_key, marks.reward_probes,
    policy.determinism, policy.batch_invariance, policy.cached_decode, policy.sampling, policy.draws,
    policy.gradient, sandbox.sandbox, policy.weights,
)


def diagnose(
    model: str | None = None, data: str | None = None, *, observer: Observer = SILENT, **setting: Any
) -> Diagnosis:
    """Check a model with data and a verifier on this machine, in about a minute. Nothing is written.

    `model` is 'tiny', 'tiny-puzzles', 'smollm2' or a Hugging Face folder, by default the one that the data's family
    was made for; `**setting` are other fields of a setting's record. Of a model whose weights stay with a service the
    service is checked, with `data` and `lora` only. The observer receives the `Subject`, then each `Finding` as it is
    made.

    Raises UserError if the model, the data or the verifier cannot be opened, or an option does not exist; and for an
    environment, because the checks are of single answers.
    """
    if model and at_a_service(model):
        return diagnose_service(model, data, lora=setting.get("lora"), observer=observer)
    if setting.get("env"):
        raise UserError("doctor checks a model on single answers: leave out --env, and check an environment with "
                        f"`isocost envs check {setting['env']}`")
    with observer.counting("doctor") as tell:
        tell(OPENING)
        opened = open_setting(setting_with(model=model, data=data, **setting), tried=True)
        try:
            if opened.world.about.model is None:
                raise UserError(f"doctor checks language models, and {opened.setting.model} is none: leave it out")
            return finished(run_checks(opened, observer=observer, tell=tell))
        finally:
            opened.grader.close()


def at_a_service(model: str) -> bool:
    """Whether the weights of the model of this spec stay with a service that trains them."""
    spec = spec_of(model)
    return spec.can(Can.LEARN) and not spec.can(Can.WEIGHTS)


async def run_checks(
    opened: Opened, *, checks: Sequence[Check] = CHECKS, observer: Observer = SILENT, tell: Tell = untold
) -> Diagnosis:
    """Run checks on a world that was just opened.

    Everything is charged to the account `probe`. The world's weights are different afterwards. A check that raises an
    error counts as failed.

    Raises UserError if a check raises one.
    """
    subject = Subject.of(opened)
    observer.on(subject)
    started, findings = time.perf_counter(), []
    with meters.on(meters.PROBE):
        tell("sampling for the checks")
        case = await examine(opened)
        for k, check in enumerate(checks):
            tell(f"checks, now {_name(check)}", k, len(checks))
            findings.append(await _finding(check, case))
            observer.on(findings[-1])
    cost = opened.world.meter.of(meters.PROBE)
    return Diagnosis(subject, tuple(findings), cost, time.perf_counter() - started)


async def _finding(check: Check, case: Case) -> Finding:
    try:
        return await check(case)
    except UserError:
        raise
    except Exception as error:   # an error in the engine, the text or the verifier is a finding
        return Finding(_name(check), "fail", f"the check raised {type(error).__name__}: {error}", policy.REPORT)


def _name(check: Check) -> str:
    return getattr(check, "__name__", "a check").replace("_", " ")
