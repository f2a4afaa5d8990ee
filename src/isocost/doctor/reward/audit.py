"""The audit of a reward: both error rates on built cases, family by family, and what they cost.

    from isocost.doctor import diagnose_reward

    found = diagnose_reward("my_reward.py:reward", "mine.jsonl")
    found.sound, found.false_negatives.value, found.false_positives.value, found.to_dict()
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.special import betaincinv

from isocost import meter as meters
from isocost.disk.jsonfile import finite
from isocost.doctor.finding import Finding
from isocost.doctor.reward import formats as written
from isocost.doctor.reward.cases import Built, CaseFamily, build
from isocost.doctor.reward.cost import ErrorCosts, Errors, costs_of
from isocost.doctor.reward.formats import FORMATS, Format
from isocost.doctor.reward.kinds import CODE, EXAMPLES, Item, items_of
from isocost.doctor.reward.right import RIGHT
from isocost.doctor.reward.wrong import MISTAKES, WRONG
from isocost.errors import UserError
from isocost.meter import Meter
from isocost.screen.display import Result, Row, Table
from isocost.screen.words import counted, visible
from isocost.steps.events import SILENT, Observer, Tell
from isocost.tasks.load import load_problems
from isocost.tasks.verify import verifiers as verify
from isocost.tasks.verify.grade import Grader
from isocost.types import Problem


@dataclass(frozen=True)
class RewardSubject:
    """The reward and the data that are audited. `problems` are those of a known kind, by kind in `kinds`; `unknown` are
    not audited, and `of` is how many problems the data has. `warnings` are those of the trial of the reward."""

    reward: str
    data: str
    problems: int
    of: int
    kinds: Mapping[str, int]
    unknown: int
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """The reward, the data, the kinds of answers, and the warnings of the trial."""
        kinds = ", ".join(f"{k} {many:,}" for k, many in self.kinds.items())
        few = f" of {self.of:,}" if self.of > self.problems + self.unknown else ""
        return [Row("doctor", f"reward {self.reward} on {self.data}, {counted(self.problems, 'problem')}{few} ({kinds})"
                              ", without a model", "head"),
                *(Row("", text, "flag") for text in self.warnings)]


MOST = 100              # problems that are audited, evenly spaced, unless `limit` says otherwise
TRIED = 8               # problems of a kind on which formats are tried
AGAIN = 100             # cases that are marked twice
TOGETHER = 64           # completions of one call
TIMEOUT = 5.0           # seconds of one call
ACCEPTED = 0.5          # of the reward's scale: less is a refusal
REFUSED = 0.1           # false-negative rate above which the check fails
PAID = 0.05             # share of all wrong answers that are paid above which the check fails; and of the problems on
                        # which a family is paid in one of its spellings: a policy writes the one that is
PAID_KNOWN = 0.5        # share of the cases of a family that only a policy can write which knows the answer
LEVEL = 0.9
SHOWN = 8               # examples of errors that are printed
ODD = {
    "unclosed tags": "<think>it never ends <answer> \\boxed{ ```python\n", "deep nesting": "\\boxed{" * 1000,
    "closing brackets": "}}}}]]]]</answer></think>```", "a null byte": "the answer is \x00 here",
    "control characters": "\x1b[2J\x07\r\x0b", "200,000 digits": "9" * 200_000, "a million spaces": " " * 1_000_000,
}


@dataclass(frozen=True)
class Rate:
    """A share of cases, with its 90 % interval (Jeffreys) over problems: cases of one problem are not independent."""

    value: float
    low: float
    high: float
    cases: int
    problems: int

    @classmethod
    def of(cls, shares: Sequence[float], cases: int) -> Rate:
        """From the share of each problem."""
        k, total = len(shares), sum(shares)
        if not k:
            return cls(0.0, 0.0, 1.0, 0, 0)
        low, high = (float(betaincinv(total + 0.5, k - total + 0.5, q)) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        return cls(total / k, 0.0 if total == 0 else low, 1.0 if total == k else high, cases, k)

    def __str__(self) -> str:
        return f"{self.value:.1%} ({self.low:.1%} to {self.high:.1%})"


@dataclass(frozen=True)
class Example:
    """A case that was marked wrongly, with what it earned."""

    problem: str
    answer: str
    completion: str
    earned: float | None


@dataclass(frozen=True)
class FamilyResult:
    """A family's cases: `rate` of errors, `some`: share of problems with an error in one case or more, `mean` reward,
    and the first example of an error."""

    family: str
    why: str
    right: bool
    counted: bool
    strategy: bool
    knows: bool
    rate: Rate
    some: Rate
    mean: float
    example: Example | None


@dataclass(frozen=True)
class RewardDiagnosis(Result):
    """What an audit found: findings, both error rates, a result per family and what the errors cost."""

    subject: RewardSubject
    findings: tuple[Finding, ...]
    false_negatives: Rate
    false_positives: Rate
    families: tuple[FamilyResult, ...]
    formats: Mapping[str, Mapping[str, float]]
    costs: ErrorCosts
    calls: int
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether no check failed."""
        return all(f.verdict != "fail" for f in self.findings)

    def rows(self) -> list[Row | Table]:
        """The families that went wrong, examples, and costs."""
        bad = [r for r in self.families if r.rate.value > 0]
        out: list[Row | Table] = [Row(
            "rates", f"false negatives {self.false_negatives} of {self.false_negatives.cases:,} right answers, false "
            f"positives {self.false_positives} of {self.false_positives.cases:,} wrong ones; 90 % intervals over "
            f"{counted(self.subject.problems, 'problem')}")]
        if bad:
            out.append(Table(
                ("family", "should", "cases", "errors", "90 % interval", "in the rates"),
                [(r.family, "earn" if r.right else "earn nothing", f"{r.rate.cases:,}", f"{r.rate.value:.0%}",
                  f"{r.rate.low:.0%} to {r.rate.high:.0%}", "yes" if r.counted else "no: as the task wants")
                 for r in bad], left=(0, 1, 5)))
        worst = sorted((r for r in bad if r.example and r.counted), key=lambda r: (r.right, -r.rate.value))
        for r in worst[:SHOWN]:
            assert r.example is not None
            earned = "no score" if r.example.earned is None else f"{r.example.earned:g}"
            out.append(Row(f"{r.family} ({'right' if r.right else 'wrong'}, earned {earned})",
                           f"{cut(r.example.completion)} for the answer {cut(r.example.answer, 30)}", "command"))
        out += self.costs.rows()
        return [*out, Row("", f"{self.calls:,} calls of the reward in {self.seconds:.1f} s")]

    def to_dict(self) -> dict[str, Any]:
        data = {
            "schema": 1, **asdict(self.subject), "sound": self.sound, "findings": [asdict(f) for f in self.findings],
            "false_negatives": asdict(self.false_negatives), "false_positives": asdict(self.false_positives),
            "families": [asdict(r) for r in self.families], "formats": {k: dict(v) for k, v in self.formats.items()},
            "cost": self.costs.data(), "calls": self.calls, "seconds": round(self.seconds, 2),
        }
        return dict(finite(data))


