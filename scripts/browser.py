"""A headless Chromium that a script drives over WebDriver, for scripts/console.py and scripts/simulator_check.py."""
import json
import socket
import subprocess
import tempfile
import time
import urllib.request

ARGUMENTS = """--headless=new --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --disable-background-networking
--disable-component-update --disable-sync --window-size=1280,900""".split()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as reply:
        text = reply.read()
    return json.loads(text) if text else None


def until_it_listens(url):
    for _ in range(300):
        try:
            return call("GET", url)
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError):
                return None
            time.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


class Browser:
    def __init__(self):
        port = free_port()
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.base = f"http://127.0.0.1:{port}"
        try:
            until_it_listens(self.base + "/status")
            self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            options = {"args": [*ARGUMENTS, f"--user-data-dir={self.profile.name}"]}
            session = call("POST", self.base + "/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
            self.session = f"{self.base}/session/{session['value']['sessionId']}"
        except BaseException:
            self.driver.terminate()
            raise

    def post(self, path, body):
        return call("POST", f"{self.session}/{path}", body)["value"]

    def visit(self, url):
        self.post("url", {"url": "about:blank"})
        self.post("url", {"url": url})

    def js(self, script):
        return self.post("execute/sync", {"script": script, "args": []})

    def devtools(self, command, **parameters):
        return self.post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def until(self, condition):
        end = time.monotonic() + 60
        while not self.js(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise SystemExit(f"not in a minute: {condition}")
            time.sleep(0.01)

    def close(self):
        try:
            call("DELETE", self.session)
        finally:
            self.driver.terminate()
