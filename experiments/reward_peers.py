"""Two peers' own cases against `isocost doctor --reward`: what they find in a reward, do we?

    pip install falsepass==0.11.0 reward-doctor==0.2.0
    python experiments/reward_peers.py

Five rewards are reward-doctor's reference verifiers, one is the grader of falsepass' demo. Each peer's findings are
those of its own cases, run by its own code: reward-doctor's strategies and error rates on its 83 cases, falsepass'
failed probes on 25 of our 100 sums. Ours are those on the 100 sums and on the examples of every kind. A finding is a
hit if our audit of the same reward names a family of its kind (`SAME`). The cases of reward-doctor
are also marked by isocost's own verifiers. Writes results/reward_peers.json.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from isocost.doctor import diagnose_reward
from isocost.tasks.verify import verifiers
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem

OUT = Path(__file__).parent / "results" / "reward_peers.json"
REWARDS = ("substring_match", "last_number", "exact_match", "boxed_exact", "robust_match", "falsepass_demo")
FILE = '''
import re
from reward_doctor.reference import REFERENCE_VERIFIERS


def each(name, completions, answer):
    return [REFERENCE_VERIFIERS[name](c, a) for c, a in zip(completions, answer)]


def demo(completion, answer):
    found = re.findall(r"<answer>(.*?)</answer>", completion, re.DOTALL)
    return float(answer in (found[-1].strip() if found else ""))


def falsepass_demo(completions, answer, **columns):
    return [demo(c, a) for c, a in zip(completions, answer)]


'''
ORDER = ("ok", "cannot tell", "warn", "fail")
SAME = {      # a peer's strategy or probe: our families of its kind, or names of our findings
    "shotgun": ("shotgun", "several in one"), "negation": ("negation",), "contradiction": ("contradiction", "hedge"),
    "empty": ("empty",), "echo": ("echo",), "padding": ("padding",), "judge_injection": ("addresses the grader",),
    "judge_bias": ("addresses the grader",), "format_farming": ("empty",),
    "wrong answers": ("digit added", "sign", "off by one", "power of ten", "swapped digits", "inverted fraction"),
    "right answers": ("right answers refused", "formats"),
    "P2 sentence_after": ("sentence after", "sign-off"), "P2 trailing_period_inside_slot": ("full stop",),
    "P2 surrounding_whitespace": ("blank lines",), "P2 padding_inside_slot": ("spaces around",),
    "P2 crlf_line_endings": ("blank lines",), "P3": ("empty",), "P4": ("echo",), "P5": ("shotgun", "several in one"),
    "P6": ("off by one",), "P7": ("off by one",), "P9": ("retracted", "contradiction"),
    "P13 integer_plus_0.9": ("part added",), "P13": ("not a number",), "P14": ("format named",),
    "P15 false_equation": ("false equation",), "P15 false_equation_reversed": ("false equation",),
    "P15 denied": ("denied answer",), "P15 denied_latex": ("denied answer",), "P15 not_answer": ("denied answer",),
    "P15": ("either or",), "A1": ("shotgun", "several in one"), "X1": ("another problem's answer",),
    "P10": ("no score",), "P11": ("same twice",),
}


def sums(asked: str = "") -> str:
    """100 sums as lines of JSON, each after what is asked for."""
    rows = ({"prompt": f"{asked}What is {37 * k + 11} + {(59 * k) % 800 + 13}?",
             "answer": str(37 * k + 24 + (59 * k) % 800)} for k in range(100))
    return "".join(json.dumps(r) + "\n" for r in rows)


def data(name: str) -> str:
    """The sums for a reward: the demo's prompts ask for tags."""
    return "tagged.jsonl" if name == "falsepass_demo" else "sums.jsonl"


def theirs_1(name: str) -> dict:
    """reward-doctor's audit of a reward."""
    from reward_doctor import audit
    from reward_doctor.reference import REFERENCE_VERIFIERS

    space: dict = {}
    exec(FILE, space)
    found = audit(space["demo"] if name == "falsepass_demo" else REFERENCE_VERIFIERS[name])
    findings = list(found.attacks_that_work)
    findings += ["wrong answers"] if any(o.case.category == "distinction" for o in found.false_positives) else []
    findings += ["right answers"] if found.false_negative_rate > 0.1 else []
    return {"false_positives": found.false_positive_rate, "false_negatives": found.false_negative_rate,
            "findings": sorted(findings)}


