"""The files that hold a trainer's configuration, as flat keys: YAML, JSON, TOML, launch lines, and folders of runs.

Nothing is executed: of a script its own variables and sums of them are filled in, and what else it computes stays text.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.reading.text import cell, head, json_of, number
from isocost.trainers.trl import arguments_in

SUFFIXES = (".json", ".toml", ".yaml", ".yml")     # a tree; other files are scripts
LISTED = ("training_args.json", "args.json", "config.yaml", "config.yml", "config.json", "configs/rl.json", "rl.toml",
          "config.toml", ".hydra/config.yaml", "files/config.yaml")     # in a run's folder
LAUNCHED = re.compile(r"[+]{0,2}[A-Za-z_][\w./@-]*=")
SECTION = re.compile(r"^\s*(\w+)\+?=\(\s*\n(.*?)^\s*\)", re.M | re.S)
ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$|^\s*:\s*\"?\$\{([A-Za-z_]\w*):?=(.*)\}\"?\s*$", re.M)
USED = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[@\])?(?::?-([^{}]*))?\}|\$([A-Za-z_]\w*)")

SUM = re.compile(r"\"?\$\(\((.*)\)\)\"?")
SUMS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def in_folder(folder: Path) -> list[Path]:
    """The files of a run's folder that may hold its configuration, or the folder itself where an event file does."""
    found = [folder / name for name in LISTED if (folder / name).is_file()]
    return found or ([folder] if arguments_in(folder) else [])


def flat_of(path: Path) -> list[tuple[dict[str, Any], list[str]]]:
    """The (flat configuration, what of it is not read) that a file may be: one, or for a script one a command."""
    if path.is_dir():
        return [(flattened(arguments_in(path)), [])]
    if path.suffix in SUFFIXES:
        notes: list[str] = []
        return [(_filled(flattened(_whole(path, notes))), notes)]
    if "\0" in head(path, 4096):
        raise UserError(f"{path} is not text: name a YAML, JSON or TOML file, or a script with a launch line")
    return [_launched(words, path) for words in _commands(path.read_text(encoding="utf-8", errors="replace"))]


def _filled(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Values that are another key's, `${data.max_length}`, as that key has them."""
    asked = {k: m[1] for k, v in flat.items() if isinstance(v, str) and (m := re.fullmatch(r"\$\{([\w.]+)\}", v))}
    return {k: flat.get(asked[k], v) if k in asked else v for k, v in flat.items()}


def _whole(path: Path, notes: list[str]) -> dict[str, Any]:
    """A file's tree, on top of the files that it names as its `defaults`."""
    if path.suffix == ".json":
        tree = json_of(path)
    elif path.suffix == ".toml":
        try:
            tree = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise UserError(f"{path} is not TOML: {e}") from None
    else:
        tree = _yaml(path)
    if not isinstance(tree, dict):
        raise UserError(f"{path} holds a {type(tree).__name__}; expected a configuration: keys and values")
    if tree and all(isinstance(v, dict) and "value" in v for k, v in tree.items() if k != "wandb_version"):
        tree = {k: v["value"] for k, v in tree.items() if isinstance(v, dict)}      # as wandb writes it
    below: dict[str, Any] = {}
    asked = tree.pop("defaults", [])
    for name in [asked] if isinstance(asked, str) else [x for x in asked if isinstance(x, str) and x != "_self_"]:
        base = path.parent / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        if base.is_file():
            below = _merged(below, _whole(base, notes))
        else:
            notes.append(f"it is on top of {name}, which is not in its folder: what only that file states is not read")
    return _merged(below, tree)


def _merged(below: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for k, v in top.items():
        out[k] = _merged(out[k], v) if isinstance(v, Mapping) and isinstance(out.get(k), Mapping) else v
    return out


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise UserError(f"reading {path} needs PyYAML: pip install pyyaml") from None
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise UserError(f"{path} is not YAML: {' '.join(str(e).split())}") from None


def flattened(tree: Any, before: str = "") -> dict[str, Any]:
    """Keys with dots; a list of tables has its numbers in them. Text that is a number, as YAML reads 1e-6, is one."""
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    out: dict[str, Any] = {}
    for key, value in pairs:
        name = f"{before}.{key}" if before else str(key)
        if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(x, Mapping) for x in value)):
            out |= flattened(value, name)
        else:
            out[name] = _scalar(value)
    return out


