"""Problem files and logs: JSON lines, Parquet and CSV that are broken, nested too deep or made to fill the memory."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isocost.errors import UserError
from isocost.tasks.load import load_problems

ROW = {"prompt": "1+1=", "answer": "2"}
Make = Callable[[Path], object]


def written(content: str | bytes) -> Make:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def row(**changes: Any) -> Make:
    return written(json.dumps({**ROW, **changes}) + "\n")


LINES: dict[str, tuple[Make, str]] = {
    "empty": (written(""), "contains no usable problem"),
    "blank lines": (written("\n \n\t\n"), "contains no usable problem"),
    "one document over lines": (written(json.dumps(ROW, indent=1)), "line 1: not JSON"),
    "a list": (written("[1, 2]\n"), "line 1: a row is an object"),
    "text": (written("to be or not to be\n"), "line 1: not JSON"),
    "torn": (written('{"prompt": "1+1=", "ans'), "line 1: not JSON"),
    "not UTF-8": (written(b'{"prompt": "\xff\xfe", "answer": "2"}\n'), r"line 1: not UTF-8 text \(byte 13\)"),
    "UTF-16": (written(json.dumps(ROW).encode("utf-16")), "line 1: not UTF-8"),
    "a pickle": (written(b"\x80\x04\x95\x0b\x00\x00"), "line 1: not UTF-8"),
    "NaN": (written('{"prompt": "a", "answer": NaN}\n'), "NaN is not a JSON value"),
    "infinity": (written('{"prompt": "a", "answer": -Infinity}\n'), "Infinity is not a JSON value"),
    "1e999": (written('{"prompt": "a", "answer": 1e999}\n'), "'answer' is inf"),
    "an integer of 5000 digits": (written('{"prompt": "a", "answer": ' + "9" * 5000 + "}\n"), "line 1: not JSON"),
    "nested 100,000 deep": (written('{"prompt": ' + "[" * 100_000 + "\n"), "nested too deeply"),
    "objects 100,000 deep": (written('{"a":' * 100_000 + "\n"), "nested too deeply"),
    "half of a surrogate pair": (written('{"prompt": "\\ud800", "answer": "2"}\n'), "half of a surrogate pair"),
    "one among its columns": (written('{"prompt": "a", "answer": "2", "x": "\\udfff"}\n'), "half of a surrogate pair"),
    "no prompt": (row(prompt=None), "no prompt"),
    "no answer": (row(answer=None), "no answer"),
    "a prompt of numbers": (row(prompt=[1, 2]), "message 1 of 'prompt'"),
    "a prompt that is a number": (row(prompt=7), "'prompt' must be text or a list of messages"),
    "an unknown role": (row(prompt=[{"role": "root", "content": "x"}]), "the role 'root'"),
    "an answer that is a list": (row(answer=["2"]), "'answer' must be text or a number"),
    "an answer that is true": (row(answer=True), "'answer' must be text or a number, got true or false"),
    "an empty answer": (row(answer="  "), "'answer' is empty"),
    "a level that is a list": (row(level=[1]), "'level' must be a number or text"),
    "an id that is an object": (row(id={"a": 1}), "'id' must be text or an integer"),
    "a system message that is a number": (row(system=3), "'system' must be text"),
    "two answers to one prompt": (written(json.dumps(ROW) + "\n" + json.dumps({**ROW, "answer": "3"}) + "\n"),
                                  "with another answer"),
}


@pytest.mark.parametrize("case", LINES)
def test_a_broken_jsonl_names_the_line(case: str, tmp_path: Path):
    make, expected = LINES[case]
    make(tmp_path / "p.jsonl")
    with pytest.raises(UserError, match=expected) as told:
        load_problems(str(tmp_path / "p.jsonl"))
    assert "p.jsonl" in str(told.value) and len(str(told.value)) < 1000


def test_a_line_longer_than_the_memory_is_passed_over_in_pieces(tmp_path: Path, monkeypatch, limited):
    """Sparse, so it takes no room on the disk: more than the memory that this test may take."""
    monkeypatch.setattr("isocost.tasks.rows.LONGEST", 2**20)
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    os.truncate(path, 2**29)
    with path.open("ab") as file:
        file.write(b'\n{"prompt": "2+2=", "answer": "4"}\n')
    with limited(2**28):
        with pytest.raises(UserError, match="line 2: longer than 1,048,576 bytes"):
            load_problems(str(path), check=False)
        loaded = load_problems(str(path), check=False, skip_broken=True)
    assert [p.answer for p in loaded.problems] == ["2", "4"]


def test_millions_of_broken_lines_are_not_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("isocost.tasks.load.MOST_BROKEN", 500)
    (tmp_path / "p.jsonl").write_text("x\n" * 20_000)
    with pytest.raises(UserError, match="500 of 500 rows cannot be used"):
        load_problems(str(tmp_path / "p.jsonl"))


# Parquet ------------------------------------------------------------------------------------------------------


def table(**columns: Any) -> Make:
    def make(path: Path) -> None:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table(columns), path, compression="zstd", write_page_checksum=True)

    return make


def rows(count: int = 300) -> Make:
    return table(prompt=[f"{i}+{i}=" for i in range(count)], answer=[str(2 * i) for i in range(count)])


def damaged(make: Make, at: float, with_: bytes = b"\xa5" * 64) -> Make:
    """Another file with some bytes in the middle of it written over."""

    def damage(path: Path) -> None:
        make(path)
        data = bytearray(path.read_bytes())
        start = int(at * len(data))
        data[start : start + len(with_)] = with_
        path.write_bytes(bytes(data))

    return damage


def cut(make: Make, keep: float) -> Make:
    def damage(path: Path) -> None:
        make(path)
        os.truncate(path, int(keep * path.stat().st_size))

    return damage


def one_value(size: int, count: int) -> Make:
    """So many rows that are one text of this size: some kilobytes that stand for gigabytes."""

    def make(path: Path) -> None:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, pyarrow.int32()), ["a" * size])
        columns = {"prompt": words, "answer": pyarrow.array(["1"] * count)}
        parquet.write_table(pyarrow.table(columns), path, compression="zstd", dictionary_pagesize_limit=2**31 - 1,
                            write_statistics=False)

    return make


def nulls(count: int) -> Make:
    """One row that holds a list of so many nulls."""

    def make(path: Path) -> None:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        inner = pyarrow.nulls(count, pyarrow.int8())
        lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, count], pyarrow.int32()), inner)
        columns = {"prompt": ["a"], "answer": ["1"], "x": lists}
        parquet.write_table(pyarrow.table(columns), path, compression="zstd")

    return make


PARQUET: dict[str, tuple[Make, str]] = {
    "empty": (written(""), "p.parquet cannot be read"),
    "text": (written("prompt,answer\n1,2\n"), "p.parquet cannot be read"),
    "its magic alone": (written(b"PAR1PAR1"), "p.parquet cannot be read"),
    "a footer of 2 GB": (written(b"PAR1" + struct.pack("<I", 2**31 - 1) + b"PAR1"), "p.parquet cannot be read"),
    "cut": (cut(rows(), 0.6), "p.parquet cannot be read"),
    "a broken page": (damaged(rows(), 0.1), "p.parquet cannot be read"),
    "a broken second column": (damaged(rows(), 0.4), "p.parquet cannot be read"),
    "a broken footer": (damaged(rows(), 0.9), "p.parquet cannot be read"),
    "no prompt column": (table(question_text=["a"], answer=["1"]), "row 1: no prompt"),
    "prompts that are null": (table(prompt=[None, None], answer=["1", "2"]), "row 1: no prompt"),
    "answers that are lists": (table(prompt=["a"], answer=[["1"]]), "row 1: 'answer' must be text or a number"),
    "no rows": (table(prompt=[], answer=[]), "contains no usable problem"),
    "a text of 20 MB in kilobytes": (one_value(20 * 2**20, 4), "unpacks from"),
    "a hundred thousand rows of one megabyte": (one_value(2**20, 100_000), "decodes to more than"),
    "a row of 20 million nulls": (nulls(20_000_000), "values in"),
}


@pytest.mark.parametrize("case", PARQUET)
def test_a_broken_or_swollen_parquet_is_one_line_in_bounded_memory(case: str, tmp_path: Path, monkeypatch, limited):
    """The bounds are made smaller here, so that files that break them are made in no time."""
    pytest.importorskip("pyarrow.parquet")
    for name, bound in (("ROOM", 2**23), ("GROUP", 2**24)):
        monkeypatch.setattr(f"isocost.tasks.rows.{name}", bound)
    make, expected = PARQUET[case]
    make(tmp_path / "p.parquet")
    with pytest.raises(UserError, match=expected) as told, limited(2**31):
        load_problems(str(tmp_path / "p.parquet"), check=False)
    assert "p.parquet" in str(told.value).splitlines()[0]


def test_an_ordinary_parquet_is_read_whole(tmp_path: Path):
    rows(3000)(tmp_path / "p.parquet")
    assert len(load_problems(str(tmp_path / "p.parquet"), verifier="numeric", check=False)) == 3000


# what is no problem file --------------------------------------------------------------------------------------

OTHERS: dict[str, tuple[str, Make, str]] = {
    "a zip": ("p.zip", written(b"PK\x03\x04"), "from .jsonl or .parquet files"),
    "a gzip": ("p.jsonl.gz", written(b"\x1f\x8b\x08"), "from .jsonl or .parquet files"),
    "a tar": ("p.tar", written(b"\0" * 512), "from .jsonl or .parquet files"),
    "a pickle": ("p.pkl", written(b"\x80\x04"), "from .jsonl or .parquet files"),
    "no ending": ("problems", written("{}"), "from .jsonl or .parquet files"),
    "a folder": ("p.jsonl", lambda path: path.mkdir(), "is not a file"),
    "a pipe": ("p.jsonl", os.mkfifo, "is not a file"),
    "a link to nothing": ("p.jsonl", lambda path: path.symlink_to("nowhere"), "is not a file"),
    "a link to itself": ("p.jsonl", lambda path: path.symlink_to(path), "is not a file"),
    "a device": ("p.jsonl", lambda path: path.symlink_to("/dev/zero"), "is not a file"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_no_problem_file_is_one_line(case: str, tmp_path: Path, says):
    name, make, expected = OTHERS[case]
    make(tmp_path / name)
    assert expected in says(lambda: load_problems(str(tmp_path / name)))


# logs and tables ----------------------------------------------------------------------------------------------

PACKED = {"log.zip": b"PK\x03\x04", "log.jsonl.gz": b"\x1f\x8b\x08", "log.tar": b"\0" * 512, "log.csv.xz": b"\xfd7zXZ"}
LOGS: dict[str, tuple[str, bytes, str]] = {
    "rows of other lengths": ("x.csv", b"step,reward\n1,0.5\n2\n3,0.5\n", "line 3"),
    "a header alone": ("x.csv", b"step,reward\n", "no line below it"),
    "a column twice": ("x.csv", b"step,reward,reward\n1,0,0\n", "twice"),
    "not text": ("x.csv", b"step,reward\n1,\xff\xfe\n", "is not text in UTF-8"),
    "zeros": ("x.csv", b"step,reward\n" + b"\0" * 100, "x.csv"),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_log_is_to_be_unpacked_first(name: str, tmp_path: Path, refused):
    (tmp_path / name).write_bytes(PACKED[name])
    assert "decompress it first" in refused("import", tmp_path / name, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", LOGS)
def test_a_broken_log_is_one_line_and_leaves_no_run(case: str, tmp_path: Path, refused):
    name, content, expected = LOGS[case]
    (tmp_path / name).write_bytes(content)
    assert expected in refused("import", tmp_path / name, "--out", tmp_path / "run", "-n", "4", "-B", "2", "--lr", "1")
    assert not (tmp_path / "run").exists()


NAMES = ("../../evil", "/etc/cron.d/evil", "..", "a/../../b", "\x1b[2J", "=cmd|' /C calc'!A0", "x" * 300)


def outside(root: Path) -> Iterator[Path]:
    return (p for p in root.rglob("*") if "runs" not in p.parts and "evil" in p.name)


@pytest.mark.parametrize("name", NAMES)
def test_a_logs_name_leads_nowhere_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where --out is not given, the folder is called as the log calls its run: below runs/, whatever that is."""
    from isocost.steps.outside import importing
    from isocost.trainers.reading.logs import Log, Point

    log = Log("csv", name, (tmp_path / "x.csv",), held=(Point(0, 0.1, 0), Point(8, 0.5, 64)), held_column="held_out",
              facts={"n": 4, "B": 2, "lr": 1e-4, "seed": 0})
    (tmp_path / "x.csv").write_text("")
    monkeypatch.setattr("isocost.trainers.reading.logs.logs", lambda *_: [log])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    try:
        (found,) = importing.import_logs(["x"]).runs
    except OSError as e:
        assert re.search("too long", str(e)) and len(name) > 255       # which the command prints as one line
        return
    assert Path(found.run).resolve().parent == (tmp_path / "here" / "runs").resolve()
    assert not list(outside(tmp_path))
