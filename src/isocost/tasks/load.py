"""Load problems from a name or a file, and report every invalid row with its line and its error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocost import meter as meters
from isocost.disk.shape import LARGEST
from isocost.errors import UserError
from isocost.meter import Meter
from isocost.tasks import mix, text
from isocost.tasks.builtin import families
from isocost.tasks.rows import Row, numbered, rows_of
from isocost.tasks.verify import verifiers
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem

if TYPE_CHECKING:
    from isocost.world import Text

SHOWN = 20                                    # broken rows listed before "and so many more"
MOST_BROKEN = 100_000                         # broken rows after which no more are read
PROMPTS = ("prompt", "messages", "question", "problem")
ANSWERS = ("answer", "ground_truth", "final_answer", "solution")
ROLES = ("system", "user", "assistant", "tool")
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used."""

    where: str     # "line 3" of a JSON-lines file, "row 3" of a Parquet file, "problem 3" of a generator
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(frozen=True, slots=True)
class Report:
    """The findings while loading: every row that was left out, and why."""

    rows: int                                    # rows read, without blank lines
    broken: tuple[BadRow, ...] = ()
    duplicates: tuple[tuple[str, str], ...] = () # (place, place of the first one with the same prompt and answer)
    warnings: tuple[str, ...] = ()
    solutions: float = 0.0                       # share of problems with a reference solution
    rewards: tuple[float, float] = (0.0, 1.0)    # the lowest and highest reward when the user's function was tried

    def lines(self) -> list[str]:
        """The report for a reader, one finding a line."""
        out = [str(b) for b in self.broken[:SHOWN]]
        if len(self.broken) > SHOWN:
            out.append(f"and {len(self.broken) - SHOWN:,} more")
        out += [f"{where}: the same problem as {first}, used once" for where, first in self.duplicates[:SHOWN]]
        if len(self.duplicates) > SHOWN:
            out.append(f"and {len(self.duplicates) - SHOWN:,} more duplicates")
        return out + list(self.warnings)


@dataclass(frozen=True, slots=True)
class ProblemSet:
    """Loaded problems, their verifier, and what was found while loading."""

    problems: tuple[Problem, ...]
    verifier: str
    report: Report = field(default_factory=lambda: Report(0))

    def __len__(self) -> int:
        return len(self.problems)


@dataclass(frozen=True)
class Reads:
    """What a policy can read: its `text`, and `context`, the tokens that a prompt and its answer share."""

    text: Text
    context: int

    def refused(self, problem: Problem) -> str:
        """Why the policy cannot be given a problem, with its id: unreadable or too long; empty if it can."""
        try:
            tokens = len(self.text.prompt(problem.prompt))
        except UserError as e:
            return f"the model cannot read the prompt of {problem.id!r}: {e}{self._taught(problem)}"
        if 0 < tokens < self.context:
            return ""
        return (f"the prompt of {problem.id!r} has {tokens:,} tokens; the model's context is {self.context:,}, so it "
                f"may have 1 to {self.context - 1:,}")

    def _taught(self, problem: Problem) -> str:
        """The model that can read a built-in problem, as the end of an error; empty if this one can."""
        family = families.of(problem)
        try:
            self.text.prompt(problem.prompt[-1:])
        except UserError:
            return f". The built-in model for {family.name} is --model {family.model}" if family else ""
        return ""


@dataclass(frozen=True)
class Loading:
    """How the rows of problems are read and checked, the same for every part of a mix.

    `system` is put before problems that have no system message. With `check`, every problem's own answer must be right
    by its verifier; the cost goes to the account `check` of the `meter`. A user's reward is tried on a few rows first
    (`verify.try_reward`), without `check` too if `tried`. With `check` answers must be right by a `truth`, too. With
    `reads`, called at the first row, a prompt that the policy cannot be given makes its row a broken one. `skip_broken`
    leaves broken rows out and reports them.
    """

    verifier: str | None = None
    truth: str | None = None
    skip_broken: bool = False
    system: str = ""
    check: bool = True
    meter: Meter | None = None
    reads: Callable[[], Reads] | None = None
    tried: bool = False


