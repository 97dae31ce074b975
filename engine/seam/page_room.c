#include "seam/page_room.h"

#include "base/mem.h"

static enum infer_status send_now(struct page_room *r, int group, int page, int i) {
    unsigned char *bytes = r->bytes + (size_t)i * r->area_bytes;
    for (int s = 0; s < r->config->n_store; s++) {
        if (r->config->store[s].group != group) continue;
        TRY(r->backend->type->kv_page(r->backend, s, page, bytes, true));
        bytes += kv_page_bytes(&r->config->store[s]);
    }
    return INFER_OK;
}
static enum infer_status sent_already(struct page_room *r, int i) {
    (void)r, (void)i;
    return INFER_OK;
}
static void close_host(struct page_room *r) {
    mem_free(r->bytes);
    mem_free(r);
}

enum infer_status page_room_open(struct page_room **out, struct backend *b, const struct backend_config *c,
                                 size_t area_bytes, int n_area) {
    static const struct page_room_type host = {send_now, sent_already, close_host};
    struct page_room *r;
    *out = NULL;
#ifdef INFER_CUDA
    if (b->type == &backend_cuda) return cuda_page_room_open(out, b, area_bytes, n_area);
#endif
    TRY(mem_new(&r, sizeof *r, "memory for pages"));
    *r = (struct page_room){&host, c, b, NULL, area_bytes, n_area};
    enum infer_status st = mem_new(&r->bytes, area_bytes * (size_t)n_area + 1, "memory for pages");
    if (st)
        close_host(r);
    else
        *out = r;
    return st;
}
