#!/usr/bin/env python3
"""The page of `infer serve` in headless Chromium, before a server that says what a test wants.

usage: page.py PAGE [--pictures FOLDER] [--server URL] [--several URL]
PAGE: the folder with index.html, style.css and app.js as they are built (build/made/page). Needs playwright and axe-core-python from
PyPI and a Chromium; scripts/test-page gets them. --server: a last question to a running `infer serve` too; --several: to each
model of one that has several. WRITE_GOLDEN=1 writes ../golden/page_tree.txt anew.
"""
import argparse, base64, difflib, http.server, json, os, re, struct, sys, threading, time, traceback, zlib
from playwright.sync_api import sync_playwright

HEADERS = dict(re.findall(r'\{"([A-Z][A-Za-z-]+)",\s*((?:"[^"]*"\s*)+)\}', open(
    os.path.join(os.path.dirname(__file__), "../../serve/http/page.c")).read()))
HEADERS = {k: "".join(re.findall(r'"([^"]*)"', v)) for k, v in HEADERS.items()}
assert "Content-Security-Policy" in HEADERS

INJECTION = """<img src=x onerror="window.bad=1"> <script>window.bad=1</script> </script> [a](javascript:window.bad=1)
[b](data:text/html,<script>window.bad=1</script>) ![c](https://example.com/x.png) <a href="javascript:window.bad=1">d</a>
\u202eevil\u202c <svg onload=window.bad=1> `<img src=x onerror=window.bad=1>`

| <img src=x onerror=window.bad=1> | b |
| --- | --- |
| <script>window.bad=1</script> | [x](vbscript:y) |

```html
<script>window.bad=1</script>\u202e
```
"""
MARKDOWN = """# Title

A *word*, **two** and `code`, snake_case_name, 3 * 4 * 5, [link](https://example.com/a) and https://example.com/b.

- one
- two
  - inner

1. first
2. second

> quoted

| a | b |
| --- | ---: |
| 1 | 2 |

```python
def f(x):  # comment
    return "text" + 1
```

End."""


class Server(http.server.ThreadingHTTPServer):
    """Answers what `script` says: a list of (delta, seconds before it), or a status with an error."""
    daemon_threads = True
    script, asked, gone, ready = [], [], 0, True
    key, model, down, sees = None, "tiny-model", False, False
    several = {}  # name: state, of a server of several models; "REASON" is one that failed

    def models(self):
        kinds = ["text", "image"] if self.sees else ["text"]
        if not self.several:
            return [{"id": self.model, "context_length": 4096, "input_modalities": kinds}]
        def status(state):
            return {"value": state} if state in ("loaded", "loading", "unloaded") else {"value": "unloaded", "failed": True, "error": state}
        return [{"id": k, "path": k + ".gguf", "status": status(v), "pinned": False, "context_length": 4096, "input_modalities": kinds}
                for k, v in self.several.items()]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def send(self, code, kind, body, headers=()):
        self.send_response(code)
        for k, v in [("Content-Type", kind), ("Content-Length", str(len(body))), *headers]:
            self.send_header(k, v)
        self.end_headers()
        self.wfile.write(body)

    def error(self, code, message):
        self.send(code, "application/json", json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode())

    def do_GET(self):
        s = self.server
        if s.down:  # nobody answers
            self.close_connection = True
            return
        files = {"/": ("index.html", "text/html; charset=utf-8"), "/app.js": ("app.js", "text/javascript"), "/style.css": ("style.css", "text/css")}
        if self.path in files:
            name, kind = files[self.path]
            return self.send(200, kind, open(os.path.join(s.page, name), "rb").read(), HEADERS.items())
        if self.path == "/health":
            return self.send(200, "application/json", b'{"status":"ok"}') if s.ready else self.error(503, "Loading model")
        if self.path == "/v1/models":
            if s.key and self.headers.get("Authorization") != "Bearer " + s.key:
                return self.error(401, "no key")
            return self.send(200, "application/json", json.dumps({"data": s.models()}).encode())
        self.error(404, "no such route")

    def do_POST(self):
        s = self.server
        if s.down:
            self.close_connection = True
            return
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        s.asked.append(body)
        if s.key and self.headers.get("Authorization") != "Bearer " + s.key:
            return self.error(401, "no key")
        if self.path == "/models/load":
            if body["model"] not in s.several:
                return self.error(404, "no such model")
            if s.several[body["model"]] == "unloaded":
                s.several[body["model"]] = "loading"
            return self.send(200, "application/json", b'{"success":true}')
        if isinstance(s.script, tuple):
            return self.error(*s.script)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        n = 0
        try:
            for delta, wait in s.script:
                time.sleep(wait)
                chunk = delta if "choices" in delta else {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.flush()
                n += 1
            last = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
                    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n,
                                              "prompt_tokens_details": {"cached_tokens": 4}}, "timings": {"predicted_per_second": 123.4}, "model": body.get("model")}]
            for chunk in last:
                self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            s.gone += 1
        self.close_connection = True


def text_of(page, selector=".assistant .body"):
    return page.locator(selector).last.inner_text()


def say(page, text, wait=True):
    page.fill("#ask", text)
    page.press("#ask", "Enter")
    if wait:
        done(page)


def until(page, condition, seconds=15):
    """(wait_for_function would need eval in the page, which its headers forbid)"""
    end = time.time() + seconds
    while not page.evaluate(condition):
        assert time.time() < end, "never: " + condition
        time.sleep(0.02)


def done(page):
    page.wait_for_selector("#stop", state="hidden")
    page.wait_for_selector("#send", state="visible")


def tokens(text, wait=0.0, n=7):
    return [({"content": text[i:i + n]}, wait) for i in range(0, len(text), n)]


def test_chat(page, server):
    server.script = tokens("Hello there.")
    say(page, "hi")
    assert text_of(page) == "Hello there.", text_of(page)
    assert server.asked[-1]["messages"] == [{"role": "user", "content": "hi"}] and server.asked[-1]["stream"] is True
    assert "123.4 tok/s" in page.inner_text(".assistant .acts") and "of 4096 tokens, 4 from the cache" in page.inner_text("#figures")
    say(page, "again")
    assert [m["role"] for m in server.asked[-1]["messages"]] == ["user", "assistant", "user"]
    page.reload()
    page.click("nav .pick")
    assert page.locator("article").count() == 4


def test_markdown(page, server):
    server.script = tokens(MARKDOWN, n=3)
    say(page, "all of it")
    for selector, n in {"h4": 1, "em": 1, "strong": 1, "p > code": 1, "a": 2, "ul li": 3, "ol li": 2, "blockquote": 1, "td": 2,
                        "figure pre": 1, ".c-w": 2, ".c-c": 1, ".c-s": 1}.items():
        got = page.locator(".assistant .body " + selector).count()
        assert got == n, (selector, got)
    assert "3 * 4 * 5" in text_of(page) and "snake_case_name" in text_of(page)
    streamed = page.locator(".assistant .body").inner_html()
    page.reload()
    page.click("nav .pick")
    assert page.locator(".assistant .body").inner_html() == streamed


