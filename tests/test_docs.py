"""The pages say what is so: links lead somewhere, commands parse, lists are complete."""

import dataclasses
import json
import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from doc_pages import parse
from docs.build import cli as docs
from experiments import claim, claim_page, control_claims
from isocost import seams, trainers
from isocost.laws import law
from isocost.planner import audit, forecast
from isocost.planner.training import learning_rate as rate
from isocost.planner.training import pilot
from isocost.planner.training import prescribe as plan
from trees import sources

HOME = Path(__file__).parents[1]
TEXTS = {p: p.read_text(encoding="utf-8") for p in sorted([*HOME.glob("*.md"), *(HOME / "docs").rglob("*.md")])}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.M | re.S)


def prose(text: str) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text)


@cache
def slugs(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def lines(text: str) -> list[str]:
    """Every `isocost ...` that a page shows, in blocks and in the text."""
    blocks = [x for _, body in FENCE.findall(text) for x in body.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`([^`\n]+)`", prose(text))
    return [x.strip() for x in (*blocks, *inline) if x.strip().startswith("isocost ")]


def named(text: str) -> set[str]:
    """Everything between backticks in a page's text."""
    return set(re.findall(r"`([^`\n]+)`", prose(text)))


# links and names ----------------------------------------------------------------------------------------------


def test_links_lead_somewhere():
    dead = []
    for page, text in TEXTS.items():
        found = re.findall(r"\]\(([^)\s]+)\)", prose(text)) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
        for link in (x for x in found if "://" not in x):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in slugs(target)):
                dead.append(f"{page.name}: {link}")
    assert dead == []


def test_files_that_are_named_exist():
    files = r"(src|isocost|tests|docs|examples|experiments)(/[\w.]+)+/?"
    assert [f"{page.name}: {name}" for page, text in TEXTS.items() for name in named(text)
            if re.fullmatch(files, name) and not (HOME / name).exists()] == []


def test_commands_parse():
    mistakes = []
    for page, text in TEXTS.items():
        for line in lines(text):
            try:
                parse(shlex.split(line.removesuffix(" &"))[1:])
            except click.ClickException as e:
                mistakes.append(f"{page.name}: {line}: {e.format_message()}")
    assert not mistakes, "\n".join(mistakes)


def test_a_wrong_option_is_found():
    parse(["plan", "studies/mine", "--budget", "2h"])
    for wrong in (["plan", "studies/mine", "--bugdet", "2h"], ["prophesy"], ["methods", "burn"]):
        with pytest.raises(click.ClickException):
            parse(wrong)


def test_make_targets_and_their_variables_exist():
    makefile = (HOME / "Makefile").read_text(encoding="utf-8")
    for page, written in TEXTS.items():
        text = " ".join(written.split())
        for target, variable in re.findall(
            r"\bmake (quickstart|test|docs|lint|bench|attack|clean)\b(?: ([A-Z]+)=)?", text
        ):
            assert re.search(rf"^{target}:", makefile, flags=re.M)
            assert not variable or re.search(rf"^{variable} \?=", makefile, flags=re.M), f"{page}: {variable}"


# pages made from code, or complete by code -------------------------------------------------------------------


def test_the_commands_page_is_current():
    said = (HOME / "docs" / "cli.md").read_text(encoding="utf-8")
    assert said == docs.commands(), "python -m docs.build.cli > docs/cli.md"


def test_the_glossary_has_every_trainers_names():
    said = (HOME / "docs" / "glossary.md").read_text(encoding="utf-8")
    for trainer in trainers.modules("SIZES").values():
        row = trainer.TITLE, *(text.format(n="n", B="B", M="M", nB="nB") for text in trainer.SIZES)
        assert "| " + " | ".join(row) + " |" in said


def test_the_tour_is_of_this_code():
    said = (HOME / "docs" / "read_the_code.md").read_text(encoding="utf-8")
    assert "thirteen seams" in said and len(seams.SEAMS) == 13
    assert "four sizes" in said and len(seams.SIZES) == 4
    assert all(seam in said for seam in ("choose", "guide", "allocate", "schedule", "play", "reward", "select"))
    for name in ("_launch_ahead", "_sift", "RunRecord.save", "RunRecord.restore", "Driver.go"):
        assert name in said and any(f"def {name.split('.')[-1]}(" in source for source in sources().values())


def test_the_glossary_is_alphabetical_and_each_term_is_explained_once():
    said = (HOME / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = said.split("## Terms\n")[1].split("\n## ")[0].strip().split("\n\n")
    names = []
    for entry in terms:
        head = re.match(r"\*\*([^*]+(?:\\\*[^*]*)?)\.\*\* \S", entry)
        assert head, f"an entry is **Term.** and its explanation, got {entry[:60]!r}"
        assert len(re.findall(r"[.:]\)?(?=\s|$)", entry.partition(".** ")[2])) <= 5, f"too long: {head[1]}"
        names.append(head[1].replace("\\", ""))
    keys = [re.sub(r"[^a-z0-9]", "", n.split("(")[0].lower()) for n in names]
    assert keys == sorted(keys) and len(set(names)) == len(names)
    assert len(names) >= 70


def words(page: str) -> int:
    """Words of a page; what has neither letter nor digit, such as the rules of a table, is none."""
    return sum(bool(re.search(r"\w", x)) for x in TEXTS[HOME / "docs" / f"{page}.md"].split())


EVIDENCE = ("claims", "evidence", "how_sure", "outside_curves", "speed", "test_time_evidence", "when_n_grows")
SHORT = ("bill", "control", "offline", "serve", "scorers", "strategies", "test_time", "test_time_evidence",
         "train_or_think")


def test_the_docs_stay_short():
    """60,000 words without the pages of methods, 15,000 of them evidence, and 800 a page that answers one question."""
    pages = {p.stem for p in TEXTS if p.parent.name == "docs"} - {"methods", "control_methods", "studies"}
    assert sum(map(words, pages)) <= 60_000
    assert sum(map(words, EVIDENCE)) <= 15_000
    assert {page: words(page) for page in SHORT if words(page) > 800} == {}


# the README and the evidence ----------------------------------------------------------------------------------


def test_the_readme_is_short():
    said = (HOME / "README.md").read_text(encoding="utf-8")
    assert len(said.split()) <= 1300
    limits = said.split("\n## Limits\n")[1].split("\n## ")[0]
    claims = said.split("\n## What we claim, and the evidence\n")[1].split("\n## ")[0]
    assert len(re.findall(r"^\d\. ", limits, flags=re.M)) == 6
    assert len(re.findall(r"^\d\. ", claims, flags=re.M)) == 5
    assert all(re.search(r"\]\(docs/\w+\.md", claim) for claim in re.split(r"^\d\. ", claims, flags=re.M)[1:])


def test_the_one_result_of_the_readme_is_that_of_its_record():
    home = HOME / "experiments" / "results" / "quickstart"
    said, sealed = (json.loads((home / f"{name}.json").read_text()) for name in ("audit", "forecast"))
    plan = json.loads((home / "plan.json").read_text())
    interval, gain, arm = sealed["interval"], said["difference"], plan["arm"]
    for page in ("README.md", "docs/evidence.md"):
        text = " ".join((HOME / page).read_text(encoding="utf-8").split())
        for number in (
            f"{interval['value']:.3f}", f"{interval['low']:.3f} to {interval['high']:.3f}",
            f"{said['outcome']['mean']:.3f}", f"{said['outcome']['count']} runs", f"{arm['C']:,}",
            f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]",
        ):
            assert number in text, (page, number)


def test_the_readme_says_what_prescriptions_give_away_as_their_record_does():
    said = " ".join((HOME / "README.md").read_text(encoding="utf-8").split())
    found = json.loads((HOME / "experiments" / "results" / "sweeps" / "judged.json").read_text(encoding="utf-8"))
    lost = {k: f"{x[0]:.3f}" for k, x in found["all"].items() if isinstance(x, list)}
    studies = found["all"]["studies"] // (len(next(iter(found["situations"].values()))) - 1)
    assert f"On {studies} studies" in said
    assert (f"the prescribed n and rate end {lost['ours_whole']} below the best, at equal cost; the best n at a "
            f"pilot's end {lost['end_whole']}, n = 8 {lost['n8_whole']}") in said
    assert f"the prescribed n loses {lost['ours']}, the best at the end {lost['end']}, n = 8 {lost['n8']}" in said


SECTION = re.compile(r"<!-- records: ([\w-]+) -->\n(.*?)(?=<!-- records|^## |\Z)", flags=re.M | re.S)


def test_every_measurement_names_its_record():
    """A section that begins with `<!-- records: NAME -->` names a file of experiments/results, or a page of them."""
    found = SECTION.findall((HOME / "docs" / "evidence.md").read_text(encoding="utf-8"))
    assert len(found) == 8
    for name, text in found:
        named = re.findall(r"`(experiments/results/[\w./]+)`", text)
        named += [f"docs/{page}" for page in re.findall(r"\((\w+\.md)", text)]
        assert named and all((HOME / x).exists() for x in named), name


def test_the_evidence_counts_the_claims_as_their_records_do():
    kept = {name: record["outcome"] for name, record in claim_page.records().items() if "outcome" in record}
    control = [kept[name] for name in claim.kept(control_claims.KEPT) if name in kept]
    text = " ".join((HOME / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    agents = [outcome for name, outcome in kept.items() if "--env" in claim_page.everything()[name].options]
    holds, fails, unknown = (list(kept.values()).count(x) for x in ("holds", "does not hold", "cannot tell"))
    assert f"{len(kept)} claims were asked" in text
    assert f"{holds} claims hold, {fails} do not, {unknown} are undecided" in text
    holds, fails, unknown = (agents.count(x) for x in ("holds", "does not hold", "cannot tell"))
    assert f"of these {len(agents)} are about agents: {holds}, {fails} and {unknown}" in text
    assert f"most at one desk: {holds} hold, {fails} do not, {unknown} are undecided" in text
    holds, fails, unknown = (control.count(x) for x in ("holds", "does not hold", "cannot tell"))
    assert f"{len(control)} are about control: {holds}, {fails} and {unknown}" in text


def test_the_forecasts_of_real_runs_that_missed_are_those_of_the_record():
    text = " ".join((HOME / "docs" / "evidence.md").read_text(encoding="utf-8").split())
    rows = json.loads((HOME / "experiments" / "results" / "law_real.json").read_text(encoding="utf-8"))["real"]
    whole = rows.pop("all real")
    held = round(whole["coverage"] * whole["predictions"])
    assert f"{held} of {whole['predictions']} intervals covered the end" in text
    assert f"was {whole['error']:.3f} above the forecast" in text
    missed = {name: row for name, row in rows.items() if row["coverage"] < 1}
    assert {name.split()[0] for name in missed} == {"level-2-B16"}
    errors = [row["error"] for row in missed.values()]
    assert f"too low, by {min(errors):.2f} to {max(errors):.2f}" in text


STEPS = {
    "pilot.json": pilot.PilotPlan,
    "rate.json": rate.RateRule,
    "shift.json": rate.Shift,
    "law.json": law.Law,
    "plan.json": plan.Plan,
    "forecast.json": forecast.Forecast,
    "audit.json": audit.Audit,
}


@pytest.mark.parametrize("file", STEPS)
def test_what_the_records_page_says_of_a_study_is_there(file):
    said = (HOME / "docs" / "records.md").read_text(encoding="utf-8")
    row = next(x for x in said.splitlines() if x.startswith(f"| `{file}`"))
    there = {f.name for f in dataclasses.fields(STEPS[file])}
    assert set(re.findall(r"`(\w+)`", row)) <= there
