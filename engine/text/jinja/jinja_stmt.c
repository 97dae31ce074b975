/* Tokens -> syntax tree: statements. */
#include "text/jinja/jinja_int.h"

static enum infer_status parse_body(struct jparser *P, const char *const *ends, struct jnode **out);

/* Statements up to {% end %}, which is swallowed with its "%}" left for the caller's loop. */
static enum infer_status body_until(struct jparser *P, const char *end, struct jnode **out) {
    const char *const ends[] = {end, NULL};
    if (P->t->kind != JT_BLOCK_END) return jparse_fail(P, "'%}'");
    P->t++;
    TRY(parse_body(P, ends, out));
    P->t++;
    return INFER_OK;
}

static enum infer_status check_target(struct jparser *P, const struct jnode *n) {
    if (n->kind == JN_NAME || n->kind == JN_NSREF) return INFER_OK;
    if (n->kind != JN_TUPLE) return jparse_fail(P, "something to assign to before this");
    for (size_t i = 0; i < n->n; i++) TRY(check_target(P, n->kids[i]));
    return INFER_OK;
}

/* name, (a, b), or with namespaces allowed name.attribute */
static enum infer_status parse_target(struct jparser *P, bool tuple, const char *end_name,
                                      struct jnode **out) {
    if (P->t->kind == JT_NAME && P->t[1].kind == JT_OP && P->t[1].op == '.' && P->t[2].kind == JT_NAME &&
        !end_name) {
        TRY(jparse_node(P, JN_NSREF, out));
        (*out)->name = P->t->value.s;
        (*out)->value = P->t[2].value;
        P->t += 3;
        return INFER_OK;
    }
    if (tuple)
        TRY(jparse_tuple(P, true, false, false, end_name, out));
    else
        TRY(jparse_primary(P, out));
    return check_target(P, *out);
}

static enum infer_status parse_for(struct jparser *P, struct jnode **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct jnode *n;
    TRY(jparse_node(P, JN_FOR, &n));
    TRY(parse_target(P, true, "in", &n->a));
    if (!jparse_skip_word(P, "in")) return jparse_fail(P, "'in'");
    TRY(jparse_tuple(P, false, false, false, "recursive", &n->b));
    if (jparse_skip_word(P, "if")) TRY(jparse_expression(P, true, &n->c));
    n->op = jparse_skip_word(P, "recursive");
    if (P->t->kind != JT_BLOCK_END) return jparse_fail(P, "'%}'");
    P->t++;
    P->n_loop++;
    TRY(parse_body(P, ends, &n->body));
    P->n_loop--;
    bool has_else = jparse_is_word(P, "else");
    P->t++;
    if (has_else) TRY(body_until(P, "endfor", &n->other));
    *out = n;
    return INFER_OK;
}

static enum infer_status parse_if(struct jparser *P, struct jnode **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jnode **at = out;
    P->soft++;
    for (;;) {
        struct jnode *n;
        TRY(jparse_node(P, JN_IF, &n));
        n->op = at != out; /* an elif */
        *at = n;
        TRY(jparse_tuple(P, false, false, false, NULL, &n->a));
        if (P->t->kind != JT_BLOCK_END) return jparse_fail(P, "'%}'");
        P->t++;
        TRY(parse_body(P, ends, &n->body));
        if (jparse_skip_word(P, "elif")) { /* a chain of JN_IF through other */
            at = &n->other;
            continue;
        }
        bool has_else = jparse_is_word(P, "else");
        P->t++;
        if (has_else) TRY(body_until(P, "endif", &n->other));
        P->soft--;
        return INFER_OK;
    }
}

static enum infer_status parse_set(struct jparser *P, struct jnode **out) {
    struct jnode *n;
    TRY(jparse_node(P, JN_SET, &n));
    TRY(parse_target(P, true, NULL, &n->a));
    *out = n;
    if (jparse_skip_op(P, '=')) return jparse_tuple(P, false, true, false, NULL, &n->b);
    n->kind = JN_SETBLOCK;
    TRY(jparse_filters(P, NULL, false, &n->b));
    return body_until(P, "endset", &n->body);
}