FORMULAS = r"""Euler: $e^{i\pi} + 1 = 0$, it costs $5 and $6; `$x$`.

$$\int_0^\infty e^{-x^2}\,dx = \frac{\sqrt{\pi}}{2}, \qquad \sum_{k=1}^{n} k = \binom{n+1}{2}$$

\[ A = \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}, \quad f(x) = \begin{cases} x & \text{if } x > 0 \\ 0 & \text{else} \end{cases} \]

\begin{align}
(a + b)^2 &= a^2 + 2ab + b^2 \\
\left(\frac{a}{b}\right)' &= \lim_{h \to 0} \hat{g}
\end{align}

```tex
$$x$$
```
"""


def test_formulas(page, server):
    server.script = tokens(FORMULAS, n=3)
    say(page, "mathematics")
    sizes = page.evaluate("[...document.querySelectorAll('.assistant math')].map((e) => [e.getAttribute('display'), e.getBoundingClientRect().width, e.getBoundingClientRect().height])")
    assert [s[0] for s in sizes] == ["inline", "block", "block", "block"], sizes
    assert sizes[0][2] < 40 and sizes[1][2] > 30 and all(s[2] > 40 for s in sizes[2:]), sizes  # drawn: a matrix is higher than a line
    assert "costs $5 and $6; $x$." in text_of(page) and page.inner_text(".assistant pre") == "$$x$$"
    fraction = page.evaluate("[...document.querySelector('.assistant mfrac').children].map((e) => e.getBoundingClientRect().top)")
    assert fraction[0] < fraction[1], fraction
    edges = page.evaluate("[...document.querySelectorAll('.assistant mtd.right')].map((e) => e.firstElementChild.getBoundingClientRect().right)")
    assert len(edges) == 2 and abs(edges[0] - edges[1]) < 1, edges
    streamed = page.locator(".assistant .body").inner_html()
    page.reload()
    page.click("nav .pick")
    assert page.locator(".assistant .body").inner_html() == streamed
    for width in 360, 1000:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    page.screenshot(path=os.environ["FORMULAS"]) if "FORMULAS" in os.environ else None


def test_spoken(page, server):
    """What is read out while an answer comes, by parts: no marks, no code, formulas as such, all of it once."""
    text = "**First**, a [link](https://example.com/) and `code` in a sentence that is long enough to be read out at once. " + \
        "Then:\n\n```c\nint x. = 1;\n\nint y. = 2; // and so on, for as long as a part has to be at least, and longer. \n```\n\nSo $x^2$ is it, and that was the last sentence of all."
    page.evaluate("""() => { window.heard = []; const spoken = document.getElementById('spoken');
        new MutationObserver(() => { if (spoken.textContent) window.heard.push([spoken.innerText, spoken.querySelectorAll('math').length, spoken.querySelectorAll('a, button, [tabindex]').length]); })
            .observe(spoken, {childList: true}); }""")
    server.script = tokens(text, 0.02)
    say(page, "read")
    heard = page.evaluate("window.heard")
    words = " ".join(" ".join(h[0] for h in heard).split())
    assert words == "First, a link and code in a sentence that is long enough to be read out at once. Then: Code. So x2 is it, and that was the last sentence of all." or \
        re.fullmatch(r"First, a link and code in a sentence that is long enough to be read out at once\. Then: Code\. So .*2 ?is it, and that was the last sentence of all\.", words), heard
    assert sum(h[1] for h in heard) == 1 and not any(h[2] for h in heard) and len(heard) > 1, heard


CODE = [  # language, code, its parts: s strings, c comments, n numbers, w words, g lines that went
    ("c", '#include "a.h"\nint f(char c) { return c == \'"\' ? 0x1F : 2.5e3; } // it\'s "so"\n/* and\non */', [
        "w #include", 's "a.h"', "w int", "w char", "w return", "s '\"'", "n 0x1F", "n 2.5e3", "c // it's \"so\"", "c /* and\non */"]),
    ("python", 'def f(x):  # it\'s one\n    """two\nlines"""\n    return url["a#b"] // 2', ["w def", "c # it's one", 's """two\nlines"""', "w return", 's "a#b"', "n 2"]),
    ("rust", "fn f<'a>(x: &'a str) -> char { 'b' }", ["w fn", "w char", "s 'b'"]),
    ("JSON", '{"key": ["a", -1, true], "//": "http://x"}', ['w "key"', 's "a"', "n -1", "w true", 'w "//"', 's "http://x"']),
    ("sql", "SELECT a FROM b where c = 'it''s' -- so", ["w SELECT", "w FROM", "w where", "s 'it'", "s 's'", "c -- so"]),
    ("sh", 'for f in "$@"; do echo $# ${f}; done # end', ["w for", "w in", 's "$@"', "w do", "w echo", "n $#", "n ${f}", "w done", "c # end"]),
    ("yaml", "a.b: 1 # one\n- c: don't\n  d: true", ["w a.b", "n 1", "c # one", "w - c", "w   d", "w true"]),
    ("html", "<!-- no --><p class=\"x\">it's for <b>me</b></p>", ["c <!-- no -->", "w <p", 's "x"', "w >", "w <b", "w >", "w </b", "w >", "w </p", "w >"]),
    ("diff", "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same", ["c --- a", "c +++ b", "w @@ -1 +1 @@", "g -old", "s +new"]),
    ("js", "const a = `x\n${1}`; /* no end\nlet b", ["w const", "s `x\n${1}`", "c /* no end\nlet b"]),
    ("css", "a:hover { color: #ff0; width: 50%; }", ["w color", "n #ff0", "w width", "n 50%"]),
    ("text", 'for "me" 1', []),
    ("brainthing", 'if x "y" # z', ["w if", 's "y"', "c # z"]),
]


def test_colours(page, server):
    for language, code, want in CODE:
        server.script = tokens("```" + language + "\n" + code + "\n```\n")
        page.click("#new")
        say(page, language)
        got = page.evaluate("[...document.querySelectorAll('.assistant pre span')].map((e) => e.className.slice(2) + ' ' + e.textContent)")
        assert got == want, (language, got)
        assert page.evaluate("document.querySelector('.assistant pre').textContent") == code


def test_injection(page, server):
    server.script = tokens(INJECTION, n=5)
    say(page, INJECTION)
    page.wait_for_timeout(200)
    assert page.evaluate("window.bad") is None
    for selector in "img", "script", "svg", "iframe", "a:not([href^=http])":
        assert page.locator("#talk " + selector).count() == 0, selector
    assert "\u202e" not in page.inner_text("#talk") and "\u27e8U+202E\u27e9" in page.inner_text("#talk")


