// ---- what is seen ----

const view = {
  follows: true, // the reader is at the end: it stays in sight

  conversations() {
    const list = byId("list"), found = store.having(byId("find").value), all = store.all.length;
    list.replaceChildren();
    for (const c of found)
      list.append(element("li", {},
        button(c.title, () => actions.open(c), {class: "pick", "aria-current": c === store.current ? "true" : null}),
        button("\u00d7", () => actions.drop(c), {"aria-label": "Delete " + c.title})));
    byId("size").textContent = (found.length < all ? found.length + " of " : "") + all + (all === 1 ? " conversation, " : " conversations, ") +
      bytes(store.size()) + " in this browser";
  },

  talk() {
    const talk = byId("talk"), c = store.current;
    talk.replaceChildren();
    byId("spoken").textContent = ""; // of another answer
    const way = c ? path(c) : [];
    if (!way.length) talk.append(element("p", {class: "hello", text: "What you write stays between this browser and the server."}));
    for (const n of way) talk.append(this.message(c, n));
    this.toEnd(true);
  },

  message(c, n) {
    const body = element("div", {class: "body", dir: "auto"}),
          e = element("article", {class: n.role, id: "m-" + n.id, "aria-label": n.role === "user" ? "You" : "Answer"},
                      element("h3", {text: n.role === "user" ? "You" : "Answer"}));
    if (n.pictures.length) e.append(element("div", {class: "pictures"}, ...n.pictures.map(thumbnail)));
    e.append(...n.files.map((f) => this.file(f)));
    if (n.role === "user") body.textContent = visible(n.text);
    else {
      if (n.thought) e.append(this.thought(n));
      new Growing(body).add(n.text, true);
      for (const call of n.calls) if (call) body.append(this.call(c, n, call));
    }
    e.append(body);
    if (n.error) e.append(element("p", {class: "bad", text: n.error}));
    if (n !== actions.running) e.append(this.acts(c, n));
    return e;
  },

  /** A file of a message, made when it is opened. */
  file(f) {
    const e = element("details", {class: "file"}, element("summary", {text: visible(f.name) + ", " + bytes(f.text.length)}));
    e.addEventListener("toggle", () => e.append(codeBlock(f.text, ending(f.name), true).figure), {once: true});
    return e;
  },

  thought(n) {
    const inner = element("div", {text: visible(n.thought)});
    inner.style.whiteSpace = "pre-wrap";
    return element("details", {}, element("summary", {text: this.thoughtTitle(n)}), inner);
  },
  thoughtTitle: (n) => (n.thoughtMs ? "Thought for " + seconds(n.thoughtMs) : "Thinking"),

  /** A call with its arguments; what came of it, or what can be done. */
  call(c, n, call) {
    let args = call.args;
    try {
      args = JSON.stringify(JSON.parse(args), null, 2);
    } catch { /* as it came */ }
    const e = element("section", {class: "call", "aria-label": "Call of " + visible(call.name)}, element("p", {class: "note", text: "Asks for the tool " + visible(call.name) + "."}),
                      codeBlock(args, "json", true).figure);
    if (call.result !== undefined) {
      e.append(element("p", {class: call.how === "failed" ? "bad" : "note", text: {gave: "You allowed it. It gave:", failed: "You allowed it. It failed:", refused: "You did not allow it."}[call.how]}));
      if (call.how !== "refused") e.append(element("details", {}, element("summary", {text: bytes(call.result.length)}), codeBlock(call.result, "", true).figure));
    } else if (n.id !== c.leaf || !tools.has(call.name)) {
      e.append(element("p", {class: "note", text: n.id !== c.leaf ? "It was not run." : tools.client ? "Its server has no such tool: nothing is run." : "Nothing is run: Settings has a field for a server with tools."}));
    } else if (n === actions.running) {
      if (actions.called === call) e.append(element("p", {class: "note", text: "It runs."}));
    } else {
      e.append(element("div", {class: "decide"}, button("Run it", () => actions.allow(c, n, call), {"aria-label": "Run " + visible(call.name) + " with these arguments"}),
                       button("Do not", () => actions.refuse(c, n, call), {"aria-label": "Do not run " + visible(call.name)})));
    }
    return e;
  },

  acts(c, n) {
    const acts = element("div", {class: "acts"}), all = versions(c, n), at = all.indexOf(n), busy = Boolean(actions.running);
    const act = (text, f, label) => acts.append(button(text, f, {disabled: busy, "aria-label": label}));
    if (all.length > 1) {
      acts.append(button("\u2039", () => actions.version(n, all[at - 1]), {disabled: busy || at === 0, "aria-label": "Version before"}),
                  element("span", {text: at + 1 + "/" + all.length}),
                  button("\u203a", () => actions.version(n, all[at + 1]), {disabled: busy || at + 1 === all.length, "aria-label": "Next version"}));
    }
    const copy = button("Copy", () => copyText(n.text, copy), {"aria-label": n.role === "user" ? "Copy message" : "Copy answer"});
    acts.append(copy);
    if (n.role === "user") act("Edit", () => actions.edit(n), "Edit message");
    else {
      act("Again", () => actions.again(n), "Answer again");
      if (n.id === c.leaf && n.text && !n.calls.length) act("Continue", () => actions.goOn(n), "Continue the answer");
      acts.append(element("span", {text: n.figures}));
    }
    return acts;
  },

  /** The message becomes a field; what is sent is another version of it. */
  editor(n) {
    const e = byId("m-" + n.id), field = element("textarea", {rows: "4", "aria-label": "Edited message"});
    field.value = n.text;
    const away = () => { this.talk(); byId("ask").focus(); };
    e.querySelector(".body").replaceChildren(field);
    e.querySelector(".acts").replaceChildren(button("Send", () => actions.resend(n, field.value)), button("Cancel", away));
    field.addEventListener("keydown", (event) => { if (event.key === "Escape") away(); });
    field.focus();
  },

  toEnd(always = false) {
    const talk = byId("talk");
    if (always) this.follows = true;
    if (this.follows) talk.scrollTop = talk.scrollHeight;
    byId("down").hidden = this.follows;
  },

  error(text) {
    byId("error").textContent = text;
    byId("error").hidden = !text;
  },

  context(used, cached, words) {
    byId("context").hidden = !used;
    byId("used").value = server.context ? Math.min(1, used / server.context) : 0;
    byId("figures").textContent = used + (server.context ? " of " + server.context : "") + " tokens" +
      (cached ? ", " + cached + " from the cache" : "") + (words ? "; " + words : "");
  },

  /** The models of several, each with its state; a select that is open is left alone where nothing changed. */
  models(all, chosen) {
    const select = byId("models"), rows = all.map((m) => [m.id, loadState(m)]), now = JSON.stringify([rows, chosen]);
    select.hidden = !all.length;
    byId("model").classList.toggle("unseen", all.length > 0);
    if (select.dataset.now === now) return;
    select.dataset.now = now;
    select.replaceChildren(...rows.map(([id, state]) =>
      element("option", {value: id, text: visible(id) + (state === "unloaded" ? "" : " (" + state + ")")})));
    select.value = chosen;
  },

  progress(p) {
    byId("progress").hidden = !p;
    if (!p) return;
    const left = p.processed > (p.cache || 0) ? p.time_ms * (p.total - p.processed) / (p.processed - (p.cache || 0)) : 0;
    byId("bar").value = p.total ? p.processed / p.total : 0;
    byId("eta").textContent = "reading the prompt: " + p.processed + " of " + p.total + " tokens" + (left > 1000 ? ", " + seconds(left) + " left" : "");
  },

  /** Send and Stop stand for each other, for who has the focus on them, too. */
  busy(on) {
    const from = byId(on ? "send" : "stop"), focused = document.activeElement === from;
    from.hidden = true;
    byId(on ? "stop" : "send").hidden = false;
    if (focused) byId(on ? "stop" : "ask").focus();
    if (!on) this.progress(null);
  },
};

