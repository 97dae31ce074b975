// ---- mathematics: TeX to MathML, which browsers draw ----
//
// A node is [name, attributes, child, ..]: a child is a node or a text. What is not known is shown as it is written; what does not fit together
// (a brace, an environment that is not closed) throws, and is shown as text.

const MATH = (() => {
const LONG = 5000, DEEP = 60; // characters of a formula, levels within one

const pairs = (text) => new Map(text.trim().split(/\s+/).map((p) => [p.slice(0, -[...p].pop().length), [...p].pop()]));
const words = (text) => new Set(text.trim().split(/\s+/));

// name and sign: letters, which stand slanted or (capital Greek and signs) upright; operators with the spaces of the browser's dictionary
const LETTERS = pairs(`alpha\u03b1 beta\u03b2 gamma\u03b3 delta\u03b4 epsilon\u03f5 varepsilon\u03b5 zeta\u03b6 eta\u03b7 theta\u03b8 vartheta\u03d1 iota\u03b9 kappa\u03ba lambda\u03bb mu\u03bc nu\u03bd xi\u03be
  omicron\u03bf pi\u03c0 varpi\u03d6 rho\u03c1 varrho\u03f1 sigma\u03c3 varsigma\u03c2 tau\u03c4 upsilon\u03c5 phi\u03d5 varphi\u03c6 chi\u03c7 psi\u03c8 omega\u03c9 ell\u2113 imath\u0131 jmath\u0237`);
const SIGNS = pairs(`Gamma\u0393 Delta\u0394 Theta\u0398 Lambda\u039b Xi\u039e Pi\u03a0 Sigma\u03a3 Upsilon\u03a5 Phi\u03a6 Psi\u03a8 Omega\u03a9 hbar\u210f Re\u211c Im\u2111 aleph\u2135 wp\u2118 infty\u221e partial\u2202 nabla\u2207
  emptyset\u2205 varnothing\u2205 forall\u2200 exists\u2203 nexists\u2204 angle\u2220 triangle\u25b3 square\u25a1 Box\u25a1 blacksquare\u25a0 top\u22a4 bot\u22a5 degree\u00b0 prime\u2032 dots\u2026 ldots\u2026 cdots\u22ef dotsc\u2026 dotsb\u22ef
  vdots\u22ee ddots\u22f1 checkmark\u2713 dagger\u2020 ddagger\u2021 S\u00a7 P\u00b6 copyright\u00a9 pounds\u00a3 euro\u20ac clubsuit\u2663 heartsuit\u2661 diamondsuit\u2662 spadesuit\u2660 flat\u266d sharp\u266f natural\u266e lnot\u00ac neg\u00ac`);
const OPERATORS = pairs(`pm\u00b1 mp\u2213 times\u00d7 div\u00f7 cdot\u22c5 ast\u2217 star\u22c6 circ\u2218 bullet\u2219 oplus\u2295 ominus\u2296 otimes\u2297 oslash\u2298 odot\u2299 wedge\u2227 land\u2227 vee\u2228 lor\u2228 cap\u2229 cup\u222a sqcap\u2293 sqcup\u2294
  uplus\u228e setminus\u2216 smallsetminus\u2216 wr\u2240 amalg\u2a3f le\u2264 leq\u2264 leqslant\u2a7d ge\u2265 geq\u2265 geqslant\u2a7e ne\u2260 neq\u2260 equiv\u2261 sim\u223c simeq\u2243 approx\u2248 cong\u2245 propto\u221d ll\u226a gg\u226b prec\u227a succ\u227b preceq\u2aaf succeq\u2ab0
  in\u2208 notin\u2209 ni\u220b subset\u2282 supset\u2283 subseteq\u2286 supseteq\u2287 subsetneq\u228a supsetneq\u228b sqsubseteq\u2291 sqsupseteq\u2292 mid\u2223 nmid\u2224 parallel\u2225 perp\u27c2 vdash\u22a2 dashv\u22a3 models\u22a8 vDash\u22a8 asymp\u224d doteq\u2250 bowtie\u22c8
  triangleq\u225c coloneqq\u2254 lhd\u22b2 rhd\u22b3 to\u2192 rightarrow\u2192 leftarrow\u2190 gets\u2190 leftrightarrow\u2194 Rightarrow\u21d2 Leftarrow\u21d0 Leftrightarrow\u21d4 implies\u27f9 impliedby\u27f8 iff\u27fa mapsto\u21a6 longmapsto\u27fc longrightarrow\u27f6
  longleftarrow\u27f5 Longrightarrow\u27f9 Longleftarrow\u27f8 Longleftrightarrow\u27fa hookrightarrow\u21aa hookleftarrow\u21a9 uparrow\u2191 downarrow\u2193 updownarrow\u2195 Uparrow\u21d1 Downarrow\u21d3 nearrow\u2197 searrow\u2198 swarrow\u2199 nwarrow\u2196
  rightharpoonup\u21c0 rightleftharpoons\u21cc leadsto\u21dd therefore\u2234 because\u2235 colon:`);
const LARGE = pairs("sum\u2211 prod\u220f coprod\u2210 bigcup\u22c3 bigcap\u22c2 bigoplus\u2a01 bigotimes\u2a02 bigodot\u2a00 bigvee\u22c1 bigwedge\u22c0 bigsqcup\u2a06 biguplus\u2a04");
const INTEGRALS = pairs("int\u222b iint\u222c iiint\u222d oint\u222e oiint\u222f");
const FUNCTIONS = words("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth exp log ln lg deg dim hom ker arg");
const WITH_LIMITS = words("lim limsup liminf max min sup inf det gcd Pr argmax argmin injlim projlim");
const ACCENTS = pairs("hat^ widehat^ bar\u00af overline\u203e tilde~ widetilde~ vec\u2192 dot\u02d9 ddot\u00a8 dddot\u20db check\u02c7 breve\u02d8 acute\u00b4 grave` mathring\u02da overrightarrow\u2192 overleftarrow\u2190 overbrace\u23de overleftrightarrow\u2194");
const BELOW = pairs("underline_ underbrace\u23df underrightarrow\u2192 underleftarrow\u2190");
const WIDE = words("widehat overline widetilde overrightarrow overleftarrow overbrace overleftrightarrow underline underbrace underrightarrow underleftarrow");
const DELIMITERS = pairs("{{ }} lbrace{ rbrace} lbrack[ rbrack] langle\u27e8 rangle\u27e9 lfloor\u230a rfloor\u230b lceil\u2308 rceil\u2309 |\u2016 Vert\u2016 lVert\u2016 rVert\u2016 vert| lvert| rvert| backslash\\ lparen( rparen) uparrow\u2191 downarrow\u2193 updownarrow\u2195");
const SPACES = {",": ".167em", ":": ".222em", ">": ".222em", ";": ".278em", "!": "-.167em", " ": ".25em", "quad": "1em", "qquad": "2em", "enspace": ".5em", "thinspace": ".167em"};
const SIZES = {big: "1.2em", Big: "1.8em", bigg: "2.4em", Bigg: "3em"};
const FENCES = {pmatrix: "()", bmatrix: "[]", Bmatrix: "{}", vmatrix: "||", Vmatrix: "\u2016\u2016", cases: "{", dcases: "{", rcases: " }"};
const TABLES = words("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases dcases rcases array aligned align alignat alignedat flalign split eqnarray gather gathered equation multline subarray");
const NO_ARGUMENT = words("nonumber notag limits nolimits displaylimits hline hfill strut null relax allowbreak nobreak centering");
const NOT = pairs("=\u2260 \u2208\u2209 \u220b\u220c \u2282\u2284 \u2283\u2285 \u2286\u2288 \u2287\u2289 \u2261\u2262 \u223c\u2241 \u2248\u2249 \u2245\u2247 \u2223\u2224 \u2225\u2226 <\u226e >\u226f \u2264\u2270 \u2265\u2271 \u2203\u2204 \u2192\u219b \u21d2\u21cf");

// ---- letters of other kinds: their own characters ----

// first capital, first small, first digit; what stands elsewhere
const ALPHABETS = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce], boldit: [0x1d468, 0x1d482, 0x1d7ce], sans: [0x1d5a0, 0x1d5ba, 0x1d7e2], mono: [0x1d670, 0x1d68a, 0x1d7f6],
  double: [0x1d538, 0x1d552, 0x1d7d8, "C\u2102 H\u210d N\u2115 P\u2119 Q\u211a R\u211d Z\u2124"],
  script: [0x1d49c, 0x1d4b6, 0, "B\u212c E\u2130 F\u2131 H\u210b I\u2110 L\u2112 M\u2133 R\u211b e\u212f g\u210a o\u2134"],
  fraktur: [0x1d504, 0x1d51e, 0, "C\u212d H\u210c I\u2111 R\u211c Z\u2128"],
};
const FONTS = {mathbf: "bold", bf: "bold", textbf: "bold", mathbb: "double", Bbb: "double", mathcal: "script", mathscr: "script", mathfrak: "fraktur", mathsf: "sans", mathtt: "mono", texttt: "mono",
               boldsymbol: "boldit", bm: "boldit", pmb: "boldit"};
