// ---- what can be done ----

const actions = {
  running: null, // the message that is being answered, or whose call runs
  called: null,  // that call
  stopper: null,

  open(c) {
    if (this.running) return;
    store.current = c;
    view.error("");
    view.context(0);
    view.conversations();
    view.talk();
    side(false);
    byId("ask").focus();
  },

  keep() {
    const trouble = store.save();
    if (trouble) view.error(trouble);
    view.conversations();
  },

  drop(c) {
    if (this.running || !confirm("Delete \u201c" + c.title + "\u201d?")) return;
    store.drop(c);
    this.keep();
    view.talk();
    byId("new").focus();
  },

  /** A message that the server did not take goes back to the field it came from. */
  async send(text, beside) {
    const c = store.current || store.begin(), way = path(c), last = way[way.length - 1], title = c.title, ask = byId("ask");
    if (!way.length) c.title = text.trim().split("\n")[0].slice(0, 60) || (beside.files.length ? beside.files[0].name : "Picture");
    const mine = addNode(c, last ? last.id : null, "user", text, beside);
    const n = await this.answer(c);
    if (n && (!n.error || n.text || n.thought || n.calls.length)) return;
    if (n) delete c.nodes[n.id];
    delete c.nodes[mine.id];
    c.leaf = mine.parent;
    c.title = title;
    ask.value = ask.value ? text + "\n" + ask.value : text;
    enclosed.giveBack(beside);
    grow(ask);
    this.keep();
    view.talk();
  },

  edit(n) { view.editor(n); },

  resend(n, text) {
    const c = store.current;
    if (!text.trim() && !n.pictures.length && !n.files.length || this.running) return;
    addNode(c, n.parent, "user", text, n);
    this.answer(c);
  },

  again(n) {
    store.current.leaf = n.parent;
    this.answer(store.current);
  },

  goOn(n) { this.answer(store.current, n); },

  version(n, other) {
    if (!other) return;
    const label = document.activeElement.getAttribute("aria-label");
    store.current.leaf = newestLeaf(store.current, other.id);
    this.keep();
    view.talk();
    const again = [...byId("m-" + other.id).querySelectorAll(".acts button:enabled")];
    (again.find((b) => b.getAttribute("aria-label") === label) || again[0]).focus();
  },

  stop() { if (this.stopper) this.stopper.abort(); },

  /** The user wants this call made. Stop leaves it as it was. */
  async allow(c, n, call) {
    if (this.running || call.result !== undefined || !tools.has(call.name)) return;
    this.running = n, this.called = call, this.stopper = new AbortController();
    view.error("");
    view.busy(true);
    view.talk();
    byId("stop").focus();
    let given = null;
    try {
      const args = JSON.parse(call.args || "{}");
      if (!args || typeof args !== "object" || Array.isArray(args)) throw new Error("The arguments are no object.");
      given = await tools.client.call(call.name, args, this.stopper.signal);
    } catch (e) {
      if (e.name !== "AbortError") given = {text: e instanceof SyntaxError ? "The arguments are no JSON." : e.message, failed: true};
    }
    this.running = this.called = this.stopper = null;
    view.busy(false);
    this.settle(c, n, call, given ? given.text : undefined, given && given.failed ? "failed" : "gave");
  },

  refuse(c, n, call) {
    if (!this.running && call.result === undefined) this.settle(c, n, call, REFUSED, "refused");
  },

  /** What came of a call; the model goes on when all of its calls are decided. */
  settle(c, n, call, result, how) {
    if (result !== undefined) call.result = result, call.how = how;
    this.keep();
    if (n.calls.every((other) => other.result !== undefined) && c === store.current && n.id === c.leaf) return this.answer(c);
    view.talk();
    const next = byId("m-" + n.id).querySelector(".call .decide button");
    if (next) next.focus();
  },

  /** Answers the last message; with n that answer is gone on with. Returns the answer, null where nothing was asked. */
  async answer(c, n = null) {
    const goOn = Boolean(n);
    let body;
    view.error("");
    try {
      body = bodyOf(c, path(c), goOn);
    } catch {
      view.error("The JSON schema in the settings is no JSON.");
      view.talk();
      return null;
    }
    if (!n) n = addNode(c, c.leaf, "assistant", "");
    n.error = n.figures = "";
    this.running = n;
    this.stopper = new AbortController();
    this.keep();
    view.talk();
    view.busy(true);
    const live = new Live(c, n), times = {start: performance.now(), first: 0, last: 0, tokens: 0, model: body.model};
    try {
      await server.answer(body, this.stopper.signal, (chunk) => this.take(n, chunk, times, live));
    } catch (e) {
      if (e.name === "AbortError") n.finish = "stopped";
      else n.error = e.message;
      if (e.state) showState(e.state);
    }
    if (n.thought && !n.thoughtMs) n.thoughtMs = performance.now() - (times.thinking || times.start);
    if (!n.figures && times.first) n.figures = this.counted(times);
    if (n.finish === "length") n.figures += (n.figures ? "; " : "") + "ended by the limit of tokens";
    this.running = this.stopper = null;
    view.busy(false);
    live.end();
    view.error(n.error);
    this.keep();
    view.talkActs(c);
    return n;
  },

  /** The figures of an answer that ended before the server told them: what came here. */
  counted(times) {
    const n = times.tokens, s = (times.last - times.first) / 1000;
    return (server.models.length ? times.model + ", " : "") + n + (n === 1 ? " token" : " tokens") +
      (n > 1 && s > 0 ? ", " + ((n - 1) / s).toFixed(1) + " tok/s" : "") + ", first token " + seconds(times.first - times.start);
  },

  take(n, chunk, times, live) {
    if (chunk.prompt_progress) view.progress(chunk.prompt_progress);
    const choice = chunk.choices && chunk.choices[0], delta = choice && choice.delta || {};
    if (choice && choice.finish_reason) n.finish = choice.finish_reason;
    const thought = delta.reasoning_content || "", text = delta.content || "";
    if (thought || text || delta.tool_calls) {
      view.progress(null);
      times.last = performance.now();
      if (!times.first) times.first = times.last;
      times.tokens += choice.token_ids ? choice.token_ids.length : 1;
      if (thought && !times.thinking) times.thinking = performance.now();
      if (text && n.thought && !n.thoughtMs) n.thoughtMs = performance.now() - (times.thinking || times.start);
      n.thought += thought;
      n.text += text;
      for (const part of delta.tool_calls || []) {
        const call = n.calls[part.index] ||= {id: "", name: "", args: ""};
        if (part.id) call.id = part.id;
        if (part.function) call.name += part.function.name || "", call.args += part.function.arguments || "";
      }
      live.changed();
    }
    if (chunk.usage) {
      const u = chunk.usage, t = chunk.timings || {}, right = t.draft_n_accepted, cached = (u.prompt_tokens_details || {}).cached_tokens || 0;
      n.figures = (server.models.length && chunk.model ? chunk.model + ", " : "") + u.completion_tokens + " tokens" + (t.predicted_per_second ? ", " + t.predicted_per_second.toFixed(1) + " tok/s" : "") +
        (right ? ", " + right + " guessed" : "") + (times.first ? ", first token " + seconds(times.first - times.start) : "");
      view.context(u.total_tokens, cached, n.figures);
    }
  },
};

