"""Two binary logs read without their libraries: TensorBoard event files and offline wandb files.

Both are framed protobuf messages. Field numbers are what their .proto files promise never to change: TensorBoard's
event.proto and summary.proto (2.21), wandb's wandb_internal.proto (0.31). Frames: TFRecord (length, its checksum,
data, its checksum) and LevelDB's log format (blocks of 32 KiB, records whole or in parts). A last frame that a kill
tore is left out; a frame torn in the middle is a UserError. Nothing is unpickled and nothing is executed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError

BLOCK = 32768  # of LevelDB's log format
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MAGIC = b":W&B"


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, int of a varint, else bytes) of a protobuf message. Raises ValueError where the bytes are none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, number = key & 7, key >> 3
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            if kind != 2:
                raise ValueError(f"wire type {kind}")
            size, at = _varint(data, at)
        if at + size > len(data):
            raise ValueError("a field runs past the end")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number runs past the end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def number(data: bytes) -> float:
    """A float or a double, by its width."""
    return float(struct.unpack("<f" if len(data) == 4 else "<d", data)[0])


def events(path: Path) -> Iterator[tuple[int, float, dict[str, float], dict[str, str]]]:
    """(step, wall time, scalars, texts) of each TensorBoard event with a summary. Raises UserError for another file."""
    for frame in _tfrecords(path):
        try:
            step, wall, scalars, texts = _event(frame)
        except (ValueError, struct.error) as e:
            raise UserError(f"{path} is not a TensorBoard event file: {e}") from None
        if scalars or texts:
            yield step, wall, scalars, texts


def arguments_of(texts: Mapping[str, str]) -> dict[str, Any]:
    """The training arguments that transformers writes as a text; empty if a text of that name is something else."""
    try:
        found = json.loads(texts.get("args/text_summary") or texts.get("args") or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def is_events(path: Path) -> bool:
    """Whether a file begins as a TensorBoard event file does: with a frame whose length has the right checksum."""
    with path.open("rb") as f:
        first = f.read(12)
    return len(first) == 12 and struct.unpack_from("<I", first, 8)[0] == _masked(first[:8])


def _tfrecords(path: Path) -> Iterator[bytes]:
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        if struct.unpack_from("<I", data, at + 8)[0] != _masked(data[at : at + 8]):
            raise UserError(f"{path} is not a TensorBoard event file: the frame at byte {at} is broken")
        if at + 16 + size > len(data):
            return
        yield data[at + 12 : at + 12 + size]
        at += 16 + size


def _masked(data: bytes) -> int:
    """TFRecord's checksum: CRC-32C, rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _event(frame: bytes) -> tuple[int, float, dict[str, float], dict[str, str]]:
    """Event: 1 wall_time, 2 step, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple_value, 8 tensor."""
    step, wall = 0, 0.0
    scalars: dict[str, float] = {}
    texts: dict[str, str] = {}
    for key, value in fields(frame):
        if key == 1:
            wall = number(value)
        elif key == 2:
            step = value
        elif key == 5:
            for _, one in fields(value):
                _value(dict(fields(one)), scalars, texts)
    return step, wall, scalars, texts


def _value(value: dict[int, Any], scalars: dict[str, float], texts: dict[str, str]) -> None:
    """Tensor: 1 dtype (1 float, 2 double, 7 string), 4 content, 5 float_val, 6 double_val, 8 string_val."""
    tag = value.get(1, b"").decode("utf-8", "replace")
    if 2 in value:
        scalars[tag] = number(value[2])
    elif 8 in value:
        tensor = dict(fields(value[8]))
        kind = tensor.get(1)
        if kind == 7 and 8 in tensor:
            texts[tag] = tensor[8].decode("utf-8", "replace")
        elif kind in (1, 2):
            width = 4 if kind == 1 else 8
            held = tensor.get(4) or tensor.get(5 if kind == 1 else 6) or b""
            if len(held) == width:
                scalars[tag] = number(held)


def offline(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """(history rows, config, run facts) of an offline wandb file. Raises UserError for a file that is none.

    Record: 2 history, 5 config, 17 run. Items carry JSON: key (1) or nested key (2), value_json (16).
    """
    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    run: dict[str, Any] = {}
    try:
        for record in _records(path):
            for key, body in fields(record):
                if key == 2:
                    rows.append(_items(body, 1))
                elif key == 5:
                    config |= _items(body, 1)
                elif key == 17:
                    found = dict(fields(body))
                    names = {1: "id", 3: "project", 6: "group", 8: "name"}
                    run |= {name: found[k].decode() for k, name in names.items() if isinstance(found.get(k), bytes)}
                    if 4 in found:
                        config |= _items(found[4], 1)
    except (ValueError, struct.error) as e:
        raise UserError(f"{path} is not a whole offline wandb file: {e}") from None
    return rows, config, run


def _items(body: bytes, where: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in fields(body):
        if key != where or not isinstance(item, bytes):
            continue
        parts = list(fields(item))
        name = ".".join(v.decode() for k, v in parts if k == 2) or next((v.decode() for k, v in parts if k == 1), "")
        value = next((v for k, v in parts if k == 16), None)
        if value is not None:
            out[name] = json.loads(value)
    return out


def _records(path: Path) -> Iterator[bytes]:
    """The records of wandb's log, in order. Raises ValueError for a broken checksum before the last block."""
    data = path.read_bytes()
    if not data:
        return
    if data[:4] != MAGIC:
        raise ValueError("it does not begin with ':W&B'")
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        check, size, kind = struct.unpack_from("<IHB", data, at)
        if kind == 0 and size == 0:
            at += left
            continue
        end = at + 7 + size
        if end > len(data):
            return
        body = data[at + 7 : end]
        if check != zlib.crc32(body, zlib.crc32(bytes([kind]))) & 0xFFFFFFFF:
            if end == len(data):
                return
            raise ValueError(f"the record at byte {at} is broken")
        parts = body if kind in (WHOLE, FIRST) else parts + body
        if kind in (WHOLE, LAST):
            yield parts
        at = end
