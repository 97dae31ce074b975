/* Evaluation of expressions: a walk over the tree with a scope. */
#include "text/jinja/jinja_int.h"

#include <string.h>

/* ---- scopes ---- */

enum infer_status jscope_new(struct jinja *J, struct jscope *up, struct jscope **out) {
    TRY(jinja_new(J, out, sizeof **out));
    (*out)->up = up;
    return INFER_OK;
}

enum infer_status jscope_set(struct jinja *J, struct jscope *s, const struct jstr *name, struct jv v) {
    for (size_t i = 0; i < s->n; i++) {
        if (!js_eq(s->name[i], name)) continue;
        s->value[i] = v;
        return INFER_OK;
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 2;
        const struct jstr **names;
        struct jv *values;
        TRY(jinja_new(J, &names, cap * sizeof *names));
        TRY(jinja_new(J, &values, cap * sizeof *values));
        if (s->n) {
            memcpy(names, s->name, s->n * sizeof *names);
            memcpy(values, s->value, s->n * sizeof *values);
        }
        s->name = names;
        s->value = values;
        s->cap = cap;
    }
    s->name[s->n] = name;
    s->value[s->n++] = v;
    return INFER_OK;
}

static enum infer_status eval_name(struct jinja *J, const struct jscope *s, const struct jstr *name,
                                   struct jv *out) {
    for (; s; s = s->up) {
        for (size_t i = 0; i < s->n; i++) {
            if (!js_eq(s->name[i], name)) continue;
            *out = s->value[i];
            return INFER_OK;
        }
    }
    const struct jv *v = J->vars ? jv_dict_get(J->vars, (struct jv){.kind = JV_STRING, .s = name}) : NULL;
    if (v) {
        *out = *v;
        return INFER_OK;
    }
    const struct jbuiltin *fn = jinja_global(name->p, name->n);
    if (fn) {
        *out = (struct jv){.kind = JV_FUNC, .fn = fn};
        return INFER_OK;
    }
    return jv_undefined(J, out, "'%.*s' is undefined", (int)(name->n > 100 ? 100 : name->n), name->p);
}

/* ---- calls ---- */

static enum infer_status spread_keywords(struct jinja *J, struct jv v, struct jv *names, struct jv *values) {
    if (v.kind != JV_DICT) return jinja_fail(J, "argument after ** must be a mapping, not %s", jv_type(v));
    for (size_t i = 0; i < v.d->n; i++) {
        if (v.d->e[i].key.kind != JV_STRING) return jinja_fail(J, "keywords must be strings");
        TRY(jv_push(J, names->l, v.d->e[i].key));
        TRY(jv_push(J, values->l, v.d->e[i].value));
    }
    return INFER_OK;
}

enum infer_status jinja_args(struct jinja *J, struct jscope *s, struct jnode *const *kids, size_t n,
                             struct jargs *a) {
    *a = (struct jargs){0};
    if (n == 0) return INFER_OK;
    struct jv pos, names, values, v;
    TRY(jv_list(J, &pos, JV_LIST, n));
    TRY(jv_list(J, &names, JV_LIST, 0));
    TRY(jv_list(J, &values, JV_LIST, 0));
    for (size_t i = 0; i < n; i++) {
        bool plain = kids[i]->kind != JN_KEYWORD && kids[i]->kind != JN_STAR && kids[i]->kind != JN_STARS;
        TRY(jinja_eval(J, s, plain ? kids[i] : kids[i]->a, &v));
        if (plain) {
            TRY(jv_push(J, pos.l, v));
        } else if (kids[i]->kind == JN_KEYWORD) {
            TRY(jv_push(J, names.l, (struct jv){.kind = JV_STRING, .s = kids[i]->name}));
            TRY(jv_push(J, values.l, v));
        } else if (kids[i]->kind == JN_STARS) {
            TRY(spread_keywords(J, v, &names, &values));
        } else {
            struct jlist *l;
            TRY(jv_iterate(J, v, &l));
            for (size_t k = 0; k < l->n; k++) TRY(jv_push(J, pos.l, l->v[k]));
        }
    }
    TRY(jinja_new(J, &a->kw_name, (names.l->n + 1) * sizeof *a->kw_name));
    for (size_t i = 0; i < names.l->n; i++) a->kw_name[i] = names.l->v[i].s;
    a->pos = pos.l->v;
    a->n_pos = pos.l->n;
    a->kw = values.l->v;
    a->n_kw = values.l->n;
    return INFER_OK;
}

enum infer_status jargs_bind(struct jinja *J, const struct jargs *a, const char *fn, const char *spec,
                             struct jv *v) {
    size_t n = 0, used = 0;
    for (const char *c = spec; *c; n++) {
        bool optional = *c == '?';
        c += optional;
        size_t len = strcspn(c, " ");
        v[n] = (struct jv){.kind = JV_MISSING};
        if (n < a->n_pos) v[n] = a->pos[n];
        for (size_t i = 0; i < a->n_kw; i++) {
            if (a->kw_name[i]->n != len || memcmp(a->kw_name[i]->p, c, len) != 0) continue;
            if (v[n].kind != JV_MISSING)
                return jinja_fail(J, "%s: argument '%.*s' given twice", fn, (int)len, c);
            v[n] = a->kw[i];
            used++;
        }
        if (v[n].kind == JV_MISSING && !optional)
            return jinja_fail(J, "%s: argument '%.*s' is missing", fn, (int)len, c);
        c += len;
        c += *c == ' ';
    }
    if (a->n_pos > n) return jinja_fail(J, "%s takes at most %zu arguments, %zu given", fn, n, a->n_pos);
    if (used < a->n_kw) return jinja_fail(J, "%s: an argument name is not known", fn);
    return INFER_OK;
}

