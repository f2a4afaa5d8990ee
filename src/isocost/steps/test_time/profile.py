"""The profile of a study of strategies: from stored completions, or from a live model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from isocost.can import Can
from isocost.disk.jsonfile import line, write_text
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.test_time.estimates import LATE, STRATEGIES, Measured, over_runs, possible, require
from isocost.planner.test_time.policies import PolicyCost
from isocost.planner.test_time.pool import Parts, Pool, parts
from isocost.planner.test_time.profile import StrategyTable, described
from isocost.runs import files as records
from isocost.runs import measure
from isocost.runs.measure import UNNAMED
from isocost.runs.schema import Costs
from isocost.runs.source import STRATEGIES as SOURCE
from isocost.screen.display import OfPlanner, Row, Table, folder_field
from isocost.screen.words import counted, visible
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import check, found, writes
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.checkpoints import checkpoints, foretold, policy_costs, refuse_trained_on, stored
from isocost.steps.test_time.sampling import Line, PoolSampler, numbered
from isocost.steps.training.pass_rates import OPENING
from isocost.steps.training.stored import attempts_per_problem, longest
from isocost.tasks.completions import SCORED, Attempted, read_completions
from isocost.tasks.sample import sample
from isocost.tasks.verify import answers
from isocost.types import Cost
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting
from isocost.worlds.spec import spec_of as spec_of_model

PROBE, BANDS, LEAST = 4, 3, 10      # probe samples and bands by default; problems of a band in each half
PROBED = 16                         # samples of a problem from which some are set apart as the probe
SAMPLES, SEARCHED = 32, (4, 16)     # samples of a problem of a live model, and sizes of a search
ALL = "all"
Arm = Mapping[str, float | str]     # sampling settings in place of the study's
OWN = {"weighted-vote": "vote"}     # strategies of a pool that have another name in `isocost.strategies`
EXACT = "outcome"                   # the scorer that is the verifier
NO_ANSWER = 0.05                    # share of texts without an answer from which they are shown
SHOWN, WIDE = 3, 60


@dataclass(frozen=True)
class StrategyProfile(OfPlanner):
    """Accuracy by strategy and number of samples (`isocost.planner.test_time.profile.StrategyTable`)."""

    has: ClassVar[str] = "table"

    table: StrategyTable
    folder: Path | None = folder_field()

    @staticmethod
    def read(study: StudyRecord) -> StrategyProfile:
        """That of a study. Raises UserError before its profile."""
        return StrategyProfile(StrategyTable.of(study.record("profile.json", "profile")), study.path)

    @property
    def heading(self) -> str:
        """What was sampled."""
        t = self.table
        return f"{counted(t.problems, 'problem')}, {counted(t.samples, 'sample')} each: one sample is right in " \
               f"{t.solved[0]:.3f}"

    def rows(self) -> list[Row | Table]:
        """The parts, the scorer, and accuracy by strategy and number of samples."""
        t = self.table
        out: list[Row | Table] = [Row("parts", f"validation split {t.select} problems, test split {t.audit}" + (
            f"; {counted(t.probe, 'more sample')} of each problem tells its band" if t.probe else ""))]
        if len(t.bands) > 1:
            out.append(Row("bands", ", ".join(f"{name} ({k})" for name, k in zip(t.bands, t.in_band, strict=True))))
        if t.exact:
            out.append(Row("scorer", "the verifier, which is at hand for every answer: best-of is pass@n"))
        elif t.within is not None:
            wrong = "" if t.passes is None else f"; it passes {t.passes:.0%} of wrong samples"
            wrong += "" if t.fails is None else f" and fails {t.fails:.0%} of right ones"
            out.append(Row("scorer", f"AUROC within problems {t.within}{wrong}"))
        sizes = sorted({r.size for r in t.rows if r.size > 1})
        by = {(r.strategy, r.size): r for r in t.rows}
        heads = ["samples", "tokens", *t.strategies, "pass@k", "pass^k"]
        cells = [[str(k), f"{k * t.rows[0].tokens:,.0f}",
                  *(f"{by[s, k].accuracy:.3f}" if (s, k) in by else "" for s in t.strategies),
                  *([f"{x[k.bit_length() - 1]:.3f}" for x in (t.solved, t.always)] if 2 ** (k.bit_length() - 1) == k
                    and k.bit_length() <= len(t.solved) else ["", ""])] for k in sizes]
        one = f"{t.rows[0].accuracy:.3f}"
        cells = [["1", f"{t.rows[0].tokens:,.0f}", *[one] * (len(t.strategies) + 2)], *cells]
        live = [Row(f"{r.strategy}-{r.size}", f"{r.tokens:,.0f} tokens an answer, {r.depth:,.0f} of them one after the "
                    "other at the 95th percentile") for r in t.rows if r.strategy not in ("one", *STRATEGIES)]
        paid = [] if t.cost is None else [Row("took", f"{t.cost.rollouts:,.0f} samples, {t.cost.decode:,.0f} tokens "
                                                      f"written, {t.cost.prefill:,.0f} read, {t.cost.seconds:.0f} s")]
        return [*out, Table(heads, cells), *live, *_others(t), *paid, *(Row("", text, "flag") for text in t.told)]


def _others(t: StrategyTable) -> list[Row | Table]:
    """Other settings and policies: one sample, and each strategy at its largest size; what training took."""
    by = {(r.arm, r.strategy): r for r in t.arms}
    heads = ["", "one", *(f"{s}-{by[t.arms[0].arm, s].size}" for s in t.strategies)] if t.arms else []
    cells = [[arm, *(f"{by[arm, s].accuracy:.3f}" for s in ("one", *t.strategies))]
             for arm in dict.fromkeys(r.arm for r in t.arms if all((r.arm, s) in by for s in t.strategies))]
    took = [Row(p.name, f"{counted(len(p.runs), 'run') + ', of which each took' if p.runs else 'a run would take'} "
                        f"{p.training.rollouts:,.0f} rollouts and {p.training.seconds:,.0f} s of training"
                if p.training.rollouts else "its training took what was stated") for p in t.policies if p.name]
    return [*([Table(heads, cells, left=(0,))] if cells else []), *took]


def pool_of(study: StudyRecord, arm: str = "") -> Pool:
    """The samples in a study's pool.jsonl, or those of other settings or a run. Raises UserError where there are none.
    """
    path = study.path / file_of(arm)
    lines = records.read_lines(path)
    if not lines:
        raise UserError(f"{path} has no samples: restore it from a copy, or profile again in another folder")
    return Pool.read_lines(lines, bool(study.asked["exact"]))


def file_of(arm: str, kind: str = "pool") -> str:
    """The file of the samples at other settings or of a run, or of its searches ("live"); empty for the study's own."""
    return f"{kind}@{arm}.jsonl" if arm else f"{kind}.jsonl"