def load_problems(
    spec: str, verifier: str | None = None, limit: int | None = None, *,
    listed: Callable[[], Iterable[Problem]] | None = None, **how: Any,
) -> ProblemSet:
    """Load what `spec` names: "sums[:...]", "puzzles[:...]", "reasoning-gym:TASK[:key=value,...]", or a .jsonl or
    .parquet file.

    Several of these joined by " + " are one set, all of each, or in shares: "50% sums:base=hard + 50% sums:base=easy"
    is the largest set of these shares, in a fixed order that mixes them; `limit` is then its size.
    A row has `prompt` (text or messages; also `question`, `problem`, `messages`) and `answer` (also `ground_truth`,
    `final_answer`, `solution`, or verl's `reward_model.ground_truth`; "#### 72" at its end is the answer), and may
    have `system`, `solution`, `level` and `id`. Everything else is kept as columns for rewards that name them.
    `limit` takes the first so many good rows; **how are the other fields of `Loading`. With `listed` the problems are
    those that it returns, such as an environment's, and `spec` only names them.

    Raises UserError naming the broken rows (the first 20), unless `skip_broken` leaves them out; and for a spec, file,
    task or verifier that does not exist.
    """
    if limit is not None and limit < 1:
        raise UserError(f"limit is at least 1, not {limit}")
    own = Loading(verifier, **how)
    if listed is None and len(parts := mix.parts(spec)) > 1:
        return _mixed(parts, [_load(part.spec, own, None, None) for part in parts], limit)
    return _load(spec, own, limit, listed)


def _load(
    spec: str, how: Loading, limit: int | None, listed: Callable[[], Iterable[Problem]] | None
) -> ProblemSet:
    verifier, check, meter, reads = how.verifier, how.check, how.meter, how.reads
    rows, read, default = _source(spec) if listed is None else (numbered("problem", iter(listed())), lambda x: x, None)
    stateful = listed is not None and verifier is not None and verifiers.find(verifier).of_turns
    good, broken, duplicates, count, unfit = _gather(rows, read, limit, how.system, reads, stateful)
    name = verifier or default or _guess([p for _, p in good])
    warnings: tuple[str, ...] = ()
    paid = (0.0, 1.0)
    kind = verifiers.find(name)
    if len(unfit) < len(good) and (check or how.tried) and not kind.must_agree and kind.of_text:
        trial = _try([x for x in good if x[0] not in unfit], name, meter, reads)
        warnings, paid = trial.warnings, (trial.low, trial.high)
    refused: list[BadRow] = []
    for marking in (name, how.truth) if check else ():
        if marking is not None and verifiers.find(marking).of_text:
            good, more, said = _agree(good, marking, meter)
            refused, broken, warnings = refused + more, broken + more, warnings + said
    fit = [(where, p) for where, p in good if where not in unfit]
    if fit or how.skip_broken or not good:
        broken += [BadRow(where, unfit[where]) for where, _ in good if where in unfit]
    elif not broken:        # errors of the file itself come first
        raise UserError(f"{spec}: the model can be given none of the {count:,} rows. {good[0][0]}: {unfit[good[0][0]]}")
    good = fit
    problems = tuple(_marked_exact(p, name) for _, p in good)
    solved = sum("solution" in p.meta for p in problems) / max(len(problems), 1)
    report = Report(count, tuple(broken), tuple(duplicates), warnings, solved, paid)
    if broken and not how.skip_broken:
        shown = "\n  ".join(replace(report, duplicates=(), warnings=()).lines())
        by = name if verifier or default else f"{name}, as guessed from the answers; --verifier names another"
        by = f"marked by {by}; " if len(good) + len(refused) else ""
        head = f"{spec}: {len(broken):,} of {count:,} rows cannot be used ({by}--skip-broken leaves them out):"
        raise UserError(f"{head}\n  {shown}")
    if not problems:
        raise UserError("\n  ".join((f"{spec} contains no usable problem", *report.lines())))
    return ProblemSet(problems, name, report)