/* "(" a, b=1 ")" into n->kids: JN_NAME, or JN_KEYWORD with its default. */
static enum infer_status parse_signature(struct jparser *P, struct jnode *n) {
    bool defaults = false;
    TRY(jparse_expect_op(P, '('));
    while (!jparse_is_op(P, ')')) {
        if (n->n) TRY(jparse_expect_op(P, ','));
        struct jnode *kid;
        TRY(jparse_node(P, JN_NAME, &kid));
        TRY(jparse_name(P, &kid->name));
        if (jparse_skip_op(P, '=')) {
            kid->kind = JN_KEYWORD;
            TRY(jparse_expression(P, true, &kid->a));
            defaults = true;
        } else if (defaults) {
            return jparse_fail(P, "a default for this parameter, as for those before it");
        }
        TRY(jparse_kid(P, n, kid));
    }
    return jparse_expect_op(P, ')');
}

static enum infer_status macro_body(struct jparser *P, struct jnode *n, const char *end) {
    int n_loop = P->n_loop, uses = P->uses; /* break does not reach out of a macro */
    P->n_loop = P->uses = 0;
    TRY(body_until(P, end, &n->body));
    P->n_loop = n_loop;
    n->op = P->uses;
    P->uses |= uses;
    return INFER_OK;
}

static enum infer_status parse_macro(struct jparser *P, struct jnode **out) {
    TRY(jparse_node(P, JN_MACRO, out));
    TRY(jparse_name(P, &(*out)->name));
    TRY(parse_signature(P, *out));
    return macro_body(P, *out, "endmacro");
}

static enum infer_status parse_call_block(struct jparser *P, struct jnode **out) {
    struct jnode *n, *m;
    TRY(jparse_node(P, JN_CALLBLOCK, &n));
    TRY(jparse_node(P, JN_MACRO, &m));
    struct jv caller;
    TRY(jv_lit(P->J, &caller, "caller"));
    m->name = caller.s;
    n->b = m;
    if (jparse_is_op(P, '(')) TRY(parse_signature(P, m));
    TRY(jparse_expression(P, true, &n->a));
    if (n->a->kind != JN_CALL) return jparse_fail(P, "a call before this");
    *out = n;
    return macro_body(P, m, "endcall");
}

static enum infer_status parse_filter_block(struct jparser *P, struct jnode **out) {
    TRY(jparse_node(P, JN_FILTERBLOCK, out));
    TRY(jparse_filters(P, NULL, true, &(*out)->a));
    return body_until(P, "endfilter", &(*out)->body);
}

static enum infer_status parse_with(struct jparser *P, struct jnode **out) {
    struct jnode *n, *target, *value;
    TRY(jparse_node(P, JN_WITH, &n));
    while (P->t->kind != JT_BLOCK_END) {
        if (n->n) TRY(jparse_expect_op(P, ','));
        TRY(parse_target(P, false, "=", &target));
        TRY(jparse_expect_op(P, '='));
        TRY(jparse_expression(P, true, &value));
        TRY(jparse_kid(P, n, target));
        TRY(jparse_kid(P, n, value));
    }
    *out = n;
    return body_until(P, "endwith", &n->body);
}

static enum infer_status parse_print(struct jparser *P, struct jnode **out) {
    struct jnode **at = out;
    do {
        struct jnode *n;
        TRY(jparse_node(P, JN_PRINT, &n));
        TRY(jparse_expression(P, true, &n->a));
        *at = n;
        at = &n->next;
    } while (jparse_skip_op(P, ','));
    return INFER_OK;
}

/* {% do expression %}: for what it changes */
static enum infer_status parse_do(struct jparser *P, struct jnode **out) {
    TRY(jparse_node(P, JN_DO, out));
    return jparse_tuple(P, false, true, false, NULL, &(*out)->a);
}

