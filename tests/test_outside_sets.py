"""The later sets of other trainers' logs: their rules, and the pages that state what was measured on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import outside
import outside_fourth
import outside_page
import outside_sure
from isocost.errors import UserError
from isocost.laws.law import UPPER
from isocost.steps.training import fit
from outside_logs import CONTROL, TRAINING

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


@pytest.mark.parametrize("name", SETS)
def test_the_list_of_a_later_set_is_that_of_its_manifest_and_of_its_records(name: str):
    listed = [(s.name, s.licence, s.what, x.name, x.kind, path, x.how, list(x.limits), x.around)
              for s in outside.LATER[name] for x in s.studies for path in x.paths]
    keys = ("source", "licence", "what", "study", "kind", "path", "read", "limits", "around")
    assert listed == [tuple(x[key] for key in keys) for x in LOGS[name]]
    studies = {(x["source"], x["study"], x["kind"]) for x in LOGS[name]}
    for path in outside.RESULTS.glob(f"{name}*.json"):
        record = outside.read(path.name)
        assert record["half"] == name and record["before"] == path.stem.endswith("before")
        assert {(x["source"], x["study"], x["kind"]) for x in record["cases"]} == studies
        assert outside.groups(record["cases"], outside.read("tuning_before.json")["cases"]) == record["groups"]


def test_the_law_uses_the_factor_that_the_earlier_sets_choose():
    found = outside_page.records()
    cases = [x for name in outside_page.EARLIER for x in outside_page.plain(found, name)["cases"]]
    assert outside_sure.left_out(cases)["chosen"] == UPPER
    again = {(x["source"], x["study"], x["seeds"], x["hidden"]): x["law"] for x in cases if "law" in x}
    for x in found["fourth"]["cases"]:      # the record with the factor is that without it, with longer upper ends
        if "law" in x and "falls" not in x["flags"]:        # some of its runs fell: the law counts that since
            value, low, high = again[x["source"], x["study"], x["seeds"], x["hidden"]]
            assert x["law"][:2] == [value, low]
            assert x["law"][2] == pytest.approx(min(value + UPPER * (high - value), 1.0), abs=0.02)


def test_readers_of_the_fourth_set_count_steps_from_the_first(tmp_path: Path):
    lines = [{"type": t, "k": k, "r": r} for t, k, r in (("eval", 0, 0.5), ("train", 1, 0.1), ("train", 3, 0.2))]
    data = "\n".join(map(json.dumps, lines)).encode()
    assert outside_fourth.events("train", "k", "r")(data) == [[(0, 0.1), (2, 0.2)]]
    again = "\n".join(json.dumps({"k": k, "r": r}) for k, r in ((1, 9), (2, 9), (1, 0.3), (2, 0.4))).encode()
    assert outside_fourth.last_start("k", "r")(again) == [[(0, 0.3), (1, 0.4)]]
    assert outside_fourth.last_start("k", "r")(data.split(b"\n", 1)[1]) == [[(0, 0.1), (2, 0.2)]]
    assert outside_fourth.lists("x", "y", "a")(b'{"a": {"x": [5, 7], "y": [1, 2]}}') == [[(0, 1), (2, 2)]]
    rows = b'[{"agent": "A", "env_step": 0, "rew": 1}, {"agent": "B", "env_step": 0, "rew": 7}]'
    assert outside_fourth.agent("B")(rows) == [[(0, 7)]]
    with pytest.raises(UserError, match="is missing: clone"):
        outside.collected(tmp_path, "fourth")


def test_what_is_stated_of_fresh_logs_is_what_was_measured():
    groups = outside_page.judged(outside_page.records(), outside_page.FRESH)["groups"]
    sources, every, training = groups["all"]["sources"], groups["all"]["held"], groups[TRAINING]["held"]
    for name in ("README.md", "docs/import.md", "docs/how_sure.md", "CHANGELOG.md"):
        said = " ".join((HOME / name).read_text(encoding="utf-8").split())
        assert f"{sources} fresh" in said and f"{100 * every:.1f} %" in said and f"{100 * training:.1f} %" in said, name
    assert (sources, round(100 * every), round(100 * training)) == (fit.SOURCES, fit.HELD, fit.HELD_TRAINING)
    page = outside_page.PAGE.read_text(encoding="utf-8")
    assert page.index("\n## Targets\n") == page.index("\n## ") and "\n## The factor on upper ends\n" in page


def test_the_frozen_form_was_no_better_on_fresh_logs():
    """The page says so."""
    rows = {x["form"]: x for x in outside.read("forms_fourth.json")["forms"]}
    assert rows[outside_page.outside_forms.PICKED]["apart"]["mean"][0] > 1
    assert rows[outside_page.outside_forms.NOW]["all"]["held"] == (
        outside.read("fourth_judged.json")["groups"]["all"]["held"])
