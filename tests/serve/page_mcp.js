// The page's client of MCP (serve/http/page/mcp.js) before a server that answers as JSON and as streams cut anywhere; its other side, consent, is in page.py.
// usage: node page_mcp.js TESTS
"use strict";
const fs = require("fs"), path = require("path"), http = require("http");
const read = (n) => fs.readFileSync(path.join(process.argv[2], "../serve/http/page", n + ".js"), "utf8");
const {Mcp, toolsUrl} = new Function(read("util") + read("mcp") + "\nreturn {Mcp, toolsUrl};")();

let failed = 0, count = 0;
function same(name, got, want) {
  count++;
  if (JSON.stringify(got) !== JSON.stringify(want)) failed++, console.log("FAILED: " + name + ":\n  " + JSON.stringify(got) + "\n  is not\n  " + JSON.stringify(want));
}
async function fails(name, promise, words) {
  const said = await promise.then(() => "nothing", (e) => e.message);
  same(name, said.includes(words) ? words : said, words);
}

const seen = [];
let session = "one", script = null; // script(message): what is sent, or null
const server = http.createServer(async (request, response) => {
  let text = "";
  for await (const part of request) text += part;
  const m = JSON.parse(text), reply = (result, more = {}) => JSON.stringify({jsonrpc: "2.0", id: m.id, result, ...more});
  seen.push({method: m.method, result: m.result, session: request.headers["mcp-session-id"], version: request.headers["mcp-protocol-version"]});
  const json = (body, headers = {}) => response.writeHead(200, {"Content-Type": "application/json", ...headers}).end(body);
  if (m.method === "initialize") return json(reply({protocolVersion: "2025-06-18"}), {"Mcp-Session-Id": session});
  if (request.headers["mcp-session-id"] !== session) return response.writeHead(404).end();
  if (m.id === undefined || m.method === undefined) return response.writeHead(202).end();
  if (m.method === "tools/list") return json(reply(m.params.cursor ? {tools: [{name: "b"}, {name: 5}, null]} : {tools: [{name: "a", description: "A", inputSchema: {type: "object", required: ["x"]}}], nextCursor: "n"}));
  const said = script(m, reply);
  if (typeof said === "string") return json(said);
  response.writeHead(200, {"Content-Type": "text/event-stream"});
  for (const piece of said) {
    response.write(piece);
    await new Promise((go) => setImmediate(go));
  }
  response.end();
});

async function main() {
  await new Promise((go) => server.listen(0, "127.0.0.1", go));
  const url = "http://127.0.0.1:" + server.address().port + "/mcp", client = new Mcp(url, "");
  await client.start();
  same("its requests", seen.map((s) => [s.method, s.session, s.version]), [["initialize", undefined, undefined], ["notifications/initialized", "one", "2025-06-18"], ["tools/list", "one", "2025-06-18"],
                                                                          ["tools/list", "one", "2025-06-18"]]);
  same("tools of all pages", client.asFunctions(), [{type: "function", function: {name: "a", description: "A", parameters: {type: "object", required: ["x"]}}},
                                                    {type: "function", function: {name: "b", parameters: {type: "object"}}}]);
  same("has", [client.has("a"), client.has("c")], [true, false]);

  script = (m, reply) => reply({content: [{type: "text", text: JSON.stringify(m.params)}]});
  same("a call", await client.call("a", {x: 1}), {text: '{"name":"a","arguments":{"x":1}}', failed: false});
  script = (m, reply) => reply({content: [], structuredContent: {n: 1}, isError: true});
  same("structured, failed", await client.call("a", {}), {text: '{"n":1}', failed: true});
  script = (m, reply) => reply({content: [{type: "resource", resource: {uri: "u", text: "r"}}, {type: "audio"}]});
  same("other parts", (await client.call("a", {})).text, "r\n[audio left out]");

  for (const step of [1, 5, 1000]) {
    script = (m, reply) => {
      const text = ": hello\r\n\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":1000,\"method\":\"ping\"}\n\nid: 4\ndata: " +
        reply({content: [{type: "text", text: "z\u00fcrich"}]}).replace(',"result"', ',\ndata: "result"') + "\n\n";
      const bytes = Buffer.from(text);
      return Array.from({length: Math.ceil(bytes.length / step)}, (_, k) => bytes.subarray(k * step, (k + 1) * step));
    };
    same("a stream cut by " + step, await client.call("a", {}), {text: "z\u00fcrich", failed: false});
  }
  for (const end = Date.now() + 60000; seen.filter((s) => s.result && !s.method).length < 3 && Date.now() < end;) await new Promise((go) => setTimeout(go, 5));
  same("pings are answered", seen.filter((s) => s.result && !s.method).length, 3);
  script = () => ["data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"];
  await fails("a stream without its answer", client.call("a", {}), "gave no answer to tools/call");
  script = (m) => JSON.stringify({jsonrpc: "2.0", id: m.id, error: {code: -32602, message: "no such city"}});
  await fails("an error", client.call("a", {}), "says: no such city");
  script = () => "no JSON";
  await fails("no JSON", client.call("a", {}), "gave no answer");

  session = "two"; // it was started again
  script = (m, reply) => reply({content: [{type: "text", text: "again"}]});
  same("a session that was forgotten", await client.call("a", {}), {text: "again", failed: false});
  const stopper = new AbortController();
  script = () => (stopper.abort(), ["data: "]);
  same("stopped", await client.call("a", {}, stopper.signal).catch((e) => e.name), "AbortError");
  await fails("nobody there", new Mcp("http://127.0.0.1:1/", "").start(), "cannot be reached");

  same("addresses", ["http://a/b", "https://a", "ftp://a", "a", "javascript:1", "http://u:p@a/", ""].map((t) => Boolean(toolsUrl(t))), [true, true, false, false, false, false, false]);
  server.closeAllConnections();
  server.close();
  console.log(count + " checks, " + failed + " failed");
  process.exit(failed ? 1 : 0);
}
main();
