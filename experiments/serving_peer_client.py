"""One side of `experiments/serving_peer.py`: asks a server for answers, by its_hub or by the server's strategies.

It runs in an environment of its own, which has its_hub and openai and not isocost. It reads a JSON object from standard
input (url, score, algorithm, size, most, prompts, side) and prints one: answers, CPU seconds without scoring, and
failures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
import warnings
from typing import Any

TOGETHER = 8        # problems under way
END = ">"           # what its_hub looks for at the end of a text: the server does not send the end token


def scored(asked: dict[str, Any], prompt: str, texts: list[str], over: list[bool]) -> list[float]:
    """Scores of texts by the scorer's address, whose time is apart."""
    global SCORING
    began = time.thread_time()
    body = json.dumps({"question": prompt, "texts": texts, "over": over}).encode()
    request = urllib.request.Request(asked["score"], body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        found = json.load(answer)["scores"]
    SCORING += time.thread_time() - began
    return found


SCORING = 0.0
CLOSING: list[Any] = []


def theirs(asked: dict[str, Any]) -> Any:
    """`one(prompt)` by an algorithm of its_hub."""
    from its_hub.api.reward_models.orm import AbstractOutcomeRewardModel
    from its_hub.api.reward_models.prm import AbstractProcessRewardModel
    from its_hub.core.algorithms.bon import BestOfN
    from its_hub.core.algorithms.particle_gibbs import ParticleGibbs
    from its_hub.core.algorithms.self_consistency import SelfConsistency
    from its_hub.core.lms.openai_lm import OpenAICompatibleLanguageModel
    from its_hub.core.lms.step_generation import StepGeneration
    from its_hub.core.orchestrator import LMOrchestrator

    class Ends(OpenAICompatibleLanguageModel):
        """Marks a text that ended by itself, not at a step: for the search over steps."""

        async def agenerate(self, messages: Any, **how: Any) -> Any:
            found = await super().agenerate(messages, **how)
            for message in found if isinstance(found, list) else [found]:
                raw = message.pop("_raw_choice")
                if not message["content"].endswith(";") or raw["finish_reason"] == "length":
                    message["content"] += END
            return found

    class Outcome(AbstractOutcomeRewardModel):
        score = None

        async def ascore(self, conversations: Any, **how: Any) -> list[float]:
            prompt = conversations[0][0].content
            texts = [c[-1].content for c in conversations]
            return await asyncio.to_thread(scored, asked, prompt, texts, [True] * len(texts))

    class Process(AbstractProcessRewardModel):
        score = None

        async def ascore(self, prompt: Any, texts: Any, **how: Any) -> list[float]:
            return await asyncio.to_thread(
                scored, asked, prompt, [t.removesuffix(END) for t in texts], [not t.endswith(";") for t in texts])

    orchestrator = LMOrchestrator(max_concurrency=-1)
    if asked["algorithm"] == "particles":
        lm = Ends(asked["url"], "any", "any", max_completion_tokens=128, include_raw_choices=True)
        steps = StepGeneration(64, ";", END, temperature=1.0, include_stop_str_in_output=True)
        algorithm = ParticleGibbs(steps, Process(), resampling_method="systematic")
    else:
        lm = OpenAICompatibleLanguageModel(asked["url"], "any", "any", max_completion_tokens=128, temperature=1.0)
        algorithm = (BestOfN(Outcome(), orchestrator=orchestrator) if asked["algorithm"] == "best-of" else
                     SelfConsistency(lambda text: text.rpartition(";")[2], orchestrator=orchestrator))

    CLOSING.append(lm.close)

    async def one(prompt: str) -> str:
        answer = await algorithm.ainfer(lm, prompt, asked["size"])
        return str(answer["content"]).removesuffix(END)

    return one


def ours(asked: dict[str, Any]) -> Any:
    """`one(prompt)` by a strategy of the server, with the official client."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=asked["url"], api_key="any")

    async def one(prompt: str) -> str:
        answer = await client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": prompt}], max_tokens=asked["most"],
            extra_body={"isocost": {"strategy": asked["algorithm"]}})
        return answer.choices[0].message.content or ""

    return one


async def main() -> None:
    asked = json.load(sys.stdin)
    warnings.simplefilter("ignore", DeprecationWarning)
    one = (theirs if asked["side"] == "its_hub" else ours)(asked)
    gate, failed = asyncio.Semaphore(TOGETHER), []

    async def within(prompt: str) -> str | None:
        async with gate:
            try:
                return await one(prompt)
            except Exception as e:
                failed.append(f"{type(e).__name__}: {e}"[:200])
                return None

    began = time.process_time()
    answers = await asyncio.gather(*map(within, asked["prompts"]))
    cpu = time.process_time() - began
    for close in CLOSING:
        await close()
    print(json.dumps({"answers": answers, "cpu": cpu - SCORING, "failed": failed}))


if __name__ == "__main__":
    asyncio.run(main())