def _mixed(parts: Sequence[mix.Part], loaded: Sequence[ProblemSet], limit: int | None) -> ProblemSet:
    """Parts as one set under one verifier. Raises UserError if they conflict."""
    named = list(dict.fromkeys(s.verifier for s in loaded))
    if len(named) > 1:
        raise UserError(f"the parts of a mix are marked by {' and '.join(named)}: name one for all with --verifier")
    problems = mix.mixed(parts, [s.problems for s in loaded], limit)
    whole = [s.report for s in loaded]
    solved = sum("solution" in p.meta for p in problems) / max(len(problems), 1)
    kept = {p.id for p in problems}
    told = tuple(f"{sum(p.id in kept for p in s.problems):,} of the {len(s):,} problems of {part.spec}"
                 for part, s in zip(parts, loaded, strict=True))
    paid = min(r.rewards[0] for r in whole), max(r.rewards[1] for r in whole)
    report = Report(sum(r.rows for r in whole), sum((r.broken for r in whole), ()),
                    sum((r.duplicates for r in whole), ()), (*told, *(w for r in whole for w in r.warnings)), solved,
                    paid)
    return ProblemSet(problems, named[0], report)


def _source(spec: str) -> tuple[Iterator[Row], Callable[[Any], Problem], str | None]:
    """Where rows come from, how one is read, and the verifier that goes with them."""
    if family := families.named(spec):
        return numbered("problem", family.listed(spec)), lambda p: p, family.verifier(spec)
    if spec.startswith("reasoning-gym"):
        task, rows = _gym(spec)
        return rows, partial(_gym_problem, task), "reasoning-gym"
    path = Path(spec)
    if not path.is_file():
        raise UserError(f"{spec!r} is not a file, sums[:...], puzzles[:...] or reasoning-gym:TASK{_hugging_face(path)}")
    return rows_of(path, "problems"), _problem, None


def _hugging_face(path: Path) -> str:
    """How to write a data set of Hugging Face, on the Hub or saved to disk, as a file; empty if a path is none."""
    marks = ("dataset_info.json", "dataset_dict.json", "state.json")
    if path.is_dir() and any((path / name).is_file() for name in marks):
        found = f"from datasets import load_from_disk; load_from_disk({str(path)!r})"
    elif not path.exists() and re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", str(path)) and not path.suffix:
        found = f"from datasets import load_dataset; load_dataset({str(path)!r}, split='train')"
    else:
        return ""
    name = f"{path.name}.jsonl"
    return (f". A data set of Hugging Face is written to a file first (pip install datasets): "
            f"python -c \"{found}.to_json('{name}')\", then --data {name}")


def _gather(
    rows: Iterator[Row], read: Callable[[Any], Problem], limit: int | None, system: str,
    reads: Callable[[], Reads] | None, stateful: bool,
) -> tuple[list[tuple[str, Problem]], list[BadRow], list[tuple[str, str]], int, dict[str, str]]:
    """Good problems with where they stood, broken rows, duplicates, how many rows were read, and of the good problems
    those that the model cannot be given, with why; `limit` counts the others.
    """
    good: list[tuple[str, Problem]] = []
    broken: list[BadRow] = []
    duplicates: list[tuple[str, str]] = []
    prompts: dict[str, tuple[str, Any]] = {}
    ids: dict[str, str] = {}
    unfit: dict[str, str] = {}
    count = 0
    for where, row in rows:
        count += 1
        try:
            if isinstance(row, Exception):
                raise row
            problem = read(row)
        except ValueError as e:
            broken.append(BadRow(where, str(e)))
            if len(broken) == MOST_BROKEN:
                break
            continue
        key = text.normal(problem.prompt) + (f"\0{problem.id}" if stateful else "")
        first = prompts.setdefault(key, (where, problem.answer))
        if first[0] != where and first[1] == problem.answer:
            duplicates.append((where, first[0]))
        elif first[0] != where:
            broken.append(BadRow(where, f"the prompt of {first[0]} again, with another answer"))
        elif ids.setdefault(problem.id, where) != where:
            broken.append(BadRow(where, f"the id {problem.id!r} is already that of {ids[problem.id]}"))
        else:
            good.append((where, _with_system(problem, system) if system else problem))
            if reads is not None and (why := reads().refused(good[-1][1])):
                unfit[where] = why
            if len(good) - len(unfit) == limit:
                break
    return good, broken, duplicates, count, unfit


