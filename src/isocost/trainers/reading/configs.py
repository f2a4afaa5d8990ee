"""Configurations of trainers in one vocabulary, for `isocost diff`.

Reading is the inverse of `isocost export`. Every target's `settings` writes a prescription in the trainer's names, so
it is called with values that occur once, and the keys that hold them are the names of those values. A word such as the
loss's average is read by the keys that change with it. Names that export does not write (model, data, older spellings)
are in the trainer's `SETTINGS` and `ALIASES`, and `ABSENT` says what it takes where a key is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from math import isclose
from pathlib import Path
from typing import Any, get_args, get_type_hints

from isocost import trainers
from isocost.disk.jsonfile import finite
from isocost.errors import UserError
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, visible
from isocost.trainers.driving.export import Prescription, TrainerLoss
from isocost.trainers.driving.loss import loss_of
from isocost.trainers.reading.config_files import SUFFIXES, flat_of, flattened, in_folder
from isocost.trainers.reading.names import Settings
from isocost.trainers.reading.text import cell, number

WORDS = {
    "n": "rollouts per problem (n)", "B": "problems per batch (B)", "updates": "optimiser updates per batch",
    "lr": "learning rate", "surrogate": "surrogate", "low": "lower clip range", "high": "upper clip range",
    "dual": "dual clip", "cap": "cap on learner over sampler", "kl": "KL coefficient", "estimate": "KL estimate",
    "entropy": "entropy bonus", "advantage": "advantage", "average": "average of the loss",
    "filter": "groups with one reward throughout", "max_age": "staleness (max_age)", "temperature": "temperature",
    "top_p": "top-p", "top_k": "top-k", "max_tokens": "maximum tokens", "seed": "seed", "model": "model",
    "data": "data",
}
SENTENCES = {
    "advantage": {"mean": "r - mean r", "spread": "(r - mean r) / standard deviation", "others": "leave one out",
                  "batch": "r - mean of the batch"},
    "average": {"rollout": "mean of each rollout, then over rollouts", "token": "over all tokens of the batch",
                "prompt": "over the tokens of a prompt, then over prompts", "length": "sum over a constant length",
                "sum": "sum over the tokens of a rollout"},
}
FILTERS = {(False, False): "kept", (True, False): "left out", (True, True): "left out, and refilled"}
# Values that occur once in what a target writes.
n, B, MINI, M, WARMUP = 7, 20, 2, 1009, 17
ASKED: dict[str, Any] = {
    "lr": 0.00123, "seed": 10007, "temperature": 0.71, "top_p": 0.93, "top_k": 53, "max_tokens": 1537,
}
LOSS: dict[str, Any] = {
    "low": 0.173, "high": 1.291, "dual": 3.7, "cap": 2.3, "kl": 0.0137, "entropy": 0.0041, "max_age": 5, "epochs": 3,
    "tokens": 1537,
}
PROBE = Prescription("", n, B, M, warmup=WARMUP, problems=10**6, **ASKED)
OFF: dict[str, Any] = {"kl": 0.0, "entropy": 0.0, "dual": 0.0, "cap": None}
NONE = {"kl": 0.0, "entropy": 0.0, "dual": 0.0, "cap": "none", "top_k": 0, "max_age": 0}    # null, and what is off
GIVEN = (*ASKED, "n", "problems", "rollouts", "model", "data", "kl", "low", "high", "entropy", "max_age", "updates",
         "minibatch", "batch_keys")     # fields of a trainer's `SETTINGS`
MISSING = object()


@dataclass(frozen=True)
class Value:
    """What a configuration says of one word: its value, None if it is not stated, and where: key and value there, or
    whose default it is."""

    value: Any = None
    where: str = ""


@dataclass(frozen=True)
class Configuration:
    """A configuration in common words. `others` are the keys that the vocabulary does not have, with their values;
    `notes` say what could not be read."""

    name: str
    trainer: str
    words: Mapping[str, Value]
    others: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def since(self) -> list[str]:
        """The trainer and version whose defaults are among the values."""
        found = (re.search(r"default of ([^;]+)$", v.where) for v in self.words.values() if v.value is not None)
        return sorted({m[1] for m in found if m})

    def of(self, word: str) -> Value:
        """What it says of a word."""
        return self.words.get(word, Value())


@dataclass(frozen=True)
class ConfigurationDifference(Result):
    """Two configurations, word by word."""

    a: Configuration
    b: Configuration

    @property
    def equal(self) -> tuple[str, ...]:
        """The words of which both state the same."""
        return tuple(w for w in self._stated(2) if _same(self.a.of(w).value, self.b.of(w).value))

    @property
    def differ(self) -> tuple[str, ...]:
        """The words of which both state another value."""
        return tuple(w for w in self._stated(2) if w not in self.equal)

    @property
    def half(self) -> tuple[str, ...]:
        """The words that one side alone states."""
        return self._stated(1)

    @property
    def own(self) -> tuple[str, ...]:
        """For one trainer on both sides: its other keys whose values differ, or that one side lacks."""
        if self.a.trainer != self.b.trainer:
            return ()
        keys = {**self.a.others, **self.b.others}
        return tuple(k for k in keys if not _same(self.a.others.get(k, MISSING), self.b.others.get(k, MISSING)))

    def _stated(self, sides: int) -> tuple[str, ...]:
        return tuple(w for w in WORDS if sum(x.of(w).value is not None for x in (self.a, self.b)) == sides)

    @property
    def heading(self) -> str:
        return f"{_seen(self.a.name)} ({self.a.trainer}) | {_seen(self.b.name)} ({self.b.trainer})"

    def rows(self) -> Sequence[Row]:
        """Equal settings as a count, then those that differ, those that one side states, and the keys of neither."""
        out = [Row("equal", f"{len(self.equal)}" + (f" ({', '.join(WORDS[w] for w in self.equal)})" if self.equal
                                                    else ""))]
        out.append(Row("different", str(len(self.differ))))
        out += [Row(f"  {WORDS[w]}", self._both(w), "command") for w in self.differ]
        if self.half:
            out.append(Row("stated by one side only", str(len(self.half))))
            out += [Row(f"  {WORDS[w]}", self._both(w), "command") for w in self.half]
        if self.own:
            out.append(Row(f"other keys of {self.a.trainer} that differ", str(len(self.own))))
            for k in self.own:
                left, right = (_written(x.others[k]) if k in x.others else "absent" for x in (self.a, self.b))
                out.append(Row(f"  {_seen(k)}", f"{left} | {right}", "command"))
        for x in (self.a, self.b):
            rest = [_seen(k) for k in x.others if k not in self.own]
            if rest and not (self.a.trainer == x.trainer == self.b.trainer):
                out.append(Row(f"not compared, of {_seen(x.name)}", f"{counted(len(rest), 'key')}: {', '.join(rest)}"))
        if self.a.trainer == self.b.trainer and (same := len({**self.a.others, **self.b.others}) - len(self.own)):
            out.append(Row(f"other keys of {self.a.trainer} that are the same", str(same)))
        notes = [f"{_seen(x.name)}: {note}" for x in (self.a, self.b) for note in x.notes]
        if since := dict.fromkeys(s for x in (self.a, self.b) for s in x.since):
            notes.append(f"defaults are of {' and '.join(since)}; another version may have others")
        return [*out, *(Row("", note, "flag") for note in notes)]

    def _both(self, word: str) -> str:
        return " | ".join(_told(word, x.of(word)) for x in (self.a, self.b))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: words by how they compare, each side's values, and the keys that were not compared."""
        def side(x: Configuration) -> dict[str, Any]:
            return {"name": x.name, "trainer": x.trainer, "not_compared": dict(x.others), "notes": list(x.notes),
                    "settings": {w: {"value": v.value, "where": v.where} for w, v in x.words.items()
                                 if v.value is not None}}

        return dict(finite({"equal": list(self.equal), "different": list(self.differ), "one_side": list(self.half),
                            "other_keys": list(self.own), "a": side(self.a), "b": side(self.b)}))


