"""The profile: starts a study, and measures what the model can do on the problems before training."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from isocost.gather import finished
from isocost.runs.source import Can
from isocost.steps.folder import check, found, opened, writes
from isocost.steps.pass_rates import PROBLEMS, SAMPLES, pass_rates
from isocost.steps.results import Profile, ProfileCost
from isocost.steps.settings import method_of
from isocost.types import Cost
from isocost.worlds.setting import Setting


@writes(new=True)
def profile(
    out: Path, setting: Setting, *, seed: int = 0, method: str | None = None, problems: int = PROBLEMS,
    dry_run: bool = False,
) -> Profile | ProfileCost:
    """Start a study in `out` and profile the model on `problems` training problems, or continue a profile that was
    killed. A study that is profiled is not profiled again.

    `method` replaces the recipe that follows from the profile. A dry run loads the model and the problems, writes
    nothing and returns the cost.

    Raises:
        UserError: for a setting that cannot be used, which leaves no study, and where `out` already contains a study
            with different settings, or one whose policy cannot be sampled.
    """
    if method is not None:
        method_of(method, setting)
    if dry_run:
        return _cost(setting, problems, seed)
    if (out / "study.json").exists():
        opened(out).source.require(Can.PROFILE, out)
    check(out, setting, seed=seed, method=method, profiled=problems)
    if not (out / "profile.json").exists():
        began, kept = time.perf_counter(), out / "profile.jsonl"
        with ExitStack() as timed:

            def begin() -> None:
                home = found(out, setting, seed=seed, method=method, profiled=problems)
                timed.enter_context(home.phase("profile", began))

            sampled = finished(
                pass_rates(setting, seed=seed, problems=problems, method=method, kept=kept, begin=begin)
            )
            opened(out).write("profile.json", sampled)
    (out / "profile.jsonl").unlink(missing_ok=True)
    return Profile.of(opened(out).read("profile.json", "profile"), out)


def _cost(setting: Setting, problems: int, seed: int) -> ProfileCost:
    """What profiling would cost at most. Loads the problems and the model, and so finds what is wrong with them."""
    from isocost.tasks.sample import sample
    from isocost.worlds.setting import open_setting

    world = open_setting(setting, check=True).world
    asked = [list(world.text.prompt(p.prompt)) for p in sample(world.problems, problems, seed)]
    rollouts = SAMPLES * len(asked)
    decode, prefill = rollouts * setting.max_tokens, SAMPLES * sum(map(len, asked))
    return ProfileCost(
        model=setting.model,
        data=setting.data,
        problems=len(asked),
        rollouts=rollouts,
        tokens=prefill + decode,
        flops=Cost(prefill=prefill, decode=decode).flops(world.learner.parameters),
        memory_mb=round(500 + 4 * world.learner.parameters / 1e6),
        disk_mb=1,
    )
