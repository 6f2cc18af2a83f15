# tests/test_serve_page.py - the page of godwit serve in a headless Chromium: by keyboard, on a phone, for
# a screen reader; what it keeps, and that nothing a model writes is read as HTML.
import json
import re

import pytest

from browser import CHROMIUM, Browser
from program import EMULATOR, ROOT, SANITIZED
from seeing import PICTURES, seeing_model
from serving import serving

pytestmark = [pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="the server of the release build"),
              pytest.mark.skipif(CHROMIUM is None, reason="SKIP: no chromium")]
TEXT = """# Title

Some *soft* and **strong** `code` and ~~gone~~ and [a link](https://example.org/a_b) and [none](javascript:alert(1)).

| left | right |
|:-----|------:|
| a \\| b | **1** |

1. one
   - deep
   - [x] done
2. two

> quoted <img src=x onerror="window.hacked = 1">

```python
def f(x):  # a comment
    return "text"
```
<script>window.hacked = 2</script>
"""


@pytest.fixture(scope="module")
def server():
    with serving("-c", 512) as s:
        yield s


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    b = Browser(tmp_path_factory.mktemp("profile"))
    yield b
    b.close()


@pytest.fixture
def page(browser, server):
    browser.problems.clear()
    p = browser.page()
    p.open(f"http://127.0.0.1:{server.port}/")
    p.wait("document.getElementById('server-about').textContent")
    yield p
    assert browser.problems == []
    p.send("Page.close")


def settings(page, **values):
    page.press("Settings")
    for name, value in values.items():
        page.run(f"document.getElementById('field-{name}').focus()")
        page.type(str(value))
    page.press("Done", "document.getElementById('settings')")


def ask(page, text, **values):
    page.press("New conversation")
    settings(page, **{"max_tokens": 8, "temperature": 0.5, "seed": 5, **values})
    page.run("document.getElementById('input').focus()")
    page.type(text)
    page.key("Enter")


ANSWERS = "[...document.querySelectorAll('.message.assistant')].map(e => e.querySelector('.text').textContent)"
IDLE = "document.getElementById('stop').hidden && document.querySelectorAll('.message .acts').length > 0"


def test_what_is_sent(server):
    status, headers, text = server.ask("GET", "/")
    assert status == 200 and len(text.encode()) < 100000 and "@SCRIPT@" not in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "sha256-" in policy and "unsafe" not in policy
    assert not re.search(r'\bon\w+="|style="|https?://(?!www\.w3\.org)', text.split("<script>")[0])
    status, packed, _ = server.ask("HEAD", "/", headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip" and int(packed["Content-Length"]) < 30000
    assert server.ask("GET", "/", headers={"If-None-Match": headers["ETag"]})[0] == 304


def test_colours_can_be_told_apart():
    css = (ROOT / "apps/serve/page.css").read_text()

    def light(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r"\{([^{}]*--back: [^{}]*)\}", css)]
    assert len(schemes) == 3
    for s in schemes:
        for front, back in [("front", "back"), ("front", "box"), ("front", "mine"), ("soft", "back"), ("soft", "box"), ("soft", "code"),
                            ("accent", "back"), ("accent-front", "accent"), ("danger", "back"), ("danger", "box"),
                            *[(k, "code") for k in ("keyword", "string", "comment", "number", "front")]]:
            a, b = sorted([light(s[front]), light(s[back])])
            assert (b + 0.05) / (a + 0.05) >= 4.5, (front, back)


def test_answer_and_same_again(page, server):
    ask(page, "Tell me of the sea.")
    page.wait(IDLE)
    expected = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me of the sea."}],
                                                    "max_tokens": 8, "temperature": 0.5, "seed": 5})
    said = expected["choices"][0]["message"]["content"]
    assert page.run(ANSWERS)[0].split() == said.split()
    stats = page.run("document.querySelector('.stats').textContent")
    assert "seed 5" in stats and "8 written" in stats and "tokens/s" in stats
    assert "of 512 tokens" in page.run("document.getElementById('gauge-text').textContent")
    page.press("Same again")
    page.wait("document.querySelector('.stats') && document.querySelector('.stats').textContent.includes('the same text again')")
    assert "2/2" in page.run("document.querySelector('.message.assistant .acts').textContent")
    page.press("The version before")
    page.wait("document.querySelector('.message.assistant .acts').textContent.includes('1/2')")
    # Whole sentences for those who listen, and nothing twice.
    heard = page.run("document.getElementById('live').textContent")
    assert heard and "".join(heard.split()) in "".join(said.split())
    # It is there after a reload.
    before = page.run(ANSWERS)
    page.send("Page.reload")
    page.wait("document.querySelectorAll('.message').length === 2")
    assert page.run(ANSWERS) == before


