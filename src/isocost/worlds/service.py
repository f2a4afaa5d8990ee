"""A service that samples and takes gradients (the Tinker API), as plain data; the one file that calls its SDK.

The SDK (`pip install tinker`) is imported where it is used. Its calls block, so they run in a thread of their own,
which also keeps its checks for event loops quiet.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy import ndarray

from isocost.errors import Unreachable, UserError
from isocost.local.embedded import EMBEDDED
from isocost.world import Text

KEY, NO_KEY = "TINKER_API_KEY", "tml-none"      # the SDK wants a key of this form, also for servers that have none
LOCAL = ("localhost", "127.0.0.1", "::1")
IMPORTANCE, CROSS_ENTROPY = "importance_sampling", "cross_entropy"      # losses, by the API's names
RANK = 32           # of the adapter where the user names none: the SDK's own
SEED = 0            # of its initial weights: all runs start alike
ANSWERS = 10.0      # seconds in which a server must accept a connection
T = TypeVar("T")


@dataclass(frozen=True)
class PassRow:
    """One row of a pass: its tokens, and for each token but the first the inputs of the loss, by name.

    The API calls tokens 1 to T - 1 the targets; position t of an input belongs to token t + 1.
    """

    tokens: Sequence[int]
    inputs: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in self.inputs.items():
            if len(values) != len(self.tokens) - 1:
                raise ValueError(f"{name} has {len(values)} numbers for {len(self.tokens) - 1} targets")


@dataclass(frozen=True)
class AdamParams:
    """The settings of one optimiser step, by the API's names. `grad_clip_norm` 0 does not clip."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True)
class SampledTokens:
    """One completion: tokens, their log-probs, and whether it ended because no tokens were left."""

    tokens: list[int]
    logp: list[float]
    cut: bool


class Sampler:
    """Samples with the weights that it was made from."""

    def __init__(self, client: Any, sdk: Any, calls: Callable[[Callable[[], Any]], Any]):
        self._client, self._sdk, self._calls = client, sdk, calls

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int, temperature: float = 1.0, ends: Sequence[int] = ()
    ) -> SampledTokens:
        """One completion, without top-p and top-k. Raises Unreachable and UserError as the service does."""
        with _naming("sample"):
            return _sampled(await self._client.sample_async(*self._asked(prompt, max_tokens, seed, temperature, ends)))

    def many(
        self, prompt: Sequence[int], seeds: Sequence[int], *, max_tokens: int, temperature: float = 1.0,
        ends: Sequence[int] = (),
    ) -> list[SampledTokens]:
        """One completion for each seed, waiting for all of them."""
        with _naming("sample"):
            asked = [self._asked(prompt, max_tokens, seed, temperature, ends) for seed in seeds]
            return self._calls(lambda: [_sampled(x.result()) for x in [self._client.sample(*a) for a in asked]])

    def _asked(
        self, prompt: Sequence[int], max_tokens: int, seed: int, temperature: float, ends: Sequence[int]
    ) -> tuple[Any, int, Any]:
        types = self._sdk.types
        return types.ModelInput.from_ints([int(t) for t in prompt]), 1, types.SamplingParams(
            max_tokens=max_tokens, seed=seed, temperature=temperature, top_k=-1, top_p=1.0, stop=list(ends),
        )


def _sampled(found: Any) -> SampledTokens:
    """The one completion of an answer."""
    one = found.sequences[0]
    if one.logprobs is None or len(one.logprobs) != len(one.tokens):
        raise UserError("the service returns no log-prob for each sampled token, which training needs")
    return SampledTokens(list(one.tokens), list(one.logprobs), one.stop_reason == "length")


class Adapter:
    """One adapter that is trained: its passes, its optimiser, and its checkpoints."""

    def __init__(self, client: Any, sdk: Any, calls: Callable[[Callable[[], Any]], Any]):
        self._client, self._sdk, self._calls = client, sdk, calls

    def forward(self, rows: Sequence[PassRow]) -> list[ndarray]:
        """The log-prob of each token but the first, for each row. No gradient."""
        zeros = [PassRow(r.tokens, {"weights": [0.0] * (len(r.tokens) - 1)}) for r in rows]
        with _naming("forward"):
            return self._calls(lambda: _logp(self._client.forward(self._data(zeros), CROSS_ENTROPY).result()))

    def forward_backward(self, rows: Sequence[PassRow]) -> list[ndarray]:
        """Add the gradient of the loss `IMPORTANCE` to the pending one. Returns log-probs as `forward` does."""
        with _naming("forward_backward"):
            return self._calls(lambda: _logp(self._client.forward_backward(self._data(rows), IMPORTANCE).result()))

    def optim_step(self, adam: AdamParams) -> dict[str, float]:
        """One optimiser step with the pending gradient, which is then zero. Returns the service's metrics."""
        known = getattr(self._sdk.types.AdamParams, "model_fields", None)
        settings = {k: v for k, v in asdict(adam).items() if known is None or k in known}
        with _naming("optim_step"):
            made = self._calls(lambda: self._client.optim_step(self._sdk.types.AdamParams(**settings)).result())
        return dict(made.metrics or {})

    def sampler(self) -> Sampler:
        """A sampler with the current weights."""
        with _naming("save_weights_for_sampler"):
            return Sampler(self._calls(self._client.save_weights_and_get_sampling_client), self._sdk, self._calls)

    def save(self, name: str) -> str:
        """Save weights and optimiser with the service. Returns the path that `load` takes."""
        with _naming("save_state"):
            return str(self._calls(lambda: self._client.save_state(name).result()).path)

    def load(self, path: str) -> None:
        """Restore weights and optimiser from a path that `save` returned."""
        with _naming("load_state_with_optimizer"):
            self._calls(lambda: self._client.load_state_with_optimizer(path).result())

    def tokenizer_files(self) -> dict[str, str]:
        """The files of the model's tokenizer, by name, as the SDK loads it."""
        with _naming("get_tokenizer"), tempfile.TemporaryDirectory() as folder:
            self._calls(lambda: self._client.get_tokenizer().save_pretrained(folder))
            return {p.name: p.read_text(encoding="utf-8") for p in Path(folder).iterdir() if p.is_file()}

    def _data(self, rows: Sequence[PassRow]) -> list[Any]:
        types = self._sdk.types

        def tensor(values: Sequence[float], dtype: str) -> Any:
            return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])

        return [
            types.Datum(
                model_input=types.ModelInput.from_ints([int(t) for t in r.tokens[:-1]]),
                loss_fn_inputs={
                    "target_tokens": tensor([int(t) for t in r.tokens[1:]], "int64"),
                    **{k: tensor([float(x) for x in v], "float32") for k, v in r.inputs.items()},
                },
            )
            for r in rows
        ]


