"""A page in Chromium, driven by Selenium."""

import contextlib
import json
import shutil
import time
import urllib.request
from urllib.parse import urlsplit

import pytest


@contextlib.contextmanager
def chromium():
    """Chromium without a window, or a test that is skipped."""
    reason = "needs Selenium, and Debian's chromium and chromium-driver: .ci/run installs them"
    webdriver = pytest.importorskip("selenium.webdriver", reason=reason)
    from selenium.webdriver.chrome.service import Service

    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    arguments = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage")
    for argument in (*arguments, "--enable-unsafe-swiftshader", "--force-prefers-reduced-motion"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


class Page:
    """A page with the size and the colors of a screen."""

    def __init__(self, driver, width, height, dark):
        self._driver = driver
        self._driver.get("about:blank")
        self._driver.get_log("browser")
        self._driver.get_log("performance")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._urls: list[str] = []

    def open(self, address):
        self._driver.get("about:blank")
        self._driver.get(address)

    def open_run(self, address, name):
        with urllib.request.urlopen(f"{address}api/folder") as found:
            runs = json.load(found)["runs"]
        (run,) = [run for run in runs if run["name"] == name]
        self.open(f"{address}#/run/{run['id']}")

    def run(self, script):
        shorthand = (
            "const rows = () => [...document.querySelectorAll('tr[data-id]')];"
            "const heads = () => [...document.querySelectorAll('thead th')];"
        )
        return self._driver.execute_script(shorthand + script)

    def run_async(self, script):
        """Run a script that passes its result to ``done``."""
        return self._driver.execute_async_script(f"(async (done) => {{ {script} }})(arguments[0])")

    def wait(self, condition, seconds=60.0):
        """Wait until an expression is true; what it asks for may not be there yet."""
        end = time.monotonic() + seconds
        script = f"try {{ return Boolean({condition}) }} catch {{ return false }}"
        while not self.run(script):
            assert time.monotonic() < end, (condition, self.run("return document.body.innerText"))
            time.sleep(0.03)

    def text(self, selector):
        return self.run(f"return document.querySelector({json.dumps(selector)}).textContent")

    def row(self, name, part="a"):
        """Click a part of the row of a run."""
        found = f"rows().find((row) => row.textContent.includes({json.dumps(name)}))"
        self.run(f"{found}.querySelector('{part}').click()")

    def texts(self, selector):
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return self.run(f"return {found}.map((one) => one.textContent)")

    def column(self, number):
        return self.run(f"return rows().map((row) => row.children[{number}].textContent)")

    def type(self, selector, text):
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.focus(); {place}.value = {json.dumps(text)};")
        self.run(f"{place}.dispatchEvent(new Event('input'))")

    def select(self, selector, value, number=0):
        place = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        self.run(f"{place}.value = {json.dumps(value)}")
        self.run(f"{place}.dispatchEvent(new Event('change'))")

    def keys(self, text):
        """Type on the keyboard, wherever the focus is."""
        for character in text:
            self.press(character)

    def press(self, key):
        """Press a key, wherever the focus is."""
        event = {"key": key, "text": key} if len(key) == 1 else {"key": key}
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38}
        codes |= {"ArrowRight": 39, "ArrowDown": 40, " ": 32}
        if key in codes:
            event |= {"windowsVirtualKeyCode": codes[key], "code": "Space" if key == " " else key}
        if key == "Enter":
            event["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self._driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind} | event)

    def click_cell(self, column, row, columns, rows):
        """Click in the middle of a cell of the heatmap."""
        self.run("document.querySelector('.plane').scrollIntoView({ block: 'center' })")
        box = self.run("return document.querySelector('.plane .layer').getBoundingClientRect()")
        x = box["left"] + (column + 0.5) * box["width"] / columns
        y = box["top"] + (rows - row - 0.5) * box["height"] / rows
        event = {"x": x, "y": y, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind} | event)

    def layout_shift(self):
        """How much the page moved while data came in (cumulative layout shift)."""
        script = """
        const done = arguments[0];
        new PerformanceObserver((list) => {
          const moved = list.getEntries().filter((one) => !one.hadRecentInput);
          done(moved.reduce((sum, one) => sum + one.value, 0));
        }).observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done(0), 300);
        """
        return self._driver.execute_async_script(script)

    def errors(self):
        """What the console says that is an error."""
        entries = self._driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def requests(self):
        """Addresses that were asked for."""
        for entry in self._driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._urls.append(message["params"]["request"]["url"])
        return self._urls

    def foreign_requests(self):
        """Addresses of other machines that were asked for."""
        local = {"data", "blob", "file", "about", "chrome"}
        parts = [urlsplit(one) for one in self.requests()]
        return [p.geturl() for p in parts if p.scheme not in local and p.hostname != "localhost"]