/* {% generation %}, {% block name %}: their body in a scope of its own. */
static enum infer_status parse_scope(struct jparser *P, const char *end, struct jnode **out) {
    TRY(jparse_node(P, JN_SCOPE, out));
    while (P->t->kind == JT_NAME || P->t->kind == JT_INT) P->t++; /* the block's name and flags */
    return macro_body(P, *out, end);
}

static enum infer_status parse_jump(struct jparser *P, enum jn_kind kind, struct jnode **out) {
    if (P->n_loop == 0) return jparse_fail(P, "a loop around break or continue");
    return jparse_node(P, kind, out);
}

/* A statement behind "{%"; *out stays NULL when it makes no node. */
static enum infer_status parse_statement(struct jparser *P, struct jnode **out) {
    const struct jstr *word;
    int line = P->t->line;
    TRY(jparse_name(P, &word));
    if (js_is(word, "for")) return parse_for(P, out);
    if (js_is(word, "if")) return parse_if(P, out);
    if (js_is(word, "set")) return parse_set(P, out);
    if (js_is(word, "macro")) return parse_macro(P, out);
    if (js_is(word, "call")) return parse_call_block(P, out);
    if (js_is(word, "filter")) return parse_filter_block(P, out);
    if (js_is(word, "with")) return parse_with(P, out);
    if (js_is(word, "print")) return parse_print(P, out);
    if (js_is(word, "do")) return parse_do(P, out);
    if (js_is(word, "generation")) return parse_scope(P, "endgeneration", out);
    if (js_is(word, "block")) return parse_scope(P, "endblock", out);
    if (js_is(word, "break")) return parse_jump(P, JN_BREAK, out);
    if (js_is(word, "continue")) return parse_jump(P, JN_CONTINUE, out);
    P->J->line = line;
    return jinja_fail(P->J, "unknown or unsupported tag '%.*s'", (int)(word->n > 60 ? 60 : word->n), word->p);
}

static bool at_end(const struct jparser *P, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (jparse_is_word(P, *ends)) return true;
    return false;
}

/* Statements up to a tag that opens with one of ends (its word is the current token then); ends NULL: to the
 * end. */
static enum infer_status parse_body(struct jparser *P, const char *const *ends, struct jnode **out) {
    struct jnode **at = out;
    *out = NULL;
    if (P->depth >= JINJA_MAX_DEPTH) {
        P->J->line = P->t->line;
        return jinja_fail(P->J, "nested deeper than %d", JINJA_MAX_DEPTH);
    }
    P->depth++;
    for (;;) {
        if (P->t->kind == JT_DATA) {
            TRY(jparse_node(P, JN_DATA, at));
            (*at)->value = P->t++->value;
        } else if (P->t->kind == JT_PRINT_BEGIN) {
            TRY(jparse_node(P, JN_PRINT, at));
            P->t++;
            TRY(jparse_tuple(P, false, true, false, NULL, &(*at)->a));
            if (P->t->kind != JT_PRINT_END) return jparse_fail(P, "'}}'");
            P->t++;
        } else if (P->t->kind == JT_BLOCK_BEGIN) {
            P->t++;
            if (at_end(P, ends)) break;
            TRY(parse_statement(P, at));
            if (P->t->kind != JT_BLOCK_END) return jparse_fail(P, "'%}'");
            P->t++;
        } else {
            while (ends && ends[1]) ends++;
            if (ends) return jparse_fail(P, *ends);
            break;
        }
        while (*at) at = &(*at)->next;
    }
    P->depth--;
    return INFER_OK;
}

enum infer_status jinja_parse(struct jinja *J, const char *src, size_t n, struct jnode **out) {
    struct jparser P = {.J = J};
    size_t n_token;
    TRY(jinja_lex(J, src, n, &P.t, &n_token));
    return parse_body(&P, NULL, out);
}
