"""The list of laws, fits to tables of points and their intervals, and the page that explains them."""

import contextlib
import importlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli import commands as cli
from isocost.errors import UserError
from isocost.laws.papers.inference import Saturation
from isocost.laws.papers.known import LAWS, Points, estimate, read_points
from isocost.laws.papers.value import DataLaw
from isocost.stats.forms import FORMS, gain_share

PAGE = Path(__file__).parents[1] / "docs" / "laws.md"
C = np.geomspace(300, 60_000, 12)


def study(seed, runs, points=12, apart=0.02, told=True):
    """Points of runs on one sigmoid, whose asymptotes differ by `apart` from run to run."""
    rng, x = np.random.default_rng(seed), np.geomspace(300, 60_000, points)
    y = [
        0.1 + (0.6 + apart * rng.standard_normal()) * gain_share(x, 3000.0, 1.5) + 0.01 * rng.standard_normal(points)
        for _ in range(runs)
    ]
    run = np.repeat(np.arange(runs), points) if told else np.arange(runs * points)
    return Points(np.tile(x, runs), np.concatenate(y), run, told)


def write(path, points):
    lines = [f"{x},{y},seed-{r}" for x, y, r in zip(points.x, points.y, points.run, strict=True)]
    path.write_text("\n".join(("rollouts,reward,which", *lines)))
    return path


def test_every_law_says_where_it_is_and_it_is_there():
    for law in LAWS.values():
        room, module, *name = law.where.removeprefix("laws.").split(".")
        found = importlib.import_module(f"isocost.{'laws.' * law.where.startswith('laws.')}{room}.{module}")
        assert hasattr(found, *name) if name else found.__doc__
    assert len(FORMS) == 4 == sum(law.where.startswith("stats.forms.") for law in LAWS.values())


@pytest.mark.parametrize("name, curve, truth", [
    ("sigmoid", lambda x: 0.1 + 0.6 * gain_share(x, 3000.0, 1.5), {"R0": 0.1, "A": 0.7, "Cmid": 3000, "b": 1.5}),
    ("power", lambda x: 7 * x**-0.4, {"D": 7, "b": 0.4}),
    ("power-constant", lambda x: 0.8 - 7 * x**-0.4, {"A": 0.8, "D": 7, "b": 0.4}),
    ("data", lambda x: 1 - 7 * x**-0.4, {"beta": 7, "alpha": -0.4}),
    ("saturation", lambda x: Saturation(0.8, 0.001)(x), {"F_max": 0.8, "p": 0.001}),
    ("samples", lambda x: DataLaw(0.7, 2000.0, 1.0, 1e5)(x), {"D_min": 1e5, "b": 2000 * 1e5 ** (1 / 0.7), "a": 0.7}),
])
def test_a_law_is_recovered_from_exact_points_with_next_to_no_interval(name, curve, truth):
    found = {e.name: e for e in estimate(LAWS[name], Points(C, curve(C), np.arange(12), False))}
    assert found.keys() == truth.keys()
    for key, one in found.items():
        assert one.value == pytest.approx(truth[key], rel=0.01)
        assert one.high - one.low < 0.05 * abs(one.value)


def test_intervals_over_runs_cover_and_those_over_their_points_do_not():
    """On the law of data, which is solved at once; runs differ in beta by 10 %, and points of one by 3 %."""
    def covered(told):
        x, hits = np.tile([1, 2, 4, 8, 16, 32], 5), 0
        for seed in range(120):
            rng = np.random.default_rng(seed)
            off = np.repeat(0.1 * rng.standard_normal(5), 6) + 0.03 * rng.standard_normal(30)
            run = np.repeat(np.arange(5), 6) if told else np.arange(30)
            beta = estimate(LAWS["data"], Points(x, 1 - 0.6 * x**-0.5 * np.exp(off), run, told))[0]
            hits += beta.low <= 0.6 <= beta.high
        return hits / 120

    assert 0.85 <= covered(told=True) <= 0.95
    assert covered(told=False) < 0.8                      # checkpoints of one run are no draws of their own