const BOLD_GREEK = {upright: [0x391, 0x1d6a8], slanted: [0x3b1, 0x1d736]};

function inFont(text, font) {
  const [capital, small, digit, others] = ALPHABETS[font], own = others ? pairs(others) : new Map();
  return [...text].map((c) => {
    const n = c.codePointAt(0), greek = font.startsWith("bold");
    if (own.has(c)) return own.get(c);
    if (c >= "A" && c <= "Z") return String.fromCodePoint(capital + n - 65);
    if (c >= "a" && c <= "z") return String.fromCodePoint(small + n - 97);
    if (c >= "0" && c <= "9" && digit) return String.fromCodePoint(digit + n - 48);
    if (greek && n >= 0x391 && n <= 0x3a9) return String.fromCodePoint(BOLD_GREEK.upright[1] + n - 0x391);
    if (greek && n >= 0x3b1 && n <= 0x3c9) return String.fromCodePoint(BOLD_GREEK.slanted[1] + n - 0x3b1);
    return c;
  }).join("");
}

const isNode = (x) => Array.isArray(x);
function changed(node, font) {
  if (!isNode(node)) return inFont(node, font);
  const [name, attributes, ...children] = node;
  return [name, name === "mi" ? {...attributes, mathvariant: "normal"} : attributes, ...children.map((c) => changed(c, font))];
}