def arms_of(study: StudyRecord) -> dict[str, list[str]]:
    """By the name of other settings, and of each policy of --checkpoints, the files' names for it: those of its runs.
    """
    out = {arm["name"]: [arm["name"]] for arm in study.asked.get("arms", ())}
    for one in study.asked.get("checkpoints", ()):
        out.setdefault(one["policy"], []).append(one["name"])
    return out


def parts_of(study: StudyRecord) -> Parts:
    """The parts of a study's pool, the same each time."""
    asked = study.asked
    arms = {name: [pool_of(study, file) for file in own] for name, own in arms_of(study).items()}
    own = {k: asked[k] for k in ("probe", "bands", "seed")}
    found = parts(pool_of(study), least=LEAST, arms=arms, **own)
    return replace(found, policies=frozenset(c["policy"] for c in asked.get("checkpoints", ())))


def live_of(study: StudyRecord, ids: Sequence[str]) -> list[Measured]:
    """The searches that were run on the problems `ids`, of every policy; one that lacks a problem is left out."""
    out = _searched(study.path / file_of("", "live"), ids)
    for policy, runs in arms_of(study).items():
        each = [_searched(study.path / file_of(run, "live"), ids) for run in runs]
        out += [over_runs(same, policy) for same in zip(*each, strict=False)]
    return out


