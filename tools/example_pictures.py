"""Take the pictures of the examples again: `python tools/example_pictures.py [NAME]…`

Runs each example live, as its README says, and takes a picture of a view in the console. Needs Java, playwright, Pillow
and Chromium, as tools/screenshots.py does.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser
from screenshots import ROOT, slim

from tests import chromium
from tests.live.service import free_port, wait_for
from vernier.service.client.client import connect

EXAMPLES = ROOT / "examples"
VERNIER = [sys.executable, "-m", "vernier"]


def live(name: str, browser: Browser) -> None:
    """One example, from its start as a service to its picture."""
    folder = EXAMPLES / name
    page = (folder / "README.md").read_text(encoding="utf-8")
    view = re.findall(r"vernier query (\w+)", page)[0]
    last = int(re.findall(r"\d{19}", (folder / "last.json").read_text(encoding="utf-8"))[0])
    kafka, http = f"127.0.0.1:{free_port()}", free_port()
    url = f"http://127.0.0.1:{http}"
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"kafka.bootstrap": kafka, "kafka.data": f"{scratch}/kafka", "http.port": http}
        settings |= {"state.path": f"{scratch}/state", "log.directory": f"{scratch}/logs"}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        up = [*VERNIER, "up", str(folder / "program.py"), "--config", str(folder / "settings.yaml"), *words]
        with open(Path(scratch, "up.log"), "wb") as log:
            service = subprocess.Popen(up, cwd=ROOT, stdout=log, stderr=log, env=dict(os.environ))
        try:
            client = connect(url)
            wait_for("the service", lambda: b"ready: " in Path(scratch, "up.log").read_bytes(), 400)
            lines = b"".join(file.read_bytes() for file in [*sorted(folder.glob("*.jsonl")), folder / "last.json"])
            send = [*VERNIER, "send", "-", "--topic", name, "--promise", "--bootstrap", kafka]
            subprocess.run(send, cwd=ROOT, input=lines, check=True)
            wait_for("the last update", lambda: client.rows(view).frontier >= last, 200)
            rows = len(client.rows(view))
            seen = browser.new_page(viewport={"width": 1280, "height": 1100})
            seen.set_default_timeout(60_000)
            seen.goto(f"{url}/#view={view}")
            seen.locator("#count", has_text=re.compile(rf"^{rows}$")).wait_for()
            seen.locator("#views").screenshot(path=folder / "console.png")
            seen.close()
        finally:
            service.send_signal(signal.SIGINT)
            service.wait(120)
    slim(folder / "console.png")
    print(f"{name}: {rows} rows, {(folder / 'console.png').stat().st_size // 1024} KiB")


if __name__ == "__main__":
    with chromium.browser() as one:
        for asked in sys.argv[1:] or sorted(path.parent.name for path in EXAMPLES.glob("*/last.json")):
            live(asked, one)
