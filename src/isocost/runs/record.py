"""One directory per run: its job, its metrics, its timing, and the checkpoints to resume from.

    run.json        the job: recipe with all defaults, arm, budget, seed, code, machine, seal
    metrics.jsonl   one line per step and per evaluation; determined by the seed       } truncated to the checkpoint's
    journal.jsonl   the ledger: one line per group, with every rollout's fate          } offsets on resume, so that
    samples.jsonl   some of the completions                                            } they end equal byte for byte
    timing.jsonl    wall-clock seconds, rates, memory
    paid-L-S.jsonl  costs since checkpoint S in the run's L-th process, written as they are charged
    lost.jsonl      one line per killed process: the cost of the work that was lost
    attempts.jsonl  of a run on a cluster: one line per attempt (isocost.runs.attempts)
    checkpoints/    step-XXXXXX/{learner.safetensors, state.json}; the last two, or as many as the job keeps
    end.json        why it ended, the bill by account, the fates

Safetensors and JSON only; nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from isocost import processor
from isocost.disk import jsonfile
from isocost.disk.lock import PATIENCE, locked
from isocost.errors import UserError
from isocost.local.weights import read_tensors, save_tensors
from isocost.meter import LOST, Meter, Payer
from isocost.runs import schema
from isocost.runs.attempts import Fence, fence_of, own
from isocost.runs.files import SCHEMA, Line, Stream, file_hash, no_link, read_json, read_lines
from isocost.runs.schema import STREAMS
from isocost.types import Cost
from isocost.world import About, Learner

KEEP = 2  # checkpoints kept: if the last is damaged, the one before is used
PATIENCE_LINES = 0.1   # seconds that a line of a stream waits for later ones, at most
MOMENT = 0.001   # seconds of charges of time alone that wait to be written: a kill loses less than that
TAKEOVER = 60.0  # seconds that an attempt waits for the lock: the one before it stops at its next step


@dataclass
class RunRecord:
    """A run's directory, open for writing by one process."""

    path: Path
    life: int = 0
    streams: dict[str, Stream] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # messages for the user, such as a damaged checkpoint
    fence: Fence | None = None  # of one attempt among several
    kept: int = KEEP        # the last checkpoints, at most
    _paid: Stream | None = None
    _moments: float = 0.0       # seconds of the charges that wait
    _syncing: ThreadPoolExecutor | None = None

    @classmethod
    @contextmanager
    def opened(cls, path: Path, attempt: int | None = None, kept: int = KEEP) -> Iterator[RunRecord]:
        """Lock the directory and open its streams; for an `attempt`, if it is the latest (`isocost.runs.attempts`).

        Raises UserError if another process holds it, or if something in it is a symbolic link: a copied run could
        have links in place of its files, and their targets would be overwritten; Superseded for an earlier attempt.
        """
        fence = fence_of(path, attempt)
        with locked(path, TAKEOVER if fence else PATIENCE):
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    no_link(Path(folder, name))
            if fence:
                fence.check()
                own(path / name for name in STREAMS)
            record = cls(path, life=len(read_lines(path / "lost.jsonl")), fence=fence, kept=kept)
            record.streams = {name: Stream(path / name, PATIENCE_LINES) for name in STREAMS}
            try:
                yield record
            finally:
                with ExitStack() as closing:        # all of them, also where the disk is full for the lines of one
                    for stream in [*record.streams.values(), *([record._paid] if record._paid else [])]:
                        closing.callback(stream.close)
                    if record._syncing is not None:
                        closing.callback(record._syncing.shutdown)

    def write(self, name: str, *lines: Line) -> None:
        self.check()
        self.streams[name].write(*lines)

    def flush(self) -> None:
        """Write the lines that wait, for those who read along."""
        for stream in self.streams.values():
            stream.flush()

    def size(self, name: str) -> int:
        """Bytes that a stream has now; after a resume, those that it had at the checkpoint."""
        return self.streams[name].offset()

    def check(self) -> None:
        """Raises Superseded if a later attempt of the run has been started."""
        if self.fence is not None:
            self.fence.check()

    # checkpoints ----------------------------------------------------------------------------------------------

    def save(self, step: int, learner: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """A checkpoint: files written under a temporary name, synced with all streams, then renamed."""
        home = self.path / "checkpoints"
        temporary, final = home / f".step-{step:06d}.tmp", home / f"step-{step:06d}"
        _remove(temporary)
        temporary.mkdir(parents=True)
        weights, described = temporary / "learner.safetensors", temporary / "state.json"
        save_tensors(learner, weights)
        whole = {
            **state,
            "schema": SCHEMA,
            "step": step,
            "offsets": (offsets := {name: s.offset() for name, s in self.streams.items()}),
            "checksums": {name: s.checksum(offsets[name]) for name, s in self.streams.items()},
            "sha256": file_hash(weights),
        }
        described.write_text(jsonfile.page(whole) + "\n")
        self._sync(weights, described, *(s.path for s in self.streams.values()))
        self.check()
        _remove(final)
        os.rename(temporary, final)
        _sync(home)
        self.check()        # a later attempt counts its own checkpoints and costs
        broken = (name for name in os.listdir(home) if name.startswith(".step-") and name.endswith(".broken"))
        for old in (*self.checkpoints()[:-self.kept], *(home / name for name in broken)):
            _remove(old)
        self._remove_paid()
        self.pay_since(step)

    def checkpoints(self) -> list[Path]:
        """Their folders, in order of step."""
        home = self.path / "checkpoints"
        names = [name for name in os.listdir(home) if name.startswith("step-")] if home.is_dir() else []
        return [home / name for name in sorted(names, key=_step)]       # from a million on, names have another order

    def _sync(self, *paths: Path) -> None:
        """Sync files to disk in parallel: a file system commits concurrent requests together, several times as fast."""
        if self._syncing is None:
            self._syncing = ThreadPoolExecutor(len(paths))
        list(self._syncing.map(_sync, paths))

    def restore(self, meter: Meter) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest whole checkpoint, with every stream truncated to it and lost work charged; None if there is none.

        The cost of work after the checkpoint goes to the account `lost` of the meter and to lost.jsonl. Raises
        UserError, with nothing changed, if a stream is shorter than it was at the checkpoint, or other bytes are in it.
        """
        found = next((c for c in map(self._whole, reversed(self.checkpoints())) if c and self._reaches(c[1])), None)
        state: dict[str, Any] = found[1] if found else {"step": 0, "offsets": dict.fromkeys(STREAMS, 0)}
        for name, stream in self.streams.items():
            if (size := stream.offset()) < state["offsets"][name]:
                raise UserError(f"{stream.path} has {size:,} bytes, and had {state['offsets'][name]:,} at checkpoint "
                                f"{state['step']}: lines are missing; {schema.remedy(stream.path)}")
            if not self._as_saved(name, state):
                raise UserError(f"{stream.path} is damaged: its first {state['offsets'][name]:,} bytes are not those "
                                f"of checkpoint {state['step']}; {schema.remedy(stream.path)}")
        self._record_lost(state["step"])
        for name, stream in self.streams.items():
            stream.cut(state["offsets"][name])
        if found:
            meter.restore(state["meter"])
        meter.forget(LOST)
        for line in read_lines(self.path / "lost.jsonl"):
            cost = Cost(**line["cost"])
            meter.charge(cost._replace(rollouts=0), to=Payer(LOST, begins=True), started=cost.rollouts)
        return found

    def _reaches(self, state: Mapping[str, Any]) -> bool:
        """Whether the streams reach this checkpoint. Of several attempts, a superseded one may have saved it last."""
        return self.fence is None or all(
            s.offset() >= state["offsets"][name] and self._as_saved(name, state) for name, s in self.streams.items())

    def _as_saved(self, name: str, state: Mapping[str, Any]) -> bool:
        """Whether a stream begins with the bytes that it had at a checkpoint; older versions saved no checksum."""
        sums = state.get("checksums", {})
        return name not in sums or self.streams[name].checksum(state["offsets"][name]) == sums[name]

    def _whole(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        try:
            state = read_json(path / "state.json", schema.STATE)
            data = (path / "learner.safetensors").read_bytes()
            if hashlib.sha256(data).hexdigest() != state["sha256"]:
                raise ValueError("its weights do not match their checksum")
            return read_tensors(path / "learner.safetensors"), state
        except (OSError, ValueError, SafetensorError, UserError) as e:
            self.notes.append(f"checkpoint {path.name} is not whole ({e}); falling back to the one before")
            aside = path.with_name(f".{path.name}.broken")      # until the next checkpoint is written
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            return None

    # paid and lost --------------------------------------------------------------------------------------------

    def pay_since(self, step: int) -> None:
        """Start the file that `paid` writes to: costs since this checkpoint, in this process."""
        if self._paid:
            self._paid.close()
            self._moments = 0.0
        self._paid = Stream(self.path / f"paid-{self.life:03d}-{step:06d}.jsonl")

    def paid(self, account: str, cost: Cost) -> None:
        """Record a charge at once, so that a kill loses none; charges of time alone wait, up to `MOMENT` in total."""
        if self._paid is None:
            return
        self._moments += cost.seconds
        if self._moments < MOMENT and not any(cost[:_SECONDS]) and not cost.reread:
            self._paid.wait(_charge(account, cost))
        else:
            self._paid.append(_charge(account, cost))
            self._moments = 0.0

    def _record_lost(self, step: int) -> None:
        """Record the cost of the lost work after `step` in lost.jsonl, and increment `life`."""
        files = sorted(self.path.glob(f"paid-{self.life:03d}-*.jsonl"))
        since = [f for f in files if _step(f.stem) >= step]
        cost = sum((Cost(*line[1:]) for f in since for line in read_lines(f)), Cost())
        if cost != Cost():
            with closing(Stream.mended(self.path / "lost.jsonl")) as lost:
                lost.write({"life": self.life, "step": step, "cost": cost.data()})
                lost.sync()
            self.life += 1
        for f in self.path.glob("paid-*.jsonl"):
            f.unlink()

    def _remove_paid(self) -> None:
        """Remove costs from before the oldest checkpoint: that checkpoint's totals include them."""
        kept = [_step(c.name) for c in self.checkpoints()[-KEEP:]]      # the others are not resumed from
        of_mine = f"paid-{self.life:03d}-"
        for name in os.listdir(self.path) if kept else ():
            before, _, after = name.partition(".")
            if before.startswith(of_mine) and after == "jsonl" and (len(kept) == 1 or _step(before) < min(kept)):
                os.unlink(self.path / name)


_SECONDS = Cost._fields.index("seconds")      # counts are before it, and `reread` after it
_CHARGE = f'["%s", {", ".join(["%s"] * len(Cost._fields))}]'


def _charge(account: str, cost: Cost) -> str:
    """A line of JSON, made without its encoder: three for each step. Seconds are finite, and accounts plain names."""
    *counts, seconds, reread = cost
    return _CHARGE % (account, *counts, round(seconds, 6), reread)


def _step(name: str) -> int:
    """The step at the end of the name of a checkpoint, or of a file of costs."""
    return int(name.rpartition("-")[2])


def _remove(folder: Path) -> None:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    try:
        for name in names:
            os.unlink(folder / name)
        os.rmdir(folder)
    except OSError:         # something else is in it
        shutil.rmtree(folder)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def model_of(name: str, learner: Learner) -> dict[str, Any]:
    """A run's model; `learned` counts what an adapter trains, absent where all weights are trained."""
    adapter = {"learned": learner.learned} if learner.learned != learner.parameters else {}
    return {"name": name, "parameters": learner.parameters, **adapter}


def machine(threads: int, about: About) -> dict[str, Any]:
    """What a run's bytes and seconds depend on."""
    known = {k: getattr(about, k) for k in ("dtype", "kernels", "kernels_why", "batch_dependent", "service")}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": processor.name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": about.device,
        **{k: v for k, v in known.items() if v},
        "gpu": torch.cuda.get_device_name() if about.device.startswith("cuda") else None,
        "byteorder": sys.byteorder,
    }