def _searched(file: Path, ids: Sequence[str]) -> list[Measured]:
    by: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for one in records.read_lines(file):
        by.setdefault((one["strategy"], one["size"]), {})[one["id"]] = one
    out = []
    for (name, size), each in sorted(by.items()):
        if all(i in each for i in ids):
            rows = {k: np.array([each[i][k] for i in ids], dtype=float)
                    for k in ("right", "samples", "tokens", "depth")}
            late = float(np.quantile(rows["depth"], LATE))
            out.append(Measured(name, size, rows["right"], rows["samples"], rows["tokens"], late, "live"))
    return out


@dataclass(frozen=True)
class Compared:
    """What a study of strategies compares.

    strategies: names of `planner.test_time.estimates.STRATEGIES`, or "all" for those that the samples suffice for; of a
    model any of `isocost.strategies` too, which is run on every problem. scorer: of `isocost.scorers`; "verifier" is
    the problems' own, at hand for every answer; by default a file's column of scores, of a model the verifier. probe:
    samples of a problem that tell its band. bands: at most.

    Of a model only: problems, of the held-out ones, with so many samples each; sizes of searches; band_by, the key of a
    problem's data that tells its band; arms, other temperatures, max_tokens or reasoning efforts at which a pool is
    sampled too.

    checkpoints: trained policies to compare, as `steps.test_time.checkpoints` reads them. parameters: the model's size,
    where it is not known here.
    """

    strategies: Sequence[str]
    scorer: str | None = None
    seed: int = 0
    probe: int | None = None
    bands: int = BANDS
    problems: int = 512
    samples: int = SAMPLES
    sizes: Sequence[int] = SEARCHED
    band_by: str = ""
    arms: Sequence[Arm] = ()
    checkpoints: Sequence[Path] = ()
    parameters: float | None = None

    def begin(self, out: Path, setting: Setting, probes: bool, **asked: Any) -> dict[str, Any]:
        """study.json but for the setting; where it `probes`, some samples are set apart unless the user said how many.
        Raises UserError where `out` has a study with other settings."""
        probe = PROBE * probes if self.probe is None else self.probe
        about = {"seed": self.seed, "method": None, "source": SOURCE.name, "probe": probe, "bands": self.bands,
                 "scorer": self.scorer, **{k: x for k, x in asked.items() if x or k not in ("checkpoints", "foretold")}}
        check(out, setting, **about)
        return about

    def table(
        self, out: Path, names: Sequence[str], told: list[str], cost: Costs | None = None,
        policies: Sequence[PolicyCost] = (),
    ) -> StrategyProfile:
        """Write profile.json of the pool and the live answers that are there."""
        study = StudyRecord.read(out)
        split = parts_of(study)
        named = split.select.level is not None
        if 1 < self.bands != len(split.bands) and (named or study.asked["probe"]):
            by = "the values of the column" if named else "the probe samples"
            told.append(f"bands of difficulty: {len(split.bands)}, of {self.bands} at most. With more, {by} would leave"
                        f" a band fewer than {LEAST} problems of the validation split or of the test split")
        live = live_of(study, split.select.ids)
        result = described(split, study.asked, names, study.setting.model, told, live, cost, policies)
        study.write("profile.json", result.data())
        return StrategyProfile(result, out)


