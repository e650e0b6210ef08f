"""A headless Chromium, as somebody at a desk or with a phone in the hand has it."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@contextmanager
def browser(size: str, *, is_dark: bool = False) -> Iterator[Chrome]:
    """Open a browser; skip the test where there is none."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium and its driver (Debian packages chromium, chromium-driver)")
    options = ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = Chrome(options=options, service=Service(driver))
    try:
        width, height = SIZES[size]
        opened.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": width,
                "height": height,
                "deviceScaleFactor": 1,
                "mobile": size == "phone",
            },
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        yield opened
    finally:
        opened.quit()


def until(is_so: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true, and return it."""
    began = monotonic()
    while True:
        found = is_so()
        if found:
            return found
        assert monotonic() - began < seconds, "it did not come to be"
        sleep(0.05)


def text(page: Chrome, element_id: str) -> str:
    """Return what stands in an element."""
    return str(page.find_element("id", element_id).text)


def press(page: Chrome, *keys: str) -> None:
    """Type into whatever has the focus."""
    page.switch_to.active_element.send_keys(*keys)


def focus_order(page: Chrome, most: int = 40) -> list[str]:
    """Press Tab from the top of the page; return what gets the focus, by id or text."""
    page.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    page.find_element("tag name", "body").send_keys(Keys.TAB)
    order: list[str] = []
    for _ in range(most):
        at = page.switch_to.active_element
        name = at.get_attribute("id") or at.text or at.tag_name
        if at.tag_name == "body" or name in order:
            break
        order.append(name)
        at.send_keys(Keys.TAB)
    return order


def accessible(page: Chrome) -> list[dict[str, str]]:
    """Return what a screen reader is told of: role, name and value of each thing."""
    page.execute_cdp_cmd("Accessibility.enable", {})
    nodes = page.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    return [
        {
            "role": node.get("role", {}).get("value", ""),
            "name": node.get("name", {}).get("value", ""),
            "value": str(node.get("value", {}).get("value", "")),
        }
        for node in nodes
        if not node.get("ignored")
    ]


def picture(page: Chrome, file: Path) -> None:
    """Write the whole page as a PNG."""
    width, height = page.execute_script(
        "const d = document.documentElement; return [d.clientWidth, d.scrollHeight]"
    )
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    taken = page.execute_cdp_cmd(
        "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
    )
    file.write_bytes(base64.b64decode(taken["data"]))