def is_configuration(path: Path) -> bool:
    """Whether a name is that of a file other than a method's, or of a folder with a trainer's configuration.

    Raises UserError for the name of such a file that is not there.
    """
    if path.suffix in (*SUFFIXES, ".sh") and not path.exists():
        raise UserError(f"there is no file {path}; name a method, a run's folder or a trainer's configuration")
    return path.suffix != ".py" if path.is_file() else path.is_dir() and bool(in_folder(path))


def of_recipe(name: str, recipe: Mapping[str, Any], run: Mapping[str, Any]) -> Configuration:
    """The numbers of a recipe's plain data, and of the record of its run ({} for a method), in the vocabulary."""
    loss, pace = loss_of(recipe), recipe.get("pace") or {}
    arm, setting = run.get("arm") or {}, run.get("setting") or {}
    said = {w: Value(getattr(loss, w), f"{seam} of the recipe") for seam, words in {
        "loss": ("surrogate", "low", "high", "dual", "kl", "entropy"), "advantage": ("advantage",),
        "weight": ("average",)}.items() for w in words}
    if loss.kl:
        said["estimate"] = Value(loss.estimate, "loss of the recipe")
    said["cap"] = Value(NONE["cap"] if loss.cap is None else loss.cap, "loss of the recipe")
    said["updates"] = Value(loss.epochs * loss.minibatches, "improve: epochs x minibatches")
    said["filter"] = Value(FILTERS[loss.keep_mixed, loss.keep_mixed and loss.refill], "select and refill")
    said["max_age"] = Value(loss.max_age, "max_age")
    said["n"] = Value(arm.get("n", recipe.get("rollouts")), "n" if "n" in arm else "rollouts")
    said["B"] = Value(arm.get("B", recipe.get("groups")), "B" if "B" in arm else "groups")
    said |= {w: Value(pace.get(w), f"pace.{w}") for w in ("lr", "temperature", "top_p", "top_k", "max_tokens")}
    said["lr"] = Value(arm.get("lr", pace.get("lr")), "lr" if "lr" in arm else "pace.lr")
    said |= {"seed": Value(run.get("seed"), "seed"), "model": Value(setting.get("model"), "model"),
             "data": Value(setting.get("data"), "data")}
    said = {w: v for w, v in said.items() if v.value is not None}
    if loss.surrogate == "reinforce":
        del said["low"], said["high"]
    odd = tuple(f"{text}: no trainer's configuration has a setting for it" for text in loss.odd)
    return Configuration(name, "isocost", said, notes=odd)


