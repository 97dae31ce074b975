/* infer plan: every byte that running the model would take, before anything is loaded; where the ceilings of the device
 * are known or can be measured, also what they allow, as predictions. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuda/bench/cuda_bench.h"
#include "tools/measure/bench.h"
#include "plan/card.h"
#include "plan/plan.h"
#include "cpu/cpu_isa.h"
#include "base/host.h"
#include "files/json.h"
#include "base/mem.h"
#include "tools/sight.h"
#include "tools/tool.h"

int cmd_plan(const struct options *o);

/* What a prediction follows from: of a card that is not here as rated, of this machine as measured now. NAN: unknown. */
struct ceilings {
    char name[320], source[160], products[64]; /* products: of which arithmetic the next is the rate */
    double read_gb_s, product_tflops, f16_tflops, int8_tops, tf32_tflops;
};

/* What the ceilings allow: bytes over bandwidth and operations over rate. No run of the model is measured. */
struct prediction {
    double tok_s, tok_s_deep;   /* decode from an empty context, and behind DEEP positions: at most, */
    double like_s, like_s_deep; /* and as measured models of its kind have it */
    double first_ms,
        first_int8_ms; /* first token behind a prompt of PROMPT tokens, with the products and with int8 */
    double answer_s;   /* ANSWER tokens behind that prompt */
};
enum { DEEP = 4096, PROMPT = 256, ANSWER = 256 };

/* Two digits, which is more than such bounds are good for. */
static const char *two_digits(char dst[32], double x) {
    double unit = x > 0 ? pow(10, floor(log10(x)) - 1) : 1, rounded = round(x / unit) * unit;
    snprintf(dst, 32, "%.*f", unit >= 1 ? 0 : unit >= 0.1 ? 1 : 2, rounded);
    return dst;
}

static void ceilings_of_card(const struct infer_card *card, struct ceilings *c) {
    if (!(card->read_gb_s > 0)) return; /* GIB,sm_XX: nobody knows */
    snprintf(c->name, sizeof c->name, "%s", card->name);
    snprintf(c->source, sizeof c->source, "%s", card->source);
    snprintf(c->products, sizeof c->products, "f16");
    c->read_gb_s = card->read_gb_s;
    c->product_tflops = c->f16_tflops = card->f16_tflops;
    c->int8_tops = card->int8_tops;
    c->tf32_tflops = card->tf32_tflops;
}
static void ceilings_of_processor(const struct options *o, struct ceilings *c) {
    struct memory_probe p;
    enum cpu_isa isa;
    int n_thread = host_threads_pick(o->threads);
    if (cpu_isa_pick(o->isa, &isa) || probe_open(&p, n_thread))
        return; /* no memory for a probe: nothing is said */
    c->read_gb_s = probe_read(&p, 0.2);
    probe_close(&p);
    const struct peak *peak = peak_of_isa(isa == CPU_ISA_AVXVNNI ? "avx-vnni" : cpu_isa_name(isa));
    if (peak) {
        c->product_tflops = peak_measure(peak, n_thread, 0.05) * 1e-12;
        snprintf(c->products, sizeof c->products, "%s", peak->name);
    }
    bench_cpu_name(c->name, sizeof c->name);
    snprintf(c->source, sizeof c->source, "read bandwidth and arithmetic of %d threads, probed now",
             n_thread);
}
#ifdef INFER_CUDA
static void ceilings_of_this_card(struct ceilings *c) {
    struct cuda_ceiling *card;
    if (cuda_ceiling_open(&card)) return;
    c->read_gb_s = cuda_ceiling_read(card, 0.05);
    c->product_tflops = c->f16_tflops = cuda_ceiling_products(card, 0.05) * 1e-12;
    cuda_ceiling_close(card);
    snprintf(c->name, sizeof c->name, "this card");
    snprintf(c->products, sizeof c->products, "f16");
    snprintf(c->source, sizeof c->source, "read bandwidth and arithmetic of the card, probed now");
}
#endif
/* One device does the whole work and fits: only then is there something to predict. */
static struct ceilings ceilings_find(const struct options *o, const struct infer_model_info *m,
                                     const struct infer_plan_report *r) {
    struct ceilings c = {
        .read_gb_s = NAN, .product_tflops = NAN, .f16_tflops = NAN, .int8_tops = NAN, .tf32_tflops = NAN};
    if (!r->fits || r->n_way || r->size.device_layers != m->n_layer || r->size.host_experts) return c;
    if (*r->card.name) ceilings_of_card(&r->card, &c);
    if (strcmp(r->size.device, "cpu") == 0) ceilings_of_processor(o, &c);
#ifdef INFER_CUDA
    if (strcmp(r->size.device, "cuda") == 0 && !*r->card.name) ceilings_of_this_card(&c);
#endif
    return c;
}