/** What is read out of a part of an answer: text without the marks of Markdown, formulas, of code that it is there; nothing that takes the focus. */
function said(part) {
  const e = element("div");
  new Growing(e).add(part, true);
  for (const figure of e.querySelectorAll("figure")) figure.replaceWith(element("p", {text: "Code."}));
  for (const a of e.querySelectorAll("a")) a.replaceWith(a.textContent);
  for (const other of e.querySelectorAll("[tabindex]")) other.removeAttribute("tabindex"), other.removeAttribute("class"); // (what scrolls takes the focus, too)
  return e.childNodes;
}

/** One answer while it comes: what has come is shown once a frame. */
class Live {
  constructor(c, n) {
    this.c = c;
    this.n = n;
    this.spoken = n.text.length;
    this.frame = 0;
    this.element = byId("m-" + n.id);
    this.body = this.element.querySelector(".body");
    this.body.replaceChildren();
    this.body.classList.add("busy");
    this.growing = new Growing(this.body);
    this.details = this.element.querySelector("details");
    this.thoughtNode = null;
    if (n.text) this.growing.add(n.text);
  }

  changed() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.show());
  }

  show() {
    this.frame = 0;
    const n = this.n;
    if (n.thought) {
      if (!this.thoughtNode) {
        if (this.details) this.details.remove();
        this.thoughtNode = document.createTextNode("");
        const inner = element("div", {}, this.thoughtNode);
        inner.style.whiteSpace = "pre-wrap";
        this.details = element("details", {}, element("summary", {text: "Thinking"}), inner);
        this.body.before(this.details);
        this.shown = 0;
      }
      if (n.thought.length > this.shown) {
        this.thoughtNode.appendData(visible(n.thought.slice(this.shown)));
        this.shown = n.thought.length;
      }
      if (n.thoughtMs) this.details.firstChild.textContent = view.thoughtTitle(n);
    }
    if (n.text !== this.growing.text) this.growing.add(n.text);
    this.speak(false);
    view.toEnd();
  }

  /** Whole sentences for those who listen. */
  speak(all) {
    const rest = this.n.text.slice(this.spoken), end = all ? rest.length : Math.max(rest.lastIndexOf(". "), rest.lastIndexOf("\n")) + 1;
    if (end < 1 || !all && end < 80) return;
    const part = rest.slice(0, end);
    if (!all && (part.match(/^ {0,3}(```|~~~)/gm) || []).length % 2) return; // within code
    byId("spoken").replaceChildren(...said(part));
    this.spoken += end;
  }

  end() {
    if (this.frame) cancelAnimationFrame(this.frame), this.show();
    this.speak(true);
    const calls = this.n.calls.filter(Boolean).map((call) => call.name);
    if (calls.length) byId("spoken").append(" Asks for " + visible(calls.join(", ")) + ".");
    const fresh = view.message(this.c, this.n);
    if (this.details && this.details.open) fresh.querySelector("details").open = true;
    this.element.replaceWith(fresh);
    view.toEnd();
  }
}
