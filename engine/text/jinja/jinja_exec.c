/* Evaluation of statements, and the rendering itself. */
#include "text/jinja/jinja_int.h"

enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static enum infer_status assign(struct jinja *J, struct jscope *s, const struct jnode *target, struct jv v) {
    if (target->kind == JN_NAME) return jscope_set(J, s, target->name, v);
    if (target->kind == JN_NSREF) {
        struct jnode name = {.kind = JN_NAME, .name = target->name, .line = target->line};
        struct jv ns;
        TRY(jinja_eval(J, s, &name, &ns));
        if (ns.kind != JV_NAMESPACE) return jinja_fail(J, "cannot assign attribute on non-namespace object");
        return jv_dict_set(J, ns.d, target->value, v);
    }
    struct jlist *l;
    TRY(jv_iterate(J, v, &l));
    if (l->n < target->n)
        return jinja_fail(J, "not enough values to unpack (expected %zu, got %zu)", target->n, l->n);
    if (l->n > target->n) return jinja_fail(J, "too many values to unpack (expected %zu)", target->n);
    for (size_t i = 0; i < l->n; i++) TRY(assign(J, s, target->kids[i], l->v[i]));
    return INFER_OK;
}

/* ---- for ---- */

/* The elements that pass the loop's condition. */
static enum infer_status loop_items(struct jinja *J, struct jscope *s, const struct jnode *n, struct jv v,
                                    struct jlist **out) {
    TRY(jv_iterate(J, v, out));
    if (!n->c) return INFER_OK;
    struct jv kept, test;
    struct jscope *inner = NULL;
    TRY(jv_list(J, &kept, JV_LIST, 0));
    for (size_t i = 0; i < (*out)->n; i++) {
        if (!inner || inner->captured) TRY(jscope_new(J, s, &inner));
        inner->n = 0;
        TRY(assign(J, inner, n->a, (*out)->v[i]));
        TRY(jinja_eval(J, inner, n->c, &test));
        if (jv_truth(test)) TRY(jv_push(J, kept.l, (*out)->v[i]));
    }
    *out = kept.l;
    return INFER_OK;
}

static enum infer_status run_loop(struct jinja *J, struct jscope *s, const struct jnode *n,
                                  struct jv iterable, int depth, struct jbuf *out) {
    struct jlist *items;
    TRY(loop_items(J, s, n, iterable, &items));
    struct jscope *inner = NULL;
    static const struct jstr name = {.p = "loop", .n = 4};
    struct jloop *loop = NULL;
    bool ended = false;
    if (items->n) TRY(jinja_new(J, &loop, sizeof *loop));
    if (loop) *loop = (struct jloop){.items = items, .depth = depth, .node = (struct jnode *)n, .scope = s};
    for (size_t i = 0; i < items->n; i++) {
        loop->i = i;
        if (!inner || inner->captured) TRY(jscope_new(J, s, &inner));
        inner->n = 0;
        TRY(jscope_set(J, inner, &name, (struct jv){.kind = JV_LOOP, .loop = loop}));
        J->line = n->line;
        TRY(assign(J, inner, n->a, items->v[i]));
        TRY(jinja_exec(J, inner, n->body, out));
        int flow = J->flow;
        J->flow = FLOW_ON;
        ended |= flow == FLOW_ON;
        if (flow == FLOW_BREAK) break;
        if (loop->i != i) i = loop->i; /* the body walked on by itself */
    }
    if (ended || !n->other) return INFER_OK; /* else: no turn came to its end, as Jinja compiles it */
    TRY(jscope_new(J, s, &inner));
    return jinja_exec(J, inner, n->other, out);
}

enum infer_status jloop_call(struct jinja *J, const struct jloop *l, const struct jargs *a, struct jv *out) {
    struct jv v[1];
    if (!l->node->op) return jinja_fail(J, "loop() needs a loop marked recursive");
    TRY(jargs_bind(J, a, "loop", "iterable", v));
    if (J->call_depth >= JINJA_MAX_DEPTH)
        return jinja_fail(J, "loops and macros call each other deeper than %d", JINJA_MAX_DEPTH);
    J->call_depth++;
    struct jbuf b = {.J = J};
    TRY(run_loop(J, l->scope, l->node, v[0], l->depth + 1, &b));
    J->call_depth--;
    return jbuf_value(&b, false, out);
}

