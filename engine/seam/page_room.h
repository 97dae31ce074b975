/* Memory that pages are sent to a device from while the host reads the next ones into the rest of it: areas, each for a page of all stores
 * of a group, one behind the other as by kv_page. A card copies from pinned memory by itself; other backends copy at once. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

struct page_room_type;
struct page_room {
    const struct page_room_type *type;
    const struct backend_config *config; /* of all that the backend keeps */
    struct backend *backend;
    unsigned char *bytes; /* bytes[n_area][area_bytes] */
    size_t area_bytes;
    int n_area;
};
struct page_room_type {
    /* Queues area i's bytes into a page of a group, behind the steps that are queued. errors: INFER_E_DEVICE */
    enum infer_status (*send)(struct page_room *r, int group, int page, int i);
    /* Waits until what was sent from area i last is there. */
    enum infer_status (*sent)(struct page_room *r, int i);
    void (*close)(struct page_room *r);
};

/* The backend stays open until the room is closed. errors: INFER_E_MEMORY, INFER_E_DEVICE */
enum infer_status page_room_open(struct page_room **out, struct backend *b, const struct backend_config *c,
                                 size_t area_bytes, int n_area);
static inline enum infer_status page_room_send(struct page_room *r, int group, int page, int i) {
    return r->type->send(r, group, page, i);
}
static inline enum infer_status page_room_sent(struct page_room *r, int i) { return r->type->sent(r, i); }
static inline void page_room_close(struct page_room *r) {
    if (r) r->type->close(r);
}

enum infer_status cuda_page_room_open(struct page_room **out, struct backend *b, size_t area_bytes,
                                      int n_area); /* where there is backend_cuda */

#ifdef __cplusplus
}
#endif
