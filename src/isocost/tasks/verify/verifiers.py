"""Verifiers: plain functions, by name, from an answer and its problem to a score.

A verifier gets the text of the final answer and returns a number, or None for no score. It may raise, hang or exit:
`grade.Grader` turns each of these into "no score", never into a zero.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from isocost.errors import UserError
from isocost.gather import finished
from isocost.tasks.builtin import families
from isocost.tasks.text import squeeze
from isocost.tasks.verify import answers, equal, forms, numbers
from isocost.types import Problem

TRIED = 4                          # rows that a user's reward is tried on before anything is sampled
SCORED = "scored:"                 # begins the name of a verifier that is a scorer
IDS = "completion_ids"             # in a problem's meta: tokens of an answer that is marked outside a run


class Verifier(Protocol):
    """Marks one answer. `tokens` is what the policy wrote, for rewards that ask for it."""

    def __call__(self, text: str, problem: Problem, tokens: Sequence[int] = ()) -> float | None: ...


@dataclass(frozen=True, slots=True)
class VerifierKind:
    """A verifier's function and its properties."""

    mark: Verifier
    slow: bool = False         # needs its own process and a time limit
    must_agree: bool = True    # the reference answer must be right by it
    library: str = ""          # that it imports
    of_turns: bool = False     # the score is what the environment paid for the turns; there is no answer to check
    scorer: str = ""           # the specification of a scorer, which needs the run's world (`isocost.scorers`)
    rule: int = 1              # grows when its marks change: records have it (`isocost.runs.rules`)

    @property
    def of_text(self) -> bool:
        """Whether a text and its problem are all that it needs."""
        return not (self.of_turns or self.scorer)


