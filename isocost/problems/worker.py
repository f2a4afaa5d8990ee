"""A process that marks answers: one verifier, one JSON line in, one JSON line out.

Apart from the run, so that a verifier that hangs, exits or eats memory costs one score. What it prints is kept
apart from the answers. Should the run die first, an alarm ends a verifier that hangs.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import IO, Any

from isocost.errors import UserError
from isocost.problems import verify
from isocost.types import Message, Problem

MEMORY = 4 * 2**30     # bytes of address space for a built-in verifier: a tower of powers must not eat the machine


def main(name: str, limit: float) -> None:
    """Answer requests `[text, tokens, problem]` with `[kind, value or reason]` until the input ends.

    `limit` is in seconds: a request that takes longer ends the process.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        kind = verify.find(name)
        if isinstance(kind.mark, verify.Python):
            kind.mark.load()
    except UserError as e:
        _say(answers, "refused", str(e))
        return
    if not isinstance(kind.mark, verify.Python):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _say(answers, "ready", 0.0)
    for line in sys.stdin:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit)
        outcome = marked(kind.mark, line)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(answers, *outcome)


def marked(mark: verify.Verifier, line: str) -> tuple[str, float | str | None]:
    """One request's answer: ("score", value), ("none", None) or ("exception", what happened)."""
    text, tokens, (id, prompt, answer, meta) = json.loads(line)
    problem = Problem(id, tuple(Message(*m) for m in prompt), answer, meta=meta)
    try:
        value = mark(text, problem, tokens)
    except (Exception, SystemExit) as e:
        return "exception", f"{type(e).__name__}: {e}"[:500]
    return ("none", None) if value is None else ("score", float(value))


def _say(out: IO[str], kind: str, value: Any) -> None:
    out.write(json.dumps([kind, value]) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