static enum infer_status loop_cycle(struct jinja *J, struct jv self, const struct jargs *a, struct jv *out) {
    if (a->n_pos == 0) return jinja_fail(J, "no items for cycling given");
    *out = a->pos[self.loop->i % a->n_pos];
    return INFER_OK;
}

static enum infer_status loop_changed(struct jinja *J, struct jv self, const struct jargs *a,
                                      struct jv *out) {
    struct jv now;
    bool same = false;
    TRY(jv_list(J, &now, JV_TUPLE, a->n_pos));
    for (size_t i = 0; i < a->n_pos; i++) TRY(jv_push(J, now.l, a->pos[i]));
    if (self.loop->last.kind == JV_TUPLE) TRY(jv_equal(J, self.loop->last, now, &same));
    self.loop->last = now;
    *out = jv_bool(!same);
    return INFER_OK;
}

enum infer_status jloop_attr(struct jinja *J, struct jloop *l, const struct jstr *name, struct jv *out) {
    static const struct jbuiltin methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;
    const struct jbuiltin *fn = jbuiltin_find(methods, 2, name->p, name->n);
    if (fn) {
        struct jmethod *m;
        TRY(jinja_new(J, &m, sizeof *m));
        *m = (struct jmethod){{.kind = JV_LOOP, .loop = l}, fn};
        *out = (struct jv){.kind = JV_METHOD, .method = m};
    } else if (js_is(name, "index"))
        *out = jv_int(i + 1);
    else if (js_is(name, "index0"))
        *out = jv_int(i);
    else if (js_is(name, "first"))
        *out = jv_bool(i == 0);
    else if (js_is(name, "last"))
        *out = jv_bool(i == n - 1);
    else if (js_is(name, "length"))
        *out = jv_int(n);
    else if (js_is(name, "revindex"))
        *out = jv_int(n - i);
    else if (js_is(name, "revindex0"))
        *out = jv_int(n - i - 1);
    else if (js_is(name, "depth"))
        *out = jv_int(l->depth + 1);
    else if (js_is(name, "depth0"))
        *out = jv_int(l->depth);
    else if (js_is(name, "previtem") && i > 0)
        *out = l->items->v[i - 1];
    else if (js_is(name, "nextitem") && i + 1 < n)
        *out = l->items->v[i + 1];
    else
        return jv_undefined(J, out, "the loop has no '%.*s' here", (int)(name->n > 100 ? 100 : name->n),
                            name->p);
    return INFER_OK;
}

/* ---- macros ---- */

static bool given(const struct jargs *a, const struct jstr *name, size_t i, struct jv *v, bool *used) {
    bool hit = i < a->n_pos;
    if (hit) *v = a->pos[i];
    for (size_t k = 0; k < a->n_kw; k++) {
        if (!js_eq(a->kw_name[k], name)) continue;
        used[k] = true;
        if (!hit) *v = a->kw[k];
        hit = true;
    }
    return hit;
}

static enum infer_status bind_rest(struct jinja *J, struct jscope *s, const struct jnode *n,
                                   const struct jargs *a, const bool *used) {
    struct jv name, v;
    if (a->n_pos > n->n && !(n->op & USES_VARARGS))
        return jinja_fail(J, "macro '%.*s' takes not more than %zu argument(s)",
                          (int)(n->name->n > 60 ? 60 : n->name->n), n->name->p, n->n);
    TRY(jv_lit(J, &name, "varargs"));
    TRY(jv_list(J, &v, JV_TUPLE, 0));
    for (size_t i = n->n; i < a->n_pos; i++) TRY(jv_push(J, v.l, a->pos[i]));
    TRY(jscope_set(J, s, name.s, v));
    TRY(jv_dict(J, &v));
    bool caller = false;
    for (size_t i = 0; i < a->n_kw; i++) {
        if (used[i]) continue;
        if (js_is(a->kw_name[i], "caller")) {
            TRY(jscope_set(J, s, a->kw_name[i], a->kw[i]));
            caller = true;
            continue;
        }
        if (!(n->op & USES_KWARGS))
            return jinja_fail(J, "macro '%.*s' takes no keyword argument '%.*s'",
                              (int)(n->name->n > 60 ? 60 : n->name->n), n->name->p,
                              (int)(a->kw_name[i]->n > 60 ? 60 : a->kw_name[i]->n), a->kw_name[i]->p);
        TRY(jv_dict_set(J, v.d, (struct jv){.kind = JV_STRING, .s = a->kw_name[i]}, a->kw[i]));
    }
    TRY(jv_lit(J, &name, "kwargs"));
    TRY(jscope_set(J, s, name.s, v));
    if (!caller && (n->op & USES_CALLER)) {
        TRY(jv_lit(J, &name, "caller"));
        TRY(jv_undefined(J, &v, "No caller defined"));
        TRY(jscope_set(J, s, name.s, v));
    }
    return INFER_OK;
}

