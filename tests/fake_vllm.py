"""A server with vLLM's protocol for tests, over HTTP: a real model, computed in torch, with a cache of prompts.

It can be made to fail as vLLM does where it is not driven well: to keep the keys of earlier weights in its cache, to
give log-probs at temperature 1 or a little off, not to take weights or adapters, or to answer 503 for a while.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch

from isocost.local.decoder import Decoder, causal
from isocost.local.lora import merged
from isocost.local.models import load
from isocost.local.weights import Model


class FakeVllm:
    """The state of a server of one model."""

    def __init__(self, model: Model, served: str = "served", room: int = 96, adapters: bool = True):
        self.decoder, self.served, self.room = _decoder(model), served, room
        self.base = model
        self.takes = adapters       # VLLM_ALLOW_RUNTIME_LORA_UPDATING
        self.adapters: dict[str, tuple[str, Decoder]] = {}      # by name: the folder, and the weights with it
        self.cache: dict[tuple[object, ...], Decoder] = {}      # prompts, and the weights that their keys are of
        self.asked: Counter[str] = Counter()
        self.faults: set[str] = set()
        self.busy = 0               # answers of 503 that are left
        self.bodies: list[dict] = []
        self.lock = threading.Lock()

    def answer(self, path: str, body: dict) -> tuple[int, object]:
        with self.lock:
            self.asked[path] += 1
            if path == "/version":
                return 200, {"version": "0.0.fake"}
            if path == "/v1/models":
                return 200, {"data": [{"id": self.served, "root": "/models/x", "max_model_len": self.room}]}
            if path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter") and self.takes:
                return self.swap(path, body)
            if path == "/v1/completions":
                if self.busy:
                    self.busy -= 1
                    return 503, {"error": {"message": "overloaded"}}
                if body["model"] != self.served and body["model"] not in self.adapters:
                    return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
                self.bodies.append(body)
                return 200, self.complete(body)
            if path == "/reset_prefix_cache":
                if "stale cache" not in self.faults:
                    self.cache.clear()
                return 200, None
            if path == "/collective_rpc":
                if "keeps its weights" not in self.faults:
                    self.decoder = _decoder(load(body["kwargs"]["weights_path"]))
                return 200, {"results": [None]}
            return (200, {"status": "ok"}) if path in ("/pause", "/resume") else (404, {"error": "no such path"})

    def swap(self, path: str, body: dict) -> tuple[int, object]:
        """As vLLM: a name is loaded once, and its answer is text."""
        name = body["lora_name"]
        if "no adapters" in self.faults:
            return 500, {"error": {"message": "LoRA is not enabled. Use --enable-lora to enable LoRA."}}
        if path == "/v1/unload_lora_adapter":
            return (200, f"Success: '{name}' removed") if self.adapters.pop(name, None) else (404, {"error": "unknown"})
        if name in self.adapters:
            return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded."}}
        kept = next(iter(self.adapters.values()), None) if "keeps its adapter" in self.faults else None
        decoder = kept[1] if kept else _decoder(merged(Path(body["lora_path"]), lambda _: self.base))
        self.adapters[name] = body["lora_path"], decoder
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    @torch.no_grad()
    def complete(self, body: dict) -> dict:
        prompt, T = tuple(body["prompt"]), body["temperature"]
        folder, decoder = self.adapters.get(body["model"], ("", self.decoder))
        key = prompt if "stale cache" in self.faults else (body["model"], folder, *prompt)
        decoder = self.cache.setdefault(key, decoder)
        rng, ids, logp, ended = np.random.default_rng(body["seed"]), [], [], False
        while len(ids) < body["max_tokens"] and not ended:
            whole = torch.tensor([[*prompt, *ids]])
            hidden = decoder.run(whole, decoder.turns[: whole.shape[1]], lambda layer: causal)
            z = decoder.logits(hidden[0, -1:])[0]
            dist = torch.log_softmax(z / T, -1)
            token = int(np.searchsorted(dist.double().exp().cumsum(0).numpy(), rng.random() * 0.999999))
            said = torch.log_softmax(z, -1) if "raw log-probs" in self.faults else dist
            ids.append(token)
            logp.append(float(said[token]) - 0.004 * ("another dtype" in self.faults))
            ended = token in body.get("stop_token_ids", ()) and not body.get("ignore_eos")
        choice = {
            "index": 0, "text": "", "token_ids": ids, "finish_reason": "stop" if ended else "length",
            "logprobs": {"tokens": [str(t) for t in ids], "token_logprobs": logp},
        }
        if "no token ids" in self.faults:
            del choice["token_ids"]
        return {"choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}}


def _decoder(model: Model) -> Decoder:
    out = Decoder(model.config).requires_grad_(False)
    for name, p in out.named_parameters():
        p.copy_(model.weights[name])
    return out


@contextmanager
def serving(model: Model | str | Path, **settings) -> Iterator[tuple[str, FakeVllm]]:
    """A server's address, and its state."""
    fake = FakeVllm(model if isinstance(model, Model) else load(str(model)), **settings)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}"))

        def reply(self, body: dict) -> None:
            status, found = fake.answer(self.path, body)
            raw = found.encode() if isinstance(found, str) else b"" if found is None else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
