"""A process that runs rollouts of another library's harness. Started by its path, in the Python that has the library:
it imports nothing of isocost, so that the pins of the two need not agree.

    python harness_process.py verifiers '{"taskset": {"id": "reverse-text"}}'
    python harness_process.py inspect '{"file": "tasks.py", "task": "sums", "args": {}}'

It imports the library and loads the tasks once; each rollout is a fork of it, so that rollouts share nothing and one
that hangs or dies costs itself alone. Lines of JSON come in and go out:

    <- {"tasks": [{"id": ..., "prompt": ...}, ...]}                    first; or {"error": ...}, and it ends
    -> {"run": 7, "task": "...", "base_url": ..., "key": ..., "model": ...}
    -> {"end": 7}                                                      kills that rollout and all that it started
    <- {"id": 7, "reward": 0.5}        or {"id": 7, "error": "..."}
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Asked = dict[str, Any]


class Verifiers:
    """An environment of verifiers (0.4: tasksets, harnesses and agents), from its configuration."""

    def __init__(self, config: dict[str, Any]):
        import verifiers.v1 as vf
        from verifiers.v1.utils.loaders import load_environment, resolve_env_config

        self.vf, self.env = vf, load_environment(resolve_env_config(config))
        if not self.env.taskset.bounded:
            raise ValueError("the taskset is infinite: give taskset options that bound it")
        self.tasks = {str(t.data.id or t.data.idx): t for t in self.env.taskset}

    def listed(self) -> list[Asked]:
        return [{"id": name, "prompt": t.data.prompt_text} for name, t in self.tasks.items()]

    def run(self, asked: Asked) -> float:
        return asyncio.run(self._run(asked))

    async def _run(self, asked: Asked) -> float:
        vf = self.vf
        os.environ["ISOCOST_API_KEY"] = asked["key"]
        client = vf.EvalClientConfig(base_url=asked["base_url"], api_key_var="ISOCOST_API_KEY")
        context = vf.ModelContext(model=asked["model"], client=client)
        async with self.env.serving():
            (slot,) = self.env.slots(self.tasks[asked["task"]])
            episode = await self.env.run_slot(slot, context)
        wrong = [*episode.errors, *(e for t in episode.traces for e in t.errors)]
        if not episode.ok:
            raise RuntimeError(f"{wrong[-1].type}: {wrong[-1].message}" if wrong else "the episode is not ok")
        return float(episode.traces[0].reward)


class Inspect:
    """A task of inspect-ai with its solver and its first scorer."""

    def __init__(self, config: dict[str, Any]):
        import inspect_ai
        from inspect_ai.scorer import value_to_float

        self.inspect, self.value = inspect_ai, value_to_float()
        path = Path(config["file"]).resolve()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"there is no file {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        make: Callable[..., Any] | None = getattr(module, config["task"], None)
        if make is None:
            raise ValueError(f"{path} has no task {config['task']!r}")
        self.task = make(**config.get("args", {}))
        self.samples = {}
        for number, sample in enumerate(self.task.dataset):
            sample.id = sample.id if sample.id is not None else number + 1
            self.samples[str(sample.id)] = sample

    def listed(self) -> list[Asked]:
        return [{"id": name, "prompt": s.input if isinstance(s.input, str) else "\n".join(m.text for m in s.input)}
                for name, s in self.samples.items()]

    def run(self, asked: Asked) -> float:
        folder = tempfile.mkdtemp()
        try:
            (log,) = self.inspect.eval(       # a log reads its file when it is first looked at
                self.task, model=f"openai-api/isocost/{asked['model']}", model_base_url=asked["base_url"],
                model_args={"api_key": asked["key"]}, sample_id=self.samples[asked["task"]].id, epochs=1,
                log_dir=folder, display="none", max_retries=0, log_realtime=False, fail_on_error=True,
            )
            if log.status != "success" or not log.samples:
                raise RuntimeError(log.error.message if log.error else log.status)
            scores = log.samples[0].scores
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not scores:
            raise RuntimeError("the task has no score")
        return float(self.value(next(iter(scores.values())).value))


LIBRARIES: dict[str, Callable[[dict[str, Any]], Any]] = {"verifiers": Verifiers, "inspect": Inspect}


def serve(library: Any, commands: int, out: int) -> None:
    """Run rollouts until the commands end."""
    running: dict[int, tuple[int, int]] = {}        # a pipe: the number of its rollout, and the process
    found: dict[int, bytes] = {}
    selector = selectors.DefaultSelector()
    selector.register(commands, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in selector.select():
            if key.fd == commands:
                part = os.read(commands, 2**16)
                if not part:
                    for _, process in running.values():
                        kill(process)
                    return
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    asked = json.loads(line)
                    if "run" in asked:
                        pipe, process = forked(library, asked, selector, [commands, out, *running])
                        running[pipe], found[pipe] = (asked["run"], process), b""
                        selector.register(pipe, selectors.EVENT_READ)
                    else:
                        for number, process in running.values():
                            if number == asked["end"]:
                                kill(process)
                continue
            part = os.read(key.fd, 2**16)
            found[key.fd] += part
            if not part:
                selector.unregister(key.fd)
                os.close(key.fd)
                number, process = running.pop(key.fd)
                kill(process)                           # what it may have left
                _, status = os.waitpid(process, 0)
                line = found.pop(key.fd) or json.dumps({"error": f"it ended with status {status}"}).encode()
                os.write(out, json.dumps({"id": number, **json.loads(line)}).encode() + b"\n")


def forked(library: Any, asked: Asked, selector: selectors.BaseSelector, shut: list[int]) -> tuple[int, int]:
    """A fork that runs one rollout: the pipe that its result comes from, and the process."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return read, process
    try:
        os.setsid()
        selector.close()
        for descriptor in (read, *shut):
            os.close(descriptor)
        try:
            line = {"reward": library.run(asked)}
        except BaseException as error:
            line = {"error": f"{type(error).__name__}: {error}"[:500]}
        os.write(write, json.dumps(line).encode())
    finally:
        os._exit(0)


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)               # what a library prints is no line of the protocol
    commands = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        library = LIBRARIES[sys.argv[1]](json.loads(sys.argv[2]))
        first = {"tasks": library.listed()}
    except BaseException as error:
        first = {"error": f"{type(error).__name__}: {error}"}
        os.write(out, json.dumps(first).encode() + b"\n")
        return
    data = memoryview(json.dumps(first).encode() + b"\n")
    while data:
        data = data[os.write(out, data) :]
    serve(library, commands, out)


if __name__ == "__main__":
    main()
