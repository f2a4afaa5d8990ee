"""The pages on methods: the tutorial is run as it stands, the catalogue is current."""

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from jaxtyping import config

from docs.build import catalogue as _catalogue
from experiments import claim, claim_page
from experiments.claim import outcome_of
from in_turn import in_turn
from isocost import methods
from isocost.batch import Batch
from isocost.ledger import Ledger, Seen, Tally
from isocost.seams import SEAMS
from isocost.traits import TRAITS
from isocost.types import Group, Problem, Rollout, Score, Shown, Turn
from isocost.world import Environment, World

DOCS = Path(__file__).parents[1] / "docs"
TUTORIAL = (DOCS / "write_a_method.md").read_text(encoding="utf-8")


def test_the_tutorial_lists_every_seam():
    seams = TUTORIAL.partition("| seam |")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([a-z]+)` \|", seams, flags=re.M)) == SEAMS


def test_the_tutorial_lists_every_trait():
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", TUTORIAL.split("| trait |")[1], flags=re.M)) == TRAITS


def kept():
    """The pages that are there, by their names below docs/."""
    return {p.relative_to(DOCS).as_posix(): p.read_text(encoding="utf-8")
            for p in (DOCS / "methods.md", *(DOCS / "methods").glob("*.md"))}


def generated(measured):
    """Every generated page as this version writes it, with the cost of these methods; the others' as it is there."""
    overhead, there = _catalogue._overhead, kept()

    def cost(name):
        if name in measured:
            return overhead(name)
        return there[f"methods/{name}.md"].partition("\n## Cost\n\n")[2].partition("\n\n## Status\n")[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_catalogue, "_overhead", cost)
        return _catalogue.pages()


@pytest.fixture(scope="module")
def written():
    """The pages, with the cost of the methods in their turn. Shapes are checked where methods are tested."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    found = generated(in_turn())
    config.update("jaxtyping_disable", before)
    return found


def test_every_method_has_a_page_and_all_pages_are_current(written):
    there = kept()
    assert set(there) == {"methods.md", *(f"methods/{name}.md" for name in methods.shipped())}
    old = sorted(name for name in written if there[name] != written[name])
    assert old == [], "run: python -m docs.build.catalogue docs"


@pytest.mark.release
def test_the_cost_of_every_method_is_current(unchecked_shapes):
    there = kept()
    assert [name for name, page in generated(methods.shipped()).items() if page != there[name]] == []


def test_the_index_has_a_row_for_every_method(written):
    row = r"^\| \[(\w+)\]\(methods/(\w+)\.md\) \| .* \| (.+) \| (.+\.) \| contract, numeric"
    rows = re.findall(row, written["methods.md"], re.M)
    assert [name for name, *_ in rows] == [page for _, page, *_ in rows] == methods.shipped()


def test_pages_are_written_and_those_of_methods_that_are_gone_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(_catalogue, "pages", lambda: {"methods.md": "index", "methods/grpo.md": "GRPO"})
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "gone.md").write_text("gone")
    _catalogue.main([str(tmp_path)])
    control = (tmp_path / "control_methods.md").read_text()
    assert {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*.md")} == {
        "methods.md": "index", "methods/grpo.md": "GRPO", "control_methods.md": control,
    }
    assert control == (DOCS / "control_methods.md").read_text(encoding="utf-8")


def lacks(page, card):
    """What a method's page has not."""
    there = {
        "title": page.startswith(f"# {card.title}\n"),
        "paper": card.paper in page,
        "claim": f"- Claim: {card.claim}\n" in page,
        "equations": re.search(r"^## Equations\n\n```text\n.+?\n```$", page, re.M | re.S),
        "differences": f"| differs in | {card.parent} |" in page or card.parent is None,
        **{word: re.search(rf"^\| {word} \| [\d.]+ \|", page, re.M) for word in ("sampled", "scored", "trained")},
        "needs": "\n## Needs\n" in page,
        "numeric": re.search(r"^- numeric \(`tests/test_methods_", page, re.M),
    }
    return [part for part, found in there.items() if not found]


def test_a_page_is_whole_and_has_numbers_from_its_paper(written):
    assert {name: parts for name in methods.shipped()
            if (parts := lacks(written[f"methods/{name}.md"], methods.load(name).CARD))} == {}


