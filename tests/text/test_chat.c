/* Chat templates: the outside vectors, and small cases of our own for the language, the marks and the budgets. */
#include "tests/lib/test.h"
#include <jansson.h>
#include "text/chat_template.h"
#include "files/json.h"
#include "base/mem.h"

/* chat_render with the variables of a JSON text. */
static enum infer_status render_json(struct chat_text *out, const char *text, size_t n, const char *json) {
    json_t *vars;
    *out = (struct chat_text){0};
    TRY(json_read(&vars, "template input", json, strlen(json), JSON_ALLOW_NUL));
    enum infer_status st = chat_render(out, text, n, vars);
    json_decref(vars);
    return st;
}

/* Renders text with variables json; returns the text, or the message of the error behind "!". Static buffer. */
static const char *rendered(const char *text, const char *json) {
    static char buf[4096];
    struct chat_text t;
    enum infer_status st = render_json(&t, text, strlen(text), json);
    if (st != INFER_OK) {
        snprintf(buf, sizeof buf, "!%s", err_message());
        return buf;
    }
    snprintf(buf, sizeof buf, "%s", t.text);
    chat_text_free(&t);
    return buf;
}

struct example {
    const char *text, *want;
};
static void check(const struct example *e, size_t n, const char *json) {
    for (size_t i = 0; i < n; i++) {
        const char *got = rendered(e[i].text, json);
        if (strcmp(got, e[i].want) != 0) fail_msg("%s\n  gives  %s\n  wanted %s", e[i].text, got, e[i].want);
    }
}
#define CHECK(list, json) check(list, sizeof list / sizeof *list, json)

static void expressions(void **state) {
    (void)state;
    static const struct example list[] = {
        {"{{ 1 + 2 * 3 ** 2 }}", "19"},
        {"{{ -2 ** 2 }}", "4"}, /* the sign binds closer than ** */
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }}", "3 -4 2 3.5 0.5"},
        {"{{ 1 ~ 2 + 3 }}", "!template line 1: can only concatenate str (not \"int\") to str"},
        {"{{ 'a' ~ 1 ~ none ~ true }}", "a1NoneTrue"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }}", "True False True True"},
        {"{{ not 1 == 2 and 3 or 4 }} {{ 0 or '' or [] }} {{ 'x' and 0 }}", "3 [] 0"},
        {"{{ 'b' in 'abc' }} {{ 4 not in [1, 2] }} {{ 'k' in {'k': 1} }}", "True True True"},
        {"{{ 'a' if false }}|{{ 'a' if true else 'b' }}|{{ 1 if 0 else 2 if 0 else 3 }}", "|a|3"},
        {"{{ [1, 2, 3][1:] }} {{ 'hello'[::-1] }} {{ 'hello'[-3:-1] }} {{ (1, 2, 3)[::2] }}",
         "[2, 3] olleh ll (1, 3)"},
        {"{{ {'a': 1, 'b': [none, 1.5, 'x\"y', \"it's\"]} }}",
         "{'a': 1, 'b': [None, 1.5, 'x\"y', \"it's\"]}"},
        {"{{ (1,) }} {{ () }} {{ 1, 2 }}", "(1,) () (1, 2)"},
        {"{{ 1e16 }} {{ 1.0 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 123456789012345680.0 }}",
         "1e+16 1.0 1e-05 0.30000000000000004 1.2345678901234568e+17"},
        {"{{ 'x' * 3 }} {{ [0] * 2 }} {{ 'a' 'b' }}", "xxx [0, 0] ab"},
        {"{{ '%s-%05.1f-%x' % ('a', 3.14159, 255) }} {{ '%d%%' % 5 }}", "a-003.1-ff 5%"},
        {"{{ '{0} {1} {x:>4}|{y:<3}|{z:,}'.format(1, 2, x='a', y=5, z=1234567) }}", "1 2    a|5  |1,234,567"},
        {"{{ 'caf\\u00e9\\n' | length }} {{ '\\x41\\101' }}", "5 AA"},
        {"{{ x.y.z }}", "!template line 1: 'x' is undefined"},
        {"{{ x }}|{{ x is defined }}|{{ x | default('d') }}|{{ none | default('d', true) }}", "|False|d|d"},
        {"{{ {'items': 3}.items() | list }} {{ {'items': 3}['items'] }}", "[('items', 3)] 3"},
        {"{{ d.a.b }} {{ d['a']['b'] }} {{ d.l.1 }} {{ d.l[-1] }} {{ d.no is defined }}", "5 5 2 3 False"},
        {"{{ 9223372036854775807 + 1 }}", "!template line 1: an integer does not fit 64 bits"},
        {"{{ 1 / 0 }}", "!template line 1: division by zero"},
        {"{{ [].clear() }}", "!template line 1: access to attribute 'clear' of 'list' object is unsafe."},
        {"{{ ''.__class__ }}{{ ''.__class__.x }}",
         "!template line 1: 'str object' has no attribute '__class__'"},
        {"{{ '<' | e ~ '>' }} {{ '<b>' | safe + '<' }}", "&lt;> <b>&lt;"},
    };
    CHECK(list, "{\"d\": {\"a\": {\"b\": 5}, \"l\": [1, 2, 3]}}");
}