def _try(
    good: Sequence[tuple[str, Problem]], verifier: str, meter: Meter | None, reads: Callable[[], Reads] | None
) -> verifiers.RewardTrial:
    """A user's reward on a few rows."""
    encode = None if reads is None else reads().text.encode
    with meters.on(meters.CHECK), Grader(verifier, timeout=20.0, meter=meter) as grader:
        return verifiers.try_reward(good, verifier, grader.mark, encode, grader.together)


def _agree(
    good: list[tuple[str, Problem]], verifier: str, meter: Meter | None
) -> tuple[list[tuple[str, Problem]], list[BadRow], tuple[str, ...]]:
    """Keep the problems whose own answer is right by the verifier; for a user's reward, only warn."""
    must = verifiers.find(verifier).must_agree
    with meters.on(meters.CHECK), Grader(verifier, timeout=20.0, meter=meter) as grader:
        wrong = {d.id: d.why for d in verifiers.check_gold([p for _, p in good], verifier, grader.mark)}
    if not must:
        said = [f"{where}: {wrong[p.id]}" for where, p in good if p.id in wrong]
        more = (f"and {len(said) - SHOWN:,} more",) if len(said) > SHOWN else ()
        return good, [], (*said[:SHOWN], *more)
    broken = [BadRow(where, wrong[p.id]) for where, p in good if p.id in wrong]
    return [(where, p) for where, p in good if p.id not in wrong], broken, ()


def _marked_exact(problem: Problem, verifier: str) -> Problem:
    """Whether answers are right in one spelling only: the short form of the sums, under its own verifier."""
    if problem.meta.get("exact") and verifier != "exact":
        return replace(problem, meta={**problem.meta, "exact": False})
    return problem


def _guess(problems: Sequence[Problem]) -> str:
    """numeric if nine answers in ten are plain numbers, else words."""
    plain = sum(_NUMBER.fullmatch(str(p.answer)) is not None for p in problems)
    return "numeric" if plain and plain >= 0.9 * len(problems) else "words"


def _with_system(problem: Problem, system: str) -> Problem:
    if any(m.role == "system" for m in problem.prompt):
        return problem
    return replace(problem, prompt=(Message("system", system), *problem.prompt))


# Rows of files


def _problem(row: Any) -> Problem:
    """One row as a problem. Raises ValueError that names the error and the correct form."""
    if not isinstance(row, Mapping):
        raise ValueError(f"a row is an object like {{\"prompt\": ..., \"answer\": ...}}, not {_kind(row)}")
    if media := _media(row):
        raise ValueError(media)
    prompt, ending, chat = _prompt(row)
    answer, solution = _answer(row, ending)
    if ending is not None and (begun := _begun(ending, answer)):
        raise ValueError(begun)
    meta: dict[str, Any] = {"source": str(row.get("data_source") or "file"), "chat": chat, "columns": _jsonable(row)}
    if solution is not None:
        meta["solution"] = solution
    if (level := _level(row)) is not None:
        meta["level"] = level
    return Problem(_id(row) or text.name(prompt), prompt, answer, meta=meta)


_MEDIA = re.compile(
    r"(?:pixel_values|(?:input_)?(?:images?|videos?|audios?|frames)(?:_?(?:paths?|urls?|files?|bytes|data))?)\Z",
    re.IGNORECASE)
_PLACEHOLDER = re.compile(r"<\|?(?:image|video|audio)(?:_pad|_\d+)?\|?>|<\|vision_start\|>|\[IMG\]", re.IGNORECASE)
_PREFILLED = 200        # characters that a completion may be begun with; a longer message is a solution
_TEXT_ONLY = "models here read text only, and would answer without it: leave such rows out (--skip-broken)"


def _media(row: Mapping[str, Any]) -> str:
    """What of a row is an image, video or sound, with its column; empty if it is text."""
    for name, value in row.items():
        if isinstance(name, str) and name not in PROMPTS and _has_media(name, value):
            return f"the column {name!r} holds an image, video or sound; {_TEXT_ONLY}"
    return ""


def _has_media(name: str, value: Any) -> bool:
    """Whether a cell is media: by its column's name, or as Hugging Face's features store it, with bytes and a path."""
    if isinstance(value, list | tuple):
        return bool(value) and _has_media(name, next((v for v in value if v is not None), None))
    if isinstance(value, Mapping):
        return {"bytes", "path"} <= set(value) and any(v is not None for v in value.values())
    if isinstance(value, bytes):
        magic = value.startswith((b"\x89PNG", b"RIFF", b"GIF8", b"\xff\xd8\xff"))
        return magic or _MEDIA.match(name) is not None
    return isinstance(value, str) and value.strip() != "" and _MEDIA.match(name) is not None


