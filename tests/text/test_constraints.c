/* Regular expressions, Lark grammars, structural tags and rules that begin with themselves: which texts they take.
 * The facts are those of the syntaxes' documents (docs.rs/regex, docs.python.org/3/library/re, lark-parser.readthedocs.io,
 * xgrammar.mlc.ai/docs) and of what llguidance's parser/tests/test_lark.rs looks at; the texts are our own. */
#include "tests/lib/test.h"
#include "base/mem.h"
#include "text/grammar/grammar_text.h"

#include <string.h>

static bool matches(const struct infer_grammar *g, const char *text) {
    struct matcher *m;
    assert_ok(matcher_open(&m, g, NULL));
    const bool yes = matcher_accept_bytes(m, text, strlen(text)) && matcher_complete(m);
    matcher_close(m);
    return yes;
}

struct vector {
    const char *text, *yes[7], *no[7];
};

static void check(const struct vector *list, size_t n, enum infer_grammar_kind kind) {
    for (size_t i = 0; i < n; i++) {
        struct infer_grammar *g;
        if (infer_grammar_open(&g, kind, list[i].text, strlen(list[i].text)))
            fail_msg("%s: %s", list[i].text, err_message());
        for (int k = 0; k < 7 && list[i].yes[k]; k++)
            if (!matches(g, list[i].yes[k])) fail_msg("%s refuses %s", list[i].text, list[i].yes[k]);
        for (int k = 0; k < 7 && list[i].no[k]; k++)
            if (matches(g, list[i].no[k])) fail_msg("%s takes %s", list[i].text, list[i].no[k]);
        infer_grammar_free(g);
    }
}
#define CHECK(list, kind) check(list, sizeof list / sizeof *list, kind)

static void regexes(void **state) {
    (void)state;
    static const struct vector list[] = {
        {"", {""}, {"a"}},
        {"abc", {"abc"}, {"ab", "abcd", ""}},
        {"a|bc|", {"a", "bc", ""}, {"abc", "b"}},
        {"^(?:ab|c)+$", {"ab", "cab", "ccc"}, {"", "abb"}},
        {"^a|b$", {"a", "b"}, {"ab", ""}},
        {"(^a$)|(^$)", {"a", ""}, {"aa"}},
        {"\\Aa\\z", {"a"}, {"aa"}},
        {"[a-c]{2,3}", {"ab", "ccc"}, {"a", "abca", "ad"}},
        {"x{,2}y{2,}", {"yy", "xxyyy"}, {"xxxyy", "y"}},
        {"a{2}{", {"aa{"}, {"aa", "a{"}},
        {"a{x}", {"a{x}"}, {"a"}},
        {"[^\\W\\d_]+", {"abZ"}, {"a1", "_", "a b"}},
        {"[]a]", {"]", "a"}, {"[", ""}},
        {"[^]a]", {"b"}, {"]", "a"}},
        {"[a\\-z]", {"a", "-", "z"}, {"b"}},
        {"[-a]", {"-", "a"}, {"b"}},
        {"[[:alpha:]_]+", {"aZ_"}, {"a1"}},
        {"[[:^digit:]]", {"a"}, {"1"}},
        {"\\d+\\.\\d", {"12.5"}, {"12", "a.1", "\xd9\xa3.1"}},
        {"(?u)\\d+", {"12", "\xd9\xa3"}, {"a"}},
        {"(?u)\\w", {"\xc3\xa9", "_", "\xe4\xb8\x80"}, {"-", " "}},
        {"\\w", {"a", "_"}, {"\xc3\xa9"}},
        {"\\p{Lu}\\pL", {"Aa", "\xc3\x89x"}, {"aa", "A1"}},
        {"\\P{L}", {"1"}, {"a"}},
        {"(?i)str\xc3\xa9", {"STR\xc3\x89", "sTr\xc3\xa9"}, {"st"}},
        {"(?i:a)b", {"Ab", "ab"}, {"aB"}},
        {"a(?i)b|c", {"aB", "C"}, {"AB"}},
        {".", {"a", "\xf0\x9f\x98\x80"}, {"\n", "", "ab"}},
        {"(?s).", {"\n"}, {""}},
        {"(?x) a b # note\n c", {"abc"}, {"a b c"}},
        {"a(?#note)b", {"ab"}, {"a"}},
        {"(?P<year>\\d{4})-(?<m>\\d\\d)", {"2024-05"}, {"2024-5"}},
        {"a*?b+?", {"b", "aab"}, {"a"}},
        {"\\x41\\u00e9\\u{1F600}\\x{42}",
         {"A\xc3\xa9\xf0\x9f\x98\x80"
          "B"},
         {"A"}},
        {"\\\"\\/\\.\\-", {"\"/.-"}, {"\"/a-"}},
        {"\\t\\n\\r", {"\t\n\r"}, {"tnr"}},
        {"(a(b(c)?)?)?", {"", "a", "ab", "abc"}, {"ac", "bc"}},
    };
    CHECK(list, INFER_GRAMMAR_REGEX);
    static const struct vector patterns[] = {
        /* a pattern of a schema matches anywhere, where ^ and $ do not hold it */
        {"{\"pattern\": \"^a|b$\"}", {"\"a\"", "\"xb\"", "\"axx\""}, {"\"xa\"", "\"bx\""}},
        {"{\"pattern\": \"^(\\\\s|[^\\\\d\\\"])$\"}",
         {"\" \"", "\"\\t\"", "\"x\""},
         {"\"1\"", "\"\\\"\"", "\"\""}},
        {"{\"pattern\": \"^.$\"}", {"\"x\"", "\"\\t\""}, {"\"\\n\"", "\"\\r\""}},
        {"{\"pattern\": \"^$|^a\"}", {"\"\"", "\"ab\""}, {"\"b\""}},
    };
    CHECK(patterns, INFER_GRAMMAR_SCHEMA);
}

