"""A world whose model a vLLM server samples and the learner of this machine trains.

The server must have the same model. Prompts and completions travel as token ids; each attempt is one request with a
seed of its own. After every update the weights, or those of an adapter, are written to a folder that the server reads.
What its cache of prompts has of earlier ones is not used again. Then a witness compares the log-probs of both sides, on
a prompt that the server has in its cache: weights that did not arrive, and keys of earlier weights, are off by nats and
are silent otherwise.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from isocost import chance
from isocost import meter as meters
from isocost.errors import Unreachable, UserError
from isocost.local.lora import LoraLearner, save_adapter
from isocost.local.weights import Model, save_model
from isocost.meter import Meter, payer
from isocost.pack import pack
from isocost.types import Cost, Group, Message, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment, Stop
from isocost.world import Learner, OnTokens, Text, Weights, World
from isocost.worlds.flying import Flying, each
from isocost.worlds.http import Client, StatusError, Unanswered
from isocost.worlds.spec import Spec

log = logging.getLogger("isocost")

COMPLETIONS = "/v1/completions"
ADD, REMOVE = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
GAP = 1e-5          # nats: the largest difference of log-probs between server and learner, over min(T, 1)
# Tokens of the witness's prompt, at most, and of its completion. vLLM caches whole blocks of a prompt: of 16 tokens on
# most GPUs, of 128 on a processor. A shorter prompt would say nothing about the cache.
WITNESS, SPOKEN = 264, 8
START = ("start it with VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --dtype float32 --logprobs-mode processed_logprobs, "
         "version 0.30 or later")
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)      # values of --max-lora-rank
ADAPTERS = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve ... --enable-lora --max-lora-rank {rank}"
PLAIN = ("vLLM does not return the set of tokens that top-p and top-k keep, and training needs the log-probs of the "
         "distribution that was sampled: leave --top-p and --top-k out")


class Elsewhere:
    """`isocost.world.Overlap` of a model that is sampled on another machine, or in another process."""

    def __init__(self, on: bool):
        self.on = on

    def ahead(self) -> None:
        """The server keeps nothing for the learner."""

    def share(self, *, sampling: bool, learning: bool) -> None:
        """The server's cores are its own."""


def sampled_by(
    world: World, spec: Spec, client: Client, *, sampling: Sampling, overlap: bool, most: float | None = None
) -> World:
    """This world with the server at the client's address as its engine, loaded with the learner's weights.

    `most` is the largest difference of log-probs that is accepted after a load, in nats, in place of GAP /
    min(temperature, 1). Raises UserError if nothing answers there, it has another model, another process uses it,
    `sampling` truncates, or the log-probs of server and learner differ.
    """
    if sampling.truncates:
        raise UserError(PLAIN)
    with ExitStack() as closing:
        closing.callback(client.close)
        closing.callback(os.close, _only_one(client.base))
        server = VllmServer(client, spec, world.about.model)
        closing.callback(server.close)
        carrier = carried(server, world.learner)
        closing.callback(carrier.close)
        engine = VllmEngine(server, carrier, world.learner, world.text, world.meter, most)
        engine.open(world.learner.weights(), sampling.temperature)
        opened = closing.pop_all()
    about = {"url": spec.url, "vllm": server.version, "loads": carrier.loads, **({"witness": most} if most else {})}
    return replace(
        world, engine=engine, overlap=Elsewhere(overlap), close=opened.close,
        about=replace(world.about, service=about, notes=engine.notes, server=client.tally.data),
    )


def base_of(url: str) -> str:
    """The server's address without the path of its OpenAI protocol."""
    return url.rstrip("/").removesuffix("/v1")


