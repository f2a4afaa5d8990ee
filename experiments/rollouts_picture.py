"""The picture of docs/agents.md: the rollouts of a report, in light and dark.

    python experiments/rollouts_picture.py

Trains a short run in a house (seed 0, 12k environment steps, one to two minutes), writes its report, opens it in
Chromium, opens one rollout that has a fault, and writes docs/images/rollouts-light.png and -dark.png. Rollouts follow
from the seed; fonts are those of the machine.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path

from isocost.envs.adapters.browser import Browser
from isocost.report import write
from isocost.steps.settings import setting_with
from isocost.steps.training.single import train_one

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, HEIGHT = 900, 860
READY = "!!(document.documentElement && document.documentElement.dataset.drawn)"
OPEN = """(() => {
  const limit = document.querySelector('.chip input[value=limit]'); limit.click();
  const all = [...document.querySelectorAll('details.rollout')].filter((r) => r.offsetParent);
  const one = all.find((r) => r.dataset.faults !== 'none') || all[0]; one.open = true;
  return document.querySelector('.viewer').getBoundingClientRect().top + scrollY;
})()"""


async def pictures(page: Path) -> None:
    """Write the picture of a report in both colour schemes."""
    browser = Browser()
    try:
        for scheme in ("light", "dark"):
            tab = await browser.open_page("about:blank")
            await browser.call("Emulation.setDeviceMetricsOverride", tab.session, width=WIDTH, height=HEIGHT,
                               deviceScaleFactor=1.5, mobile=False)
            await browser.call("Emulation.setEmulatedMedia", tab.session,
                               features=[{"name": "prefers-color-scheme", "value": scheme}])
            await browser.call("Page.navigate", tab.session, url=page.as_uri())
            while not await tab.run(READY):
                await asyncio.sleep(0.1)
            top = await tab.run(OPEN)
            clip = {"x": 0, "y": top - 24, "width": WIDTH, "height": HEIGHT, "scale": 1}
            shot = await browser.call("Page.captureScreenshot", tab.session, captureBeyondViewport=True, clip=clip)
            (IMAGES / f"rollouts-{scheme}.png").write_bytes(base64.b64decode(shot["data"]))
            await tab.close()
    finally:
        browser.close()


def main() -> None:
    """Train, report, and take the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "rooms"
        train_one("grpo", setting_with(env="rooms:slip=0.1", samples=2), budget="12k-env-steps", evaluations=4, out=run)
        asyncio.run(pictures(write(run)))


if __name__ == "__main__":
    main()
