"""The later sets of other trainers' logs: their rules, and the pages that state what was measured on them."""

from __future__ import annotations

import gzip
import inspect
import json
from pathlib import Path

import pytest

import outside
import outside_page
from isocost.errors import UserError
from isocost.laws.law import UPPER
from isocost.steps.training import fit
from outside import CONTROL, TRAINING

HOME = Path(__file__).resolve().parents[1]
EARLIER = ("manifest", "manifest_third", "manifest_fourth", "manifest_fifth")
SETS = ("fourth", "fifth")
LOGS = {name: outside.read(f"manifest_{name}.json")["logs"] for name in SETS}


@pytest.mark.parametrize("name", SETS)
def test_a_later_set_has_owners_that_no_earlier_set_has_and_keeps_its_rules(name: str):
    logs, before = LOGS[name], EARLIER[:EARLIER.index(f"manifest_{name}")]
    earlier = {x["source"] for other in before for x in outside.read(f"{other}.json")["logs"]}
    sources = {x["source"] for x in logs}
    assert not {source.split("/")[0] for source in sources} & {source.split("/")[0] for source in earlier}
    assert len({x["source"] for x in logs if x["kind"] == TRAINING}) >= 10 and len(sources) >= 15
    for x in logs:
        assert x["half"] == name and len(x["sha256"]) == 64 and len(x["commit"]) == 40
        assert len(x["points"]) == x["runs"] and min(x["points"]) >= (40 if x["kind"] == TRAINING else 20)
        assert x["limits"][0] < x["limits"][1]
    for source in sources:
        own = [x for x in logs if x["source"] == source]
        assert sum(x["runs"] for x in own) <= 16 and len({x["commit"] for x in own}) == 1
        if own[0]["kind"] != CONTROL:       # no log counts twice as the same kind of reward
            assert len({(x["sha256"], x["kind"], x["study"]) for x in own}) == len(own)


@pytest.mark.parametrize("name", outside.SETS[1:])
def test_the_sources_of_a_set_are_those_of_its_manifest(name: str):
    listed = [(s["source"], s["commit"], s["licence"], s["what"], s["set"], x["study"], x["kind"], path, x["read"],
               x["limits"], x.get("around", False))
              for s in outside.sources(name) for x in s["studies"] for path in x["paths"]]
    keys = ("source", "commit", "licence", "what", "half", "study", "kind", "path", "read", "limits", "around")
    assert listed == [tuple(x[key] for key in keys) for x in outside.read(outside.manifest_of(name))["logs"]]


def test_every_reader_of_the_sources_is_one_with_these_settings():
    for source in json.loads(outside.SOURCES.read_text(encoding="utf-8")):
        for study in source["studies"]:
            own = {k: v for k, v in study["reader"].items() if k not in ("format", "last", "gzip", "printed")}
            inspect.signature(outside.FORMATS[study["reader"]["format"]]).bind(b"", **own)


@pytest.mark.parametrize("name", outside.SETS)
def test_the_groups_of_a_record_follow_from_its_cases(name: str):
    logs = [x for x in outside.read(outside.manifest_of(name))["logs"] if x["half"] == name]
    studies = {(x["source"], x["study"], x["kind"]) for x in logs}
    for path in outside.RESULTS.glob(f"{name}*.json"):
        record = outside.read(path.name)
        assert record["half"] == name and record["before"] == path.stem.endswith("before")
        assert {(x["source"], x["study"], x["kind"]) for x in record["cases"]} == studies
        assert outside.groups(record["cases"], outside.read("tuning_before.json")["cases"]) == record["groups"]


def test_the_law_uses_the_factor_that_the_earlier_sets_choose():
    found = outside_page.records()
    cases = [x for name in outside_page.EARLIER for x in outside_page.plain(found, name)["cases"]]
    assert outside_page.left_out(cases)["chosen"] == UPPER
    again = {(x["source"], x["study"], x["seeds"], x["hidden"]): x["law"] for x in cases if "law" in x}
    for x in found["fourth"]["cases"]:      # the record with the factor is that without it, with longer upper ends
        if "law" in x and "falls" not in x["flags"]:        # some of its runs fell: the law counts that since
            value, low, high = again[x["source"], x["study"], x["seeds"], x["hidden"]]
            assert x["law"][:2] == [value, low]
            assert x["law"][2] == pytest.approx(min(value + UPPER * (high - value), 1.0), abs=0.02)


