/* infer plan: every byte that running the model would take, before anything is loaded; on a card whose ceilings are
 * known, also what they allow, as predictions. */
#include <jansson.h>
#include <stdio.h>
#include "json.h"
#include "mem.h"
#include "session.h"
#include "tool.h"

int cmd_plan(const struct options *o);

/* What the ceilings of a card allow: bytes over bandwidth and operations over rate, nothing measured. */
struct prediction {
    double tok_s, tok_s_deep; /* decode from an empty context, and behind DEEP positions */
    double first_ms,
        first_int8_ms; /* first token behind a prompt of PROMPT tokens, products in f16 or int8 */
    double answer_s;   /* ANSWER tokens behind that prompt */
};
enum { DEEP = 4096, PROMPT = 256, ANSWER = 256 };

/* The card's rates are known and it holds the whole model. */
static bool foreseen(const struct infer_model_info *m, const struct infer_plan_report *r) {
    return r->card.read_gb_s > 0 && r->fits && r->size.device_layers == m->n_layer;
}

static struct prediction predict(const struct infer_model_info *m, const struct infer_plan_report *r) {
    const struct infer_card *c = &r->card;
    const struct infer_engine_info *s = &r->size;
    double kv = (double)s->kv_bytes / ((double)s->n_ctx * s->n_slot); /* bytes of a position */
    double weights = (double)m->token_bytes, second = c->read_gb_s * 1e9;
    double flops = (double)m->token_flops * PROMPT, read_ms = weights / second * 1e3;
    struct prediction p = {.tok_s = second / weights, .tok_s_deep = second / (weights + kv * DEEP)};
    p.first_ms = flops / (c->f16_tflops * 1e9);
    p.first_int8_ms = flops / (c->int8_tops * 1e9);
    if (p.first_ms < read_ms) p.first_ms = read_ms;
    if (p.first_int8_ms < read_ms) p.first_int8_ms = read_ms;
    p.answer_s = p.first_ms * 1e-3 + (ANSWER - 1) * (weights + kv * (PROMPT + ANSWER / 2)) / second;
    return p;
}

static void print_prediction(const struct infer_model_info *m, const struct infer_plan_report *r) {
    const struct infer_card *c = &r->card;
    struct prediction p = predict(m, r);
    printf(
        "predicted for %s, not measured: upper bounds at %.0f GB/s, %.0f TFLOP/s (f16), %.0f TOP/s (int8)\n",
        c->name, c->read_gb_s, c->f16_tflops, c->int8_tops);
    printf("  (%s)\n", c->source);
    printf("  a token reads          %12.1f MiB  of weights\n", (double)m->token_bytes / (1 << 20));
    printf("  decode                 %12.1f tok/s  %.1f behind %d positions\n", p.tok_s, p.tok_s_deep, DEEP);
    printf("  first token            %12.1f ms  behind %d tokens with f16 products, %.1f with int8\n",
           p.first_ms, PROMPT, p.first_int8_ms);
    printf("  answer                 %12.2f s  of %d tokens behind those\n", p.answer_s, ANSWER);
    printf("  memory                 %12.2f GiB  of the card\n", (double)r->size.device_bytes / (1 << 30));
    printf("  float32 products       %12.1f TFLOP/s  on tensor cores (TF32)\n", c->tf32_tflops);
}

static json_t *prediction_json(const struct infer_model_info *m, const struct infer_plan_report *r) {
    const struct infer_card *c = &r->card;
    if (!foreseen(m, r)) return json_null();
    struct prediction p = predict(m, r);
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "kind",
                     "prediction: upper bounds, not measured", "source", c->source, "read_gb_s", c->read_gb_s,
                     "f16_tflops", c->f16_tflops, "int8_tops", c->int8_tops, "tf32_tflops", c->tf32_tflops,
                     "tok_s", p.tok_s, "tok_s_at_4096", p.tok_s_deep, "first_token_ms_of_256", p.first_ms,
                     "first_token_ms_of_256_int8", p.first_int8_ms, "answer_s_of_256", p.answer_s);
}

static json_t *bytes_json(uint64_t n) { return n == UINT64_MAX ? json_null() : json_integer((json_int_t)n); }

static json_t *plan_json(const struct infer_model_info *m, const struct infer_plan_report *r) {
    const struct infer_engine_info *s = &r->size;
    json_t *nearest = json_array();
    for (int i = 0; i < r->n_nearest; i++) json_array_append_new(nearest, json_string(r->nearest[i]));
    json_t *bytes = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "mapped",
                              bytes_json(r->map_bytes), "weights", bytes_json(s->weight_bytes), "kv",
                              bytes_json(s->kv_bytes), "activations", bytes_json(s->activation_bytes),
                              "workspace", bytes_json(s->workspace_bytes), "outputs",
                              bytes_json(s->output_bytes), "driver", bytes_json(r->driver_bytes), "taken",
                              bytes_json(s->device_bytes), "available", bytes_json(r->limit_bytes), "pinned",
                              bytes_json(r->pinned_bytes), "host", bytes_json(r->host_bytes));
    return json_pack("{s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:s, s:i, s:i, s:o, s:o, s:o}", "arch",
                     m->arch, "device", s->device, "card", r->card.name, "fits", r->fits, "ctx", s->n_ctx,
                     "slots", s->n_slot, "batch", s->n_batch, "decode_rows", s->n_decode_rows, "kv_type",
                     s->kv_type, "layers", m->n_layer, "device_layers", s->device_layers, "bytes", bytes,
                     "nearest", nearest, "prediction", prediction_json(m, r));
}

static enum infer_status print_json(const struct infer_model_info *m, const struct infer_plan_report *r) {
    uint64_t failed = mem_failed();
    char *text;
    TRY(json_write(&text, plan_json(m, r), failed, JSON_INDENT(1) | JSON_REAL_PRECISION(6), "the report"));
    printf("%s\n", text);
    mem_free(text);
    return INFER_OK;
}

int cmd_plan(const struct options *o) {
    struct session s = {0};
    struct infer_plan_report r = {0};
    enum infer_status st = session_open_model(&s, o);
    if (!st) {
        struct infer_engine_options eo = session_engine_options(o, &(struct session_need){.slots = 1});
        if (o->max_batch) eo.slots = -1;
        st = infer_plan(s.model, &eo, o->as, &r);
    }
    if (!st && o->json) {
        st = print_json(&s.info, &r);
    } else if (!st) {
        fputs(r.text, stdout);
        if (o->max_batch)
            printf("  most sequences at once: %d of %d positions\n", r.fits ? r.size.n_slot : 0,
                   r.size.n_ctx);
        if (foreseen(&s.info, &r)) print_prediction(&s.info, &r);
    }
    if (!st) st = tool_flush();
    int code = st ? tool_fail(o, st) : r.fits ? EXIT_DONE : EXIT_CANNOT;
    infer_plan_free(&r);
    session_close(&s);
    return code;
}