static enum infer_status call_joiner(struct jinja *J, struct jlist *l, struct jv *out) {
    if (l->used) {
        *out = l->v[0];
        return INFER_OK;
    }
    l->used = true;
    return jv_lit(J, out, "");
}

enum infer_status jv_call(struct jinja *J, struct jv fn, const struct jargs *a, struct jv *out) {
    static const struct jargs none;
    if (!a) a = &none;
    TRY(jinja_step(J, 1));
    switch (fn.kind) {
    case JV_FUNC:
        return fn.fn->call(J, jv_none(), a, out);
    case JV_METHOD:
        return fn.method->fn->call(J, fn.method->self, a, out);
    case JV_MACRO:
        return jmacro_call(J, fn.macro, a, out);
    case JV_LOOP:
        return jloop_call(J, fn.loop, a, out);
    case JV_JOINER:
        return call_joiner(J, fn.l, out);
    case JV_UNDEFINED:
        return jv_fail_undefined(J, fn);
    default:
        return jinja_fail(J, "'%s' object is not callable", jv_type(fn));
    }
}

/* ---- operators ---- */

static enum infer_status compare_one(struct jinja *J, int op, struct jv a, struct jv b, bool *out) {
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    int c;
    switch (op) {
    case CMP_EQ:
        return jv_equal(J, a, b, out);
    case CMP_NE:
        TRY(jv_equal(J, a, b, out));
        break;
    case CMP_IN:
        return jv_contains(J, a, b, out);
    case CMP_NOT_IN:
        TRY(jv_contains(J, a, b, out));
        break;
    default:
        TRY(jv_compare(J, a, b, names[op], &c));
        *out = c != 2 && (op == CMP_LT ? c < 0 : op == CMP_LE ? c <= 0 : op == CMP_GT ? c > 0 : c >= 0);
        return INFER_OK;
    }
    *out = !*out;
    return INFER_OK;
}

static enum infer_status eval_compare(struct jinja *J, struct jscope *s, const struct jnode *n,
                                      struct jv *out) {
    struct jv a, b;
    bool yes = true;
    TRY(jinja_eval(J, s, n->a, &a));
    for (size_t i = 0; yes && i < n->n; i++) {
        TRY(jinja_eval(J, s, n->kids[i]->a, &b));
        J->line = n->line;
        TRY(compare_one(J, n->kids[i]->op, a, b, &yes));
        a = b;
    }
    *out = jv_bool(yes);
    return INFER_OK;
}

static enum infer_status eval_list(struct jinja *J, struct jscope *s, const struct jnode *n,
                                   enum jv_kind kind, struct jv *out) {
    struct jv v;
    TRY(jv_list(J, out, kind, n->n));
    for (size_t i = 0; i < n->n; i++) {
        TRY(jinja_eval(J, s, n->kids[i], &v));
        TRY(jv_push(J, out->l, v));
    }
    return INFER_OK;
}

static enum infer_status eval_dict(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    struct jv key, value;
    TRY(jv_dict(J, out));
    for (size_t i = 0; i < n->n; i += 2) {
        TRY(jinja_eval(J, s, n->kids[i], &key));
        TRY(jinja_eval(J, s, n->kids[i + 1], &value));
        TRY(jv_dict_set(J, out->d, key, value));
    }
    return INFER_OK;
}

static enum infer_status eval_item(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    struct jv obj, key[3] = {jv_none(), jv_none(), jv_none()};
    TRY(jinja_eval(J, s, n->a, &obj));
    if (n->b->kind != JN_SLICE) {
        TRY(jinja_eval(J, s, n->b, &key[0]));
        J->line = n->line;
        return jv_getitem(J, obj, key[0], out);
    }
    struct jnode *const part[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++)
        if (part[i]) TRY(jinja_eval(J, s, part[i], &key[i]));
    J->line = n->line;
    return jv_slice(J, obj, key[0], key[1], key[2], out);
}

static enum infer_status eval_call(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    struct jv fn;
    struct jargs a;
    TRY(jinja_eval(J, s, n->a, &fn));
    TRY(jinja_args(J, s, n->kids, n->n, &a));
    J->line = n->line;
    if (fn.kind == JV_UNDEFINED && n->a->kind == JN_NAME &&
        a.n_pos) { /* tojson(x) is x | tojson, as minja has it */
        const struct jbuiltin *filter = jinja_filter(n->a->name->p, n->a->name->n);
        struct jargs rest = a;
        rest.pos++;
        rest.n_pos--;
        if (filter) return filter->call(J, a.pos[0], &rest, out);
    }
    return jv_call(J, fn, &a, out);
}