static struct prediction predict(const struct infer_model_info *m, const struct infer_plan_report *r,
                                 const struct ceilings *c) {
    const struct infer_engine_info *s = &r->size;
    const struct plan_reached like = {.share = r->reached.share};
    /* ranks of this machine share its memory, and all wait for the slowest */
    const double weights = r->n_rank ? (double)r->rank_token_bytes * r->n_rank : (double)m->token_bytes,
                 gb_s = c->read_gb_s, deep = weights + infer_kv_read_bytes(s, DEEP),
                 middle = weights + infer_kv_read_bytes(s, PROMPT + ANSWER / 2);
    const int n = r->reached.kernels;
    double flops = (double)m->token_flops * PROMPT, read_ms = (double)m->prompt_bytes / gb_s * 1e-6;
    struct prediction p = {.tok_s = 1 / plan_token_s(weights, gb_s, n, NULL),
                           .tok_s_deep = 1 / plan_token_s(deep, gb_s, n, NULL),
                           .like_s = 1 / plan_token_s(weights, gb_s, n, &like),
                           .like_s_deep = 1 / plan_token_s(deep, gb_s, n, &like)};
    p.first_ms = flops / (c->product_tflops * 1e9);
    p.first_int8_ms = flops / (c->int8_tops * 1e9);
    if (p.first_ms < read_ms) p.first_ms = read_ms;
    if (p.first_int8_ms < read_ms) p.first_int8_ms = read_ms;
    p.answer_s = p.first_ms * 1e-3 + (ANSWER - 1) * plan_token_s(middle, gb_s, n, NULL);
    return p;
}

/* Decoding: what the bytes and the kernels allow, and what became of that where it was measured. */
static void print_decode(const struct infer_plan_report *r, const struct prediction *p) {
    const struct infer_reached *k = &r->reached;
    char a[32], b[32];
    printf("  decode        at most  %12s tok/s  %s behind %d positions", two_digits(a, p->tok_s),
           two_digits(b, p->tok_s_deep), DEEP);
    if (k->kernels) printf("; %d kernels a token", k->kernels);
    printf("\n");
    if (!k->model) return;
    printf("  as measured   some     %12s tok/s  %s behind those: such models (%s on %s",
           two_digits(a, p->like_s), two_digits(b, p->like_s_deep), k->model, k->on);
    if (k->n > 1) printf(", %d more", k->n - 1);
    printf(") read at %.0f%%\n", 100 * k->share);
}

static void print_prediction(const struct infer_model_info *m, const struct infer_plan_report *r,
                             const struct ceilings *c) {
    struct prediction p = predict(m, r, c);
    if (!isfinite(c->read_gb_s)) return;
    printf("predicted for %s, not measured: upper bounds at %.*f GB/s", c->name, c->read_gb_s < 100,
           c->read_gb_s);
    if (isfinite(c->product_tflops))
        printf(", %.*f TFLOP/s (%s)", c->product_tflops < 10 ? 2 : 0, c->product_tflops, c->products);
    if (isfinite(c->int8_tops)) printf(", %.0f TOP/s (int8)", c->int8_tops);
    printf("\n  (%s)\n", c->source);
    printf("  a token reads          %12.1f MiB  of weights",
           (double)(r->n_rank ? r->rank_token_bytes : m->token_bytes) / (1 << 20));
    if (r->n_rank) printf(" on the slowest of %d ranks, which share this memory", r->n_rank);
    if (!r->n_rank && m->n_param_token < m->n_param)
        printf(", %.1f of %.1f billion parameters", (double)m->n_param_token * 1e-9,
               (double)m->n_param * 1e-9);
    printf("\n");
    char a[32];
    print_decode(r, &p);
    if (isfinite(p.first_ms))
        printf("  first token   at least %12s ms  behind %d tokens", two_digits(a, p.first_ms), PROMPT);
    if (isfinite(p.first_int8_ms)) printf(" with f16 products, %s with int8", two_digits(a, p.first_int8_ms));
    if (isfinite(p.first_ms))
        printf("\n  answer        at least %12s s  of %d tokens behind those\n", two_digits(a, p.answer_s),
               ANSWER);
    if (*r->card.name)
        printf("  memory                 %12.2f GiB  of the card\n",
               (double)r->size.device_bytes / (1 << 30));
    if (isfinite(c->tf32_tflops))
        printf("  float32 products       %12.1f TFLOP/s  on tensor cores (TF32)\n", c->tf32_tflops);
}

