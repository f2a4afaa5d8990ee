"""Other trainers and the formats of their logs: one file for each, and nothing to register.

A file here is a trainer's or a format's if it has a `TITLE`, its name. It holds what of this applies:

    SIZES              the trainer's names for n, B and M: three texts with {n}, {B}, {nB} and {M} in them
    SETTINGS           where its configuration holds each fact (`names.Settings`)
    NAMES              its logs' columns (`names.Names`), the more specific first
    READS, GIVES, LACKS, recognise(path) -> bool, read(path, columns) -> list[Log]
                       a source of `isocost import`: what is read, what such logs give and lack, whether a file or
                       folder is such a log (reads little), and every run in it (`logs`)
    VERSION, write(p) -> str
                       a target of `isocost export`: what it was written against, and the whole configuration
                       (`export.Prescription` -> text that ends with a newline)
    write_control(p) -> str
                       the same for value-based control (`export.ControlPrescription`)
    DRIVE              how its runs are launched, read while they train, and continued (`drive.Drive`)
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

# Specific sources come first: a log is read by the first that recognises it.
ORDER = ("trl", "swift", "verl", "prime_rl", "nemo_rl", "skyrl", "slime", "openrlhf", "tinker", "sb3", "cleanrl",
         "wandb", "tensorboard", "csv", "jsonl")


def modules(what: str) -> dict[str, Any]:
    """The trainers and formats that have `what` (such as `read` or `NAMES`), by name, in `ORDER`; others come first."""
    found = sorted((m.name for m in pkgutil.iter_modules(__path__)),
                   key=lambda name: (ORDER.index(name) if name in ORDER else -1, name))
    loaded = {n.replace("_", "-"): importlib.import_module(f"{__name__}.{n}") for n in found}
    return {n: m for n, m in loaded.items() if hasattr(m, "TITLE") and hasattr(m, what)}
