"""A running address of harnesses whose policy says again what it was last told: `python gateway_server.py DESCRIPTORS`.

Prints the address of its session, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
import time

import numpy as np

from isocost.envs.gateway_protocol import Reply, parted
from isocost.envs.harness.gateway import Gateway, RolloutSession


async def answer(session: RolloutSession) -> None:
    number = 0
    while True:
        request = await session.next()
        said = request.asked.entries[-1].content
        if said.startswith("wait"):
            await asyncio.sleep(0.1)
        if said.startswith("busy"):
            time.sleep(0.1)
        content, calls, _ = parted(said, request.asked)
        logp = np.array([-np.inf if said == "minus" else np.nan if said == "nan" else -0.5], np.float32)
        session.answer(request, Reply(
            content, calls, "tool_calls" if calls else "stop", number, 0, tokens=np.zeros(1, np.int64), logp=logp,
            pieces=(said,)))
        number += 1


async def main() -> None:
    session = await Gateway.here().open()
    print(session.base_url, flush=True)
    work = asyncio.create_task(answer(session))
    await asyncio.to_thread(sys.stdin.read)
    work.cancel()
    await Gateway.here().close(session)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
    asyncio.run(main())
