// ---- the server ----

const KEY = "infer.key", NEEDS_KEY = "needs an API key", OFFLINE = "offline";

/** An error in words; state: what it says of the server. */
const failure = (words, state = "") => Object.assign(new Error(words), {state});

function headers() {
  const h = {"Content-Type": "application/json"}, key = sessionStorage.getItem(KEY);
  if (key) h.Authorization = "Bearer " + key;
  return h;
}

/** What went wrong, in words. */
async function refused(response) {
  let said = "";
  try {
    said = (await response.json()).error.message;
  } catch { /* no words of the server's */ }
  if (response.status === 401) return "The server wants an API key: Settings has a field for it. " + said;
  if (response.status === 429) return "The server is busy. " + said;
  if (response.status === 503) return "The server is not ready. " + said;
  return said || "The server answered with status " + response.status + ".";
}

const MODEL = "infer.model", UNLOADABLE = "cannot be loaded"; // MODEL: the one that was chosen here

/** "loaded", "loading", "failed", "unloaded"; a server of one model says nothing of it. */
const loadState = (m) => (!m.status ? "loaded" : m.status.failed ? "failed" : m.status.value);

const server = {
  model: "", context: 0, sees: false,
  why: "", // it cannot be loaded
  models: [], // of a server of several, as /v1/models has them; else empty

  /** The words for the head of the page; known: the model was asked for before. */
  async look(known) {
    try {
      const health = await fetch("health");
      if (health.status === 503) return "loading the model";
      if (known && health.ok && !this.models.length) return "ready";
      const r = await fetch("v1/models", {headers: headers()});
      if (!r.ok) return r.status === 401 ? NEEDS_KEY : "status " + r.status;
      const all = (await r.json()).data;
      this.models = new Set(all.filter((m) => m.status).map((m) => m.path)).size > 1 ? all : [];
      const named = (name) => all.find((m) => m.id === name), of = (state) => all.find((m) => loadState(m) === state);
      return this.take(named(this.model) || this.models.length && named(remembered.get(MODEL)) || all.find((m) => m.pinned) ||
        of("loaded") || of("loading") || of("unloaded") || all[0]);
    } catch {
      return OFFLINE;
    }
  },

  /** What is known of the model that answers next, and the words for it. */
  take(model) {
    this.model = model.id;
    this.context = model.context_length || 0;
    this.sees = (model.input_modalities || []).includes("image");
    this.why = model.status && model.status.error || "";
    return {loaded: "ready", loading: "loading the model", unloaded: "loads when asked"}[loadState(model)] || UNLOADABLE;
  },

  /** Has a model of several loaded; errors are thrown as words. */
  async load(name) {
    remembered.set(MODEL, name);
    this.model = name;
    const r = await fetch("models/load", {method: "POST", headers: headers(), body: JSON.stringify({model: name})})
      .catch(() => { throw failure("The server cannot be reached.", OFFLINE); });
    if (!r.ok) throw failure(await refused(r), r.status === 401 ? NEEDS_KEY : "");
  },

  /** Sends a conversation and calls on(chunk) for each part of the answer. Errors are thrown as words. */
  async answer(body, signal, on) {
    let response;
    try {
      response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(body), signal});
    } catch (e) {
      if (e.name === "AbortError") throw e;
      throw failure("The server cannot be reached.", OFFLINE);
    }
    if (!response.ok) throw failure(await refused(response), response.status === 401 ? NEEDS_KEY : "");
    const reader = response.body.getReader(), decoder = new TextDecoder();
    let rest = "", ended = false;
    for (;;) {
      const {done, value} = await reader.read().catch((e) => {
        if (e.name === "AbortError") throw e;
        throw new Error("The connection broke before the answer ended.");
      });
      rest += decoder.decode(value, {stream: !done});
      const events = rest.split(/\r?\n\r?\n/);
      rest = events.pop();
      for (const event of events)
        for (const line of event.split(/\r?\n/)) {
          if (!line.startsWith("data:")) continue;
          const data = line.slice(5).trim();
          if (data === "[DONE]") {
            ended = true;
            continue;
          }
          const chunk = JSON.parse(data);
          if (chunk.error) throw new Error(chunk.error.message || "The server gave up.");
          on(chunk);
        }
      if (done) break;
    }
    if (!ended) throw new Error("The connection broke before the answer ended.");
  },
};

const PARAMS = [
  ["temperature", "Temperature", 0, 2, 0.05], ["top_p", "Top p", 0, 1, 0.01], ["top_k", "Top k", 0, 1000, 1],
  ["min_p", "Min p", 0, 1, 0.01], ["repeat_penalty", "Repeat penalty", 0.5, 2, 0.01], ["seed", "Seed", 0, 2147483647, 1],
  ["max_tokens", "Most tokens", 1, 1000000, 1],
];

const REFUSED = "The user did not allow this call.";

/** The body of a request for the messages of a way; go_on: the last one is gone on with. */
function bodyOf(c, way, goOn) {
  const messages = c.system ? [{role: "system", content: c.system}] : [];
  for (const n of way) {
    const calls = n === way[way.length - 1] && n.calls.some((call) => call.result === undefined) ? [] : n.calls;
    if (n.role === "assistant" && n.error && !n.text && !calls.length) continue;
    const shown = n.pictures.map((url) => ({type: "image_url", image_url: {url}})), text = n.files.map(fenced).join("") + n.text;
    const m = {role: n.role, content: shown.length ? shown.concat({type: "text", text}) : text};
    if (goOn && n.thought && n === way[way.length - 1]) m.reasoning_content = n.thought;
    if (calls.length) m.tool_calls = calls.map(({id, name, args}) => ({id, type: "function", function: {name, arguments: args}}));
    messages.push(m);
    for (const call of calls) messages.push({role: "tool", tool_call_id: call.id, name: call.name, content: call.result === undefined ? REFUSED : call.result});
  }
  const body = {messages, stream: true, stream_options: {include_usage: true}, return_progress: true, return_token_ids: true};
  if (server.model) body.model = server.model;
  if (tools.client && tools.client.tools.length) body.tools = tools.functions();
  for (const [name] of PARAMS) if (c.params[name]) body[name] = Number(c.params[name]);
  if (c.schema.trim())
    body.response_format = {type: "json_schema", json_schema: {name: "answer", schema: JSON.parse(c.schema)}};
  if (goOn) body.continue_final_message = true, body.add_generation_prompt = false;
  return body;
}
