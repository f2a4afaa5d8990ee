"""Check of the sandbox that the environment `python` runs a model's programs in."""

from __future__ import annotations

from isocost.doctor.case import Case
from isocost.doctor.finding import Finding
from isocost.envs.sandbox.client import LAYERS, available


async def sandbox(case: Case) -> Finding:
    """Which of its layers hold on this machine. Without one, only environments that need it cannot be opened."""
    found = available()
    if "missing" in found:
        return Finding("sandbox", "warn", found["missing"], "needed only by --env python")
    held = [f"Landlock (ABI {found['landlock']})" if x == "landlock" else x for x in LAYERS if found[x]]
    spaces = found["namespaces"]
    held += [f"namespaces ({', '.join(spaces)})"] if spaces else []
    return Finding("sandbox", "ok", f"these layers hold for programs of a model: {', '.join(held)}")
