// ---- code in colours: strings, comments, numbers and words, by rules of families of languages ----

// No text is read twice, whatever it is: what has no end goes on to the last character (LEFT: nothing is), and a quote behind a backslash begins no string.
const LEFT = "(?![\\s\\S])";
const rest = (from, to) => from + "[\\s\\S]*?(?:" + to + "|" + LEFT + ")";
const DOUBLE = '(?<!\\\\)"(?:\\\\.|[^"\\\\\\n])*"', SINGLE = "(?<!\\\\)'(?:\\\\.|[^'\\\\\\n])*'", TICK = "(?<!\\\\)`(?:\\\\[\\s\\S]|[^`\\\\])*`",
      SLASHES = "\\/\\/.*", STAR = rest("\\/\\*", "\\*\\/"), HASH = "(?<![^\\s])#.*", DASH = "(?<![^\\s])--.*", MARK = rest("<!--", "-->"),
      NUMBER = "\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*",
      ENTRY = "^[ \\t]*(?:- +)*[\\w.-]+(?=[ \\t]*[:=])|^[ \\t]*\\[.*\\][ \\t]*$";

const oneOf = (words) => "\\b(?:" + words.replaceAll(" ", "|") + ")\\b";
const CONSTANTS = "true false null True False None nil nullptr undefined",
      WORDS = oneOf(CONSTANTS + " abstract and as assert async auto await bool boolean break case catch char class const constexpr continue def default defer del delete do " +
        "done double echo elif else elsif end enum esac except export extends extern fi final finally float fn for foreach from func function global goto if impl implements " +
        "import in inline instanceof int interface is lambda let local long loop match mod module mut namespace new not of operator or override package pass " +
        "private protected pub public raise readonly ref require return self short signed sizeof static string struct super switch template then this throw throws trait " +
        "try type typedef typename typeof union unless unsigned until use using val var virtual void volatile when where while with yield"),
      QUERY = oneOf("add all alter and as asc begin between by case cast check column commit constraint create cross default delete desc distinct drop else end exists " +
        "explain foreign from full function group having if in index inner insert into is join key left like limit not null offset on or order outer over " +
        "partition primary references returning right rollback select set table then transaction trigger union unique update using values view when where with");

/** A family: what its strings, comments, numbers, words and, of diffs, lines that went look like; flags of its rule. */
const FAMILIES = {
  any: [[DOUBLE, SINGLE, TICK], [SLASHES, STAR, HASH, MARK, DASH], [NUMBER], [WORDS]],
  c: [[DOUBLE, SINGLE], [SLASHES, STAR], [NUMBER], ["^[ \\t]*#[ \\t]*\\w+", WORDS]],
  script: [[DOUBLE, SINGLE, TICK], [SLASHES, STAR], [NUMBER], [WORDS]],
  rust: [[DOUBLE, "'(?:\\\\[^'\\n]+|[^'\\\\\\n])'"], [SLASHES, STAR], [NUMBER], [WORDS]], // 'a is a lifetime
  php: [[DOUBLE, SINGLE], [SLASHES, STAR, HASH], [NUMBER], [WORDS]],
  hash: [[rest('"""', '"""'), rest("'''", "'''"), DOUBLE, SINGLE], [HASH], [NUMBER], [WORDS]],
  shell: [[DOUBLE, SINGLE], [HASH], ["\\$\\{?[\\w@#?*!]+\\}?"], [WORDS]],
  data: [[DOUBLE, SINGLE], [HASH, "^[ \\t]*;.*"], [NUMBER], [ENTRY, oneOf(CONSTANTS)]],
  json: [[DOUBLE + "(?!\\s*:)"], [SLASHES, STAR], ["-?" + NUMBER], [DOUBLE, oneOf(CONSTANTS)]],
  css: [[DOUBLE, SINGLE], [STAR], ["#[\\da-fA-F]{3,8}\\b", NUMBER + "%?"], ["@[\\w-]+", "(?<![\\w-])[\\w-]+(?=\\s*:\\s)"]],
  sql: [[DOUBLE, "'[^']*'"], ["--.*", STAR], [NUMBER], [QUERY], [], "i"],
  dash: [[DOUBLE, SINGLE], [rest("--\\[\\[", "\\]\\]"), rest("\\{-", "-\\}"), "--.*"], [NUMBER], [WORDS]],
  tex: [["\\$[^$\\n]*\\$"], ["(?<!\\\\)%.*"], [], ["\\\\[a-zA-Z]+"]],
  lisp: [[DOUBLE], [";.*"], [NUMBER], ["(?<=\\()[^\\s()\\[\\]\"']+"]],
  markup: [['(?<==)"[^"]*"', "(?<==)'[^']*'"], [MARK], [], ["<[\\/?!]?[\\w:.-]+|[\\/?]?>"]],
  diff: [["^\\+.*"], ["^(?:diff|index|[+-]{3}) .*"], [], ["^@@.*"], ["^-.*"]],
  none: null,
};

const LANGUAGES = {
  c: "c h cc cpp cxx hpp hh c++ cu cuh cuda objc m java kotlin kt scala cs csharp c# swift dart zig v proto glsl hlsl wgsl metal",
  script: "js mjs cjs javascript jsx ts tsx typescript go golang groovy", rust: "rust rs", php: "php",
  hash: "python py python3 pyi ruby rb perl pl r julia jl elixir ex nim cmake make makefile mk gdb nix graphql tcl coffee",
  shell: "sh bash zsh shell console fish dockerfile docker powershell ps1", data: "yaml yml toml ini conf cfg properties env",
  json: "json jsonc json5 jsonl", css: "css scss less", sql: "sql mysql postgresql postgres sqlite psql", dash: "lua haskell hs elm ada vhdl vhd",
  tex: "tex latex bibtex matlab", lisp: "lisp scheme clojure clj el racket scm", markup: "html htm xml svg xhtml vue svelte rss",
  diff: "diff patch", none: "text txt plain plaintext output log csv md markdown",
};

const familyOf = new Map(Object.entries(LANGUAGES).flatMap(([family, names]) => names.split(" ").map((name) => [name, family]))), rules = new Map();

function ruleOf(language) {
  const name = (/[\w+#]+/.exec(language) || [""])[0].toLowerCase(), family = familyOf.get(name) || "any", made = rules.get(family);
  if (made !== undefined || !FAMILIES[family]) return made;
  // Comments stand before words and lines that went, which look like them; a string of JSON that is a key is a word.
  const [strings, comments, numbers, words, gone = [], flags = ""] = FAMILIES[family];
  const part = (title, list) => (list.length ? ["(?<" + title + ">" + list.join("|") + ")"] : []);
  const rule = new RegExp([...part("c", comments), ...part("s", strings), ...part("n", numbers), ...part("w", words), ...part("g", gone)].join("|"), "gm" + flags);
  rules.set(family, rule);
  return rule;
}

/** Code into an element, its parts told apart by class. */
function colour(into, code, language) {
  const rule = ruleOf(language);
  let at = 0;
  for (const m of rule ? code.matchAll(rule) : []) {
    if (!m[0]) continue;
    if (m.index > at) into.append(code.slice(at, m.index));
    into.append(element("span", {class: "c-" + Object.keys(m.groups).find((k) => m.groups[k] !== undefined), text: m[0]}));
    at = m.index + m[0].length;
  }
  if (at < code.length) into.append(code.slice(at));
}
