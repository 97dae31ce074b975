/* Tokens -> syntax tree: expressions. The order of precedence is Jinja's: if-else, or, and, not, comparisons,
 * + -, ~,
 * * / // %, **, unary, postfix, filters and tests. */
#include "text/jinja/jinja_int.h"

#include <stdio.h>
#include <string.h>

static const char *token_name(const struct jtoken *t, char buf[80]) {
    switch (t->kind) {
    case JT_END:
        return "end of template";
    case JT_DATA:
        return "text";
    case JT_PRINT_BEGIN:
        return "'{{'";
    case JT_PRINT_END:
        return "'}}'";
    case JT_BLOCK_BEGIN:
        return "'{%'";
    case JT_BLOCK_END:
        return "'%}'";
    case JT_NAME:
        snprintf(buf, 80, "'%.*s'", (int)(t->value.s->n > 60 ? 60 : t->value.s->n), t->value.s->p);
        return buf;
    case JT_STRING:
        return "a string";
    case JT_INT:
    case JT_FLOAT:
        return "a number";
    case JT_OP:
        if (t->op > 0xff)
            snprintf(buf, 80, "'%c%c'", t->op >> 8, t->op & 0xff);
        else
            snprintf(buf, 80, "'%c'", t->op);
        return buf;
    }
    return "?";
}

enum infer_status jparse_fail(struct jparser *P, const char *expected) {
    char buf[80];
    P->J->line = P->t->line;
    return jinja_fail(P->J, "expected %s, found %s", expected, token_name(P->t, buf));
}

enum infer_status jparse_node(struct jparser *P, enum jn_kind kind, struct jnode **out) {
    TRY(jinja_new(P->J, out, sizeof **out));
    (*out)->kind = kind;
    (*out)->line = P->t->line;
    return INFER_OK;
}

enum infer_status jparse_kid(struct jparser *P, struct jnode *n, struct jnode *kid) {
    if ((n->n & (n->n - 1)) == 0) { /* full at each power of two */
        struct jnode **kids;
        TRY(jinja_new(P->J, &kids, (n->n ? 2 * n->n : 1) * sizeof *kids));
        if (n->n) memcpy(kids, n->kids, n->n * sizeof *kids);
        n->kids = kids;
    }
    n->kids[n->n++] = kid;
    return INFER_OK;
}

bool jparse_is_op(const struct jparser *P, int op) { return P->t->kind == JT_OP && P->t->op == op; }
bool jparse_is_word(const struct jparser *P, const char *word) {
    return P->t->kind == JT_NAME && js_is(P->t->value.s, word);
}
bool jparse_skip_op(struct jparser *P, int op) {
    bool hit = jparse_is_op(P, op);
    P->t += hit;
    return hit;
}
bool jparse_skip_word(struct jparser *P, const char *word) {
    bool hit = jparse_is_word(P, word);
    P->t += hit;
    return hit;
}
enum infer_status jparse_expect_op(struct jparser *P, int op) {
    char name[8] = {'\'', (char)op, '\'', 0};
    return jparse_skip_op(P, op) ? INFER_OK : jparse_fail(P, name);
}
enum infer_status jparse_name(struct jparser *P, const struct jstr **out) {
    if (P->t->kind != JT_NAME) return jparse_fail(P, "a name");
    *out = P->t++->value.s;
    return INFER_OK;
}

static enum infer_status binary(struct jparser *P, enum jn_kind kind, int op, struct jnode *a,
                                struct jnode *b, struct jnode **out) {
    struct jnode *n;
    TRY(jparse_node(P, kind, &n));
    n->op = op;
    n->a = a;
    n->b = b;
    n->line = a->line;
    *out = n;
    return INFER_OK;
}

static enum infer_status constant(struct jparser *P, struct jv v, struct jnode **out) {
    TRY(jparse_node(P, JN_CONST, out));
    (*out)->value = v;
    return INFER_OK;
}

/* ---- primary expressions ---- */

static enum infer_status parse_string(struct jparser *P, struct jnode **out) {
    TRY(constant(P, P->t->value, out));
    if ((++P->t)->kind != JT_STRING) return INFER_OK;
    struct jbuf b = {.J = P->J}; /* neighbours are one string */
    TRY(jbuf_str(&b, (*out)->value.s));
    for (; P->t->kind == JT_STRING; P->t++) TRY(jbuf_str(&b, P->t->value.s));
    return jbuf_value(&b, false, &(*out)->value);
}