def theirs_2(name: str, home: Path) -> list[str]:
    """The probes of falsepass that a reward fails."""
    from falsepass import runner

    folder = Path(tempfile.mkdtemp(dir=home))
    (folder / "env.toml").write_text(f'[env]\nid = "local/{name}"\nframework = "reward"\n'
                                     f'task = "{home / "rewards.py"}"\ndataset = "{home / data(name)}"\n'
                                     f'functions = ["{name}"]\n')
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        got = runner.run(folder, n=25, jobs=1)
    failed = {f"{r['probe']} {r['variant']}" for r in got["results"]
              if r["expected"] in ("zero", "full", "stable") and not r["passed"]}
    return sorted(failed)


def ours(name: str, home: Path) -> dict:
    """Our audits of a reward on the sums and on examples of every kind of answer: what went wrong, and the verdicts."""
    out: dict = {"families": {}, "verdicts": {}, "sound": True}
    for sums_or_none in (str(home / data(name)), None):
        found = diagnose_reward(f"{home / 'rewards.py'}:{name}", sums_or_none)
        for r in found.families:
            if r.rate.value > 0:
                out["families"][r.family] = max(out["families"].get(r.family, 0.0), round(r.rate.value, 3))
        for f in found.findings:
            out["verdicts"][f.name] = max(out["verdicts"].get(f.name, "ok"), f.verdict, key=ORDER.index)
        out["sound"] &= found.sound
        out["sums" if sums_or_none else "examples"] = {"false_positives": round(found.false_positives.value, 3),
                                               "false_negatives": round(found.false_negatives.value, 3)}
    return out


def missed(findings: list[str], found: dict) -> list[str]:
    """Findings of a peer that ours lacks."""
    named = {*found["families"], *(k for k, v in found["verdicts"].items() if v != "ok")}
    return [x for x in findings if not named & set(SAME.get(x) or SAME[x.split()[0]])]


def own_verifiers() -> dict:
    """reward-doctor's 83 cases, marked by isocost's verifiers, but for those whose reference one cannot read."""
    from reward_doctor.corpus import load

    out = {}
    for name in ("numeric", "math", "words"):
        cases = load()
        problems = [Problem(c.id, (Message("user", c.prompt or "?"),), c.reference) for c in cases]
        with Grader(name, workers=1) as grader:
            keys = grader.mark([(verifiers.reference(p, name), p) for p in problems])
            marks = grader.mark([(c.completion, p) for c, p in zip(cases, problems, strict=True)])
        kept = [(c, x == 1.0) for c, k, x in zip(cases, keys, marks, strict=True) if k == 1.0]
        out[name] = {"cases": len(kept), "false_positives": [c.id for c, x in kept if x and not c.expect],
                     "false_negatives": [c.id for c, x in kept if not x and c.expect]}
    return out


def main() -> None:
    home = Path(tempfile.mkdtemp())
    text = FILE + "\n\n".join(f"def {x}(completions, answer, **columns):\n    return each({x!r}, completions, answer)\n"
                              for x in REWARDS[:-1])
    (home / "rewards.py").write_text(text)
    (home / "sums.jsonl").write_text(sums())
    (home / "tagged.jsonl").write_text(sums("Reply with the sum only, inside <answer></answer> tags. "))
    out: dict = {"rewards": {}, "own": own_verifiers()}
    for name in REWARDS:
        found = ours(name, home)
        doctor, probes = theirs_1(name), theirs_2(name, home)
        out["rewards"][name] = {"ours": found, "reward-doctor": doctor, "falsepass": probes,
                                "missed": missed(doctor["findings"], found) + missed(probes, found)}
        print(name, "ours", found["verdicts"], "missed", out["rewards"][name]["missed"], file=sys.stderr)
    OUT.write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
