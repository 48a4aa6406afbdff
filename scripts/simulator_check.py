#!/usr/bin/env python3
"""Checks the simulator in a folder, in a headless Chromium: `simulator_check.py FOLDER [PICTURES]`.

The page is at most 2 MB with all of its files. The engine in the page prints what each rule script says, line for line. A person can reorder,
change, add and remove steps with the keyboard and by dragging, sees mistakes with their lines, and needs no server. With PICTURES, pictures of the
page go to this folder.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

from browser import Browser

ROOT = Path(__file__).resolve().parents[1]
BYTES_MAX = 2_000_000
# The scenario of most checks, and its commands.
RULE = "an-older-lease-is-stale"
KEYS = {"up": "\ue013", "down": "\ue015", "delete": "\ue017", "enter": "\ue007", "escape": "\ue00c", "alt": "\ue00a", "tab": "\ue004"}


def blocks(source: str) -> list[tuple[list[str], list[str]]]:
    """The commands of a rule script, each with what it prints. This reads the files without the code of the simulator."""
    found: list[tuple[list[str], list[str]]] = []
    lines = iter(source.splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            continue
        command, printed = [line], []
        for line in lines:
            if line == "----":
                break
            command.append(line)
        for line in lines:
            if not line:
                break
            printed.append(line)
        found.append((command, printed))
    return found


class Page:
    def __init__(self, folder: Path) -> None:
        self.browser = Browser()
        self.address = (folder / "index.html").resolve().as_uri()

    def open(self) -> None:
        self.browser.visit(self.address)
        self.browser.until("document.body.dataset.ran > 0")

    def js(self, script: str, *arguments: object) -> object:
        return self.browser.post("execute/sync", {"script": script, "args": list(arguments)})

    def run(self, source: str) -> dict:
        script = "const [source, done] = arguments; simulator.run(source).then(done, (error) => done({ steps: [], error: String(error) }))"
        return self.browser.post("execute/async", {"script": script, "args": [source]})

    def press(self, *keys: str) -> None:
        """Presses keys together, and waits until the engine has run."""
        down = [{"type": "keyDown", "value": KEYS.get(key, key)} for key in keys]
        up = [{"type": "keyUp", "value": KEYS.get(key, key)} for key in reversed(keys)]
        self.browser.post("actions", {"actions": [{"type": "key", "id": "keyboard", "actions": down + up}]})
        time.sleep(0.05)

    def write(self, text: str) -> None:
        for letter in text:
            self.press(letter)

    def click(self, selector: str) -> None:
        self.js("document.querySelector(arguments[0]).click()", selector)
        time.sleep(0.05)

    def commands(self) -> list[str]:
        return self.js("return [...document.querySelectorAll('.card')].map((card) => card.querySelector('textarea')?.value ?? card.querySelector('code').textContent)")

    def text(self, selector: str) -> str:
        return self.js("return document.querySelector(arguments[0]).textContent", selector)

    def load(self, rule: str) -> None:
        self.click(f"#chosen [data-name={rule}]")

    def focus(self, index: int) -> None:
        """Selects a step, and gives it the focus."""
        self.js("const card = document.querySelector(`.card:nth-child(${arguments[0]})`); const step = card.querySelector('.step'); card.matches('.selected') ? step.focus() : step.click()", index + 1)
        time.sleep(0.05)


def expect(name: str, found: object, wanted: object) -> None:
    if found != wanted:
        sys.exit(f"simulator: {name}\n  found:  {json.dumps(found, ensure_ascii=False)}\n  wanted: {json.dumps(wanted, ensure_ascii=False)}")


def rules(page: Page) -> tuple[int, int]:
    """Each rule script prints in the page what its file says."""
    files = sorted((ROOT / "docs/rules").glob("*.txt"))
    names = page.js("return simulator.scripts.map(({ name }) => name)")
    expect("the scenarios are the rule scripts", names, [path.stem for path in files])
    commands = 0
    for path in files:
        source = path.read_text(encoding="utf-8")
        expect(f"{path.name}: the text in the page", page.js("return simulator.scripts.find(({ name }) => name === arguments[0]).source", path.stem), source)
        result = page.run(source)
        expect(f"{path.name}: the error", result["error"], None)
        wanted = blocks(source)
        expect(f"{path.name}: the commands", [step["command"] for step in result["steps"]], [command for command, _ in wanted])
        for step, (command, printed) in zip(result["steps"], wanted, strict=True):
            expect(f"{path.name}:{step['line']}: {command[0]}", step["printed"], printed)
            expect(f"{path.name}:{step['line']}: {command[0]}: the invariants", step["defect"], None)
        # The page writes the commands anew for the engine, without the comments.
        again = page.run(page.js("return simulator.script(simulator.read(arguments[0]).cards).source", source))
        expect(f"{path.name}: as cards", [step["printed"] for step in again["steps"]], [printed for _, printed in wanted])
        commands += len(wanted)
    return len(files), commands


def keyboard(page: Page) -> None:
    """Steps are moved, changed and removed with keys alone, and each change runs in the engine."""
    page.load(RULE)
    first = page.commands()
    expect("the first delivery is shown", page.text("#printed").splitlines()[0], 'lease 1: a [Added {"v":1}]')
    page.focus(2)
    page.press("alt", "up")
    expect("moved up", page.commands(), [first[0], first[2], first[1], *first[3:]])
    expect("a pop before the add", page.text("#printed"), "no key")
    expect("the moved step has the focus", page.js("return document.activeElement.closest('.card').id === document.querySelector('.card.selected').id"), True)
    page.press("alt", "down")
    expect("moved down", page.commands(), first)
    expect("a pop after the add", page.text("#printed").splitlines()[0], 'lease 1: a [Added {"v":1}]')
    page.press("down")
    expect("the next step", page.text("#command"), first[3])
    page.press("delete")
    expect("removed", page.commands(), [*first[:3], *first[4:]])
    expect("the rule is changed", page.text("#state"), "Changed by you.")
    page.click("#reset")
    expect("undone", page.commands(), first)
    page.focus(5)
    page.press("enter")
    page.write(" max=2")
    page.press("enter")
    expect("changed", page.commands()[5], f"{first[5]} max=2")
    page.click("#reset")


def player(page: Page) -> None:
    """The slider and the buttons go through the steps."""
    page.load(RULE)
    page.js("const position = document.querySelector('#position'); position.value = '0'; position.dispatchEvent(new Event('input'))")
    expect("before the first step", page.text("#printed"), "The queue is empty.")
    page.click("#next")
    page.click("#next")
    expect("two steps on", [page.text("#where"), page.text("#command")], ["2 of 9", 'add a {"v":1}'])
    page.click("#previous")
    expect("a step back", page.text("#where"), "1 of 9")
    page.click("#play")
    page.browser.until("document.querySelector('#where').textContent === '3 of 9'")
    page.click("#play")
    expect("the keys of a worker", page.text(".lane.leased .key .note"), "slow, lease 1")


def palette(page: Page) -> None:
    """A crash and an arrival are added after the selected step."""
    page.load("changes-behind-a-lease-wait")
    before = page.commands()
    page.focus(1)
    page.click("#palette button[aria-label='Add step: worker crashes']")
    expect("the lease of a crashed worker runs out", page.commands(), [*before[:2], "tick 30s", *before[2:]])
    expect("the crash is a failure", page.text("#printed").splitlines(), ["delayed: a 5ms", "leased: none"])
    expect("the board shows where the key was", page.text(".lane.delayed .key .mark"), "was leased")


def dragging(page: Page) -> None:
    """The mouse moves a step, and brings a new one from the palette."""
    # The palette and the list are both in the window.
    page.browser.devtools("Emulation.setDeviceMetricsOverride", width=1280, height=1600, deviceScaleFactor=1, mobile=False)
    page.load("an-expired-lease-is-a-failure")
    first = page.commands()

    def drag(source: str, target: str) -> None:
        place = "const box = document.querySelector(arguments[0]).getBoundingClientRect(); return [box.x + box.width / 2, box.y + 4].map(Math.round)"
        (x, y), (to_x, to_y) = page.js(place, source), page.js(place, target)

        def move(x: int, y: int) -> dict:
            return {"type": "pointerMove", "x": x, "y": y, "duration": 100}

        actions = [move(x, y), {"type": "pointerDown", "button": 0}, move(x, y + 8), move(to_x, to_y + 2), move(to_x, to_y), {"type": "pointerUp", "button": 0}]
        page.browser.post("actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": actions}]})
        time.sleep(0.3)

    drag(".card:nth-child(3)", ".card:nth-child(2)")
    expect("dragged up", page.commands()[:3], [first[0], first[2], first[1]])
    page.click("#reset")
    drag("#palette button[aria-label='Add step: tick']", ".card:nth-child(2)")
    expect("dragged from the palette", page.commands()[:3], [first[0], "tick 1s", first[1]])
    page.browser.devtools("Emulation.clearDeviceMetricsOverride")


def errors(page: Page) -> None:
    """Mistakes are shown where they are, and the steps before them stay."""
    result = page.run("add a {}\n----\n\npop max=many\n----\n")
    expect("a mistake of an option", [result["error"]["line"], len(result["steps"])], [4, 1])
    expect("the text of the mistake", result["error"]["error"], "the command can't run: max=many")
    expect("the engine runs after a mistake", page.run("add a {}\n----\n")["steps"][0]["printed"], ["queued 1", "ready: a"])
    page.load(RULE)
    page.click("#as-text")
    page.js("const text = document.querySelector('#text'); text.value = '# Mine\\n\\nadd a {\"v\":1}\\nfly a\\npop\\n'; text.dispatchEvent(new Event('input'))")
    page.browser.until("document.querySelector('#problem').textContent !== ''")
    expect("an unknown command", page.text("#problem"), 'Line 4: no command is called "fly"')
    page.js("const text = document.querySelector('#text'); text.value = '# <b>Mine</b>\\n\\nadd <i>a</i> {}\\n'; text.dispatchEvent(new Event('input'))")
    page.browser.until("document.querySelector('#problem').textContent === ''")
    expect("texts are no markup", page.js("return document.querySelectorAll('main b, main i').length"), 0)
    expect("the title is text", page.text("#title"), "<b>Mine</b>")
    page.click("#as-text")


def search(page: Page) -> None:
    page.js("const field = document.querySelector('#search'); field.value = 'replace deletes source'; field.dispatchEvent(new Event('input'))")
    expect("found rules", page.js("return [...document.querySelectorAll('#rules button')].some((rule) => rule.textContent.startsWith('A Replace deletes the keys of its source'))"), True)
    page.js("document.querySelector('#rules button').click()")
    page.browser.until("document.querySelector('#title').textContent.includes('source')")


def widths(page: Page) -> None:
    """No width scrolls sideways, and each control has a name."""
    for width in (360, 700, 1280):
        page.browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700)
        for rule in page.js("return [...document.querySelectorAll('#chosen button')].map((button) => button.dataset.name)"):
            page.load(rule)
            expect(f"{rule} at {width} pixels", page.js("return document.documentElement.scrollWidth <= innerWidth"), True)
    page.browser.devtools("Emulation.clearDeviceMetricsOverride")
    nodes = page.browser.devtools("Accessibility.getFullAXTree")["nodes"]
    wanted = {"button", "textbox", "searchbox", "slider", "group"}
    nameless = [node["role"]["value"] for node in nodes if not node.get("ignored") and node.get("role", {}).get("value") in wanted - {"group"} and not node.get("name", {}).get("value")]
    expect("controls without a name", nameless, [])


def pictures(page: Page, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in ("light", "dark"):
        page.browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}])
        for width in (1280, 360):
            page.browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700)
            for rule in ("changes-behind-a-lease-wait", "failures-back-off-and-then-park", "groups-take-turns"):
                page.open()
                page.load(rule)
                picture = page.browser.devtools("Page.captureScreenshot", captureBeyondViewport=True)
                (folder / f"{rule}-{scheme}-{width}.png").write_bytes(base64.b64decode(picture["data"]))


def main() -> None:
    folder = Path(sys.argv[1])
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > BYTES_MAX:
        sys.exit(f"simulator: {size:,} bytes, at most {BYTES_MAX:,}")
    page = Page(folder)
    try:
        page.open()
        count, commands = rules(page)
        for check in (keyboard, player, palette, dragging, errors, search, widths):
            check(page)
        if len(sys.argv) > 2:
            pictures(page, Path(sys.argv[2]))
    finally:
        page.browser.close()
    print(f"simulator: {size:,} bytes; {count} rule scripts with {commands} commands print in Chromium what their files say")


main()