@writes(new=True)
def profile_stored(
    out: Path, file: Path, compared: Compared, columns: Mapping[str, str] = MappingProxyType({}), *,
    model: str | None = None, scale: tuple[float, float] | None = None, skip_broken: bool = False,
) -> StrategyProfile:
    """Start a study of strategies in `out` from stored completions with their rewards.

    columns: key of `tasks.completions.SCORED` -> the column.

    Raises:
        UserError: for a file that cannot be used, a strategy that it does not suffice for, and where `out` already
            contains a study with different settings.
    """
    trained = stored(compared.checkpoints, compared.parameters)
    files, told = {"": file, **{c.name: Path(c.model) for c in trained}}, list[str]()
    every = {name: read_completions(own, columns, skip_broken=skip_broken, scale=scale or measure.UNIT, names=SCORED)
             for name, own in files.items()}
    graded = {name: {p.id: [a for a in p.attempts if a.reward is not None] for p in there.problems}
              for name, there in every.items()}
    m = min(attempts_per_problem(files[name], [len(row) for row in own.values() if row])
            for name, own in graded.items())
    ids = [p.id for p in every[""].problems if all(len(own.get(p.id, ())) >= m for own in graded.values())]
    if not ids:
        raise UserError(f"no problem of {file} has {m} attempts in each of {', '.join(map(str, files.values()))}: the "
                        "files need the same problems, named alike (--map problem=COLUMN)")
    pools = dict[str, Pool]()
    for name, there in every.items():
        own = {p.id: p for p in there.problems}
        few = f"{counted(len(own) - len(ids), 'problem')} with fewer than {m} attempts left out"
        of = f"{name}: " if name else ""
        said = [*there.report.lines(), *([few] if len(ids) < len(own) else [])]
        pools[name] = _pool([own[i] for i in ids], [graded[name][i][:m] for i in ids], compared.scorer, said)
        told += [of + line for line in said]
        if trained and pools[name].tokens is None:
            raise UserError(f"{files[name]} has no token counts of every sample, so training and answers cannot be "
                            "counted together: --map tokens=COLUMN")
    pool, names = pools[""], _chosen(compared.strategies, pools[""])
    setting = Setting.of({"model": model or UNNAMED, "data": str(file), "max_tokens": longest(every[""])})
    probes = not trained and pool.level is None and m >= PROBED and (pool.score is not None or pool.answer is not None)
    ahead = foretold(compared.checkpoints, trained, setting)
    asked = compared.begin(out, setting, probes, columns=dict(sorted(columns.items())), strategies=list(names),
                           digest=records.file_hash(file), exact=pool.exact, foretold=[x.data() for x in ahead],
                           checkpoints=[{**c.data(), "digest": records.file_hash(files[c.name])} for c in trained])
    found(out, setting, **asked)
    for name, one in pools.items():
        for strategy in names:
            require(one, strategy)
        _write(out / file_of(name), one.lines())
    size = compared.parameters or max((c.parameters for c in trained), default=0.0)
    if trained:
        told.append("the problems are taken as unseen: whether a checkpoint was trained on them is not known here")
    return compared.table(out, names, told, None,
                          policy_costs(trained, dict.fromkeys(files, 0.0), size, ahead) if trained else ())


