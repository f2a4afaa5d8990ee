"""Checks of the reward: right answers earn it, cheap answers do not, and equal answers earn the same."""

from __future__ import annotations

from collections.abc import Sequence

from isocost.doctor.case import Case
from isocost.doctor.finding import Finding
from isocost.tasks.verify import verifiers
from isocost.types import Problem

PROBLEMS = 32
HARMLESS = ("digits", "rounded")     # spellings that a verifier may accept on purpose
CHEATS = {
    "empty": "an empty answer", "constant": "one constant answer to everything", "echo": "the prompt read back",
    "boxes": "every answer of the set in boxes", "digits": "the right digits in another script",
    "rounded": "a rounded fraction",
}


async def answer_key(case: Case) -> Finding:
    """The verifier accepts every problem's reference answer."""
    name, which = "answer key", case.opened.problems.verifier
    if not verifiers.find(which).of_text:
        return Finding(name, "cannot tell", f"{which} marks rollouts of a run, no texts alone")
    problems = case.opened.sides.train[:PROBLEMS]
    wrong = verifiers.check_gold(problems, which, case.opened.grader.mark)
    if not wrong:
        return Finding(name, "ok", f"the reference answers of {len(problems):,} problems earn 1 from {which}")
    said = f"{len(wrong)} of {len(problems)} reference answers do not earn 1; problem {wrong[0].id}: " \
           f"{wrong[0].why}"
    if verifiers.find(which).must_agree:
        return Finding(name, "fail", said, "correct those answers, or choose another --verifier")
    return Finding(name, "warn", said, "check that your reward is meant to give a reference answer less than 1")


async def reward_probes(case: Case) -> Finding:
    """Answers without merit earn nothing, and an answer that is marked twice earns the same."""
    name, which = "reward probes", case.opened.problems.verifier
    if not verifiers.find(which).of_text:
        return Finding(name, "cannot tell", f"{which} marks rollouts of a run, no texts alone")
    problems = case.opened.sides.train[:PROBLEMS]
    sizes = list[int]()

    def counted(pairs: Sequence[tuple[str, Problem]]) -> list[float | str]:
        sizes.append(len(pairs))
        return case.opened.grader.mark(pairs)

    found = verifiers.probe(problems, which, counted)
    paid = {k: v for k, v in found.earned.items() if any(w.startswith(f"{k!r} ") for w in found.warnings)}
    listed = "; ".join(f"{CHEATS[k]} earns {v:.2f}" for k, v in paid.items())
    if any(k not in HARMLESS for k in paid):
        return Finding(name, "fail", listed, f"training would exploit this: change {which} so that such answers earn 0")
    if found.flips:
        return Finding(name, "warn", f"the same answer marked twice differs in {found.flips:.1%} of {found.repeats} "
                       f"cases", f"make {which} deterministic; otherwise its noise is in every reward")
    failed = sum(case.opened.grader.failures.values())
    if failed:
        kind, example = next(iter(case.opened.grader.examples.items()))
        return Finding(name, "warn", f"{failed} of {len(case.rollouts)} sampled answers have no reward ({kind}: "
                       f"{example[:80]})", f"correct {which}: an answer without a reward is paid for, but not trained "
                       "on")
    if paid:
        return Finding(name, "warn", listed, f"decide whether {which} should accept such answers")
    tried = ", ".join(k for k, n in zip(found.earned, sizes[::2], strict=True) if n and k != "right")
    return Finding(name, "ok", f"cheap answers earn nothing ({tried}), and {found.repeats} answers marked twice earn "
                   "the same")