def test_edit_continue_and_delete(page):
    ask(page, "Tell me of the sea.", max_tokens=4)
    page.wait(IDLE)
    first = page.run(ANSWERS)[0]
    page.press("Continue")
    page.wait(f"{IDLE} && {ANSWERS}[0].length > {len(first)}")
    assert page.run(ANSWERS)[0].startswith(first.rstrip())
    page.run("document.getElementById('input').focus()")
    page.key("ArrowUp")
    assert page.run("document.getElementById('input').value") == "Tell me of the sea."
    page.run("document.getElementById('input').value = ''")
    page.type("Tell me of a ship.")
    page.key("Enter")
    page.wait(f"{IDLE} && document.querySelector('.message.user').textContent.includes('ship')")
    assert "2/2" in page.run("document.querySelector('.message.user .acts').textContent")
    page.run("window.confirm = () => true")
    page.press("Delete", "document.querySelector('.message.user')")
    page.wait("document.querySelector('.message.user').textContent.includes('the sea')")


def test_escape_stops(page, server):
    ask(page, "Tell me everything.", max_tokens=450, temperature=1)
    page.wait("document.querySelector('.message.assistant .text').textContent.length > 5")
    page.key("Escape")
    page.wait(IDLE)
    server.wait_for("running", 0)
    assert page.run("document.activeElement.id") == "input"