def _begun(ending: str, answer: str) -> str:
    """Why an assistant's last message is a beginning to be continued and no solution; empty if it is a solution."""
    opened = ending.rfind("<think>") > ending.rfind("</think>")
    open_end = ending.rstrip()[-1:] in (":", ",", "(", "=")
    solved = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)|\\boxed|####", ending) or len(ending) > _PREFILLED
    if solved and not (opened or open_end):
        return ""
    how = "leaves <think> open" if opened else "is unfinished" if open_end else f"lacks the answer {answer[:20]!r}"
    return (f"the last message is the assistant's, {ending[:30]!r}, and {how}: completions that are begun for the "
            "model are not supported; move the text into the user's message, or name a solution 'solution'")


def _prompt(row: Mapping[str, Any]) -> tuple[tuple[Message, ...], str | None, bool]:
    """The messages to answer, the assistant's last message if they ended on one, and whether they came as messages."""
    key = next((k for k in PROMPTS if row.get(k) is not None), None)
    if key is None:
        raise ValueError(f"no prompt: give one under {' or '.join(repr(k) for k in PROMPTS)}{_meant(row, PROMPTS)}")
    value, chat = row[key], not isinstance(row[key], str)
    messages = list(_messages(value, key)) if chat else [Message("user", value)]
    ending = messages.pop().content if messages and messages[-1].role == "assistant" else None
    if found := next((m for x in messages if (m := _PLACEHOLDER.search(x.content))), None):
        raise ValueError(f"{key!r} has the placeholder {found[0]!r} of an image, video or sound; {_TEXT_ONLY}")
    if not any(m.role == "user" and m.content.strip() for m in messages):
        raise ValueError(f"{key!r} " + ("has no message of the user with text" if chat else "is empty"))
    system = row.get("system")
    if system is not None and not isinstance(system, str):
        raise ValueError(f"'system' must be text, got {_kind(system)}")
    if system and messages[0].role != "system":
        messages.insert(0, Message("system", system))
    return tuple(messages), ending, chat


def _meant(row: Mapping[str, Any], names: Iterable[str]) -> str:
    """What a row has instead: a column without a value, or a name that is probably misspelt; empty if none is close."""
    for name in names:
        if name in row:
            return f"; its {name!r} has no value"
        if close := get_close_matches(name, [k for k in row if isinstance(k, str)], n=1, cutoff=0.75):
            return f"; the row has {close[0]!r}: did you mean {name!r}?"
    return ""


def _messages(value: Any, key: str) -> Iterator[Message]:
    if not isinstance(value, Sequence):
        raise ValueError(f"{key!r} must be text or a list of messages, got {_kind(value)}")
    for i, m in enumerate(value, 1):
        content = _joined(m.get("content"), f"message {i} of {key!r}") if isinstance(m, Mapping) else None
        if not isinstance(m, Mapping) or not isinstance(m.get("role"), str) or content is None:
            raise ValueError(f"message {i} of {key!r} is not {{\"role\": text, \"content\": text}}")
        if m.get("prefix") or m.get("partial"):
            raise ValueError(f"message {i} of {key!r} begins the completion: that is not supported; leave it out")
        if m["role"] not in ROLES:
            raise ValueError(f"message {i} of {key!r} has the role {m['role']!r}; there are {', '.join(ROLES)}")
        yield Message(m["role"], content)


def _joined(content: Any, where: str) -> str | None:
    """A message's text: as it is, or parts that are all text as one; None if it is neither."""
    if isinstance(content, str) or not isinstance(content, list | tuple) or not content:
        return content if isinstance(content, str) else None
    said = []
    for part in content:
        if isinstance(part, Mapping) and part.get("type", "text") not in ("text", "input_text", "output_text"):
            raise ValueError(f"{where} has a part of type {part['type']!r}; {_TEXT_ONLY}")
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            return None
        said.append(text)
    return "".join(said)


