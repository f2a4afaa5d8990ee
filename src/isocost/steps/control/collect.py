"""A set of transitions for offline methods, made on a task by a stated mixture of behaviours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.screen.display import Result, Row
from isocost.screen.words import grouped
from isocost.steps.events import SILENT, Observer


@dataclass(frozen=True)
class CollectedSet(Result):
    """Where a set is, its card, and a method that learns from it; empty if no built-in one does."""

    path: str
    card: Mapping[str, Any]
    method: str = "iql"

    def rows(self) -> list[Row]:
        """Its size, who made it with which return, and how it is used."""
        card = self.card
        spread = card["return"]
        return [
            Row("set", f"{grouped(card['transitions'])} transitions of {grouped(card['trajectories'])} trajectories on "
                       f"{card['task']}: {grouped(card['terminal'])} ended, {grouped(card['cut'])} were cut"),
            *(Row("made by", f"{name}: {grouped(x['trajectories'])} trajectories, mean return {x['return']:.4g}")
              for name, x in card["behaviours"].items()),
            Row("return", f"mean {spread['mean']:.4g}, sd {spread['sd']:.3g}, from {spread['least']:.4g} to "
                          f"{spread['most']:.4g}"),
            Row("cost", f"{grouped(card['cost']['env_steps'])} env-steps, {card['cost']['flop']:.3g} FLOP of policies' "
                        "actions"),
            Row("hash", card["hash"][:12]),
            Row("", "no built-in method learns discrete actions from a set: name a file of your own", "flag")
            if not self.method else
            Row("next", f"isocost train {self.method} --control {card['task']} --offline "
                        f"{self.path} --budget 20k-updates", "command"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The card, and the path."""
        return {"path": self.path, **self.card}


def collect_set(
    task: str, *, shares: Sequence[str] = (), steps: int = 20_000, seed: int = 0, out: Path | None = None,
    target: str = "parquet", observer: Observer = SILENT,
) -> CollectedSet:
    """Make a set of at least `steps` transitions in `out`. `shares` are texts such as "random=0.95" or "runs/expert".
    `target` is "parquet", a file, or "minari", a folder. Raises UserError for a task, a behaviour or shares that cannot
    be used, and for a file that is there already with other transitions."""
    from isocost.control.data import make, read, write
    from isocost.control.minari_sets import read_minari, write_minari
    from isocost.control.tasks import open_task
    from isocost.runs.control import MINARI, load_policy

    opened, wanted = open_task(task), _shares(shares)
    policies = {name: load_policy(name) for name in wanted if (Path(name) / "run.json").exists()}
    if other := next((n for n, p in policies.items() if p.task.name != opened.name), None):
        raise UserError(f"{other} was trained on {policies[other].task.name}, not on {opened.name}")
    minari, name = target == "minari", f"{task.replace(':', '-').replace('/', '-')}-{seed}"
    path = out or Path("data") / (f"{name}-v0" if minari else f"{name}.parquet")
    with observer.counting("collect") as tell:
        made = make(opened, wanted, steps, seed, policies, lambda many: tell("transitions", min(many, steps), steps))
    if not path.exists():
        write_minari(made, opened, path) if minari else write(made, opened.space, path)
    elif (read_minari(str(path), opened) if minari else read(path, opened)).card["hash"] != made.card["hash"]:
        raise UserError(f"{path} holds another set; choose another --out")
    method = "" if opened.space.discrete else "bpp" if opened.space.frames else "iql"
    return CollectedSet(f"{MINARI * minari}{path}", made.card, method)


def _shares(texts: Sequence[str]) -> dict[str, float]:
    """By behaviour. Those without a share have equal parts of what the others leave."""
    parts = [text.rpartition("=") if "=" in text else (text, "", "") for text in texts or ("random",)]
    try:
        given = {name: float(share) if share else None for name, _, share in parts}
    except ValueError:
        raise UserError(f"--by {' '.join(texts)}: expected BEHAVIOUR or BEHAVIOUR=SHARE, such as random=0.95") from None
    shares = [share for share in given.values() if share is not None]
    rest = (1 - sum(shares)) / max(len(given) - len(shares), 1)
    return {name: rest if share is None else share for name, share in given.items()}
