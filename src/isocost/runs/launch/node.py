"""One attempt of a run on a node of a cluster: the task and its result are JSON, and the run's folder has the rest.

This module imports torch only when a task runs, after the environment is set.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocost.runs.job import Job

ENDED, AGAIN, USER, SYSTEM, BUG = "ended", "again", "user error", "system error", "bug"  # how an attempt came out


def task_of(job: Job, run: Path, attempt: int) -> str:
    """The task of one attempt of a job in the folder `run`, which must be at the same path on every node."""
    from isocost.disk.jsonfile import plain
    from isocost.runs.files import code

    where = {"run": str(run.resolve()), "home": str(Path.cwd()), "attempt": attempt, "code": code()}
    return json.dumps({"job": job.to_dict(), **where}, default=plain)


def attempt(task: str) -> str:
    """Run one attempt; returns JSON: `kind` (a constant of this module), `reason` or `text`, and `said`, its log."""
    asked = json.loads(task)
    os.environ["OMP_NUM_THREADS"] = str(asked["job"]["setting"]["threads"])
    os.environ["OMP_WAIT_POLICY"] = "passive"
    with _kept_log() as said:
        found = _found(asked)
    return json.dumps({**found, "said": said, "node": platform.node()})


def _found(asked: Mapping[str, Any]) -> dict[str, Any]:
    from isocost.disk.lock import Held
    from isocost.errors import UserError
    from isocost.gather import finished
    from isocost.runs.attempts import Superseded
    from isocost.runs.job import Job
    from isocost.runs.run import run

    try:
        _require_same(asked)
        os.chdir(asked["home"])     # a reward or data file may be named from there
        end = finished(run(Job.of(asked["job"]), Path(asked["run"]), attempt=asked["attempt"]))
        return {"kind": ENDED, "reason": end["reason"], "detail": end["detail"]}
    except (Superseded, Held) as e:
        return {"kind": AGAIN, "text": str(e)}
    except UserError as e:
        return {"kind": USER, "text": str(e)}
    except OSError as e:
        return {"kind": SYSTEM, "text": e.strerror or str(e), "errno": e.errno, "file": e.filename and str(e.filename)}
    except Exception:
        return {"kind": BUG, "text": traceback.format_exc()}


def _require_same(asked: Mapping[str, Any]) -> None:
    """Raises UserError if this node lacks the run's folder, the working directory, or has other sources of isocost."""
    from isocost.errors import UserError
    from isocost.runs.attempts import FILE
    from isocost.runs.files import code

    for path in (Path(asked["run"], FILE), Path(asked["home"])):
        if not path.exists():
            raise UserError(f"the node {platform.node()} has no {path}: runs on a cluster need a file system that "
                            "every node mounts at the same path; put the study and what it reads there")
    if (own := code()) != asked["code"]:
        here, there = (f"{c['version']} ({c['sources']})" for c in (own, asked["code"]))
        raise UserError(f"the node {platform.node()} has isocost {here} and this machine {there}: install the same one "
                        "on every node")


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def _kept_log() -> Iterator[list[str]]:
    """What the package logs in this block, for the process that started the task to show."""
    log, handler = logging.getLogger("isocost"), _Kept()
    log.addHandler(handler)
    try:
        yield handler.said
    finally:
        log.removeHandler(handler)