static void statements(void **state) {
    (void)state;
    static const struct example list[] = {
        {"{% for x in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}",
         "1/3,2/3,3/3"},
        {"{% for x in [] %}a{% else %}none{% endfor %}", "none"},
        {"{% for x in range(9) if x % 2 %}{{ x }}:{{ loop.first }} {% endfor %}",
         "1:True 3:False 5:False 7:False "},
        {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 3 %}{% break %}{% endif "
         "%}{{ x }}{% endfor %}",
         "013"},
        {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}", "a=1;b=2;"},
        {"{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "221"},
        {"{% set n = namespace(x=1) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
         "4"},
        {"{% set a, b = 1, 'z' %}{{ b }}{{ a }}", "z1"},
        {"{% set t %}a{{ 1 }}{% endset %}{{ t | upper }} {% set u | trim %} x {% endset %}[{{ u }}]",
         "A1 [x]"},
        {"{% macro m(a, b='d') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, 2, "
         "3, k=4) }}",
         "1d(){} 12(3,){'k': 4}"},
        {"{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) m(7) %}{{ x + 1 }}{% endcall %}", "<8>"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
         "!template line 1: macro 'm' takes not more than 1 argument(s)"},
        {"{% filter upper | trim %} a b {% endfilter %}", "A B"},
        {"{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "3False"},
        {"{% generation %}x{% endgeneration %}{% raw %}{{ no }}{% endraw %}", "x{{ no }}"},
        {"{% for x in [[1, [2]], [3]] recursive %}{% if x is number %}{{ x }}{% else %}({{ loop(x) }}){% "
         "endif %}{% endfor %}",
         "(1(2))(3)"},
        {"{% for x in 'abca' %}{{ loop.changed(x) }}{{ loop.cycle('o', 'e') }}{{ loop.previtem }}{{ "
         "loop.nextitem }} {% endfor %}",
         "Trueob Trueeac Trueoba Trueec "},
        {"{% if a %}1{% elif not a %}2{% else %}3{% endif %}", "2"},
        {"a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
        {"a  {%- if true -%}  b  {%- endif -%}  c", "abc"},
        {"x\n   {% set a = 1 %}   y\n   {{ a }}\n   {#- c -#}\n z", "x\n   y\n   1z"},
        {"x\n   {%+ set a = 1 +%}\ny", "x\n   \ny"},
        {"\n\n{{ 1 }}{% x %}", "!template line 3: unknown or unsupported tag 'x'"},
        {"{% if 1 %}", "!template line 1: expected endif, found end of template"},
        {"{{ raise_exception('no\\nway') }}", "!template line 1: no\\x0away"},
        {"{{ strftime_now('%d %b %Y, %A %H:%M:%S') }}", "07 Feb 2026, Saturday 08:05:09"},
        {"{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('-') "
         "%}{{ j() }}{{ j() }}",
         "aba-"},
    };
    CHECK(list, "{\"now\": \"2026-02-07T08:05:09\"}");
}

static void filters_and_methods(void **state) {
    (void)state;
    static const struct example list[] = {
        {"{{ [3, 1, 2] | sort }} {{ ['b', 'A'] | sort }} {{ [3, 1] | sort(reverse=true) }}",
         "[1, 2, 3] ['A', 'b'] [3, 1]"},
        {"{{ u | map(attribute='n') | join(',') }} {{ u | selectattr('n', 'gt', 1) | map(attribute='s') | "
         "list }}",
         "1,2 ['b']"},
        {"{{ [0, 1, 2] | select | list }} {{ [1, 2, 3] | reject('odd') | list }} {{ ['a'] | map('upper') | "
         "list }}",
         "[1, 2] [2] ['A']"},
        {"{{ u | groupby('n') | map('first') | list }} {{ [1, 1, 2] | unique | list }}", "[1, 2] [1, 2]"},
        {"{{ [1, 5, 3] | max }} {{ [] | min }} {{ [1, 2] | sum }} {{ u | sum(attribute='n') }}", "5  3 3"},
        {"{{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1} | items | list }}",
         "[('a', 2), ('b', 1)] [('b', 1)]"},
        {"{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | slice(2) | list }} {{ [1, 2] | reverse | list }}",
         "[[1, 2], [3]] [[1, 2], [3]] [2, 1]"},
        {"{{ 'a b' | title }} {{ 'hELLO' | capitalize }} {{ ' x ' | trim }} {{ 'aXbX' | replace('X', '-', 1) "
         "}}",
         "A B Hello x a-bX"},
        {"{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(2, first=true) }}", "a\n  b\n\n  c|  a\n  b"},
        {"{{ {'a': [1, 2.0, none, 'é\\n']} | tojson }}", "{\"a\": [1, 2.0, null, \"é\\n\"]}"},
        {"{{ {'a': [1], 'b': {}} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}"},
        {"{{ 'é' | tojson(ensure_ascii=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }}",
         "\"\\u00e9\" [1,2]"},
        {"{{ '42' | int + 1 }} {{ 'x' | int(7) }} {{ '1.5' | float }} {{ 2.5 | round }} {{ 2.567 | round(2) "
         "}} {{ -3 | abs }}",
         "43 7 1.5 2.0 2.57 3"},
        {"{{ [1, [2]] | string | length }} {{ 'abc' | first }}{{ 'abc' | last }} {{ 'a,b' | wordcount }}",
         "8 ac 2"},
        {"{{ 'foo bar baz' | truncate(7) }} {{ 'a b&' | urlencode }} {{ 1500 | filesizeformat }}",
         "foo bar baz a%20b%26 1.5 kB"},
        {"{{ {'a': 1, 'b': [2]} | truncate(5) }} {{ [1, 2] | truncate(1, leeway=1, end='') }}",
         "{'a': 1, 'b': [2]} [1, 2]"},
        {"{{ range(4)[1:][::2] }} {{ range(0, 5, 2) }} {{ range(3)[::-1] }} {{ range(2, 2) }}",
         "range(1, 4, 2) range(0, 5, 2) range(2, -1, -1) range(2, 2)"},
        {"{{ ' a b  c '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }}",
         "['a', 'b', 'c'] ['a', 'b,c'] ['a,b', 'c']"},
        {"{{ 'xxaxx'.strip('x') }} {{ 'abc'.startswith(('z', 'a')) }} {{ 'abc'.endswith('bc') }} {{ "
         "'abcb'.find('b', 2) }}",
         "a True True 3"},
        {"{{ 'a-b'.partition('-') }} {{ 'ab'.center(6, '*') }} {{ '7'.zfill(3) }} {{ ','.join(['a', 'b']) }}",
         "('a', '-', 'b') **ab** 007 a,b"},
        {"{{ 'Straße'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ "
         "'prefix_x'.removeprefix('prefix_') }}",
         "STRASSE ας True True x"},
        {"{{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys() | list }} {{ [1, 2].index(2) }} {{ "
         "'a\\nb'.splitlines() }}",
         "2 ['a'] 1 ['a', 'b']"},
        {"{{ 1 is number }} {{ true is integer }} {{ 'a' is string }} {{ [] is mapping }} {{ {} is iterable "
         "}} {{ 4 is divisibleby 2 }}",
         "True False True False True True"},
        {"{{ none is none }} {{ 1 is not none }} {{ 'a' is in ['a'] }} {{ 3 is odd }} {{ 1 is eq 1 }} {{ "
         "'upper' is filter }}",
         "True True True True True True"},
        {"{{ x | nofilter }}", "!template line 1: no filter named 'nofilter'"},
        {"{{ [1, 2] | map('upper') | tojson }}",
         "!template line 1: Object of type generator is not JSON serializable"},
    };
    CHECK(list, "{\"u\": [{\"n\": 1, \"s\": \"a\"}, {\"n\": 2, \"s\": \"b\"}]}");
}

/* What other engines of chat templates add to Jinja2's own: the filter of DeepSeek's templates, llama.cpp's and minja's
 * changing methods and methods as filters, minijinja's filters and tests. */
static void what_others_add(void **state) {
    (void)state;
    static const struct example list[] = {
        {"{{ '{\"b\": [1, -2.5e1, true, false, null], \"a\": {}}' | from_json }}",
         "{'b': [1, -25.0, True, False, None], 'a': {}}"},
        {"{{ t | from_json }}", "é\n\"/😀"},
        {"{{ '[9223372036854775807, 9223372036854775808, -0, 1e400, NaN]' | from_json }}",
         "[9223372036854775807, 9.223372036854776e+18, 0, inf, nan]"},
        {"{{ '{\"a\": 1, \"b\": 2, \"a\": 3}' | from_json }}", "{'a': 3, 'b': 2}"},
        {"{{ ' ' | from_json }}", "!template line 1: from_json: Expecting value: line 1 column 2 (char 1)"},
        {"{{ '[1,\n é]' | from_json }}",
         "!template line 2: from_json: Expecting value: line 2 column 2 (char 5)"},
        {"{{ '[1,' | from_json }}", "!template line 1: from_json: Expecting value: line 1 column 4 (char 3)"},
        {"{{ '[1 2]' | from_json }}",
         "!template line 1: from_json: Expecting ',' delimiter: line 1 column 4 (char 3)"},
        {"{{ '{a: 1}' | from_json }}", "!template line 1: from_json: Expecting property name enclosed in "
                                       "double quotes: line 1 column 2 (char 1)"},
        {"{{ '{\"a\" 1}' | from_json }}",
         "!template line 1: from_json: Expecting ':' delimiter: line 1 column 6 (char 5)"},
        {"{{ '1.' | from_json }}", "!template line 1: from_json: Extra data: line 1 column 2 (char 1)"},
        {"{{ '\"a' | from_json }}",
         "!template line 1: from_json: Unterminated string starting at: line 1 column 1 (char 0)"},
        {"{{ '\"\\\\x\"' | from_json }}",
         "!template line 1: from_json: Invalid \\escape: line 1 column 2 (char 1)"},
        {"{{ '\"\\\\u12\"' | from_json }}",
         "!template line 1: from_json: Invalid \\uXXXX escape: line 1 column 3 (char 2)"},
        {"{{ '\"\\\\udc00\"' | from_json }}",
         "!template line 1: from_json: half a surrogate pair is no character: line 1 column 2 (char 1)"},
        {"{{ 3 | from_json }}", "!template line 1: from_json: the JSON object must be str, not int"},
        {"{{ none_here | from_json }}", "!template line 1: 'none_here' is undefined"},
        {"{% set l = [1] %}{% set m = l %}{% set _ = l.append(2) %}{{ m }}{{ l.pop(0) }}{{ m }}{{ m.pop() "
         "}}{{ l }}",
         "[1, 2]1[2]2[]"},
        {"{% set l = [1] %}{% do l.extend(l) %}{% do l.insert(-9, 0) %}{% do l.insert(9, 3) %}{{ l }}",
         "[0, 1, 1, 3]"},
        {"{% set l = [1] %}{% set c = l.copy() %}{% do c.append(2) %}{{ l }}{{ c }}", "[1][1, 2]"},
        {"{% for x in l %}{{ x }}{% if x < 3 %}{% do l.append(x + 1) %}{% endif %}{% endfor %}", "123"},
        {"{{ [].pop() }}", "!template line 1: pop from empty list"},
        {"{{ [1].pop(1) }}", "!template line 1: pop index out of range"},
        {"{{ [1].pop('a') }}", "!template line 1: 'str' object cannot be interpreted as an integer"},
        {"{{ [1].insert(none, 1) }}",
         "!template line 1: 'NoneType' object cannot be interpreted as an integer"},
        {"{% set d = {'a': 1, 'b': 2} %}{{ d.pop('a') }}{{ d }}{{ d.pop('z', 9) }}{{ d.setdefault('c', 3) "
         "}}{{ "
         "d.setdefault('c', 4) }}{% do d.update({'b': 5}, e=6) %}{{ d }}",
         "1{'b': 2}933{'b': 5, 'c': 3, 'e': 6}"},
        {"{% set d = dict(range(40) | zip(range(40))) %}{% for i in range(39) %}{% do d.pop(i) %}{% endfor "
         "%}{{ d }}{{ "
         "d.get(3) }}{{ d[39] }}",
         "{39: 39}None39"},
        {"{{ {}.pop('z') }}", "!template line 1: pop: the dict has no key 'z'"},
        {"{{ {}.popitem() }}", "!template line 1: access to attribute 'popitem' of 'dict' object is unsafe."},
        {"{{ ' a ' | strip }}{{ 'a,b' | split(',') }}{{ {'k': 1} | keys | list }}{{ {'k': 1} | get('k') }}",
         "a['a', 'b']['k']1"},
        {"{{ 3 | strip }}", "!template line 1: no filter named 'strip' for 'int' object"},
        {"{{ tojson({'a': 1}) }}{{ join([1, 2], '-') }}{{ tojson is defined }}", "{\"a\": 1}1-2False"},
        {"{% if 0 %}{{ 1 | nofilter }}{{ 1 is notest }}{% endif %}x", "x"},
        {"{% if 1 %}{{ 1 | nofilter }}{% endif %}", "!template line 1: no filter named 'nofilter'"},
        {"{% if 1 is notest %}{% endif %}", "!template line 1: no test named 'notest'"},
        {"{{ 1 is notest }}", "!template line 1: no test named 'notest'"},
        {"{{ [1, 2, 3] | zip('ab', (7, 8, 9)) | list }}{{ [1] | chain([2], 'x') | list }}",
         "[(1, 'a', 7), (2, 'b', 8)][1, 2, 'x']"},
        {"{{ 'x' | bool }}{{ [] | bool }}{{ [5] | random }}{{ [] | random is defined }}", "TrueFalse5False"},
        {"{{ 'ab' is startingwith 'a' }}{{ 'ab' is endingwith('a') }}{{ 'a' | safe is safe }}",
         "TrueFalseTrue"},
        {"{{ 1 is startingwith 'a' }}", "!template line 1: a str is needed here, not int"},
        {"{{ {'a': '<', 'b': none, 'c': 1} | xmlattr }}|{{ {'a': 1} | xmlattr(false) }}",
         " a=\"&lt;\" c=\"1\"|a=\"1\""},
        {"{{ {'a b': 1} | xmlattr }}", "!template line 1: Invalid character in attribute name: 'a b'"},
        {"{{ (1.0).is_integer() }}{{ (1.5).is_integer() }}{{ 1.0.is_integer() }}", "TrueFalseTrue"},
    };
    CHECK(list, "{\"t\": \"\\\"\\\\u00e9\\\\n\\\\\\\"\\\\/\\\\ud83d\\\\ude00\\\"\", \"l\": [1]}");
}

/* ---- marks ---- */

/* Every 'U' in the result came from the user's text, nothing else is a 'U' in capitals: marks must say the same. */
static void marks_survive(void **state) {
    (void)state;
    static const char *const list[] = {
        "{{ c }}x{{ c + 'y' }}{{ 'z' ~ c ~ 1 }}",
        "{{ c | trim }}{{ c | upper }}{{ c | replace('~', '-') }}{{ 'a-b' | replace('-', c) }}",
        "{{ c[1:] }}{{ c[::-1] }}{{ c[0] }}{{ c | first }}{{ c | reverse }}{% for x in c %}{{ x }}.{% endfor "
        "%}",
        "{{ c.split('~') | join('+') }}{{ c.splitlines() }}{{ c.partition('~') }}{{ c.strip('~') }}{{ "
        "c.rsplit('~', 1) }}",
        "{{ c | tojson }}{{ [c] | tojson(indent=2) }}{{ {'k': c} }}{{ [c] | string }}{{ c | pprint }}",
        "{{ '%s|%5s|%r' % (c, c, c) }}{{ '{}|{:>9}|{!r}'.format('a', 'b', 'c') if 0 }}{{ "
        "'{0}|{0:>9}|{0!r}'.format(c) }}",
        "{{ c | indent(2, first=true) }}{{ c.center(9) }}{{ c.ljust(9, '_') }}{{ c.zfill(9) }}{{ c * 2 }}{{ "
        "c | center(9) }}",
        "{{ c | e }}{{ c | safe + '<' }}{{ c.title() }}{{ c | capitalize }}{{ c | title }}{{ "
        "c.swapcase().swapcase() }}",
        "{% set t %}a{{ c }}b{% endset %}{{ t }}{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(c) }}{% filter "
        "lower %}{% endfilter %}",
        "{{ [c, 'q', c] | join(c) }}{{ [c] | map('trim') | join }}{{ (c ~ 'a') | truncate(9) }}{{ c | list | "
        "join }}",
        "{% set n = namespace(s='') %}{% for i in range(3) %}{% set n.s = n.s + 'ab' + c %}{% endfor %}{{ "
        "n.s }}",
        "{{ messages[0].parts[0].text }}{{ documents[0].title }}{{ c.removeprefix('~') }}{{ c.expandtabs() "
        "}}{{ c | urlencode }}",
        "{{ messages[0] }}{{ documents | tojson }}{{ [3, c] | sort | join if 0 }}{{ [c, c] | unique | list "
        "}}{{ c | default('U' | lower) }}",
        "{% for k, v in (messages[0].args | from_json)[0].items() %}{{ k }}{{ v }}{% endfor %}{{ ('[\"q\", "
        "\"' ~ c.split()[0] ~ '\"]') | from_json | join }}",
        "{% set l = ['q'] %}{% do l.append(c) %}{% do l.insert(0, c) %}{{ l.pop() }}{{ l | join }}{{ {'k': "
        "c} | xmlattr "
        "}}{{ c | strip }}{{ [c] | zip('q') | list }}",
    };
    const char *json = "{\"messages\": [{\"role\": \"user\", \"content\": \"~UU\\t~\", \"args\": "
                       "\"[{\\\"U\\\": \\\"U\\\\n\\\\u0055\\\"}]\", \"parts\": [{\"text\": \"U\"}]}],"
                       "\"documents\": [{\"title\": \"U\"}]}";
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[1024];
        struct chat_text t;
        snprintf(text, sizeof text, "{%% set c = messages[0].content %%}%s", list[i]);
        assert_ok(render_json(&t, text, strlen(text), json));
        size_t users = 0;
        for (size_t k = 0; k < t.n; k++) {
            bool user = t.text[k] == 'U';
            users += user;
            if (user && !t.marks[k]) fail_msg("%s: byte %zu of %s lost its mark", text, k, t.text);
            /* letters of ours are all small: none may carry a mark */
            if (t.text[k] >= 'a' && t.text[k] <= 'z' && t.marks[k] && t.text[k] != 't' && t.text[k] != 'u')
                if (!strstr(text, "tojson") && !strstr(text, "messages[0] ") && !strstr(text, "title") &&
                    !strstr(text, "capital"))
                    fail_msg("%s: byte %zu of %s is marked", text, k, t.text);
        }
        assert_true(users > 0);
        chat_text_free(&t);
    }
}

static void marks_by_role(void **state) {
    (void)state;
    const char *text = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ tools[0].name "
                       "}}{{ documents[0] }}";
    const char *json = "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": "
                       "\"assistant\", \"content\": \"A\"},"
                       "{\"role\": \"tool\", \"content\": \"T\"}, {\"role\": \"a|>\", \"content\": \"U\"}],"
                       "\"tools\": [{\"name\": \"F\"}], \"documents\": [\"D\"]}";
    struct chat_text t;
    assert_ok(render_json(&t, text, strlen(text), json));
    assert_string_equal(t.text, "<|system|>S<|assistant|>A<|tool|>T<|a|>|>UFD");
    const char *want = "00000000000"
                       "00000000000000"
                       "000000001"
                       "00111001"
                       "01";
    assert_int_equal(t.n, strlen(want));
    for (size_t i = 0; i < t.n; i++)
        if (t.marks[i] != (want[i] == '1')) fail_msg("byte %zu (%c): mark %d", i, t.text[i], t.marks[i]);
    chat_text_free(&t);
}

/* ---- budgets ---- */

static void repeat_text(char *out, const char *s, int n) {
    for (*out = 0; n > 0; n--) out = stpcpy(out, s);
}

static void budgets_hold(void **state) {
    (void)state;
    static const struct example list[] = {
        {"{{ range(1000000000) | length }}",
         "!template line 1: range of 1000000000 elements, at most 1000000 are allowed"},
        {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
         "!template line 1: macros call each other deeper than 64"},
        {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
         "!template line 1: the template takes more than 10000000 steps"},
        {"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s + n.s %}{% endfor %}",
         "!template line 1: a text grows beyond 16 MiB"},
        {"{{ 'a' * 99999999999 }}", "!template line 1: a text grows beyond 16 MiB"},
        {"{{ '%999999999d' % 1 }}", "!template line 1: a text grows beyond 16 MiB"},
        {"{% set n = namespace(s=[]) %}{% for i in range(99999) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s }}",
         "!template line 1: values or expressions nested deeper than 1200"},
        {"{{ ('[' * 9999) | from_json }}", "!template line 1: values or expressions nested deeper than 1200"},
        {"{{ ('[' + '1,' * 8000000) | from_json }}",
         "!template line 1: the template takes more than 10000000 steps"},
        {"{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}",
         "!template line 1: the template uses more than 512 MiB"},
        {"{% set l = [1] %}{% for x in range(40) %}{% do l.extend(l) %}{% endfor %}",
         "!template line 1: the template uses more than 512 MiB"},
        {"{% set l = [] %}{% do l.append(l) %}{{ l }}",
         "!template line 1: values or expressions nested deeper than 1200"},
        {"{% set l = [] %}{% do l.append(l) %}{{ l == [l] }}{{ l | tojson }}",
         "!template line 1: values or expressions nested deeper than 1200"},
        {"{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}",
         "!template line 1: the template takes more than 10000000 steps"},
    };
    CHECK(list, "{}");
    static const char *const nest[] = {
        "(",    "[",    "{1:",   "-",   "not ",        "a(", "a[", "{% if 1 %}", "{% for x in y %}",
        "'a'+", "x.y.", "1 if ", "[x|", "a if b else "};
    char *text = malloc(1 << 20);
    for (size_t i = 0; i < sizeof nest / sizeof *nest; i++) {
        char *p = stpcpy(text, nest[i][0] == '{' && nest[i][1] == '%' ? "" : "{{ ");
        repeat_text(p, nest[i], 60000);
        assert_true(rendered(text, "{}")[0] == '!');
    }
    char *p = stpcpy(text, "{{ 1"); /* a long flat sum is an error, never an overflow */
    repeat_text(p, "+1", 100000);
    strcat(text, " }}");
    assert_true(rendered(text, "{}")[0] == '!');
    p = stpcpy(text, "{% if 0 %}");
    repeat_text(p, "{% elif 0 %}", 50000);
    strcat(text, "{% endif %}ok");
    assert_string_equal(rendered(text, "{}"), "ok");
    memset(text, 'a', 1 << 20);
    text[(1 << 20) - 1] = 0;
    struct chat_text t;
    assert_int_equal(render_json(&t, text, (1 << 20) + 1, "{}"), INFER_E_INPUT);
    free(text);
    assert_int_equal(render_json(&t, "\xff", 1, "{}"), INFER_E_INPUT);
    assert_int_equal(render_json(&t, "x", 1, "[1"), INFER_E_INPUT);
    assert_int_equal(render_json(&t, "x", 1, "{\"now\": \"soon\"}"), INFER_E_INPUT);
}

static void failing_allocations(void **state) {
    (void)state;
    const char *text =
        "{% for m in messages %}{% if m.role == 'user' %}{{ '<|im_start|>' + m.content | trim | tojson }}"
        "{% endif %}{% endfor %}{{ 'a' * 100000 }}";
    const char *json = "{\"messages\": [{\"role\": \"user\", \"content\": \" hi \"}, {\"role\": "
                       "\"assistant\", \"content\": \"x\"}]}";
    struct chat_text t;
    int failed = 0;
    for (uint64_t k = 1;; k++) {
        mem_fail_at(k);
        enum infer_status st = render_json(&t, text, strlen(text), json);
        mem_fail_at(0);
        if (st == INFER_OK) break;
        if (st != INFER_E_MEMORY) fail_msg("allocation %d: status %d, %s", (int)k, st, err_message());
        assert_null(t.text);
        failed++;
    }
    chat_text_free(&t);
    assert_true(failed > 10);
}

/* ---- the outside vectors ---- */

/* The variables of one case as JSON text. */
static char *case_json(const json_t *file, const json_t *tmpl, const json_t *conversation) {
    json_t *v = json_object();
    static const char *const keys[] = {"messages", "tools", "documents", "add_generation_prompt"};
    for (int i = 0; i < 4; i++) json_object_set(v, keys[i], json_object_get(conversation, keys[i]));
    if (json_is_string(json_object_get(tmpl, "bos_token")))
        json_object_set(v, "bos_token", json_object_get(tmpl, "bos_token"));
    if (json_is_string(json_object_get(tmpl, "eos_token")))
        json_object_set(v, "eos_token", json_object_get(tmpl, "eos_token"));
    json_object_set(v, "now", json_object_get(file, "now"));
    json_object_update(v, json_object_get(tmpl, "extra"));
    json_object_update(v, json_object_get(conversation, "extra"));
    char *text = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    return text;
}

struct score {
    int text, text_of, raised, raised_of, other;
};

static bool score_case(struct score *s, const char *name, const json_t *c, enum infer_status st,
                       const struct chat_text *t) {
    const char *text = json_string_value(json_object_get(c, "text"));
    const char *absent =
        json_string_value(json_object_get(json_object_get(c, "when_absent_args_unset"), "text"));
    const json_t *error = json_object_get(c, "error");
    const char *kind = json_string_value(json_object_get(error, "kind"));
    bool ok = true;
    if (text) {
        s->text_of++;
        ok = st == INFER_OK && t->n == json_string_length(json_object_get(c, "text")) &&
             memcmp(t->text, text, t->n) == 0;
        ok |= st == INFER_OK && absent && strcmp(t->text, absent) == 0;
        s->text += ok;
    } else if (strcmp(kind, "raise_exception") == 0) {
        s->raised_of++;
        ok = st == INFER_E_INPUT &&
             strstr(err_message(), json_string_value(json_object_get(error, "message")));
        s->raised += ok;
    } else {
        s->other++;
        ok = strcmp(kind, "recursion") != 0 || st == INFER_E_INPUT;
    }
    if (!ok)
        print_message("%s %s: %s\n", name, json_string_value(json_object_get(c, "conversation")),
                      st == INFER_OK ? t->text : err_message());
    return ok;
}

static void outside_vectors(void **state) {
    (void)state;
    char path[1024], name[256];
    json_error_t error;
    if (!testdata_path(path, sizeof path, "templates/templates.json")) skip();
    json_t *file = json_load_file(path, JSON_ALLOW_NUL, &error), *tmpl, *c;
    assert_non_null(file);
    struct score s = {0};
    const char *key;
    size_t i;
    json_object_foreach(json_object_get(file, "templates"), key, tmpl) {
        size_t n = 0;
        snprintf(name, sizeof name, "templates/%s", json_string_value(json_object_get(tmpl, "file")));
        char *text = read_file(testdata_path(path, sizeof path, name), &n);
        assert_non_null(text);
        json_array_foreach(json_object_get(tmpl, "cases"), i, c) {
            const char *conv = json_string_value(json_object_get(c, "conversation"));
            char *json = case_json(file, tmpl, json_object_get(json_object_get(file, "conversations"), conv));
            struct chat_text t;
            enum infer_status st = render_json(&t, text, n, json);
            score_case(&s, key, c, st, &t);
            chat_text_free(&t);
            mem_free(json);
        }
        free(text);
    }
    json_decref(file);
    print_message("templates: %d of %d texts, %d of %d exceptions, %d others without a crash\n", s.text,
                  s.text_of, s.raised, s.raised_of, s.other);
    assert_int_equal(s.text, s.text_of);
    assert_int_equal(s.raised, s.raised_of);
    assert_true(s.text_of > 700);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions),         cmocka_unit_test(statements),
        cmocka_unit_test(filters_and_methods), cmocka_unit_test(marks_survive),
        cmocka_unit_test(what_others_add),     cmocka_unit_test(marks_by_role),
        cmocka_unit_test(budgets_hold),        cmocka_unit_test(failing_allocations),
        cmocka_unit_test(outside_vectors),
    };
    json_use_mem(); /* as the program does */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
