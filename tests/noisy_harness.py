"""A harness of rooms in which one move in five slips, with the luck of each completion; for runs that are killed."""

import http.client
import json
from urllib.parse import urlsplit

import numpy as np

from isocost.envs.tiny.rooms import Rooms, Walk, problems

model, max_turns, max_tokens = "tiny-agents", 8, 2
HOUSE = {p.id: p for p in problems(Rooms(slip=0.2))}


def tasks():
    return [{"id": p.id, "prompt": p.prompt[0].content} for p in HOUSE.values()]


def drive(task, base_url, model):
    walk, messages, url = Walk(HOUSE[task["id"]]), [{"role": "user", "content": task["prompt"]}], urlsplit(base_url)
    there = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
    try:
        while True:
            there.request("POST", f"{url.path}/chat/completions", json.dumps({"messages": messages}))
            said = json.loads(there.getresponse().read())
            if "error" in said:
                return 0.0
            (choice,), luck = said["choices"], said["isocost"]["luck"]
            step = walk.step(choice["message"]["content"], lambda luck=luck: np.random.default_rng(luck))
            try:
                step.send(None)
            except StopIteration as done:
                shown = done.value
            if shown.over or choice["finish_reason"] == "length":
                return shown.reward
            messages += [choice["message"], {"role": "tool", "content": shown.messages[0].content}]
    finally:
        there.close()