/** The buttons of all messages, which differ while an answer runs. */
view.talkActs = function (c) {
  for (const n of path(c)) {
    const e = byId("m-" + n.id), acts = e && e.querySelector(".acts");
    if (acts) acts.replaceWith(this.acts(c, n));
  }
};

function grow(field) {
  field.style.height = "auto";
  field.style.height = field.scrollHeight + 2 + "px";
}

function settings() {
  const c = store.current || store.begin(), dialog = byId("settings");
  byId("system").value = c.system;
  byId("schema").value = c.schema;
  byId("key").value = sessionStorage.getItem(KEY) || "";
  byId("schema-error").hidden = byId("mcp-error").hidden = true;
  byId("mcp-url").value = remembered.get(TOOLS) || "";
  byId("mcp-key").value = sessionStorage.getItem(TOOLS_KEY) || "";
  byId("params").replaceChildren(...PARAMS.map(([name, title, min, max, step]) => {
    const input = element("input", {type: "number", id: "p-" + name, min, max, step, placeholder: "model's own"});
    input.value = c.params[name] || "";
    return element("label", {text: title + " "}, input);
  }));
  dialog.showModal();
}

function saveSettings(event) {
  event.preventDefault();
  const c = store.current, schema = byId("schema").value;
  try {
    if (schema.trim()) JSON.parse(schema);
  } catch (e) {
    byId("schema-error").textContent = "This is no JSON: " + e.message;
    byId("schema-error").hidden = false;
    byId("schema").focus();
    return;
  }
  const address = byId("mcp-url").value.trim(), other = address !== (remembered.get(TOOLS) || "") || byId("mcp-key").value !== (sessionStorage.getItem(TOOLS_KEY) || "");
  if (address && !toolsUrl(address)) {
    byId("mcp-error").textContent = "This is no address: http://.. or https://.. is one.";
    byId("mcp-error").hidden = false;
    byId("mcp-url").focus();
    return;
  }
  c.system = byId("system").value;
  c.schema = schema;
  c.params = {};
  for (const [name] of PARAMS) if (byId("p-" + name).value) c.params[name] = byId("p-" + name).value;
  const key = byId("key").value;
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
  byId("settings").close();
  actions.keep();
  if (other && !actions.running) return changeTools(address, byId("mcp-key").value);
  showState("connecting");
  look();
}

