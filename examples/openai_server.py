"""An OpenAI-compatible server of a model that isocost loads: the built-in ones, a folder, or a run's `final` folder.

    python examples/openai_server.py                                    # serve 'tiny', measure it over HTTP, end
    python examples/openai_server.py --model runs/grpo-0/final --port 8000      # serve until Ctrl-C

It has /v1/models, /v1/chat/completions and /v1/completions, with n, seed, temperature, top_p, top_k, max_tokens and
logprobs. A seed gives the same tokens in any company. Standard library only, no encryption: for your own machine.
"""

import argparse
import asyncio
import json
import threading
from contextlib import suppress
from itertools import count

import numpy as np

from isocost.errors import UserError
from isocost.local.world import open_world
from isocost.types import Message, Place, Role, Sampling, Segment, Stop

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


class Server:
    """Answers requests on a socket; all requests in flight are decoded together."""

    def __init__(self, model="tiny", name=None):
        self.world, self.name, self.numbers = open_world(model, (), None), name or model, count()

    async def answer(self, method, path, body):
        """(status, headers, JSON) of a request. Tests replace it to answer with faults."""
        if (method, path) == ("GET", "/v1/models"):
            return 200, {}, {"object": "list", "data": [{"id": self.name, "object": "model"}]}
        if method != "POST" or path not in ("/v1/chat/completions", "/v1/completions"):
            return 404, {}, error(f"no {method} {path}")
        if body.get("model") != self.name:
            return 404, {}, error(f"the model {body.get('model')!r} does not exist; there is {self.name}")
        try:
            return 200, {}, await self.completions(body, path == "/v1/chat/completions")
        except (UserError, KeyError, TypeError, ValueError) as e:
            return 400, {}, error(f"{type(e).__name__}: {e}")

    async def completions(self, body, chat):
        text, seed = self.world.text, body.get("seed")
        if chat:
            tokens = text.prompt([Message(m["role"], m["content"]) for m in body["messages"]])
        else:
            tokens = text.encode(body["prompt"])
        how = Sampling(body.get("temperature", 1.0), body.get("top_p", 1.0), max(body.get("top_k", 0), 0))
        place = Place(next(self.numbers) if seed is None else int(seed), 0, 0, 1 if seed is None else 2)
        said = await self.world.engine.generate(
            Segment.empty(how).read(tokens, Role.PROMPT), range(body.get("n", 1)), place=place, turn=0,
            max_tokens=body.get("max_tokens", 16),
        )
        read, written = len(tokens), sum(len(s.tokens) for s in said)
        return {
            "object": "chat.completion" if chat else "text_completion", "model": self.name,
            "choices": [self.choice(i, s, chat, bool(body.get("logprobs"))) for i, s in enumerate(said)],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }

    def choice(self, index, said, chat, logprobs):
        tokens, text = said.tokens.tolist(), self.world.text
        words = text.decode(tokens)
        out = {"index": index, "finish_reason": "length" if said.stop is Stop.LENGTH else "stop", "logprobs": None}
        out |= {"message": {"role": "assistant", "content": words}} if chat else {"text": words}
        pieces, logp = [text.decode([t]) for t in tokens], np.asarray(said.logp, dtype=float).tolist()
        if logprobs and chat:
            content = [{"token": t, "logprob": p} for t, p in zip(pieces, logp, strict=True)]
            out["logprobs"] = {"content": content}
        elif logprobs:
            out["logprobs"] = {"tokens": pieces, "token_logprobs": logp}
        return out

    async def connected(self, reader, writer):
        """Requests of one connection, until it is closed."""
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers = {}
                while (line := await reader.readline()).strip():
                    key, _, value = line.decode().partition(":")
                    headers[key.lower()] = value.strip()
                raw = await reader.readexactly(int(headers.get("content-length", 0)))
                answered = await self.answer(method, path, json.loads(raw) if raw else {})
                if answered is None:        # a fault: the connection is cut
                    return
                status, more, data = answered
                payload = json.dumps(data).encode()
                head = {"Content-Type": "application/json", "Content-Length": len(payload), **more}
                lines = "".join(f"{k}: {v}\r\n" for k, v in head.items())
                writer.write(f"HTTP/1.1 {status} {REASONS.get(status, '')}\r\n{lines}\r\n".encode() + payload)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def serve(self, port=0, ready=lambda port: None):
        """Listen on this machine until cancelled; `ready` gets the port."""
        async with await asyncio.start_server(self.connected, "127.0.0.1", port) as server:
            ready(server.sockets[0].getsockname()[1])
            await server.serve_forever()


def error(message):
    return {"error": {"message": message, "type": "invalid_request_error"}}


class Background:
    """`with Background(server) as url:` serves from another thread."""

    def __init__(self, server):
        self.server, self.up = server, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        async def served():
            self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
            await self.server.serve(ready=self.ready)

        with suppress(asyncio.CancelledError):
            asyncio.run(served())

    def ready(self, port):
        self.port = port
        self.up.set()

    def __enter__(self):
        self.thread.start()
        self.up.wait()
        return f"http://127.0.0.1:{self.port}/v1"

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join()


def main():
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--model", default="tiny")
    asked.add_argument("--port", type=int)
    options = asked.parse_args()
    server = Server(options.model)
    if options.port is not None:
        with suppress(KeyboardInterrupt):
            asyncio.run(server.serve(options.port, lambda port: print(f"http://127.0.0.1:{port}/v1#{server.name}")))
        return
    from isocost.steps.look.evaluate import evaluate_model
    from isocost.steps.settings import setting_with

    with Background(server) as url:
        found = evaluate_model(setting_with(model=f"openai:{url}#{server.name}", data="sums:base=easy,count=40"))
    print(f"over HTTP: pass@1 {found.right.value:.3f} [{found.right.low:.3f}, {found.right.high:.3f}]")
    print(f"{found.server['sent']} requests, {found.cost['decode']:,} tokens written")


if __name__ == "__main__":
    main()
