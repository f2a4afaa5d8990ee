"""How Sphinx makes a site of these pages: `make docs` writes it to build/docs.

The pages are plain Markdown that reads as well on a code host. Three things change on the way to HTML: a picture in
two colours follows the theme's switch, the pages of single methods are listed below methods.md, and the folder of
pictures is copied as it is, because pictures are named in raw HTML that Sphinx does not read.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

HERE = Path(__file__).parent

project = "isocost"
author = "the isocost authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4        # the anchors of headings, as a code host makes them
exclude_patterns = ["_static"]
suppress_warnings = ["misc.highlighting_failure"]      # what a command prints need not be valid in any language

html_theme = "furo"
html_title = "isocost"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = html_show_copyright = False
templates_path: list[str] = []
pygments_style, pygments_dark_style = "friendly", "monokai"

PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="(?P<dark>[^"]+)">\s*'
    r'<img (?P<rest>[^>]*?)src="(?P<light>[^"]+)"(?P<more>[^>]*)>\s*</picture>'
)
METHODS = "\n\n:::{toctree}\n:hidden:\n:glob:\n\nmethods/*\n:::\n"


def in_two_colours(text: str) -> str:
    """The page's text with each `<picture>` as two images, of which the theme shows the one that fits."""
    return PICTURE.sub(
        lambda m: "\n".join(
            f'<img class="only-{side}" {m["rest"]}src="{m[side]}"{m["more"]}>' for side in ("light", "dark")
        ),
        text,
    )


def _read(app, name: str, source: list[str]) -> None:
    source[0] = in_two_colours(source[0])
    if name == "methods" and any(HERE.glob("methods/*.md")):
        source[0] += METHODS


def _copy_pictures(app, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        shutil.copytree(HERE / "images", Path(app.outdir) / "images", dirs_exist_ok=True)


def setup(app) -> None:
    app.connect("source-read", _read)
    app.connect("build-finished", _copy_pictures)