def cut(text: str, most: int = 78) -> str:
    """A completion on one line: its start and its end, control characters visible."""
    shown = visible(text, lines=False)
    half = (most - 5) // 2
    return repr(shown if len(shown) <= most else f"{shown[:half]} ... {shown[-half:]}").replace("\\\\", "\\")


def diagnose_reward(
    reward: str, data: str | None = None, *, scale: tuple[float, float] = (0.0, 1.0), pass_rate: float | None = None,
    study: str | Path | None = None, observer: Observer = SILENT, **rows: Any,
) -> RewardDiagnosis:
    """Audit a reward on built cases: `reward` is `file.py:function` or a built-in verifier. Nothing is written.

    `data` is what `isocost.tasks.load.load_problems` reads, by default examples of all kinds of answers, and **rows
    are its limit, skip_broken and system. `scale` is the least and the largest reward; half of it counts as paid.
    `pass_rate`, or the law of `study`, is what costs are computed at. The observer receives the `RewardSubject`,
    then each `Finding`.

    Raises UserError if the reward or the data cannot be opened; if the reward gives no reward to any of four reference
    answers, compares completions, or pays more or less than its scale; if no answer is of a known kind.
    """
    began, meter = time.perf_counter(), Meter()
    if not verify.find(reward).of_text:
        raise UserError(f"the verifier {reward} marks rollouts of a run, and there is no text to audit: name a model")
    with observer.counting("doctor") as tell, meters.on(meters.PROBE):
        problems, of = _problems(reward, data, **rows)
        items, unknown = items_of(problems)
        if not items:
            name, answer = next(iter(unknown.items()))
            raise UserError(f"no answer of {len(problems):,} is of a kind that can be audited; problem {name}: "
                            f"{answer[:60]!r}. Numbers, LaTeX, lists, letters, words and code with tests can be")
        alone = isinstance(verify.find(reward).mark, verify.PythonReward)      # called with many completions at a time
        with Grader(reward, workers=1 if alone else 0, timeout=TIMEOUT, meter=meter) as grader:
            trial = _tried(reward, problems, grader, scale)
            kinds = {k: sum(x.kind == k for x in items) for k in dict.fromkeys(x.kind for x in items)}
            subject = RewardSubject(reward, data or "examples of isocost", len(items), of, kinds, len(unknown), trial)
            observer.on(subject)
            marks = _Marks(grader, scale, tell)
            tell("formats")
            read = {k: _read([x for x in items if x.kind == k], marks) for k in kinds}
            prompts = "\n".join(m.content for p in problems[:20] for m in p.prompt)
            formats = {k: written.chosen(v, prompts, ACCEPTED) or (FORMATS[0], written.BARE) for k, v in read.items()}
            cases = [case for x in items for case in build(x, formats[x.kind], (*RIGHT, *WRONG))]
            marks.of = marks.calls + len(cases) + min(AGAIN, len(cases)) + len(ODD)
            earned = marks([(c.text, c.problem) for c in cases])
            some = cases[:: max(1, -(-len(cases) // AGAIN))]
            again = marks([(c.text, c.problem) for c in some])
            odd = dict(zip(ODD, marks([(text, items[0].problem) for text in ODD.values()]), strict=True))
        results = tuple(_result(f, cases, earned) for f in (*RIGHT, *WRONG) if any(c.family is f for c in cases))
        first = {(c.text, c.problem.id): x for c, x in zip(cases, earned, strict=True)}
        keys = [first[formats[x.kind][0].written(x.answer), x.problem.id] for x in items]
        negative, positive = (_total(cases, earned, right) for right in (True, False))
        findings = (
            _key(reward, items, keys, read, unknown), _formats(read, formats, prompts),
            _refused(negative, results), _paid(positive, results),
            _unscored(cases, earned, odd, marks.failures),
            _twice([(first[c.text, c.problem.id], x) for c, x in zip(some, again, strict=True)]),
        )
        for finding in findings:
            observer.on(finding)
        mistakes = [(c, x) for c, x in zip(cases, earned, strict=True) if c.family in MISTAKES]
        slips = _total([c for c, _ in mistakes], [x for _, x in mistakes], False)
        paid = {r.family: r.mean for r in results if r.strategy and r.counted and not r.knows and r.mean > PAID}
        costs = costs_of(Errors(negative.value, slips.value), [x.problem for x in items], paid, pass_rate=pass_rate,
                         study=study, verifier=reward)
    return RewardDiagnosis(subject, findings, negative, positive, results, read, costs, marks.calls,
                           time.perf_counter() - began)


def _problems(reward: str, data: str | None, limit: int | None = None, **rows: Any) -> tuple[list[Problem], int]:
    """The problems to audit, evenly spaced, and how many there are."""
    if data is None:
        with Grader(reward, timeout=TIMEOUT) as grader:
            wrong = {d.id for d in verify.check_gold(EXAMPLES, reward, grader.mark)} if verify.find(reward).must_agree \
                else set()
        return [p for p in EXAMPLES if p.id not in wrong], len(EXAMPLES)
    check = verify.find(reward).must_agree
    problems = load_problems(data, reward, limit, check=check, **rows).problems
    most = len(problems) if limit else min(len(problems), MOST)
    return [problems[i * len(problems) // most] for i in range(most)], len(problems)


def _tried(
    reward: str, problems: Sequence[Problem], grader: Grader, scale: tuple[float, float]
) -> tuple[str, ...]:
    """Warnings of the trial on four rows. Raises UserError for a reward that cannot be audited."""
    if verify.find(reward).must_agree:
        return ()
    rows = [(f"problem {i + 1}", p) for i, p in enumerate(problems)]
    return verify.try_reward(rows, reward, grader.mark, together=grader.together).warnings


class _Marks:
    """Marks (completion, problem) pairs from 0 to 1, or None without a score; `calls` counts them, of about `of`."""

    def __init__(self, grader: Grader, scale: tuple[float, float], tell: Tell):
        self.grader, self.scale, self.tell = grader, scale, tell
        self.calls = self.of = 0
        self.several = isinstance(verify.find(grader.verifier).mark, verify.PythonReward)
        self.failures: dict[str, str] = {}

    def __call__(self, pairs: Sequence[tuple[str, Problem]]) -> list[float | None]:
        """Raises UserError for a reward outside the scale."""
        low, high = self.scale
        out: list[float | None] = []
        for (text, problem), value in zip(pairs, self._marked(pairs), strict=True):
            if isinstance(value, str):
                self.failures.setdefault(text, value)
                out.append(None)
            elif not low <= value <= high:
                least, most = min(low, value), max(high, value)
                raise UserError(
                    f"{self.grader.verifier} pays {value:g} for {cut(text, 40)} (problem {problem.id}), outside "
                    f"{low:g} to {high:g}: studies need rewards from 0 to 1. To audit it as it is, give its least and "
                    f"largest reward: --scale {least:g},{most:g}")
            else:
                out.append((value - low) / (high - low))
        return out


    def _marked(self, pairs: Sequence[tuple[str, Problem]]) -> list[float | str]:
        """By calls of `TOGETHER` completions where the reward takes several; one by one where such a call fails, and
        from then on where it takes too long."""
        out: list[float | str] = []
        for i in range(0, len(pairs), TOGETHER):
            some = pairs[i : i + TOGETHER]
            found = self.grader.together(some) if self.several else ""
            self.several &= not (isinstance(found, str) and found.startswith("timeout"))
            out += found if not isinstance(found, str) and all(map(math.isfinite, found)) else self.grader.mark(some)
            self.calls += len(some)
            self.tell("cases", self.calls, self.of)
        return out


def _read(items: Sequence[Item], marks: _Marks) -> dict[str, float]:
    """The share of reference answers that each format is paid for, on a few problems of one kind."""
    few = [items[i * len(items) // min(TRIED, len(items))] for i in range(min(TRIED, len(items)))]
    paid = marks([(f.written(x.answer), x.problem) for f in FORMATS for x in few])
    return {f.name: sum(_accepted(x) for x in paid[i * len(few) : (i + 1) * len(few)]) / len(few)
            for i, f in enumerate(FORMATS)}


def _accepted(earned: float | None) -> bool:
    return earned is not None and earned >= ACCEPTED


def _wrongly(case: Built, earned: float | None) -> bool:
    return _accepted(earned) != case.right


def _shares(cases: Sequence[tuple[Built, float | None]], some: bool = False) -> list[float]:
    """The share of a problem's cases that were marked wrongly, for each problem; with `some` 1 if one was."""
    by: dict[str, list[bool]] = {}
    for case, earned in cases:
        by.setdefault(case.problem.id, []).append(_wrongly(case, earned))
    return [float(any(x)) if some else sum(x) / len(x) for x in by.values()]


def _total(cases: Sequence[Built], earned: Sequence[float | None], right: bool) -> Rate:
    some = [(c, x) for c, x in zip(cases, earned, strict=True) if c.counted and c.right == right]
    return Rate.of(_shares(some), len(some))


def _result(family: CaseFamily, cases: Sequence[Built], earned: Sequence[float | None]) -> FamilyResult:
    mine = [(c, x) for c, x in zip(cases, earned, strict=True) if c.family is family]
    bad = next(((c, x) for c, x in mine if _wrongly(c, x)), None)
    example = Example(bad[0].problem.id, str(bad[0].problem.answer), bad[0].text, bad[1]) if bad else None
    return FamilyResult(family.name, family.why, family.right, any(c.counted for c, _ in mine), family.strategy,
                        family.knows, Rate.of(_shares(mine), len(mine)), Rate.of(_shares(mine, some=True), len(mine)),
                        sum(x or 0.0 for _, x in mine) / len(mine), example)


def _key(
    reward: str, items: Sequence[Item], earned: Sequence[float | None], read: Mapping[str, Mapping[str, float]],
    unknown: Mapping[str, str],
) -> Finding:
    name = "answer key"
    more = (f"; not audited, of no known kind: {counted(len(unknown), 'answer')}, such as "
            f"{cut(next(iter(unknown.values())), 40)}" if unknown else "")
    blind = [k for k, shares in read.items() if max(shares.values()) < ACCEPTED]
    if blind:
        lost = next(x for x in items if x.kind == blind[0])
        return Finding(name, "fail", f"the reference answers of kind {', '.join(blind)} earn nothing in any of "
                       f"{len(FORMATS)} formats, such as {cut(lost.answer, 40)} of problem {lost.problem.id}{more}",
                       f"let {reward} read one of the formats, or correct those answers")
    wrong = [x for x, value in zip(items, earned, strict=True) if not _accepted(value)]
    if wrong:
        return Finding(name, "fail" if verify.find(reward).must_agree else "warn", f"{len(wrong)} of {len(items)} "
                       f"reference answers earn nothing, such as {cut(wrong[0].answer, 40)} of problem "
                       f"{wrong[0].problem.id}{more}", "correct those answers, or let the reward read them")
    return Finding(name, "warn" if unknown else "ok", f"the reference answers of {counted(len(items), 'problem')} are "
                   f"paid{more}", "such answers are in no rate below" if unknown else "")


def _formats(
    read: Mapping[str, Mapping[str, float]], formats: Mapping[str, Sequence[Format]], prompts: str
) -> Finding:
    able = [f for f in FORMATS if all(v[f.name] >= ACCEPTED for v in read.values())]
    names = ", ".join(f.name for f in able)
    said = f"read for all kinds: {names or 'none'}; cases are written as {_uses(formats)}"
    asked = [f for f in FORMATS if f.asked is not None and f.asked.search(prompts)]
    if asked and not any(f in able for f in asked):
        return Finding("formats", "fail", f"the prompts ask for {asked[0].name}, which is not read; {said}",
                       "let the reward read what the prompts ask for, or ask for what it reads")
    if len(able) <= 1 and not asked and set(read) != {CODE}:
        what = able[0].name if able else "no format for all kinds"
        return Finding("formats", "warn", f"only {what} is read, and the prompts do not ask for it; {said}",
                       "ask for it in the prompt: every completion in another format earns nothing")
    return Finding("formats", "ok", said)


def _uses(formats: Mapping[str, Sequence[Format]]) -> str:
    return " and ".join(dict.fromkeys(f.name for some in formats.values() for f in some))


def _refused(rate: Rate, results: Sequence[FamilyResult]) -> Finding:
    name = "right answers refused"
    worst = sorted((r for r in results if r.right and r.counted and r.rate.low > PAID), key=lambda r: -r.rate.value)
    said = f"{rate} of {rate.cases:,} right answers earn nothing"
    listed = "; most refused: " + ", ".join(f"{r.family} {r.rate.value:.0%}" for r in worst[:4]) if worst else ""
    do = "let the reward compare values, not strings, or make the form part of the prompt" if worst else ""
    return Finding(name, "fail" if rate.value > REFUSED else "warn" if worst else "ok", said + listed, do)


def _paid(rate: Rate, results: Sequence[FamilyResult]) -> Finding:
    name = "wrong answers paid"
    paid = sorted((r for r in results if not r.right and r.counted and r.rate.value > 0), key=lambda r: -r.rate.value)
    bad = [r for r in paid if (r.rate.value >= PAID_KNOWN if r.knows else r.some.low > PAID)]
    said = f"{rate} of {rate.cases:,} wrong answers are paid"
    shown = [*bad, *(r for r in paid if r not in bad)][:6]
    listed = ": " + ", ".join(f"{r.family} {r.rate.value:.0%}" for r in shown) if shown else ""
    do = "training would find this: require exactly one asserted answer, and compare its value"
    fails = bad or rate.value > PAID
    return Finding(name, "fail" if fails else "warn" if paid else "ok", said + listed, do if fails else "")


def _unscored(
    cases: Sequence[Built], earned: Sequence[float | None], odd: Mapping[str, float | None], why: Mapping[str, str]
) -> Finding:
    name = "no score"
    lost = [c for c, x in zip(cases, earned, strict=True) if x is None]
    failed = [k for k, x in odd.items() if x is None]
    paid = [k for k, x in odd.items() if _accepted(x)]
    if not lost and not failed and not paid:
        return Finding(name, "ok", f"every case has a score, and {counted(len(odd), 'odd text')} earn nothing")
    said = []
    if lost:
        said.append(f"{len(lost):,} of {len(cases):,} cases have no score, such as {cut(lost[0].text, 50)} "
                    f"({why.get(lost[0].text, '')[:120]})")
    if failed:
        said.append(f"no score for {', '.join(failed)} ({why.get(ODD[failed[0]], '')[:120]})")
    if paid:
        said.append(f"paid: {', '.join(paid)}")
    return Finding(name, "fail" if paid or 2 * len(lost) > len(cases) else "warn", "; ".join(said),
                   "return 0 for a wrong completion: one without a reward is lost here, and a zero in other trainers")


def _twice(pairs: Sequence[tuple[float | None, float | None]]) -> Finding:
    differ = sum(a != b for a, b in pairs)
    if differ:
        return Finding("same twice", "warn", f"{differ} of {len(pairs)} cases marked twice earn another reward",
                       "make the reward deterministic; otherwise its noise is in every number")
    return Finding("same twice", "ok", f"{len(pairs)} cases marked twice earn the same")
