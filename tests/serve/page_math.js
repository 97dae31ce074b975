// The page's formulas and what Markdown makes of them, without a browser: trees of formulas, texts that hold none, and the same whole and in pieces.
// usage: node page_math.js TESTS
"use strict";
const fs = require("fs"), path = require("path");

// as much of a document as the page's Markdown asks for
class Node_ {
  constructor(name) { this.name = name, this.attributes = {}, this.children = [], this.parent = null; }
  append(...list) {
    for (const c of list) {
      const n = c instanceof Node_ ? c : Object.assign(new Node_("#text"), {data: String(c)});
      n.parent = this;
      this.children.push(n);
    }
  }
  appendData(text) { this.data += text; }
  remove() { this.parent.children.splice(this.parent.children.indexOf(this), 1); }
  setAttribute(key, value) { this.attributes[key] = value; }
  addEventListener() {}
  set textContent(text) { this.children = [], this.append(text); }
  get textContent() { return this.name === "#text" ? this.data : this.children.map((c) => c.textContent).join(""); }
}
const document = {createElement: (n) => new Node_(n), createElementNS: (ns, n) => new Node_(n), createTextNode: (t) => Object.assign(new Node_("#text"), {data: t})};
const source = ["util", "colour", "math", "markdown"].map((n) => fs.readFileSync(path.join(process.argv[2], "../serve/http/page", n + ".js"), "utf8")).join("\n");
const page = new Function("document", source + "\nreturn {MATH, Growing, inline, formula};")(document);

let failed = 0, count = 0;
function same(name, got, want) {
  count++;
  if (got !== want) failed++, console.log("FAILED: " + name + ":\n  " + got + "\n  is not\n  " + want);
}

/** A tree in one line: name.class(child child) */
const line = (n) => (typeof n === "string" ? n : n[0] + (n[1].class ? "." + n[1].class : "") + "(" + n.slice(2).map(line).join(" ") + ")");
function tree(tex) {
  try { return line(page.MATH.tree(tex, true)[2]); } catch (e) { return "error: " + e.message; }
}