static json_t *prediction_json(const struct infer_model_info *m, const struct infer_plan_report *r,
                               const struct ceilings *c) {
    if (!isfinite(c->read_gb_s)) return json_null();
    struct prediction p = predict(m, r, c);
    return json_pack(
        "{s:s, s:i, s:f, s:s?, s:f, s:f, s:s, s:s, s:f, s:s, s:o, s:o, s:o, s:o, s:f, s:f, s:o, s:o, s:o}",
        "kind", "prediction: upper bounds, not measured", "kernels", r->reached.kernels, "share_as_measured",
        r->reached.share, "measured", r->reached.model, "tok_s_as_measured", p.like_s,
        "tok_s_at_4096_as_measured", p.like_s_deep, "of", c->name, "source", c->source, "read_gb_s",
        c->read_gb_s, "products", c->products, "product_tflops", bench_real(c->product_tflops), "f16_tflops",
        bench_real(c->f16_tflops), "int8_tops", bench_real(c->int8_tops), "tf32_tflops",
        bench_real(c->tf32_tflops), "tok_s", p.tok_s, "tok_s_at_4096", p.tok_s_deep, "first_token_ms_of_256",
        bench_real(p.first_ms), "first_token_ms_of_256_int8", bench_real(p.first_int8_ms), "answer_s_of_256",
        bench_real(p.answer_s));
}

static json_t *bytes_json(uint64_t n) { return n == UINT64_MAX ? json_null() : json_integer((json_int_t)n); }

/* Where card and host share a model with experts: the ways that were considered. */
static json_t *share_json(const struct infer_share *s) {
    if (!s->considered) return json_null();
    return json_pack("{s:s, s:i, s:f, s:o, s:o, s:o, s:b}", "kind", "prediction: upper bounds, not measured",
                     "layers", s->n, "tok_s", s->tok_s, "card_token_bytes", bytes_json(s->device_bytes),
                     "host_token_bytes", bytes_json(s->host_bytes), "host_weight_bytes",
                     bytes_json(s->host_weights), "taken", s->taken);
}

/* Ways to divide the model among cards. */
static json_t *ways_json(const struct infer_plan_report *r) {
    if (!r->n_way) return json_null();
    json_t *all = json_array();
    for (int i = 0; i < r->n_way; i++) {
        const struct infer_way *w = &r->way[i];
        if (!w->there) continue;
        json_array_append_new(
            all, json_pack("{s:s, s:s, s:f, s:b, s:b, s:o, s:o, s:o, s:i, s:f}", "kind",
                           "prediction, not measured", "way", w->name, "tok_s", w->tok_s, "fits", w->fits,
                           "taken", w->taken, "card_bytes", bytes_json(w->bytes), "card_available",
                           bytes_json(w->limit_bytes), "token_bytes", bytes_json(w->token_bytes), "exchanges",
                           w->exchanges, "exchange_us", w->exchange_us));
    }
    return all;
}

/* Of the model that drafts; its text NULL: there is none. */
static json_t *draft_json(const struct infer_plan_report *d) {
    if (!d->text) return json_null();
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o}", "device", d->size.device, "ctx", d->size.n_ctx,
                     "mapped", bytes_json(d->map_bytes), "weights", bytes_json(d->size.weight_bytes), "kv",
                     bytes_json(d->size.kv_bytes), "taken", bytes_json(d->size.device_bytes));
}

