// ---- conversations, kept in this browser ----
//
// A conversation is a tree: a node knows its parent, children of one parent are versions of one message, and `leaf` says which
// path is shown. {id, title, system, schema, params: {name: text}, nodes: {id: node}, leaf}
// node: {id, parent, role, text, pictures: [data: URL], thought, thoughtMs, calls, finish, figures, error, time}

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

  /** The words that say why it could not be kept, or "". */
  save() {
    try {
      localStorage.setItem(STORE, JSON.stringify(this.all));
      return "";
    } catch {
      return this.saveWithout();
    }
  },

  saveWithout() {
    try {
      localStorage.setItem(STORE, JSON.stringify(this.all, (key, value) => (key === "pictures" ? undefined : value)));
      return "The browser has no room for the pictures: they are kept until this tab is closed.";
    } catch {
      return "The browser has no room for more conversations: export and delete some.";
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
        nodes[id] = {id, parent: text(n.parent) || null, role: n.role, text: text(n.text), pictures: checkedPictures(n.pictures), thought: text(n.thought),
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

function checkedCall(call) {
  return {id: String(call && call.id || ""), name: String(call && call.name || ""), args: String(call && call.args || "")};
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

function addNode(c, parent, role, text, shown = []) {
  const n = {id: newId(), parent, role, text, pictures: shown, thought: "", thoughtMs: 0, calls: [], finish: "", figures: "", error: "",
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
