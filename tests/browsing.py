"""Reports in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from isocost.envs.adapters.browser import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")


async def opened(browser: Browser, page: Path, width: int = 1100, dark: bool = False) -> Page:
    """A page in a window of this width, once its plots are drawn."""
    tab = await browser.open_page("about:blank")
    await browser.call("Emulation.setDeviceMetricsOverride", tab.session, width=width, height=900, deviceScaleFactor=1,
                       mobile=False)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    await browser.call("Emulation.setEmulatedMedia", tab.session, features=scheme)
    await browser.call("Page.navigate", tab.session, url=page.as_uri())
    await tab.run("new Promise((done) => { const look = () => document.documentElement?.dataset.drawn ? done(1) :"
                  " setTimeout(look, 20); look(); })")
    return tab