def text_for(name: str, adapter: Adapter) -> Text:
    """The tokenizer of a model: that of its folder on this machine, else the one that the SDK loads."""
    from isocost.local import models, weights

    return models.reading(name)[0] if is_local(name) else weights.text_of({}, adapter.tokenizer_files())


def is_local(name: str) -> bool:
    """Whether a model of this name is on this machine too."""
    return name in EMBEDDED or (Path(name) / "config.json").is_file()


class Service:
    """A server of the Tinker API, by its SDK."""

    def __init__(self, url: str, client: Any, sdk: Any):
        self.url, self.sdk = url, sdk
        self._client, self._one = client, ThreadPoolExecutor(1, thread_name_prefix="tinker")

    @classmethod
    def connect(cls, url: str) -> Service:
        """Connect to the server at this address, with the key in TINKER_API_KEY. Raises UserError if that cannot be."""
        try:
            sdk = import_module("tinker")
        except ImportError:
            raise UserError("a model behind the Tinker API needs its SDK: pip install tinker; its version "
                            "must match the server's") from None
        key = _key(url)
        _knock(url)
        return cls(url, sdk.ServiceClient(base_url=url, api_key=key), sdk)

    def models(self) -> list[str]:
        """The models that the server lists."""
        with _naming("get_server_capabilities"):
            found = self._call(self._client.get_server_capabilities).supported_models
        return [m.model_name for m in found if m.model_name]

    def adapter(self, model: str, *, rank: int, seed: int) -> Adapter:
        """A new LoRA adapter of this rank, initialised from this seed, on a model."""
        with _naming("create_lora_training_client"):
            made = self._call(
                lambda: self._client.create_lora_training_client(base_model=model, rank=rank, seed=seed)
            )
        return Adapter(made, self.sdk, self._call)

    @property
    def version(self) -> str:
        """The version of the SDK, empty if it has none."""
        with suppress(PackageNotFoundError):
            return version("tinker")
        return ""

    def close(self) -> None:
        """End the thread of calls, and the SDK's session where it can be ended."""
        holder = getattr(self._client, "_session_holder", None)
        with suppress(Exception):
            if holder is not None:
                holder.close()
        self._one.shutdown(wait=False)

    def _call(self, call: Callable[[], T]) -> T:
        return self._one.submit(call).result()


def _logp(answer: Any) -> list[ndarray]:
    return [np.asarray(o["logprobs"].data, dtype=np.float64) for o in answer.loss_fn_outputs]


@contextmanager
def _naming(call: str) -> Iterator[None]:
    """Turns the SDK's errors into those of a user: what was called, and what the service answered."""
    try:
        yield
    except UserError:
        raise
    except Exception as e:
        named = {c.__name__ for c in type(e).__mro__}
        said = " ".join(str(e).split())[:300] or type(e).__name__
        if named & {"APIConnectionError", "APITimeoutError", "InternalServerError", "RateLimitError", "TimeoutError"}:
            raise Unreachable(f"the service did not answer {call} ({type(e).__name__}: {said}). What was answered is "
                              "kept: run the same command again to continue from the last checkpoint") from e
        if named & {"TinkerError", "ValueError", "OSError"}:
            raise UserError(f"the service rejects {call}: {said}") from e
        raise


def _key(url: str) -> str:
    key = os.environ.get(KEY, "")
    where = urlsplit(url)
    if key and where.scheme == "http" and where.hostname not in LOCAL:
        raise UserError(f"{url} is not encrypted, and the key in {KEY} would be sent to it: use https, or unset {KEY}")
    return key or NO_KEY


def _knock(url: str) -> None:
    """Raises UserError for an address that is none, and if nothing accepts a connection there: the SDK would retry."""
    where = urlsplit(url)
    with suppress(ValueError):
        if where.scheme in ("http", "https") and where.hostname and not (where.username or where.query):
            kind = HTTPSConnection if where.scheme == "https" else HTTPConnection
            link = kind(where.hostname, where.port, timeout=ANSWERS)
            try:
                link.request("GET", where.path.rstrip("/") + "/api/v1/healthz")
                link.getresponse()
            except (OSError, HTTPException) as e:
                raise UserError(f"no server answers at {url} ({e}): start it, or correct the address") from None
            finally:
                link.close()
            return
    raise UserError(f"{url!r} is not the address of a server; expected such as tinker:http://localhost:8000#MODEL")
