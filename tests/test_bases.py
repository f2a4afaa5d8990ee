"""The maker of base models: its rows, the lessons, a base that is made twice, and the record of what they are for."""

import hashlib
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import bases
import lessons
import pass_rates
from isocost.errors import UserError
from isocost.local import models
from isocost.local.embedded import EMBEDDED
from isocost.steps.settings import setting_with
from isocost.tasks import load_problems
from isocost.tasks.builtin import puzzles
from isocost.tasks.verify.verifiers import final

HOME = Path(__file__).resolve().parents[1]
RECORD = json.loads(bases.RECORD.read_text(encoding="utf-8"))
MOST_SECONDS, MOST_BYTES, WEIGHTS = 120, 2e6, "model.safetensors"


def reduced(name, **changes):
    base = bases.BASES[name]
    few = {"steps": 2, "rows": 6, **({} if base.after else {"hidden": 16, "layers": 1, "heads": 1}), **changes}
    return replace(base, lessons=replace(base.lessons, **few), facts=None)


@pytest.mark.parametrize("name", bases.BASES)
def test_a_row_is_well_formed(name):
    base = bases.BASES[name]
    own, task = base.lessons, dict(zip(base.task[::2], base.task[1::2], strict=True))
    assert base.use and base.after in ("", *bases.BASES)
    assert "--budget" in task and len({"--data", "--env"} & set(task)) == 1
    assert own.hidden % own.heads == 0 and not (own.hidden % 16 or own.hidden // own.heads % 16)   # the kernel's
    if "{folder}" not in task.get("--data", ""):
        chosen = setting_with(data=task.get("--data", ""), env=task.get("--env", ""))
        assert set(models.load(chosen.model).text.alphabet) == set(base.alphabet)
    rows = list(base.lesson(np.random.default_rng(0), replace(own, rows=8), own.steps))
    assert len(rows) == 8 and all(any(taught for _, taught in row) for row in rows)
    batch = bases.batch(rows, base.alphabet)
    assert batch.length.max() <= own.context and int(batch.tokens.max()) == len(base.alphabet)
    assert batch.weight.sum() == pytest.approx(1, abs=1e-5) and (batch.weight > 0).equal(batch.mask)


@pytest.mark.parametrize("name", EMBEDDED)
def test_what_ships_was_made_by_its_row(name):
    model, base = models.load(name), bases.BASES[name]
    said = bases.told(base.lessons)
    assert model.extra["made"]["lessons"].items() <= said.items()
    assert (model.config.hidden, model.config.layers, model.config.max_len) == (
        base.lessons.hidden, base.lessons.layers, base.lessons.context)
    assert model.text.alphabet == base.alphabet


# The first batch of every base that ships: who changes it, changes what `make` makes.
BATCHES = {
    "tiny": "83a8e951851cdaca",
    "tiny-puzzles": "d8d0f92f08d07f2e",
    "tiny-agents": "c371df773ca1eed1",
    "tiny-tools": "05fbb4e3c855abba",
}


@pytest.mark.parametrize("name", BATCHES)
def test_lessons_of_what_ships_are_what_they_were(name):
    base = reduced(name, rows=24)
    rows = [row for step in range(base.lessons.steps) for row in bases._rows(base, step)]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == BATCHES[name]


def test_a_base_is_made_twice_alike_and_reads_back(tmp_path):
    small = reduced("wait")
    model = bases.make(small, tmp_path / "a")
    bases.make(small, tmp_path / "b")
    for file in (WEIGHTS, "config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    read = models.load(str(tmp_path / "a"))
    assert all(torch.equal(read.weights[k], v) for k, v in model.weights.items())
    assert read.extra["made"] == {"lessons": bases.told(small.lessons)}
    assert read.text.decode(read.text.encode(puzzles.ALPHABET)) == puzzles.ALPHABET
    assert read.text.ends == (len(puzzles.ALPHABET),)
    bases.make(replace(small, lessons=replace(small.lessons, seed=1)), tmp_path / "b")
    assert (tmp_path / "a" / WEIGHTS).read_bytes() != (tmp_path / "b" / WEIGHTS).read_bytes()


def test_torch_teaches_sums_and_the_learner_teaches_further(tmp_path):
    small = reduced("tiny", steps=2)
    assert bases.make(small, tmp_path).config.hidden == 16 and models.load(str(tmp_path)).extra["alphabet"]
    further, shipped = bases.teach(reduced("judge")), models.load("tiny-puzzles")
    assert "made" not in further.extra and further.config == shipped.config
    assert any(not torch.equal(v, shipped.weights[k]) for k, v in further.weights.items())


def test_an_end_that_is_not_taught():
    batch = bases.batch([lessons.line("1+2>", "3"), lessons.line("1+2>", "3" + lessons.END)], puzzles.ALPHABET)
    assert batch.tokens[0].equal(batch.tokens[1]) and batch.length.tolist() == [6, 6]
    assert batch.mask.tolist() == [[False] * 4 + [True] * 2, [False] * 4 + [True, False]]


@pytest.mark.parametrize(("name", "joint"), [("revise", lessons.END + ">"), ("wait", "!")])
def test_an_answer_that_is_given_again_repeats_or_mends_the_one_before(name, joint):
    base, mended, repeated = bases.BASES[name], 0, 0
    for row in base.lesson(np.random.default_rng(1), replace(base.lessons, rows=200), 0):
        (prompt, shown), (said, taught) = row
        posed, _, after = prompt.partition(">")
        before = after.split(joint)[:-1]
        assert (shown, taught) == (False, True) and said.endswith(lessons.END)
        assert prompt == f"{posed}>" + "".join(x + joint for x in before)
        right = said[:-1].rpartition(";")[2] == str(sum(map(int, posed.split("+"))))
        if before:
            mended += right and before[-1] != said[:-1]
            repeated += before[-1] == said[:-1]
            assert right or before[-1] == said[:-1]
    assert mended > 10 and repeated > 10


def test_problems_that_show_an_answer(tmp_path):
    pass_rates.shown_answers(tmp_path, count=40)
    some = load_problems(str(tmp_path / "shown.jsonl"), check=False).problems
    right = [final(p.prompt[1].content, p) for p in some]
    assert len(some) == 40 and 0.1 < np.mean(right) < 0.9
    assert all([m.role for m in p.prompt] == ["user", "assistant", "user"] for p in some)
    assert all(str(sum(map(int, p.prompt[0].content[:-1].split("+")))) == p.answer for p in some)


def test_an_unknown_row_is_one_line():
    with pytest.raises(UserError, match=r"^there is no base 'huge'; .*list` shows tiny, [^\n]*puzzles-XL$"):
        bases.main(["make", "huge"])


def test_the_rows_are_listed(capsys):
    bases.main(["list"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(bases.BASES)


def test_the_record_is_of_these_rows_within_the_limits_and_on_the_page():
    assert set(RECORD) <= set(bases.BASES)
    for name, row in RECORD.items():
        base = bases.BASES[name]
        asked = bases.told(base.lessons), shlex.join(base.task)
        assert (row["lessons"], row["task"]) == asked and row["use"] == base.use, name
        assert all((tried["lessons"], tried["task"]) != asked for tried in row["tried"]), name
        if "runs" in row:
            assert row["bytes"] <= MOST_BYTES and len(row["gain"]) == len(row["runs"]) == len(bases.SEEDS), name
            assert name in EMBEDDED or row["seconds"] <= MOST_SECONDS, name
            gains = [r["after"] - r["before"] for r in row["runs"]]
            assert row["gain"] == pytest.approx(gains, abs=1e-4), name
            assert row["mean_gain"] == pytest.approx(np.mean(gains), abs=1e-4), name
    text = bases.PAGE.read_text(encoding="utf-8")
    assert bases.page(text, RECORD) == text


def test_a_row_that_changed_keeps_what_it_measured_before_as_a_try(monkeypatch):
    monkeypatch.setattr(bases, "trained", lambda base, folder, seed: {
        "before": 0.25, "after": 0.5, "rollouts": 100, "seconds": 1.0, "command": ""})
    first = bases.recorded("tiny-tools", {}, again=False)
    assert first["tried"] == [] and (first["before"], first["mean_gain"]) == (0.25, 0.25)
    assert bases.recorded("tiny-tools", first, again=False)["tried"] == []
    other = {**first, "lessons": {**first["lessons"], "steps": 7}}
    second = bases.recorded("tiny-tools", other, again=False)
    (tried,) = second["tried"]
    assert tried["lessons"]["steps"] == 7 and tried["mean_gain"] == 0.25
    assert bases.recorded("tiny-tools", second, again=False)["tried"] == [tried]
    assert "- `tiny-tools` with steps 7: before 0.25, gain +0.25\n" in bases.table({"tiny-tools": second})