static void larks(void **state) {
    (void)state;
    static const struct vector list[] = {
        {"start: \"a\" | \"b\" // note\n", {"a", "b"}, {"", "ab"}},
        {"%llguidance {}\n\nstart: /[0-9]+/ \"!\"?", {"1", "12!"}, {"!", ""}},
        {"?start: expr\nexpr: expr \"+\" term -> add\n    | term\n?term: NUM | \"(\" expr \")\"\nNUM.2: \"0\"..\"9\"+\n",
         {"1", "1+2+34", "(1+2)+3", "((1))"},
         {"+1", "1+", "(1", "1 + 2"}},
        {"start: pair (\",\" pair)*\npair: CNAME \"=\" SIGNED_NUMBER\n%import common.CNAME\n%import common (SIGNED_NUMBER, WS)\n%ignore WS\n",
         {"a=1", "a_1 = -2.5e3 ,\n b= 7 "},
         {"a=", "1=a", " a=1", "a=1,"}},
        {"%llguidance {\"allow_initial_skip\": true}\nstart: \"a\" \"b\"\n%ignore \" \" | /#.*\\n/\n",
         {" a #x\n b", "ab"},
         {"a\tb"}},
        {"%llguidance {\"ignore_once\": true, \"no_forcing\": false}\nstart: \"A\" \"!\"\n%ignore /[ \\t]{1,2}/\n",
         {"A!", "A  !", "A!\t "},
         {"A   !", " A!"}},
        {"start: \"select\"i WS NAME\nNAME: (LETTER | \"_\")+\nLETTER: /[a-z]/i\n%import common.WS -> WS\n",
         {"SELECT x_Y", "select a"},
         {"selec a", "selecta"}},
        {"start: ab{3,5}\nab: \"a\" | \"b\"\n", {"aba", "abaaa"}, {"ab", "aaaaaa"}},
        {"start: A~2 B~1..2 [\"c\"] C{,1}\nA: \"a\"\nB: \"b\"\nC: \"d\"",
         {"aab", "aabbcd", "aabd"},
         {"ab", "aabbb"}},
        {"start: /.../ \"abc\" /.../",
         {"abcabcabc", "\xe4\xb8\x80\xe4\xb8\x80xabcyyy"},
         {"aabcccc", "aaaaabcccc"}},
        {"start: \"'foo'\" /a+/ | STRING /b+/\nSTRING: /'[^']*'/", {"'foo'aa", "'x'b", "'foo'bb"}, {"'x'a"}},
        {"!start: %json {\"type\": \"object\",\n \"properties\": {\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"],\n"
         "\"additionalProperties\": false} \";\"\n",
         {"{\"n\":1};"},
         {"{};", "{\"n\":1}"}},
        {"start: x\nx: y \"1\" | \"0\"\ny: z\nz: x \"2\" |\n",
         {"0", "1", "021", "121", "02121"},
         {"", "2", "01"}},
        {"start[capture=\"x\"]: \"\\\"\\u00e9\\x41\\n\" root\nroot: \"-\"",
         {"\"\xc3\xa9"
          "A\n-"},
         {"-"}},
        {"start: a-b\na-b: \"x\" -> name\n  // between\n\n  | (\n \"y\" )\n", {"x", "y"}, {"xy"}},
        {"start: LINES \"!\"\nLINES: /[a-z\\n]*/ & ~/(?s:.*)\\n\\n(?s:.*)/\n",
         {"!", "a\nb\n!"},
         {"a\n\nb!", "A!"}},
        {"start: A B?\nA: C & ~\"no\" | \"N\" & /n/i \"\"\nB: (\"x\" | \"y\" & (/[yz]/ & ~\"z\"))+ & /../\nC: /[a-z]{2}/\n",
         {"ab", "N", "Nxy", "abyy"},
         {"no", "n", "a", "Nx", "Nxz", "Nxyx"}},
        {"start: \"a\" NOT \"b\"\nNOT: ~(\"x\" | /[^x]/ \"y\")\n",
         {"ab", "axxb",
          "a\xe4\xb8\x80"
          "b"},
         {"axb", "a\xe4\xb8\x80yb",
          "a\xe4"
          "b"}},
        {"start: \"a\" | NONE \"b\"\nNONE: \"x\" & \"y\"\n", {"a"}, {"", "b", "xb"}},
        {"start: \"<\" PART \">\"\nPART: %regex {\"substring_words\": \"ab, c_1  d\\u00e9\"}\n",
         {"<>", "<ab, c_1  d\xc3\xa9>", "<, >", "<c_1>", "<  d\xc3\xa9>"},
         {"<a>", "<ab c_1>", "< d\xc3\xa9>", "<c>", "<ab, c_1  d\xc3\xa9 >", "<d\xc3>"}},
        {"start: %regex {\"substring_chars\": \"a\xe4\xb8\x80 b\"} \"!\" %regex {\"substring_chunks\": [\"x\", \"\", \"yz\"]}\n%ignore \"_\"\n",
         {"!", "a\xe4\xb8\x80 b!xyz", "\xe4\xb8\x80_!_yz_", " b!x"},
         {"a b!", "!y", "!zx", "a\xe4!", "!xz"}},
        {"start: S\nS: ESCAPED_STRING | C_COMMENT\n%import common.ESCAPED_STRING\n%import common.C_COMMENT\n",
         {"\"a\\\"b\"", "/* a * b **/"},
         {"\"a\"b\"", "/* */ */"}},
    };
    CHECK(list, INFER_GRAMMAR_TEXT); /* told apart from GBNF */
    static const struct vector gbnf[] = {{"# note\nroot ::= \"a\"\n", {"a"}, {"b"}},
                                         {"root::=\"a\"", {"a"}, {"b"}}};
    CHECK(gbnf, INFER_GRAMMAR_TEXT);
}

