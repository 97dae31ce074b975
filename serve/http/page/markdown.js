// ---- Markdown to elements, while it comes ----

const LONG_TEXT = 5000, LONG_CODE = 50000; // characters from which a paragraph or a code block gets no marks

// $$..$$, \[..\], \(..\), and $..$ without spaces within the signs and without a number or word behind them: prices and variables of a shell are none
const FORMULA = /(?<![\\\w$])\$\$([^`]+?)\$\$|(?<!\\)\\\[([^`]+?)\\\]|(?<!\\)\\\(([^`]+?)\\\)|(?<![\\\w$])\$(?![\s$])([^$\n`]*?[^\s$\\`])\$(?!\d|\$|(?!(?:th|st|nd|rd|s)\b)[A-Za-z])/g;

/** The first formula of a text {index, written, tex, display}; null: none. Words between two $ are words. */
function firstFormula(text) {
  for (const m of text.matchAll(FORMULA))
    if (m[4] === undefined || /[\\^_=+<>{}|]/.test(m[4]) || !/\s/.test(m[4]))
      return {index: m.index, written: m[0], tex: m[1] ?? m[2] ?? m[3] ?? m[4], display: (m[1] ?? m[2]) !== undefined};
  return null;
}

/** Text within a paragraph. */
function inline(into, text) {
  const rule = /(`+)([\s\S]*?[^`])\1(?!`)|\\([\\`*_{}[\]()#+\-.!|~<>$])|(\*\*|__)(?=\S)([\s\S]*?\S)\4|([*_])(?=\S)([\s\S]*?\S)\6(?![\p{L}\p{N}])|~~(?=\S)([\s\S]*?\S)~~|!?\[([^\]]*)\]\(\s*<?([^\s)>]+)>?(?:\s+"[^"]*")?\s*\)|(https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])|( {2,}|\\)\n/u;
  while (text) {
    const short = text.length < LONG_TEXT, m = short ? rule.exec(text) : null, f = short ? firstFormula(text) : null;
    if (f && (!m || f.index <= m.index)) {
      if (f.index) into.append(visible(text.slice(0, f.index)));
      into.append(formula(f.tex, f.display, f.written));
      text = text.slice(f.index + f.written.length);
      continue;
    }
    if (!m) break;
    const inWord = m[6] === "_" && m.index > 0 && /[\p{L}\p{N}]/u.test(text[m.index - 1]);
    if (inWord) { // snake_case is no emphasis
      into.append(visible(text.slice(0, m.index + 1)));
      text = text.slice(m.index + 1);
      continue;
    }
    if (m.index) into.append(visible(text.slice(0, m.index)));
    text = text.slice(m.index + m[0].length);
    if (m[1]) into.append(element("code", {text: visible(m[2].replace(/^ (.*) $/s, "$1"))}));
    else if (m[3]) into.append(m[3]);
    else if (m[4]) inline(within(into, "strong"), m[5]);
    else if (m[6]) inline(within(into, "em"), m[7]);
    else if (m[8]) inline(within(into, "del"), m[8]);
    else if (m[10]) link(into, m[9], m[10]);
    else if (m[11]) link(into, m[11], m[11]);
    else into.append(element("br"));
  }
  if (text) into.append(visible(text));
}

function within(into, name) {
  const e = element(name);
  into.append(e);
  return e;
}

/** Only http and https lead anywhere; the address is shown where it is not the text. */
function link(into, text, address) {
  let url = null;
  try {
    url = new URL(address);
  } catch { /* it stays text */ }
  if (!url || !["http:", "https:"].includes(url.protocol)) {
    into.append(visible(text === address ? text : text + " (" + address + ")"));
    return;
  }
  into.append(element("a", {href: url.href, rel: "noopener noreferrer nofollow", target: "_blank", title: url.href,
                            text: visible(text || url.href)}));
}

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/, ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/, RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/,
      FORMULA_LINE = /^ {0,3}(\$\$|\\\[|\\begin\{([a-z]+\*?)\})/, HEAD = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/, QUOTE = /^ {0,3}> ?/, DASHES = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

/** The end of the block that begins at line i, and what it is. */
function block(lines, i) {
  const line = lines[i], fence = FENCE.exec(line);
  let end = i + 1;
  if (!line.trim()) return {kind: "empty", end};
  if (fence) {
    const close = new RegExp("^ {0,3}" + (fence[1][0] === "`" ? "`" : "~") + "{" + fence[1].length + ",} *$");
    while (end < lines.length && !close.test(lines[end])) end++;
    return {kind: "code", end: Math.min(end + 1, lines.length), closed: end < lines.length, language: fence[2], close};
  }
  if (FORMULA_LINE.test(line)) {
    const f = formulaBlock(lines, i);
    if (f) return f;
  }
  if (HEAD.test(line)) return {kind: "head", end};
  if (RULE.test(line)) return {kind: "rule", end};
  if (QUOTE.test(line)) {
    while (end < lines.length && lines[end].trim() && !FENCE.test(lines[end])) end++;
    return {kind: "quote", end};
  }
  if (ITEM.test(line)) {
    const indent = (l) => /^ */.exec(l)[0].length, own = indent(line), ordered = (l) => /\d/.test(ITEM.exec(l)[2]);
    while (end < lines.length) {
      const next = lines[end].trim() ? lines[end] : lines[end + 1];
      if (next === undefined || !lines[end].trim() && !lines[end + 1].trim()) break;
      const item = ITEM.test(next);
      if (item && indent(next) <= own && ordered(next) !== ordered(line)) break;
      if (!(item && indent(next) >= own) && indent(next) <= own && (!lines[end].trim() || HEAD.test(next) || FENCE.test(next)))
        break;
      end++;
    }
    return {kind: "list", end};
  }
  if (line.includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") && DASHES.test(lines[i + 1])) {
    end = i + 2;
    while (end < lines.length && lines[end].includes("|")) end++;
    return {kind: "table", end};
  }
  while (end < lines.length && lines[end].trim() && !FENCE.test(lines[end]) && !HEAD.test(lines[end]) && !QUOTE.test(lines[end]) &&
         !ITEM.test(lines[end]) && !RULE.test(lines[end]) && !FORMULA_LINE.test(lines[end])) end++;
  return {kind: "text", end};
}

/** A formula that has its lines for itself, to its closing sign; one that is still open is text as far as it goes. null: it is none. */
function formulaBlock(lines, i) {
  const [before, sign, name] = FORMULA_LINE.exec(lines[i]), close = {$$: "$$", "\\[": "\\]"}[sign] || "\\end{" + name + "}";
  for (let end = i; end < lines.length && lines[end].trim(); end++) {
    const at = lines[end].indexOf(close, end === i ? before.length : 0);
    if (at < 0) continue;
    const behind = lines[end].slice(at + close.length);
    if (!/^\s*[.,;:]?\s*$/.test(behind)) return null;
    const written = [...lines.slice(i, end), lines[end].slice(0, at + close.length)].join("\n").trim();
    return {kind: "formula", end: end + 1, written, tex: name ? written : written.slice(2, -2), behind: behind.trim()};
  }
  return lines.slice(i, -1).some((l) => !l.trim()) ? null : {kind: "text", end: lines.length};
}

function blocks(into, lines, depth) {
  for (let i = 0; i < lines.length;) {
    const b = block(lines, i);
    const e = show(b, lines.slice(i, b.end), depth);
    if (e) into.append(e);
    i = b.end;
  }
}

function show(b, lines, depth) {
  if (b.kind === "empty") return null;
  if (b.kind === "code") return codeBlock(lines.slice(1, b.closed ? -1 : undefined).join("\n"), b.language, b.closed).figure;
  if (b.kind === "rule") return element("hr");
  if (b.kind === "formula") {
    const e = element("p", {class: "formula", tabindex: "0"}, formula(b.tex, true, b.written));
    if (b.behind) e.append(b.behind);
    return e;
  }
  if (b.kind === "head") {
    const m = HEAD.exec(lines[0]), e = element("h" + Math.min(6, m[1].length + 3));
    inline(e, m[2]);
    return e;
  }
  if (b.kind === "quote" && depth < 8) {
    const e = element("blockquote");
    blocks(e, lines.map((l) => l.replace(QUOTE, "")), depth + 1);
    return e;
  }
  if (b.kind === "list" && depth < 8) return list(lines, depth);
  if (b.kind === "table") return table(lines);
  const e = element("p");
  inline(e, lines.map((l) => l.replace(/^ +/, "")).join("\n"));
  return e;
}

function list(lines, depth) {
  const first = ITEM.exec(lines[0]), ordered = /\d/.test(first[2]), own = first[1].length;
  const e = element(ordered ? "ol" : "ul", ordered && parseInt(first[2], 10) !== 1 ? {start: parseInt(first[2], 10)} : {});
  for (let i = 0; i < lines.length;) {
    const mark = ITEM.exec(lines[i]), skip = mark ? mark[0].length : 0;
    let end = i + 1;
    while (end < lines.length && !(ITEM.test(lines[end]) && ITEM.exec(lines[end])[1].length <= own)) end++;
    const inner = lines.slice(i, end).map((l, k) => (k ? l.replace(new RegExp("^ {0," + skip + "}"), "") : l.slice(skip)));
    const item = element("li");
    if (inner.every((l) => !l.trim() || !ITEM.test(l) && !FENCE.test(l) && !QUOTE.test(l)) && !inner.slice(0, -1).some((l) => !l.trim()))
      inline(item, inner.join("\n").trim());
    else
      blocks(item, inner, depth + 1);
    e.append(item);
    i = end;
  }
  return e;
}

function table(lines) {
  const cells = (l) => l.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));
  const align = cells(lines[1]).map((c) => (/^:-+:$/.test(c) ? "center" : /-:$/.test(c) ? "right" : null));
  const row = (l, name) => {
    const r = element("tr");
    cells(l).forEach((c, i) => {
      const e = element(name, {align: align[i]});
      inline(e, c);
      r.append(e);
    });
    return r;
  };
  const body = element("tbody");
  for (const l of lines.slice(2)) body.append(row(l, "td"));
  return element("div", {class: "wide", tabindex: "0"}, element("table", {}, element("thead", {}, row(lines[0], "th")), body));
}

function codeBlock(text, language, closed) {
  const code = element("code"), plain = document.createTextNode("");
  const copy = button("Copy", () => copyText(code.textContent, copy), {"aria-label": "Copy code"});
  const figure = element("figure", {}, element("figcaption", {}, element("span", {text: visible(language || "text")}), copy),
                         element("pre", {tabindex: "0"}, code));
  if (closed && text.length < LONG_CODE) colour(code, visible(text), language);
  else plain.data = visible(text), code.append(plain);
  return {figure, plain};
}

/** A text that grows: blocks that are complete stay as they are, the last one is made again, and code that is open only grows. */
class Growing {
  constructor(into) {
    this.into = into;
    this.text = "";
    this.from = 0; // where the block begins that is open
    this.open = null;
    this.code = null; // of an open code block: {plain: its text node, close: what ends it}
  }

  add(text, last = false) {
    const before = this.text.length;
    this.text = text;
    if (this.code && !last) { // its end would be a line of what is new, or the one that this goes on with
      const fresh = text.slice(text.lastIndexOf("\n", before - 1) + 1).split("\n");
      if (!fresh.some((l) => this.code.close.test(l))) {
        this.code.plain.appendData(visible(text.slice(before)));
        return;
      }
    }
    const lines = text.slice(this.from).split("\n"), known = lines.length - (lines[lines.length - 1] ? 0 : 1); // behind a line's end it may go on
    for (let i = 0; i < lines.length;) {
      const b = block(lines, i), complete = last || b.end < known || b.closed === true && b.end < lines.length;
      if (this.open) this.open.remove(), this.open = this.code = null;
      if (b.kind === "code" && !b.closed && !complete) {
        const made = codeBlock(lines.slice(i + 1).join("\n"), b.language, false);
        this.into.append(made.figure);
        this.open = made.figure;
        if (lines.length - i > 1) this.code = {plain: made.plain, close: b.close};
      } else {
        const e = show(b, lines.slice(i, b.end), 0);
        if (e) this.into.append(e);
        if (!complete) this.open = e;
      }
      if (!complete) break;
      this.from += lines.slice(i, b.end).join("\n").length + 1;
      i = b.end;
    }
  }
}