/* A filter that is none: the method of that name of the value, as llama.cpp takes it. */
static enum infer_status apply_method(struct jinja *J, const struct jnode *n, struct jv in,
                                      const struct jargs *a, struct jv *out) {
    struct jv method;
    if (n->kind == JN_FILTER && jinja_is_method(n->name)) {
        TRY(jv_getattr(J, in, n->name, &method));
        if (method.kind == JV_METHOD) return jv_call(J, method, a, out);
        return jinja_fail(J, "no filter named '%.*s' for '%s' object", (int)n->name->n, n->name->p,
                          jv_type(in));
    }
    return jinja_fail(J, "no %s named '%.*s'", n->kind == JN_TEST ? "test" : "filter",
                      (int)(n->name->n > 60 ? 60 : n->name->n), n->name->p);
}

/* Applies a filter or test to a value that is already there. */
static enum infer_status eval_apply(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv in,
                                    struct jv *out) {
    struct jargs a;
    TRY(jinja_args(J, s, n->kids, n->n, &a));
    J->line = n->line;
    TRY(jinja_step(J, 1));
    return n->fn ? n->fn->call(J, in, &a, out) : apply_method(J, n, in, &a, out);
}

enum infer_status jinja_filter_chain(struct jinja *J, struct jscope *s, const struct jnode *chain,
                                     struct jv in, struct jv *out) {
    if (!chain) {
        *out = in;
        return INFER_OK;
    }
    TRY(jinja_enter(J));
    TRY(jinja_filter_chain(J, s, chain->a, in, &in));
    J->eval_depth--;
    return eval_apply(J, s, chain, in, out);
}

static enum infer_status eval_concat(struct jinja *J, struct jscope *s, const struct jnode *n,
                                     struct jv *out) {
    struct jv list;
    TRY(eval_list(J, s, n, JV_LIST, &list));
    J->line = n->line;
    return jv_concat(J, list.l->v, list.l->n, out);
}

static enum infer_status eval_cond(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    struct jv c;
    TRY(jinja_eval(J, s, n->b, &c));
    if (jv_truth(c)) return jinja_eval(J, s, n->a, out);
    if (n->c) return jinja_eval(J, s, n->c, out);
    return jv_undefined(J, out,
                        "the inline if-expression evaluated to false and no else section was defined");
}

static enum infer_status eval_operator(struct jinja *J, struct jscope *s, const struct jnode *n,
                                       struct jv *out) {
    struct jv a, b;
    TRY(jinja_eval(J, s, n->a, &a));
    switch (n->kind) {
    case JN_NOT:
        *out = jv_bool(!jv_truth(a));
        return INFER_OK;
    case JN_AND:
    case JN_OR:
        if (jv_truth(a) == (n->kind == JN_AND)) return jinja_eval(J, s, n->b, out);
        *out = a;
        return INFER_OK;
    case JN_BINARY:
        TRY(jinja_eval(J, s, n->b, &b));
        J->line = n->line;
        return jv_binary(J, n->op, a, b, out);
    case JN_POS:
        if (!jv_is_number(a)) return jinja_fail(J, "bad operand type for unary +: '%s'", jv_type(a));
        *out = a.kind == JV_BOOL ? jv_int(a.b) : a;
        return INFER_OK;
    default:
        J->line = n->line;
        return jv_negate(J, a, out);
    }
}

static enum infer_status eval_node(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    struct jv v;
    switch (n->kind) {
    case JN_CONST:
        *out = n->value;
        return INFER_OK;
    case JN_NAME:
        return eval_name(J, s, n->name, out);
    case JN_LIST:
        return eval_list(J, s, n, JV_LIST, out);
    case JN_TUPLE:
        return eval_list(J, s, n, JV_TUPLE, out);
    case JN_DICT:
        return eval_dict(J, s, n, out);
    case JN_ATTR:
        TRY(jinja_eval(J, s, n->a, &v));
        J->line = n->line;
        return jv_getattr(J, v, n->name, out);
    case JN_ITEM:
        return eval_item(J, s, n, out);
    case JN_CALL:
        return eval_call(J, s, n, out);
    case JN_FILTER:
    case JN_TEST:
        TRY(jinja_eval(J, s, n->a, &v));
        return eval_apply(J, s, n, v, out);
    case JN_CONCAT:
        return eval_concat(J, s, n, out);
    case JN_COMPARE:
        return eval_compare(J, s, n, out);
    case JN_COND:
        return eval_cond(J, s, n, out);
    case JN_NOT:
    case JN_NEG:
    case JN_POS:
    case JN_BINARY:
    case JN_AND:
    case JN_OR:
        return eval_operator(J, s, n, out);
    default:
        J->line = n->line;
        return jinja_fail(J, "this cannot stand in an expression");
    }
}

enum infer_status jinja_eval(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv *out) {
    TRY(jinja_step(J, 1));
    J->line = n->line;
    TRY(jinja_enter(J));
    enum infer_status st = eval_node(J, s, n, out);
    J->eval_depth--;
    return st;
}