def test_a_page_lists_settings_and_how_a_method_works(written):
    page = written["methods/brpo.md"]
    assert "| `play.answers` | `2` | [1, inf) |" in page
    assert "\n## How it works\n\n`play`: " in page and "\n## Choices and omissions\n\n- " in page


def test_the_status_says_what_was_shown_and_where(tmp_path):
    for name in ("tests", "experiments/results"):
        (tmp_path / name).mkdir(parents=True)
    assert _catalogue.status("half", tmp_path) == "contract"
    (tmp_path / "tests" / "test_methods_learn.py").write_text("def test_a():\n    load('half')\n")
    (tmp_path / "tests" / "test_methods_x.py").write_text("NAMES = ['half']\n\n\ndef test_a():\n    half = whole\n")
    (tmp_path / "experiments" / "results" / "a.json").write_text("[1]")
    assert _catalogue.status("half", tmp_path) == "contract"            # it learns, or it is spoken of: no numbers
    (tmp_path / "tests" / "test_methods_y.py").write_text("def test_a():\n    assert credit('half') == [0.5]\n")
    (tmp_path / "tests" / "test_methods_z.py").write_text("def test_a():\n    assert half.advantage(1) == 0.5\n")
    claim = {"reproduces": {"half": "half is enough at 1e4"}}
    (tmp_path / "experiments" / "results" / "b.json").write_text(json.dumps(claim))
    assert _catalogue.status("half", tmp_path) == (
        "contract, numeric (`tests/test_methods_y.py`, `tests/test_methods_z.py`), "
        "reproduced (half is enough at 1e4; `experiments/results/b.json`)"
    )
    assert _catalogue.status("whole", tmp_path) == "contract"
    assert _catalogue.status("whole", tmp_path, frozenset(["half.advantage"])).endswith("(`tests/test_methods_z.py`)")


@pytest.mark.parametrize(("answers", "told"), [
    (["holds", "holds", "holds"], ("reproduced (T; W)", "another claim: holds (T; W)")),
    (["holds", "holds", "cannot tell"], ("claim: holds (T; W)", "another claim: cannot tell (T; W)")),
    (["holds", "does not hold", "holds"], ("claim: does not hold (T; W)", "another claim: holds (T; W)")),
    (["cannot tell", "holds", "holds"], ("claim: cannot tell (T; W)", "another claim: cannot tell (T; W)")),
])
def test_a_claim_reproduces_what_it_asks_for_whom_and_nothing_else(tmp_path, answers, told):
    """Question 0 is about both, 1 about `half`, whose claim it is, 2 about `third`, which claims something else."""
    for name in ("claims", "results/claims"):
        (tmp_path / "experiments" / name).mkdir(parents=True)
    (tmp_path / "experiments" / "claims" / "all.toml").write_text(
        "[a]\ntitle = 'T'\nclaim = 'C'\nsource = 'S'\nmethods = ['half', 'third']\nown = ['half']\noptions = []\n"
        "arms = ['grpo', 'rloo']\ncost = '1-rollouts'\nseeds = 2\n" + "".join(
            f"[[a.questions]]\nsays = '{i}'\narm = 'rloo'\nmetric = 'm'\ncomparator = 'grpo'\nabove = 0\n{about}"
            for i, about in enumerate(("", "about = ['half']\n", "about = ['third']\n"))))
    record = {"outcome": outcome_of(answers), "answers": [{"answer": a} for a in answers]}
    (tmp_path / "experiments" / "results" / "claims" / "a.json").write_text(json.dumps(record))
    told = [x.replace("W", "`experiments/results/claims/a.json`") for x in told]
    assert [_catalogue.status(name, tmp_path) for name in ("half", "third", "whole")] == [
        *(f"contract, {x}" for x in told), "contract",
    ]


def test_the_pages_say_what_came_of_claims(written):
    said = {name: written[f"methods/{name}.md"].partition("\n## Status\n")[2].partition("\n## ")[0]
            for name in methods.shipped()}
    reproduced = {name for name, status in said.items() if "reproduced" in status}
    assert reproduced == {"april", "bon", "bonrlb", "fapo", "dars", "drgrpo", "fbc", "int_", "kimi", "mcawr", "otc",
                          "pope", "ppo"}
    assert "claim under rule 1: holds ([" in said["roc"] and "claim under rule 1: cannot tell" in said["hgpo"]
    for name, told in (("arrol", "another claim: holds"), ("bon", "claim: does not hold"),
                       ("siri", "claim: does not hold"), ("darshw", "another claim: holds"),
                       ("promptgdro", "another claim: cannot tell"), ("minpro", "claim: cannot tell"),
                       ("rc", "claim: cannot tell")):
        assert f"- {told} ([" in said[name]


