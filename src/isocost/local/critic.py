"""A value function: the expected reward of a rollout at every token, from a decoder with a head of one number."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isocost.batch import Batch
from isocost.local.decoder import Decoder, wide
from isocost.local.learner import LocalLearner
from isocost.types import Cost


class LocalCritic:
    """`isocost.world.Critic` on one device.

    It is created at the first call, as a copy of the current policy with a head of zeros, and costs nothing before.
    Afterwards it shares only its size and AdamW's settings with the policy. With `probability` its values are in
    (0, 1), and it is fitted by cross-entropy.
    """

    def __init__(self, learner: LocalLearner, *, probability: bool = False):
        self.learner, self.meter, self.device = learner, learner.meter, learner.device
        self.probability = probability
        self.decoder: Decoder | None = None

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        """(N, T) values before each sampled token, on the batch's device."""
        began, out = time.perf_counter(), torch.zeros_like(batch.logp)
        for rows in self._chunks(batch):
            found = self._predicted(batch.rows(rows))
            out[rows] = (torch.sigmoid(found) if self.probability else found).to(out)
        self.meter.charge(Cost(score=int(batch.length.sum()), seconds=time.perf_counter() - began))
        return out

    @torch.no_grad()
    def states(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """(N, 2 hidden) the state after each row's last token, and the mean state of its tokens, in float32."""
        began, out = time.perf_counter(), []
        for row in rows:    # each alone: its bits do not depend on the others
            hidden = self._created()(torch.tensor([list(row)[-self.learner.config.max_len :]], device=self.device))[0]
            out.append(torch.cat((hidden[-1], hidden.mean(0))).float().cpu())
        self.meter.charge(Cost(score=sum(map(len, rows)), seconds=time.perf_counter() - began))
        return torch.stack(out)

    def fit(self, batch: Batch, target: Tensor, *, lr: float) -> dict[str, float]:
        """One AdamW update on half the mean square of values minus targets, over the mask; or on the cross-entropy."""
        began, count, loss = time.perf_counter(), int(batch.mask.sum()), 0.0
        self._created()
        self.adam.zero_grad()
        for rows in self._chunks(batch):
            part = batch.rows(rows)
            here, wanted = part.mask.to(self.device), target[rows].to(self.device)
            found = self._predicted(part)[here]
            if self.probability:
                total = F.binary_cross_entropy_with_logits(found, wanted[here].to(found), reduction="sum")
                total = total / max(count, 1)
            else:
                total = (found - wanted[here]).square().sum() / (2 * max(count, 1))
            total.backward()
            loss += float(total.detach())
        norm = nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"], self.learner.adam.max_norm)
        self.adam.param_groups[0]["lr"] = lr
        if torch.isfinite(norm):
            self.adam.step()
        self.meter.charge(Cost(train=int(batch.length.sum()), updates=1, seconds=time.perf_counter() - began))
        return {"critic/loss": loss, "critic/grad_norm": float(norm)}

    def state(self) -> dict[str, Tensor]:
        """A copy of all that an exact continuation needs; empty before it is created."""
        if self.decoder is None:
            return {}
        named = {f"decoder.{k}": p for k, p in self.decoder.named_parameters()} | {"head": self.head}
        moments = self.adam.state_dict()["state"]
        return {k: p.detach().clone() for k, p in named.items()} | {
            f"adam.{i}.{k}": v.clone() for i, m in moments.items() for k, v in m.items()
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self.decoder = None
        if not state:
            return
        self._created()
        assert self.decoder is not None
        with torch.no_grad():
            for name, p in self.decoder.named_parameters():
                p.copy_(state[f"decoder.{name}"])
            self.head.copy_(state["head"])
        moments: dict[int, dict[str, Tensor]] = {}
        for _, at, name in (k.split(".") for k in state if k.startswith("adam.")):
            moments.setdefault(int(at), {})[name] = state[f"adam.{at}.{name}"].clone()
        self.adam.load_state_dict({"state": moments, "param_groups": self.adam.state_dict()["param_groups"]})

    def _created(self) -> Decoder:
        if self.decoder is None:
            mine, a = self.learner.decoder, self.learner.adam
            self.decoder = Decoder(self.learner.config, body=mine.body, device=self.device)
            with torch.no_grad():
                for new, old in zip(self.decoder.parameters(), mine.parameters(), strict=True):
                    new.copy_(old)
            self.head = nn.Parameter(
                torch.zeros(self.learner.config.hidden + 1, device=self.device, dtype=wide(mine.body))
            )
            self.adam = torch.optim.AdamW(
                [*self.decoder.parameters(), self.head], lr=0.0, betas=a.betas, eps=a.eps, weight_decay=a.weight_decay
            )
        return self.decoder

    def _predicted(self, batch: Batch) -> Tensor:
        hidden = self._created()(batch.tokens.to(self.device))
        after = F.linear(hidden, self.head[None, :-1], self.head[-1:])[..., 0]
        return F.pad(after[:, :-1], (1, 0)).masked_fill(~batch.mask.to(self.device), 0.0)

    def _chunks(self, batch: Batch) -> Iterator[Tensor]:
        """Neighbouring rows, within the learner's budget of tokens."""
        yield from torch.arange(len(batch.tokens)).split(max(self.learner.micro_tokens // batch.tokens.shape[1], 1))