/** The same with letters that do not slant. */
const straight = (node) => (isNode(node) ? [node[0], node[0] === "mi" ? {...node[1], mathvariant: "normal"} : node[1], ...node.slice(2).map(straight)] : node);

// ---- the parser ----

const row = (list) => (list.length === 1 ? list[0] : ["mrow", {}, ...list]);
const mo = (text, attributes = {}) => ["mo", attributes, text];
const upright = (text) => ["mi", [...text].length === 1 ? {mathvariant: "normal"} : {}, text];
const fence = (text, form) => mo(text, {form, fence: "true", stretchy: "true"});

class Parser {
  constructor(text) {
    this.s = text;
    this.i = 0;
    this.depth = 0;
  }

  fail(what) { throw new Error(what + " at " + this.i); }
  skip() { while (/[\s%]/.test(this.s[this.i] || "")) this.s[this.i] === "%" ? this.comment() : this.i++; }
  comment() { while (this.i < this.s.length && this.s[this.i] !== "\n") this.i++; }

  /** The command that begins here, without its backslash; "" : none. */
  command() { return this.s[this.i] === "\\" ? /^([a-zA-Z]+|[\s\S]|$)/.exec(this.s.slice(this.i + 1, this.i + 40))[0] : ""; }
  take(command) {
    if (this.command() !== command) return false;
    this.i += 1 + command.length;
    return true;
  }