static void left_recursion(void **state) {
    (void)state;
    static const struct vector list[] = {
        {"root ::= root \"a\" | \"b\"", {"b", "ba", "baaa"}, {"", "a", "ab"}},
        {"root ::= root \"a\" |", {"", "a", "aaa"}, {"b"}},
        {"root ::= e\ne ::= e [+\\-] t | t\nt ::= t \"*\" f | f\nf ::= \"(\" e \")\" | [0-9]",
         {"1", "1+2*3", "(1-2)*3-4", "((1)*2)"},
         {"", "1+", "*1", "(1", "1**2", "12"}},
        {"root ::= a \"x\" | \"x\"\na ::= b \"y\"\nb ::= root \"z\" | a",
         {"x", "xzyx", "xzyyx", "xzyxzyx"},
         {"xzx", "xyx", "yx"}},
        /* behind what can be empty */
        {"root ::= s? root \"a\" | \"b\"\ns ::= \"s\"*", {"b", "ba", "sbaa", "ssbaa"}, {"bsa", "a"}},
        /* twice at once */
        {"root ::= root root | \"a\"", {"a", "aaaa"}, {"", "b"}},
        {"root ::= root | \"a\"", {"a"}, {"aa", ""}},
        {"root ::= a? \"c\"\na ::= a? \"b\" a?", {"c", "bc", "bbbc"}, {"", "b"}},
        /* from within, not from the beginning */
        {"root ::= \"(\" root \")\" root | ", {"", "()", "(())()"}, {"(", ")("}},
        {"root ::= (root \"x\")* \"y\"", {"y", "yxy", "yxyxy"}, {"x", "yx", "yy"}},
    };
    CHECK(list, INFER_GRAMMAR_TEXT);
    /* thousands of levels take no room of their own */
    struct infer_grammar *g;
    struct matcher *m;
    const char *text = "root ::= root \"a\" | root \"b\" | \"b\"";
    assert_ok(infer_grammar_from_gbnf(&g, text, strlen(text)));
    assert_ok(matcher_open(&m, g, NULL));
    mem_forbid(true);
    for (int i = 0; i < 200000; i++) assert_true(matcher_accept_bytes(m, "b", 1));
    mem_forbid(false);
    assert_false(matcher_cut(m));
    matcher_close(m);
    infer_grammar_free(g);
}

static void tags(void **state) {
    (void)state;
#define FUNCTION(name)                                                                                       \
    "{\"begin\": \"<f=" name                                                                                 \
    ">\", \"content\": {\"type\": \"json_schema\", \"json_schema\": {\"type\": \"integer\"}}, \"end\": \"</f>\"}"
    static const struct vector list[] = {
        {"{\"type\": \"structural_tag\", \"structures\": [{\"begin\": \"<f=a>\", \"schema\": {\"type\": \"integer\"}, \"end\": \"</f>\"},"
         "{\"begin\": \"<f=b>\", \"schema\": \"{\\\"const\\\": null}\", \"end\": \"</f>\"}], \"triggers\": [\"<f=\"]}",
         {"", "text < f <f <<f=a>7</f> and <f=b>null</f>.", "<f=a>-1</f><f=a>2</f>"},
         {"<f=", "<f=c>1</f>", "<f=a>x</f>", "<f=b>1</f>", "<f=a>7</f> <f=a>7"}},
        {"{\"type\": \"structural_tag\", \"format\": {\"type\": \"triggered_tags\", \"triggers\": [\"<f=\"], \"at_least_one\": true, "
         "\"tags\": [" FUNCTION("a") "]}}",
         {"<f=a>7</f>", "<f=a>7</f> bye <f=a>8</f>"},
         {"", "hi <f=a>7</f>"}},
        {"{\"type\": \"structural_tag\", \"format\": {\"type\": \"triggered_tags\", \"triggers\": [\"<f=a\", \"<f=b\"], \"stop_after_first\": true, "
         "\"excludes\": [\"no\"], \"tags\": [" FUNCTION("a") "," FUNCTION("b") "]}}",
         {"hm <f=a>7</f>", "n o", ""},
         {"<f=a>7</f> ", "a no", "<f=ac"}},
        {"{\"type\": \"sequence\", \"elements\": [{\"type\": \"tag\", \"begin\": \"<think>\", \"content\": {\"type\": \"any_text\"}, \"end\": \"</think>\"}, "
         "{\"type\": \"or\", \"elements\": [{\"type\": \"regex\", \"pattern\": \"[0-9]+\"}, {\"type\": \"const_string\", \"value\": \"\\\"?\\\"\"}, "
         "{\"type\": \"grammar\", \"grammar\": \"root ::= x{2,3}\\nx ::= [a\\\"]\"}]}]}",
         {"<think>a</</think>12", "<think></think>\"?\"", "<think>\n</think>a\"a"},
         {"<think>a</think>", "12", "<think></think></think>1", "<think></think>a"}},
        {"{\"type\": \"tags_with_separator\", \"separator\": \", \", \"tags\": [" FUNCTION("a") "]}",
         {"", "<f=a>1</f>", "<f=a>1</f>, <f=a>2</f>"},
         {"<f=a>1</f>,<f=a>2</f>", "<f=a>1</f>, "}},
        {"{\"type\": \"repeat\", \"min\": 1, \"max\": 2, \"content\": {\"type\": \"tag\", \"begin\": \"[\", \"content\": {\"type\": \"any_text\", "
         "\"excludes\": [\"[\"]}, \"end\": [\"]\", \"|\"]}}",
         {"[a]", "[a|[b]"},
         {"", "[[]", "[a][b][c]"}},
        /* ends and beginnings that overlap */
        {"{\"type\": \"tag\", \"begin\": \"\", \"content\": {\"type\": \"any_text\"}, \"end\": \"aab\"}",
         {"aaab", "abaab"},
         {"aabaab", "ab"}},
    };
    CHECK(list, INFER_GRAMMAR_TAGS);
}

