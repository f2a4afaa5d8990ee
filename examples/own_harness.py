"""A harness that drives: it plays rooms through an OpenAI client, one request a move, and returns the reward.

    isocost envs check examples/own_harness.py
    isocost train grpo --env harness:examples/own_harness.py --budget 20k-env-steps --out runs/harness
"""

from openai import AsyncOpenAI

from isocost.envs.tiny.rooms import Rooms, Walk, problems

model, max_turns, max_tokens = "tiny-agents", 12, 2
# Each rollout has an address of its own. Without a timeout of yours, the client waits 5 s for a connection.
client = AsyncOpenAI(base_url="http://127.0.0.1", api_key="none", timeout=600)
HOUSE = {p.id: p for p in problems(Rooms())}


def tasks():
    return [{"id": p.id, "prompt": p.prompt[0].content} for p in HOUSE.values()]


async def drive(task, base_url, model):
    walk = Walk(HOUSE[task["id"]])
    messages = [{"role": "user", "content": task["prompt"]}]
    here = client.with_options(base_url=base_url)
    while True:
        said = (await here.chat.completions.create(model=model, messages=messages)).choices[0]
        shown = await walk.step(said.message.content, lambda: None)
        if shown.over or said.finish_reason == "length":
            return shown.reward
        messages += [{"role": "assistant", "content": said.message.content},
                     {"role": "tool", "content": shown.messages[0].content, "tool_call_id": "none"}]