def read(path: str | Path) -> Configuration:
    """A trainer's configuration: a YAML, JSON or TOML file, a script with a launch line, or the folder of a run.

    Raises UserError if the file cannot be read, or no known trainer has its keys.
    """
    path = Path(path)
    file = in_folder(path)[0] if path.is_dir() else path
    best: tuple[int, Any, dict[str, Any], list[str]] = (0, None, {}, [])
    for flat, notes in flat_of(file):
        for trainer in map(_trainer, _configured()):
            hits = sum(k in trainer.known for k in flat)
            if hits > best[0]:
                best = (hits, trainer, flat, notes)
    hits, trainer, flat, notes = best
    if hits < 2:
        known = ", ".join(module.TITLE for module in _configured().values())
        raise UserError(f"{path}: at most {counted(hits, 'key')} of any trainer whose names are known ({known}); name "
                        "its configuration, a script with its launch line, or the folder of a run")
    return trainer.read(str(path), flat, notes)


# a trainer's names, from what it exports ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """What a target writes for some words, and how much of them it cannot express."""

    words: Mapping[str, Any]
    values: Mapping[str, Any]
    left: int


@dataclass(frozen=True)
class KeyPlace:
    """Where a number is: a key, the part of a list there, and what is added to it."""

    key: str
    part: int | None = None
    plus: float = 0.0