static void errors(void **state) {
    (void)state;
    static const struct {
        enum infer_grammar_kind kind;
        const char *text, *says;
        bool unsupported;
    } list[] = {
        {INFER_GRAMMAR_REGEX, "ab(c", "regex, character 4: a group has no end", false},
        {INFER_GRAMMAR_REGEX, "\xc3\xa9)", "character 2: a ) without (", false},
        {INFER_GRAMMAR_REGEX, "[a", "a class has no end", false},
        {INFER_GRAMMAR_REGEX, "[b-a]", "character 4: a range of a class runs backwards", false},
        {INFER_GRAMMAR_REGEX, "[\\d-z-a]", "runs backwards", false},
        {INFER_GRAMMAR_REGEX, "a**", "a repetition of a repetition", false},
        {INFER_GRAMMAR_REGEX, "*a", "a repetition of nothing", false},
        {INFER_GRAMMAR_REGEX, "a{3,2}", "wrong way round", false},
        {INFER_GRAMMAR_REGEX, "a{99999}", "more than 20000", false},
        {INFER_GRAMMAR_REGEX, "[^\\s\\S]", "a class that no character is in", false},
        {INFER_GRAMMAR_REGEX, "\\x4", "hexadecimal", false},
        {INFER_GRAMMAR_REGEX, "\xff", "not UTF-8", false},
        {INFER_GRAMMAR_REGEX, "a\\", "ends too early", false},
        {INFER_GRAMMAR_REGEX, "(?=a)b", "looks ahead is not supported", true},
        {INFER_GRAMMAR_REGEX, "(?<!a)b", "looks behind is not supported", true},
        {INFER_GRAMMAR_REGEX, "(a)\\1", "character 5: a back reference is not supported", true},
        {INFER_GRAMMAR_REGEX, "\\ba", "a word's border", true},
        {INFER_GRAMMAR_REGEX, "a^b", "^ inside is not supported", true},
        {INFER_GRAMMAR_REGEX, "(a$|b)c", "$ inside is not supported", true},
        {INFER_GRAMMAR_REGEX, "a++", "possessive", true},
        {INFER_GRAMMAR_REGEX, "[a&&b]", "&& in a class", true},
        {INFER_GRAMMAR_REGEX, "\\p{Greek}", "general category", true},
        {INFER_GRAMMAR_LARK, "root: \"a\"", "lark line 1: 'start' is not defined", false},
        {INFER_GRAMMAR_LARK, "start: a\n\na: \"x\"\na: \"y\"", "lark line 4: 'a' is defined twice", false},
        {INFER_GRAMMAR_LARK, "start: \"a\n", "line 1: a string has no end", false},
        {INFER_GRAMMAR_LARK, "start: \"a\"\n  \"b\"\n", "line 2: expected the name", false},
        {INFER_GRAMMAR_LARK, "start: (\"a\"\n", "expected ')'", false},
        {INFER_GRAMMAR_LARK, "start: A\nA: b\nb: \"x\"", "line 2: a terminal names the rule 'b'", false},
        {INFER_GRAMMAR_LARK, "start: foo{7,6}\nfoo: \"a\"", "wrong way round", false},
        {INFER_GRAMMAR_LARK, "start: /[abc/ ", "lark line 1: regex, character 4", false},
        {INFER_GRAMMAR_LARK, "start: \"ab\"..\"c\"", "single characters", false},
        {INFER_GRAMMAR_LARK, "start: \"d\"..\"a\"", "runs backwards", false},
        {INFER_GRAMMAR_LARK, "%import common.BLAH\nstart: BLAH", "common has no 'BLAH'", false},
        {INFER_GRAMMAR_LARK, "start: start \"x\"", "begins with itself, and no text ends it", false},
        {INFER_GRAMMAR_LARK, "start: %json {\"type\": 3", "%json", false},
        {INFER_GRAMMAR_LARK, "\nstart: %json {\"type\": \"kaboom\"}", "lark line 2: schema: unknown type",
         false},
        {INFER_GRAMMAR_LARK, "%import python.NAME\nstart: NAME",
         "another module than common is not supported", true},
        {INFER_GRAMMAR_LARK, "_sep{x, y}: x (y x)*\nstart: \"a\"", "a template is not supported", true},
        {INFER_GRAMMAR_LARK, "start: <|tool|> \"a\"", "a control token", true},
        {INFER_GRAMMAR_LARK, "start[lazy]: /.*/", "an attribute of a rule", true},
        {INFER_GRAMMAR_LARK, "%declare X\nstart: X", "%declare is not supported", true},
        {INFER_GRAMMAR_LARK, "start: \"a\" & \"b\"", "& (and) is not supported outside of a terminal", true},
        {INFER_GRAMMAR_LARK, "start: ~\"a\"", "~ (not) is not supported outside of a terminal", true},
        {INFER_GRAMMAR_LARK, "start: A\nA: \"a\" & B\nB: \"b\" A", "what & joins names itself", false},
        {INFER_GRAMMAR_LARK, "start: A\nA: ~B\nB: \"(\" B \")\" | \"x\"",
         "what & joins names itself, or is too large", false},
        {INFER_GRAMMAR_TEXT, "root ::= &", "expected the name of a rule behind &", false},
        {INFER_GRAMMAR_TEXT, "root ::= & a \"b\"\na ::= \"x\"", "expected the name of a rule behind &",
         false},
        {INFER_GRAMMAR_LARK, "%llguidance {\"ignore_once\": \"yes\"}\nstart: \"a\"",
         "'ignore_once' is not true or false", false},
        {INFER_GRAMMAR_LARK, "%llguidance {\"allow_invalid_utf8\": true}\nstart: \"a\"",
         "'allow_invalid_utf8' is not supported", true},
        {INFER_GRAMMAR_LARK, "%llguidance {\"kaboom\": 1}\nstart: \"a\"",
         "lark line 1: %llguidance: 'kaboom' is not supported", true},
        {INFER_GRAMMAR_LARK, "%llguidance []\nstart: \"a\"", "an object of options", false},
        {INFER_GRAMMAR_LARK, "start: %regex { }", "%regex is {\"substring_words\": TEXT}", false},
        {INFER_GRAMMAR_LARK, "start: %regex {\"substring_words\": true}", "%regex is", false},
        {INFER_GRAMMAR_LARK, "start: %regex {\"substring_chars\": \"a\", \"substring_words\": \"b\"}",
         "%regex is", false},
        {INFER_GRAMMAR_LARK, "start: %regex {\"substring_chunks\": [\"a\", 1]}", "%regex is", false},
        {INFER_GRAMMAR_LARK, "\nstart: %regex {\"substring_words\": \"a}", "lark line 2: %regex: ", false},
        {INFER_GRAMMAR_LARK, "start: /a/l", "a flag of a regular expression", true},
        {INFER_GRAMMAR_TAGS,
         "{\"type\": \"structural_tag\", \"format\": {\"type\": \"tag\", \"begin\": \"a\", \"content\": {\"type\": \"regex\", "
         "\"pattern\": \"(\"}}}",
         "structural tag at /format/content: regex, character 1", false},
        {INFER_GRAMMAR_TAGS, "{\"type\": \"qwen_xml_parameter\"}",
         "the type 'qwen_xml_parameter' is not supported", true},
        {INFER_GRAMMAR_TAGS,
         "{\"type\": \"triggered_tags\", \"triggers\": [\"x\"], \"tags\": [" FUNCTION("a") "]}",
         "none of the triggers", false},
        {INFER_GRAMMAR_TAGS, "{", "structural tag", false},
        {INFER_GRAMMAR_TAGS, "[]", "without 'type'", false},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct infer_grammar *g = NULL;
        const enum infer_status st = infer_grammar_open(&g, list[i].kind, list[i].text, strlen(list[i].text));
        if (st != (list[i].unsupported ? INFER_E_UNSUPPORTED : INFER_E_INPUT) ||
            !strstr(err_message(), list[i].says))
            fail_msg("%s: status %d, %s; wanted %s", list[i].text, st, st ? err_message() : "compiled",
                     list[i].says);
        assert_null(g);
    }
    char deep[4096];
    memset(deep, '(', sizeof deep);
    struct infer_grammar *g;
    assert_int_equal(infer_grammar_open(&g, INFER_GRAMMAR_REGEX, deep, sizeof deep), INFER_E_INPUT);
    assert_int_equal(infer_grammar_open(&g, INFER_GRAMMAR_LARK, deep, sizeof deep), INFER_E_INPUT);
}

