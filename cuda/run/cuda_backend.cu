// The CUDA backend behind backend.h: device, memory, steps and results. Kernels are in plain/, decode/ and prompt/.
#include <stdio.h>
#include <stdlib.h>
#include "cuda/plain/kv_low_ops.h"
#include "cuda/plain/kv_runs.h"
#include "cuda/run/adapters_run.h"
#include "cuda/run/cuda_ranks.h"
#include "cuda/run/host_rows.h"
#include "seam/op_list.h"
#include "cuda/run/decode_program.h"
#include "cuda/run/prompt_program.h"
#include "cuda/run/state_copy.h"
#include "cuda/run/behind.h"
#include "cuda/plan/blas.h"
#include "cuda/plan/tune.h"
#include "base/host.h"
#include "base/mem.h"

// ---- open
static void place_step(cuda_backend *b) {
    size_t rows = (size_t)b->plan.max_rows, outs = (size_t)b->plan.max_out;
    uint8_t *p = b->work + b->plan.step;
    int32_t *a = (int32_t *)(p + 64);
    b->t.step = (const dev_step *)p;
    b->t.id = a;
    b->t.pos = a + rows;
    b->t.slot = a + 2 * rows;
    b->in.at = a + 3 * rows;
    for (int i = 0; i < 3; i++) b->in.axis[i] = a + (4 + i) * rows;
    static_assert(CUDA_ROW_WORDS == 7, "these");
    b->in.rows = (const float *)(b->work + b->plan.input);
    b->in.width = b->plan.input_row / 4;
    b->t.out_row = a + CUDA_ROW_WORDS * rows;
    b->t.want = a + CUDA_ROW_WORDS * rows + outs;
    b->t.draw = (const dev_draw *)(p + b->plan.step_draw);
    b->t.slot_last = (int32_t *)(b->work + b->plan.slot_last);
    b->next_decode = (int *)(b->work + b->plan.counter) + (size_t)b->plan.max_decode * 256;
}