def _scalar(x: Any) -> Any:
    if isinstance(x, list):
        return [_scalar(i) for i in x]
    if not isinstance(x, str) or " " in x.strip():
        return x
    plain = {"true": True, "false": False, "null": None, "none": "none"}.get(x.lower(), x)
    value = number(cell(x)) if isinstance(plain, str) else None
    return plain if value is None else int(value) if re.fullmatch(r"[+-]?\d+", x.strip()) else value


def _commands(text: str) -> list[list[str]]:
    """The words of every command of a script with options, its own variables filled in. Nothing is executed."""
    text = re.sub(r"^\s*#.*\n?", "", text.replace("\r", ""), flags=re.M)
    text = re.sub(r'"(\$\{\w+\[@\]\})"', r"\1", text)        # its words, and not one
    held = {m[1]: " ".join(m[2].split("\n")) for m in SECTION.finditer(text)}
    text = re.sub(r"\\\n", " ", SECTION.sub("", text))
    for m in ASSIGNED.finditer(text):
        value = _used(m[2] if m[1] else m[4], held)
        total = SUM.fullmatch(value.split(" #")[0].strip())
        try:
            words = [str(_summed(ast.parse(total[1].strip(), mode="eval").body))] if total else shlex.split(
                value, comments=True)
        except (ValueError, SyntaxError, KeyError, AttributeError, ZeroDivisionError):
            continue
        if len(words) <= 1:
            held[m[1] or m[3]] = words[0] if words else ""
    out = []
    for line in text.split("\n"):
        try:
            words = shlex.split(_used(line, held), comments=True)
        except ValueError:
            continue
        if sum(w.startswith("--") or bool(LAUNCHED.match(w)) for w in words) > 1:
            out.append(words)
    return out


def _used(text: str, held: Mapping[str, str]) -> str:
    """A text with the variables that are known; the innermost first, as `${A:-${B}/c}` has them."""
    for _ in range(6):
        text = USED.sub(lambda m: held.get(m[1] or m[3], m[2] if m[2] is not None else f"${m[1] or m[3]}"), text)
    return text


def _summed(x: ast.expr) -> int:
    """A sum, difference, product or quotient of integers, as in `$(( ))`; else raises KeyError or AttributeError."""
    if isinstance(x, ast.BinOp):
        return int(SUMS[type(x.op)](_summed(x.left), _summed(x.right)))
    return int(x.value)     # type: ignore[attr-defined]


def _launched(words: Sequence[str], path: Path) -> tuple[dict[str, Any], list[str]]:
    """The options of a launch line, `key=value` or `--key value ...`, on top of the files that it names; and notes."""
    words = words[words.index("--") + 1:] if "--" in words else words       # behind it: what is launched
    script = next((i for i, w in enumerate(words) if i and (words[i - 1] == "-m" or (
        w.endswith(".py") and not words[i - 1].startswith("--")))), 0)
    below: dict[str, Any] = {}
    flat: dict[str, Any] = {}
    notes = [f"{w} of its launch line is not known, so options in it are not read" for w in words[script:]
             if re.fullmatch(r"\$\w+", w)]
    key = ""
    for word in words[script:]:
        if word.startswith("--") and len(word) > 2:
            name, given, value = word[2:].partition("=")
            key = "" if given else name
            flat[name] = _literal(value) if given else True
        elif LAUNCHED.match(word):
            name, _, value = word.lstrip("+").partition("=")
            flat[name], key = _literal(value), ""
        elif key and not word.startswith("$"):
            value = _literal(word)
            flat[key] = value if flat[key] is True else [*flat[key], value] if isinstance(flat[key], list) else [
                flat[key], value]
        elif word == "@":
            key, flat["config"] = "config", True
    named = flat.pop("config", None)
    for name in named if isinstance(named, list) else [named] if isinstance(named, str) else []:
        found = next((p for p in (path.parent / name, Path(name)) if p.is_file()), None)
        if found is not None:
            below |= flattened(_whole(found, notes))
        else:
            notes.append(f"it is on top of {name}, which is not in its folder: what only that file states is not read")
    return _filled({**below, **flat}), notes


def _literal(text: str) -> Any:
    """A value on a launch line: a number, a word, or a list that Python and JSON read alike."""
    if text.startswith(("[", "{", "'", '"')):
        for load in (json.loads, ast.literal_eval):
            try:
                return load(text)
            except (ValueError, SyntaxError):
                continue
    return _scalar(text)