static void failing_allocations(void **state) {
    (void)state;
    static const struct {
        enum infer_grammar_kind kind;
        const char *text;
    } list[] = {
        {INFER_GRAMMAR_REGEX, "(?i)a[b-d]{2}|\\w+"},
        {INFER_GRAMMAR_LARK, "start: start \"+\" A | A | %json {\"const\": 1}\nA: /x/i\n%ignore \" \"\n"},
        {INFER_GRAMMAR_SCHEMA,
         "{\"$id\": \"a\", \"$dynamicRef\": \"b#n\", \"$defs\": {\"x\": {\"$id\": \"b\", \"$dynamicAnchor\": \"n\", \"type\": \"null\"}}}"},
        {INFER_GRAMMAR_TAGS,
         "{\"type\": \"triggered_tags\", \"triggers\": [\"<\"], \"tags\": [" FUNCTION("a") "]}"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (uint64_t k = 1;; k++) {
            struct infer_grammar *g = NULL;
            mem_fail_at(k);
            const enum infer_status st =
                infer_grammar_open(&g, list[i].kind, list[i].text, strlen(list[i].text));
            mem_fail_at(0);
            infer_grammar_free(g);
            if (st == INFER_OK) {
                if (k <= 2) fail_msg("%s: %d allocations", list[i].text, (int)k);
                break;
            }
            if (st != INFER_E_MEMORY) fail_msg("allocation %d: status %d, %s", (int)k, st, err_message());
        }
}

/* A vector of schemas and texts that have ' for ". */
static void check_schemas(const struct vector *list, size_t n) {
    static char texts[15][2000];
    for (size_t i = 0; i < n; i++) {
        const char *from[15] = {list[i].text}, *to[15] = {NULL};
        memcpy(from + 1, list[i].yes, sizeof list[i].yes);
        memcpy(from + 8, list[i].no, sizeof list[i].no);
        for (int k = 0; k < 15; k++) {
            if (!from[k]) continue;
            assert_true(strlen(from[k]) < sizeof texts[k]);
            strcpy(texts[k], from[k]);
            for (char *c = texts[k]; *c; c++)
                if (*c == '\'') *c = '"';
            to[k] = texts[k];
        }
        struct vector v = {.text = to[0]};
        memcpy(v.yes, to + 1, sizeof v.yes);
        memcpy(v.no, to + 8, sizeof v.no);
        check(&v, 1, INFER_GRAMMAR_SCHEMA);
    }
}
#define CHECK_SCHEMAS(list) check_schemas(list, sizeof list / sizeof *list)
#define TREE                                                                                                 \
    "'$defs': {'tree': {'$id': 'tree', '$dynamicAnchor': 'node', 'properties': {'kids': {'items': "          \
    "{'$dynamicRef': '#node'}, 'maxItems': 1}}}}"

/* Names and references; draft 2020-12 where nothing else is said. */
static void references(void **state) {
    (void)state;
    static const struct vector list[] = {
        /* URIs against a base: RFC 3986, 5.4 */
        {"{'$id': 'http://a/b/c/d?q', '$ref': '../g', '$defs': {'x': {'$id': 'http://a/b/g', 'type': 'null'}}}",
         {"null"},
         {"1"}},
        {"{'$id': 'http://a/b/c/d', '$ref': '//h/./x/../y;k', '$defs': {'x': {'$id': 'http://h/y;k', 'type': 'null'}}}",
         {"null"},
         {"1"}},
        {"{'$id': 'http://a/b/c/d', '$ref': '/../e/..', '$defs': {'x': {'$id': 'http://a/', 'type': 'null'}}}",
         {"null"},
         {"1"}},
        {"{'$id': 'http://a', '$ref': 'x?y#', '$defs': {'x': {'$id': '/x?y', 'type': 'null'}}}",
         {"null"},
         {"1"}},
        {"{'$id': 'urn:x:1', '$ref': 'urn:x:2#b', '$defs': {'x': {'$id': 'urn:x:2', '$defs': {'y': {'$anchor': 'b', 'type': 'null'}}}}}",
         {"null"},
         {"1"}},
        /* pointers belong to the nearest $id, also where no keyword looks; the same anchor in two resources */
        {"{'$ref': 'one', '$defs': {'one': {'$id': 'one', '$ref': '#/$defs/a~1%62', '$defs': {'a/b': {'type': 'null'}}}, 'a/b': {'type': 'integer'}}}",
         {"null"},
         {"1"}},
        {"{'properties': {'a': {'$ref': '#/deep/1/s'}}, 'deep': [0, {'s': {'$ref': '#n'}}], '$defs': {'n': {'$anchor': 'n', 'type': 'null'}}}",
         {"{'a': null}"},
         {"{'a': 1}"}},
        {"{'anyOf': [{'$ref': 'p#n'}, {'$ref': 'q#n'}], '$defs': {'p': {'$id': 'p', '$anchor': 'n', 'const': 1}, 'q': {'$id': 'q', '$anchor': 'n', 'const': 2}}}",
         {"1", "2"},
         {"3"}},
        {"{'const': {'$id': 'http://x/', '$ref': '#/none'}}", {"{'$id':'http://x/','$ref':'#/none'}"}, {"1"}},
        /* parts of a resource keep its base when they are joined */
        {"{'allOf': [{'$ref': 'r/s'}, {'minimum': 2}], '$defs': {'s': {'$id': 'r/s', '$ref': 't', '$defs': {'t': {'$id': 't', 'enum': [1, 2, 3]}}}}}",
         {"2", "3"},
         {"1"}},
        /* before 2019-09: $id as an anchor, and nothing beside $ref counts */
        {"{'$schema': 'http://json-schema.org/draft-07/schema#', '$ref': '#n', 'type': 'null', 'definitions': {'n': {'$id': '#n', 'type': 'integer'}}}",
         {"1"},
         {"null"}},
        {"{'$schema': 'http://json-schema.org/draft-04/schema#', 'id': 'http://x/', '$ref': 'y#', 'definitions': {'n': {'id': 'y', 'type': 'integer'}}}",
         {"1"},
         {"null"}},
        {"{'$schema': 'http://json-schema.org/draft-07/schema#', 'type': 'integer', 'minimum': 0, 'not': {'$ref': '#/definitions/n', 'maximum': 1}, "
         "'definitions': {'n': {'enum': [1, 2]}}}",
         {"0", "3"},
         {"1", "2"}},
        /* a dynamic name: declared once, or by the outermost resource; else as an anchor */
        {"{'$ref': 'tree', " TREE "}", {"{'kids': [{'kids': []}]}", "{}"}, {"{'kids': [1]}"}},
        {"{'$id': 'strict', '$dynamicAnchor': 'node', '$ref': 'tree', 'required': ['v'], 'properties': {'v': {'const': 1}}, " TREE
         "}",
         {"{'v': 1, 'kids': [{'v': 1}]}"},
         {"{'v': 1, 'kids': [{}]}", "{}"}},
        {"{'items': {'$dynamicRef': '#n'}, '$defs': {'x': {'$anchor': 'n', 'type': 'null'}, 'y': {'$id': 'y', '$dynamicAnchor': 'n'}}}",
         {"[null]"},
         {"[1]"}},
        {"{'$schema': 'https://json-schema.org/draft/2019-09/schema', '$id': 'o', '$recursiveAnchor': true, '$ref': 't', 'required': ['v'], "
         "'properties': {'v': {'const': 1}}, '$defs': {'t': {'$id': 't', '$recursiveAnchor': true, 'properties': {'kids': {'items': "
         "{'$recursiveRef': '#'}, 'maxItems': 1}}}}}",
         {"{'v': 1, 'kids': [{'v': 1}]}"},
         {"{'v': 1, 'kids': [{}]}"}},
        {"{'unevaluatedProperties': false}", {"{}"}, {"{'a': 1}", "1"}},
        {"{'propertyNames': {'type': ['array', 'null']}}", {"{}"}, {"{'a': 1}"}},
    };
    CHECK_SCHEMAS(list);
}

/* What stands beside other parts: unevaluated members and elements, tuples, members of patterns, hits that are counted. */
static void parts(void **state) {
    (void)state;
    static const struct vector list[] = {
        /* unevaluated members are those that their own schema has not seen, not its cousins */
        {"{'properties': {'a': {}}, 'allOf': [{'properties': {'b': {}}, 'unevaluatedProperties': false}]}",
         {"{}", "{'b': 1}"},
         {"{'a': 1}", "{'a': 1, 'b': 1}"}},
        {"{'properties': {'a': {'const': 1}}, 'allOf': [{'properties': {'b': {'const': 2}}}], 'unevaluatedProperties': {'const': 3}}",
         {"{'a': 1, 'b': 2, 'c': 3}"},
         {"{'c': 1}", "{'b': 3}"}},
        {"{'properties': {'k': {'type': 'boolean'}}, 'required': ['k'], 'if': {'properties': {'k': {'const': true}}}, 'then': {'properties': "
         "{'x': {'const': 1}}}, 'else': {'properties': {'y': {'const': 2}}}, 'unevaluatedProperties': false}",
         {"{'k': true, 'x': 1}", "{'k': false, 'y': 2}"},
         {"{'k': true, 'y': 2}", "{'k': false, 'x': 1}", "{'k': true, 'z': 1}"}},
        {"{'allOf': [{'anyOf': [{'properties': {'a': {'const': 1}}, 'required': ['a']}, {'properties': {'b': {'const': 2}}}], "
         "'unevaluatedProperties': false}, {'properties': {'c': {}}}]}",
         {"{'a': 1}", "{'b': 2}", "{}"},
         {"{'c': 1}", "{'a': 1, 'c': 1}"}},
        /* what a dependency asks for is seen where its member is there */
        {"{'properties': {'n': {'const': 0}}, 'dependentSchemas': {'n': {'properties': {'b': {'const': 1}}}}, 'unevaluatedProperties': false}",
         {"{}", "{'n': 0, 'b': 1}"},
         {"{'b': 1}"}},
        {"{'unevaluatedItems': false, 'prefixItems': [{'const': 1}], 'allOf': [{'prefixItems': [{}, {'const': 2}]}]}",
         {"[1, 2]"},
         {"[1, 2, 3]", "[1, 3]"}},
        {"{'contains': {'const': 1}, 'unevaluatedItems': {'const': 2}}",
         {"[1]", "[2, 1, 2]"},
         {"[2]", "[1, 3]"}},
        {"{'$schema': 'https://json-schema.org/draft/2019-09/schema', 'contains': {'const': 1}, 'unevaluatedItems': {'enum': [1, 2]}, 'maxItems': 2}",
         {"[1]", "[2, 1]"},
         {"[2]", "[1, 3]"}},
        /* tuples element by element; a list ends before what cannot be */
        {"{'allOf': [{'prefixItems': [{'type': 'integer'}], 'items': {'type': 'null'}}, {'prefixItems': [{'maximum': 5, 'minimum': 0}, true]}]}",
         {"[3, null]", "[0, null, null]"},
         {"[6, null]", "[1, 2]"}},
        {"{'$schema': 'http://json-schema.org/draft-07/schema#', 'allOf': [{'items': [{'const': 1}], 'additionalItems': false}, {'items': {'type': 'integer'}}]}",
         {"[1]"},
         {"[2]", "[1, 1]"}},
        {"{'prefixItems': [{'const': 1}, false]}", {"[1]"}, {"[1, 1]", "[2]"}},
        /* members of patterns meet the other part's additionalProperties */
        {"{'allOf': [{'additionalProperties': {'maximum': 5, 'minimum': 0}}, {'patternProperties': {'^x': {'type': 'integer'}}, 'additionalProperties': false}]}",
         {"{'x': 3}"},
         {"{'x': 6}", "{'y': 1}"}},
        {"{'allOf': [{'patternProperties': {'^x': {'const': 1}}, 'additionalProperties': false}, {'properties': {'xa': {}, 'b': {}}}]}",
         {"{'xa': 1}"},
         {"{'xa': 2}", "{'b': 1}"}},
        /* hits are counted, also beside a tuple and bounds; a number without contains says nothing */
        {"{'items': {'enum': [1, 2]}, 'contains': {'const': 2}, 'maxContains': 1}",
         {"[2]", "[1, 2, 1]"},
         {"[]", "[1]", "[2, 2]", "[2, 1, 2]"}},
        {"{'items': {'enum': [1, 2]}, 'contains': {'const': 2}, 'minContains': 0, 'maxContains': 1, 'minItems': 1, 'maxItems': 3}",
         {"[1]", "[1, 1, 2]", "[2]"},
         {"[]", "[2, 1, 2]", "[1, 1, 1, 1]"}},
        {"{'prefixItems': [{'enum': [1, 2]}, {'const': 1}], 'items': false, 'contains': {'const': 2}}",
         {"[2]", "[2, 1]"},
         {"[1]", "[1, 1]", "[2, 2]"}},
        {"{'allOf': [{'contains': {'const': 2}}, {'contains': {'const': 2}, 'minContains': 0}, {'minContains': 0}], 'items': {'enum': [1, 2]}}",
         {"[2]", "[1, 2]"},
         {"[]", "[1]"}},
        {"{'prefixItems': [{'type': 'boolean'}, {'type': 'boolean'}], 'uniqueItems': true}",
         {"[true, false]", "[false]"},
         {"[true, true]", "[true, false, true]"}},
        /* a pattern is tried on constants */
        {"{'enum': ['ab', 'b', 3], 'pattern': '^a', 'multipleOf': 3}", {"'ab'", "3"}, {"'b'"}},
    };
    CHECK_SCHEMAS(list);
}

/* "not" keyword by keyword, and what only one branch of oneOf takes. */
static void negations(void **state) {
    (void)state;
    static const struct vector list[] = {
        {"{'not': {'type': 'integer'}}", {"'a'", "{'a': 1}", "1.5", "-0.25", "null"}, {"1", "1.0", "-3"}},
        {"{'not': {'type': ['integer', 'boolean']}}", {"'a'", "1.5", "[]"}, {"1", "true"}},
        {"{'not': {'type': 'object', 'properties': {'a': {'type': 'string'}}}}",
         {"1", "[]", "{'a': 1}", "{'a': null}"},
         {"{}", "{'a': 'x'}"}},
        {"{'not': {'enum': [1, 'a', null]}}", {"2", "'b'", "true", "{}", "[]"}, {"1", "'a'", "null"}},
        {"{'not': {'minimum': 3}}", {"2", "2.5", "-1"}, {"3", "4", "'a'"}},
        {"{'$schema': 'http://json-schema.org/draft-04/schema#', 'not': {'minimum': 3, 'exclusiveMinimum': true}}",
         {"3", "2"},
         {"4"}},
        {"{'type': 'number', 'exclusiveMinimum': 0, 'exclusiveMaximum': 2}",
         {"0.0000001", "1.99999", "1.50"},
         {"0.0", "2.0", "0", "2"}},
        {"{'not': {'minLength': 3}}", {"'ab'", "''"}, {"'abc'", "1"}},
        {"{'not': {'items': {'type': 'integer'}}}", {"['a']", "[1, null]"}, {"[]", "[1]", "1"}},
        {"{'not': {'contains': {'const': 1}}}", {"[]", "[2, 'a']"}, {"[1]", "[2, 1]", "1"}},
        {"{'items': {'enum': [1, 2]}, 'not': {'contains': {'const': 1}, 'minContains': 2}}",
         {"[]", "[1]", "[2, 1, 2]"},
         {"[1, 1]", "[1, 2, 1]"}},
        {"{'not': {'prefixItems': [true, {'type': 'null'}], 'items': false}}",
         {"[1, 2]", "[1, null, 3]"},
         {"[]", "[1]", "[1, null]"}},
        {"{'not': {'required': ['a'], 'maxProperties': 1}}", {"{'b': 1}", "{'a': 1, 'b': 2}"}, {"{'a': 1}"}},
        {"{'properties': {'a': {'const': 1}, 'b': {'const': 2}}, 'not': {'properties': {'a': true}, 'additionalProperties': false}}",
         {"{'b': 2}", "{'b': 2, 'a': 1}"},
         {"{}", "{'a': 1}"}},
        {"{'properties': {'xa': {'enum': [1, 2]}, 'b': {'const': 2}}, 'not': {'patternProperties': {'^x': {'const': 1}}}}",
         {"{'xa': 2}"},
         {"{'xa': 1}", "{}", "{'b': 2}"}},
        {"{'not': {'not': {'const': 1}}}", {"1"}, {"2"}},
        {"{'enum': [1, 2, 3, 4], 'not': {'oneOf': [{'minimum': 2}, {'maximum': 3}]}}",
         {"2", "3"},
         {"1", "4"}},
        {"{'if': {'exclusiveMaximum': 0}, 'then': {'minimum': -10}}", {"-5", "0", "7"}, {"-11", "-100"}},
        /* how many members, in order, required first; others where the named ones are too few */
        {"{'properties': {'a': {'const': 1}, 'b': {'const': 2}, 'c': {'const': 3}, 'd': {'const': 4}}, 'required': ['b'], 'minProperties': 3, 'maxProperties': 3}",
         {"{'b': 2, 'a': 1, 'c': 3}", "{'b': 2, 'c': 3, 'd': 4}"},
         {"{'b': 2, 'a': 1}", "{'b': 2, 'a': 1, 'c': 3, 'd': 4}", "{'a': 1, 'c': 3, 'd': 4}"}},
        {"{'properties': {'a': {'const': 1}}, 'additionalProperties': {'type': 'null'}, 'minProperties': 2, 'maxProperties': 3}",
         {"{'a': 1, 'x': null}", "{'x': null, 'y': null, 'z': null}", "{'a': 1, 'x': null, 'y': null}"},
         {"{'a': 1}", "{'x': null, 'x': null}", "{'a': 1, 'x': null, 'y': null, 'z': null}", "{'x': null}"}},
        {"{'properties': {'a': {'const': 1}}, 'minProperties': 2}", {"{'a': 1, 'x': 5}"}, {"{'a': 1}", "{}"}},
        /* multiples in decimals: of a step that divides 1, of any, of integers, of two steps */
        {"{'type': 'number', 'multipleOf': 0.01, 'exclusiveMinimum': 0, 'maximum': 1000.5}",
         {"0.01", "12.5", "999.99", "1000.5", "7"},
         {"0", "0.001", "0.00", "1000.51", "-0.5"}},
        {"{'type': 'number', 'multipleOf': 0.25, 'maximum': -1}",
         {"-1", "-1.25", "-20.5"},
         {"-0.75", "0", "-1.2"}},
        {"{'type': 'number', 'multipleOf': 1.5}", {"0", "4.5", "-3", "300"}, {"1", "4", "3.5"}},
        {"{'type': 'number', 'multipleOf': 0.3, 'minimum': 0, 'maximum': 1}",
         {"0", "0.3", "0.9"},
         {"0.6000", "1.2", "0.1"}},
        {"{'type': 'integer', 'multipleOf': 1.5}", {"3", "-6"}, {"1", "2", "1.5"}},
        {"{'type': 'integer', 'allOf': [{'multipleOf': 4}, {'multipleOf': 6}]}",
         {"12", "0", "24"},
         {"4", "6", "18"}},
        {"{'enum': [0.07, [0.1, 1e300]]}", {"0.07", "[0.1,1e300]"}, {"0.070000000000000007"}},
        {"{'enum': [0.75, 0.375], 'multipleOf': 0.05}", {"0.75"}, {"0.375"}},
        /* oneOf: proofs of what a grammar makes hold for branches that stay as they are, and for no others */
        {"{'oneOf': [{'type': 'number'}, {'type': 'null'}, {'type': 'integer'}]}", {"1.5", "null"}, {"1"}},
        {"{'oneOf': [{'type': 'integer', 'maximum': 0}, {'type': 'integer', 'minimum': 0}]}",
         {"-1", "1"},
         {"0"}},
        {"{'oneOf': [{'type': 'number'}, {}]}", {"'a'", "{}", "null"}, {"1", "1.5"}},
        {"{'oneOf': [{'properties': {'a': {'const': 1}}, 'required': ['a']}, {'properties': {'b': {'const': 2}}, 'required': ['b']}]}",
         {"{'a': 1}", "{'b': 2}"},
         {"{'a': 1, 'b': 2}", "{}"}},
        {"{'oneOf': [{'type': 'object', 'properties': {'x': {}}, 'unevaluatedProperties': true}, {'type': 'object', 'required': ['n']}]}",
         {"{'x': 1}"},
         {"{'n': 1}", "{'x': 1, 'n': 1}"}},
        {"{'oneOf': [{'properties': {'x': {'minLength': 2}}, 'required': ['x']}, {'properties': {'x': {'type': 'object'}}, 'required': ['x']}, "
         "{'properties': {'x': {'type': 'string'}}, 'required': ['x']}]}",
         {"{'x': 'a'}", "{'x': 1}"},
         {"{'x': {}}", "{'x': 'ab'}"}},
    };
    CHECK_SCHEMAS(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(negations), cmocka_unit_test(parts),      cmocka_unit_test(regexes),
        cmocka_unit_test(larks),     cmocka_unit_test(references), cmocka_unit_test(left_recursion),
        cmocka_unit_test(tags),      cmocka_unit_test(errors),     cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
