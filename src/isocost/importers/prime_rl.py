"""prime-rl (0.8): `metrics.jsonl` of the orchestrator's file monitor, which is on by default.

One row per step and one per evaluation: {"step": ..., "time": ..., metrics}. `progress/rollouts` counts all rollouts
that came home in a step, before any filter, so C is counted. Training reward is `train/agg/all/AGENT/reward/mean`, of
all that came home; held-out reward `eval/ENV/effective/AGENT/avg@k`, of those without an error. Training is
asynchronous: the policy of an evaluation is its `policy_version`, the number of updates it had; training reward at
step s is of a policy with s - 1 updates or a few fewer. n, B and learning rate are in `configs/rl.json` beside it, or
in the TOML file that was launched.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.importers import Log
from isocost.importers._files import head, json_of, json_rows, metrics_file
from isocost.importers._names import PRIME_RL, facts_of, logs_of

TITLE = "prime-rl metrics.jsonl"
GIVES = "training and held-out reward, steps, rollouts before filtering, seconds; n, B and rate from its configuration"
LACKS = "seed; a second held-out half; how old each rollout was"
UNCOUNTED = f"the log has no {PRIME_RL.per_step}, and C is steps x n x B"
PLACES = ("metrics.jsonl", "orchestrator/metrics.jsonl")


def recognise(path: Path) -> bool:
    found = metrics_file(path, PLACES)
    if found is None:
        return False
    text = head(found)
    return text.startswith("{") and ('"train/agg/' in text or '"progress/total_rollouts"' in text)


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = metrics_file(path, PLACES)
    if found is None:
        raise UserError(f"{path} holds no metrics.jsonl; prime-rl's file monitor writes it into the output folder")
    rows, missing = json_rows(found)
    folder = found.parent
    configs = [p for p in (folder / "configs" / "rl.json", folder / "rl.toml") if p.is_file()][:1]
    facts, about = facts_of(_config(configs))
    missing.append("how old each rollout was: training is asynchronous, and its reward is placed at steps - 1")
    return logs_of(
        "prime-rl",
        found,
        [found, *configs],
        rows,
        PRIME_RL,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        uncounted="" if any(PRIME_RL.per_step in row for row in rows) else UNCOUNTED,
        name=folder.resolve().name if path.is_dir() else None,
    )


def _config(paths: list[Path]) -> dict[str, Any]:
    """The options of a run, from what prime-rl resolved them to or from the file that was launched."""
    for path in paths:
        if path.suffix == ".json":
            found = json_of(path)
            return found if isinstance(found, dict) else {}
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as e:
            raise UserError(f"{path} is not TOML: {e}") from None
    return {}
