"""The process that plays games of TextWorld: a fork for each, so that a crash of a game ends nothing else.

The interpreter of games is a C library that reads what a model wrote, and some texts crash it. This program imports
`textworld` once, listens at a socket of a private folder, and forks for each connection. A connection is JSON lines:
`{"file", "seed"}`, then `{"command"}` each time; each is answered by the game's words, score and end. A fork that
computes for more than `LIMIT` seconds ends. The program ends when its standard input is closed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
from typing import Any

LIMIT = 20      # seconds of one command


def play(connection: socket.socket, textworld: Any) -> None:
    """One game, until the other side closes the connection."""
    lines = connection.makefile("rwb")
    game: Any = None
    for line in lines:
        asked = json.loads(line)
        signal.alarm(LIMIT)
        done = False
        if game is None:
            wanted = textworld.EnvInfos(max_score=True, score=True, location=True, inventory=True)
            game = textworld.start(asked["file"], wanted)
            game.seed(asked["seed"])
            state = game.reset()
        else:
            state, _, done = game.step(asked["command"])
        signal.alarm(0)
        answer = {"feedback": str(state.feedback), "score": float(state.score or 0), "done": bool(done),
                  "most": float(state.max_score or 1), "where": f"{state.get('location')} {state.get('inventory')}"}
        lines.write(json.dumps(answer).encode() + b"\n")
        lines.flush()


def main() -> None:
    """Listen at the path that is the only argument; "ready" is written when connections are accepted."""
    import textworld  # type: ignore[import-not-found, unused-ignore]  # the extra `textworld`

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)        # forks are not waited for
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen(256)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)      # PR_SET_PDEATHSIG: it ends with this process
            try:
                play(connection, textworld)
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