static enum infer_status run_macro(struct jinja *J, const struct jmacro *m, const struct jargs *a,
                                   struct jv *out) {
    const struct jnode *n = m->node;
    struct jscope *s;
    bool *used;
    TRY(jscope_new(J, m->scope, &s));
    TRY(jinja_new(J, &used, a->n_kw + 1));
    for (size_t i = 0; i < n->n; i++) {
        struct jv v;
        const struct jstr *name = n->kids[i]->name;
        if (!given(a, name, i, &v, used)) {
            if (n->kids[i]->kind == JN_KEYWORD)
                TRY(jinja_eval(J, s, n->kids[i]->a, &v));
            else
                TRY(jv_undefined(J, &v, "parameter '%.*s' was not provided",
                                 (int)(name->n > 100 ? 100 : name->n), name->p));
        }
        TRY(jscope_set(J, s, name, v));
    }
    TRY(bind_rest(J, s, n, a, used));
    struct jbuf b = {.J = J};
    TRY(jinja_exec(J, s, n->body, &b));
    return jbuf_value(&b, false, out);
}

enum infer_status jmacro_call(struct jinja *J, const struct jmacro *m, const struct jargs *a,
                              struct jv *out) {
    int line = J->line;
    if (J->call_depth >= JINJA_MAX_DEPTH)
        return jinja_fail(J, "macros call each other deeper than %d", JINJA_MAX_DEPTH);
    J->call_depth++;
    TRY(run_macro(J, m, a, out));
    J->call_depth--;
    J->line = line;
    return INFER_OK;
}

static enum infer_status define_macro(struct jinja *J, struct jscope *s, const struct jnode *n,
                                      struct jv *out) {
    struct jmacro *m;
    TRY(jinja_new(J, &m, sizeof *m));
    *m = (struct jmacro){n, s};
    for (; s; s = s->up) s->captured = true;
    *out = (struct jv){.kind = JV_MACRO, .macro = m};
    return INFER_OK;
}

static enum infer_status exec_call_block(struct jinja *J, struct jscope *s, const struct jnode *n,
                                         struct jbuf *out) {
    struct jv fn, caller, v;
    struct jargs a;
    TRY(define_macro(J, s, n->b, &caller));
    TRY(jinja_eval(J, s, n->a->a, &fn));
    TRY(jinja_args(J, s, n->a->kids, n->a->n, &a));
    const struct jstr **names; /* caller comes last */
    struct jv *values;
    TRY(jinja_new(J, &names, (a.n_kw + 1) * sizeof *names));
    TRY(jinja_new(J, &values, (a.n_kw + 1) * sizeof *values));
    for (size_t i = 0; i < a.n_kw; i++) {
        names[i] = a.kw_name[i];
        values[i] = a.kw[i];
    }
    names[a.n_kw] = n->b->name;
    values[a.n_kw++] = caller;
    a.kw_name = names;
    a.kw = values;
    J->line = n->line;
    TRY(jv_call(J, fn, &a, &v));
    return jbuf_display(out, v);
}

/* ---- the other statements ---- */

static enum infer_status exec_block_text(struct jinja *J, struct jscope *s, const struct jnode *n,
                                         const struct jnode *chain, struct jv *out) {
    struct jbuf b = {.J = J};
    struct jscope *inner;
    struct jv text;
    TRY(jscope_new(J, s, &inner));
    TRY(jinja_exec(J, inner, n->body, &b));
    TRY(jbuf_value(&b, false, &text));
    return jinja_filter_chain(J, inner, chain, text, out);
}

