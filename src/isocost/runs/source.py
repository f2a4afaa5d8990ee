"""Where the runs of a study come from, and what isocost can do with them.

A step asks whether a source has a capability, never which source it is. A new source is one more value of `Source`,
which `of` finds by what its records hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocost.can import Able, Can
from isocost.errors import UserError
from isocost.screen.words import word


@dataclass(frozen=True)
class Source(Able):
    """A source of runs.

    `name` is the source in one word, and `described` what a message says of a study or run of it. `start` says how a
    study of such runs is made. `lacks` are the capabilities that it does not have, each with the reason and what to do
    instead; the empty text is for a capability that no step requires. In these texts {path} is the folder, as a
    command spells it. `kind` is that of its studies: which planner they are of.
    """

    name: str
    described: str
    start: str
    lacks: Mapping[Can, str]
    kind: str = "training"

    def require(self, capability: Can, path: Path) -> None:
        """Raises UserError for the study or run in `path`, with what to do instead, without the capability."""
        if not self.can(capability):
            raise UserError(f"{path} {self.described}: {self.why(capability).format(path=word(path))}")


@dataclass(frozen=True)
class RunLog:
    """The log of another trainer that a run was read from."""

    name: str = ""
    unit: str = ""          # what its compute is counted in; empty: rollouts
    digest: str = ""        # of its data: the same for the same log
    metric: str | None = None
    kind: str = ""          # whether the metric is of held-out problems or of training
    scale: tuple[float, float] | None = None    # the least and the greatest reward, where they were stated
    says: Mapping[str, Any] = field(default_factory=dict)       # the trainer's own settings

    @staticmethod
    def of(run: Mapping[str, Any]) -> RunLog | None:
        """That of a run.json; None for a run of isocost's own."""
        if "imported" not in run:
            return None
        log = run["imported"] or {}
        metric, scale = log.get("metric") or {}, (log.get("stated") or {}).get("scale")
        return RunLog(
            log.get("name") or "", log.get("unit") or "", log.get("digest") or "", metric.get("name"),
            metric.get("kind") or "", None if scale is None else (float(scale[0]), float(scale[1])),
            (log.get("about") or {}).get("trainer_says") or {},
        )


THEIRS = "its trainer is yours: `isocost export {path} --to ...` writes the prescription as its configuration"

OWN = Source(
    "isocost",
    "was trained by isocost",
    "begin one with `isocost profile --out {path}`, or of a trainer's logs with `isocost import`",
    {},
)
IMPORTED = Source(
    "imported",
    "was imported",
    "import its log again, alone or with the others of its sweep: `isocost import LOG... --study --out STUDY`",
    {
        Can.PROFILE: "logs hold no policy that could be profiled; its law is `isocost fit {path}`. To profile a model, "
                     "choose another --out",
        Can.PILOT: THEIRS,
        Can.TRAIN: THEIRS,
        Can.SEAL: "no forecast of its trainer's run is sealed; bring that run in with `isocost import`, and compare it "
                  "with the interval that `isocost plan {path}` prints",
        Can.STOP: "its runs ended with their logs and cannot be stopped. See `isocost fit {path}` for the end of each "
                  "n, `isocost verdict {path}/runs/NAME` for that of one run",
        Can.EVALUATE: "it holds no policy that could be evaluated",
        Can.BASE: "no log holds the reward of the policy before training (C = 0), which a law needs. Import again with "
                  "--base REWARD; to log it, evaluate at the start (TRL: eval_on_start: true, verl: "
                  "trainer.val_before_train=true); training reward also has one if every step is logged (TRL: "
                  "logging_steps: 1)",
        Can.SPLITS: "",
        Can.METRICS: "its records hold one number of each evaluation; to fit another, import the logs again with "
                     "--map held_out=COLUMN",
        Can.RECIPE: "",
    },
    kind="imported",
)