@dataclass(frozen=True)
class TrainerVocabulary:
    """One trainer's names: `places` of numbers by surrogate, `options` of words, `gates` that switch a number off, and
    the keys of `minibatches` with what they count, "B" problems or "nB" rollouts."""

    module: Any
    places: Mapping[str, Mapping[str, list[KeyPlace]]]
    options: Sequence[Sequence[Option]]
    gates: Mapping[str, list[str]]
    minibatches: Mapping[str, str]
    constants: Mapping[str, Any]
    known: frozenset[str]

    @property
    def settings(self) -> Settings:
        return getattr(self.module, "SETTINGS", Settings())

    @property
    def version(self) -> str:
        """The trainer and the version that its names are of."""
        return str(getattr(self.module, "VERSION", self.module.TITLE)).split(" (")[0]

    def read(self, name: str, stated: Mapping[str, Any], notes: Sequence[str] = ()) -> Configuration:
        """A flattened configuration in the vocabulary."""
        absent: tuple[str, dict[str, Any]] = getattr(self.module, "ABSENT", ("", {}))
        since, defaults = absent
        flat, other = self._today(stated)
        found = _Reading({**defaults, **flat}, flat, other, since)
        words: dict[str, Value] = {}
        for options in self.options:
            for word in options[0].words.keys() - {"dual"}:
                words[word] = self._chosen(found, options, word)
        surrogate = words["surrogate"].value if words.get("surrogate") else None
        places = self.places.get(str(surrogate), self.places.get("clipped", {}))
        for word in (*ASKED, "low", "high", "dual", "cap", "kl", "entropy", "max_age"):
            words[word] = self._number(found, word, places)
        if surrogate == "reinforce":
            words["low"] = words["high"] = Value()
        words |= self._sizes(found, places)
        words |= {w: found.first(getattr(self.settings, w)) for w in ("model", "data")}
        if words["kl"].value == 0:
            words["estimate"] = Value()
        names = {*self.settings.model, *self.settings.data}
        gone = [f"{k} = {_written(v)} is not read: a value that its script computes" for k, v in flat.items()
                if isinstance(v, str) and "$" in v and k in self.known - names]
        others = {k: v for k, v in stated.items() if k not in found.used}
        return Configuration(name, self.module.TITLE, words, others, (*notes, *gone))

    def _today(self, stated: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """The keys under the names and values that are exported, and under which name each was stated."""
        flat, other = dict(stated), {}
        for key, today in getattr(self.module, "ALIASES", {}).items():
            if key in stated and isinstance(today, Mapping):
                flat[key] = today.get(stated[key], stated[key])
            elif key in stated:
                for name in today:
                    if name not in stated:
                        flat[name], other[name] = stated[key], key
        return flat, other

    def _chosen(self, found: _Reading, options: Sequence[Option], word: str) -> Value:
        """The value of a word: that of the options which agree with every key, and express most of themselves."""
        keys = [k for k in _varying(options) if k in self.known]
        own = [k for k in keys if _varies(options, k, word)]
        held = [k for k in keys if k in found.flat]
        where = [k for k in own if k in found.flat]
        if own and not where:
            return Value()
        text = found.where(where)
        fits = next((f for keys in (held, where, [k for k in where if k in found.stated])
                     if (f := _fitting(options, keys, found.flat)) and (keys or not own)), [])
        if not fits:
            return Value(", ".join(f"{k} = {_written(found.flat[k])}" for k in where), text)
        least = min(o.left for o in fits)
        words = list(dict.fromkeys(o.words[word] for o in fits if o.left == least))
        if own:
            return Value(" or ".join(words), text)
        lost = word != "filter" and any(o.left > least for o in fits)
        fixed = lost and len(words) == 1 and all(_same(v, found.flat[k]) for k, v in self.constants.items()
                                                 if k in found.flat)
        return Value(words[0], f"{self.version} has no option") if fixed else Value()

    def _number(self, found: _Reading, word: str, places: Mapping[str, list[KeyPlace]]) -> Value:
        own = [KeyPlace(key) for key in getattr(self.settings, word, ())]
        gates = [*self.gates.get(word, ()), *(f"{p.key.rpartition('.')[0]}.enabled" for p in own if word == "max_age")]
        shut = next((k for k in gates if found.flat.get(k) is False), None)
        found.used.update(gates)
        every = [*places.get(word, ()), *own]
        value = next((v for p in every if (v := found.at(p, word)).value is not None), Value())
        if shut is not None:
            return Value(NONE[word], found.where([shut]))
        defaults = getattr(self.module, "DEFAULTS", {})
        if value.value is None and word in defaults and not any(p.key in found.flat for p in every):
            option, text = defaults[word]
            known = number(cell(text))
            value = Value(known, f"{option}{'' if known is not None else f' = {text}'}, default of {self.version}")
        if word == "top_k" and number(value.value) is not None:
            return Value(max(int(value.value), 0), value.where)     # -1 and 0 are every token
        return value

    def _sizes(self, found: _Reading, places: Mapping[str, list[KeyPlace]]) -> dict[str, Value]:
        """n, B and updates per batch, in problems and updates whatever the trainer counts."""
        s = self.settings
        sizes = getattr(self.module, "SIZES", ())[:2]
        names = [m for text in sizes if (m := re.fullmatch(r"(?:--)?([\w.-]+)[ =]+\{(\w+)\}", text))]
        rolled = found.first((*s.n, *(m[1] for m in names if m[2] == "n")))
        problems = found.first((*s.problems, *(m[1] for m in names if m[2] == "B")))
        batch = found.first((*s.rollouts, *(m[1] for m in names if m[2] == "nB" and not s.batch_keys)))
        out = {"n": rolled, "B": problems}
        if s.batch_keys:
            size, updates = s.generated(found.flat)
            where = found.where([k for k in s.batch_keys if k in found.flat])
            batch = Value(size, where if size else f"{where}; the number of processes is not stated")
            out["updates"] = Value(updates, where)
        if problems.value is None and batch.where:
            out["B"] = Value(_over(batch.value, rolled.value), batch.where)
        if s.batch_keys:
            return out
        again = next((v for p in places.get("epochs", ()) if (v := found.at(p, "epochs")).value is not None), Value(1))
        for key, counts in {**self.minibatches, **dict.fromkeys(s.minibatch, "nB")}.items():
            mini = found.first((key,))
            whole = {"B": out["B"].value, "nB": batch.value}[counts]
            if counts == "nB" and whole is None and out["B"].value and rolled.value:
                whole = out["B"].value * rolled.value
            parts = _over(whole, mini.value)
            if parts is not None:
                out["updates"] = Value(parts * again.value, "; ".join(x for x in (mini.where, again.where) if x))
        if s.updates:
            out["updates"] = found.first(s.updates)
        return out


@dataclass
class _Reading:
    """A configuration while it is read: `flat` with defaults, `stated` without, `other` names, and the keys `used`."""

    flat: Mapping[str, Any]
    stated: Mapping[str, Any]
    other: Mapping[str, str]
    since: str
    used: set[str] = field(default_factory=set)

    def first(self, keys: Iterable[str]) -> Value:
        """The first of these keys that holds something; stated ones go before defaults."""
        held = sorted((k for k in keys if self.flat.get(k) is not None), key=lambda k: k not in self.stated)
        return Value(self.flat[held[0]], self.where(held[:1])) if held else Value()

    def at(self, place: KeyPlace, word: str) -> Value:
        if place.key not in self.flat:
            return Value()
        value = self.flat[place.key]
        if isinstance(value, list) and place.part is not None:
            value = value[place.part] if place.part < len(value) else None
        if value is None and word in NONE:
            return Value(NONE[word], self.where([place.key]))
        x = number(value)
        return Value() if x is None else Value(value if not place.plus else round(x + place.plus, 12),
                                               self.where([place.key]))

    def where(self, keys: Sequence[str]) -> str:
        """Keys and their values as stated, or as defaults."""
        out = []
        for key in keys:
            name = self.other.get(key, key)
            self.used.add(name)
            text = f"{name} = {_written(self.flat[key])}"
            out.append(text if key in self.stated else f"{text}, default of {self.since}")
        return "; ".join(dict.fromkeys(out))


def _configured() -> dict[str, Any]:
    """The trainers whose configurations are known, by name."""
    return {**trainers.modules("SETTINGS"), **trainers.modules("SIZES")}


@cache
def _trainer(name: str) -> TrainerVocabulary:
    """A trainer's names, from its `settings`, or from its `SETTINGS` alone where it is no target."""
    module = _configured()[name]
    target = getattr(module, "settings", None)
    places: dict[str, dict[str, list[KeyPlace]]] = {}
    options: list[list[Option]] = []
    gates: dict[str, list[str]] = {}
    minis: dict[str, str] = {}
    constants: dict[str, Any] = {}
    if target is not None:
        kinds = {k: get_args(t) for k, t in get_type_hints(TrainerLoss).items()}
        places = {s: _places(_written_by(target, surrogate=s)[0], s) for s in kinds["surrogate"]}
        one, two = (_written_by(target, minibatches=m)[0] for m in (1, MINI))
        minis = {k: {B: "B", n * B: "nB"}[v] for k, v in one.items() if v in (B, n * B) and two.get(k) == v // MINI}
        joint = [{"surrogate": s, "average": a, "dual": d} for s, a in product(kinds["surrogate"], kinds["average"])
                 for d in ((0.0, LOSS["dual"]) if s == "clipped" else (0.0,))]
        options = [[Option(w, *_written_by(target, **w)) for w in joint]]
        options += [[Option({f: w}, *_written_by(target, **{f: w})) for w in kinds[f]]
                    for f in ("advantage", "estimate")]
        options.append([Option({"filter": text}, *_written_by(target, keep_mixed=keep, refill=refill))
                        for (keep, refill), text in FILTERS.items()])
        on = _written_by(target)[0]
        for word, off in OFF.items():
            without = _written_by(target, **{word: off})[0]
            gates[word] = [k for k, v in on.items() if v is True and not without.get(k)]
        every = [o.values for group in options for o in group]
        plain = flattened(target(replace(PROBE, loss=None))[0])
        constants = {k: v for k, v in on.items() if k not in plain and isinstance(v, str)
                     and all(x.get(k) == v for x in every)}
    numbers = {p.key for by in places.values() for found in by.values() for p in found} | set(minis)
    choices = {k for group in options for k in _varying(group) if not any(
        number(o.values.get(k)) is not None for o in group)} - numbers
    options = [[Option(o.words, {k: v for k, v in o.values.items() if k in choices}, o.left) for o in group]
               for group in options]
    s = getattr(module, "SETTINGS", Settings())
    given = {k for f in GIVEN for k in getattr(s, f)}
    sizes = {m[1] for text in getattr(module, "SIZES", ()) if (m := re.match(r"(?:--)?([\w.-]+)[ =:]", text))}
    known = numbers | choices | given | sizes | {k for keys in gates.values() for k in keys}
    known |= set(getattr(module, "ALIASES", {}))
    return TrainerVocabulary(module, places, options, gates, minis, constants, frozenset(known))


def _written_by(target: Any, **loss: Any) -> tuple[dict[str, Any], int]:
    """(the keys that a target writes for a prescription of values that occur once, how much is not carried over)."""
    values, left = target(replace(PROBE, loss=TrainerLoss(**{**LOSS, **loss})))
    return {k: v for k, v in flattened(values).items() if v is not None}, len(left)


def _places(values: Mapping[str, Any], surrogate: str) -> dict[str, list[KeyPlace]]:
    """Where each number is in what was written. A capped weight may be written as a range around 1."""
    out: dict[str, list[KeyPlace]] = {}
    for word, own in {**LOSS, **ASKED}.items():
        found = []
        for key, value in values.items():
            parts = [cell(x) for x in value.split()] if isinstance(value, str) and " " in value else None
            if parts:
                found += [KeyPlace(key, i) for i, x in enumerate(parts) if _same(x, own)]
            elif _same(value, own):
                found.append(KeyPlace(key))
            elif word == "high" and surrogate == "truncated" and _same(number(value), own - 1):
                found.insert(0, KeyPlace(key, plus=1.0))
        if found:
            out[word] = found
    return out


def _fitting(options: Sequence[Option], keys: Sequence[str], flat: Mapping[str, Any]) -> list[Option]:
    """The options that contradict none of these keys, and of them those that write most of their values."""
    fits = [o for o in options if all(k not in o.values or _same(o.values[k], flat[k]) for k in keys)]
    most = max((sum(k in o.values for k in keys) for o in fits), default=0)
    return [o for o in fits if sum(k in o.values for k in keys) == most]


def _varying(options: Sequence[Option]) -> list[str]:
    """The keys whose values are not the same for all options."""
    every = dict.fromkeys(k for o in options for k in o.values)
    return [k for k in every if any(o.values.get(k) != options[0].values.get(k) for o in options)]


def _varies(options: Sequence[Option], key: str, word: str) -> bool:
    """Whether a key changes with a word while the other words stay."""
    seen: dict[tuple[Any, ...], set[str]] = {}
    for o in options:
        rest = tuple(v for w, v in o.words.items() if w != word)
        seen.setdefault(rest, set()).add(repr(o.values.get(key)))
    return any(len(values) > 1 for values in seen.values())


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    x, y = number(a), number(b)
    if x is not None and y is not None:
        return isclose(x, y, rel_tol=1e-9)
    return bool(a == b)


def _over(a: Any, b: Any) -> int | float | None:
    if not a or not b or isinstance(a, str) or isinstance(b, str):
        return None
    return a // b if a % b == 0 else a / b


def _seen(text: str) -> str:
    return visible(text, lines=False)


def _written(x: Any) -> str:
    if isinstance(x, bool) or x is None:
        return {True: "true", False: "false", None: "null"}[x]
    return f"{x:.6g}" if isinstance(x, float) else _seen(" ".join(map(str, x)) if isinstance(x, list) else str(x))


def _told(word: str, x: Value) -> str:
    if x.value is None:
        return f"not stated ({x.where})" if x.where else "not stated"
    text = SENTENCES.get(word, {}).get(x.value, _written(x.value)) if isinstance(x.value, str) else _written(x.value)
    if " = " in text:       # a value that the vocabulary lacks
        return x.where
    where = x.where if ";" in x.where else re.sub(rf" = {re.escape(_written(x.value))}(?=$|, default)", "", x.where)
    return f"{text} ({where})"