  /** Atoms with their scripts up to what ends the row: a closing brace, a cell's or row's end, \right, \end, or `stop`. */
  row(stop = "") {
    const list = [];
    if (++this.depth > DEEP) this.fail("too deep");
    for (;;) {
      this.skip();
      const c = this.s[this.i], name = this.command();
      if (c === undefined || c === "}" || c === "&" || c === stop || ["\\", "cr", "right", "middle", "end"].includes(name)) break;
      if (["displaystyle", "textstyle", "scriptstyle", "scriptscriptstyle"].includes(name)) {
        this.take(name);
        list.push(["mstyle", {displaystyle: String(name === "displaystyle"), scriptlevel: {scriptstyle: "1", scriptscriptstyle: "2"}[name] || "0"}, ...this.row(stop)]);
      } else if (["over", "choose", "atop"].includes(name)) {
        this.take(name);
        const bar = name === "over" ? {} : {linethickness: "0"}, f = ["mfrac", bar, row(list.splice(0)), row(this.row(stop))];
        list.push(...(name === "choose" ? [fence("(", "prefix"), f, fence(")", "postfix")] : [f]));
      } else {
        const a = this.scripts(this.atom());
        if (a) list.push(...a);
      }
    }
    this.depth--;
    return list;
  }

  /** An argument: a group in braces or one sign. */
  argument() {
    this.skip();
    if (this.s[this.i] !== "{") {
      if (this.s[this.i] === undefined || this.s[this.i] === "}") this.fail("an argument is missing");
      if (/\d/.test(this.s[this.i])) return ["mn", {}, this.s[this.i++]]; // \frac12
      const a = this.atom();
      return a ? row(a.nodes) : ["mrow", {}];
    }
    this.i++;
    const list = this.row();
    if (this.s[this.i] !== "}") this.fail("a brace is open");
    this.i++;
    return row(list);
  }

  /** The text of an argument as it is written. */
  raw() {
    this.skip();
    if (this.s[this.i] !== "{") return this.s[this.i++] || this.fail("an argument is missing");
    let open = 0;
    for (let k = this.i; k < this.s.length; k++) {
      if (this.s[k] === "\\") k++;
      else if (this.s[k] === "{") open++;
      else if (this.s[k] === "}" && --open === 0) {
        const text = this.s.slice(this.i + 1, k);
        this.i = k + 1;
        return text;
      }
    }
    return this.fail("a brace is open");
  }

  option() {
    this.skip();
    if (this.s[this.i] !== "[") return null;
    this.i++;
    const list = this.row("]");
    if (this.s[this.i++] !== "]") this.fail("a bracket is open");
    return row(list);
  }

  /** An atom {nodes, limits: its scripts stand above and below}, null: nothing to see. */
  atom() {
    this.skip();
    const c = this.s[this.i];
    const one = (node, limits = false) => ({nodes: [node], limits});
    if (c === "\\") return this.called(one);
    if (c === "{") return one(this.argument());
    if (c === "^" || c === "_" || c === "'") return {nodes: [["mrow", {}]], limits: false}; // a script of nothing
    const number = /^(\d+(\.\d+)?|\.\d+)/.exec(this.s.slice(this.i, this.i + 400));
    if (number) {
      this.i += number[0].length;
      return one(["mn", {}, number[0]]);
    }
    const sign = String.fromCodePoint(this.s.codePointAt(this.i));
    this.i += sign.length;
    if (/^\p{Script=Latin}$/u.test(sign) || /^\p{Script=Greek}$/u.test(sign)) return one(["mi", {}, sign]);
    if (/^\p{L}$/u.test(sign)) return one(["mtext", {}, sign]);
    if ("()[]|".includes(sign)) return one(mo(sign, sign === "|" ? {stretchy: "false", lspace: "0", rspace: "0"} : {stretchy: "false"}));
    if (sign === "~") return one(["mtext", {}, "\u00a0"]);
    return one(mo({"-": "\u2212", "*": "\u2217", "`": "\u2018"}[sign] || sign, sign === "/" ? {lspace: "0", rspace: "0"} : sign === "," ? {separator: "true"} : {}));
  }

