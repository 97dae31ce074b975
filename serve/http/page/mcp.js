// ---- tools of a server that the user names: MCP (Model Context Protocol) over streamable HTTP ----

const TOOLS = "infer.mcp", TOOLS_KEY = "infer.mcp.key", PROTOCOL = "2025-06-18";

/** The address that was entered, as a URL; null: none. Only http and https are addresses. */
function toolsUrl(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:"].includes(url.protocol) && !url.username && !url.password ? url : null;
  } catch {
    return null;
  }
}

/** From here on this page connects to its own server and to that one alone: the header's policy allows any, a policy can only be narrowed. */
function narrow(url) {
  const path = url ? " " + url.origin + url.pathname.replace(/[;,'"\s]/g, encodeURIComponent) : "";
  document.head.append(element("meta", {"http-equiv": "Content-Security-Policy", content: "connect-src 'self'" + path}));
}

/** A client of one server. Errors are thrown as words. */
class Mcp {
  constructor(url, key) {
    this.url = url;
    this.key = key;
    this.session = this.version = "";
    this.tools = []; // {name, description, inputSchema}
    this.last = 0;
  }

  async start(signal) {
    this.session = this.version = "";
    const said = await this.request("initialize", {protocolVersion: PROTOCOL, capabilities: {}, clientInfo: {name: "infer", version: "1"}}, signal);
    this.version = String(said.protocolVersion || PROTOCOL);
    await this.post({jsonrpc: "2.0", method: "notifications/initialized"}, signal);
    const all = [];
    for (let cursor = null, page = 0; page === 0 || cursor && page < 100; page++) {
      const list = await this.request("tools/list", cursor ? {cursor} : {}, signal);
      all.push(...(Array.isArray(list.tools) ? list.tools : []));
      cursor = list.nextCursor;
    }
    this.tools = all.filter((t) => t && typeof t.name === "string" && t.name);
  }

  has(name) { return this.tools.some((t) => t.name === name); }

  /** As requests of chat completions have them. */
  asFunctions() {
    return this.tools.map((t) => ({type: "function", function: {name: t.name, ...(typeof t.description === "string" ? {description: t.description} : {}),
                                                                parameters: t.inputSchema && typeof t.inputSchema === "object" ? t.inputSchema : {type: "object"}}}));
  }

  /** {text, failed}: what a tool gave. A session that the server has forgotten is begun again once. */
  async call(name, args, signal) {
    let said;
    try {
      said = await this.request("tools/call", {name, arguments: args}, signal);
    } catch (e) {
      if (!e.gone) throw e;
      await this.start(signal);
      said = await this.request("tools/call", {name, arguments: args}, signal);
    }
    const parts = (Array.isArray(said.content) ? said.content : []).map((p) => (p && typeof p.text === "string" ? p.text : p && p.resource && typeof p.resource.text === "string" ? p.resource.text
      : "[" + String(p && p.type) + " left out]"));
    return {text: parts.length ? parts.join("\n") : said.structuredContent ? JSON.stringify(said.structuredContent) : "", failed: said.isError === true};
  }

  async post(message, signal) {
    const h = {"Content-Type": "application/json", Accept: "application/json, text/event-stream"};
    if (this.session) h["Mcp-Session-Id"] = this.session;
    if (this.version) h["MCP-Protocol-Version"] = this.version;
    if (this.key) h.Authorization = "Bearer " + this.key;
    const r = await fetch(this.url, {method: "POST", headers: h, body: JSON.stringify(message), signal, credentials: "omit", redirect: "error"}).catch((e) => {
      if (e.name === "AbortError") throw e;
      throw new Error("The server of the tools cannot be reached: it is not there, or does not allow this page (CORS).");
    });
    if (!r.ok) throw Object.assign(new Error("The server of the tools answered with status " + r.status + "."), {gone: r.status === 404 && Boolean(this.session)});
    const session = r.headers.get("Mcp-Session-Id");
    if (session) this.session = session;
    return r;
  }

  async request(method, params, signal) {
    const id = ++this.last, r = await this.post({jsonrpc: "2.0", id, method, params}, signal), kind = r.headers.get("Content-Type") || "";
    const said = kind.includes("text/event-stream") ? await this.answerOf(id, r) : await r.json().catch(() => null);
    const own = (Array.isArray(said) ? said : [said]).find((m) => m && m.id === id);
    if (!own) throw new Error("The server of the tools gave no answer to " + method + ".");
    if (own.error) throw new Error("The server of the tools says: " + String(own.error.message || own.error.code));
    return own.result || {};
  }

  /** The message with this id of a stream; what the server asks meanwhile is refused, but for its pings. */
  async answerOf(id, response) {
    const reader = response.body.getReader(), decoder = new TextDecoder();
    for (let rest = "", end = false; !end;) {
      const {done, value} = await reader.read();
      end = done;
      rest += decoder.decode(value, {stream: !done});
      const events = (done ? rest + "\n\n" : rest).split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).replace(/^ /, "")).join("\n");
        if (!data) continue;
        const m = JSON.parse(data);
        if (m.id === id && m.method === undefined) {
          reader.cancel().catch(() => {});
          return m;
        }
        if (m.method !== undefined && m.id !== undefined)
          this.post(m.method === "ping" ? {jsonrpc: "2.0", id: m.id, result: {}} : {jsonrpc: "2.0", id: m.id, error: {code: -32601, message: "not here"}}).catch(() => {});
      }
    }
    return null;
  }
}

const tools = {
  client: null, // of the server that was entered
  words: "",    // what is known of it

  has(name) { return Boolean(this.client && this.client.has(name)); },
  functions() { return this.client ? this.client.asFunctions() : []; },

  /** Reads what its server has, once the page is there. */
  async start() {
    const url = toolsUrl(remembered.get(TOOLS) || "");
    narrow(url);
    if (!url) return;
    const client = new Mcp(url.href, sessionStorage.getItem(TOOLS_KEY) || "");
    this.show("Asks " + url.host + " for its tools");
    try {
      await client.start();
      this.client = client;
      this.show("Tools of " + url.host + ": " + (client.tools.map((t) => t.name).join(", ") || "none") + ". Each call is asked for.");
    } catch (e) {
      this.show(e.message);
    }
  },

  show(words) {
    this.words = visible(words);
    byId("tools").textContent = this.words;
    byId("tools").hidden = !words;
  },
};