static enum infer_status parse_word(struct jparser *P, struct jnode **out) {
    const struct jstr *s = P->t->value.s;
    bool t = js_is(s, "true") || js_is(s, "True"), f = js_is(s, "false") || js_is(s, "False");
    if (t || f)
        TRY(constant(P, jv_bool(t), out));
    else if (js_is(s, "none") || js_is(s, "None"))
        TRY(constant(P, jv_none(), out));
    else {
        TRY(jparse_node(P, JN_NAME, out));
        (*out)->name = s;
        P->uses |= js_is(s, "varargs")  ? USES_VARARGS
                   : js_is(s, "kwargs") ? USES_KWARGS
                   : js_is(s, "caller") ? USES_CALLER
                                        : 0;
    }
    P->t++;
    return INFER_OK;
}

static enum infer_status parse_list(struct jparser *P, struct jnode **out) {
    TRY(jparse_node(P, JN_LIST, out));
    P->t++;
    while (!jparse_is_op(P, ']')) {
        if ((*out)->n) TRY(jparse_expect_op(P, ','));
        if (jparse_is_op(P, ']')) break;
        struct jnode *kid;
        TRY(jparse_expression(P, true, &kid));
        TRY(jparse_kid(P, *out, kid));
    }
    return jparse_expect_op(P, ']');
}

static enum infer_status parse_dict(struct jparser *P, struct jnode **out) {
    TRY(jparse_node(P, JN_DICT, out));
    P->t++;
    while (!jparse_is_op(P, '}')) {
        if ((*out)->n) TRY(jparse_expect_op(P, ','));
        if (jparse_is_op(P, '}')) break;
        struct jnode *key, *value;
        TRY(jparse_expression(P, true, &key));
        TRY(jparse_expect_op(P, ':'));
        TRY(jparse_expression(P, true, &value));
        TRY(jparse_kid(P, *out, key));
        TRY(jparse_kid(P, *out, value));
    }
    return jparse_expect_op(P, '}');
}

enum infer_status jparse_primary(struct jparser *P, struct jnode **out) {
    switch (P->t->kind) {
    case JT_NAME:
        return parse_word(P, out);
    case JT_STRING:
        return parse_string(P, out);
    case JT_INT:
    case JT_FLOAT:
        TRY(constant(P, P->t->value, out));
        P->t++;
        return INFER_OK;
    default:
        break;
    }
    if (jparse_skip_op(P, '(')) {
        TRY(jparse_tuple(P, false, true, true, NULL, out));
        return jparse_expect_op(P, ')');
    }
    if (jparse_is_op(P, '[')) return parse_list(P, out);
    if (jparse_is_op(P, '{')) return parse_dict(P, out);
    return jparse_fail(P, "an expression");
}

enum infer_status jparse_tuple(struct jparser *P, bool simple, bool with_cond, bool parens,
                               const char *end_name, struct jnode **out) {
    struct jnode *first = NULL, *tuple = NULL;
    for (;;) {
        bool end = P->t->kind == JT_PRINT_END || P->t->kind == JT_BLOCK_END || jparse_is_op(P, ')') ||
                   (end_name && jparse_is_word(P, end_name));
        if (end) break;
        struct jnode *kid;
        TRY(simple ? jparse_primary(P, &kid) : jparse_expression(P, with_cond, &kid));
        if (!first) first = kid;
        if (tuple) TRY(jparse_kid(P, tuple, kid));
        if (!jparse_skip_op(P, ',')) break;
        if (!tuple) {
            TRY(jparse_node(P, JN_TUPLE, &tuple));
            TRY(jparse_kid(P, tuple, first));
        }
    }
    if (!first && !parens) return jparse_fail(P, "an expression");
    if (!first) TRY(jparse_node(P, JN_TUPLE, &tuple));
    *out = tuple ? tuple : first;
    return INFER_OK;
}

/* ---- postfix: .name [index] (arguments) |filter is test ---- */

