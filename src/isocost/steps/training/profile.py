"""The profile: starts a study, and measures what the model can do on the problems before training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from isocost.can import Can
from isocost.errors import UserError
from isocost.gather import finished
from isocost.planner.token_price import TokenPrice
from isocost.runs.files import SCHEMA
from isocost.runs.source import SERVED
from isocost.screen.display import Result, Row, Table, folder_field, given
from isocost.screen.words import counted, megabytes
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import check, found, restart, writes
from isocost.steps.settings import method_of
from isocost.steps.study import StudyRecord
from isocost.steps.training import by_limit, dialogues
from isocost.steps.training.hosted import told
from isocost.steps.training.pass_rates import MOST_CUT, PROBLEMS, SAMPLES, pass_rates, pass_row
from isocost.steps.training.served import Served, spent
from isocost.steps.training.served import money as paid
from isocost.types import Cost
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting
from isocost.worlds.spec import spec_of

Data = Mapping[str, Any]
FOUND = 8       # findings in the data that are printed
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class ProfileResult(Result):
    """What the model can do on the problems before training: `samples` completions of each profiled problem.

    model, parameters: the model and how many weights it has; None where that is not known.
    problems: how many were profiled; pool, select, audit: sizes of the training problems, the validation split and the
        test split.
    ids, levels: of the profiled problems, in order; levels are None where the data has none.
    right: per problem, how many of `samples` completions earned more than 1/2; assign, report: the same, of the first
        and the second half of the completions.
    mean: mean reward (pass@1 where rewards are 0 or 1); h: share of problems with at most one completion right.
    histogram: problems by how many completions were right, or by mean reward where `graded`.
    regime, why: the name of the histogram's shape, and the reason.
    dead: per n, the share of groups whose rewards are all equal, with its interval.
    bands: problems by difficulty, chosen on one half of the completions and reported on the other.
    lengths: tokens per completion: mean, p50, p90, p99, max, and `truncated`, the share cut at the limit; None where
        no token was counted, as `rate` where nothing was sampled.
    pass_at: pass@k per k with its interval, of rewards 0 and 1.
    exact: whether held-out pass@1 is computed exactly; solutions: share of problems with a solution.
    rate: completions and tokens per second here; cost, lost: what the profile sampled, and what of it was not used. Of
        a service, measuring is the cost of finding its rates, and sent all that it was sent, cached prompts left out.
    seconds: wall-clock seconds. unscored: completions without a reward, by kind in `verifier_failures`.
    recipe: the method that follows, and why; methods: every method's preconditions here.
    truth: mean by the verifier of --truth, its name, and `flawed`, the share of the completions marked right that are
        wrong by it.
    found: what was found in the data; examples: completions as text.
    server: counts of requests to a model's server; money: what sampling cost at the price given; stored: the file of
        completions that were not sampled here.
    dialogues: success by turns, ends, faults and the cost of a success, where there is an environment.
    by_limit: per turn limit, success, cost, pass@k and dead groups, of the same completions cut after so many turns.
    columns: what every problem carries besides its prompt and answer.
    graded, rewards, tallies, unsolved: only of rewards other than 0 and 1. A field that a record lacks is None.
    """

    samples: int
    right: Sequence[int]
    mean: float
    histogram: Sequence[int]
    regime: str
    why: str
    dead: Sequence[Data]
    recipe: Data
    methods: Sequence[Data]
    lengths: Data | None
    rate: Data | None
    found: Sequence[str]
    model: str = ""
    parameters: int | None = 0
    problems: int = 0
    pool: int = 0
    select: int = 0
    audit: int = 0
    ids: Sequence[str] = ()
    levels: Sequence[Any] = ()
    assign: Sequence[float] = ()
    report: Sequence[float] = ()
    h: float | None = None
    bands: Any = None
    exact: bool = False
    solutions: float = 0.0
    cost: Data | None = None
    measuring: Data | None = None
    sent: Data | None = None
    lost: Data | None = None
    seconds: float = 0.0
    unscored: int | None = None
    verifier_failures: Data | None = None
    verifier_examples: Data | None = None
    examples: Sequence[Data] = ()
    graded: bool | None = None
    rewards: Sequence[float] | None = None
    tallies: Sequence[Any] | None = None
    unsolved: float | None = None
    pass_at: Sequence[Data] = ()
    server: Data | None = None
    money: Data | None = None
    stored: Data | None = None
    dialogues: Data | None = None
    by_limit: Sequence[Data] | None = None
    columns: Sequence[str] | None = None
    truth: Data | None = None
    folder: Path | None = folder_field()

    @classmethod
    def of(cls, data: Data, folder: Path | None = None) -> Self:
        """From profile.json."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known}, folder=folder)

    @property
    def heading(self) -> str:
        return f"profile: {self.regime}"

    def rows(self) -> list[Row | Table]:
        """Pass rates, dead groups, answers, dialogues and what they cost, then the recipe that follows."""
        own = next((m for m in self.methods if m["name"] == self.recipe["method"]), None)
        return given(
            Row("", self.why),
            self._histogram(),
            *self._truth(),
            pass_row(self.pass_at),
            Row("", "dead groups  " + "  ".join(
                f"n={d['n']}: {d['share']:.0%}"
                + ("" if d["kind"] == "unbiased" else f" [{d['low']:.0%}, {d['high']:.0%}]") for d in self.dead)),
            *self._answers(),
            *dialogues.rows(self.dialogues),
            *by_limit.rows(self.by_limit),
            *self._cost(),
            Row(f"recipe {self.recipe['method']}", self.recipe["why"]),
            *(Row("", line, "flag") for line in self.found[:FOUND]),
            Row("its preconditions", f"{own['state']}: {own['why']}" if own else ""),
        )

    def _histogram(self) -> Row:
        """The mean, and problems by how many of their completions were right, or by mean reward."""
        top = max(self.histogram) or 1
        bars = "".join(BARS[(8 * h + top - 1) // top] for h in self.histogram)
        what, shown = "pass@1", f"right of {self.samples}: 0 [{bars}] {self.samples}"
        if self.graded:
            what, shown = "mean reward", f"problems by their mean reward: 0 [{bars}] 1"
        return Row("", f"{what} {self.mean:.3f} over {counted(len(self.right), 'problem')}; {shown}", "command")

    def _truth(self) -> list[Row]:
        """The mean by the truth, and how often the mark is wrong about what it pays."""
        if (t := self.truth) is None:
            return []
        wrong = "" if t["flawed"] is None else f"; of the completions marked right, {t['flawed']:.0%} are wrong by it"
        return [Row("truth", f"{t['mean']:.3f} by {t['verifier']}{wrong}", "flag" if t["flawed"] else "")]

    def _answers(self) -> list[Row]:
        """How long completions are, how fast they came, and a caution where many were cut."""
        speed = ""
        if self.rate:
            where = "from its server" if self.server or "at_once" in self.rate else "here"
            speed = f"; {self.rate['rollouts_per_second']:.3g} rollouts/s {where}"
            speed += f" ({told(self.rate)})" if "at_once" in self.rate else ""
        if not self.lengths:
            return [Row("answers", f"not known: no token was counted{speed}")]
        cut = self.lengths["truncated"]
        share = ("cut completions not known" if cut is None else f"{cut:.1%} cut") + speed
        return [
            Row("answers", f"{self.lengths['mean']:.1f} tokens (90 % within {self.lengths['p90']:.0f}), {share}"),
            Row("", f"{cut:.1%} of the completions were cut at their length limit, and the numbers above are of cut "
                    "answers: raise --max-tokens" if (cut or 0) > MOST_CUT else "", "flag"),
        ]

    def _cost(self) -> list[Row]:
        """What sampling cost, where a server was paid; of stored completions, what they are and cost."""
        if (s := self.stored) is None:
            shown = self.server or self.money
            return [*spent(self.cost or {}, self.money, self.server, self.measuring)] if shown else []
        tokens = [f"{s[k]:,} tokens {k}" for k in ("read", "written") if s.get(k) is not None]
        worth = f"; sampling them cost {paid(self.money)}" if self.money else ""
        return [Row("", ", ".join([f"{s['completions']:,} completions of {s['file']}", *tokens]) + worth)]

    def to_dict(self) -> dict[str, Any]:
        """profile.json."""
        return {"schema": SCHEMA} | {k: v for k, v in vars(self).items() if v is not None and k != "folder"}


@dataclass(frozen=True)
class ProfileCost(Result):
    """What a profile would cost at most: rollouts, tokens (prompts and completions), FLOP, MB of memory and of disk.
    `seconds` is None: the profile itself measures the speed here. `flops` is None for a model of unknown size. Without
    `prompts` the tokens are those of completions alone; `money` is what the tokens cost at the price given."""

    model: str
    data: str
    problems: int
    rollouts: int
    tokens: int
    flops: float | None
    memory_mb: int
    disk_mb: int
    seconds: None = None
    prompts: bool = True
    money: Data | None = None

    def rows(self) -> list[Row]:
        """All of it in one sentence."""
        prompts = "" if self.prompts else " written, and the prompts"
        flops = "" if self.flops is None else f" and {self.flops:.1e} FLOP"
        worth = "" if not self.money else f", at most {paid(self.money)}" + " without the prompts" * (not self.prompts)
        return [Row("", (
            f"profile of {self.model} on {self.data}: {counted(self.problems, 'problem')}, {self.rollouts:,} rollouts, "
            f"at most {self.tokens:,} tokens{prompts}{flops}, {megabytes(self.memory_mb)} of memory, "
            f"{megabytes(self.disk_mb)} of disk{worth}; the profile itself measures how many seconds that takes here. "
            "Nothing was run"))]



@writes(new=True)
def profile(
    out: Path, setting: Setting, *, seed: int = 0, method: str | None = None, problems: int = PROBLEMS,
    dry_run: bool = False, observer: Observer = SILENT, **served: Any,
) -> ProfileResult | ProfileCost:
    """Start a study in `out` and profile the model on `problems` training problems, or continue a profile that was
    killed. A study that is profiled is not profiled again.

    `method` replaces the recipe that follows from the profile. **served are fields of `Served`, for a model behind a
    server. A dry run loads the model and the problems, writes nothing and returns the cost.

    Raises UserError for a setting that cannot be used, which leaves no study, and where `out` already contains a study
    with different settings, or one whose policy cannot be sampled.
    """
    if method is not None:
        method_of(method, setting)
    server = Served(**served)
    cost = None if server.price is None else TokenPrice.parse(server.price, spec_of(setting.model).name)
    if cost is not None and cost.trained is None and spec_of(setting.model).can(Can.LEARN):
        raise UserError(f"the price {cost.asked!r} has none of trained tokens, and a profile here times two training "
                        f"calls: add it, such as ,0.40{cost.currency}/M-train")
    asked: dict[str, Any] = {"seed": seed, "method": method, "profiled": problems}
    if not spec_of(setting.model).can(Can.LEARN):
        asked["source"] = SERVED.name
    if dry_run:
        return _cost(setting, problems, seed, server.limits, cost)
    restart(out, setting, **asked)
    if (out / "study.json").exists():
        StudyRecord.read(out).source.require(Can.PROFILE, out)
    check(out, setting, **asked)
    if not (out / "profile.json").exists():
        began, kept = time.perf_counter(), out / "profile.jsonl"
        with ExitStack() as timed, observer.counting("profile") as tell:

            def begin() -> None:
                home = found(out, setting, **asked)
                timed.enter_context(home.phase("profile", began))

            sampled = finished(
                pass_rates(setting, seed=seed, problems=problems, method=method, kept=kept, begin=begin, tell=tell,
                           **served)
            )
            if cost is not None:
                spent = Cost.of(sampled["cost"]) + Cost.of(sampled["lost"])
                sent = spent
                if "sent" in sampled:
                    spent += Cost.of(sampled["measuring"])
                    sent = Cost.of(sampled["sent"]) + Cost.of(sampled["lost"])
                sampled["money"] = cost.of(sent, spent.prefill - sent.prefill).data()
            StudyRecord.read(out).write("profile.json", sampled)
    (out / "profile.jsonl").unlink(missing_ok=True)
    return ProfileResult.of(StudyRecord.read(out).record("profile.json", "profile"), out)


def _cost(
    setting: Setting, problems: int, seed: int, limits: RequestLimits, price: TokenPrice | None
) -> ProfileCost:
    """What profiling would cost at most. Loads the problems and the model, and so finds what is wrong with them. The
    tokens of prompts are not known before a server has read them: they are left out there. Of dialogues only the first
    prompt is counted: what is read later depends on the environment."""
    from isocost.tasks.sample import sample
    from isocost.worlds.setting import open_setting

    spec = spec_of(setting.model)
    opened = open_setting(setting, check=True, learn=False, limits=limits)
    world = opened.world
    pool = sample(world.problems, problems, seed)
    counted = spec.reading is not None
    rollouts = SAMPLES * len(pool)
    prefill = SAMPLES * sum(len(world.text.prompt(p.prompt)) for p in pool) if counted else 0
    cost = Cost(rollouts, prefill, rollouts * setting.lengths.max_tokens * (setting.lengths.max_turns or 1))
    size = world.learner.parameters if spec.can(Can.SIZE) else None
    opened.close()
    return ProfileCost(
        model=setting.model, data=setting.problems.data, problems=len(pool), rollouts=rollouts,
        tokens=cost.prefill + cost.decode, flops=None if size is None else cost.flops(size),
        memory_mb=round(500 + 4 * (size or 0) / 1e6), disk_mb=1, prompts=counted,
        money=None if price is None else price.of(cost).data(),
    )
