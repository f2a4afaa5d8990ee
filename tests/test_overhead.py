"""What makes our own Python cheap changes no number: each short way against the plain one it stands for."""

import asyncio
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from isocost import methods
from isocost.ledger import Ledger, _stds
from isocost.loop import train
from isocost.runs import files
from isocost.runs.files import Stream, read_lines
from isocost.runs.record import RunRecord
from isocost.seams import Pace
from isocost.types import Cost, Group, Place, Role, Sampling, Score, Segment
from isocost.worlds.setting import Setting, open_setting
from toy import attempt


def some_group(rng: random.Random) -> Group:
    """Rollouts of several lengths and versions, some of several segments, one of none."""
    made = [
        attempt([0, 1, 3][: rng.randint(1, 3)], float(rng.randint(0, 1)), i, version=rng.randint(0, 5))
        for i in range(rng.randint(1, 6))
    ]
    made = [r.but(segments=r.segments * rng.randint(1, 3), origin=rng.choice(["policy", "replay"])) for r in made]
    if rng.random() < 0.3:
        made.append(made[0].but(segments=(), attempt=9))
    return Group(made[0].problem, tuple(made), Place(0, 0, 0))


@pytest.mark.parametrize("seed", range(40))
def test_lengths_and_version_of_a_group_are_those_of_its_segments(seed):
    g = some_group(random.Random(seed))
    assert g.lengths == [sum(int((s.role == Role.OWN).sum()) for s in r.segments) for r in g.rollouts]
    written = [int(v) for r in g.rollouts if r.origin == "policy" for s in r.segments for v in s.version if v >= 0]
    assert g.version == min(written, default=0)


def test_a_group_without_rollouts_and_rollouts_without_segments_have_no_length():
    g = some_group(random.Random(0))
    assert g.of(()).lengths == [] and g.of(()).version == 0
    assert g.of([g.rollouts[0].but(segments=())]).lengths == [0]


def test_scored_is_the_same_rollout_with_a_score():
    r = attempt([0, 3], None, 4, cohort="b").but(parent=(1, 2), notes={"x": ()}, origin="peer", final="a")
    assert r.scored(Score(0.5)) == r.but(score=Score(0.5))


def test_costs_add_field_by_field():
    names = Cost._fields
    a, b = (Cost(*(k * m for k in range(1, 9)), 9.0 * m, 10 * m) for m in (1, 10))
    assert [getattr(a + b, f) for f in names] == [11.0 * k for k in range(1, len(names) + 1)]
    assert b - a == Cost(*(9 * k for k in a)) and isinstance(sum([a, b], Cost()), Cost)


@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 16, 64, 129])
def test_spreads_of_equal_groups_are_each_groups_own_to_the_last_bit(size):
    rng = np.random.default_rng(size)
    groups = [rng.random(size).tolist() for _ in range(7)]
    for some in (groups, [*groups, [0.25, 0.5, 1.0]]):
        spreads = _stds(np.concatenate(some), [len(g) for g in some])
        assert spreads.tolist() == [float(np.std(g)) for g in some]


def test_a_streams_line_is_what_json_would_write(tmp_path):
    lines = [{"a": 1.5, "b": [None, "ü"], "c": 0.1 + 0.2}, {"x": np.float32(0.5), "p": tmp_path}]
    stream = Stream(tmp_path / "s.jsonl")
    stream.write(*lines, {"c": float("nan")}, '{"d": 1}', lambda: '{"e": 2}')
    stream.close()
    assert (tmp_path / "s.jsonl").read_text() == "".join(
        json.dumps(x, default=lambda v: v.item() if hasattr(v, "item") else str(v)) + "\n" for x in lines
    ) + '{"c": null}\n{"d": 1}\n{"e": 2}\n'


def test_a_start_that_is_given_is_an_empty_segment_that_has_read():
    words, sampling = [3, 1, 2], Sampling(0.5)
    made, read = Segment.given(words, Role.HINT, sampling), Segment.empty(sampling).read(words, Role.HINT)
    for name in ("tokens", "role", "logp", "turn", "version"):
        a, b = getattr(made, name), getattr(read, name)
        assert a.dtype == b.dtype and a.tolist() == b.tolist()
    assert (made.sampling, made.kept, made.first) == (read.sampling, read.kept, read.first)


def test_lines_wait_for_later_ones_no_longer_than_a_stream_is_patient(tmp_path, monkeypatch):
    now, path = [100.0], tmp_path / "s.jsonl"
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: now[0]))
    stream, other = Stream(path, patience=0.1), Stream(tmp_path / "other.jsonl")
    other.write({"a": 1})
    assert other.path.read_text() == '{"a": 1}\n', "a stream without patience writes at once"
    steps = [(0.0, 1), (0.01, 1), (0.05, 1), (0.05, 4), (0.01, 4)]      # seconds that pass, lines on disk after a write
    for k, (seconds, written) in enumerate(steps):
        now[0] += seconds
        stream.write({"k": k})
        assert len(path.read_text().splitlines()) == written
    assert stream.offset() == len(path.read_bytes()) == 5 * len('{"k": 0}\n')
    stream.write("{}")
    stream.close()
    assert [json.loads(x) for x in path.read_text().splitlines()] == [*({"k": k} for k in range(5)), {}]
    other.close()


def test_a_line_that_cannot_be_encoded_raises_and_takes_no_other_with_it(tmp_path):
    stream = Stream(tmp_path / "s.jsonl", patience=3600.0)
    stream.write({"k": 0})                      # at once: nothing was written before
    stream.write({"k": 1}, {"k": object()}, {"k": 2})
    with pytest.raises(TypeError):
        stream.flush()
    stream.close()
    assert stream.path.read_text() == '{"k": 0}\n{"k": 1}\n{"k": 2}\n'


def test_every_charge_is_on_disk_at_once(tmp_path, monkeypatch):
    """Lines of the streams may wait for later ones; a charge that waited would be lost with a killed process."""
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: 100.0))
    with RunRecord.opened(tmp_path) as record:
        record.pay_since(0)
        (path,) = tmp_path.glob("paid-*.jsonl")
        charges = [("train", Cost(rollouts=1)), ("train", Cost(rollouts=2, seconds=0.001)), ("check", Cost(score=3))]
        for k, (account, cost) in enumerate(charges):
            record.paid(account, cost)
            assert [line[:2] for line in read_lines(path)] == [[a, c.rollouts] for a, c in charges[: k + 1]]


def test_a_group_is_scored_while_its_siblings_still_decode():
    """A verifier's processes work while the engine does, within one wave too."""
    world = open_setting(Setting.of(data="sums:base=easy,count=60", held_out=0.2)).world
    recipe = methods.load("grpo").recipe(groups=3, rollouts=2)
    happened: list[str] = []
    last = asyncio.Event()

    async def play(problem, attempts, world, pace: Pace, place, start=None):
        if place.slot == 2:
            await last.wait()
        said = await recipe.play(problem, attempts, world, pace, place, start)
        happened.append(f"played {place.slot}")
        return said

    async def reward(group, world):
        happened.append(f"scored {group.place.slot}")
        if group.place.slot == 1:
            last.set()
        return await recipe.reward(group, world)

    async def go():
        async for step in train(recipe.but(play=play, reward=reward), world, Ledger(seed=0), {"rollouts": 6}):
            assert [g.place.slot for g in step.groups] == [0, 1, 2]

    asyncio.run(asyncio.wait_for(go(), 20))
    assert happened.index("scored 1") < happened.index("played 2") and len(happened) == 6
