// Pages that are sent to the card from pinned memory while the host reads the next ones (seam/page_room.h).
#include "cuda/run/cuda_impl.h"
#include "base/mem.h"
#include "seam/op_list.h"
#include "seam/page_room.h"

enum { ROOM_AREAS = 64 };
struct cuda_room {
    struct page_room base;
    int n_event;
    cudaEvent_t sent[ROOM_AREAS];
};
static cuda_backend *card_of(const struct page_room *r) { return (cuda_backend *)r->backend; }

// Pieces of equal size at places equally far from each other, as stores of one shape lie: one copy, which the card's copy engine makes at
// the link's rate. Alone a piece of 128 KiB takes longer to begin than to copy.
struct pieces {
    uint8_t *to, *last;
    const uint8_t *from;
    size_t each, apart;
    int n;
};
static enum infer_status send_pieces(cuda_backend *b, pieces *p) {
    if (p->n == 1)
        CU(cudaMemcpyAsync(p->to, p->from, p->each, cudaMemcpyHostToDevice, b->stream));
    else if (p->n)
        CU(cudaMemcpy2DAsync(p->to, p->apart, p->from, p->each, p->each, (size_t)p->n, cudaMemcpyHostToDevice,
                             b->stream));
    p->n = 0;
    return INFER_OK;
}
static enum infer_status add_piece(cuda_backend *b, pieces *p, uint8_t *to, const uint8_t *from,
                                   size_t bytes) {
    const size_t apart = p->n && to > p->last ? (size_t)(to - p->last) : 0;
    if (!bytes) return INFER_OK;
    if (p->n && (bytes != p->each || apart < bytes || apart > (size_t)b->prop.memPitch ||
                 (p->n > 1 && apart != p->apart)))
        TRY(send_pieces(b, p));
    if (!p->n) *p = pieces{to, to, from, bytes, 0, 0};
    if (p->n++) p->apart = apart;
    p->last = to;
    return INFER_OK;
}

static enum infer_status send_page(struct page_room *r, int group, int page, int i) {
    cuda_backend *b = card_of(r);
    const uint8_t *from = r->bytes + (size_t)i * r->area_bytes;
    pieces p = {};
    CU(cudaSetDevice(b->device));
    for (int s = 0; s < b->c.n_store; s++) {
        const struct kv_store *st = &b->c.store[s];
        if (st->group != group || !config_uses_store(&b->c, s)) continue;
        const dev_kv kv = cuda_store(b, s);
        const size_t rows = (size_t)st->n_kv_head * (size_t)kv_page_rows(st),
                     bk = rows * kv_row_bytes(b->c.kv_type, st->head_dim_k),
                     bv = rows * kv_row_bytes(b->c.kv_type, kv_v_dim(st));
        TRY(add_piece(b, &p, kv.k + (size_t)page * bk, from, bk));
        TRY(add_piece(b, &p, kv.v + (size_t)page * bv, from + bk, bv));
        from += bk + bv;
    }
    TRY(send_pieces(b, &p));
    CU(cudaEventRecord(((cuda_room *)r)->sent[i], b->stream));
    return INFER_OK;
}

static enum infer_status sent_page(struct page_room *r, int i) {
    CU(cudaEventSynchronize(((cuda_room *)r)->sent[i]));
    return INFER_OK;
}

static void close_room(struct page_room *r) {
    cuda_room *own = (cuda_room *)r;
    cudaSetDevice(card_of(r)->device);
    cudaStreamSynchronize(card_of(r)->stream);
    for (int i = 0; i < own->n_event; i++) cudaEventDestroy(own->sent[i]);
    if (r->bytes) cudaFreeHost(r->bytes);
    mem_free(own);
}

static enum infer_status fill_room(cuda_room *r) {
    CU(cudaSetDevice(card_of(&r->base)->device));
    CU(cudaMallocHost((void **)&r->base.bytes, r->base.area_bytes * (size_t)r->base.n_area));
    for (; r->n_event < r->base.n_area; r->n_event++)
        CU(cudaEventCreateWithFlags(&r->sent[r->n_event], cudaEventDisableTiming));
    return INFER_OK;
}

extern "C" enum infer_status cuda_page_room_open(struct page_room **out, struct backend *b, size_t area_bytes,
                                                 int n_area) {
    static const struct page_room_type card = {send_page, sent_page, close_room};
    cuda_room *r;
    *out = NULL;
    if (n_area > ROOM_AREAS) return err_set(INFER_E_INPUT, "cuda: %d areas, at most %d", n_area, ROOM_AREAS);
    TRY(mem_new(&r, sizeof *r, "memory for pages"));
    *r = cuda_room{};
    r->base = {&card, &((cuda_backend *)b)->c, b, NULL, area_bytes, n_area};
    enum infer_status st = fill_room(r);
    if (st)
        close_room(&r->base);
    else
        *out = &r->base;
    return st;
}
