#!/usr/bin/env python3
"""A page of another origin asks infer serve in headless Chromium, with the headers that openai's and Anthropic's clients for JavaScript send from
a browser: preflights, a whole answer, a stream read as it comes, an error, and the headers that a page may read. Needs playwright from PyPI
and a Chromium; scripts/test-page gets them. usage: serve_browser.py INFER TESTS INFER"""
import http.server, os, threading
from playwright.sync_api import sync_playwright
from serve_client import *

# openai-node (src/client.ts, src/internal/detect-platform.ts) and anthropic-sdk-typescript (the same files, src/lib/MessageStream.ts) of 2026
BOTH = {"Accept": "application/json", "Content-Type": "application/json", "X-Stainless-Lang": "js", "X-Stainless-Package-Version": "6.0.0", "X-Stainless-OS": "Unknown",
        "X-Stainless-Arch": "unknown", "X-Stainless-Runtime": "browser:chrome", "X-Stainless-Runtime-Version": "140.0.0", "X-Stainless-Retry-Count": "0", "X-Stainless-Timeout": "600"}
OPENAI = {**BOTH, "User-Agent": "OpenAI/JS 6.0.0", "Authorization": "Bearer secret-key", "OpenAI-Organization": "org", "OpenAI-Project": "project"}
ANTHROPIC = {**BOTH, "User-Agent": "Anthropic/JS 0.70.0", "X-Api-Key": "secret-key", "anthropic-version": "2023-06-01", "anthropic-beta": "context-management-2025-06-27",
             "anthropic-dangerous-direct-browser-access": "true", "X-Stainless-Helper-Method": "stream"}
ASK = """async ([url, headers, body]) => {
    try {
        const r = await fetch(url, body ? {method: "POST", headers, body: JSON.stringify(body)} : {headers});
        const reader = r.body.getReader(), decoder = new TextDecoder();
        let text = "", parts = 0;
        for (;;) {
            const {done, value} = await reader.read();
            if (done) break;
            text += decoder.decode(value, {stream: true});
            parts++;
        }
        return {status: r.status, text, parts, headers: Object.fromEntries(r.headers)};
    } catch (e) { return {error: String(e)}; }
}"""

class Page(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another origin</title>")

site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=site.serve_forever, daemon=True).start()
origin = f"http://chat.example:{site.server_port}"

def ways(ask):
    talk = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}
    for name, path, headers, end in (("openai", "/v1/chat/completions", OPENAI, "data: [DONE]"), ("anthropic", "/v1/messages", ANTHROPIC, '"type":"message_stop"')):
        seen = ask(path, headers, talk)
        same(f"{name}: status", seen.get("status"), 200)
        got = seen.get("headers", {})
        check(f"{name}: its id", got.get("x-request-id") and got["x-request-id"] == got.get("request-id"), seen)
        seen = ask(path, headers, {**talk, "user": "a", "max_tokens": 64, "ignore_eos": True, "stream": True})
        check(f"{name}: a stream in parts to its end", seen.get("parts", 0) > 3 and seen["text"].rstrip().endswith(end) or end in seen.get("text", "")[-80:], seen)
        seen = ask(path, {**headers, "X-Stainless-Retry-Count": "1", "Idempotency-Key": "k"}, {**talk, "unknown_field": 1})
        check(f"{name}: warnings", "unknown_field" in seen.get("headers", {}).get("x-infer-warning", ""), seen)
        seen = ask(path, headers, {**talk, "messages": []})
        check(f"{name}: an error is read", seen.get("status") == 400 and "messages" in seen["text"], seen)
        seen = ask("/v1/models", headers, None)
        check(f"{name}: models", seen.get("status") == 200 and '"data"' in seen["text"], seen)
        seen = ask(path, {k: v for k, v in headers.items() if k not in ("Authorization", "X-Api-Key")}, talk)
        same(f"{name}: without a key", seen.get("status"), 401)

with sync_playwright() as w:
    browser = w.chromium.launch(executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox", "--host-resolver-rules=MAP chat.example 127.0.0.1"])
    for listed in (True, False):
        s = Server("--cors-origin", origin if listed else "https://other.example", "--key-max", "1", env={"INFER_API_KEY": "secret-key"})
        page = browser.new_page()
        page.goto(origin + "/")
        def ask(path, headers, body): return page.evaluate(ASK, [f"http://127.0.0.1:{s.port}{path}", headers, body])
        if listed:
            ways(ask)
            held = socket.create_connection(("127.0.0.1", s.port), 20) # the key has as many requests as it may
            held.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nx-api-key: secret-key\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
            check("its head is there", held.recv(100).startswith(b"HTTP/1.1 100"))
            seen = ask("/v1/messages", ANTHROPIC, {})
            same("when to come again", (seen.get("status"), seen.get("headers", {}).get("retry-after"), seen.get("headers", {}).get("retry-after-ms")), (429, "3", "3000"))
            held.close()
        else:
            check("a page of another origin reads nothing", "Failed to fetch" in ask("/v1/models", OPENAI, None).get("error", ""))
        page.close()
        s.stop()
    browser.close()
done()