def test_a_methods_page_has_every_answer_about_it_with_its_interval_once(written):
    """Each claim has one page with all of it; the pages of its other methods link to it, and to waves."""
    every, kept = claim.rows(), claim.kept()
    for name, row in every.items():
        if "outcome" not in kept.get(name, {}):     # not asked: the page of claims says why
            continue
        homes = [m for m in row.methods if kept[name]["seal"][:12] in written[f"methods/{m}.md"]]
        assert homes == [claim_page.home_of(row)], name
        page = written[f"methods/{homes[0]}.md"]
        for a in kept[name]["answers"]:
            assert f"{a['says']} |" in page and claim_page._difference(a) in page, (name, a["says"])
        for other in set(row.methods) - set(homes):
            assert f"({homes[0]}.md#{claim_page.anchor(row.title)})" in written[f"methods/{other}.md"]
    for r in claim_page.waves()["rows"]:
        assert "{:+.3f} [{:+.3f}, {:+.3f}]".format(*r["answers"]["equal cost"]) in written[f"methods/{r['method']}.md"]


def test_pages_name_no_file_that_is_not_here(written):
    unknown = r"\bcard \d|\berrat|\bJ(?!1\b)\d|\b(?!write_a_method|methods)\w+\.md(?![)#])"
    assert {name: re.findall(unknown, page) for name, page in written.items() if re.search(unknown, page)} == {}


def test_a_function_is_a_methods_own_where_only_its_family_holds_it():
    assert "vade.choose" in _catalogue._own("vade") and "dars.allocate" in _catalogue._own("darshw")
    assert "weight.token_mean" not in _catalogue._own("liteppo") and "grpo.advantage" not in _catalogue._own("vade")


def test_what_a_file_says_of_its_defaults_is_quoted():
    text = """
LEAST = 0.1   # share of groups, section 4.2

def advantage(r, *, cap: float = 2.0):  # (G,) -> (G,)
    # The paper's cap
    # is 2 (its table 3).
    return r   # noqa: RET504

def recipe():
    return grpo.recipe(
        rollouts=9,   # 8 + 1
        pace=partial(pace.warmed, lr=5e-7, warmup=100),   # the paper's
        select=partial(select.mixed, part="right"),   # whether it is right
    )

LOW, HIGH = 0.25, 0.75   # a band
left = seen.clamp(min=1)   # at least one
done = credit == 0   # settled
"""
    assert _catalogue.remarks(text) == [
        "`LEAST=0.1`: share of groups, section 4.2", "The paper's cap is 2 (its table 3).", "`rollouts=9`: 8 + 1",
        "the paper's", '`part="right"`: whether it is right', "a band",
    ]


def test_overhead_is_read_off_the_meter():
    """In the toy world a reference is scored, and an update trains, on the question and the answer alike."""
    grpo, ace, gspo = (_catalogue._each(name, 1, dialogues=False) for name in ("grpo", "ace", "gspo"))
    assert ace["scored"] == ace["trained"] == grpo["trained"] and grpo["scored"] == 0.0
    assert gspo["scored"] == gspo["trained"]                                # minibatches want old log-probs
    assert grpo["trained"] > grpo["sampled"] > 1
    _catalogue._each.cache_clear()
    assert _catalogue._each("ace", 1, dialogues=False) == ace
    entry = _catalogue._overhead("ace").splitlines()
    assert entry[2].endswith("| 1.00 |") and entry[3].split("|")[2].strip() == "0.0" and entry[3].endswith("| new |")


@pytest.mark.parametrize(
    "noun", [Problem, Rollout, Score, Group, Batch, Ledger, Tally, Seen, World, Environment, Shown, Turn],
    ids=lambda c: c.__name__)
def test_the_guide_lists_what_a_noun_offers(noun):
    """Every public name of the class, and no other."""
    (row,) = re.findall(rf"^\| `{noun.__name__}` \|(.*)\|$", TUTORIAL, re.MULTILINE)
    named = set(re.findall(r"`([a-z]\w*)(?:\([^`]*\))?`", row))      # other nouns begin with a capital
    own = [f.name for f in fields(noun)] if is_dataclass(noun) else []
    public = {name for name in {*vars(noun), *own} if not name.startswith("_")}
    assert named == public
