"""JSON files and streams of JSON lines, read and written in one place.

What is written is plain JSON: NaN and infinities, which JSON lacks, become null. What is read is a whole document of
the shape that the caller gives, or a UserError of one line that names the file, what is wrong in it and what to do.
The NaN and Infinity that earlier versions wrote are read as null. A run's and a study's files have shapes of their own:
`isocost.runs.files` reads them.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from isocost.disk.shape import flaw
from isocost.errors import UserError

LARGEST = 2**30     # bytes of a document; a model's tokenizer, the largest there is, has some 2**25
STREAM = 2**36      # bytes of a stream that is read whole
TAIL = 8192         # bytes of a stream's end that hold its last lines


def plain(x: Any) -> Any:
    """Numpy's numbers, paths as text, and mappings, for a record. Raises TypeError for anything else."""
    if hasattr(x, "item"):
        return x.item()
    if isinstance(x, Path):
        return str(x)
    if isinstance(x, Mapping):
        return dict(x)
    raise TypeError(f"{type(x).__name__} does not belong in a record")


def finite(x: Any) -> Any:
    """The same data with NaN and infinities as None."""
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, Mapping):
        return {k: finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [finite(v) for v in x]
    return x if isinstance(x, str | int | None) else finite(plain(x))


def _line_encoder() -> Callable[[Any], str]:
    """Made once. `JSONEncoder.encode` makes its compiled part anew for every line, which takes as long as the line."""
    own = json.JSONEncoder(default=plain, allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return own.encode
    parts = make(
        None, plain, json.encoder.encode_basestring_ascii, None, own.key_separator, own.item_separator, False, False,
        False,
    )
    return lambda data: "".join(parts(data, 0))


_LINE = _line_encoder()
_PAGE = json.JSONEncoder(default=plain, allow_nan=False, indent=1, sort_keys=True).encode
_WRITTEN = {str: json.encoder.encode_basestring_ascii, float: float.__repr__, int: int.__repr__}


def _paged(x: Any, line: str = "\n") -> str:
    """`_PAGE` of x in a tenth of its time (an encoder that indents is not compiled); `line` ends and indents lines."""
    kind = type(x)
    if kind is list or kind is tuple:
        if not x:
            return "[]"
        deeper = line + " "
        numbers = set(map(type, x)) == {float}
        if numbers and not all(map(math.isfinite, x)):
            raise ValueError("a number that JSON lacks")
        items = [float.__repr__(v) if numbers else _paged(v, deeper) for v in x]
        return f"[{deeper}{(',' + deeper).join(items)}{line}]"
    if kind is dict and set(map(type, x)) <= {str}:
        if not x:
            return "{}"
        deeper, name = line + " ", _WRITTEN[str]
        return f"{{{deeper}{(',' + deeper).join([f'{name(k)}: {_paged(x[k], deeper)}' for k in sorted(x)])}{line}}}"
    if x is None or kind is bool:
        return {None: "null", True: "true", False: "false"}[x]
    if kind is float and not math.isfinite(x):
        raise ValueError("a number that JSON lacks")
    if kind in _WRITTEN:
        return _WRITTEN[kind](x)
    return _PAGE(x).replace("\n", line)


def line(data: Any) -> str:
    """Data as one line of JSON, without its newline."""
    return _encoded(_LINE, data)


def page(data: Any) -> str:
    """Data as an indented document with sorted keys, without a newline at its end."""
    return _encoded(_paged, data)


def _encoded(encode: Callable[[Any], str], data: Any) -> str:
    try:
        return encode(data)
    except ValueError:      # a number that JSON lacks
        return encode(finite(data))


def write_json(path: Path, data: Any) -> None:
    """Write data as a document, as `write_text` does."""
    write_text(path, page(data) + "\n")


def write_text(path: Path, text: str, *, several: bool = False) -> None:
    """Write whole or not at all, through no symbolic link; `several` processes may write the same file at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp" if several else f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)       # left by a killed process, or a planted link
    with open(temporary, "x", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


# reading ------------------------------------------------------------------------------------------------------


def parsed(text: str | bytes) -> Any:
    """A JSON text; NaN and infinities as None. Raises ValueError, whose text continues a file's name."""
    try:
        return _DECODER.decode(text.decode("utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as e:
        raise ValueError(f"is not UTF-8 text (byte {e.start + 1})") from None
    except json.JSONDecodeError as e:
        raise ValueError(f"is not whole JSON (line {e.lineno}): {e.msg}") from None
    except RecursionError:
        raise ValueError("is not JSON that can be read: it is nested too deeply") from None
    except ValueError as e:     # an integer of more digits than Python converts
        raise ValueError(f"is not JSON that can be read: {e}") from None


def _null(name: str) -> None:
    """In place of the constants NaN, Infinity and -Infinity."""


_DECODER = json.JSONDecoder(parse_constant=_null)      # made once: `json.loads` would make one for every line


class Damaged(UserError):
    """A file that cannot be used: the message is its name, `why`, and the `remedy`."""

    def __init__(self, path: Path, why: str, remedy: str = "restore it from a copy, or fetch it again"):
        super().__init__(f"{path}{why}; {remedy}")
        self.path, self.why = path, why


class Absent(UserError):
    """A missing file; `about` is appended to the message."""

    def __init__(self, path: Path, about: str = ""):
        super().__init__(f"{path} does not exist{about}")
        self.path = path


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file. Raises UserError if it is missing, not readable, or too large."""
    try:
        with open(path, "rb", buffering=0, opener=_without_waiting) as f:
            about = os.fstat(f.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Damaged(path, " is not a regular file")
            if about.st_size > largest:
                raise Damaged(path, f" has {about.st_size:,} bytes, and no more than {largest:,} are read")
            return f.read()
    except FileNotFoundError:
        raise Absent(path) from None
    except OSError as e:
        raise Damaged(path, f" cannot be read: {e.strerror}") from None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)     # opening a pipe without a writer would block


def read_text(path: Path) -> str:
    """A file of UTF-8 text. Raises UserError if it is not."""
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as e:
        raise Damaged(path, f" is not UTF-8 text (byte {e.start + 1})") from None


def read_document(path: Path) -> Any:
    """The JSON that a file holds, of any shape. Raises UserError for a file that cannot be read as JSON."""
    return document(path, read_bytes(path))


def document(path: Path, data: bytes) -> Any:
    """The JSON in the bytes of this file, as `read_document` returns it."""
    try:
        return parsed(data)
    except ValueError as e:
        raise Damaged(path, f" {e}") from None


def read_json(path: Path, shape: Any = dict[str, Any]) -> dict[str, Any]:
    """A JSON object of a shape. Raises UserError if it is absent, truncated, or of another shape."""
    data = read_document(path)
    fit(path, data, shape)
    return dict(data)


def fit(path: Path, data: Any, shape: Any, *, partial: bool = False) -> None:
    """Raises UserError, naming the file, if data read from it does not have the shape."""
    if wrong := flaw(data, shape, partial=partial):
        raise Damaged(path, f": {wrong}")


ShapeOf = Callable[[Any], Any]      # the shape that a line must have, from the line


def read_lines(path: Path, shape_of: ShapeOf) -> list[Any]:
    """Every whole line of a stream; none without a file. Raises UserError, naming the line, if one is not of its
    shape."""
    return lines(path, _stream(path), shape_of)


def lines(path: Path, data: bytes, shape_of: ShapeOf) -> list[Any]:
    """The lines in the bytes of this stream, as `read_lines` returns them."""
    return [_line(path, f"line {i}", text, shape_of) for i, text in _texts(data)]


def good_lines(path: Path, shape_of: ShapeOf) -> tuple[list[Any], list[str]]:
    """The lines of a stream that can be read, and why the others cannot; of other versions too (`shape.flaw`)."""
    good, bad = [], []
    for i, text in _texts(_stream(path)):
        try:
            good.append(_line(path, f"line {i}", text, shape_of, partial=True))
        except Damaged as e:
            bad.append(e.why)
    return good, bad


def _stream(path: Path) -> bytes:
    """The bytes of a stream; empty if there is no file."""
    return read_bytes(path, largest=STREAM) if os.path.lexists(path) else b""


def _texts(data: bytes) -> list[tuple[int, bytes]]:
    """(number from 1, text) of every whole line that is not blank."""
    return [(i, text) for i, text in enumerate(data.split(b"\n")[:-1], 1) if text.strip()]


def tail(path: Path, size: int, shape_of: ShapeOf) -> list[Any]:
    """The whole lines in the last `size` bytes of a stream that may still grow. Raises UserError like `read_lines`."""
    try:
        with open(path, "rb", opener=_without_waiting) as f:
            start = max(f.seek(0, os.SEEK_END) - size, 0)
            f.seek(max(start - 1, 0))       # the byte before shows whether a line starts there
            texts = f.read().split(b"\n")[1 if start else 0 : -1]
    except FileNotFoundError:
        return []
    except OSError as e:
        raise Damaged(path, f" cannot be read: {e.strerror or e}") from None
    return [_line(path, f"line {len(texts) - i} from the end", x, shape_of) for i, x in enumerate(texts) if x.strip()]


def _line(path: Path, where: str, text: bytes, shape_of: ShapeOf, partial: bool = False) -> Any:
    """A line of a stream, checked."""
    try:
        data = parsed(text)
    except ValueError as e:
        raise Damaged(path, f", {where}, {e}") from None
    if wrong := flaw(data, shape_of(data), partial=partial):
        raise Damaged(path, f", {where}: {wrong}")
    return data
