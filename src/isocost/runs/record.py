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

import errno
import fcntl
import hashlib
import json
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from isocost import jsonfile, processor
from isocost.errors import UserError
from isocost.jsonfile import read_json, read_lines, write_json
from isocost.local.weights import save_tensors
from isocost.meter import LOST, Meter, Payer
from isocost.runs import schema
from isocost.types import Cost

__all__ = ["SCHEMA", "RunRecord", "Stream", "read_json", "read_lines", "write_json"]      # and what is written below

SCHEMA = schema.VERSION
STREAMS = schema.STREAMS
REWARD_FAILED = "reward failed"
GO_ON = ("interrupted", REWARD_FAILED)  # reasons for an end after which a run goes on where it was
PATIENCE = 0.5  # seconds to wait for a lock
KEEP = 2  # checkpoints kept: the last may be torn, the one before is whole


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder, made if it is missing, while this process writes there.

    The system lets go of the lock when the process ends, however it ends. The file `lock` names the process, and is
    removed with the lock; so are folders that were made for it and hold nothing else. Raises UserError, naming that
    process, if another one holds the folder. Where the file system has no locks a line on stderr says so.
    """
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    try:
        lock = _lock(path)
        try:
            yield
        finally:
            if lock is not None:
                with suppress(OSError):
                    path.unlink()
                os.close(lock)
    finally:
        with suppress(OSError):     # not empty: something was written
            for p in made:
                p.rmdir()


def _lock(path: Path) -> int | None:
    """A descriptor that holds the lock; None where there is none to hold."""
    until = time.monotonic() + PATIENCE
    while (lock := _lock_file(path)) is not None:
        try:
            if _take(lock, path):
                return lock
        except OSError as e:
            os.close(lock)
            print(f"isocost: {path.parent} cannot be locked ({e.strerror}); let no other isocost write to it",
                  file=sys.stderr)
            return None
        os.close(lock)
        if time.monotonic() > until:
            raise UserError(_held(path))
        time.sleep(0.02)            # who only looks whether a folder is held holds its lock for a moment too
    return None


def _lock_file(path: Path) -> int | None:
    """The file, open; None in a folder that cannot be written to, where whatever would write fails by itself."""
    path.parent.mkdir(parents=True, exist_ok=True)      # the one that held the lock may have removed the folder too
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UserError(f"{path} cannot be used as a lock ({e.strerror}): remove it") from None
    with suppress(OSError):         # another user's: it can be held, and not written to
        return os.open(path, os.O_RDONLY | flags)
    return None


def _take(lock: int, path: Path) -> bool:
    """Whether the lock is ours now, and says so. Raises OSError where the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), os.stat(path)):
            return False
    except (BlockingIOError, FileNotFoundError):        # held; or just removed, and another file may be there next
        return False
    with suppress(OSError):
        os.ftruncate(lock, 0)
        holder = {"pid": os.getpid(), "host": platform.node(), "command": _command()}
        os.write(lock, (jsonfile.line(holder) + "\n").encode())
    return True


def _command() -> str:
    """This command as it was given, at most 200 characters of it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]


def _held(path: Path) -> str:
    """That a folder is held, and by which process as far as its lock says."""
    holder: Any = None
    with suppress(OSError, ValueError):
        holder = jsonfile.parsed(path.read_bytes()[:4096])
    if not isinstance(holder, dict) or not isinstance(holder.get("pid"), int):
        return f"{path.parent} is being written by another process: wait for it to end, or choose another folder"
    words = "".join(c if c.isprintable() else "?" for c in str(holder.get("command"))[:200])
    host = str(holder.get("host"))
    where = "" if host == platform.node() else f" on {''.join(c for c in host if c.isprintable())[:80]}"
    return (f"{path.parent} is being written by another process, {holder['pid']}{where} ({words}): wait for it to end, "
            "or choose another folder")


def canonical(data: Any) -> str:
    """Data as a record would hold it, for comparing: tuples are lists, keys are sorted."""
    return json.dumps(data, sort_keys=True, default=jsonfile.plain)


class Stream:
    """An append-only JSONL file. A line is written in one call, so that a killed process leaves whole lines behind."""

    def __init__(self, path: Path):
        _refuse_link(path)
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)

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


def _refuse_link(path: Path) -> None:
    """Raises UserError for a symbolic link."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link, and what it points to would be written to: put the file itself "
                        "there, or remove the link")


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
        """Lock the directory and open its streams.

        Raises UserError if another process holds it, or if something in it is a symbolic link: a run that somebody
        sent could have links in place of its files, and what they point to would be written to.
        """
        with locked(path):
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    _refuse_link(Path(folder, name))
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
        save_tensors(learner, weights)
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
        "processor": processor.name(),
        "cores": os.cpu_count(),
        "threads": threads,
        "device": device,
        **{k: world[k] for k in ("dtype", "kernels", "kernels_why", "batch_dependent") if world.get(k)},
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "byteorder": sys.byteorder,
    }