  /** _, ^ and primes behind an atom. */
  scripts(a) {
    if (!a) return null;
    let below = null, above = null, primes = "", limits = a.limits;
    for (;;) {
      this.skip();
      const c = this.s[this.i];
      if (this.take("limits")) limits = true;
      else if (this.take("nolimits")) limits = false;
      else if (c === "'") primes += "\u2032", this.i++;
      else if (c === "_" && !below) this.i++, below = this.argument();
      else if (c === "^" && !above) this.i++, above = this.argument();
      else if (c === "_" || c === "^") this.fail("a second script");
      else break;
    }
    if (primes) above = above ? ["mrow", {}, mo(primes), above] : mo(primes);
    if (!below && !above) return a.nodes;
    const [name, parts] = below && above ? ["subsup", [below, above]] : below ? ["sub", [below]] : ["sup", [above]];
    const around = {subsup: "munderover", sub: "munder", sup: "mover"}[name];
    return [...a.nodes.slice(0, -1), [limits ? around : "m" + name, {}, a.nodes[a.nodes.length - 1], ...parts]];
  }

  called(one) {
    const name = this.command();
    if (!name) this.fail("a lone backslash");
    this.i += 1 + name.length;
    if (LETTERS.has(name)) return one(["mi", {}, LETTERS.get(name)]);
    if (SIGNS.has(name)) return one(upright(SIGNS.get(name)));
    if (OPERATORS.has(name)) return one(mo(OPERATORS.get(name)));
    if (LARGE.has(name)) return one(mo(LARGE.get(name), {movablelimits: "true"}), true);
    if (INTEGRALS.has(name)) return one(mo(INTEGRALS.get(name)));
    if (FUNCTIONS.has(name)) return this.named(name, false);
    if (WITH_LIMITS.has(name)) return this.named(name.replace(/^(lim)(sup|inf)$/, "$1 $2").replace(/^arg(max|min)$/, "arg $1"), true);
    if (DELIMITERS.has(name)) return one(mo(DELIMITERS.get(name), {stretchy: "false"}));
    if (Object.hasOwn(SPACES, name)) return one(["mspace", {width: SPACES[name]}]);
    if (NO_ARGUMENT.has(name)) return null;
    if ("$%&#_".includes(name)) return one(["mtext", {}, name]);
    if (ACCENTS.has(name)) return one(["mover", {accent: "true"}, this.argument(), mo(ACCENTS.get(name), {stretchy: String(WIDE.has(name))})], name === "overbrace");
    if (BELOW.has(name)) return one(["munder", {accentunder: "true"}, this.argument(), mo(BELOW.get(name), {stretchy: "true"})], name === "underbrace");
    if (Object.hasOwn(FONTS, name) && !name.startsWith("text")) return one(changed(this.argument(), FONTS[name]));
    const size = /^(big|Big|bigg|Bigg)([lrm]?)$/.exec(name);
    if (size) return one(mo(this.delimiter() || " ", {stretchy: "true", minsize: SIZES[size[1]], maxsize: SIZES[size[1]], ...(size[2] === "l" ? {form: "prefix"} : size[2] === "r" ? {form: "postfix"} : {})}));
    const f = Object.hasOwn(this.commands, name) ? this.commands[name] : null;
    return f ? f.call(this, one, name) : one(["mtext", {class: "unknown"}, "\\" + name]);
  }

  /** A function's name, and the little space behind it that no operator takes. */
  named(text, limits) {
    const name = limits ? mo(text, {movablelimits: "true", lspace: "0", rspace: ".167em"}) : upright(text);
    return {nodes: limits ? [name] : [["mspace", {width: ".167em"}], name], limits};
  }

  delimiter() {
    this.skip();
    const name = this.command(), c = name ? DELIMITERS.get(name) : this.s[this.i];
    if (c === undefined) this.fail("no delimiter");
    this.i += name ? 1 + name.length : 1;
    return c === "." ? "" : {"<": "\u27e8", ">": "\u27e9"}[c] || c;
  }

  fenced() {
    const list = [], open = this.delimiter();
    if (open) list.push(fence(open, "prefix"));
    for (;;) {
      list.push(...this.row());
      if (this.take("middle")) list.push(mo(this.delimiter(), {stretchy: "true", form: "infix", lspace: ".167em", rspace: ".167em"}));
      else if (this.take("right")) break;
      else this.fail("\\left without \\right");
    }
    const close = this.delimiter();
    if (close) list.push(fence(close, "postfix"));
    return ["mrow", {}, ...list];
  }