def test_thinking_and_tools(page, server):
    server.script = [({"reasoning_content": "Let me see. "}, 0), ({"reasoning_content": "Yes."}, 0.3)] + tokens("It is so.") + [
        ({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}]}, 0),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]}, 0), ({"tool_calls": [{"index": 0, "function": {"arguments": '"Bern"}'}}]}, 0)]
    say(page, "think")
    assert re.match(r"Thought for 0\.[2-9] s", page.inner_text("details summary")), page.inner_text("details summary")
    assert not page.locator("details").evaluate("e => e.open")
    assert "weather" in text_of(page) and '"city": "Bern"' in text_of(page)


class Tools(http.server.ThreadingHTTPServer):
    """A server of tools: MCP over HTTP, of another origin."""
    daemon_threads = True
    sessions, calls, asked, hold, key, paged, down = 0, [], [], None, None, False, False
    result = {"content": [{"type": "text", "text": "sunny <b>& warm</b>"}, {"type": "image", "data": "", "mimeType": "image/png"}]}


class ToolsHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def send(self, code, body=b"", kind="application/json", headers=()):
        self.send_response(code)
        for k, v in [("Content-Type", kind), ("Content-Length", str(len(body))), ("Access-Control-Allow-Origin", "*"), ("Access-Control-Allow-Headers", "*, Authorization"),
                     ("Access-Control-Expose-Headers", "Mcp-Session-Id"), *headers]:
            self.send_header(k, v)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the page has gone on

    def do_OPTIONS(self):
        self.send(204)

    def do_GET(self):
        self.send(200, b"{}")

    def do_POST(self):
        s, m = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session, method = self.headers.get("Mcp-Session-Id"), m.get("method")
        s.asked.append((method, session, self.headers.get("MCP-Protocol-Version"), self.headers.get("Authorization"), self.headers.get("Accept")))
        if s.key and self.headers.get("Authorization") != "Bearer " + s.key:
            return self.send(401)
        if method == "initialize":
            s.sessions += 1
            return self.answer(m, {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}, [("Mcp-Session-Id", "s%d" % s.sessions)])
        if session != "s%d" % s.sessions:
            return self.send(404)
        if method is None or "id" not in m:  # a notification, or an answer to what was asked here
            return self.send(202)
        if method == "tools/list":
            if m["params"].get("cursor"):
                return self.answer(m, {"tools": [{"name": "clock", "inputSchema": {"type": "object"}}]})
            return self.answer(m, {"nextCursor": "2", "tools": [{"name": "weather", "description": "The weather of a city", "inputSchema": {
                "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]})
        s.calls.append((m["params"]["name"], m["params"]["arguments"]))
        if s.hold: s.hold.wait(60)
        if m["params"]["name"] == "clock":
            return self.send(200, json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": 1, "message": "it stands still"}}).encode())
        events = [{"jsonrpc": "2.0", "id": 77, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}, {"jsonrpc": "2.0", "id": m["id"], "result": s.result}]
        self.send(200, b"".join(b"event: message\r\ndata: " + json.dumps(e).encode() + b"\r\n\r\n" for e in events), "text/event-stream")

    def answer(self, m, result, headers=()):
        self.send(200, json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}).encode(), headers=headers)


def tools_server():
    s = Tools(("127.0.0.1", 0), ToolsHandler)
    s.calls, s.asked = [], []
    threading.Thread(target=s.serve_forever, daemon=True).start()
    return s, "http://127.0.0.1:%d/mcp" % s.server_port


def calling(*calls):
    """an answer that asks for tools"""
    return [({"tool_calls": [{"index": i, "id": "call_%d" % i, "type": "function", "function": {"name": name, "arguments": args}}]}, 0) for i, (name, args) in enumerate(calls)]


def enter_tools(page, url, key=""):
    page.click("#settings-open")
    page.fill("#mcp-url", url)
    page.fill("#mcp-key", key)
    with page.expect_navigation():
        page.click("#settings-save")
    until(page, "document.getElementById('state').innerText === 'ready'")


def test_tools(page, server):
    tools, url = tools_server()
    tools.key = "tools-key"
    enter_tools(page, url, "tools-key")
    until(page, "document.getElementById('tools').innerText.includes('weather, clock')")
    assert [a[0] for a in tools.asked] == ["initialize", "notifications/initialized", "tools/list", "tools/list"]
    assert tools.asked[0][1:3] == (None, None) and tools.asked[3][1:] == ("s1", "2025-03-26", "Bearer tools-key", "application/json, text/event-stream"), tools.asked
    assert "tools-key" not in page.evaluate("JSON.stringify(localStorage)")
    server.script = calling(("weather", '{"city": "Bern"}'))
    say(page, "How is it in Bern?")
    assert [t["function"]["name"] for t in server.asked[-1]["tools"]] == ["weather", "clock"] and server.asked[-1]["tools"][0]["function"]["parameters"]["required"] == ["city"]
    page.wait_for_timeout(300)
    assert not tools.calls and '"city": "Bern"' in page.inner_text(".call pre") and len(server.asked) == 1  # nothing without a click
    assert page.evaluate("document.getElementById('spoken').textContent").endswith("Asks for weather.")
    server.script = tokens("It is sunny.")
    page.click("text=Run it")
    until(page, "document.querySelectorAll('.assistant').length === 2")
    done(page)
    assert tools.calls == [("weather", {"city": "Bern"})], tools.calls
    assert text_of(page) == "It is sunny."
    asked = server.asked[-1]["messages"]
    assert [m["role"] for m in asked] == ["user", "assistant", "tool"], asked
    assert asked[1]["tool_calls"] == [{"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}]
    assert asked[2] == {"role": "tool", "tool_call_id": "call_0", "name": "weather", "content": "sunny <b>& warm</b>\n[image left out]"}, asked[2]
    for _ in range(600):  # its ping was answered
        if [a for a in tools.asked if a[0] is None]: break
        time.sleep(0.1)
    assert [a for a in tools.asked if a[0] is None]
    page.reload()
    page.click("nav .pick")
    page.click(".call summary")
    assert "sunny <b>& warm</b>" in page.inner_text(".call details pre") and page.locator(".call b").count() == 0 and page.locator("text=Run it").count() == 0
    until(page, "document.getElementById('tools').innerText.includes('weather, clock')")
    tools.sessions += 1  # it has forgotten the session: begun again
    server.script = calling(("weather", '{"city": "Biel"}'))
    say(page, "And in Biel?")
    server.script = tokens("There, too.")
    page.click("text=Run it")
    until(page, "document.querySelectorAll('.assistant').length === 4")
    done(page)
    assert tools.calls[1:] == [("weather", {"city": "Biel"})] and text_of(page) == "There, too."
    tools.shutdown()


def test_tools_refused(page, server):
    tools, url = tools_server()
    enter_tools(page, url)
    until(page, "document.getElementById('tools').innerText.includes('weather, clock')")
    server.script = calling(("weather", '{"city": "Bern"}'), ("clock", "{}"), ("weather", "[1"), ("no_such", "{}"))
    say(page, "x")
    assert page.locator(".call").count() == 4 and page.locator("text=Run it").count() == 3 and "no such tool" in page.locator(".call").last.inner_text()
    page.click("[aria-label='Do not run weather'] >> nth=0")
    page.click("[aria-label='Run clock with these arguments']")
    until(page, "document.querySelectorAll('.call')[1].innerText.includes('it stands still') || document.querySelectorAll('.call')[1].innerText.includes('It failed')")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Run weather with these arguments"
    page.click("text=Run it")
    until(page, "document.querySelectorAll('.call')[2].innerText.includes('It failed')")
    assert [c[0] for c in tools.calls] == ["clock"] and len(server.asked) == 1  # one is not decided
    server.script = tokens("Well.")
    say(page, "never mind")
    asked = server.asked[-1]["messages"]
    assert [m["role"] for m in asked] == ["user", "assistant", "tool", "tool", "tool", "tool", "user"]
    assert [m["content"] for m in asked[2:6]] == ["The user did not allow this call.", "The server of the tools says: it stands still", "The arguments are no JSON.", "The user did not allow this call."], asked
    page.click("#new")
    tools.hold = threading.Event()  # Stop leaves a call as it was
    server.script = calling(("weather", "{}"))
    say(page, "y")
    page.click("text=Run it")
    until(page, "document.activeElement.id === 'stop'")
    page.keyboard.press("Enter")
    done(page)
    tools.hold.set()
    assert page.locator("text=Run it").count() == 1 and "It gave" not in text_of(page)
    page.click("#settings-open")
    page.fill("#mcp-url", "mailto:x@example.com")
    page.click("#settings-save")
    assert "no address" in page.inner_text("#mcp-error")
    page.fill("#mcp-url", url)
    page.click("#settings-cancel")
    tools.shutdown()
    tools.server_close()
    page.reload()
    until(page, "document.getElementById('tools').innerText.includes('cannot be reached')")
    page.click("nav .pick")
    assert page.locator("text=Run it").count() == 0


def test_tools_policy(page, server):
    tools, url = tools_server()
    other, elsewhere = tools_server()
    ask = "(url) => fetch(url).then(() => 'came', () => 'blocked')"
    assert [page.evaluate(ask, u) for u in (url, elsewhere, "/health")] == ["blocked", "blocked", "came"]
    enter_tools(page, url)
    until(page, "document.getElementById('tools').innerText.includes('weather')")
    assert [page.evaluate(ask, u) for u in (url, url.replace("/mcp", "/other"), elsewhere, "/health")] == ["came", "blocked", "blocked", "came"]
    enter_tools(page, "")
    assert page.locator("#tools").is_hidden() and page.evaluate(ask, url) == "blocked" and not other.asked
    server.script = tokens("Well.")
    say(page, "x")
    assert "tools" not in server.asked[-1]


def test_stop_again_edit_continue(page, server):
    server.script = tokens("one two three four five six seven eight nine ten", 0.1)
    say(page, "count", wait=False)
    until(page, "document.querySelector('.assistant .body')?.innerText.length > 10")
    assert page.locator("#send").is_hidden()
    page.keyboard.press("Escape")
    done(page)
    stopped = text_of(page)
    assert 0 < len(stopped) < 40, stopped
    figures = page.inner_text(".assistant .acts")  # from what came here, as the server tells no more
    told = re.search(r"(\d+) tokens, ([\d.]+) tok/s, first token 0\.\d s", figures)
    assert told and int(told[1]) == -(-len(stopped) // 7) and 5 < float(told[2]) < 15, (stopped, figures)
    assert page.evaluate("document.activeElement.id") == "ask"
    for _ in range(50):
        if server.gone: break
        time.sleep(0.1)
    assert server.gone, "the server was not told"
    server.script = tokens(" and so on.")
    page.click("text=Continue")
    done(page)
    assert text_of(page) == stopped + " and so on.", text_of(page)
    assert server.asked[-1]["continue_final_message"] is True and server.asked[-1]["messages"][-1]["role"] == "assistant"
    server.script = tokens("Another.")
    page.click("text=Again")
    done(page)
    assert text_of(page) == "Another." and "2/2" in page.inner_text(".assistant .acts")
    page.click("[aria-label='Version before']")
    assert text_of(page).startswith(stopped)
    page.click("text=Edit")
    page.fill(".user textarea", "count down")
    page.click(".user .acts >> text=Send")
    done(page)
    assert server.asked[-1]["messages"] == [{"role": "user", "content": "count down"}] and "2/2" in page.inner_text(".user .acts")


def test_settings(page, server):
    server.script = tokens("{}")
    page.click("#settings-open")
    page.fill("#system", "Be brief.")
    page.fill("#p-temperature", "0.3")
    page.fill("#schema", "{no")
    page.click("#settings-save")
    assert "no JSON" in page.inner_text("#schema-error")
    page.fill("#schema", '{"type": "object"}')
    page.fill("#key", "secret-key")
    page.click("#settings-save")
    say(page, "x")
    asked = server.asked[-1]
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."} and asked["temperature"] == 0.3
    assert asked["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert "secret-key" not in page.evaluate("JSON.stringify(localStorage)")
    page.keyboard.press("Tab")


def test_theme(page, server):
    paper = lambda p: p.evaluate("getComputedStyle(document.body).backgroundColor")
    white, black = "rgb(255, 255, 255)", "rgb(22, 24, 28)"
    for system, want in ("dark", black), ("light", white):
        page.emulate_media(color_scheme=system)
        assert paper(page) == want, (system, paper(page))
    page.click("#settings-open")
    other = page.context.new_page()
    other.goto(page.url)
    page.select_option("#theme", "dark")
    assert paper(page) == black
    until(other, "document.documentElement.dataset.theme === 'dark'")  # another tab follows
    other.close()
    page.reload()
    assert paper(page) == black and page.input_value("#theme") == "dark"
    page.evaluate("localStorage.setItem('infer.theme', 'no such')")
    page.reload()
    assert paper(page) == white


def test_search(page, server):
    for question, answer in ("About apples", "They are **red**."), ("About pears", "They are green."), ("Numbers", "Apples: 3"):
        server.script = tokens(answer)
        page.click("#new")
        say(page, question)
    titles = lambda: page.locator("nav .pick").all_inner_texts()
    for text, want in ("APPLES", ["Numbers", "About apples"]), ("they about", ["About pears", "About apples"]), ("green apples", []), ("", ["Numbers", "About pears", "About apples"]):
        page.keyboard.press("Control+k")
        assert page.evaluate("document.activeElement.id") == "find"
        page.fill("#find", text)
        assert titles() == want, (text, titles())
    page.fill("#find", "pears")
    assert page.inner_text("#size").startswith("1 of 3 conversations, ")
    with page.expect_download() as d:
        page.click("#export")
    assert [c["title"] for c in json.load(open(d.value.path()))] == ["About pears"]
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[aria-label='Delete About pears']")
    assert titles() == [] and page.evaluate("document.activeElement.id") == "new"
    page.focus("#find")
    page.keyboard.press("Escape")
    assert titles() == ["Numbers", "About apples"]


def test_keys(page, server):
    server.script = tokens("Well.")
    say(page, "first")
    page.keyboard.press("Control+Shift+O")
    say(page, "second")
    assert page.locator("nav .pick").count() == 2 and page.locator("article").count() == 2
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.value") == "second"
    page.keyboard.press("Escape")
    assert page.locator("article textarea").count() == 0 and page.evaluate("document.activeElement.id") == "ask"
    page.fill("#ask", "words")
    page.keyboard.press("ArrowUp")
    assert page.locator("article textarea").count() == 0  # words are not left
    page.fill("#ask", "")
    page.click("text=Again")
    done(page)
    page.focus("[aria-label='Version before']")
    page.keyboard.press("Enter")
    assert "1/2" in page.inner_text(".assistant .acts") and page.evaluate("document.activeElement.closest('.acts') !== null")
    page.keyboard.press("Control+/")
    page.wait_for_selector("#settings[open]")
    assert page.locator("#settings kbd").count() >= 9
    page.keyboard.press("Escape")
    server.script = tokens("a b c d e f g h i j k l m n", 0.1, 2)
    page.fill("#ask", "long")
    page.focus("#send")
    page.keyboard.press("Enter")
    until(page, "document.activeElement.id === 'stop'")
    page.keyboard.press("Enter")
    done(page)
    assert page.evaluate("document.activeElement.id") == "ask"
    page.set_viewport_size({"width": 390, "height": 700})
    page.keyboard.press("Control+k")
    assert page.locator("#find").is_visible() and page.get_attribute("#menu", "aria-expanded") == "true"
    page.keyboard.press("Escape")
    assert page.locator("#find").is_hidden() and page.evaluate("document.activeElement.id") == "ask"


def test_two_tabs(page, server):
    server.script = tokens("Well.")
    say(page, "of the first tab")
    other = page.context.new_page()
    other.goto(page.url)
    say(other, "of the second tab")
    until(page, "document.querySelectorAll('nav .pick').length === 2")
    say(page, "more")  # what this one saves has both
    assert page.locator("article").count() == 4
    other.reload()
    assert sorted(other.locator("nav .pick").all_inner_texts()) == ["of the first tab", "of the second tab"]
    other.click("nav .pick >> text=of the first tab")
    assert other.locator("article").count() == 4
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("[aria-label='Delete of the first tab']")
    until(other, "document.querySelectorAll('nav .pick').length === 1 && document.querySelectorAll('article').length === 0")
    other.close()


def test_errors(page, server):
    for script, words in [((400, "The prompt is too long."), "too long"), ((429, "Please try again in 3s"), "busy"), ((401, "no"), "API key")]:
        server.script = script
        say(page, "x")
        assert words in page.inner_text("#error"), page.inner_text("#error")
    page.click("#settings-cancel")  # open, as a key is wanted
    server.script = [({"content": "part"}, 0), ({"choices": [], "error": {"message": "out of pages"}}, 0)]
    say(page, "x")
    assert "out of pages" in page.inner_text("#error") and text_of(page) == "part"


def test_failed_message_comes_back(page, server):
    server.script = tokens("Well.")
    say(page, "first")
    server.script = (429, "Please try again in 3s")
    say(page, "second, at length")
    assert page.input_value("#ask") == "second, at length" and "busy" in page.inner_text("#error")
    assert page.locator("article").count() == 2, page.locator("article").count()
    server.script = tokens("Then so.")
    page.press("#ask", "Enter")
    done(page)
    assert page.input_value("#ask") == "" and text_of(page) == "Then so."
    assert [m["content"] for m in server.asked[-1]["messages"]] == ["first", "Well.", "second, at length"]
    assert server.asked[-1]["messages"] == [m for m in server.asked[-2]["messages"]]
    # an answer that broke off stays, with its question
    server.script = [({"content": "part"}, 0), ({"choices": [], "error": {"message": "out of pages"}}, 0)]
    say(page, "third")
    assert page.input_value("#ask") == "" and page.locator("article").count() == 6


def test_offline(page, server):
    server.down = True
    until(page, "document.getElementById('state').innerText === 'offline'")
    page.set_viewport_size({"width": 390, "height": 700})
    assert page.locator("#state").is_visible()
    server.down = False
    until(page, "document.getElementById('state').textContent === 'ready'")
    server.down = True
    say(page, "are you there?")
    assert page.inner_text("#state") == "offline" and page.input_value("#ask") == "are you there?"
    server.down = False


def test_key_is_asked_for(page, server):
    server.key = "secret-key"
    page.reload()
    page.wait_for_selector("#settings[open]")
    assert page.evaluate("document.activeElement.id") == "key" and "API key" in page.inner_text("#settings")
    assert page.inner_text("#state") == "needs an API key"
    page.click("#settings-cancel")
    page.wait_for_timeout(500)
    assert page.locator("#settings").is_hidden()  # once is enough
    server.script = tokens("Yes.")
    say(page, "x")  # the server refuses: asked again
    page.wait_for_selector("#settings[open]")
    page.fill("#key", "secret-key")
    page.press("#key", "Enter")
    until(page, "document.getElementById('state').innerText === 'ready'")
    assert page.input_value("#ask") == "x"
    say(page, "x")
    assert text_of(page) == "Yes."


def test_models(page, server):
    assert page.locator("#models").is_hidden() and page.inner_text("#model") == "tiny-model"  # one has no choice
    server.several = {"alpha": "unloaded", "beta": "loaded", "gamma": "unloaded", "delta": "it is no model"}
    page.reload()
    page.wait_for_selector("#models:not([hidden])")
    shown = lambda: page.locator("#models option").all_inner_texts()
    assert shown() == ["alpha", "beta (loaded)", "gamma", "delta (failed)"], shown()
    assert page.input_value("#models") == "beta" and page.inner_text("#state") == "ready"
    page.select_option("#models", "gamma")
    until(page, "document.getElementById('state').innerText === 'loading the model'")
    assert server.asked[-1] == {"model": "gamma"} and shown()[2] == "gamma (loading)"
    server.several["gamma"], server.several["beta"] = "loaded", "unloaded"
    until(page, "document.getElementById('state').innerText === 'ready'", 5)
    assert shown()[1:3] == ["beta", "gamma (loaded)"], shown()
    server.script = tokens("Yes.")
    say(page, "x")
    assert server.asked[-1]["model"] == "gamma" and "gamma, 1 tokens" in page.inner_text(".assistant .acts")
    page.reload()  # it is remembered, loaded or not
    server.several["gamma"] = "unloaded"
    until(page, "document.getElementById('models').value === 'gamma' && document.getElementById('state').innerText === 'loads when asked'")
    page.select_option("#models", "delta")
    until(page, "document.getElementById('state').innerText === 'cannot be loaded'")
    assert page.inner_text("#error") == "The model delta cannot be loaded: it is no model" and page.get_attribute("#state", "title") == "it is no model"
    del server.several["alpha"]
    page.evaluate("document.getElementById('models').value = 'alpha'; document.getElementById('models').dispatchEvent(new Event('change'))")
    until(page, "document.getElementById('error').innerText === 'no such model'")
    for name in list(server.several):
        server.several["Some-Very-Long-Model-Name-235B-A22B-Instruct-2507-Q4_K_M-" + name] = server.several.pop(name)
    until(page, "document.getElementById('models').value.startsWith('Some')")
    for width in 320, 390, 800:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        for id in "#models", "#settings-open":
            box = page.locator(id).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["width"] > 30, (width, id, box)


def test_narrow(page, server):
    server.model = "Some-Very-Long-Model-Name-235B-A22B-Instruct-2507-Q4_K_M-00001-of-00003.gguf"
    server.script = tokens("Hello there.")
    page.reload()
    until(page, "document.getElementById('model').innerText.startsWith('Some-Very')")
    say(page, "x")
    for width in 390, 360, 320, 800:
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
        for id in "#send", "#ask", "#settings-open", "#model":
            box = page.locator(id).bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["width"] > 30, (width, id, box)
    assert page.get_attribute("#model", "title") == server.model


def png(width, height):
    """stripes"""
    def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes((x * 7 + y * c) % 256 for x in range(width) for c in range(3)) for y in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


FILES = """(files) => { const t = new DataTransfer();
    for (const [name, kind, data] of files) t.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, {type: kind}));
    return t; }"""


def hand_over(page, event, selector, files):
    """an event of the clipboard or of dragging, with files"""
    t = page.evaluate_handle(FILES, [[n, k, base64.b64encode(d).decode()] for n, k, d in files])
    page.evaluate("""([event, selector, t]) => { const e = new Event(event, {bubbles: true, cancelable: true});
        e.clipboardData = e.dataTransfer = t; document.querySelector(selector).dispatchEvent(e); }""", [event, selector, t])


def test_pictures(page, server):
    small, large = png(20, 10), png(3000, 30)
    server.script = tokens("Two stripes.")
    page.wait_for_selector("#picture:not([hidden])")
    page.set_input_files("#pictures", [{"name": "a.png", "mimeType": "image/png", "buffer": small}, {"name": "b.png", "mimeType": "image/png", "buffer": small}])
    page.wait_for_selector("#shown img >> nth=1")
    page.click("[aria-label='Leave picture 2 out']")
    hand_over(page, "paste", "#ask", [("c.png", "image/png", large)])
    until(page, "document.querySelectorAll('#shown img').length === 2")
    hand_over(page, "drop", "main", [("e.png", "image/png", b"a broken one")])
    until(page, "document.getElementById('error').innerText.includes('e.png is no picture')")
    hand_over(page, "drop", "main", [("f.png", "image/png", small)])
    until(page, "document.querySelectorAll('#shown img').length === 3")
    assert page.locator("#error").is_hidden()
    server.script = (429, "Please try again in 3s")
    say(page, "what is it?")
    assert page.locator("#shown img").count() == 3 and page.input_value("#ask") == "what is it?"  # nothing is lost
    server.script = tokens("Stripes.")
    page.press("#ask", "Enter")
    done(page)
    content = server.asked[-1]["messages"][0]["content"]
    assert [c["type"] for c in content] == ["image_url"] * 3 + ["text"] and content[3]["text"] == "what is it?", content
    urls = [c["image_url"]["url"] for c in content[:3]]
    assert urls[0] == urls[2] == "data:image/png;base64," + base64.b64encode(small).decode()
    assert urls[1].startswith("data:image/jpeg;base64,")  # made smaller
    assert page.locator(".user .pictures img").count() == 3 and page.locator("#shown").is_hidden()
    page.reload()
    page.click("nav .pick")
    assert page.locator(".user .pictures img").count() == 3
    say(page, "and now?")  # the second turn has them again
    assert [type(m["content"]) for m in server.asked[-1]["messages"]] == [list, str, str]
    page.click(".user >> nth=0 >> text=Edit")
    page.fill(".user textarea", "look again")
    page.click(".user .acts >> text=Send")
    done(page)
    assert len(server.asked[-1]["messages"][0]["content"]) == 4


def test_no_room_for_pictures(page, server):
    server.script = tokens("Yes.")
    page.set_input_files("#pictures", [{"name": "a.png", "mimeType": "image/png", "buffer": png(900, 900)}])
    page.wait_for_selector("#shown img")
    page.evaluate("localStorage.setItem('filler', 'x'.repeat(5 * 1024 * 1024 - 40000))")
    say(page, "seen?")
    assert len(server.asked[-1]["messages"][0]["content"]) == 2 and "no room for the pictures and files of this" in page.inner_text("#error")


def test_no_room_for_older_pictures(page, server):
    kept = lambda: page.evaluate("JSON.parse(localStorage.getItem('infer.conversations')).map((c) => (Object.values(c.nodes)[0].pictures || []).length)")
    server.script = tokens("Yes.")
    for i in range(3):
        page.click("#new")
        page.set_input_files("#pictures", [{"name": "a.png", "mimeType": "image/png", "buffer": png(900, 900)}])
        page.wait_for_selector("#shown img")
        say(page, str(i))
    assert kept() == [1, 1, 1]
    size = page.evaluate("localStorage.getItem('infer.conversations').length")
    page.evaluate("localStorage.setItem('filler', 'x'.repeat(5 * 1024 * 1024 - %d))" % (size + 1000))
    say(page, "x" * 2000)
    assert kept() == [1, 1, 0], kept()
    assert "of older conversations" in page.inner_text("#error")
    other = page.context.new_page()  # what it saves takes none away from here
    other.goto(page.url)
    other.evaluate("localStorage.setItem('filler', '')")
    say(other, "more")
    until(page, "document.querySelectorAll('nav .pick').length === 4")
    page.click("nav .pick >> nth=3")
    assert page.locator(".user .pictures img").count() == 1
    say(page, "and?")
    assert kept() == [0, 1, 1, 1], kept()
    other.close()


def test_files_of_text(page, server):
    code = "int main(void) {}\n// ```` four\n"
    page.set_input_files("#texts", [{"name": "main.c", "mimeType": "text/x-c", "buffer": code.encode()}])
    page.wait_for_selector("#shown .file")
    hand_over(page, "drop", "main", [("a b.md", "", b"\xef\xbb\xbfone\r\ntwo"), ("w.txt", "text/plain", "wide \u00e9".encode("utf-16")), ("x.svg", "image/svg+xml", b"<svg/>")])
    until(page, "document.querySelectorAll('#shown .file').length === 4")
    for name, data, words in ("zip.bin", b"PK\0\1", "zip.bin is no text"), ("latin.txt", b"\xe9t\xe9", "latin.txt is no text"), ("much.log", b"x" * 512001, "much.log is larger than 512.0 kB"):
        hand_over(page, "paste", "#ask", [(name, "", data)])
        until(page, "document.getElementById('error').innerText.includes('%s')" % words)
    assert page.locator("#shown .file").count() == 4
    page.click("[aria-label='Leave x.svg out']")
    server.script = (429, "Please try again in 3s")
    say(page, "What is this?")
    assert page.locator("#shown .file").count() == 3 and page.input_value("#ask") == "What is this?"  # nothing is lost
    server.script = tokens("A file.")
    page.press("#ask", "Enter")
    done(page)
    want = "main.c:\n`````c\n" + code + "`````\n\na b.md:\n```md\none\ntwo\n```\n\nw.txt:\n```txt\nwide \u00e9\n```\n\nWhat is this?"
    assert server.asked[-1]["messages"] == [{"role": "user", "content": want}], server.asked[-1]
    assert page.locator("#shown").is_hidden()
    page.reload()
    page.click("nav .pick")
    assert page.locator(".user details.file").count() == 3 and page.locator(".user pre").count() == 0
    page.click(".user summary >> nth=0")
    page.wait_for_selector(".user details.file pre")
    assert page.inner_text(".user details.file pre") == code, repr(page.inner_text(".user details.file pre"))
    assert page.locator(".user pre .c-c").count() == 1, page.inner_html(".user details.file pre")
    page.click("text=Edit")
    page.fill(".user textarea", "And now?")
    page.click(".user .acts >> text=Send")
    done(page)
    assert server.asked[-1]["messages"][0]["content"] == want.replace("What is this?", "And now?")
    page.click("#new")  # a file alone is a message
    page.set_input_files("#texts", [{"name": "main.c", "mimeType": "", "buffer": code.encode()}])
    page.wait_for_selector("#shown .file")
    page.click("#send")
    done(page)
    assert page.inner_text("nav .pick >> nth=0") == "main.c"


def test_text_alone(page, server):
    assert page.locator("#picture").is_hidden()
    hand_over(page, "paste", "#ask", [("a.png", "image/png", png(9, 9))])
    until(page, "document.getElementById('error').innerText.includes('text alone')")


def test_progress(page, server):
    server.script = [({"choices": [], "prompt_progress": {"total": 1000, "cache": 0, "processed": 250, "time_ms": 3000}}, 0), ({"content": "x"}, 0.6)]
    say(page, "x", wait=False)
    until(page, "document.getElementById('eta').innerText.includes('9.0 s left')")
    done(page)
    assert page.locator("#progress").is_hidden()


def test_files(page, server):
    server.script = tokens("kept")
    say(page, "keep this")
    with page.expect_download() as d:
        page.click("#export")
    path = d.value.path()
    page.on("dialog", lambda dialog: dialog.accept())
    page.click("#clear")
    assert page.locator("nav .pick").count() == 0 and page.evaluate("localStorage.getItem('infer.conversations')") == "[]"
    page.set_input_files("#file", {"name": "c.json", "mimeType": "application/json", "buffer": open(path, "rb").read()})
    page.wait_for_selector("nav .pick")
    page.click("nav .pick")
    assert text_of(page) == "kept"
    page.set_input_files("#file", {"name": "c.json", "mimeType": "application/json", "buffer": b'{"no": 1}'})
    page.wait_for_selector("#error:not([hidden])")


def test_long_answer(page, server):
    part = "Some words of a long answer, a `bit` of code and **more**. " * 6 + "\n\n```c\n" + "int x = 1; // and so on\n" * 30 + "```\n\n"
    text = (part * (100000 // len(part) + 1))[:100000]
    server.script = tokens(text, 0.005, 100)
    page.evaluate("""() => { window.frames_ = []; let last = performance.now();
        const f = (t) => { window.frames_.push(t - last); last = t; requestAnimationFrame(f); }; requestAnimationFrame(f); }""")
    page.set_default_timeout(60000)
    say(page, "long")
    frames = sorted(page.evaluate("window.frames_"))
    print("    100,000 characters: frames p50 %.1f, p99 %.1f, longest %.1f ms" % (
        frames[len(frames) // 2], frames[len(frames) * 99 // 100], frames[-1]))
    assert frames[len(frames) * 99 // 100] < 50


def test_scroll_stays(page, server):
    server.script = tokens("a line\n\n" * 200, 0.005, 8)
    say(page, "x", wait=False)
    until(page, "document.getElementById('talk').scrollHeight > 2000")
    page.evaluate("document.getElementById('talk').scrollTop = 100")
    page.wait_for_timeout(300)
    assert page.evaluate("document.getElementById('talk').scrollTop") == 100
    done(page)
    page.click("#down")
    page.wait_for_timeout(50)
    assert page.evaluate("(t => t.scrollHeight - t.scrollTop - t.clientHeight)(document.getElementById('talk'))") < 5


def test_accessible(page, server):
    from axe_core_python.sync_playwright import Axe
    server.script = tokens(MARKDOWN + "\n\n```diff\n-a\n+b\n```\n")
    server.several = {"alpha": "unloaded", "beta": "loaded", "gamma": "it is no model"}
    page.reload()
    page.wait_for_selector("#models:not([hidden])")
    file = {"name": "main.c", "mimeType": "", "buffer": b"int x = 1; // one"}
    page.set_input_files("#texts", [file])
    page.wait_for_selector("#shown .file")
    say(page, "x")
    page.click(".user summary")
    page.set_input_files("#texts", [file])
    page.wait_for_selector("#shown .file")
    for scheme in "light", "dark":
        page.emulate_media(color_scheme=scheme)
        for opened in False, True:
            if opened: page.click("#settings-open")
            found = Axe().run(page)["violations"]
            serious = [(v["id"], [n["html"][:100] for n in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")]
            assert not serious, serious
        page.click("#settings-cancel")
    # all of it by keyboard
    page.focus("#menu" if page.locator("#menu").is_visible() else "#settings-open")
    seen = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    wanted = {"models", "new", "find", "ask", "talk", "text", "Copy", "main.c, 17 B"}
    assert wanted <= seen, (wanted - seen, seen)


GOLDEN = os.path.join(os.path.dirname(__file__), "../golden/page_tree.txt")
NO_ROLE = {"none", "generic", "InlineTextBox", "ListMarker", "LineBreak", "LayoutTable", "LabelText", "paragraph"}  # what is in them is told, they are not
STATES = "checked", "disabled", "expanded", "hasPopup", "invalid", "level", "modal", "pressed", "selected"


def tree(page):
    """The tree of roles, names and states that Chromium gives to screen readers, a line a node; numbers are #, as some are times."""
    nodes = {n["nodeId"]: n for n in page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]}
    lines = []

    def walk(n, depth, above):
        role, name = n.get("role", {}).get("value", ""), n.get("name", {}).get("value", "") or ""
        told = not n.get("ignored") and role not in NO_ROLE and not (role == "StaticText" and (not name.strip() or name.strip() in above))
        if told:
            had = {p["name"]: p["value"].get("value") for p in n.get("properties", [])}
            states = [k if had[k] is True else "%s=%s" % (k, str(had[k]).lower()) for k in STATES
                      if had.get(k) not in (None, "", "false") and (had[k] is not False or k == "expanded")]
            words = [{"StaticText": "text", "RootWebArea": "page", "DisclosureTriangle": "disclosure", "MathMLMath": "math"}.get(role, role), *states]
            if name: words.insert(1, re.sub(r"\d+(\.\d+)?", "#", json.dumps(name, ensure_ascii=False)))
            if role == "MathMLMath":
                lines.append("  " * depth + " ".join(words + parts(n)))
                return
            lines.append("  " * depth + " ".join(words))
        for c in n.get("childIds", []):
            if c in nodes: walk(nodes[c], depth + told, name if told and name else above)

    def parts(n):
        """of a formula: fraction(a b)"""
        role, inner = n.get("role", {}).get("value", ""), [t for c in n.get("childIds", []) if c in nodes for t in parts(nodes[c])]
        if role == "StaticText": return [n["name"]["value"]]
        shape = role.removeprefix("MathML").lower() if role.startswith("MathML") else ""
        return inner if shape in ("", "math", "row", "identifier", "number", "operator", "text") else [shape + "(" + " ".join(inner) + ")"]

    walk(next(n for n in nodes.values() if "parentId" not in n), 0, "")
    return "\n".join(lines) + "\n"


def test_screen_reader(page, server):
    """What a screen reader is told of the whole page: with an answer that has all there is, while a message could not be sent, and of the settings."""
    tools, url = tools_server()
    server.several = {"alpha": "unloaded", "beta": "loaded", "gamma": "it is no model"}
    enter_tools(page, url)
    page.wait_for_selector("#models:not([hidden])")
    until(page, "document.getElementById('tools').innerText.includes('weather, clock')")
    server.script = tokens("First.")
    say(page, "An earlier one")
    page.click("#new")
    page.set_input_files("#texts", [{"name": "main.c", "mimeType": "", "buffer": b"int x = 1;"}])
    page.wait_for_selector("#shown .file")
    server.script = [({"reasoning_content": "Let me see."}, 0)] + tokens(MARKDOWN + "\n\nAnd $\\frac{a}{b} + \\sqrt{x_1^2}$.") + calling(("weather", '{"city": "Bern"}'))
    say(page, "All of it")
    page.evaluate("document.getElementById('spoken').textContent = ''")  # the part that was told last depends on time
    whole = tree(page)
    server.script = (429, "Please try again in 3s")
    page.click("#new")
    say(page, "too much")
    assert page.evaluate("document.getElementById('spoken').textContent") == ""
    refused = tree(page)
    page.click("#settings-open")
    got = "\n".join(["# an answer", whole, "# a message that was not taken", refused, "# settings", tree(page)])
    if os.environ.get("WRITE_GOLDEN"):
        open(GOLDEN, "w", encoding="utf-8").write(got)
    want = open(GOLDEN, encoding="utf-8").read()
    assert got == want, "".join(difflib.unified_diff(want.splitlines(True), got.splitlines(True), "golden", "page", n=2))[:6000]
    tools.shutdown()


def pictures(page, server, folder):
    server.script = [({"reasoning_content": "The user wants an overview."}, 0)] + tokens(MARKDOWN)
    say(page, "Show me what Markdown looks like here.")
    for width in 360, 800, 1400:
        for scheme in "light", "dark":
            page.set_viewport_size({"width": width, "height": 800})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page is wider than the screen"
            page.screenshot(path=os.path.join(folder, "page-%d-%s.png" % (width, scheme)))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("page"); p.add_argument("--pictures"); p.add_argument("--server"); p.add_argument("--several"); p.add_argument("--only", default="")
    o = p.parse_args()
    server = Server(("127.0.0.1", 0), Handler)
    server.page = o.page
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = "http://127.0.0.1:%d/" % server.server_port
    failed = 0
    with sync_playwright() as w:
        browser = w.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"])
        tests = [(k, f) for k, f in globals().items() if k.startswith("test_") and o.only in k]
        if o.pictures: tests.append(("pictures", lambda page, server: pictures(page, server, o.pictures)))
        for name, f in tests:
            server.script, server.asked, server.gone = [], [], 0
            server.key, server.model, server.down, server.sees = None, "tiny-model", False, "picture" in name
            server.several = {}
            context = browser.new_context(viewport={"width": 1000, "height": 700})
            page, said = context.new_page(), []
            page.set_default_timeout(15000)
            page.on("console", lambda m: said.append(m.text) if m.type == "error" and "Failed to load resource" not in m.text
                    and not (name.startswith("test_tools") and re.search("Content Security Policy|CORS", m.text)) else None)
            page.on("pageerror", lambda e: said.append(str(e)))
            try:
                page.goto(url)
                until(page, "document.getElementById('state').innerText === 'ready'")
                f(page, server)
                assert not said, said
                print("ok     ", name)
            except Exception as e:
                failed += 1
                at = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__][-1]
                print("FAILED ", name, "line", at, type(e).__name__, str(e)[:600])
            context.close()
        if o.server:
            page = browser.new_page()
            page.goto(o.server)
            until(page, "document.getElementById('state').innerText === 'ready'", 60)
            say(page, "Say hello.")
            print("ok      the server says:", text_of(page)[:60].replace("\n", " "))
        if o.several:
            page = browser.new_page()
            page.goto(o.several)
            page.wait_for_selector("#models:not([hidden])")
            names = page.evaluate("[...document.querySelectorAll('#models option')].map((e) => e.value)")
            for name in names:
                page.select_option("#models", name)
                until(page, "document.getElementById('state').innerText === 'ready'", 60)
                assert name + " (loaded)" in page.locator("#models option").all_inner_texts()
                say(page, "Say hello.")
                assert page.locator("#error").is_hidden() and name + ", " in page.locator(".assistant .acts").last.inner_text(), page.inner_text("#error")
            print("ok      one of several after the other:", ", ".join(names))
        browser.close()
    sys.exit(failed != 0)


main()