/** Calls that wait can be run once the tools are known; nothing else is made anew, as it may be read or edited. */
function showCalls() {
  const c = store.current, n = c && c.nodes[c.leaf], e = n && byId("m-" + n.id);
  if (e && n.calls.some((call) => call.result === undefined) && !actions.running) e.replaceWith(view.message(c, n));
}

/** Another server of tools: the page is loaded again, as its policy names the one that it may ask. */
function changeTools(address, key) {
  remembered.set(TOOLS, address);
  if (key && address) sessionStorage.setItem(TOOLS_KEY, key);
  else sessionStorage.removeItem(TOOLS_KEY);
  location.reload();
}

function exportListed() {
  const url = URL.createObjectURL(new Blob([JSON.stringify(store.having(byId("find").value), null, 1)], {type: "application/json"}));
  element("a", {href: url, download: "conversations.json"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

async function importFile(file) {
  try {
    const known = new Set(store.all.map((c) => c.id)), list = checked(JSON.parse(await file.text()));
    for (const c of list) if (known.has(c.id)) c.id = newId();
    store.all = list.concat(store.all);
    actions.keep();
  } catch (e) {
    view.error("These conversations cannot be read: " + e.message);
  }
}

const LOOK_AGAIN = 2000, WHILE_LOADING = 500; // ms

/** The state of the server in the head of the page; the settings open when it comes to want a key. */
function showState(state) {
  const e = byId("state"), before = e.textContent;
  if (before !== state) e.textContent = state;
  e.title = state === UNLOADABLE ? server.why : "";
  if (state === UNLOADABLE && before !== state) view.error("The model " + server.model + " " + UNLOADABLE + ": " + server.why);
  e.dataset.ready = String(state === "ready");
  if (state !== NEEDS_KEY || before === NEEDS_KEY && !actions.running || byId("settings").open) return;
  settings();
  byId("key").focus();
}

async function look() {
  showState(await server.look(byId("state").textContent === "ready"));
  view.models(server.models, server.model);
  byId("picture").hidden = !server.sees;
  const title = server.model || "infer";
  if (byId("model").textContent !== title || !byId("model").title) {
    byId("model").textContent = byId("model").title = title;
    document.title = server.model ? title + " \u2013 infer" : title;
  }
}

/** A model of several is to answer from now on: it is loaded at once. */
async function choose(name) {
  view.error("");
  try {
    await server.load(name);
  } catch (e) {
    view.error(e.message);
    if (e.state) return showState(e.state);
  }
  await look();
}

/** Looks for as long as the page is there; one that nobody sees waits, and an answer that has begun is not disturbed. */
async function watch() {
  const waits = () => server.models.length && byId("state").textContent !== "ready";
  if (!document.hidden && (!actions.running || waits())) await look();
  setTimeout(watch, server.models.some((m) => loadState(m) === "loading") ? WHILE_LOADING : LOOK_AGAIN);
}

// ---- keys, theme, other tabs ----

/** The list of conversations, which narrow windows hide. */
function side(open) {
  byId("side").classList.toggle("open", open);
  byId("menu").setAttribute("aria-expanded", String(open));
}

function begin() {
  if (actions.running) return;
  byId("find").value = "";
  actions.open(store.begin());
  actions.keep();
}

function search() {
  side(true);
  byId("find").focus();
  byId("find").select();
}

function editLast() {
  const asked = store.current ? path(store.current).filter((n) => n.role === "user") : [];
  if (asked.length && !actions.running) actions.edit(asked[asked.length - 1]);
}

/** What Esc ends: a search, the answer, the list over a narrow window. */
function escape(event) {
  if (event.target === byId("find") && byId("find").value) {
    byId("find").value = "";
    view.conversations();
  } else if (actions.running) {
    actions.stop();
  } else if (byId("side").classList.contains("open")) {
    side(false);
    byId("ask").focus();
  }
}

/** The shortcuts; the settings have the list of them. */
function keys(event) {
  if (byId("settings").open || event.isComposing) return;
  const key = event.key.toLowerCase(), control = event.ctrlKey || event.metaKey;
  if (key === "escape") return escape(event);
  const does = control && key === "k" ? search : control && event.shiftKey && key === "o" ? begin : control && key === "/" ? settings
    : key === "arrowup" && event.target === byId("ask") && !byId("ask").value ? editLast : null;
  if (!does) return;
  event.preventDefault();
  does();
}

const THEME = "infer.theme";

/** The theme that was chosen; none: the system's. */
function showTheme() {
  const theme = remembered.get(THEME) || "";
  document.documentElement.dataset.theme = byId("theme").value = theme;
}

function fromAnotherTab(event) {
  if (event.key === THEME) showTheme();
  if (event.key !== STORE) return;
  const shown = JSON.stringify(store.current);
  store.refresh(Boolean(actions.running));
  view.conversations();
  const edited = store.current && document.querySelector("article textarea");
  if (JSON.stringify(store.current) !== shown && !actions.running && !edited) view.talk();
}

function start() {
  const ask = byId("ask"), talk = byId("talk");
  showTheme();
  tools.start().then(showCalls);
  store.load();
  view.conversations();
  view.talk();
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = ask.value;
    if (!text.trim() && enclosed.empty() || actions.running) return;
    ask.value = "";
    grow(ask);
    actions.send(text, enclosed.take());
  });
  enclosed.listen();
  ask.addEventListener("input", () => grow(ask));
  ask.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) event.preventDefault(), byId("form").requestSubmit();
  });
  document.addEventListener("keydown", keys);
  byId("find").addEventListener("input", () => view.conversations());
  byId("theme").addEventListener("change", (event) => {
    remembered.set(THEME, event.target.value);
    showTheme();
  });
  window.addEventListener("storage", fromAnotherTab);
  talk.addEventListener("scroll", () => {
    view.follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 40;
    byId("down").hidden = view.follows;
  }, {passive: true});
  byId("down").addEventListener("click", () => view.toEnd(true));
  byId("models").addEventListener("change", (event) => choose(event.target.value));
  byId("stop").addEventListener("click", () => actions.stop());
  byId("new").addEventListener("click", begin);
  byId("clear").addEventListener("click", () => {
    if (actions.running || !confirm("Delete all " + store.all.length + " conversations from this browser?")) return;
    store.all = [], store.current = null;
    actions.keep();
    view.talk();
  });
  byId("export").addEventListener("click", exportListed);
  byId("import").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", (event) => {
    if (event.target.files[0]) importFile(event.target.files[0]);
    event.target.value = "";
  });
  byId("menu").addEventListener("click", () => side(!byId("side").classList.contains("open")));
  byId("settings-open").addEventListener("click", settings);
  byId("settings-cancel").addEventListener("click", () => byId("settings").close());
  byId("settings-form").addEventListener("submit", saveSettings);
  ask.focus();
  watch();
}
start();
