"""A real browser without a screen, driven over Chrome's DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from asyncio.subprocess import DEVNULL
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
START_S = 30.0


class Page:
    """One open page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        """What went wrong in its scripts."""

    async def command(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            answer = await self._socket.receive_json()
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(str(answer["params"]))
            if answer.get("id") == number:
                return dict(answer["result"])

    async def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        found = await self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    async def until(self, expression: str, *, seconds: float = 10.0) -> Any:
        """Return an expression's value once it is true."""
        async with asyncio.timeout(seconds):
            while not (value := await self.value(expression)):  # noqa: ASYNC110 - the page is another process
                await asyncio.sleep(0.05)
        return value

    async def screenshot(self, file: Path, *, width: int, height: int) -> None:
        """Write how the page looks in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.command("Emulation.setDeviceMetricsOverride", **size)
        await asyncio.sleep(0.3)
        shot = await self.command("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Page]:
    """Open a page in a new browser, whose files are in `folder`."""
    command = [
        str(CHROMIUM),
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"),
    ]
    browser = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL)
    try:
        port = folder / "DevToolsActivePort"
        async with asyncio.timeout(START_S) as limit, aiohttp.ClientSession() as http:
            while not (port.exists() and port.read_text().count("\n")):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
            base = f"http://127.0.0.1:{port.read_text().split()[0]}"
            async with http.get(f"{base}/json/list") as answer:
                (target,) = [each for each in await answer.json(content_type=None) if each["type"] == "page"]
            async with http.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Runtime", "Log", "Page"):
                    await page.command(f"{domain}.enable")
                await page.command("Page.navigate", url=url)
                limit.reschedule(None)
                yield page
    finally:
        browser.kill()
        await browser.wait()