@writes(new=True)
def profile_live(
    out: Path, setting: Setting, compared: Compared, *, limits: RequestLimits = RequestLimits(),
    observer: Observer = SILENT,
) -> StrategyProfile:
    """Start a study of strategies in `out` from a model: a pool of samples, then the searches at their `sizes`. A
    profile that was stopped continues.

    Raises:
        UserError: for problems, a model, a strategy or a scorer that cannot be used, and where `out` already contains a
            study with different settings.
    """
    from isocost import scorers
    from isocost.strategies import parse
    from isocost.worlds.setting import open_setting

    scorer, samples, names = scorer_of(compared.scorer), compared.samples, list(compared.strategies)
    chooses = scorers.parse(scorer)
    pooled = list(STRATEGIES) if names == [ALL] else [s for s in names if s in STRATEGIES]
    searches = [s for s in names if s not in STRATEGIES and s != ALL]
    tried = {(name, k): one for name in searches for k in compared.sizes
             if (one := parse(spec_of(name, k, scorer))).size or k == compared.sizes[0]}
    by_steps = [s for s in tried.values() if "chosen_by_steps" in s.traits]
    if by_steps and setting.problems.env:
        raise UserError(f"{by_steps[0].name} searches over steps, and the environment of a dialogue cannot follow "
                        "paths that are dropped: use best-of, vote or until-sure, which choose among whole dialogues")
    arms = {named(arm): setting.but(**arm) for arm in compared.arms}
    if any(own.sampling.effort for own in arms.values()):
        spec_of_model(setting.model).require(Can.EFFORT)
    trained = checkpoints(compared.checkpoints, out)
    ahead = foretold(compared.checkpoints, trained, setting)
    asked = compared.begin(
        out, setting, not (compared.band_by or trained) and samples >= PROBED, strategies=pooled, searches=searches,
        sizes=list(compared.sizes), profiled=compared.problems, samples=samples, band_by=compared.band_by,
        arms=[{"name": named(arm), **arm} for arm in compared.arms], exact=scorer == EXACT,
        checkpoints=[c.data() for c in trained], foretold=[x.data() for x in ahead])
    kept, parameters = dict[str, list[Line]](), 0.0
    with observer.counting("profile") as tell:
        for run, own in {"": setting, **{c.name: setting.but(model=c.model) for c in trained}}.items():
            tell(OPENING)
            for c in trained:
                if c.name == run:
                    c.write()
            opened = open_setting(own, check=not run, learn=False, limits=limits)
            try:
                some = sample(opened.sides.held_out, compared.problems, compared.seed)
                work = PoolSampler(opened, some, compared.seed, tell)
                if not run:
                    refuse_trained_on(trained, some)
                    for its in arms.values():
                        finished(work.at(its).tried())
                    found(out, setting, **asked)
                    parameters = compared.parameters or opened.world.learner.parameters
                kept[file_of(run)] = finished(work.pool(out / file_of(run), samples, chooses, compared.band_by))
                _steps(kept[file_of(run)], samples, by_steps)
                for arm, its in arms.items() if not run else ():
                    file = file_of(arm)
                    kept[file] = finished(work.at(its).pool(out / file, samples, chooses, compared.band_by))
                file = file_of(run, "live")
                if ran := [finished(work.live(out / file, one, name, k)) for (name, k), one in tried.items()]:
                    kept[file] = [x for each in ran for x in each]
            finally:
                opened.close()
    for name, lines in kept.items():      # in the order of the problems, however they were sampled
        _write(out / name, lines)
    failed = [x["why"] for x in kept[file_of("")] if "why" in x]
    told = [f"the scorer failed on {counted(len(failed), 'problem')}: {failed[0]}"] if failed else []
    total = sum((Cost.of(x["cost"]) for lines in kept.values() for x in lines), Cost())
    rates = {run: _rate(kept[file_of(run)]) for run in ("", *(c.name for c in trained))}
    return compared.table(out, pooled, told, Costs(**{f.name: getattr(total, f.name) for f in fields(Costs)}),
                          policy_costs(trained, rates, parameters, ahead) if trained else ())


def _rate(lines: Sequence[Line]) -> float:
    """Busy seconds for a token written."""
    costs = [Cost.of(x["cost"]) for x in lines]
    return sum(c.seconds for c in costs) / max(sum(c.decode for c in costs), 1)


