"""A service of the Tinker API inside this process, with the SDK's interface, over a real small model in torch.

Its gradients, optimiser and samples are computed, so that a client's numbers can be compared with the learner of this
machine. `faults` are what services were found to do, or could: see `FAULTS`. Adapters train all weights; nothing here
depends on the rank.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from isocost.local import models
from isocost.local.decoder import Decoder
from isocost.worlds import service

FAULTS = {
    "row-mean": "averages over the tokens of a row and over rows",
    "token-mean": "averages over all tokens of a call",
    "masked-mean": "averages over the tokens of a row with an advantage",
    "sign": "goes up where it should go down",
    "temperature": "the learner's log-probs are those of T = 0.7",
    "sampler": "the sampler draws at T = 0.7 and reports log-probs of T = 1",
    "scaled": "the sampler reports log-probs at the requested temperature",
    "clip": "clips the ratio to 1 ± 0.2",
    "ratio": "ignores the log-probs it is sent",
    "norm": "clips the gradient to the norm 1 unasked",
    "shift": "returns log-probs one position late",
    "seed": "ignores seeds",
    "stale": "samples with the weights before the last step",
    "decay": "decays weights unasked",
    "weights-only": "restores no optimiser",
    "no-end": "leaves out the end token",
}
RESULT = type("Result", (), {"__init__": lambda self, value: setattr(self, "value", value),
                             "result": lambda self: self.value})


class Fields:
    """A type of the SDK: the fields it knows, as pydantic lists them."""

    model_fields: ClassVar = {}

    def __init__(self, **given):
        unknown = given.keys() - self.model_fields.keys()
        assert not unknown, unknown
        for k, default in self.model_fields.items():
            setattr(self, k, given.get(k, default))


class TensorData(Fields):
    model_fields: ClassVar = {"data": None, "dtype": None, "shape": None}


class ModelInput(Fields):
    model_fields: ClassVar = {"ints": None}

    @classmethod
    def from_ints(cls, ints):
        assert all(type(i) is int for i in ints)
        return cls(ints=ints)


class Datum(Fields):
    model_fields: ClassVar = {"model_input": None, "loss_fn_inputs": None}


class SamplingParams(Fields):
    model_fields: ClassVar = {"max_tokens": None, "seed": None, "stop": None, "temperature": 1, "top_k": -1, "top_p": 1}


class AdamParams(Fields):
    model_fields: ClassVar = {
        "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0, "grad_clip_norm": 0.0,
    }


class TinkerError(Exception):
    pass


class Server:
    """All state of the service: adapters, what was saved, and counts of calls."""

    def __init__(self, model="tiny", faults=()):
        assert set(faults) <= FAULTS.keys()
        self.model, self.faults, self.saved, self.calls = models.load(model), set(faults), {}, 0
        self.random = np.random.default_rng(0)
        self.now, self.tokens, self.rates = 0.0, Counter(), {}

    def does(self, kind, tokens):
        """Count tokens as a service bills them, and let its clock go on at the rates that a test gives it."""
        self.tokens[kind] += tokens
        self.now += tokens / self.rates.get(kind, float("inf"))


class ServiceClient:
    server: Server      # set by `install`

    def __init__(self, base_url=None, api_key=None):
        self.base_url, self.api_key = base_url, api_key

    def get_server_capabilities(self):
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=self.server.model.name)])

    def create_lora_training_client(self, base_model, rank=32, seed=None):
        if base_model != self.server.model.name:
            raise TinkerError(f"no model {base_model}")
        return TrainingClient(self.server)


class TrainingClient:
    def __init__(self, server):
        self.server = server
        self.decoder = Decoder(server.model.config)
        with torch.no_grad():
            for name, p in self.decoder.named_parameters():
                p.copy_(server.model.weights[name])
        self.moments, self.steps, self.before = {}, 0, None

    def _logp(self, tokens):
        tokens = torch.tensor(tokens)
        logits = self.decoder.logits(self.decoder(tokens[None]))[0, :-1]
        if "temperature" in self.server.faults:
            logits = logits / 0.7
        return F.log_softmax(logits, -1).gather(-1, tokens[1:, None])[:, 0]

    def _rows(self, data):
        for d in data:
            inputs = {k: torch.tensor(v.data) for k, v in d.loss_fn_inputs.items()}
            tokens = [*d.model_input.ints, int(inputs["target_tokens"][-1])]
            assert inputs["target_tokens"].tolist() == tokens[1:]
            yield self._logp(tokens), inputs

    def _answer(self, logps):
        if "shift" in self.server.faults:
            logps = [torch.cat((x[:1], x[:-1])) for x in logps]
        outputs = [{"logprobs": TensorData(data=x.detach().tolist())} for x in logps]
        return RESULT(SimpleNamespace(loss_fn_outputs=outputs, metrics={}))

    @torch.no_grad()
    def forward(self, data, loss_fn):
        self.server.calls += 1
        self.server.does("forward", sum(len(d.model_input.ints) for d in data))
        return self._answer([x for x, _ in self._rows(data)])

    def forward_backward(self, data, loss_fn):
        self.server.calls += 1
        faults, logps, total = self.server.faults, [], 0.0
        counts = [len(d.model_input.ints) for d in data]
        self.server.does("train", sum(counts))
        for logp, inputs in self._rows(data):
            logps.append(logp)
            if loss_fn == "cross_entropy":
                loss, counted = -logp * inputs["weights"], inputs["weights"] != 0
            else:
                assert loss_fn == "importance_sampling"
                ratio = torch.exp(logp - inputs["logprobs"])
                if "ratio" in faults:
                    ratio = torch.exp(logp - logp.detach())
                loss, counted = -ratio * inputs["advantages"], inputs["advantages"] != 0
                if "clip" in faults:
                    loss = torch.maximum(loss, -ratio.clamp(0.8, 1.2) * inputs["advantages"])
            scale = 1.0
            if "row-mean" in faults:
                scale = 1 / len(logp) / len(data)
            elif "token-mean" in faults:
                scale = 1 / sum(counts)
            elif "masked-mean" in faults:
                scale = 1 / max(int(counted.sum()), 1)
            total = total + loss.sum() * (-scale if "sign" in faults else scale)
        total.backward()
        return self._answer(logps)

    @torch.no_grad()
    def optim_step(self, a):
        self.server.calls += 1
        self.server.does("step", 1)
        self.before = copy.deepcopy(self.decoder)
        self.steps += 1
        own = dict(self.decoder.named_parameters())
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in own.values() if p.grad is not None]))
        limit = 1.0 if "norm" in self.server.faults else a.grad_clip_norm
        share = min(1.0, limit / (float(norm) + 1e-6)) if limit else 1.0
        for name, p in own.items():
            g = torch.zeros_like(p) if p.grad is None else p.grad * share
            m, v = self.moments.get(name, (torch.zeros_like(p), torch.zeros_like(p)))
            m, v = m * a.beta1 + g * (1 - a.beta1), v * a.beta2 + g * g * (1 - a.beta2)
            self.moments[name] = m, v
            if "decay" in self.server.faults:
                p.mul_(1 - 1e-3)
            p.mul_(1 - a.learning_rate * a.weight_decay)
            p.sub_(a.learning_rate * (m / (1 - a.beta1**self.steps)) / ((v / (1 - a.beta2**self.steps)).sqrt() + a.eps))
            p.grad = None
        return RESULT(SimpleNamespace(metrics={"fake/grad_norm": float(norm)}))

    def save_state(self, name):
        path = f"tinker://fake/weights/{name}"
        self.server.saved[path] = copy.deepcopy((self.decoder.state_dict(), self.moments, self.steps))
        return RESULT(SimpleNamespace(path=path))

    def load_state_with_optimizer(self, path):
        if path not in self.server.saved:
            raise TinkerError(f"no checkpoint {path}")
        weights, moments, steps = copy.deepcopy(self.server.saved[path])
        self.decoder.load_state_dict(weights)
        self.moments, self.steps = ({}, 0) if "weights-only" in self.server.faults else (moments, steps)
        return RESULT(None)

    def save_weights_and_get_sampling_client(self):
        stale = "stale" in self.server.faults and self.before is not None
        return SamplingClient(self.server, copy.deepcopy(self.before if stale else self.decoder))


class SamplingClient:
    def __init__(self, server, decoder):
        self.server, self.decoder = server, decoder

    async def sample_async(self, prompt, num_samples, sampling_params):
        return self.sample(prompt, num_samples, sampling_params).result()

    @torch.no_grad()
    def sample(self, prompt, num_samples, sampling_params):
        assert num_samples == 1
        p, faults = sampling_params, self.server.faults
        random = self.server.random if "seed" in faults else np.random.default_rng(p.seed)
        tokens, logps, reason = [], [], "length"
        for _ in range(p.max_tokens):
            row = torch.tensor([[*prompt.ints, *tokens]])
            logits = self.decoder.logits(self.decoder(row)[0, -1]).double()
            chances = F.softmax(logits / (0.7 if "sampler" in faults else p.temperature), -1).numpy()
            token = int(random.choice(len(chances), p=chances / chances.sum()))
            tokens.append(token)
            logps.append(float(F.log_softmax(logits / (p.temperature if "scaled" in faults else 1.0), -1)[token]))
            if token in p.stop:
                reason = "stop"
                break
        if "no-end" in faults and reason == "stop":
            tokens, logps = tokens[:-1], logps[:-1]
        self.server.does("prefill", len(prompt.ints))
        self.server.does("sample", len(tokens))
        one = SimpleNamespace(tokens=tokens, logprobs=logps, stop_reason=reason)
        return RESULT(SimpleNamespace(sequences=[one]))


def install(monkeypatch, *faults, model="tiny") -> Server:
    """Put the fake in the place of the SDK; every client made from now on reaches the returned server."""
    sdk, server = ModuleType("tinker"), Server(model, faults)
    sdk.types = SimpleNamespace(
        TensorData=TensorData, ModelInput=ModelInput, Datum=Datum, SamplingParams=SamplingParams, AdamParams=AdamParams,
    )
    sdk.ServiceClient = type("ServiceClient", (ServiceClient,), {"server": server})
    monkeypatch.setitem(sys.modules, "tinker", sdk)
    monkeypatch.setattr(service, "_knock", lambda url: None)
    return server