static enum infer_status parse_subscribed(struct jparser *P, struct jnode **out) {
    struct jnode *part[3] = {0};
    bool slice = false;
    for (int i = 0; i < 3; i++) {
        if (!jparse_is_op(P, ':') && !jparse_is_op(P, ']') && !jparse_is_op(P, ','))
            TRY(jparse_expression(P, true, &part[i]));
        if (i == 2 || !jparse_skip_op(P, ':')) break;
        slice = true;
    }
    if (!slice) {
        *out = part[0];
        return part[0] ? INFER_OK : jparse_fail(P, "an index");
    }
    TRY(jparse_node(P, JN_SLICE, out));
    (*out)->a = part[0];
    (*out)->b = part[1];
    (*out)->c = part[2];
    return INFER_OK;
}

static enum infer_status parse_index(struct jparser *P, struct jnode *obj, struct jnode **out) {
    TRY(jparse_node(P, JN_ITEM, out));
    (*out)->a = obj;
    P->t++;
    struct jnode *tuple;
    TRY(jparse_node(P, JN_TUPLE, &tuple));
    while (!jparse_is_op(P, ']')) {
        if (tuple->n) TRY(jparse_expect_op(P, ','));
        struct jnode *kid;
        TRY(parse_subscribed(P, &kid));
        TRY(jparse_kid(P, tuple, kid));
    }
    (*out)->b = tuple->n == 1 ? tuple->kids[0] : tuple;
    return jparse_expect_op(P, ']');
}

static enum infer_status parse_dot(struct jparser *P, struct jnode *obj, struct jnode **out) {
    P->t++;
    if (P->t->kind == JT_INT) {
        TRY(jparse_node(P, JN_ITEM, out));
        TRY(constant(P, P->t->value, &(*out)->b));
        P->t++;
    } else {
        TRY(jparse_node(P, JN_ATTR, out));
        TRY(jparse_name(P, &(*out)->name));
    }
    (*out)->a = obj;
    return INFER_OK;
}

/* "(" arguments ")" into n->kids. */
static enum infer_status parse_args(struct jparser *P, struct jnode *n) {
    bool star = false, stars = false, keyword = false;
    TRY(jparse_expect_op(P, '('));
    while (!jparse_is_op(P, ')')) {
        if (n->n) TRY(jparse_expect_op(P, ','));
        if (n->n && jparse_is_op(P, ')')) break;
        struct jnode *kid;
        bool ok = true;
        if (jparse_skip_op(P, '*')) {
            ok = !star && !stars;
            TRY(jparse_node(P, JN_STAR, &kid));
            TRY(jparse_expression(P, true, &kid->a));
            star = true;
        } else if (jparse_skip_op(P, OP2('*', '*'))) {
            ok = !stars;
            TRY(jparse_node(P, JN_STARS, &kid));
            TRY(jparse_expression(P, true, &kid->a));
            stars = true;
        } else if (P->t->kind == JT_NAME && P->t[1].kind == JT_OP && P->t[1].op == '=') {
            ok = !stars;
            TRY(jparse_node(P, JN_KEYWORD, &kid));
            kid->name = P->t->value.s;
            P->t += 2;
            TRY(jparse_expression(P, true, &kid->a));
            keyword = true;
        } else {
            ok = !star && !stars && !keyword;
            TRY(jparse_expression(P, true, &kid));
        }
        if (!ok) return jparse_fail(P, "no argument here: positional ones come first");
        TRY(jparse_kid(P, n, kid));
    }
    return jparse_expect_op(P, ')');
}

static enum infer_status parse_call(struct jparser *P, struct jnode *fn, struct jnode **out) {
    TRY(jparse_node(P, JN_CALL, out));
    (*out)->a = fn;
    return parse_args(P, *out);
}

static enum infer_status parse_postfix(struct jparser *P, struct jnode *n, struct jnode **out) {
    for (;;) {
        if (jparse_is_op(P, '.'))
            TRY(parse_dot(P, n, &n));
        else if (jparse_is_op(P, '['))
            TRY(parse_index(P, n, &n));
        else if (jparse_is_op(P, '('))
            TRY(parse_call(P, n, &n));
        else
            break;
    }
    *out = n;
    return INFER_OK;
}