def test_nothing_is_read_as_html(page, tmp_path):
    nodes = {"u": {"id": "u", "role": "user", "parent": None, "text": "<b>not bold</b>", "time": 1},
             "a": {"id": "a", "role": "assistant", "parent": "u", "text": TEXT, "time": 2, "reasoning": "<i>thought</i>"}}
    saved = {"godwit": 1, "conversations": [{"title": "shown", "nodes": nodes, "leaf": "a", "system": "s", "settings": {}}]}
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    page.choose_file("#import-file", tmp_path / "saved.json")
    page.wait("!!document.querySelector('.text table')")
    shape = page.run("""(() => { const t = document.querySelector('.text'), q = s => t.querySelectorAll(s).length; return {
        head: q('h3'), em: q('em'), strong: q('strong'), code: q('p code'), del: q('del'), links: [...t.querySelectorAll('a')].map(a => a.href),
        cells: [...t.querySelectorAll('td')].map(c => c.textContent), right: q('td.right'), items: q('ol > li'), deep: q('ol ul > li'),
        tasks: q('input[type=checkbox]:checked'), quote: q('blockquote'), image: q('img'), script: q('script'), block: q('.block pre code'),
        comment: q('.block .c'), bold: document.querySelectorAll('.said b').length, thought: document.querySelector('.thought').textContent,
        folded: !document.querySelector('.message.assistant details').open, hacked: window.hacked === undefined}; })()""")
    assert shape == {"head": 1, "em": 1, "strong": 2, "code": 1, "del": 1, "links": ["https://example.org/a_b"],
                     "cells": ["a | b", "1"], "right": 1, "items": 2, "deep": 2, "tasks": 1, "quote": 1, "image": 0, "script": 0,
                     "block": 1, "comment": 1, "bold": 0, "thought": "<i>thought</i>", "folded": True, "hacked": True}
    # Another page's export, and files that are none.
    other = {"conv": {"id": "c", "name": "from elsewhere", "lastModified": 3, "currNode": 3},
             "messages": [{"id": 1, "convId": "c", "type": "root", "timestamp": 1, "role": "system", "content": "", "parent": -1, "children": [2]},
                          {"id": 2, "convId": "c", "type": "text", "timestamp": 2, "role": "user", "content": "Hello?", "parent": 1, "children": [3]},
                          {"id": 3, "convId": "c", "type": "text", "timestamp": 3, "role": "assistant", "content": "Yes.", "parent": 2, "children": []}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    page.choose_file("#import-file", tmp_path / "other.json")
    page.wait("document.getElementById('title').textContent === 'from elsewhere'")
    assert page.run(ANSWERS) == ["Yes."]
    (tmp_path / "bad.json").write_text('{"nodes": 3}')
    page.choose_file("#import-file", tmp_path / "bad.json")
    page.wait("document.getElementById('notice').textContent.includes('bad.json cannot be imported')")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\xff")
    page.choose_file("#attach-file", tmp_path / "picture.png")
    page.wait("document.getElementById('notice').textContent.includes('takes no pictures')")
    (tmp_path / "other.bin").write_bytes(b"\0\xff")
    page.choose_file("#attach-file", tmp_path / "other.bin")
    page.wait("document.getElementById('notice').textContent.includes('is no text')")
    # The list is searched by what was said.
    page.key("k", 75, modifiers=2)
    page.wait("document.activeElement.id === 'search'")
    page.type("quoted")
    page.wait("[...document.querySelectorAll('#list button')].map(b => b.textContent).join() === 'shown'")


def test_phone_and_screen_reader(page):
    page.send("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=2, mobile=True)
    page.wait("innerWidth === 360")
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.run("getComputedStyle(document.getElementById('side')).visibility") == "hidden"
    page.press("Conversations")
    page.wait("getComputedStyle(document.getElementById('side')).visibility === 'visible'")
    page.key("Escape")
    page.wait("getComputedStyle(document.getElementById('side')).visibility === 'hidden'")
    assert page.run("[...document.querySelectorAll('input:not([type=file]), textarea, select')].every("
                    "e => parseFloat(getComputedStyle(e).fontSize) >= 16 || e.classList.contains('code'))")
    page.send("Emulation.clearDeviceMetricsOverride")
    page.wait("innerWidth > 360 && getComputedStyle(document.getElementById('side')).visibility === 'visible'")
    page.send("Accessibility.enable")
    tree = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {}
    for node in tree:
        if not node.get("ignored"):
            role, name = node["role"]["value"], node.get("name", {}).get("value", "")
            roles.setdefault(role, []).append(name)
    for role in ("button", "textbox", "searchbox", "combobox", "link", "navigation"):
        assert all(roles.get(role, [""])) or role == "combobox", (role, roles.get(role))
    assert {"main", "complementary", "navigation", "heading"} <= set(roles)
    # Every control is reached by Tab.
    page.run("document.activeElement.blur()")
    reached = set()
    for _ in range(40):
        page.key("Tab")
        reached.add(page.run("document.activeElement.id"))
    assert {"new", "search", "settings-open", "input", "send", "attach"} <= reached


def test_key(browser, tmp_path):
    with serving("-c", 128, "--api-key", "secret") as s:
        p = browser.page()
        p.open(f"http://127.0.0.1:{s.port}/")
        p.wait("document.getElementById('notice').textContent.includes('key')")
        p.press("Server")
        p.run("document.getElementById('key').focus()")
        p.type("secret")
        p.press("Done", "document.getElementById('server')")
        p.wait("document.getElementById('server-about').textContent.includes('128 tokens')")
        p.send("Page.close")
    browser.problems.clear()


def test_pictures(browser, tmp_path):
    """Chosen, pasted and dropped; shown small, sent in their order, and there again after a reload."""
    with serving("-c", 512, "--ignore-eos", model=seeing_model(tmp_path / "model")) as s:
        browser.problems.clear()
        page = browser.page()
        page.open(f"http://127.0.0.1:{s.port}/")
        page.wait("document.getElementById('server-about').textContent")
        settings(page, max_tokens=8, temperature=0, seed=5)
        page.choose_file("#attach-file", PICTURES / "rgb.png")
        page.wait("document.querySelectorAll('#files img').length === 1")
        given = ("(async () => { const c = document.createElement('canvas'); c.width = c.height = 40;"
                 "const b = await new Promise(done => c.toBlob(done, 'image/png')), d = new DataTransfer();"
                 "d.items.add(new File([b], 'NAME', {type: 'image/png'})); TO })(); 1")
        page.run(given.replace("NAME", "pasted.png").replace("TO", "document.getElementById('input').dispatchEvent("
                               "new ClipboardEvent('paste', {clipboardData: d, cancelable: true}))"))
        page.wait("document.querySelectorAll('#files img').length === 2")
        page.run(given.replace("NAME", "dropped.png").replace("TO", "document.querySelector('main').dispatchEvent("
                               "new DragEvent('drop', {dataTransfer: d, cancelable: true, bubbles: true}))"))
        page.wait("document.querySelectorAll('#files img').length === 3")
        page.run("document.querySelector('#files li:nth-child(2) button').click(); 1")
        page.wait("document.querySelectorAll('#files img').length === 2")
        page.run("document.getElementById('input').focus()")
        page.type("w5 w6 w7")
        page.key("Enter")
        page.wait(IDLE)
        shown = "[...document.querySelectorAll('.message.user img')].map(e => e.alt + (e.naturalWidth > 0)).join()"
        page.wait(f"{shown} === 'rgb.pngtrue,dropped.pngtrue'")
        sent = page.run("[...document.querySelectorAll('.message.user img')].map(e => e.src)")
        content = [*[{"type": "image_url", "image_url": {"url": url}} for url in sent], {"type": "text", "text": "w5 w6 w7"}]
        answer = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 8,
                                                 "temperature": 0})
        assert page.run(ANSWERS) == [answer["choices"][0]["message"]["content"]]
        page.open(f"http://127.0.0.1:{s.port}/")
        page.wait(f"{shown} === 'rgb.pngtrue,dropped.pngtrue'")
        assert browser.problems == []
        page.send("Page.close")
