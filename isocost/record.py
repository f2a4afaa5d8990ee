"""One directory per run: what a run was asked, what its seed determined, what its clock did, and how to go on with it.

    run.json        what was asked: recipe with every default bound, arm, budget, seed, code, machine, seal
    metrics.jsonl   what the seed determines: one line per step and per evaluation     } cut back to the checkpoint's
    journal.jsonl   the ledger: one line per group, with every rollout's fate          } offsets on resume, so that
    samples.jsonl   some of what was said                                              } they end equal byte for byte
    timing.jsonl    what the clock does: seconds, rates, memory
    paid-L-S.jsonl  costs since checkpoint S in the run's L-th life, written as they are charged
    lost.jsonl      one line per death: what had been computed and was lost
    checkpoints/    step-XXXXXX/{learner.safetensors, state.json}; the last two
    end.json        why it ended, the bill by account, the fates

Safetensors and JSON only; nothing is ever unpickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from isocost import jsonfile, schema
from isocost.errors import UserError
from isocost.jsonfile import read_json, read_lines, write_json
from isocost.meter import LOST, Meter, Payer
from isocost.types import Cost

__all__ = ["SCHEMA", "RunRecord", "Stream", "read_json", "read_lines", "write_json"]      # and what is written below

SCHEMA = schema.VERSION
STREAMS = schema.STREAMS
KEEP = 2  # checkpoints kept: the last may be torn, the one before is whole


def canonical(data: Any) -> str:
    """Data as a record would hold it, for comparing: tuples are lists, keys are sorted."""
    return json.dumps(data, sort_keys=True, default=jsonfile.plain)


class Stream:
    """An append-only JSONL file. A line is written in one call, so that a killed process leaves whole lines behind."""

    def __init__(self, path: Path):
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *lines: Mapping[str, Any] | list[Any]) -> None:
        data = "".join([jsonfile.line(x) + "\n" for x in lines]).encode()
        while data:
            data = data[os.write(self._file, data) :]

    def offset(self) -> int:
        return os.fstat(self._file).st_size

    def cut(self, offset: int) -> None:
        os.ftruncate(self._file, offset)

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


@dataclass
class RunRecord:
    """A run's directory, open for writing by one process."""

    path: Path
    life: int = 0
    streams: dict[str, Stream] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what a user should be told, such as a torn checkpoint
    _paid: Stream | None = None

    @classmethod
    @contextmanager
    def opened(cls, path: Path) -> Iterator[RunRecord]:
        """Lock the directory and open its streams. Raises UserError if another process holds it."""
        path.mkdir(parents=True, exist_ok=True)
        with open(path / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(
                    f"{path} is being written by another process; wait for it, or choose another --out"
                ) from None
            record = cls(path, life=len(read_lines(path / "lost.jsonl")))
            record.streams = {name: Stream(path / name) for name in STREAMS}
            try:
                yield record
            finally:
                for stream in [*record.streams.values(), *([record._paid] if record._paid else [])]:
                    stream.close()

    def write(self, name: str, *lines: Mapping[str, Any]) -> None:
        self.streams[name].write(*lines)

    # checkpoints ----------------------------------------------------------------------------------------------

    def save(self, step: int, learner: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """A checkpoint: files written under a temporary name, synced with all streams, then renamed."""
        home = self.path / "checkpoints"
        temporary, final = home / f".step-{step:06d}.tmp", home / f"step-{step:06d}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        weights, told = temporary / "learner.safetensors", temporary / "state.json"
        _save_tensors(learner, weights)
        whole = {
            **state,
            "schema": SCHEMA,
            "step": step,
            "offsets": {name: s.offset() for name, s in self.streams.items()},
            "sha256": file_hash(weights),
        }
        told.write_text(jsonfile.page(whole) + "\n")
        _sync(weights, told, *(s.path for s in self.streams.values()))
        shutil.rmtree(final, ignore_errors=True)
        os.rename(temporary, final)
        _sync(home)
        for old in (*self.checkpoints()[:-KEEP], *home.glob(".step-*.broken")):
            shutil.rmtree(old)
        self._forget_paid()
        self.pay_since(step)

    def checkpoints(self) -> list[Path]:
        return sorted((self.path / "checkpoints").glob("step-*"))

    def restore(self, meter: Meter) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest whole checkpoint, with every stream cut back to it and lost work charged; None if there is none.

        What was computed after it was paid for: it goes to the account `lost` of the meter and to lost.jsonl. Raises
        UserError, with nothing changed, where a stream is shorter than it was at the checkpoint.
        """
        found = next((c for c in map(self._whole, reversed(self.checkpoints())) if c), None)
        state: dict[str, Any] = found[1] if found else {"step": 0, "offsets": dict.fromkeys(STREAMS, 0)}
        for name, stream in self.streams.items():
            if (size := stream.offset()) < state["offsets"][name]:
                raise UserError(f"{stream.path} has {size:,} bytes, and had {state['offsets'][name]:,} at checkpoint "
                                f"{state['step']}: lines are missing; {schema.remedy(stream.path)}")
        self._write_down_lost(state["step"])
        for name, stream in self.streams.items():
            stream.cut(state["offsets"][name])
        if found:
            meter.restore(state["meter"])
        meter.forget(LOST)
        for line in read_lines(self.path / "lost.jsonl"):
            meter.charge(Cost(**line["cost"]), to=Payer(LOST))
        return found

    def _whole(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        try:
            state = jsonfile.read_json(path / "state.json", schema.STATE)
            data = (path / "learner.safetensors").read_bytes()
            if hashlib.sha256(data).hexdigest() != state["sha256"]:
                raise ValueError("its weights do not match their checksum")
            return load_file(path / "learner.safetensors"), state
        except (OSError, ValueError, SafetensorError, UserError) as e:
            self.notes.append(f"checkpoint {path.name} is not whole ({e}); falling back to the one before")
            aside = path.with_name(f".{path.name}.broken")      # until the next checkpoint stands
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
            return None

    # paid and lost --------------------------------------------------------------------------------------------

    def pay_since(self, step: int) -> None:
        """Start the file that `paid` writes to: costs since this checkpoint, in this life."""
        if self._paid:
            self._paid.close()
        self._paid = Stream(self.path / f"paid-{self.life:03d}-{step:06d}.jsonl")

    def paid(self, account: str, cost: Cost) -> None:
        if self._paid is not None:
            self._paid.write([account, *cost.data().values()])

    def _write_down_lost(self, step: int) -> None:
        """What this life computed after `step` is lost: one line in lost.jsonl, and the next life begins."""
        files = sorted(self.path.glob(f"paid-{self.life:03d}-*.jsonl"))
        since = [f for f in files if int(f.stem.rsplit("-", 1)[1]) >= step]
        cost = sum((Cost(*line[1:]) for f in since for line in read_lines(f)), Cost())
        if cost != Cost():
            lost = Stream(self.path / "lost.jsonl")
            lost.write({"life": self.life, "step": step, "cost": cost.data()})
            lost.sync()
            lost.close()
            self.life += 1
        for f in self.path.glob("paid-*.jsonl"):
            f.unlink()

    def _forget_paid(self) -> None:
        """Costs before the oldest checkpoint that could be fallen back to are in that checkpoint's own totals.

        So are those of the first one's own step, the base's evaluation: nothing older is there to fall back to.
        """
        kept = [int(c.name.rsplit("-", 1)[1]) for c in self.checkpoints()]
        for f in self.path.glob(f"paid-{self.life:03d}-*.jsonl"):
            if kept and (len(kept) == 1 or int(f.stem.rsplit("-", 1)[1]) < min(kept)):
                f.unlink()


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raises OSError where there is no room: safetensors has an error of its own for that, which hides its number."""
    try:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, path)
    except SafetensorError as e:
        if number := re.search(r"os error (\d+)", str(e)):
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from e
        raise


def _sync(*paths: Path) -> None:
    """Onto the disk, all at once: a file system commits together what waits together, several times as fast."""
    with ThreadPoolExecutor(len(paths)) as pool:
        list(pool.map(_sync_one, paths))


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# reading ------------------------------------------------------------------------------------------------------


def file_hash(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_run(path: Path) -> bool:
    return (path / "run.json").is_file()


def find_runs(path: Path) -> list[Path]:
    """Run directories at or below a folder, in order of name."""
    if is_run(path):
        return [path]
    return sorted(p.parent for p in path.glob("**/run.json"))


def code() -> dict[str, str]:
    """Which code this is: the installed version, and the hash of the package's own sources."""
    return {"version": package_version(), "sources": _sources_hash()}


def package_version() -> str:
    try:
        return version("isocost")
    except PackageNotFoundError:
        return "source"


@cache
def _sources_hash() -> str:
    home = Path(__file__).parent
    digest = hashlib.sha256()
    for f in sorted(p for p in home.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
        digest.update(str(f.relative_to(home)).encode() + f.read_bytes())
    return digest.hexdigest()[:16]


def machine(threads: int, world: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's bytes and seconds depend on; `world` says its device, dtype and kernels."""
    import torch

    device = world.get("device", "cpu")

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        **{k: world[k] for k in ("dtype", "kernels", "kernels_why") if world.get(k)},
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "byteorder": sys.byteorder,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), platform.machine())