def test_denser_checkpoints_of_the_same_runs_do_not_narrow_an_interval():
    def width(points):
        twice = Points(*(np.concatenate((v, v)) for v in (points.x, points.y, points.run)), True)
        return [e.high - e.low for some in (points, twice) for e in estimate(LAWS["sigmoid"], some) if e.name == "A"]

    once, doubled = width(study(0, 5))
    assert doubled == pytest.approx(once, rel=1e-3)


def test_two_runs_leave_intervals_open_and_a_law_of_more_than_points_says_where_it_is():
    assert all(np.isnan(e.low) and np.isnan(e.high) for e in estimate(LAWS["sigmoid"], study(0, 2)))
    where = r"size needs more than a table of points: see isocost\.laws\.papers\.size\.fit_size; .* sigmoid"
    with pytest.raises(UserError, match=where):
        estimate(LAWS["size"], study(0, 4))


def test_tables_that_cannot_be_read_say_where(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("x,y\n1,0.2\n2,high\n")
    with pytest.raises(UserError, match="line 3: y is 'high', not a number"):
        read_points(path)
    with pytest.raises(UserError, match=r"no column 'reward'; it has x, y \(choose with"):
        read_points(path, y="reward")
    path.write_text("x,y\n1\n")
    with pytest.raises(UserError, match="line 2: y is None"):
        read_points(path)
    path.write_text("x,y\n1,nan\n")
    with pytest.raises(UserError, match="not finite"):
        read_points(path)
    path.write_text("x,y\n")
    with pytest.raises(UserError, match="no rows"):
        read_points(path)
    with pytest.raises(UserError, match="cannot be read as CSV"):
        read_points(tmp_path / "none.csv")


def test_the_commands(tmp_path):
    def call(*words):
        return CliRunner().invoke(cli.main, ["laws", *map(str, words)])

    listed = call().output
    assert all(law.equation in listed for law in LAWS.values()) and "sigmoid *" in listed and "size *" not in listed
    assert [row["name"] for row in json.loads(call("list", "--json").output)] == list(LAWS)
    path, columns = write(tmp_path / "p.csv", study(0, 4)), ("--x", "rollouts", "--y", "reward")
    told = call("fit", "sigmoid", path, *columns, "--run", "which").output
    assert "48 points of 4 runs" in told and "runs count as independent" in told
    assert "every point counts as independent" in call("fit", "sigmoid", path, *columns).output
    data = json.loads(call("fit", "sigmoid", path, *columns, "--run", "which", "--json", "--level", 0.5).output)
    assert data["runs"] == 4 and data["level"] == 0.5 and 0.6 < data["parameters"]["A"]["low"] < 0.7
    few = call("fit", "sigmoid", write(tmp_path / "q.csv", study(0, 2)), *columns, "--run", "which").output
    assert "interval open" in few and "2 runs: the spread between runs is unknown" in few
    wrong = call("fit", "sigmund", path)
    assert wrong.exit_code == 2 and "unknown law 'sigmund'; expected one of sigmoid" in wrong.output
    absent = call("fit", "sigmoid", tmp_path / "none.csv", *columns)
    assert absent.exit_code == 2 and "none.csv does not exist, or is not a file: give a CSV file" in absent.output
    assert "rollouts and reward" in absent.output and "Errno" not in absent.output


def test_the_page_names_every_law_and_shows_what_its_examples_print():
    text = PAGE.read_text(encoding="utf-8")
    for law in LAWS.values():
        assert f"`{law.name}`" in text and law.equation in text and f"`{law.where}`" in text, law.name
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, flags=re.M | re.S)
    assert len(blocks) == text.count("```python")
    for code, shown in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, PAGE.name, "exec"), names)
        assert said.getvalue() == shown