  /** The rows of a table up to what ends it; classes: of the columns, the last for the others. */
  table(classes, attributes) {
    const rows = [[]];
    for (;;) {
      rows[rows.length - 1].push(row(this.row()));
      if (this.s[this.i] === "&") this.i++;
      else if (this.take("\\") || this.take("cr")) {
        if (/^\s*\[[\d.\-]+[a-z]*\]/.test(this.s.slice(this.i))) this.i = this.s.indexOf("]", this.i) + 1; // \\[4pt]
        rows.push([]);
      } else break;
    }
    const last = rows[rows.length - 1];
    if (rows.length > 1 && last.length === 1 && last[0].length === 2 && last[0][0] === "mrow") rows.pop();
    const of = (k) => (classes.length ? classes[Math.min(k, classes.length - 1)] : null);
    return ["mtable", attributes, ...rows.map((r) => ["mtr", {}, ...r.map((cell, k) => ["mtd", of(k) ? {class: of(k)} : {}, cell])])];
  }

  environment() {
    const full = this.raw(), name = full.replace(/\*$/, "");
    if (!TABLES.has(name)) this.fail("no environment " + full);
    let classes = [], attributes = {};
    if (name === "array" || name === "subarray") classes = [...this.raw().replace(/[^lcr]/g, "")].map((c) => ({l: "left", r: "right", c: "middle"})[c]);
    else if (name.startsWith("alignat") || name === "alignedat") this.raw();
    if (/^(align|alignat|aligned|alignedat|flalign|split|eqnarray)$/.test(name)) classes = name === "eqnarray" ? ["right", "middle", "left"] : Array.from({length: 20}, (_, k) => (k % 2 ? "left" : "right"));
    if (/cases$/.test(name)) classes = ["left"];
    if (classes.length && name !== "array" && !/cases$/.test(name) || /^(gather|gathered|equation|multline)$/.test(name)) attributes = {displaystyle: "true", class: "lines"};
    const t = this.table(classes, attributes), [open, close] = FENCES[name] || "";
    if (!this.take("end") || this.raw() !== full) this.fail("\\begin{" + full + "} is not ended");
    if (!open) return t;
    return ["mrow", {}, ...(open === " " ? [] : [fence(open, "prefix")]), t, ...(close ? [fence(close, "postfix")] : [])];
  }

  /** Text in which $..$ is mathematics again. */
  text(style) {
    const parts = this.raw().split(/\$([^$]*)\$/), list = [];
    parts.forEach((part, k) => {
      if (k % 2) list.push(...new Parser(part).row());
      else if (part) list.push(["mtext", style === "italic" ? {class: "slanted"} : {}, FONTS[style] ? inFont(plain(part), FONTS[style]) : plain(part)]);
    });
    return row(list);
  }
}