static json_t *plan_json(const struct infer_model_info *m, const struct infer_plan_report *r,
                         const struct ceilings *c, const struct infer_plan_report *draft) {
    const struct infer_engine_info *s = &r->size;
    json_t *nearest = json_array();
    for (int i = 0; i < r->n_nearest; i++) {
        char flags[128];
        json_array_append_new(nearest, json_string(tool_flags(flags, sizeof flags, r->nearest[i])));
    }
    json_t *bytes = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mapped",
                              bytes_json(r->map_bytes), "weights", bytes_json(s->weight_bytes), "kv",
                              bytes_json(s->kv_bytes), "activations", bytes_json(s->activation_bytes),
                              "workspace", bytes_json(s->workspace_bytes), "outputs",
                              bytes_json(s->output_bytes), "driver", bytes_json(r->driver_bytes), "taken",
                              bytes_json(s->device_bytes), "available", bytes_json(r->limit_bytes), "pinned",
                              bytes_json(r->pinned_bytes), "host", bytes_json(r->host_bytes));
    return json_pack(
        "{s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "arch", m->arch, "device", s->device, "card", r->card.name, "fits", r->fits, "ctx", s->n_ctx, "slots",
        s->n_slot, "kv_tokens", s->kv_tokens, "batch", s->n_batch, "decode_rows", s->n_decode_rows, "kv_type",
        s->kv_type, "layers", m->n_layer, "device_layers", s->device_layers, "cpu_experts", s->host_experts,
        "experts_on_cpu", share_json(&r->experts), "layers_on_cpu", share_json(&r->layers), "bytes", bytes,
        "ways", ways_json(r), "nearest", nearest, "prediction", prediction_json(m, r, c), "draft",
        draft_json(draft));
}

static enum infer_status print_json(const struct infer_model_info *m, const struct infer_plan_report *r,
                                    const struct ceilings *c, const struct infer_plan_report *draft,
                                    const struct infer_vision_info *sight) {
    uint64_t failed = mem_failed();
    char *text;
    json_t *j = plan_json(m, r, c, draft);
    if (j && sight->path)
        json_object_set_new(
            j, "pictures",
            json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o}", "file", sight->path, "device",
                      sight->device_bytes ? "cuda" : "cpu", "projector", sight->projector, "max_tokens",
                      sight->max_tokens, "mapped", bytes_json(sight->weight_bytes), "taken",
                      bytes_json(sight->memory_bytes), "of_card", bytes_json(sight->device_bytes)));
    TRY(json_write(&text, j, failed, JSON_INDENT(1) | JSON_REAL_PRECISION(6), "the report"));
    printf("%s\n", text);
    mem_free(text);
    return INFER_OK;
}

/* --as list: a line a card. */
static enum infer_status print_cards(bool json) {
    uint64_t failed = mem_failed();
    char *text = NULL;
    int n;
    const struct card *c = card_table(&n);
    json_t *all = json_array();
    if (!json)
        printf("%-22s %9s %8s %8s %7s %13s  rates\n", "card", "GiB", "GB/s", "chip", "multip.",
               "f16 TFLOP/s");
    for (int i = 0; i < n; i++) {
        double gib = (double)c[i].memory_bytes / (1 << 30);
        if (json)
            json_array_append_new(all, json_pack("{s:s, s:f, s:f, s:i, s:i, s:f, s:f, s:f, s:s}", "card",
                                                 c[i].name, "gib", gib, "read_gb_s", c[i].read_gb_s, "sm",
                                                 c[i].sm, "multiprocessors", c[i].n_sm, "f16_tflops",
                                                 c[i].f16_tflops, "int8_tops", c[i].int8_tops, "tf32_tflops",
                                                 c[i].tf32_tflops, "source", c[i].source));
        else
            printf("%-22s %9.1f %8.0f   sm_%-3d %7d %13.1f  %s\n", c[i].name, gib, c[i].read_gb_s, c[i].sm,
                   c[i].n_sm, c[i].f16_tflops, c[i].sm < 80 ? "too old: no kernels" : c[i].source);
    }
    TRY(json_write(&text, all, failed, JSON_INDENT(1) | JSON_REAL_PRECISION(6), "the list of cards"));
    if (json) printf("%s\n", text);
    mem_free(text);
    return tool_flush();
}

/* --draft: the model that drafts has its own memory first; on a card the rest is left to the other one. */
static enum infer_status plan_draft(struct session *s, const struct options *o,
                                    struct infer_engine_options *eo, struct infer_plan_report *d) {
    struct infer_engine_options of;
    struct session_draft draft;
    TRY(session_drafter(o, &draft));
    if (draft.by != INFER_DRAFT_MODEL) return INFER_OK;
    TRY(session_open_draft(s, o, &draft, o->as, eo, &of));
    TRY(infer_plan(s->draft_model, &of, o->as, d));
    eo->vram_reserve += d->size.device_bytes;
    return INFER_OK;
}

