"""Is the reward what it is taken for: right answers earn it, cheap ones do not, and it says the same twice."""

from __future__ import annotations

from collections.abc import Sequence

from isocost.doctor.case import Case
from isocost.doctor.finding import Finding
from isocost.tasks import verify
from isocost.types import Problem

PROBLEMS = 32
HARMLESS = ("digits", "rounded")     # spellings that one may well want to accept
CHEATS = {
    "empty": "an empty answer", "constant": "one constant answer to everything", "echo": "the prompt read back",
    "boxes": "every answer of the set in boxes of its own", "digits": "the right digits in another script",
    "rounded": "a rounded fraction",
}


async def answer_key(case: Case) -> Finding:
    """Every problem's own answer is right by the verifier."""
    name, which = "answer key", case.opened.problems.verifier
    problems = case.opened.sides.train[:PROBLEMS]
    wrong = verify.check_gold(problems, which, case.opened.grader.mark)
    if not wrong:
        return Finding(name, "ok", f"the own answers of {len(problems)} problems earn 1 from {which}")
    said = f"{len(wrong)} of {len(problems)} problems do not earn 1 by their own answer; problem {wrong[0].id}: " \
           f"{wrong[0].why}"
    if verify.find(which).must_agree:
        return Finding(name, "fail", said, "correct those answers, or name another --verifier")
    return Finding(name, "warn", said, "see that your reward is meant to pay the reference answer less than 1")


async def reward_probes(case: Case) -> Finding:
    """Answers that nobody should be paid for earn nothing, and the same answer earns the same twice."""
    name, which = "reward probes", case.opened.problems.verifier
    problems = case.opened.sides.train[:PROBLEMS]
    sizes = list[int]()

    def counted(pairs: Sequence[tuple[str, Problem]]) -> list[float | str]:
        sizes.append(len(pairs))
        return case.opened.grader.mark(pairs)

    found = verify.probe(problems, which, counted)
    paid = {k: v for k, v in found.earned.items() if any(w.startswith(f"{k!r} ") for w in found.warnings)}
    listed = "; ".join(f"{CHEATS[k]} earns {v:.2f}" for k, v in paid.items())
    if any(k not in HARMLESS for k in paid):
        return Finding(name, "fail", listed, f"training will find this: make {which} refuse it")
    if found.flips:
        return Finding(name, "warn", f"the same answer marked twice differs in {found.flips:.1%} of {found.repeats} "
                       f"cases", f"take chance out of {which}, or expect its noise in every number")
    failed = sum(case.opened.grader.failures.values())
    if failed:
        kind, example = next(iter(case.opened.grader.examples.items()))
        return Finding(name, "warn", f"{failed} of {len(case.rollouts)} sampled answers got no mark ({kind}: "
                       f"{example[:80]})", f"correct {which}: what has no mark is paid for and never trained on")
    if paid:
        return Finding(name, "warn", listed, f"decide whether {which} should accept it")
    tried = ", ".join(k for k, n in zip(found.earned, sizes[::2], strict=True) if n and k != "right")
    return Finding(name, "ok", f"cheap answers earn nothing ({tried}), and {found.repeats} answers marked twice earn "
                   "the same")