def _write(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    write_text(file, "".join(line(x) + "\n" for x in lines))


def named(arm: Arm) -> str:
    """The name of sampling settings, such as "temperature=0.6,max_tokens=64"."""
    return ",".join(f"{k}={v}" if isinstance(v, str) else f"{k}={v:g}" for k, v in sorted(arm.items(), reverse=True))


def scorer_of(asked: str | None) -> str:
    """A scorer of `isocost.scorers`: the verifier's own where none, or "verifier", was asked for."""
    return EXACT if asked is None or asked == "verifier" else asked


def spec_of(name: str, size: int, scorer: str | None) -> str:
    """A strategy of `isocost.strategies` with a size and the study's scorer, as `parse` reads it."""
    from isocost.strategies import parse

    own, _, more = OWN.get(name, name).partition(":")
    one = parse(own)
    scored = [f"scorer=({scorer_of(scorer)})"] if one.scorer and "scorer=" not in more else []
    settings = [more, f"{one.size}={size}" if one.size else "", *scored]
    return f"{own}:{','.join(x for x in settings if x)}" if size > 1 else "one"


def _steps(lines: Sequence[Mapping[str, Any]], samples: int, searches: Sequence[Any]) -> None:
    """Raises UserError where a search over steps has no step to search over."""
    if searches and not any(x.get("marks") for x in lines):
        raise UserError(f"no step mark in {samples * len(lines):,} samples of {len(lines)} problems, so "
                        f"{searches[0].name} would be best-of: leave it out, or name another mark: 'beam:step=.'")


def _chosen(asked: Sequence[str], pool: Pool) -> tuple[str, ...]:
    """The strategies that were asked for. Raises UserError for one that is unknown, or that the pool does not suffice
    for."""
    if list(asked) == [ALL]:
        return possible(pool)
    for name in asked:
        if name not in STRATEGIES:
            raise UserError(f"stored completions have no strategy {name!r}: {', '.join(STRATEGIES)} are functions of "
                            "finished samples; others need a model: --model in place of --completions")
        require(pool, name)
    return tuple(dict.fromkeys(asked))


def _pool(used: Sequence[Attempted], rows: Sequence[Sequence[Any]], scorer: str | None, told: list[str]) -> Pool:
    """The pool of these problems' attempts, `rows`, which have rewards. Raises UserError for an unknown scorer, for
    scores that only some attempts have, and for answers that are the reference's."""
    if scorer not in (None, "verifier"):
        raise UserError(f"--scorer {scorer}: of stored completions the scorer is their column of scores, or 'verifier'")
    right = np.array([[a.reward for a in row] for row in rows], dtype=float)
    scores = [[a.score for a in row] for row in rows]
    unscored = sum(s is None for row in scores for s in row)
    if 0 < unscored < right.size and scorer is None:
        raise UserError(f"{unscored} of {right.size} samples have no score: score them, or leave out the column")
    score = right if scorer == "verifier" else None if unscored else np.array(scores, dtype=float)
    tokens = read = None
    if all(a.tokens is not None for row in rows for a in row):
        tokens = np.array([[a.tokens for a in row] for row in rows])
    if all(p.prompt_tokens is not None for p in used):
        read = np.array([p.prompt_tokens for p in used], dtype=float)
    level = None if all(p.level is None for p in used) else tuple(p.level for p in used)
    if tokens is None:
        told.append("no token counts of every sample, so budgets are in samples: --map tokens=COLUMN")
    return Pool(tuple(p.id for p in used), right, score, _answers(used, rows, right, told), tokens, read, level,
                scorer == "verifier")


def _answers(
    used: Sequence[Attempted], rows: Sequence[Sequence[Any]], right: ndarray, told: list[str]
) -> ndarray | None:
    """(P, m) the number of each sample's answer: its column's, else what its text gives; None where neither is there.

    Samples without an answer are -1, and do not vote, as in `isocost.strategies.vote`.
    """
    column = any(a.answer is not None for row in rows for a in row)
    if not column and not any(a.text for row in rows for a in row):
        return None
    said = [[a.answer if column else _final(a.text) for a in row] for row in rows]
    if column and all(len(set(row)) == 1 for row in said) and (np.ptp(right, axis=1) > 0).any():
        raise UserError("the column of answers has one value for all samples of a problem, right and wrong: it is the "
                        "reference's. Name the samples' own with --map answer=COLUMN, or rename it, and answers are "
                        "read from the completions")
    none = [(p.id, a.text) for p, row, answers_ in zip(used, rows, said, strict=True)
            for a, s in zip(row, answers_, strict=True) if not s]
    if len(none) > NO_ANSWER * right.size:
        shown = "; ".join(f"{name}: {visible(text[-WIDE:], False)!r}" for name, text in none[:SHOWN])
        told.append(f"{len(none) / right.size:.0%} of the samples give no answer and do not vote, such as {shown}")
    pairs = [{(a, float(r)) for a, r in zip(row, marks, strict=True) if a}
             for row, marks in zip(said, right, strict=True)]
    mixed = sum(len({a for a, _ in known}) < len(known) for known in pairs)
    if mixed > NO_ANSWER * len(used):
        told.append(f"in {counted(mixed, 'problem')} samples with one answer are right and wrong: its spelling tells "
                    "less than the verifier reads")
    return np.array([numbered([x or None for x in row]) for row in said], dtype=np.int64)


def _final(text: str) -> str | None:
    return ", ".join(answers.bare(answers.plain(x)) for x in answers.final(text)) or None
