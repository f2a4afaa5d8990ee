"""The profile: starts a study, and measures what the model can do on the problems before training."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from isocost.gather import finished
from isocost.planner.token_price import TokenPrice
from isocost.runs.source import SERVED, Can
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import check, found, restart, writes
from isocost.steps.pass_rates import PROBLEMS, SAMPLES, pass_rates
from isocost.steps.results import Profile, ProfileCost
from isocost.steps.settings import method_of
from isocost.steps.study import Study
from isocost.types import Cost
from isocost.worlds.http import Limits
from isocost.worlds.setting import Setting
from isocost.worlds.spec import Ability, spec_of


@writes(new=True)
def profile(
    out: Path, setting: Setting, *, seed: int = 0, method: str | None = None, problems: int = PROBLEMS,
    dry_run: bool = False, parameters: float | None = None, price: str | None = None, limits: Limits = Limits(),
    observer: Observer = SILENT,
) -> Profile | ProfileCost:
    """Start a study in `out` and profile the model on `problems` training problems, or continue a profile that was
    killed. A study that is profiled is not profiled again.

    `method` replaces the recipe that follows from the profile. For a model behind a server: `parameters` is its size,
    `price` what its tokens cost ("0.15usd/M-input,0.60usd/M-output"), `limits` how it is asked. A dry run loads the
    model and the problems, writes nothing and returns the cost.

    Raises:
        UserError: for a setting that cannot be used, which leaves no study, and where `out` already contains a study
            with different settings, or one whose policy cannot be sampled.
    """
    if method is not None:
        method_of(method, setting)
    cost = None if price is None else TokenPrice.parse(price)
    asked: dict[str, Any] = {"seed": seed, "method": method, "profiled": problems}
    if not spec_of(setting.model).can(Ability.LEARN):
        asked["source"] = SERVED.name
    if dry_run:
        return _cost(setting, problems, seed, limits, cost)
    restart(out, setting, **asked)
    if (out / "study.json").exists():
        Study.read(out).source.require(Can.PROFILE, out)
    check(out, setting, **asked)
    if not (out / "profile.json").exists():
        began, kept = time.perf_counter(), out / "profile.jsonl"
        with ExitStack() as timed, observer.counting("profile") as tell:

            def begin() -> None:
                home = found(out, setting, **asked)
                timed.enter_context(home.phase("profile", began))

            sampled = finished(
                pass_rates(setting, seed=seed, problems=problems, method=method, kept=kept, begin=begin,
                           limits=limits, parameters=parameters, tell=tell)
            )
            if cost is not None:
                spent = Cost.of(sampled["cost"]) + Cost.of(sampled["lost"])
                sampled["money"] = cost.of(spent).data()
            Study.read(out).write("profile.json", sampled)
    (out / "profile.jsonl").unlink(missing_ok=True)
    return Profile.of(Study.read(out).record("profile.json", "profile"), out)


def _cost(
    setting: Setting, problems: int, seed: int, limits: Limits, price: TokenPrice | None
) -> ProfileCost:
    """What profiling would cost at most. Loads the problems and the model, and so finds what is wrong with them.

    The tokens of prompts are not known before a server has read them: they are left out there. Of dialogues only the
    first prompt is counted: what is read later depends on the environment.
    """
    from isocost.tasks.sample import sample
    from isocost.worlds.setting import open_setting

    spec = spec_of(setting.model)
    opened = open_setting(setting, check=True, learn=False, limits=limits)
    world = opened.world
    pool = sample(world.problems, problems, seed)
    counted = spec.can(Ability.CONTEXT)
    rollouts = SAMPLES * len(pool)
    prefill = SAMPLES * sum(len(world.text.prompt(p.prompt)) for p in pool) if counted else 0
    cost = Cost(rollouts, prefill, rollouts * setting.max_tokens * (setting.max_turns or 1))
    size = world.learner.parameters if spec.can(Ability.SIZE) else None
    opened.close()
    return ProfileCost(
        model=setting.model,
        data=setting.data,
        problems=len(pool),
        rollouts=rollouts,
        tokens=cost.prefill + cost.decode,
        flops=None if size is None else cost.flops(size),
        memory_mb=round(500 + 4 * (size or 0) / 1e6),
        disk_mb=1,
        prompts=counted,
        money=None if price is None else price.of(cost).data(),
    )