static enum infer_status exec_with(struct jinja *J, struct jscope *s, const struct jnode *n,
                                   struct jbuf *out) {
    struct jscope *inner;
    struct jv v;
    TRY(jscope_new(J, s, &inner));
    for (size_t i = 0; i < n->n; i += 2) {
        TRY(jinja_eval(J, s, n->kids[i + 1], &v)); /* values see the outer scope */
        TRY(assign(J, inner, n->kids[i], v));
    }
    return jinja_exec(J, inner, n->body, out);
}

static enum infer_status exec_if(struct jinja *J, struct jscope *s, const struct jnode *n, struct jbuf *out) {
    for (;;) {
        struct jv v;
        TRY(jinja_eval(J, s, n->a, &v));
        if (jv_truth(v)) return jinja_exec(J, s, n->body, out);
        if (!n->other) return INFER_OK;
        bool elif = n->other->kind == JN_IF && n->other->op; /* marked by the parser's chain */
        if (!elif) return jinja_exec(J, s, n->other, out);
        n = n->other;
    }
}

static enum infer_status exec_one(struct jinja *J, struct jscope *s, const struct jnode *n,
                                  struct jbuf *out) {
    struct jv v;
    struct jscope *inner;
    switch (n->kind) {
    case JN_DATA:
        return jbuf_str(out, n->value.s);
    case JN_PRINT:
        TRY(jinja_eval(J, s, n->a, &v));
        return jbuf_display(out, v);
    case JN_DO:
        return jinja_eval(J, s, n->a, &v);
    case JN_IF:
        return exec_if(J, s, n, out);
    case JN_FOR:
        TRY(jinja_eval(J, s, n->b, &v));
        return run_loop(J, s, n, v, 0, out);
    case JN_SET:
        TRY(jinja_eval(J, s, n->b, &v));
        return assign(J, s, n->a, v);
    case JN_SETBLOCK:
        TRY(exec_block_text(J, s, n, n->b, &v));
        return assign(J, s, n->a, v);
    case JN_MACRO:
        TRY(define_macro(J, s, n, &v));
        return jscope_set(J, s, n->name, v);
    case JN_CALLBLOCK:
        return exec_call_block(J, s, n, out);
    case JN_FILTERBLOCK:
        TRY(exec_block_text(J, s, n, n->a, &v));
        return jbuf_display(out, v);
    case JN_WITH:
        return exec_with(J, s, n, out);
    case JN_SCOPE:
        TRY(jscope_new(J, s, &inner));
        return jinja_exec(J, inner, n->body, out);
    case JN_BREAK:
        J->flow = FLOW_BREAK;
        return INFER_OK;
    case JN_CONTINUE:
        J->flow = FLOW_CONTINUE;
        return INFER_OK;
    default:
        return jinja_fail(J, "this is no statement");
    }
}

enum infer_status jinja_exec(struct jinja *J, struct jscope *s, const struct jnode *list, struct jbuf *out) {
    TRY(jinja_enter(J));
    for (; list && J->flow == FLOW_ON; list = list->next) {
        TRY(jinja_step(J, 1));
        J->line = list->line;
        TRY(exec_one(J, s, list, out));
    }
    J->eval_depth--;
    return INFER_OK;
}

enum infer_status jinja_render(struct jinja *J, const char *src, size_t n, const struct jdict *vars,
                               struct jstr *out) {
    struct jnode *root;
    struct jscope *top;
    struct jv names, text;
    J->line = 1;
    if (n > JINJA_MAX_SOURCE)
        return jinja_fail(J, "the template has %zu bytes, at most %d are read", n, JINJA_MAX_SOURCE);
    if (!utf8_valid(src, n)) return jinja_fail(J, "the template is not valid UTF-8");
    TRY(jv_dict(J, &names));
    J->names = names.d;
    J->vars = vars;
    TRY(jinja_parse(J, src, n, &root));
    TRY(jscope_new(J, NULL, &top));
    struct jbuf b = {.J = J};
    TRY(jinja_exec(J, top, root, &b));
    TRY(jbuf_value(&b, false, &text));
    *out = *text.s;
    return INFER_OK;
}