static enum infer_status lookup(struct jparser *P, struct jnode *n, const struct jstr *name, bool test) {
    n->name = name;
    n->fn = test ? jinja_test(name->p, name->n) : jinja_filter(name->p, name->n);
    if (n->fn || P->soft > 0) return INFER_OK;
    if (!test && jinja_is_method(name)) return INFER_OK;
    P->J->line = n->line;
    return jinja_fail(P->J, "no %s named '%.*s'", test ? "test" : "filter",
                      (int)(name->n > 60 ? 60 : name->n), name->p);
}

enum infer_status jparse_filters(struct jparser *P, struct jnode *in, bool first_inline, struct jnode **out) {
    while (first_inline || jparse_skip_op(P, '|')) {
        first_inline = false;
        struct jnode *n;
        const struct jstr *name = NULL;
        TRY(jparse_node(P, JN_FILTER, &n));
        TRY(jparse_name(P, &name));
        TRY(lookup(P, n, name, false));
        n->a = in;
        if (jparse_is_op(P, '(')) TRY(parse_args(P, n));
        in = n;
    }
    *out = in;
    return INFER_OK;
}

static enum infer_status parse_test(struct jparser *P, struct jnode *in, struct jnode **out) {
    P->t++;
    bool negated = jparse_skip_word(P, "not");
    struct jnode *n;
    const struct jstr *name = NULL;
    TRY(jparse_node(P, JN_TEST, &n));
    TRY(jparse_name(P, &name));
    TRY(lookup(P, n, name, true));
    n->a = in;
    enum jt_kind k = P->t->kind;
    bool word =
        k == JT_NAME && !jparse_is_word(P, "else") && !jparse_is_word(P, "or") && !jparse_is_word(P, "and");
    if (jparse_is_op(P, '(')) {
        TRY(parse_args(P, n));
    } else if (word || k == JT_STRING || k == JT_INT || k == JT_FLOAT || jparse_is_op(P, '[') ||
               jparse_is_op(P, '{')) {
        if (jparse_is_word(P, "is")) return jparse_fail(P, "no second test: they do not chain");
        struct jnode *arg;
        TRY(jparse_primary(P, &arg));
        TRY(parse_postfix(P, arg, &arg));
        TRY(jparse_kid(P, n, arg));
    }
    *out = n;
    return negated ? binary(P, JN_NOT, 0, n, NULL, out) : INFER_OK;
}

/* ---- operators ---- */

static enum infer_status deeper(struct jparser *P) {
    if (P->depth < JINJA_MAX_DEPTH) {
        P->depth++;
        return INFER_OK;
    }
    P->J->line = P->t->line;
    return jinja_fail(P->J, "nested deeper than %d", JINJA_MAX_DEPTH);
}

static enum infer_status parse_unary(struct jparser *P, bool with_filter, struct jnode **out) {
    struct jnode *n;
    int sign = jparse_is_op(P, '-') ? JN_NEG : jparse_is_op(P, '+') ? JN_POS : 0;
    if (sign) {
        P->t++;
        TRY(deeper(P));
        TRY(parse_unary(P, false, &n));
        P->depth--;
        TRY(binary(P, sign, 0, n, NULL, &n));
    } else {
        TRY(jparse_primary(P, &n));
    }
    TRY(parse_postfix(P, n, &n));
    while (with_filter) {
        if (jparse_is_op(P, '|'))
            TRY(jparse_filters(P, n, false, &n));
        else if (jparse_is_word(P, "is"))
            TRY(parse_test(P, n, &n));
        else if (jparse_is_op(P, '('))
            TRY(parse_call(P, n, &n));
        else
            break;
    }
    *out = n;
    return INFER_OK;
}

static enum infer_status parse_pow(struct jparser *P, struct jnode **out) {
    TRY(parse_unary(P, true, out));
    while (jparse_skip_op(P, OP2('*', '*'))) {
        struct jnode *b;
        TRY(parse_unary(P, true, &b));
        TRY(binary(P, JN_BINARY, OP_POW, *out, b, out));
    }
    return INFER_OK;
}