/** The characters of text: spaces that stay, escapes without their backslash. */
const plain = (text) => text.replace(/\\([%$&#_{} ])/g, "$1").replace(/~/g, " ").replace(/\s/g, "\u00a0");

const fraction = (attributes, outer) => function (one) {
  const f = ["mfrac", attributes, this.argument(), this.argument()];
  return one(outer ? outer(f) : f);
};
const inStyle = (display) => (f) => ["mstyle", {displaystyle: String(display), scriptlevel: "0"}, f];
const binomial = (f) => ["mrow", {}, fence("(", "prefix"), f, fence(")", "postfix")];
const ofText = (style) => function (one) { return one(this.text(style)); };
const within = (attributes) => function (one) { return one(["mrow", attributes, this.argument()]); };
const over = (order) => function (one) {
  const [above, base] = [this.argument(), this.argument()];
  return one([order, {}, base, above]);
};
const arrow = (sign) => function (one) {
  const below = this.option(), above = this.argument(), a = mo(sign, {stretchy: "true"}), padded = (n) => ["mpadded", {lspace: ".4em", width: "+.8em"}, n];
  return one(below ? ["munderover", {}, a, padded(below), padded(above)] : ["mover", {}, a, padded(above)]);
};
const dropped = function () { this.raw(); return null; };
const coloured = function (one) { this.raw(); return one(this.argument()); };

Parser.prototype.commands = {
  frac: fraction({}), dfrac: fraction({}, inStyle(true)), tfrac: fraction({}, inStyle(false)), cfrac: fraction({}, inStyle(true)),
  binom: fraction({linethickness: "0"}, binomial), dbinom: fraction({linethickness: "0"}, binomial), tbinom: fraction({linethickness: "0"}, binomial),
  sqrt(one) {
    const n = this.option(), of = this.argument();
    return one(n ? ["mroot", {}, of, n] : ["msqrt", {}, of]);
  },
  text: ofText(""), textrm: ofText(""), mbox: ofText(""), hbox: ofText(""), textnormal: ofText(""), textsf: ofText(""), textbf: ofText("textbf"), texttt: ofText("texttt"), textit: ofText("italic"), emph: ofText("italic"),
  mathrm(one) {
    const from = this.i, text = this.raw();
    if (/^[\w\s~-]*$/.test(text) && !text.includes("_")) return one(upright(plain(text)));
    this.i = from;
    return one(straight(this.argument()));
  },
  mathit(one) { return one(["mi", {class: "slanted"}, plain(this.raw())]); },
  mathnormal: within({}), mathord: within({}), mathbin: within({}), mathrel: within({}), mathop(one) { return one(this.argument(), true); },
  operatorname(one) {
    const limits = this.s[this.i] === "*";
    if (limits) this.i++;
    return this.named(plain(this.raw()).replace(/\\[,;! ]?/g, ""), limits);
  },
  left(one) { return one(this.fenced()); },
  begin(one) { return one(this.environment()); },
  substack(one) {
    this.skip();
    if (this.s[this.i] !== "{") this.fail("an argument is missing");
    this.i++;
    const t = this.table([], {class: "stack"});
    if (this.s[this.i++] !== "}") this.fail("a brace is open");
    return one(t);
  },
  stackrel: over("mover"), overset: over("mover"), underset: over("munder"),
  xrightarrow: arrow("\u2192"), xleftarrow: arrow("\u2190"), xleftrightarrow: arrow("\u2194"), xRightarrow: arrow("\u21d2"),
  not(one) {
    const a = this.atom() || this.fail("an argument is missing"), node = a.nodes[0], sign = typeof node[2] === "string" ? node[2] : "";
    return one([node[0], node[1], NOT.get(sign) || sign + "\u0338"]);
  },
  pmod(one) { return one(["mrow", {}, ["mspace", {width: "1em"}], mo("(", {stretchy: "false"}), upright("mod"), ["mspace", {width: ".333em"}], this.argument(), mo(")", {stretchy: "false"})]); },
  bmod(one) { return one(mo("mod", {lspace: ".222em", rspace: ".222em"})); },
  mod(one) { return one(["mrow", {}, ["mspace", {width: "1em"}], upright("mod"), ["mspace", {width: ".333em"}], this.argument()]); },
  boxed: within({class: "boxed"}), cancel: within({class: "cancelled"}), phantom(one) { return one(["mphantom", {}, this.argument()]); },
  color: coloured, textcolor: coloured, label: dropped, hspace: dropped, vspace: dropped,
  tag(one) { return one(["mrow", {}, ["mspace", {width: "2em"}], ["mtext", {}, "(" + plain(this.raw()) + ")"]]); },
};

/** The tree of a formula. Errors: what does not fit together. */
function tree(tex, display) {
  if (tex.length > LONG) throw new Error("too long");
  const p = new Parser(tex), lines = p.table(Array.from({length: 20}, (_, k) => (k % 2 ? "left" : "right")), {displaystyle: String(display), class: "lines"});
  if (p.i < tex.length) p.fail("what does not belong here");
  const alone = lines.length === 3 && lines[2].length === 3; // one row of one cell
  return ["math", {display: display ? "block" : "inline", alttext: tex.trim()}, alone ? lines[2][2][2] : lines];
}

return {tree};
})();

/** The element of a formula, or what was written where it is none. */
function formula(tex, display, written) {
  const make = ([name, attributes, ...children]) => {
    const e = document.createElementNS("http://www.w3.org/1998/Math/MathML", name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, visible(value));
    for (const c of children) e.append(typeof c === "string" ? visible(c) : make(c));
    return e;
  };
  try {
    return make(MATH.tree(tex, display));
  } catch {
    return element("code", {text: visible(written)});
  }
}