for (const [tex, want] of [
  ["x^2_1 + \\frac{a}{b}", "mrow(msubsup(mi(x) mn(1) mn(2)) mo(+) mfrac(mi(a) mi(b)))"],
  ["f''(x)", "mrow(msup(mi(f) mo(\u2032\u2032)) mo(() mi(x) mo()))"],
  ["\\frac12 \\sqrt2 \\sqrt[3]{x}", "mrow(mfrac(mn(1) mn(2)) msqrt(mn(2)) mroot(mi(x) mn(3)))"],
  ["1 \\over 2", "mfrac(mn(1) mn(2))"],
  ["\\binom{n}{k}", "mrow(mo(() mfrac(mi(n) mi(k)) mo()))"],
  ["\\alpha\\Omega\\mathbb{R}\\mathcal{L}\\mathbf{x}", "mrow(mi(\u03b1) mi(\u03a9) mi(\u211d) mi(\u2112) mi(\ud835\udc31))"],
  ["\\sum_{i=0}^n i", "mrow(munderover(mo(\u2211) mrow(mi(i) mo(=) mn(0)) mi(n)) mi(i))"],
  ["\\int_0^\\infty e^{-x}\\,dx", "mrow(msubsup(mo(\u222b) mn(0) mi(\u221e)) msup(mi(e) mrow(mo(\u2212) mi(x))) mspace() mi(d) mi(x))"],
  ["\\int\\limits_0^1", "munderover(mo(\u222b) mn(0) mn(1))"],
  ["\\lim_{x \\to 0} \\sin x", "mrow(munder(mo(lim) mrow(mi(x) mo(\u2192) mn(0))) mspace() mi(sin) mi(x))"],
  ["\\operatorname*{argmax}_x", "munder(mo(argmax) mi(x))"],
  ["\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "mrow(mo(() mtable(mtr(mtd(mn(1)) mtd(mn(2))) mtr(mtd(mn(3)) mtd(mn(4)))) mo()))"],
  ["\\begin{cases} a & b\\\\[4pt] c & d \\\\ \\end{cases}", "mrow(mo({) mtable(mtr(mtd.left(mi(a)) mtd.left(mi(b))) mtr(mtd.left(mi(c)) mtd.left(mi(d)))))"],
  ["\\begin{array}{rl} a & b \\end{array}", "mtable(mtr(mtd.right(mi(a)) mtd.left(mi(b))))"],
  ["a &= b \\\\ &= c", "mtable.lines(mtr(mtd.right(mi(a)) mtd.left(mrow(mo(=) mi(b)))) mtr(mtd.right(mrow()) mtd.left(mrow(mo(=) mi(c)))))"],
  ["\\left( \\frac12 \\middle| x \\right]", "mrow(mo(() mfrac(mn(1) mn(2)) mo(|) mi(x) mo(]))"],
  ["\\left. x \\right|_{0}", "msub(mrow(mi(x) mo(|)) mn(0))"],
  ["\\text{if $x>0$ so}", "mrow(mtext(if\u00a0) mi(x) mo(>) mn(0) mtext(\u00a0so))"],
  ["\\mathrm{H_2O}, \\mathrm{d}x", "mrow(mrow(msub(mi(H) mn(2)) mi(O)) mo(,) mi(d) mi(x))"],
  ["\\hat{x} \\overbrace{ab}^{n} \\vec v", "mrow(mover(mi(x) mo(^)) mover(mover(mrow(mi(a) mi(b)) mo(\u23de)) mi(n)) mover(mi(v) mo(\u2192)))"],
  ["\\not= \\not\\in \\|x\\| \\{a\\}", "mrow(mo(\u2260) mo(\u2209) mo(\u2016) mi(x) mo(\u2016) mo({) mi(a) mo(}))"],
  ["\\$5 \\% \\#", "mrow(mtext($) mn(5) mtext(%) mtext(#))"],
  ["\\xrightarrow[a]{b}", "munderover(mo(\u2192) mpadded(mi(a)) mpadded(mi(b)))"],
  ["\\sum_{\\substack{i \\\\ j}}", "munder(mo(\u2211) mtable.stack(mtr(mtd(mi(i))) mtr(mtd(mi(j)))))"],
  ["a % a remark\n+ b", "mrow(mi(a) mo(+) mi(b))"],
  ["\\unknown{x}", "mrow(mtext.unknown(\\unknown) mi(x))"],
  ["\\constructor x", "mrow(mtext.unknown(\\constructor) mi(x))"],
  ["{x", "error: a brace is open at 2"], ["x}", "error: what does not belong here at 1"], ["x_1_2", "error: a second script at 3"], ["\\frac{a}", "error: an argument is missing at 8"],
  ["\\begin{pmatrix} 1", "error: \\begin{pmatrix} is not ended at 17"], ["\\left( x", "error: \\left without \\right at 8"], ["\\", "error: a lone backslash at 0"],
  ["{".repeat(100) + "x" + "}".repeat(100), "error: too deep at 60"], ["x".repeat(5001), "error: too long"],
]) same(tex.slice(0, 60), tree(tex), want);

// Markdown: M[..] and D[..] are formulas within a line and of their own, by what was written
function shown(n) {
  if (n.name === "#text") return n.data;
  if (n.name === "math") return (n.attributes.display === "block" ? "D[" : "M[") + n.attributes.alttext + "]";
  return n.name + "[" + n.children.map(shown).join("") + "]";
}
function markdown(text, step) {
  const into = new Node_("div"), g = new page.Growing(into);
  for (let i = step; step && i < text.length; i += step) g.add(text.slice(0, i));
  g.add(text, true);
  return into.children.map(shown).join("");
}
for (const [text, want] of [
  ["An $x^2$ and \\(y\\), the $n$th, $a_1 * b_2 * c$.", "p[An M[x^2] and M[y], the M[n]th, M[a_1 * b_2 * c].]"],
  ["It costs $5 and $6, or $10-$20, 5$ or 7$ a piece.", "p[It costs $5 and $6, or $10-$20, 5$ or 7$ a piece.]"],
  ["From $5 to 10$ or $HOME/$USER and US$3, EUR$4.", "p[From $5 to 10$ or $HOME/$USER and US$3, EUR$4.]"],
  ["Pay $5 for $x$ of them, \\$7 and \\$8.", "p[Pay $5 for M[x] of them, $7 and $8.]"],
  ["`$x$` and ``a $y$``, $z$", "p[code[$x$] and code[a $y$], M[z]]"],
  ["A\n$$\n- a\n+ b\n$$\nB", "p[A]p[D[- a\n+ b]]p[B]"],
  ["\\[ x = y \\].\n\n$$x$$ is it.", "p[D[x = y].]p[D[x] is it.]"],
  ["\\begin{align}\na &= b \\\\\n- c\n\\end{align}", "p[D[\\begin{align}\na &= b \\\\\n- c\n\\end{align}]]"],
  ["- one $x$\n- two \\[y\\]", "ul[li[one M[x]]li[two D[y]]]"],
  ["| a | b |\n| --- | --- |\n| $x$ | $5 |", "div[table[thead[tr[th[a]th[b]]]tbody[tr[td[M[x]]td[$5]]]]]"],
  ["*an $x_1$ there*", "em"],
  ["$$ no end\n\n- a", "p[$$ no end]ul[li[a]]"],
  ["Bad $x_1_2$ here", "p[Bad code[$x_1_2$] here]"],
  ["a \\\\[4pt] b", "p[a \\[4pt] b]"],
]) {
  for (const step of [0, 1, 7]) {
    const got = markdown(text, step);
    if (want === "em") same(text, got, "p[em[an M[x_1] there]]");
    else same(text + " by " + step, got, want);
  }
}
const code = "```tex\n$$x$$ and $y$ \\(z\\)\n```";
for (const step of [0, 1]) {
  const got = markdown(code + "\n\nEnd $e$.", step);
  same("code stays code", got.replace(/span\[([^\]]*)\]/g, "$1").replace(/.*pre/s, ""), "[code[$$x$$ and $y$ \\(z\\)]]]p[End M[e].]");
}
const evil = page.formula("\\text{<img src=x onerror=bad()>} \\href{javascript:bad()}{x} \u202e", false, "");
same("only elements of mathematics", JSON.stringify([...new Set((function names(n) { return [n.name, ...n.children.flatMap(names)]; })(evil))].sort()), JSON.stringify(["#text", "math", "mi", "mo", "mrow", "mtext"]));
same("no turned text", String(evil.textContent.includes("\u202e")), "false");
console.log(count + " checks, " + failed + " failed");
process.exit(failed ? 1 : 0);
