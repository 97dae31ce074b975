"use strict";
// The page of infer: conversations with one model. No library, nothing from elsewhere; all text goes into the document as text nodes.

const byId = (id) => document.getElementById(id);

/** element("p", {class: "note", text: "..", on: {click: f}, title: ".."}, child, ..): null children are left out. */
function element(name, properties = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") e.textContent = value;
    else if (key === "on") for (const [type, f] of Object.entries(value)) e.addEventListener(type, f);
    else e.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) if (child) e.append(child);
  return e;
}

const button = (text, f, properties = {}) => element("button", {type: "button", text, on: {click: f}, ...properties});

/** Characters that turn the direction of what stands around them are shown instead of obeyed. */
function visible(text) {
  return text.replace(/[\u202a-\u202e\u2066-\u2069\u200e\u200f]/g,
                      (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase() + "\u27e9");
}

function copyText(text, from) {
  const done = () => {
    const before = from.textContent;
    from.textContent = "Copied";
    setTimeout(() => { from.textContent = before; }, 1500);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
}

/** What this browser remembers; one that keeps nothing forgets. */
const remembered = {
  get(name) {
    try {
      return localStorage.getItem(name);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      localStorage.setItem(name, value);
    } catch { /* until this tab is closed */ }
  },
};

function seconds(ms) {
  return ms < 10000 ? (ms / 1000).toFixed(1) + " s" : ms < 100000 ? Math.round(ms / 1000) + " s"
    : Math.floor(ms / 60000) + " min " + Math.round(ms % 60000 / 1000) + " s";
}

function bytes(n) {
  return n < 1e3 ? n + " B" : n < 1e6 ? (n / 1e3).toFixed(1) + " kB" : (n / 1e6).toFixed(1) + " MB";
}