def test_readers_count_steps_from_the_first(tmp_path: Path):
    def read(data, **reader):
        return outside.series_of(data if isinstance(data, bytes) else data.encode(), reader)

    lines = [{"type": t, "k": k, "r": r} for t, k, r in (("eval", 0, 0.5), ("train", 1, 0.1), ("train", 3, 0.2))]
    data, named = "\n".join(map(json.dumps, lines)), {"step": "k", "value": "r"}
    assert read(data, format="events", kind="train", **named) == [[(0, 0.1), (2, 0.2)]]
    again = "\n".join(json.dumps({"k": k, "r": r}) for k, r in ((1, 9), (2, 9), (1, 0.3), (2, 0.4)))
    assert read(again, format="last_start", **named) == [[(0, 0.3), (1, 0.4)]]
    assert read(data.split("\n", 1)[1], format="last_start", **named) == [[(0, 0.1), (2, 0.2)]]
    assert read(again, format="jsonl", last=True, **named) == [[(0, 0.3), (1, 0.4)]]
    assert read('{"a": {"x": [5, 7], "y": [1, 2]}}', format="lists", step="x", value="y", path=["a"]) == [
        [(0, 1), (2, 2)]]
    rows = '[{"agent": "A", "env_step": 0, "rew": 1}, {"agent": "B", "env_step": 0, "rew": 7}]'
    assert read(rows, format="agent", name="B") == [[(0, 7)]]
    with pytest.raises(UserError, match="is missing: clone"):
        outside.collected(tmp_path, "fourth")


def test_readers_of_tables_and_text():
    def read(data, **reader):
        return outside.series_of(data if isinstance(data, bytes) else data.encode(), reader)

    csv = "s,v,seed,env\n4,1,b,x\n6,2,b,x\n4,3,a,x\n4,9,a,y\n"
    assert read(csv, format="columns", step="s", value="v", seed="seed", where=["env", "x"]) == [
        [(0, 3)], [(0, 1), (2, 2)]]
    assert read("a/10: 2 r=0.5\na/12: 2 r=0.7", format="pattern", expression=r"/(\d+): .*r=([\d.]+)") == [
        [(0, 0.5), (2, 0.7)]]
    assert read("'r': 1 'r': 2", format="pattern", expression=r"'r': (\d)") == [[(0, 1), (1, 2)]]
    assert read("5 1\n9 2\n", format="pairs") == read("0,5,1\n1,9,2\n", format="bare") == [[(0, 1), (4, 2)]]
    task = json.dumps([{"task": "t", "xs": [1, 3], "ys": [5, 6]}, {"task": "u", "xs": [], "ys": []}])
    assert read(gzip.compress(task.encode()), format="scores", task="t", gzip=True) == [[(0, 5), (2, 6)]]
    assert read('[{"k": 0, "r": 1}, {"k": 1, "r": 3}, {"k": 2, "r": 5}]', format="several", step="k", value="r",
                every=2) == [[(0, 2), (2, 5)]]
    html = "<th>Step</th><th>reward</th><tr><td>1</td><td>0.5</td></tr><tr><td>3</td><td>0.6</td></tr>"
    book = json.dumps({"cells": [{"outputs": [{"data": {"text/html": [html]}, "text": ["'r': 4\n"]}]}]})
    assert read(book, format="shown_table", cell=0, value="reward") == [[(0, 0.5), (2, 0.6)]]
    assert read(book, format="pattern", printed=0, expression=r"'r': (\d)") == [[(0, 4)]]
    assert read("k,r\n1,nan\n2,3\n4,5\n6,", format="finite", step="k", value="r") == [[(0, 3), (2, 5)]]
    assert read("Env: T\nt a b\n0 1 2\n5 3 4\n---", format="blocks", task="T", most=2) == [
        [(0, 1), (5, 3)], [(0, 2), (5, 4)]]
    assert read('{"v": [1, 2]}', format="listed", value="v") == [[(0, 1), (1, 2)]]
    pair = "\n".join(json.dumps({"reward": {"total": x}}) for x in (9, 1, 2, 3, 4))
    assert read(pair, format="in_pairs", skip=1) == [[(0, 1.5), (1, 3.5)]]


