"""Studies from Python: `isocost.open(folder)` and `isocost.study(model=..., data=..., out=...)`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.runs.launch.site import HERE, Site
from isocost.screen.display import Result, write_report
from isocost.steps import kinds
from isocost.steps import study as on_disk
from isocost.steps.events import Observer, default
from isocost.steps.look.export import ExportResult, export
from isocost.steps.look.verdict import Verdicts, verdict
from isocost.steps.outside.early import NEVER, Stops
from isocost.steps.settings import setting_with
from isocost.steps.training.fit import fit
from isocost.steps.training.pass_rates import PROBLEMS
from isocost.steps.training.pilot import Additions, pilot
from isocost.steps.training.profile import ProfileCost, ProfileResult, profile
from isocost.steps.training.train import train
from isocost.worlds.setting import Setting


class Study(Result):
    """A study: a folder, and the steps profile, plan, pilot, fit, plan, train, audit, report.

    Each step reads what the ones before it wrote, returns its result, and writes it to the folder. A finished step
    is not repeated; the same call continues one that was stopped. Steps raise `isocost.errors.UserError` with a
    message that names the mistake and its fix. They print nothing: an `observer`
    (`isocost.steps.events.Observer`) receives warnings, intermediate results and running jobs.
    """

    def __init__(
        self, path: Path, setting: Setting | None = None, *, seed: int = 0, method: str | None = None,
        problems: int = PROBLEMS, observer: Observer | None = None,
    ):
        self.path = path
        self.observer = default() if observer is None else observer
        self._setting, self._seed, self._method, self._problems = setting, seed, method, problems

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r})"

    @property
    def _read(self) -> on_disk.StudyRecord:
        """The study as its folder holds it now. Raises UserError before the profile."""
        return on_disk.StudyRecord.read(self.path)

    def to_dict(self) -> dict[str, Any]:
        """study.json: the settings, and seconds of wall-clock time by phase. Raises UserError before the profile."""
        return self._read.asked

    def profile(self, *, dry_run: bool = False) -> ProfileResult | ProfileCost:
        """Measure what the model can do on the problems. The first step: it creates the study's folder."""
        setting, seed, method, problems = self._setting, self._seed, self._method, self._problems
        if setting is None:
            there = self._read
            if there.has("profile.json"):
                return ProfileResult.of(there.record("profile.json", "profile"), self.path)
            there.source.require(Can.PROFILE, there.path)
            asked = there.asked
            setting, seed, method, problems = there.setting, asked["seed"], asked["method"], asked["profiled"]
        return profile(self.path, setting, seed=seed, method=method, problems=problems, dry_run=dry_run,
                       observer=self.observer)

    def plan(self, budget: str | None = None, **options: Any) -> Any:
        """Before there is a law, the pilot's plan; after, the prescription. `budget` is what pilot and training may
        spend, with a unit ("2h", "50k-rollouts"); `isocost.steps.training.plans.PlanOptions` has the options.

        A study of another kind is planned by its own planner, with the options of that (`isocost.steps.kinds`)."""
        return kinds.plan(self._read, {"budget": budget, **options})

    def pilot(
        self, *, workers: int | None = None, dry_run: bool = False, longer: Sequence[str] = (),
        seeds: Sequence[str] = (), turns: int | None = None, site: Site = HERE, worth: float | None = None,
        stop_at: str | None = None,
    ) -> Any:
        """Run the planned pilot, in processes of its own or where `site` says. `longer=["4=4x"]` and `seeds=["8=2"]`
        add runs to it, at the turn limit `turns` or at all that it compares. Runs of a user's trainer are ended once
        the rest of them is unlikely to gain `worth`; all are ended at the amount `stop_at` ("40usd", "2h")."""
        added, stops = Additions(longer, seeds, turns), Stops(worth, at=stop_at)
        if own := self._own("pilot", not added and site is HERE and stops == NEVER):
            return own(self._read, workers=workers, dry_run=dry_run, observer=self.observer)
        return pilot(self._read, added, workers=workers, dry_run=dry_run, site=site, stops=stops,
                     observer=self.observer)

    def fit(self, *, metric: str | None = None) -> Any:
        """Fit the law to the pilot's runs. `refused` of a law says why it is not identified."""
        if own := self._own("fit", metric is None):
            return own(self._read)
        return fit(self._read, metric=metric)

    def train(
        self, *, workers: int | None = None, dry_run: bool = False, site: Site = HERE, stops: Stops = NEVER,
    ) -> Any:
        """Seal the forecast, then train the prescription and its comparator, in processes of their own or where
        `site` says. `stops` says when runs are ended early."""
        if own := self._own("train", site is HERE and stops == NEVER):
            return own(self._read, workers=workers, dry_run=dry_run, observer=self.observer)
        return train(self._read, workers=workers, dry_run=dry_run, site=site, stops=stops, observer=self.observer)

    def _own(self, step: str, plain: bool) -> Any:
        """The step that studies of this kind have for themselves, or None; `plain`: without options of training."""
        return kinds.own_step(self._read, step, {} if plain else {step: f"an option of training's {step}"}, ())

    def audit(self) -> Any:
        """Compare the sealed forecast with the outcome."""
        return kinds.audit(self._read)

    def verdict(self, *, target: float | None = None, worth: float | None = None) -> Verdicts:
        """Advice on the trained runs while they train: continue, stop, or change n. It stops nothing. `target` is the
        held-out reward wanted at the end, by default the forecast's lower bound; `worth` is the gain below which the
        rest of a run is not worth its cost."""
        return verdict(self.path, target=target, worth=worth)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report as one HTML file and return its path, by default report.html in the study's folder."""
        return write_report(self.path, None if out is None else Path(out))

    def export(self, to: str | None = None) -> ExportResult:
        """The prescription as another trainer's configuration: trl, verl, prime-rl, nemo-rl, skyrl or openrlhf."""
        return export(self._read, to)

    def runs(self) -> Any:
        """One row for each run: purpose, n, B, lr, seed, rollouts, first and last held-out reward, why it ended. A
        pandas frame where pandas is installed, else a list of dicts."""
        from isocost.steps.look.listing import list_folder

        rows = list_folder(self.path).to_dict()
        found = [{k: v for k, v in row.items() if k != "kind"} for row in rows if row["kind"] == "run"]
        if find_spec("pandas") is None:
            return found
        import pandas

        return pandas.DataFrame(found)