def exact(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """1 if the text is the answer, character for character."""
    return 1.0 if text == problem.answer else 0.0


def final(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """1 if what follows the last step of a worked answer is right: the answer, or what its family accepts."""
    family = families.of(problem) or families.SUMS
    return 1.0 if family.accepts(problem, text.rpartition(family.step)[2]) else 0.0


@dataclass(frozen=True, slots=True)
class Coarse:
    """A proxy that knows only `of` an answer of a built-in family: 1 if that is as in the right answer.

    A policy that is trained on it can earn 1 and be wrong, so that a truth can be reported beside it.
    """

    of: Callable[[str], object]

    def __call__(self, text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
        """Raises ValueError if nothing is known of the right answer."""
        family = families.of(problem) or families.SUMS
        if (gold := self.of(str(problem.answer))) is None:
            raise ValueError(f"the answer {str(problem.answer)[:40]!r} is not an integer, which coarse:parity needs")
        return 1.0 if self.of(text.rpartition(family.step)[2]) == gold else 0.0


def _parity(answer: str) -> int | None:
    return int(answer[-1]) % 2 if re.fullmatch(r"-?[0-9]+", answer) else None


COARSE: Mapping[str, Callable[[str], object]] = {
    "parity": _parity,                                                  # even or odd
    "last": lambda answer: answer[-1:],                                 # the last character
    "choice": lambda answer: zlib.crc32(answer.encode()) % 4,           # one of four, as in a multiple choice
}


def words(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """1 if the text is the answer up to case, runs of space, and punctuation or quotes at either end."""
    return 1.0 if _plain(text) == _plain(str(problem.answer)) else 0.0


def numeric(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """1 if the number that the text ends on is the answer's, as `numbers.said` and `numbers.only` read them.

    Whole numbers must be equal; others agree to 1e-6 of the answer. Units are converted, 50 % is 0.5. Raises
    ValueError if the answer is not one number.
    """
    said = numbers.said(text)
    gold = _one_number(str(problem.answer))
    return 1.0 if said is not None and numbers.equal(said, gold) else 0.0


def math(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    r"""1 if the answer that the text gives is the problem's: an expression, list, interval, equation, or words.

    `answers.final` finds it, `forms.read` reads both with math-verify (`pip install math-verify`),
    `equal.same` compares. Several \boxed that differ earn 0. Raises ValueError if the answer cannot be read.
    """
    forms.library("math_verify")
    gold = _math_answer(str(problem.answer))
    try:
        given = forms.given(text)
        return 1.0 if given and all(equal.right(x, gold) for x in given) else 0.0
    except Exception:      # what a completion makes the reader raise is no answer, and no way out of a score
        return 0.0


def environment(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """The sum of the rewards of a rollout's turns, which `grade.Grader` reads. Raises ValueError for a text alone."""
    raise ValueError("the verifier `environment` reads the rewards of turns, and a text has none")


def scored(text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
    """What a scorer says, which `grade.Grader` asks. Raises ValueError for a text alone."""
    raise ValueError("a verifier `scored:SCORER` needs the world of a run, and a text alone has none")


@dataclass(frozen=True, slots=True)
class ReasoningGym:
    """The scorer of the reasoning-gym task a problem came from.

    Scorers of that library give partial credit to answers that only contain the right one. Unless `partial`, at
    least 0.99 counts as 1 and everything else as 0.
    """

    partial: bool = False

    def __call__(self, text: str, problem: Problem, tokens: Sequence[int] = ()) -> float:
        """Raises ValueError for a problem that is not of that library."""
        task = problem.meta.get("task")
        if not task:
            raise ValueError(f"problem {problem.id} does not come from reasoning-gym")
        value = float(_scorer(str(task))(answer=text, entry=dict(problem.meta["entry"])))
        return value if self.partial else float(value >= 0.99)


@dataclass(frozen=True, slots=True)
class PythonReward:
    """A user's own reward in TRL's shape: `f(prompts, completions, completion_ids=None, **columns) -> list`.

    Called with one rollout at a time, so that one failure costs one score; only the columns it names, unless it
    takes `**`. Text problems are passed as strings, those given as messages as lists of messages. May be async.
    """

    path: str
    function: str

    def digest(self) -> str:
        """SHA-256 of the file as it is now, in hexadecimal."""
        return hashlib.sha256(Path(self.path).read_bytes()).hexdigest()

    def load(self, digest: str = "") -> None:
        """Import the file. Raises UserError if it does not import, has no such function, or has another digest."""
        if digest and hashlib.sha256(_source(self.path)).hexdigest() != digest:
            raise UserError(f"{self.path} was changed while it was in use: run the command again")
        _function(self.path, self.function)

    def __call__(self, text: str, problem: Problem, tokens: Sequence[int] = ()) -> float | None:
        """Raises whatever the user's function raises, ValueError unless it returns one value, TypeError if that is not
        a number, or if it has arguments that no column has."""
        return self.together([(text, problem, tokens)])[0]

    def together(self, cases: Sequence[tuple[str, Problem, Sequence[int]]]) -> list[float | None]:
        """The rewards of (completion, problem, tokens) cases in one call. Raises as a call does."""
        f = _function(self.path, self.function)
        out = f(**_columns(f, self.function, cases))
        if inspect.isawaitable(out):
            out = finished(_await(out))
        listed = isinstance(out, Iterable) and not isinstance(out, str | bytes | Mapping)
        values = list(islice(out, len(cases) + 1)) if listed else []
        if len(values) != len(cases):
            wanted = "1 reward" if len(cases) == 1 else f"{len(cases)} rewards"
            raise ValueError(f"{self.function} must return {wanted}, but returned {_shown(out)}: return a list of "
                             f"{'one' if len(cases) == 1 else len(cases)}")
        return [None if v is None else _as_number(v, self.function) for v in values]


def _as_number(value: Any, function: str) -> float:
    """A number as float: also a bool, a numpy scalar, an array or tensor of one number. Raises TypeError for text."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{function} returned {_shown(value)} where a number was expected, such as 1.0")
    return float(value)


def _shown(value: Any) -> str:
    """A value for a message: the beginning of its text, and its type."""
    text = repr(value) if isinstance(value, str | bytes | int | float | Sequence) else str(value)
    return f"{text[:60]} ({type(value).__name__})"


BUILT_IN: dict[str, VerifierKind] = {
    "exact": VerifierKind(exact),
    "final": VerifierKind(final),
    **{f"coarse:{of}": VerifierKind(Coarse(key)) for of, key in COARSE.items()},
    "words": VerifierKind(words),
    "numeric": VerifierKind(numeric, rule=2),      # 2: a number that is denied, or one of two that differ, is no answer
    "math": VerifierKind(math, slow=True, library="math_verify", rule=2),
    "environment": VerifierKind(environment, must_agree=False, of_turns=True),
    "reasoning-gym": VerifierKind(ReasoningGym(), slow=True, library="reasoning_gym"),
    "reasoning-gym-partial": VerifierKind(ReasoningGym(partial=True), slow=True, library="reasoning_gym"),
}


def find(name: str) -> VerifierKind:
    """Built in, `file.py:function` (whose code runs in a worker alone) or `scored:SCORER`. Raises UserError without."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name.startswith(SCORED):
        if name == SCORED:
            raise UserError(f"verifier {name!r} names no scorer: write one after it, as in scored:steps")
        return VerifierKind(scored, must_agree=False, scorer=name.removeprefix(SCORED))
    if name.startswith("python:") or ".py:" in name or name.endswith(".py"):
        path, _, function = name.removeprefix("python:").rpartition(":")
        if not path or not function:
            raise UserError(f"verifier {name!r} names no function: write file.py:function")
        if not Path(path).is_file():
            raise UserError(f"there is no file {path} with the reward {function!r}")
        return VerifierKind(PythonReward(path, function), slow=True, must_agree=False)
    raise UserError(f"there is no verifier {name!r}; there are {', '.join(BUILT_IN)}, file.py:function and "
                    f"{SCORED}SCORER")


@lru_cache(4096)
def _one_number(answer: str) -> numbers.Quantity:
    """The number that a problem's answer is. Raises ValueError if it is none or more."""
    found = numbers.said(answer) if answers.BOX.search(answer) else numbers.only(answer)
    if found is None:
        raise ValueError(f"the answer {answer[:60]!r} is not one number; --verifier math reads expressions, pairs, "
                         "lists and intervals, and --verifier words compares text")
    return found


@lru_cache(4096)
def _math_answer(answer: str) -> tuple[forms.Form, ...]:
    """The forms that a problem's answer may have. Raises ValueError if it has none."""
    held = answers.final(answer) if answers.BOX.search(answer) else [answer]
    try:
        if not held:
            raise forms.Unreadable("its last box has no end")
        *others, form = map(forms.read, held)
        if not all(equal.right(other, form) for other in others):
            raise forms.Unreadable(f"its {len(held)} boxes differ")
        return form
    except forms.Unreadable as e:
        raise ValueError(f"the answer {answer[:60]!r} cannot be read: {e}; write it in LaTeX, or compare text with "
                         "--verifier words") from e


def _plain(text: str) -> str:
    return squeeze(text).strip(" .,;:!?\"'`*").casefold()


@cache
def _scorer(task: str) -> Callable[..., float]:
    gym = forms.library("reasoning_gym")
    return gym.get_score_answer_fn(task)


@cache
def _function(path: str, function: str) -> Callable[..., Any]:
    """A function of a user's file. Raises UserError if it has no such function or does not import."""
    found = getattr(_module(path), function, None)
    if not callable(found):
        raise UserError(f"{path} has no function {function!r}")
    return found


@cache
def _module(path: str) -> ModuleType:
    """A user's file, run once. Its text is compiled: stored byte code may be of an earlier text."""
    module = ModuleType(f"isocost_user_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module      # where dataclasses and pickle expect what the file defines
    try:
        exec(compile(_source(path), path, "exec"), module.__dict__)
    except BaseException as e:
        raise UserError(f"{path} does not import: {type(e).__name__}: {e}") from e
    return module


@cache
def _source(path: str) -> bytes:
    return Path(path).read_bytes()


# Arguments of rewards that other trainers call, and how such a function is called from one in TRL's signature.
FOREIGN = {
    "verl": ({"solution_str", "ground_truth"}, "[{0}(None, c, a) for c, a in zip(completions, answer)]"),
    "verl (whole batches)": ({"solution_strs", "ground_truths"}, "{0}([None] * len(answer), completions, answer, [])"),
    "OpenRLHF": ({"queries", "labels"}, "{0}(completions, prompts, answer)"),
    "verifiers": ({"completion", "answer"}, "[{0}(completion=c, answer=a) for c, a in zip(completions, answer)]"),
}


def _columns(
    f: Callable[..., Any], name: str, cases: Sequence[tuple[str, Problem, Sequence[int]]]
) -> dict[str, list[Any]]:
    """The arguments of a user's reward: every column as a list, one value a case. Raises TypeError for an argument
    without a default that is none."""
    rows = []
    for text, problem, tokens in cases:
        chat = bool(problem.meta.get("chat"))
        turns = [{"role": m.role, "content": m.content} for m in problem.prompt]
        rows.append({
            "answer": problem.answer, **dict(problem.meta.get("columns", {})),
            "prompts": turns if chat else problem.text,
            "completions": [{"role": "assistant", "content": text}] if chat else text,
            "completion_ids": list(tokens) or list(problem.meta.get(IDS, ())),
        })
    given = {k: [row.get(k) for row in rows] for k in dict.fromkeys(k for row in rows for k in row)}
    takes = inspect.signature(f).parameters.values()
    named = {p.name for p in takes if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if missing := [p.name for p in takes if p.name in named and p.default is p.empty and p.name not in given]:
        raise TypeError(_unknown(name, named, missing, given))
    if any(p.kind is p.VAR_KEYWORD for p in takes):
        return given
    return {k: v for k, v in given.items() if k in named}


def _unknown(name: str, named: set[str], missing: Sequence[str], given: Mapping[str, Any]) -> str:
    """What to do about arguments of a reward that are no columns."""
    for trainer, (arguments, call) in FOREIGN.items():
        if arguments <= named:
            return (f"{name}({', '.join(sorted(named))}) has the signature that {trainer} calls; add to the file: "
                    f"def reward(prompts, completions, answer, **columns): return {call.format(name)} and name :reward")
    return (f"{name} takes {', '.join(map(repr, missing))}, which the rows do not have; a reward takes "
            f"{', '.join(given)}, or give the argument a default")


async def _await(x: Any) -> Any:
    return await x


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A problem whose own answer is not right by its verifier."""

    id: str
    why: str


def reference(problem: Problem, verifier: str) -> str:
    r"""The text that should be right: the written solution if the verifier reads one, else the answer (boxed for
    `math`)."""
    solved = problem.meta.get("solution")
    if solved is not None and (verifier == "final" or isinstance(find(verifier).mark, PythonReward)):
        return str(solved)
    answer = str(problem.answer)
    return rf"\boxed{{{answer}}}" if verifier == "math" and not answers.boxed(answer) else answer


Together = Callable[[Sequence[tuple[str, Problem]]], "list[float] | str"]
Mark = Callable[[Sequence[tuple[str, Problem]]], "list[float | str]"]


def check_gold(problems: Sequence[Problem], verifier: str, mark: Mark) -> list[Disagreement]:
    """Problems whose reference answer does not earn 1 or more by `mark` (`Grader.mark`), each with the reason."""
    texts = [reference(p, verifier) for p in problems]
    out = []
    for text, p, got in zip(texts, problems, mark(list(zip(texts, problems, strict=True))), strict=True):
        if isinstance(got, str):
            out.append(Disagreement(p.id, f"the verifier {verifier} cannot mark its own answer {text[:40]!r}: {got}"))
        elif got < 1.0:
            out.append(Disagreement(p.id, f"its own answer {text[:40]!r} earns {got:g} from the verifier {verifier}"))
    return out


@dataclass(frozen=True, slots=True)
class RewardTrial:
    """The result of a user's reward on a few rows: its failures, its lowest and highest value."""

    warnings: tuple[str, ...]
    low: float
    high: float


def try_reward(
    rows: Sequence[tuple[str, Problem]], verifier: str, mark: Mark,
    encode: Callable[[str], Sequence[int]] | None = None, together: Together | None = None,
) -> RewardTrial:
    """Try a user's reward on a few rows, each with where it stands, and on completions that a policy may write.

    The completions: the row's own answer, another row's, a sentence and nothing. `encode` gives their tokens; what it
    refuses with a UserError the policy cannot write, and is left out. Without it tokens are bytes. `together` gives the
    rewards of several completions in one call (`Grader.together`). Raises UserError if no row's own answer gets a
    reward, with the first failure and its row; if a completion earns another reward beside others than alone.
    """
    chosen = [rows[i * len(rows) // min(TRIED, len(rows))] for i in range(min(TRIED, len(rows)))]
    own = [(where, reference(p, verifier), p) for where, p in chosen]
    others = [own[(i + 1) % len(own)][1] for i in range(len(own))]
    kinds = {
        "another row's answer": [(w, text, p) for (w, _, p), text in zip(own, others, strict=True) if text != p.answer],
        "a sentence": [(w, "I do not know.", p) for w, _, p in own],
        "an empty completion": [(w, "", p) for w, _, p in own],
    }
    earned = _marked(own, mark, encode)
    if earned and all(isinstance(x, str) for _, x in earned):
        raise UserError(f"the reward {verifier} gives no reward to any of the {len(earned)} rows it was tried on with "
                        f"their own answers; nothing was sampled. First: {_at(*earned[0])}")
    if together is not None:
        _alone_and_together(own[0][2], [text for _, text, _ in own], verifier, mark, together)
    warnings, values = [], [x for _, x in earned if not isinstance(x, str)]
    for kind, tried in kinds.items():
        found = _marked(tried, mark, encode)
        failed = [(case, x) for case, x in found if isinstance(x, str)]
        values += [x for _, x in found if not isinstance(x, str)]
        if failed:
            warnings.append(f"the reward {verifier} fails on {kind}: {_at(*failed[0])}. A rollout without a reward is "
                            "left out of every mean: return 0 where the completion is wrong")
    if len(set(values)) == 1 and len(values) > len(earned):
        warnings.append(f"the reward {verifier} gives {values[0]:g} to all {len(values)} completions it was tried on: "
                        f"rows' own answers, {', '.join(kinds)}. A constant reward trains nothing")
    return RewardTrial(tuple(warnings), min(values, default=0.0), max(values, default=1.0))


def _alone_and_together(
    problem: Problem, answers_: Sequence[str], verifier: str, mark: Mark, together: Together
) -> None:
    """Raise UserError if a completion's reward depends on the others of a call: alone it would be a constant."""
    own, other = answers_[0], answers_[-1]
    texts = (own, f"The answer is {own}.", other, f"{other} {own}", "I do not know.", own, "")
    pairs = [(text, replace(problem, meta={**problem.meta, IDS: list(text.encode())})) for text in texts]
    alone = mark(pairs)
    kept = [(pair, x) for pair, x in zip(pairs, alone, strict=True) if not isinstance(x, str)]
    kept += kept            # more of them than most rewards look at, and each twice
    beside = together([pair for pair, _ in kept]) if kept else ""
    if isinstance(beside, str):        # it cannot be called so: then it does not compare
        return
    differ = [(text, x, y) for ((text, _), x), y in zip(kept, beside, strict=True) if x != y]
    if differ and mark([pair for pair, _ in kept]) == [x for _, x in kept]:
        text, x, y = differ[0]
        raise UserError(f"the reward {verifier} compares the completions of a call: {text[:40]!r} earns {x:g} alone "
                        f"and {y:g} beside {len(kept) - 1} others. isocost calls it with one at a time, because a "
                        "held-out reward must not depend on its siblings. Give each completion a reward of its own, "
                        "and compare siblings in a method's `reward` seam (docs/write_a_method.md)")


Case = tuple[str, str, Problem]     # where a row stands, a completion, the row


def _marked(
    cases: Sequence[Case], mark: Mark, encode: Callable[[str], Sequence[int]] | None
) -> list[tuple[Case, float | str]]:
    """Each case with what it earned, or in words why it has no reward; without those that the policy cannot write."""
    pairs, kept = [], []
    for where, text, problem in cases:
        try:
            ids = list(encode(text) if encode else text.encode())
        except UserError:
            continue
        kept.append((where, text, problem))
        pairs.append((text, replace(problem, meta={**problem.meta, IDS: ids})))
    return list(zip(kept, mark(pairs) if pairs else [], strict=True))


def _at(case: Case, why: float | str) -> str:
    where, text, problem = case
    return f"{where} (id {problem.id!r}), completion {text[:60]!r}: {squeeze(str(why))[:300]}"


@dataclass(frozen=True, slots=True)
class Probes:
    """What a verifier gives for cheating, and whether its marks are stable."""

    earned: Mapping[str, float]          # probe -> mean over problems; no score counts as none
    failed: Mapping[str, int]            # probe -> how often there was no score
    flips: float                         # share of repeated markings that changed
    repeats: int
    warnings: tuple[str, ...] = field(default=())


def probe(problems: Sequence[Problem], verifier: str, mark: Mark, bar: float = 0.05) -> Probes:
    """Mark answers that should earn nothing, and everything twice.

    The probes: an empty answer, one constant for all (the commonest answer), the prompt repeated, many boxes (every
    answer of the set), the right digits in another script, a rounded fraction. A probe that earns more than `bar` on
    average is named in `warnings`, except that a constant may earn its share of the answers.
    """
    cheats = _cheats(problems)
    earned, failed, changed, total = {}, {}, 0, 0
    honest = [(reference(p, verifier), p) for p in problems]
    for kind, pairs in {**cheats, "right": honest}.items():
        first, second = mark(pairs), mark(pairs)
        changed += sum(a != b for a, b in zip(first, second, strict=True))
        total += len(pairs)
        scores = [x for x in first if not isinstance(x, str)]
        failed[kind] = len(first) - len(scores)
        earned[kind] = sum(scores) / len(first) if first else 0.0
    warnings = [
        f"{k!r} earns {v:.2f} on average" for k, v in earned.items() if v > _allowed(k, problems, bar) and k != "right"
    ]
    if changed:
        warnings.append(f"the same answer marked twice differs in {changed} of {total} cases")
    return Probes(earned, failed, changed / max(total, 1), total, tuple(warnings))


def _cheats(problems: Sequence[Problem]) -> dict[str, list[tuple[str, Problem]]]:
    golds = [str(p.answer) for p in problems]
    common = max(sorted(set(golds)), key=golds.count, default="")
    boxes = " ".join(rf"\boxed{{{a}}}" for a in list(dict.fromkeys(golds))[:50])
    script = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
    fractions = [(p, found.value if (found := numbers.only(a)) else None) for p, a in zip(problems, golds, strict=True)]
    return {
        "empty": [("", p) for p in problems],
        "constant": [(common, p) for p in problems],
        "echo": [(p.text, p) for p in problems],
        "boxes": [(boxes, p) for p in problems] if len(set(golds)) > 1 else [],
        "digits": [(a.translate(script), p) for a, p in zip(golds, problems, strict=True)
                   if a.translate(script) != a],
        "rounded": [(f"{float(x):.3f}", p) for p, x in fractions if x is not None and 1000 % x.denominator],
    }


def _allowed(kind: str, problems: Sequence[Problem], bar: float) -> float:
    if kind != "constant":
        return bar
    golds = [str(p.answer) for p in problems]
    return bar + max((golds.count(a) for a in set(golds)), default=0) / max(len(golds), 1)


def row(problem: Problem) -> str:
    """A problem as one line of JSON, for a verifier in another process. Raises TypeError if it cannot be written."""
    prompt = [[m.role, m.content] for m in problem.prompt]
    return json.dumps([problem.id, prompt, problem.answer, dict(problem.meta)])
