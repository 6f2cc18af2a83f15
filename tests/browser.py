# tests/browser.py - a headless Chromium for pytest files, driven over the pipes of its DevTools
# protocol (--remote-debugging-pipe: JSON texts that end with NUL on descriptors 3 and 4).
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.send(domain + ".enable")

    def send(self, method, **parameters):
        return self.browser.send(method, parameters, self.session)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression, awaited."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, condition, seconds=30):
        limit = time.monotonic() + seconds
        while True:
            with contextlib.suppress(AssertionError):
                value = self.run(condition)
                if value:
                    return value
            assert time.monotonic() < limit, (condition, self.run("document.body.innerText")[-1500:])
            time.sleep(0.03)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def key(self, name, code=0, modifiers=0, text=None):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowUp": 38}
        more = {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, modifiers=modifiers,
                      windowsVirtualKeyCode=codes.get(name, code), **(more if kind == "keyDown" else {}))

    def press(self, name, within="document"):
        """Click the button with this text or label."""
        self.wait(f"""(() => {{ const b = [...{within}.querySelectorAll('button')].reverse().find(
            b => (b.textContent.trim() === {json.dumps(name)} || b.getAttribute('aria-label') === {json.dumps(name)})
            && b.offsetParent !== null); if (b) b.click(); return !!b; }})()""")

    def choose_file(self, selector, path):
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", files=[str(path)], nodeId=node)

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


class Browser:
    def __init__(self, profile):
        to_it, self.to = os.pipe()
        self.at, from_it = os.pipe()
        self.count, self.rest, self.problems = 0, b"", []

        def descriptors():
            os.dup2(to_it, 20), os.dup2(from_it, 21)
            os.dup2(20, 3), os.dup2(21, 4)
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--mute-audio",
             "--disable-dev-shm-usage", "--window-size=1100,800", f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL)
        os.close(to_it), os.close(from_it)

    def read(self, limit):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.at], [], [], max(0, limit - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.at, 1 << 20)
            assert more, "the browser has gone"
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def send(self, method, parameters=None, session=None):
        self.count += 1
        number = self.count
        asked = {"id": number, "method": method, "params": parameters or {}}
        if session:
            asked["sessionId"] = session
        os.write(self.to, json.dumps(asked).encode() + b"\0")
        limit = time.monotonic() + 60
        while True:
            got = self.read(limit)
            if got.get("id") == number:
                assert "error" not in got, (method, got["error"])
                return got["result"]
            if got.get("method") == "Runtime.exceptionThrown":
                self.problems.append(got["params"]["exceptionDetails"])
            elif got.get("method") == "Log.entryAdded" and got["params"]["entry"]["level"] == "error":
                self.problems.append(got["params"]["entry"])

    def page(self):
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        return Page(self, self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"])

    def close(self):
        with contextlib.suppress(AssertionError, OSError):
            self.send("Browser.close")
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.to), os.close(self.at)