def _answer(row: Mapping[str, Any], ending: str | None) -> tuple[str, str | None]:
    """The answer as text, and a written solution if there is one."""
    marking = row.get("reward_model")
    inner = marking.get("ground_truth") if isinstance(marking, Mapping) else None
    key = next((k for k in ANSWERS if row.get(k) is not None), None)
    value = inner if inner is not None else row[key] if key else ending
    where = "reward_model.ground_truth" if inner is not None else key or "answer"
    if value is None:
        raise ValueError(f"no answer: give one under {' or '.join(repr(k) for k in ANSWERS)}{_meant(row, ANSWERS)}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where!r} must be text or a number, got {_kind(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where!r} is {value}, not a number that can be checked")
    said, solution = str(value).strip(), row.get("solution") if key != "solution" else None
    steps, mark, last = said.rpartition("####")
    if mark:
        said, solution = last.strip(), solution if solution is not None else steps.strip()
    if not said:
        raise ValueError(f"{where!r} is empty")
    if solution is None and ending is not None and ending.strip() != said:
        solution = ending
    if solution is not None and not isinstance(solution, str):
        raise ValueError(f"'solution' must be text, got {_kind(solution)}")
    return said, solution or None


def _level(row: Mapping[str, Any]) -> int | float | str | None:
    level = row.get("level")
    if level is None or isinstance(level, str):
        return level or None
    if isinstance(level, bool) or not isinstance(level, int | float):
        raise ValueError(f"'level' must be a number or text, got {_kind(level)}")
    if not abs(level) < LARGEST:        # also for NaN
        raise ValueError("'level' must be a finite number below 2**63 in size, or text")
    return level


def _id(row: Mapping[str, Any]) -> str:
    value = row.get("id")
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"'id' must be text or an integer, got {_kind(value)}")
    return str(value)


def _jsonable(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row for rewards that name its columns; values that JSON does not support (images, dates) become text."""
    return json.loads(json.dumps(dict(row), default=str))


def _kind(value: Any) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    if value is None:
        return "null"
    if value in ("", [], {}):
        return f"an empty {'text' if value == '' else 'list' if value == [] else 'object'}"
    return names.get(type(value), type(value).__name__)


# reasoning-gym


def _gym(spec: str) -> tuple[str, Iterator[Row]]:
    """The task and its entries: "reasoning-gym:TASK[:key=value,...]", by default 1000 entries of seed 0."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as e:
        raise UserError("reasoning-gym is not installed: pip install reasoning-gym") from e
    _, _, rest = spec.partition(":")
    task, _, options = rest.partition(":")
    if task not in DATASETS:
        near = ", ".join(sorted(t for t in DATASETS if task and (task in t or t[:4] == task[:4]))[:6])
        raise UserError(f"reasoning-gym has no task {task!r}" + (f"; near it are {near}" if near else ""))
    config: dict[str, Any] = {"seed": 0, "size": 1000}
    for option in filter(None, options.split(",")):
        key, equals, value = option.partition("=")
        if not equals:
            raise UserError(f"{spec!r}: options must be key=value, got {option!r}")
        config[key.strip()] = _value(value.strip())
    try:
        dataset = reasoning_gym.create_dataset(task, **config)
    except (TypeError, AssertionError, ValueError) as e:
        raise UserError(f"{spec!r}: reasoning-gym does not take these options: {e}") from e
    return task, numbered("problem", (dataset[i] for i in range(config["size"])))


def _gym_problem(task: str, entry: Mapping[str, Any]) -> Problem:
    """One entry. Its metadata goes through JSON once, so that it is the same here, in a worker and on disk."""
    if entry.get("answer") is None:
        raise ValueError(f"{task} has no reference answer to check the parsed answer")
    prompt = (Message("user", entry["question"]),)
    plain = json.loads(json.dumps(dict(entry), default=str))
    difficulty = plain.get("metadata", {}).get("difficulty")
    meta: dict[str, Any] = {"source": f"reasoning-gym:{task}", "task": task, "entry": plain}
    if isinstance(difficulty, int | float | str):
        meta["level"] = difficulty
    return Problem(text.name(prompt), prompt, str(entry["answer"]), meta=meta)


def _value(value: str) -> Any:
    """An option's value: integer, number, true or false, or text."""
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value