class VllmServer:
    """The requests that a vLLM server is sent."""

    def __init__(self, client: Client, spec: Spec, model: Model):
        self.client, self.model = client, model
        self.version = str(self.ask("GET", "/version").get("version", ""))
        self.served, self.room = self._served(spec)
        self.sampled = self.served      # the name that requests ask for: of the model, or of an adapter
        self.folder = Path(tempfile.mkdtemp(prefix="isocost-vllm-"))

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _served(self, spec: Spec) -> tuple[str, int]:
        """The name under which the server has the model, and the tokens of its context."""
        listed = self.ask("GET", "/v1/models").get("data") or []
        names = {str(m.get("id")): m for m in listed if not m.get("parent")}
        own = [name for name, m in names.items() if spec.name in (name, m.get("root"))] or list(names)
        if len(own) != 1:
            shown = ", ".join(names) or "nothing"
            raise UserError(f"{self.client.base} serves {shown}: it must serve {spec.name} alone")
        return own[0], int(names[own[0]].get("max_model_len") or 0)

    def body(
        self, prompt: Sequence[int], max_tokens: int, seed: int, temperature: float, **more: Any
    ) -> dict[str, Any]:
        """A request for one completion. What it does not name, the server would take from its own defaults."""
        return {
            "model": self.sampled, "prompt": list(prompt), "max_tokens": max_tokens, "seed": seed,
            "temperature": temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "logprobs": 0, "return_token_ids": True, **more,
        }

    def read(self, data: Any) -> tuple[list[int], list[float], bool]:
        """Token ids, their log-probs, and whether an end token ended the completion. Raises UserError without them."""
        try:
            choice = data["choices"][0]
            ids, logp = [int(x) for x in choice["token_ids"]], [float(x) for x in choice["logprobs"]["token_logprobs"]]
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            raise UserError(f"{self.client.base} answers without token ids or log-probs: {START}") from None
        if len(ids) != len(logp):
            raise UserError(f"{self.client.base} gave {len(ids)} tokens and {len(logp)} log-probs: {START}")
        return ids, logp, choice.get("finish_reason") == "stop"

    def complete(self, body: Mapping[str, Any]) -> tuple[list[int], list[float], bool]:
        return self.read(self.ask("POST", COMPLETIONS, body))

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, silent: bool = False) -> Any:
        """Raises UserError for a request that the server does not take, Unreachable where it does not answer."""
        try:
            return self.client.ask(method, path, body, silent=silent)
        except StatusError as e:
            raise self.refused(path, e) from None
        except Unanswered as e:
            raise self.silent(path, e) from None

    def refused(self, path: str, e: StatusError) -> UserError:
        """The error of a request that the server does not take."""
        do = START if e.status in (403, 404, 405) else "see the server's log"
        return UserError(f"{self.client.base}{path} answered {e.status}: {e.said}; {do}")

    def silent(self, path: str, e: Unanswered) -> Unreachable:
        """The error of a request that the server does not answer."""
        return Unreachable(f"{self.client.base} does not answer {path} ({e}): {START}")


class Carrier(Protocol):
    """How a learner's weights reach a server."""

    loads: str      # what a load sends, in a word or two

    def take(self, weights: Weights) -> None:
        """Load these weights, the learner's; nothing that was computed with earlier ones is used again."""

    def notes(self) -> list[str]:
        """What the end of the run says."""

    def close(self) -> None:
        """Leave nothing at the server that only this carrier needs."""


class AllWeights:
    """All weights, which the server reads from a folder in place of its own. `why` is the reason if an adapter's would
    have been enough."""

    def __init__(self, server: VllmServer, why: str = ""):
        self.server, self.why = server, why
        self.loads = "merged weights" if why else "all weights"

    def take(self, weights: Weights) -> None:
        """See `Carrier`; the server's cache of prompts is cleared. A head is written even where it is the embedding."""
        server = self.server
        save_model(server.folder, server.model, weights, head=True)
        server.ask("POST", "/pause", {})
        try:
            where = {"weights_path": str(server.folder)}
            server.ask("POST", "/collective_rpc", {"method": "reload_weights", "kwargs": where})
            server.ask("POST", "/reset_prefix_cache", {}, silent=True)
        finally:
            server.ask("POST", "/resume", {})

    def notes(self) -> list[str]:
        return [self.why] if self.why else []

    def close(self) -> None:
        """The server keeps the weights."""


class AdapterAlone:
    """An adapter, in peft's format, which the server adds to its own weights.

    Every version has a name and a folder of its own. vLLM keys its cache of prompts by both, so nothing of an earlier
    version is used again, and other prompts stay. vLLM 0.32 can also load an adapter in place (`load_inplace`). It then
    keeps the cache where the folder has the same name, reads the adapter again before every step, and ends where it is
    gone.
    """

    loads = "adapter"

    def __init__(self, server: VllmServer, learner: LoraLearner):
        self.server, self.learner, self.swaps = server, learner, 0
        self._loaded: list[Path] = []       # folders of the versions that the server has, the newest last

    def add(self, *, retries: int | None = None) -> None:
        """Load the learner's adapter under a new name, and remove earlier ones. Raises as `Client.ask`."""
        self.swaps += 1
        folder = self.server.folder / f"{self.server.folder.name}-{self.swaps}"
        save_adapter(folder, self.learner, self.server.served)
        said = {"lora_name": folder.name, "lora_path": str(folder)}
        self.server.client.ask("POST", ADD, said, retries=retries, silent=True)
        self._loaded.append(folder)
        self.server.sampled = folder.name
        while len(self._loaded) > 1:
            self._remove(self._loaded.pop(0))

    def take(self, weights: Weights) -> None:
        """See `Carrier`."""
        own = self.learner.weights()
        if any(weights[k] is not w and not torch.equal(weights[k], w) for k, w in own.items()):
            raise ValueError("an adapter is loaded with the learner's weights only")
        try:
            self.add()
        except StatusError as e:
            raise self.server.refused(ADD, e) from None
        except Unanswered as e:
            raise self.server.silent(ADD, e) from None

    def _remove(self, folder: Path) -> None:
        """Have the server forget a version. What it says does not matter: no request names it again."""
        with suppress(StatusError, Unanswered):
            self.server.client.ask("POST", REMOVE, {"lora_name": folder.name}, retries=0, silent=True)
        shutil.rmtree(folder, ignore_errors=True)

    def notes(self) -> list[str]:
        return [f"the server sampled with the adapter, which was loaded {self.swaps} times; its own weights stayed"]

    def close(self) -> None:
        while self._loaded:
            self._remove(self._loaded.pop())