DRIVEN = Source(
    "driven",
    "is trained by a trainer of yours",
    "begin one with `isocost profile --trainer ... --out {path}`",
    {
        Can.PROFILE: "its policies are your trainer's, and isocost samples none; its first evaluation is in "
                     "{path}/trainer.json. To profile a model, choose another --out",
        Can.EVALUATE: "its checkpoints are your trainer's: evaluate them there",
        Can.SPLITS: "",
        Can.METRICS: "its records hold one number of each evaluation; to fit another, begin a study with "
                     "--map held_out=COLUMN",
        Can.RECIPE: "",
        Can.SAMPLING: "",
    },
)


_ELSEWHERE = (
    "the runs that `isocost plan {path}` lists are for a trainer of yours; import their logs with "
    "`isocost import LOG... --study --out STUDY`, and plan the training from that study"
)
_NO_POLICY = {
    Can.PILOT: f"{{missing}}: {_ELSEWHERE}",
    Can.TRAIN: f"{{missing}}: {_ELSEWHERE}",
    Can.SEAL: "its training is not run here, so no forecast of it is sealed",
    Can.STOP: "it has no runs here that could be stopped",
    Can.EVALUATE: "it has no runs, and so no final policy that could be evaluated",
}
SERVED = Source(
    "served",
    "is of a model behind a server, which can only be sampled",
    "begin one with `isocost profile --model openai:URL#MODEL --out {path}`",
    {k: v.replace("{missing}", "its server trains nothing") for k, v in _NO_POLICY.items()},
)
STORED = Source(
    "stored",
    "was made of stored completions",
    "begin one with `isocost profile --completions FILE --out {path}`",
    {Can.PROFILE: "it has no model that could be sampled. To profile other completions, choose another --out",
     **{k: v.replace("{missing}", "it has no model that could be trained") for k, v in _NO_POLICY.items()}},
)
_NO_RUNS = "its policy is not trained: `isocost plan {path}` chooses a strategy. To train, choose another --out"
STRATEGIES = Source(
    "strategies",
    "compares test-time strategies",
    "begin one with `isocost profile --strategies all --out {path}`, and --completions or a model",
    {**dict.fromkeys((Can.PILOT, Can.TRAIN, Can.STOP, Can.RECIPE, Can.SPLITS, Can.METRICS), _NO_RUNS),
     Can.PROFILE: "its samples are in {path}/pool.jsonl. To profile others, choose another --out",
     Can.EVALUATE: "it has no runs, and so no final policy that could be evaluated"},
    kind="test_time",
)
_OF_CONTROL = {
    Can.STOP: "its runs are short and have no verdict while they train",
    Can.EVALUATE: "its returns are in its records: `isocost report {path}`",
    Can.BASE: "", Can.SPLITS: "", Can.METRICS: "its laws are of the return", Can.RECIPE: "", Can.SAMPLING: "",
}
CONTROL = Source(
    "control",
    "is of value-based control",
    "begin one with `isocost profile --control TASK --out {path}`",
    _OF_CONTROL,
    kind="control",
)
CONTROL_LOGS = Source(
    "control logs",
    "was made of logs of value-based control",
    "begin one with `isocost import LOG... --control TASK --out {path}`",
    {**_OF_CONTROL, Can.PROFILE: "logs hold no task that could be profiled; its law is `isocost fit {path}`",
     Can.PILOT: THEIRS, Can.TRAIN: THEIRS,
     Can.SEAL: "the run is your trainer's, so no forecast of it is sealed: compare it with the interval that `isocost "
               "plan {path}` prints"},
    kind="control",
)
_NAMED = {source.name: source for source in (SERVED, STORED, STRATEGIES, CONTROL, CONTROL_LOGS)}


def of(record: Mapping[str, Any]) -> Source:
    """The source of a study or run, by its study.json or run.json."""
    if record.get("trainer"):
        return DRIVEN
    if record.get("imported"):
        return IMPORTED
    return _NAMED.get(str(record.get("source") or ""), OWN)
