// ---- conversations, kept in this browser ----
//
// A conversation is a tree: a node knows its parent, children of one parent are versions of one message, and `leaf` says which
// path is shown. {id, title, system, schema, params: {name: text}, nodes: {id: node}, leaf}
// node: {id, parent, role, text, pictures: [data: URL], files: [{name, text}], thought, thoughtMs, calls, finish, figures, error, time}
// call: {id, name, args: JSON as it came; result, how: "gave", "failed" or "refused", once the user has decided}

const STORE = "infer.conversations";

const store = {
  all: [],
  current: null,

  load() {
    try {
      this.all = checked(JSON.parse(localStorage.getItem(STORE) || "[]"));
    } catch {
      this.all = [];
    }
  },

  /** The words that say what could not be kept, or "". Pictures and files go first, of the oldest conversation first. */
  save() {
    const kept = this.all.map((c) => JSON.stringify(c)), last = this.all.indexOf(this.current);
    if (this.write(kept)) return "";
    for (const i of [...this.all.keys()].reverse().filter((k) => k !== last).concat(last < 0 ? [] : last)) {
      if (!Object.values(this.all[i].nodes).some((n) => n.pictures.length || n.files.length)) continue;
      kept[i] = JSON.stringify(this.all[i], (key, value) => (["pictures", "files"].includes(key) ? undefined : value));
      if (this.write(kept))
        return "The browser has no room for the pictures and files of " + (i === last ? "this conversation" : "older conversations") +
          ": they are kept until this tab is closed.";
    }
    return "The browser has no room for more conversations: export and delete some.";
  },

  write(list) {
    try {
      localStorage.setItem(STORE, "[" + list.join(",") + "]");
      return true;
    } catch {
      return false;
    }
  },

  size() {
    return (localStorage.getItem(STORE) || "").length;
  },

  begin() {
    const last = this.current;
    this.current = {id: newId(), title: "New conversation", system: last ? last.system : "", schema: "",
                    params: last ? {...last.params} : {}, nodes: {}, leaf: null};
    this.all.unshift(this.current);
    return this.current;
  },

  /** Those with every word of a text in their title or in a message. */
  having(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return this.all;
    return this.all.filter((c) => {
      const all = [c.title, ...Object.values(c.nodes).map((n) => n.text)].join("\n").toLowerCase();
      return words.every((w) => all.includes(w));
    });
  },

  /** Another tab has saved: what it has is taken over, but for a conversation that is being answered here, and what there was no room for. */
  refresh(running) {
    const mine = this.current, before = new Map(this.all.map((c) => [c.id, c.nodes]));
    this.load();
    for (const c of this.all)
      for (const n of Object.values(c.nodes)) {
        const old = (before.get(c.id) || {})[n.id];
        if (old && !n.pictures.length) n.pictures = old.pictures;
        if (old && !n.files.length) n.files = old.files;
      }
    const at = mine ? this.all.findIndex((c) => c.id === mine.id) : -1;
    if (running && mine) this.all.splice(Math.max(at, 0), at < 0 ? 0 : 1, mine);
    this.current = running ? mine : this.all[at] || null;
  },

  drop(c) {
    this.all = this.all.filter((other) => other !== c);
    if (this.current === c) this.current = null;
  },
};

function newId() {
  const a = new Uint32Array(2);
  crypto.getRandomValues(a);
  return a[0].toString(36) + a[1].toString(36);
}

/** Only what has the shape of conversations: files come from anywhere. */
function checked(list) {
  if (!Array.isArray(list)) throw new Error("this is no list of conversations");
  const text = (v) => (typeof v === "string" ? v : "");
  return list.filter((c) => c && typeof c === "object").map((c) => {
    const nodes = {}, given = c.nodes && typeof c.nodes === "object" ? c.nodes : {};
    for (const [id, n] of Object.entries(given))
      if (n && ["user", "assistant"].includes(n.role))
        nodes[id] = {id, parent: text(n.parent) || null, role: n.role, text: text(n.text), pictures: checkedPictures(n.pictures), files: checkedFiles(n.files),
                     thought: text(n.thought),
                     thoughtMs: Number(n.thoughtMs) || 0, calls: Array.isArray(n.calls) ? n.calls.map(checkedCall) : [],
                     finish: text(n.finish), figures: text(n.figures), error: text(n.error), time: Number(n.time) || 0};
    const params = {};
    for (const [k, v] of Object.entries(c.params || {})) if (typeof v === "string") params[k] = v;
    return {id: text(c.id) || newId(), title: text(c.title) || "Conversation", system: text(c.system), schema: text(c.schema),
            params, nodes, leaf: nodes[c.leaf] ? c.leaf : null};
  });
}

function checkedPictures(list) {
  return (Array.isArray(list) ? list : []).filter((url) => typeof url === "string" && url.startsWith("data:image/"));
}

function checkedFiles(list) {
  return (Array.isArray(list) ? list : []).filter((f) => f && typeof f.name === "string" && typeof f.text === "string")
    .map(({name, text}) => ({name, text}));
}

function checkedCall(call) {
  const c = {id: String(call && call.id || ""), name: String(call && call.name || ""), args: String(call && call.args || "")};
  if (call && typeof call.result === "string") c.result = call.result, c.how = ["gave", "failed", "refused"].includes(call.how) ? call.how : "gave";
  return c;
}

/** The messages on the way from the first to the one that is shown last. */
function path(c) {
  const way = [], seen = new Set();
  for (let n = c.nodes[c.leaf]; n && !seen.has(n.id); n = c.nodes[n.parent]) {
    seen.add(n.id);
    way.unshift(n);
  }
  return way;
}

function addNode(c, parent, role, text, {pictures = [], files = []} = {}) {
  const n = {id: newId(), parent, role, text, pictures, files, thought: "", thoughtMs: 0, calls: [], finish: "", figures: "", error: "",
             time: Date.now()};
  c.nodes[n.id] = n;
  c.leaf = n.id;
  return n;
}

const versions = (c, n) => Object.values(c.nodes).filter((o) => o.parent === n.parent && o.role === n.role)
  .sort((a, b) => a.time - b.time);

/** The leaf that was written last below a node. */
function newestLeaf(c, id) {
  for (;;) {
    const below = Object.values(c.nodes).filter((n) => n.parent === id).sort((a, b) => b.time - a.time);
    if (!below.length) return id;
    id = below[0].id;
  }
}