def test_what_is_stated_of_fresh_logs_is_what_was_measured():
    groups = outside_page.judged(outside_page.records(), outside_page.FRESH)["groups"]
    sources, every, training = groups["all"]["sources"], groups["all"]["held"], groups[TRAINING]["held"]
    for name in ("README.md", "docs/import.md", "docs/how_sure.md", "CHANGELOG.md"):
        said = " ".join((HOME / name).read_text(encoding="utf-8").split())
        assert f"{sources} fresh" in said and f"{100 * every:.1f} %" in said and f"{100 * training:.1f} %" in said, name
    assert (sources, round(100 * every), round(100 * training)) == (fit.SOURCES, fit.HELD, fit.HELD_TRAINING)
    page = outside_page.PAGE.read_text(encoding="utf-8")
    assert page.index("\n## Targets\n") == page.index("\n## ") and "\n## The factor on upper ends\n" in page


def test_the_frozen_form_was_no_better_on_fresh_logs_and_no_form_reached_both_targets():
    """The page says so."""
    rows = {x["form"]: x for x in outside.read("forms_fourth.json")["forms"]}
    assert rows[outside_page.SOUGHT]["apart"]["mean"][0] > 1
    tried = outside.read("forms.json")["forms"]
    assert len(tried) >= 12 and all(x["apart"]["mean"][2] > 1 for x in tried[-2:])
    assert not [x for x in tried if x["all"]["ratio"] <= outside_page.RATIO and x["all"]["held"] >= outside_page.LOW]


def test_the_page_on_curves_from_outside_is_written_from_its_records():
    found = outside_page.page(outside_page.records())
    assert outside_page.PAGE.read_text(encoding="utf-8") == found, "python experiments/outside_page.py"


def test_scores_of_outside_curves_count_sources_alike_and_the_mean_counts_every_miss():
    """Source a: 3 cases, one missed by 0.1, so scores 0.2, 0.2, 0.2 + 20 x 0.1; source b: 1 case."""
    kind = {"kind": "LLM training reward", "hidden": 0.5}
    # A naive value is off by 0.1 above or below in the tuning half, so each naive interval is 0.2 wide.
    learned = [{**kind, "source": f"t{i}", "outcome": 0.5 + (0.1 if i % 2 else -0.1),
                "naive": dict.fromkeys(outside.NAIVE, 0.5)} for i in range(8)]
    outcomes = {"a": (0.5, 0.5, 0.7), "b": (0.5,)}
    judged = [{**kind, "source": s, "outcome": y, "law": [0.5, 0.4, 0.6], "naive": dict.fromkeys(outside.NAIVE, 0.6)}
              for s, several in outcomes.items() for y in several]
    found = outside_page.figures([*judged, {**kind, "source": "c", "outcome": 0.5}], learned)     # c has no curve
    assert found["law held"] == pytest.approx((5 / 6, 2 / 3, 1))
    assert found["last tenth held"] == pytest.approx((1, 1, 1))
    own = (0.2 + 0.2 + 2.2) / 3 / 2 + 0.2 / 2
    assert found["mean score"][0] == pytest.approx(own / 0.2) and found["median score"][0] == pytest.approx(1)
    assert found["mean score"][1:] == pytest.approx((1, (0.2 + 0.2 + 2.2) / 3 / 0.2))


def test_the_factor_on_upper_ends_is_chosen_for_a_source_by_the_others():
    """Upper ends lie 0.1 above 0.5. Eight sources hold as they are, b needs a factor of 1.2 and a one of 1.6."""
    outcomes = {"a": 0.655, "b": 0.62, **{f"s{i}": 0.5 for i in range(8)}}
    found = outside_page.left_out([{"source": s, "outcome": y, "law": [0.5, 0.4, 0.6]} for s, y in outcomes.items()])
    # Nine of ten are enough, so all sources choose b's factor. Eight of nine are too few: then all nine must hold.
    assert found["chosen"] == 1.2 and found["factors"] == {"a": 1.2, "b": 1.6, **{f"s{i}": 1.6 for i in range(8)}}
    assert found["held"].tolist() == [False] + [True] * 9
    assert found["score"].tolist() == pytest.approx([0.22 + 20 * 0.035, 0.26] + [0.26] * 8)