def carried(server: VllmServer, learner: Learner) -> Carrier:
    """The adapter of a learner that trains one, if the server takes adapters; else all weights."""
    if not isinstance(learner, LoraLearner):
        return AllWeights(server)
    adapter = AdapterAlone(server, learner)
    with suppress(UserError):
        AllWeights(server).take(learner.weights())
    try:
        adapter.add(retries=0)
    except (StatusError, Unanswered) as e:
        if isinstance(e, Unanswered) and e.status is None:
            raise server.silent(ADD, e) from None
        said = f"{e.status}: {e.said}" if isinstance(e, StatusError) else str(e)
        rank = min((x for x in RANKS if x >= learner.rank), default=learner.rank)
        why = (f"{server.client.base} takes no adapters ({said}), so the merged weights are loaded after every update, "
               f"all of them; to swap the adapter alone, start it with {ADAPTERS.format(rank=rank)}")
        log.warning(why)
        return AllWeights(server, why)
    server.sampled = server.served      # until the first load, with the witness's prompt in the cache
    return adapter


class VllmEngine:
    """`isocost.world.Engine` over a vLLM server."""

    def __init__(
        self, server: VllmServer, carrier: Carrier, learner: Learner, text: Text, meter: Meter,
        most: float | None = None,
    ):
        context = server.model.config.max_len
        self.carrier = carrier
        self.server, self.learner, self.text, self.meter, self.version = server, learner, text, meter, 0
        self.room = min(context, server.room or context)
        self.gaps: list[float] = []     # of log-probs, at each load
        self._most = most
        self._temperature = 1.0
        self._flying = Flying()

    # sampling -------------------------------------------------------------------------------------------------

    async def generate(
        self, start: Segment, attempts: Sequence[int], *, place: Place, turn: int, max_tokens: int,
        stop: Sequence[str] = (), ends: Sequence[int] = (), on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """Continue a start once per attempt: see `isocost.world.Engine`.

        An attempt that is halted has no tokens, nor has one whose start fills the context, which stops with LENGTH.
        Raises UserError for sampling that truncates, for stop strings, and for a prompt that leaves no room;
        Unreachable when the server no longer answers.
        """
        if start.sampling.truncates:
            raise UserError(PLAIN)
        if stop:
            raise UserError(f"stop strings are not read from vLLM: leave out {list(stop)}")
        limit = min(max_tokens, self.room - len(start))
        if limit < 1 and turn == 0 and not (start.role != int(Role.PROMPT)).any():
            raise UserError(f"the prompt has {len(start)} tokens; the context of model and server is {self.room}")
        if limit < 1:
            self.meter.charge(Cost(), started=len(attempts))
            return [Said.nothing(Stop.LENGTH) for _ in attempts]
        seeds = (chance.uniforms(place, attempts, turn, 0, 1)[:, 0] * (2**31 - 1)).astype(int).tolist()
        asked = [self._attempt(start, seed, limit, place, ends) for seed in seeds]
        return await each(attempts, asked, on_tokens)

    async def _attempt(self, start: Segment, seed: int, limit: int, place: Place, ends: Sequence[int]) -> Said:
        """One attempt, charged to the caller."""
        version, paying = self.version, payer()
        if self._flying.halted(place):
            return Said.nothing(Stop.CANCELLED)
        body = self.server.body(
            start.tokens.tolist(), limit, seed, start.sampling.temperature, stop_token_ids=[*self.text.ends, *ends]
        )
        written, seconds = 0, 0.0
        try:
            found = await self._flying.answer(place, self.server.client.post(COMPLETIONS, body))
            if found is None:
                return Said.nothing(Stop.CANCELLED)
            data, seconds = found
            ids, logp, ended = self.server.read(data)
            written = len(ids)
            if written > limit:
                raise UserError(f"{self.server.client.base} wrote {written:,} tokens where at most {limit:,} were "
                                "asked for: is it vLLM itself that answers there?")
        except StatusError as e:
            raise UserError(f"{self.server.client.base} answered {e.status}: {e.said}") from None
        except Unanswered as e:
            raise Unreachable(f"{self.server.client.base} left a request without an answer ({e}). What was answered is "
                              "kept: run the same command again to continue") from None
        finally:
            read = len(start)
            cost = Cost(prefill=read, decode=written, seconds=seconds, reread=min(start.known(version), read))
            self.meter.charge(cost, to=paying, started=1)
        return Said(
            np.array(ids, dtype=np.int64), np.array(logp, dtype=np.float32), np.full(written, version),
            Stop.LENGTH if not ended else Stop.STEP if ids and ids[-1] in ends else Stop.DONE,
        )

    def halt(self, place: Place) -> None:
        """Cancel the requests of a wave: its rollouts return with `Stop.CANCELLED` and without tokens."""
        self._flying.halt(place)

    # weights --------------------------------------------------------------------------------------------------

    def open(self, weights: Weights, temperature: float) -> None:
        """Load the first weights, with the witness's prompt in the server's cache under whatever it had before."""
        self._temperature = temperature
        self._witnessed()
        self.restore(weights, 0)

    @property
    def largest(self) -> float:
        """The largest gap of log-probs at any load, in nats."""
        return max(self.gaps, default=0.0)

    @property
    def accepted(self) -> float:
        """The largest gap that is accepted, in nats."""
        return GAP / min(self._temperature, 1.0) if self._most is None else self._most

    async def load(self, weights: Weights) -> None:
        """Load the learner's weights, and compare. Raises UserError where server and learner differ."""
        await asyncio.to_thread(self.restore, weights, self.version + 1)

    def restore(self, weights: Weights, version: int) -> None:
        """The same, as those of a version."""
        self.carrier.take(weights)
        self.version = version
        gap = self.gap()
        self.gaps.append(gap)
        if not gap <= self.accepted:
            raise UserError(
                f"log-probs of {self.server.client.base} and of the learner differ by {gap:.2g} nats after loading "
                f"weights, and {self.accepted:.2g} is allowed: the server computes with other weights, in another "
                f"dtype (bfloat16 is off by about 0.01 nats), or from a stale cache; {START}"
            )

    def gap(self) -> float:
        """The largest difference of log-probs between server and learner on the witness's completion, in nats."""
        prompt, ids, logp = self._witnessed()
        sampling = Sampling(self._temperature)
        start = Segment.empty(sampling).read(prompt, Role.PROMPT)
        said = Said(np.array(ids), np.array(logp, dtype=np.float32), np.zeros(len(ids), np.int64), Stop.LENGTH)
        problem = Problem("witness", (Message("user", ""),))
        rollout = Rollout(problem, (start.wrote(said),), "", Stop.LENGTH, 0, Score(0.0))
        batch = pack([Group(problem, (rollout,), Place(0, 0, 0))], self.version)
        with meters.on(meters.CHECK):
            own = self.learner.score(batch).logp
        return float(((own - batch.logp).abs() * batch.mask).max())

    def _witnessed(self) -> tuple[list[int], list[int], list[float]]:
        """The witness's prompt, the server's completion of it, and its log-probs; the prompt is in the cache then."""
        names = [t for t in range(self.server.model.config.vocab) if t not in self.text.ends]
        count = max(min(WITNESS, self.room - SPOKEN), 1)
        prompt = [names[(7 * i + i * i // 3) % len(names)] for i in range(count)]
        body = self.server.body(prompt, min(SPOKEN, self.room - count), 1, self._temperature, ignore_eos=True)
        ids, logp, _ = self.server.complete(body)
        with meters.on(meters.CHECK):
            self.meter.charge(Cost(prefill=len(prompt), decode=len(ids)))
        return prompt, ids, logp

    def notes(self) -> list[str]:
        """What the end of the run says."""
        gap = f"log-probs of the server and the learner differed by at most {self.largest:.1e} nats at any load"
        if self._most is not None:
            gap += (f" (median {float(np.median(self.gaps)):.1e}, {len(self.gaps)} loads; --witness accepts "
                    f"{self._most:g}): importance ratios correct for it where the method has them, and a load that "
                    "does not arrive is found only once the weights have moved as far")
        return [gap, *self.carrier.notes()]


def _only_one(base: str) -> int:
    """A lock on a server, among this user's processes here: each loads its own weights. Raises UserError if taken."""
    name = hashlib.sha256(base.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"isocost-vllm-{os.geteuid()}-{name}.lock"
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise UserError(f"another process uses {base}, and each loads its own weights: run one at a time "
                        "(--workers 1), or start another server") from None
    return held