static enum infer_status parse_product(struct jparser *P, struct jnode **out) {
    TRY(parse_pow(P, out));
    for (;;) {
        int op = jparse_is_op(P, '*')             ? OP_MUL
                 : jparse_is_op(P, '/')           ? OP_DIV
                 : jparse_is_op(P, OP2('/', '/')) ? OP_FLOORDIV
                 : jparse_is_op(P, '%')           ? OP_MOD
                                                  : -1;
        if (op < 0) return INFER_OK;
        P->t++;
        struct jnode *b;
        TRY(parse_pow(P, &b));
        TRY(binary(P, JN_BINARY, op, *out, b, out));
    }
}

static enum infer_status parse_concat(struct jparser *P, struct jnode **out) {
    TRY(parse_product(P, out));
    if (!jparse_is_op(P, '~')) return INFER_OK;
    struct jnode *n;
    TRY(jparse_node(P, JN_CONCAT, &n));
    TRY(jparse_kid(P, n, *out));
    while (jparse_skip_op(P, '~')) {
        struct jnode *b;
        TRY(parse_product(P, &b));
        TRY(jparse_kid(P, n, b));
    }
    *out = n;
    return INFER_OK;
}

static enum infer_status parse_sum(struct jparser *P, struct jnode **out) {
    TRY(parse_concat(P, out));
    for (;;) {
        int op = jparse_is_op(P, '+') ? OP_ADD : jparse_is_op(P, '-') ? OP_SUB : -1;
        if (op < 0) return INFER_OK;
        P->t++;
        struct jnode *b;
        TRY(parse_concat(P, &b));
        TRY(binary(P, JN_BINARY, op, *out, b, out));
    }
}

static int comparison(struct jparser *P) {
    static const int ops[] = {OP2('=', '='), OP2('!', '='), '<', OP2('<', '='), '>', OP2('>', '=')};
    for (int i = 0; i < 6; i++)
        if (jparse_skip_op(P, ops[i])) return CMP_EQ + i;
    if (jparse_skip_word(P, "in")) return CMP_IN;
    if (jparse_is_word(P, "not") && P->t[1].kind == JT_NAME && js_is(P->t[1].value.s, "in")) {
        P->t += 2;
        return CMP_NOT_IN;
    }
    return -1;
}

static enum infer_status parse_compare(struct jparser *P, struct jnode **out) {
    TRY(parse_sum(P, out));
    struct jnode *n = NULL;
    for (int op; (op = comparison(P)) >= 0;) {
        struct jnode *operand;
        if (!n) TRY(binary(P, JN_COMPARE, 0, *out, NULL, &n));
        TRY(jparse_node(P, JN_OPERAND, &operand));
        operand->op = op;
        TRY(parse_sum(P, &operand->a));
        TRY(jparse_kid(P, n, operand));
    }
    if (n) *out = n;
    return INFER_OK;
}

static enum infer_status parse_not(struct jparser *P, struct jnode **out) {
    if (!jparse_skip_word(P, "not")) return parse_compare(P, out);
    struct jnode *n;
    TRY(deeper(P));
    TRY(parse_not(P, &n));
    P->depth--;
    return binary(P, JN_NOT, 0, n, NULL, out);
}

static enum infer_status parse_and(struct jparser *P, struct jnode **out) {
    TRY(parse_not(P, out));
    while (jparse_skip_word(P, "and")) {
        struct jnode *b;
        TRY(parse_not(P, &b));
        TRY(binary(P, JN_AND, 0, *out, b, out));
    }
    return INFER_OK;
}

static enum infer_status parse_or(struct jparser *P, struct jnode **out) {
    TRY(parse_and(P, out));
    while (jparse_skip_word(P, "or")) {
        struct jnode *b;
        TRY(parse_and(P, &b));
        TRY(binary(P, JN_OR, 0, *out, b, out));
    }
    return INFER_OK;
}

enum infer_status jparse_expression(struct jparser *P, bool with_cond, struct jnode **out) {
    TRY(deeper(P));
    TRY(parse_or(P, out));
    while (with_cond && jparse_skip_word(P, "if")) {
        struct jnode *n;
        TRY(jparse_node(P, JN_COND, &n));
        n->a = *out;
        TRY(parse_or(P, &n->b));
        if (jparse_skip_word(P, "else")) TRY(jparse_expression(P, true, &n->c));
        *out = n;
    }
    P->depth--;
    return INFER_OK;
}