def study(
    *, model: str | None = None, data: str | None = None, out: str | Path, seed: int = 0, method: str | None = None,
    problems: int = PROBLEMS, observer: Observer | None = None, **settings: Any,
) -> Study:
    """A study of a model on a data set in the folder `out`. Nothing is read or written before its first step,
    `profile()`; if `out` already contains the study, the steps continue it.

    model: "tiny", "tiny-puzzles", "tiny-agents", "smollm2", or a Hugging Face folder; by default the one that was
    taught the data or the environment, else "tiny". data: as the option --data of the commands, by default
    "sums:level=1".
    seed: of every run and every interval. method: replaces the recipe that the profile chooses.
    problems: how many are profiled, 16 completions each. settings: as the commands' options, with `_` for `-`:
    verifier, truth, held_out, held_out_data, limit, skip_broken, system, temperature, top_p, top_k, max_tokens,
    samples, device, dtype, kernels, threads, in_turns, witness, env, max_turns. observer: receives progress and
    warnings; by default they are printed in IPython and nowhere else.

    Raises UserError for a setting of another name. A value that cannot be used is an error of the first step.
    """
    setting = setting_with(model=model, data=data, **settings)
    return Study(Path(out), setting, seed=seed, method=method, problems=problems, observer=observer)


def open(path: str | Path, *, observer: Observer | None = None) -> Study:
    """The study in a folder that `isocost profile`, `isocost import` or `isocost.study` made. Raises UserError where
    there is none."""
    return Study(on_disk.StudyRecord.read(path).path, observer=observer)