static enum infer_status open_device(cuda_backend *b) {
    const cuda_plan *p = &b->plan;
    size_t free_bytes, total_bytes;
    TRY(cuda_pick_device(b->c.card, &b->device, &free_bytes, &total_bytes));
    CU(cudaGetDeviceProperties(&b->prop, b->device));
    b->sm_count = b->prop.multiProcessorCount;
    snprintf(b->text, sizeof b->text, "%s, sm_%d%d, %d SMs, %.0f GiB", b->prop.name, b->prop.major,
             b->prop.minor, b->sm_count, (double)b->prop.totalGlobalMem / (1 << 30));
    int n_device, used = (int)strlen(b->text);
    CU(cudaGetDeviceCount(&n_device));
    if (n_device > 1) // which of them was chosen
        snprintf(b->text + used, sizeof b->text - (size_t)used, ", card %04x:%02x:%02x of %d",
                 b->prop.pciDomainID, b->prop.pciBusID, b->prop.pciDeviceID, n_device);
    snprintf(b->kernels, sizeof b->kernels, "sm_%d%d", b->prop.major, b->prop.minor);
    // one arena, in the sizes of the plan
    size_t bytes =
        p->weight_bytes + p->kv_bytes + b->c.activation_bytes + p->workspace_bytes + p->result_bytes;
    CU(cudaMalloc((void **)&b->arena, bytes));
    b->arena_bytes = bytes;
    cuda_arena_count(b->device, bytes, true);
    b->weights = b->arena;
    b->kv = b->weights + p->weight_bytes;
    b->act = b->kv + p->kv_bytes;
    b->work = b->act + b->c.activation_bytes;
    b->out = b->work + p->workspace_bytes;
    place_step(b);
    CU(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking));
    for (int i = 0; i < CUDA_FLIGHT; i++) CU(cudaEventCreateWithFlags(&b->done[i], cudaEventDisableTiming));
    CU(cudaEventCreateWithFlags(&b->input_sent, cudaEventDisableTiming));
    CU(cudaMallocHost((void **)&b->pinned, p->pinned_bytes));
    TRY(host_rows_open(&b->host, &b->c));
    TRY(stamps_open(&b->stamps, b));
    TRY(look_open(&b->look, b));
    // poison: a kernel that reads what nobody wrote shows it
    CU(cudaMemsetAsync(b->kv, 0xff, p->kv_bytes + b->c.activation_bytes, b->stream));
    CU(cudaMemsetAsync(b->work, 0, p->workspace_bytes, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}

static void cuda_close(struct backend *base);

static enum infer_status cuda_open(struct backend **out, const struct backend_config *c) {
    cuda_backend *b;
    *out = NULL;
    TRY(mem_new(&b, sizeof *b, "a CUDA backend"));
    b->base.type = &backend_cuda;
    b->c = *c;
    enum infer_status st =
        mem_new(&b->constant, CUDA_CONSTANT_MAX * sizeof *b->constant, "table of constants");
    if (st == INFER_OK) st = mem_new(&b->seen, (size_t)c->n_slot * sizeof *b->seen, "rows of a step");
    if (st == INFER_OK) st = cuda_plan_make(&b->plan, c);
    if (st == INFER_OK) st = cuda_adapters_open(&b->adapters, b);
    if (st == INFER_OK) st = open_device(b);
    if (st != INFER_OK) {
        cuda_close(&b->base);
        return st;
    }
    *out = &b->base;
    return INFER_OK;
}

static void cuda_close(struct backend *base) {
    cuda_backend *b = (cuda_backend *)base;
    if (!b) return;
    if (b->stream) cudaStreamSynchronize(b->stream);
    for (int i = 0; i < CUDA_BUCKET_MAX; i++) {
        if (b->bucket[i].exec) cudaGraphExecDestroy(b->bucket[i].exec);
        if (b->bucket[i].stamped) cudaGraphExecDestroy(b->bucket[i].stamped);
    }
    stamps_close(b->stamps);
    look_close(b->look);
    decode_free(b->decode);
    prompt_free(b->prompt);
    blas_close(b->blas);
    if (b->choices != b->tune) tune_close(b->choices);
    tune_close(b->tune);
    for (int i = 0; i < CUDA_FLIGHT; i++)
        if (b->done[i]) cudaEventDestroy(b->done[i]);
    if (b->input_sent) cudaEventDestroy(b->input_sent);
    if (b->stream) cudaStreamDestroy(b->stream);
    if (b->pinned) cudaFreeHost(b->pinned);
    host_rows_close(b->host);
    cuda_ranks_close(b->ranks);
    cuda_adapters_close(b->adapters);
    if (b->arena) {
        cudaFree(b->arena);
        cuda_arena_count(b->device, b->arena_bytes, false);
    }
    (void)cudaGetLastError();
    cuda_plan_free(&b->plan);
    mem_free(b->constant);
    mem_free(b->seen);
    mem_free(b);
}

// ---- compile
static enum infer_status list_of(cuda_backend *b, int rows, bool shared, cudaStream_t s) {
    if (b->decode) return decode_run(b, b->decode, rows, shared, s);
    int outs = rows < b->c.list[ROW_DECODE]->max_out ? rows : b->c.list[ROW_DECODE]->max_out;
    return cuda_run_list(b, ROW_DECODE, rows, outs, s);
}

// The graph of the next bucket, or the one that leaves times.
static enum infer_status capture(cuda_backend *b, int rows, bool shared, bool stamped,
                                 cudaGraphExec_t *exec) {
    cudaGraph_t g = NULL;
    enum infer_status st = INFER_OK;
    CU(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    if (stamped) st = stamps_begin(b, 0, b->n_bucket, b->stream);
    if (st == INFER_OK) st = list_of(b, rows, shared, b->stream);
    if (stamped) stamps_end(b);
    cudaError_t e = cudaStreamEndCapture(b->stream, &g);
    if (st == INFER_OK && e != cudaSuccess) st = cuda_error(e, "cudaStreamEndCapture");
    if (st == INFER_OK) {
        e = cudaGraphInstantiate(exec, g, 0);
        if (e != cudaSuccess) st = cuda_error(e, "cudaGraphInstantiate");
    }
    if (st == INFER_OK) {
        e = cudaGraphUpload(*exec, b->stream);
        if (e != cudaSuccess) st = cuda_error(e, "cudaGraphUpload");
    }
    if (g) cudaGraphDestroy(g);
    return st;
}

// --autotune-file: the choices of kernels, in the place of those that the cache has.
static enum infer_status open_choices(cuda_backend *b, bool measure) {
    const char *path = b->c.cuda.autotune_file;
    b->choices = b->tune;
    if (!path) return INFER_OK;
    TRY(tune_open_file(&b->choices, b->prop.name, path, measure));
    if (!measure && tune_count(b->choices) == 0)
        log_line(LOG_WARN, "%s has nothing of %s: kernels are chosen by the default rule", path,
                 b->prop.name);
    return INFER_OK;
}

static enum infer_status compile_prompt(cuda_backend *b) {
    const char *how = b->c.cuda.autotune ? b->c.cuda.autotune : "load";
    int driver = 0;
    if (b->c.no_fuse && (b->c.cuda.blas || b->c.cuda.block_scaled))
        return err_set(INFER_E_INPUT,
                       ".no_fuse runs the plain kernels alone: not with .blas or .block_scaled %s",
                       b->c.cuda.block_scaled ? b->c.cuda.block_scaled : "high");
    if (b->c.no_fuse) return INFER_OK;
    if (b->c.cuda.blas) TRY(blas_open(&b->blas));
    CU(cudaDriverGetVersion(&driver));
    const bool measure = strcmp(how, "full") == 0;
    if (strcmp(how, "off") != 0) {
        TRY(tune_open(&b->tune, b->prop.name, driver));
        TRY(open_choices(b, measure));
    } else if (b->c.cuda.autotune_file) {
        return err_set(INFER_E_INPUT,
                       ".autotune_file is read and written by .autotune load and full, not by off");
    }
    TRY(prompt_build(&b->prompt, b));
    if (b->prompt && measure) TRY(prompt_tune(b, b->prompt));
    if (b->choices != b->tune && measure) TRY(tune_save(b->choices));
    if (b->tune && tune_save(b->tune) != INFER_OK)
        log_line(LOG_WARN, "not kept for the next start: %s", err_message());
    return INFER_OK;
}

// Steps of 1 to so many rows.
static enum infer_status capture_rows(cuda_backend *b, int max, bool shared) {
    for (int rows = shared ? 2 : 1;; rows = rows < 8 ? rows * 2 : rows < 64 ? rows + 8 : rows + 32) {
        if (rows > max) rows = max;
        if (b->n_bucket + 1 > CUDA_BUCKET_MAX)
            return err_set(INFER_E_UNSUPPORTED, "cuda: %d decode rows are too many", max);
        TRY(capture(b, rows, shared, false, &b->bucket[b->n_bucket].exec));
        if (b->stamps) TRY(capture(b, rows, shared, true, &b->bucket[b->n_bucket].stamped));
        b->bucket[b->n_bucket].shared = shared;
        b->bucket[b->n_bucket++].rows = rows;
        if (rows == max) return INFER_OK;
    }
}
// With more rows than sequences some are of one sequence (guesses, and what is computed again): up to so many in a graph.
enum { SHARED_ROWS = 128 };
static enum infer_status capture_all(cuda_backend *b) {
    const int max = b->c.list[ROW_DECODE]->max_rows;
    TRY(capture_rows(b, max, false));
    if (b->decode && max > b->c.n_slot) TRY(capture_rows(b, max < SHARED_ROWS ? max : SHARED_ROWS, true));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}

// The classes in their order: both are ready after decode.
static enum infer_status compile_class(cuda_backend *b, enum row_class cls) {
    CU(cudaSetDevice(b->device));
    if (cls == ROW_PROMPT) return compile_prompt(b);
    if (!b->c.no_fuse) TRY(decode_build(&b->decode, b));
    if (!b->c.cuda.no_graphs && !b->host && !look_watches(b) && cuda_ranks_graph(b)) TRY(capture_all(b));
    return cuda_warm(b);
}
static enum infer_status cuda_compile(struct backend *base, enum row_class cls) {
    cuda_backend *b = (cuda_backend *)base;
    return cuda_ranks_leave(b, compile_class(b, cls));
}

// ---- steps
static uint8_t *pinned_blob(const cuda_backend *b, unsigned i) {
    return b->pinned + b->plan.pin_blob + i * b->plan.blob_bytes;
}
static uint8_t *pinned_pages(const cuda_backend *b, unsigned i) {
    return b->pinned + b->plan.pin_pages + i * b->plan.page_bytes;
}
static uint8_t *pinned_result(const cuda_backend *b, unsigned i) {
    return b->pinned + b->plan.pin_result + i * b->plan.host_result_bytes;
}
enum { SEND_PIECE = 4 << 20 };
// Rows that are given, one after the other; at[n_row]: which of them a row of the step has, -1: none.
static enum infer_status send_input(cuda_backend *b, const struct step *s, int32_t *at) {
    const size_t bytes = b->plan.input_row;
    uint8_t *to = b->pinned + b->plan.pin_input;
    int n = 0;
    memset(at, 0xff, (size_t)s->n_row * sizeof *at);
    for (int t = 0; s->input && t < s->n_row; t++)
        if (s->input[t]) at[t] = n++;
    if (!n) return INFER_OK;
    if (n > b->c.n_input)
        return err_set(INFER_E_INPUT, "cuda: %d rows of a step are no tokens, there is room for %d (.inputs)",
                       n, b->c.n_input);
    CU(cudaEventSynchronize(b->input_sent)); // the copy before this one, which its step waited for
    const int piece =
        bytes < SEND_PIECE ? (int)(SEND_PIECE / bytes) : 1; // one is sent while the next is copied
    for (int t = 0, first = 0; t < s->n_row; t += piece) {
        const int m = s->n_row - t < piece ? s->n_row - t : piece;
        int last = first;
        for (int i = t; i < t + m; i++) last += at[i] >= 0;
        host_copy_rows(to, at + t, (const void *const *)(s->input + t), m, bytes);
        CU(cudaMemcpyAsync(b->work + b->plan.input + (size_t)first * bytes, to + (size_t)first * bytes,
                           (size_t)(last - first) * bytes, cudaMemcpyHostToDevice, b->stream));
        first = last;
    }
    CU(cudaEventRecord(b->input_sent, b->stream));
    return INFER_OK;
}

// How the outputs are drawn; edits and masks stay on the host, where the kernel reads them, until the step is over.
static enum infer_status put_draws(cuda_backend *b, const struct step *s, unsigned f, dev_draw *to) {
    static_assert(sizeof(dev_draw) == CUDA_DRAW_BYTES, "as the plan has it");
    const size_t mask_bytes = ((size_t)b->c.n_vocab + 63) / 64 * 8;
    uint8_t *at = b->pinned + b->plan.pin_edit + f * (size_t)b->plan.n_edited * b->plan.edit_bytes;
    int n_edited = 0;
    for (int i = 0; i < s->n_out; i++) {
        const struct infer_draw *d = s->draw ? s->draw[i] : NULL;
        to[i] = dev_draw{};
        to[i].n_edit = -1;
        if (!d) continue;
        to[i].u = d->u;
        to[i].temp = d->temp;
        to[i].top_p = d->top_p;
        to[i].min_p = d->min_p;
        to[i].top_k = d->top_k;
        to[i].n_edit = d->n_edit;
        memcpy(to[i].order, d->order, sizeof to[i].order);
        if (!d->n_edit && !d->mask) continue;
        if (n_edited++ == b->plan.n_edited)
            return err_set(INFER_E_INPUT, "more than %d outputs of a step have biases or a mask",
                           b->plan.n_edited);
        to[i].edit = (const infer_edit *)at;
        memcpy(at, d->edit, (size_t)d->n_edit * sizeof *d->edit);
        uint8_t *mask = at + INFER_EDITS_MAX * sizeof *d->edit;
        if (d->mask) {
            memcpy(mask, d->mask, mask_bytes);
            to[i].mask = (const uint64_t *)mask;
        }
        at += b->plan.edit_bytes;
    }
    return INFER_OK;
}

// struct step to the device; page tables only when one changed
static enum infer_status send_step(cuda_backend *b, const struct step *s, unsigned f, bool fetched) {
    size_t row;
    uint8_t *blob = fetched ? cuda_decode_blob(b, b->n_decode % CUDA_FLIGHT, &row) : pinned_blob(b, f);
    b->flight[f].blob = blob;
    dev_step h = {s->n_row, s->n_out, (int)b->n_decode};
    memcpy(blob, &h, sizeof h);
    auto at = [&](const int32_t *dev) {
        return (int32_t *)(blob + ((const uint8_t *)dev - (const uint8_t *)b->t.step));
    };
    memcpy(at(b->t.id), s->id, (size_t)s->n_row * 4);
    memcpy(at(b->t.pos), s->pos, (size_t)s->n_row * 4);
    memcpy(at(b->t.slot), s->slot, (size_t)s->n_row * 4);
    for (int i = 0; i < 3; i++)
        memcpy(at(b->in.axis[i]), s->axis[i] ? s->axis[i] : s->pos, (size_t)s->n_row * 4);
    TRY(send_input(b, s, at(b->in.at)));
    memcpy(at(b->t.out_row), s->out_row, (size_t)s->n_out * 4);
    for (int i = 0; i < s->n_out; i++) at(b->t.want)[i] = s->want[i];
    TRY(put_draws(b, s, f, (dev_draw *)(blob + b->plan.step_draw)));
    const bool ahead = s->until && !fetched; // decode rows see what is before them
    const size_t bytes = b->plan.step_bytes, more = ahead ? (size_t)s->n_row * 4 : 0;
    b->until = ahead ? (const int32_t *)((const uint8_t *)b->t.step + bytes) : NULL;
    if (ahead) memcpy(blob + bytes, s->until, more);
    if (!fetched)
        CU(cudaMemcpyAsync((void *)b->t.step, blob, bytes + more, cudaMemcpyHostToDevice, b->stream));
    if (b->pages_known && b->pages_version == s->pages_version) return INFER_OK;
    int32_t *pages = (int32_t *)pinned_pages(b, f);
    for (int g = 0; g < b->c.n_kv_group; g++)
        memcpy(pages + b->plan.page_table[g], s->pages[g],
               (size_t)b->c.n_slot * (size_t)b->c.kv_group[g].max_pages * 4);
    CU(cudaMemcpyAsync(b->work + b->plan.pages, pages, b->plan.n_page_entry * 4, cudaMemcpyHostToDevice,
                       b->stream));
    b->pages_version = s->pages_version;
    b->pages_known = true;
    return INFER_OK;
}

// Whether two rows are of one sequence (drafts): then keys are stored by a kernel of their own.
static bool rows_share(cuda_backend *b, const struct step *s) {
    b->n_seen++;
    for (int i = 0; i < s->n_row; i++) {
        if (b->seen[s->slot[i]] == b->n_seen) return true;
        b->seen[s->slot[i]] = b->n_seen;
    }
    return false;
}

static enum infer_status launch_rows(cuda_backend *b, enum row_class cls, const struct step *s, bool shared) {
    if (cls == ROW_DECODE) return list_of(b, s->n_row, shared, b->stream);
    return b->prompt ? prompt_run(b, b->prompt, s->n_row, s->n_out, b->stream)
                     : cuda_run_list(b, cls, s->n_row, s->n_out, b->stream);
}
// Step f in flight.
static enum infer_status run_rows(cuda_backend *b, enum row_class cls, const struct step *s, unsigned f) {
    const range shown(cls == ROW_DECODE ? "infer decode" : "infer prompt");
    const bool stamped = stamps_due(b->stamps, f, cls);
    const bool shared = cls == ROW_DECODE && b->decode && rows_share(b, s);
    for (int i = 0; cls == ROW_DECODE && i < b->n_bucket; i++) {
        if (b->bucket[i].shared != shared || b->bucket[i].rows < s->n_row) continue;
        if (stamped) stamps_replay(b, f, i);
        CU(cudaGraphLaunch(stamped ? b->bucket[i].stamped : b->bucket[i].exec, b->stream));
        return INFER_OK;
    }
    if (!stamped) return launch_rows(b, cls, s, shared);
    enum infer_status st = stamps_begin(b, f, -1, b->stream);
    if (st == INFER_OK) st = launch_rows(b, cls, s, shared);
    stamps_end(b);
    return st;
}

// The rows of logits that are wanted to the host, one after the other; *n: how many.
static enum infer_status send_logits(cuda_backend *b, enum row_class cls, const struct step *s, int *n,
                                     uint8_t *to) {
    const struct op_list *l = b->c.list[cls];
    const size_t bytes = (size_t)b->c.n_vocab * 4;
    for (int i = 0; i < s->n_out; i++) {
        if (!(s->want[i] & WANT_LOGITS)) continue;
        const rows logits = cuda_rows(b, l, l->op[l->n_op - 1].select.logits);
        CU(cudaMemcpyAsync(to + (size_t)(*n)++ * bytes, logits.p + (size_t)i * logits.stride, bytes,
                           cudaMemcpyDeviceToHost, b->stream));
    }
    return INFER_OK;
}

static enum infer_status run_step(cuda_backend *b, enum row_class cls, const struct step *s) {
    unsigned f = b->n_run % CUDA_FLIGHT;
    if (b->n_run - b->n_wait >= CUDA_FLIGHT) infer_bug("%u steps in flight", b->n_run - b->n_wait);
    TRY(cuda_ranks_there(b));
    CU(cudaSetDevice(b->device));
    const bool fetched = cls == ROW_DECODE && b->decode;
    TRY(send_step(b, s, f, fetched));
    TRY(cuda_adapters_send(b, cls, s, f));
    host_rows_begin(b->host);
    look_step(b, b->warming ? NULL : s);
    TRY(run_rows(b, cls, s, f));
    host_rows_end(b->host, f);
    size_t row;
    b->flight[f].cls = cls;
    b->flight[f].result =
        fetched ? cuda_decode_result(b, b->n_decode % CUDA_FLIGHT, &row) : pinned_result(b, f);
    b->n_decode += cls == ROW_DECODE;
    b->flight[f].n_logits = 0;
    b->flight[f].top = false;
    for (int i = 0; i < s->n_out; i++) b->flight[f].top |= (s->want[i] & WANT_TOP) != 0;
    uint8_t *res = b->flight[f].result;
    if (s->n_out && !fetched)
        CU(cudaMemcpyAsync(res, b->out, (size_t)s->n_out * 4, cudaMemcpyDeviceToHost, b->stream));
    if (b->flight[f].top && !fetched)
        CU(cudaMemcpyAsync(res + b->plan.top_offset, b->out + b->plan.top_offset,
                           (size_t)s->n_out * sizeof(struct infer_top), cudaMemcpyDeviceToHost, b->stream));
    TRY(send_logits(b, cls, s, &b->flight[f].n_logits, res + b->plan.logits_offset));
    TRY(stamps_send(b, f, cls, s));
    CU(cudaEventRecord(b->done[f], b->stream));
    b->n_run++;
    return INFER_OK;
}
static enum infer_status cuda_run(struct backend *base, enum row_class cls, const struct step *s) {
    cuda_backend *b = (cuda_backend *)base;
    return cuda_ranks_leave(b, run_step(b, cls, s));
}

static bool finite_logits(const cuda_backend *b, unsigned f, const float *logits) {
    size_t n = (size_t)b->flight[f].n_logits * (size_t)b->c.n_vocab;
    for (size_t i = 0; i < n; i++)
        if (!(logits[i] - logits[i] == 0)) return false;
    return true;
}

// A value that is not finite goes through the rest of its row into all logits: then no token is found (-1), and no logit is a number.
// Tokens that were not found become 0.
static bool shows_fault(const cuda_backend *b, unsigned f, const float *logits) {
    const uint8_t *blob = b->flight[f].blob;
    const int32_t *want = (const int32_t *)(blob + ((const uint8_t *)b->t.want - (const uint8_t *)b->t.step));
    int32_t *token = (int32_t *)b->flight[f].result;
    bool lost = false;
    for (int i = 0; i < ((const dev_step *)blob)->n_out; i++)
        if (want[i] & WANT_TOKEN && token[i] < 0) token[i] = 0, lost = true;
    for (int i = 0; i < b->flight[f].n_logits; i++) {
        const float first = logits[(size_t)i * (size_t)b->c.n_vocab];
        lost |= first != first;
    }
    return lost && !b->c.any_logits && !b->warming;
}

static enum infer_status cuda_wait(struct backend *base, struct step_result *out) {
    cuda_backend *b = (cuda_backend *)base;
    if (b->n_run == b->n_wait) infer_bug("no step is in flight");
    unsigned f = b->n_wait++ % CUDA_FLIGHT;
    CU(cudaSetDevice(b->device));
    TRY(cuda_ranks_await(b, b->done[f]));
    stamps_tell(b, f);
    const uint8_t *res = b->flight[f].result;
    out->token = (const int32_t *)res;
    out->top = b->flight[f].top ? (const struct infer_top *)(res + b->plan.top_offset) : NULL;
    out->logits = b->flight[f].n_logits ? (const float *)(res + b->plan.logits_offset) : NULL;
    if (__atomic_exchange_n(&b->cancel, 0, __ATOMIC_RELAXED)) return err_set(INFER_E_CANCEL, "cancelled");
    TRY(cuda_ranks_status(b));
    TRY(host_rows_status(b->host, f));
    const bool every = b->c.nan_guard && out->logits && !b->warming;
    if (shows_fault(b, f, out->logits) || (every && !finite_logits(b, f, out->logits)))
        return look_for_fault(b, b->flight[f].cls, b->flight[f].blob);
    return INFER_OK;
}

static enum infer_status cuda_read(struct backend *base, enum row_class cls, struct view v, int n_row,
                                   float *out) {
    cuda_backend *b = (cuda_backend *)base;
    rows r = cuda_rows(b, b->c.list[cls], v);
    CU(cudaSetDevice(b->device));
    CU(cudaStreamSynchronize(b->stream));
    const size_t wide = (size_t)v.width * 4,
                 room = (size_t)b->c.n_input * b->plan.input_row / CUDA_FLIGHT; // no step is under way
    int piece = (n_row + CUDA_FLIGHT - 1) / CUDA_FLIGHT;
    if ((size_t)piece * wide > room) piece = (int)(room / wide);
    if (!piece) {
        CU(cudaMemcpy2D(out, wide, r.p, r.stride * 4, wide, (size_t)n_row, cudaMemcpyDeviceToHost));
        return INFER_OK;
    }
    const int n = (n_row + piece - 1) / piece;
    uint8_t *const pinned = b->pinned + b->plan.pin_input;
    auto place = [&](int i) { return pinned + (size_t)(i % CUDA_FLIGHT * piece) * wide; };
    auto rows_of = [&](int i) { return (size_t)(n_row - i * piece < piece ? n_row - i * piece : piece); };
    auto ask = [&](int i) -> enum infer_status {
        CU(cudaMemcpy2DAsync(place(i), wide, r.p + (size_t)(i * piece) * r.stride, r.stride * 4, wide,
                             rows_of(i), cudaMemcpyDeviceToHost, b->stream));
        CU(cudaEventRecord(b->done[i % CUDA_FLIGHT], b->stream));
        return INFER_OK;
    };
    for (int i = 0; i < n && i < CUDA_FLIGHT; i++) TRY(ask(i));
    for (int i = 0; i < n; i++) { // one comes while the one before is copied
        CU(cudaEventSynchronize(b->done[i % CUDA_FLIGHT]));
        host_copy((uint8_t *)out + (size_t)(i * piece) * wide, place(i), rows_of(i) * wide);
        if (i + CUDA_FLIGHT < n) TRY(ask(i + CUDA_FLIGHT));
    }
    return INFER_OK;
}

// ---- pages
static enum infer_status move_page(cuda_backend *b, int store, int page, float *k, float *v, bool write) {
    const struct kv_store *s = &b->c.store[store];
    const size_t rows = (size_t)s->n_kv_head * (size_t)kv_page_rows(s);
    size_t nk = rows * (size_t)s->head_dim_k * 4, nv = rows * (size_t)kv_v_dim(s) * 4;
    if (nk + nv > b->plan.stage_bytes)
        return err_set(INFER_E_UNSUPPORTED, "cuda: a page of %zu bytes is too large", nk + nv);
    uint8_t *dk = b->work + b->plan.stage, *dv = dk + nk;
    enum cudaMemcpyKind kind = write ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    CU(cudaSetDevice(b->device));
    CU(cudaStreamSynchronize(b->stream));
    if (write) {
        CU(cudaMemcpy(dk, k, nk, kind));
        CU(cudaMemcpy(dv, v, nv, kind));
    }
    const dev_kv kv = cuda_store(b, store);
    const int turn_k = kv_turn_of(s, false), turn_v = kv_turn_of(s, true);
    float *to_k = (float *)dk, *to_v = (float *)dv;
    if (kv_every(s) > 1)
        CU(kv_runs_page_run(kv_runs_job{kv, s->every, turn_k, turn_v}, page, to_k, to_v, write, b->stream));
    else if (kv_turned(kv.type))
        CU(kv_low_page_run(kv, turn_k, turn_v, page, to_k, to_v, write, b->stream));
    else
        CU(kv_page_run(kv, page, to_k, to_v, write, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    if (!write) {
        CU(cudaMemcpy(k, dk, nk, kind));
        CU(cudaMemcpy(v, dv, nv, kind));
    }
    return INFER_OK;
}
static enum infer_status cuda_kv_read(struct backend *base, int store, int page, float *k, float *v) {
    return move_page((cuda_backend *)base, store, page, k, v, false);
}
static enum infer_status cuda_kv_write(struct backend *base, int store, int page, const float *k,
                                       const float *v) {
    return move_page((cuda_backend *)base, store, page, (float *)k, (float *)v, true);
}
static enum infer_status cuda_kv_page(struct backend *base, int store, int page, void *bytes, bool write) {
    cuda_backend *b = (cuda_backend *)base;
    const struct kv_store *s = &b->c.store[store];
    dev_kv kv = cuda_store(b, store);
    size_t rows = (size_t)s->n_kv_head * (size_t)kv_page_rows(s);
    size_t bk = rows * kv_row_bytes(b->c.kv_type, s->head_dim_k),
           bv = rows * kv_row_bytes(b->c.kv_type, kv_v_dim(s));
    uint8_t *k = kv.k + (size_t)page * bk, *v = kv.v + (size_t)page * bv, *other = (uint8_t *)bytes;
    enum cudaMemcpyKind kind = write ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    CU(cudaSetDevice(b->device));
    CU(cudaMemcpyAsync(write ? k : other, write ? other : k, bk, kind, b->stream));
    CU(cudaMemcpyAsync(write ? v : other + bk, write ? other + bk : v, bv, kind, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
static enum infer_status cuda_kv_copy(struct backend *base, int group, int from, int to) {
    cuda_backend *b = (cuda_backend *)base;
    CU(cudaSetDevice(b->device));
    for (int i = 0; i < b->c.n_store; i++) {
        const struct kv_store *s = &b->c.store[i];
        if (s->group != group || !config_uses_store(&b->c, i)) continue;
        dev_kv kv = cuda_store(b, i);
        size_t rows = (size_t)s->n_kv_head * (size_t)kv_page_rows(s);
        size_t bk = rows * kv_row_bytes(b->c.kv_type, s->head_dim_k),
               bv = rows * kv_row_bytes(b->c.kv_type, kv_v_dim(s));
        CU(cudaMemcpyAsync(kv.k + (size_t)to * bk, kv.k + (size_t)from * bk, bk, cudaMemcpyDeviceToDevice,
                           b->stream));
        CU(cudaMemcpyAsync(kv.v + (size_t)to * bv, kv.v + (size_t)from * bv, bv, cudaMemcpyDeviceToDevice,
                           b->stream));
    }
    return INFER_OK;
}

static enum infer_status cuda_state_read(struct backend *base, int store, int slot, float *out) {
    cuda_backend *b = (cuda_backend *)base;
    CU(cudaSetDevice(b->device));
    CU(cudaMemcpyAsync(out, cuda_state(b, store, slot), (size_t)b->c.state[store].n_elem * sizeof *out,
                       cudaMemcpyDeviceToHost, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
static enum infer_status cuda_state_write(struct backend *base, int store, int slot, const float *x) {
    cuda_backend *b = (cuda_backend *)base;
    CU(cudaSetDevice(b->device));
    CU(cudaMemcpyAsync(cuda_state(b, store, slot), x, (size_t)b->c.state[store].n_elem * sizeof *x,
                       cudaMemcpyHostToDevice, b->stream));
    CU(cudaStreamSynchronize(b->stream));
    return INFER_OK;
}
static enum infer_status cuda_state_copy(struct backend *base, int from, int to) {
    cuda_backend *b = (cuda_backend *)base;
    CU(cudaSetDevice(b->device));
    state_copy_job j = {};
    j.from = from, j.to = to;
    for (int i = 0; i < b->c.n_state; i++) {
        if (!config_uses_state(&b->c, i)) continue;
        j.store[j.n].slot0 = cuda_state(b, i, 0);
        j.store[j.n++].n_elem = (size_t)b->c.state[i].n_elem;
        if (j.n < STATE_COPY_STORES) continue;
        CU(state_copy_run(j, b->stream));
        j.n = 0;
    }
    CU(state_copy_run(j, b->stream));
    return INFER_OK;
}

static void cuda_cancel(struct backend *base) {
    __atomic_store_n(&((cuda_backend *)base)->cancel, 1, __ATOMIC_RELAXED);
}
static void cuda_info(const struct backend *base, struct backend_info *out) {
    const cuda_backend *b = (const cuda_backend *)base;
    *out = {
        b->text, b->kernels, true, 0, b->arena_bytes, cuda_driver_bytes(b->device), prompt_grid(b->prompt)};
}

extern "C" const struct backend_type backend_cuda = {
    "cuda",
    cuda_probe,
    cuda_memory,
    cuda_sizes,
    cuda_open,
    cuda_upload,
    cuda_compile,
    cuda_run,
    NULL,
    cuda_wait,
    NULL,
    cuda_read,
    cuda_kv_read,
    cuda_kv_write,
    cuda_kv_page,
    cuda_kv_copy,
    cuda_state_read,
    cuda_state_write,
    cuda_state_copy,
    cuda_cancel,
    cuda_info,
    cuda_close,
};