/* A tower beside the model; what keeps it from being used is said where the user did not name it. */
static enum infer_status plan_sight(const struct session *s, const struct options *o,
                                    const struct infer_plan_report *r, struct infer_vision_info *out) {
    static char path[4096];
    const struct infer_vision_options vo = {.max_tokens = o->image_max_tokens, .threads = o->threads};
    if (!sight_path(path, sizeof path, s->path, o)) return INFER_OK;
    const bool card = sight_device(o, strstr(r->size.device, "cuda") != NULL) != NULL;
    const enum infer_status st = infer_vision_plan(s->model, path, &vo, card, out);
    out->path = st ? NULL : path;
    if (st && o->mmproj) return err_prefix(st, "--mmproj %s", path);
    if (st) tool_say("pictures are not taken: %s", err_message());
    return INFER_OK;
}

/* Of both. */
static enum infer_status plan_all(struct session *s, const struct options *o, struct infer_plan_report *r,
                                  struct infer_plan_report *d, struct infer_vision_info *sight) {
    struct infer_engine_options eo = session_engine_options(o, &(struct session_need){.slots = 1});
    if (o->max_batch) eo.slots = -1;
    if (!options_given(o, "device")) eo.device = NULL;
    TRY(plan_draft(s, o, &eo, d));
    TRY(infer_plan(s->model, &eo, o->as, r));
    TRY(plan_sight(s, o, r, sight));
    if (sight->device_bytes) {
        eo.vram_reserve += sight->device_bytes;
        infer_plan_free(r);
        TRY(infer_plan(s->model, &eo, o->as, r));
    }
    const bool host = strcmp(r->size.device, "cuda") != 0;
    if (d->text)
        r->fits &= d->fits && (!host || r->size.device_bytes + d->size.device_bytes <= r->limit_bytes);
    return INFER_OK;
}

static void print_draft(const struct infer_plan_report *r, const struct infer_plan_report *d) {
    if (!d->text) return;
    printf("--draft, beside it: ");
    tool_report(stdout, d->text);
    printf("  both together %21.1f MiB  %s\n",
           (double)(r->size.device_bytes + d->size.device_bytes) / (1 << 20), r->fits ? "fit" : "DO NOT FIT");
}

/* What sees for the model; on the host its file is read in place as the model's is. */
static void print_sight(const struct infer_vision_info *v, int n_embd) {
    if (!v->path) return;
    printf("pictures, on the %s: %s (%s)\n", v->device_bytes ? "card" : "CPU", v->path, v->projector);
    printf("  mapped        %21.1f MiB\n", (double)v->weight_bytes / (1 << 20));
    if (v->device_bytes)
        printf("  of the card   %21.1f MiB  left beside the model\n", (double)v->device_bytes / (1 << 20));
    printf("  taken         %21.1f MiB  for pictures of at most %d tokens (--image-max-tokens)\n",
           (double)v->memory_bytes / (1 << 20), v->max_tokens);
    printf("  rows          %21.1f MiB  of the largest one, while its answer runs\n",
           (double)v->max_tokens * n_embd * 4 / (1 << 20));
}

int cmd_plan(const struct options *o) {
    if (o->as && strcmp(o->as, "list") == 0) {
        enum infer_status listed = print_cards(o->json);
        return listed ? tool_fail(o, listed) : EXIT_DONE;
    }
    struct session s = {0};
    struct infer_plan_report r = {0}, draft = {0};
    struct infer_vision_info sight = {0};
    enum infer_status st = session_open_model(&s, o);
    if (!st) {
        st = plan_all(&s, o, &r, &draft, &sight);
        if (st == INFER_E_INPUT && strncmp(infer_error(), ".as '", 5) == 0) {
            char why[512];
            snprintf(why, sizeof why, "%s", infer_error());
            err_set(st, "%s; '--as list' names all", why);
        }
    }
    struct ceilings c = {.read_gb_s = NAN};
    if (!st) c = ceilings_find(o, &s.info, &r);
    if (!st && o->json) {
        st = print_json(&s.info, &r, &c, &draft, &sight);
    } else if (!st) {
        tool_report(stdout, r.text);
        if (o->max_batch)
            printf("  most sequences at once: %d of %d positions\n", r.fits ? r.size.n_slot : 0,
                   r.size.n_ctx);
        print_draft(&r, &draft);
        print_sight(&sight, s.info.n_embd);
        print_prediction(&s.info, &r, &c);
    }
    if (!st) st = tool_flush();
    int code = st ? tool_fail(o, st) : r.fits ? EXIT_DONE : EXIT_CANNOT;
    infer_plan_free(&r);
    infer_plan_free(&draft);
    session_close(&s);
    return code;
}
