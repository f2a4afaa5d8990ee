"""The site of `make docs`: every page is listed once, pictures follow the theme, and it builds without a warning."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
DOCS = HOME / "docs"
TREE = re.compile(r"^:::\{toctree\}\n(.*?)^:::$", flags=re.M | re.S)


def load():
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed() -> list[str]:
    """The pages that the landing page lists, in its trees."""
    trees = TREE.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    lines = [x for tree in trees for x in tree.splitlines() if x and not x.startswith(":")]
    return [name for x in lines for name in ([p.stem for p in DOCS.glob(f"{x}.md")] if "*" in x else [x])]


def test_every_page_is_listed_once_under_use_trust_extend_or_reference():
    there = {p.stem for p in DOCS.glob("*.md")} - {"index"}
    missing = sorted(there - set(listed()))
    assert not missing, f"add to a toctree of docs/index.md: {', '.join(missing)}"
    assert sorted(listed()) == sorted(there)
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    captions = re.findall(r"^:caption: (\w+)$", index, flags=re.M)
    assert captions == re.findall(r"^\*\*(\w+)\*\*$", index, flags=re.M) == ["Use", "Trust", "Extend", "Reference"]


def test_a_picture_in_two_colours_becomes_two_images():
    conf = load()
    pages = [p.read_text(encoding="utf-8") for p in DOCS.glob("*.md")]
    assert sum(x.count("<picture>") for x in pages) >= 20
    for page in pages:
        made = conf.in_two_colours(page)
        assert "<picture>" not in made, "a picture is written in another way than docs/conf.py reads"
        assert made.count("only-light") == made.count("only-dark") == page.count("<picture>")
        for name in re.findall(r'<img class="only-\w+" [^>]*src="([^"]+)"', made):
            assert (DOCS / name).exists()


def test_the_site_is_built_from_what_the_target_installs():
    project = (HOME / "pyproject.toml").read_text(encoding="utf-8")
    pinned = re.findall(r"^([\w-]+)==", (HOME / "constraints.txt").read_text(encoding="utf-8"), flags=re.M)
    wanted = re.search(r"^docs = \[(.*)\]$", project, flags=re.M)
    assert wanted and set(re.findall(r'"([\w-]+)>=', wanted[1])) == {"sphinx", "myst-parser", "furo"} <= set(pinned)


@pytest.mark.skipif(
    any(importlib.util.find_spec(x) is None for x in ("sphinx", "myst_parser", "furo")),
    reason="the site's generator is not installed: make docs",
)
def test_the_site_builds_without_a_warning_and_can_be_searched(tmp_path):
    """In processes of their own, because Sphinx changes the interpreter it runs in. Most of a build would be the list
    of pages that the theme makes for each page: all pages are built in a theme without one, and three in the site's."""
    for words in (("-D", "html_theme=basic"), ()):
        pages = () if words else [DOCS / f"{name}.md" for name in ("index", "glossary", "methods")]
        built = subprocess.run(
            [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", *words, "-d", tmp_path / "trees",
             DOCS, tmp_path / "site", *pages],
            capture_output=True, text=True,
        )
        assert built.returncode == 0, built.stderr
    site = tmp_path / "site"
    assert {p.stem for p in site.glob("*.html")} >= {p.stem for p in DOCS.glob("*.md")} | {"search"}
    assert "dead group" in (site / "glossary.html").read_text(encoding="utf-8").lower()
    assert "Search.setIndex" in (site / "searchindex.js").read_text(encoding="utf-8")
    index = (site / "index.html").read_text(encoding="utf-8")
    assert "theme-toggle" in index and "<picture>" not in index
    assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css)', index), "a page needs the network"
    for page in site.glob("*.html"):
        for name in re.findall(r'<img[^>]* src="(images/[^"]+)"', page.read_text(encoding="utf-8")):
            assert (site / name).exists(), f"{page.name}: {name}"
