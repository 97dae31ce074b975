#include "cuda/run/stamps.h"
#include "base/mem.h"
#include "cuda/common/launch.h"
#include "cuda/common/util.cuh"
#include "seam/op_list.h"
#include "seam/profile.h"
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define RANGE_BEGIN(name) (void)nvtxRangePushA(name)
#define RANGE_END()       (void)nvtxRangePop()
#else
#define RANGE_BEGIN(name) (void)(name)
#define RANGE_END()       (void)0
#endif

// What a stamp takes, at most, and what of the time all stamps together may.
static const double STAMP_NS = 1500, STAMPS_SHARE = 0.01;
enum { EVERY_MOST = 1000 };

// The links behind which stamps[1 ..] were left; stamp 0: before the first.
struct stamp_map {
    struct profile_link *link; // link[list.n_op]
    int n;
};
struct stamped_step {
    const stamp_map *map; // NULL: this one is not timed
    enum row_class cls;
    int n_row;
    int64_t queued;
};
struct stamps {
    struct infer_profile *profile;
    unsigned long long *at, *host; // at[most]; host[CUDA_FLIGHT][most], pinned
    struct profile_link *links;    // of all maps
    stamp_map of_graph[CUDA_BUCKET_MAX], of_flight[CUDA_FLIGHT];
    stamp_map *now; // of the launches that leave stamps; NULL: none do
    stamped_step step[CUDA_FLIGHT];
    int most; // stamps of a step
    int every[ROW_CLASS_COUNT], left[ROW_CLASS_COUNT];
    bool known;
    int64_t ahead; // of CLOCK_MONOTONIC: beside the card's clock
};

range::range(const char *name) { RANGE_BEGIN(name); }
range::~range() { RANGE_END(); }

__global__ void stamp_kernel(unsigned long long *at) {
    pdl_trigger();
    pdl_wait();
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    *at = t;
}

// ---- open
static enum infer_status take(struct stamps *s) {
    const size_t maps = CUDA_BUCKET_MAX + CUDA_FLIGHT, n = (size_t)s->most;
    TRY(mem_new(&s->links, maps * n * sizeof *s->links, "times of links"));
    for (size_t i = 0; i < maps; i++)
        (i < CUDA_BUCKET_MAX ? s->of_graph[i] : s->of_flight[i - CUDA_BUCKET_MAX]).link = s->links + i * n;
    CU(cudaMalloc((void **)&s->at, n * sizeof *s->at));
    CU(cudaMallocHost((void **)&s->host, CUDA_FLIGHT * n * sizeof *s->host));
    return INFER_OK;
}
enum infer_status stamps_open(struct stamps **out, const cuda_backend *b) {
    *out = NULL;
    if (!b->c.profile) return INFER_OK;
    TRY(mem_new(out, sizeof **out, "times of links"));
    struct stamps *s = *out;
    s->profile = b->c.profile;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++) {
        s->every[cls] = 1;
        if (b->c.list[cls]->n_op + 1 > s->most) s->most = b->c.list[cls]->n_op + 1;
    }
    return take(s);
}
void stamps_close(struct stamps *s) {
    if (!s) return;
    if (s->at) cudaFree(s->at);
    if (s->host) cudaFreeHost(s->host);
    mem_free(s->links);
    mem_free(s);
}

// ---- a step
bool stamps_due(struct stamps *s, unsigned f, enum row_class cls) {
    if (!s) return false;
    s->step[f].map = NULL;
    s->step[f].queued = profile_now();
    if (s->left[cls]-- > 0) return false;
    s->left[cls] = s->every[cls] - 1;
    return true;
}
static enum infer_status put(const struct stamps *s, bool overlap, cudaStream_t stream) {
    CU(launch_overlapped(stamp_kernel, 1, 1, 0, overlap, stream, s->at + s->now->n));
    return INFER_OK;
}
enum infer_status stamps_begin(const cuda_backend *b, unsigned f, int graph, cudaStream_t stream) {
    struct stamps *s = b->stamps;
    s->now = graph < 0 ? &s->of_flight[f] : &s->of_graph[graph];
    s->now->n = 0;
    if (graph < 0) s->step[f].map = s->now;
    return put(s, false, stream);
}
void stamps_end(const cuda_backend *b) { b->stamps->now = NULL; }
void stamps_replay(const cuda_backend *b, unsigned f, int graph) {
    b->stamps->step[f].map = &b->stamps->of_graph[graph];
}
static enum infer_status put_link(const cuda_backend *b, const struct profile_link &k, bool overlap,
                                  cudaStream_t stream) {
    struct stamps *s = b->stamps;
    if (!s || !s->now) return INFER_OK;
    s->now->link[s->now->n++] = k;
    return put(s, overlap && b->prop.major >= 9, stream);
}
enum infer_status stamps_link(const cuda_backend *b, const program_link *d, bool overlap,
                              cudaStream_t stream) {
    static const char *const kinds[] = {
#define LINK(id, name, file) #name,
#include "cuda/plan/links.def"
    };
    return put_link(b, profile_link{d->is.first, d->is.n_op, d->name, kinds[d->is.kind]}, overlap, stream);
}
enum infer_status stamps_ops(const cuda_backend *b, const struct op_list *l, int first, int n_op,
                             op_queue q) {
    const struct op *o = &l->op[first];
    return put_link(b, profile_link{first, n_op, o->name, op_kind_name(o->kind)}, q.overlap, q.stream);
}

enum infer_status stamps_send(const cuda_backend *b, unsigned f, enum row_class cls,
                              const struct step *step) {
    struct stamps *s = b->stamps;
    if (!s || !s->step[f].map) return INFER_OK;
    stamped_step *t = &s->step[f];
    t->cls = cls;
    t->n_row = step->n_row;
    CU(cudaMemcpyAsync(s->host + (size_t)f * s->most, s->at, (size_t)(t->map->n + 1) * sizeof *s->at,
                       cudaMemcpyDeviceToHost, b->stream));
    for (int i = 0; i < t->map->n; i++) profile_link_work(s->profile, b->c.list[cls], &t->map->link[i], step);
    return INFER_OK;
}

// The card's clock runs beside the host's: a step began behind its launch and ended before now.
static void set_clock(struct stamps *s, int64_t queued, int64_t first, int64_t last) {
    const int64_t least = queued - first, most = profile_now() - last;
    if (!s->known || s->ahead > most) s->ahead = most;
    if (s->ahead < least) s->ahead = least;
    s->known = true;
}
void stamps_tell(const cuda_backend *b, unsigned f) {
    struct stamps *s = b->stamps;
    if (!s || !s->step[f].map) return;
    const stamped_step t = s->step[f];
    const unsigned long long *at = s->host + (size_t)f * s->most;
    const int64_t first = (int64_t)at[0], last = (int64_t)at[t.map->n];
    s->step[f].map = NULL;
    set_clock(s, t.queued, first, last);
    for (int i = 0; i < t.map->n; i++)
        profile_link_time(s->profile, b->c.list[t.cls], &t.map->link[i], t.n_row, (int64_t)at[i] + s->ahead,
                          (int64_t)at[i + 1] + s->ahead);
    const double every =
        STAMP_NS * (t.map->n + 1) / (STAMPS_SHARE * (double)(last > first ? last - first : 1));
    s->every[t.cls] = every < 1 ? 1 : every > EVERY_MOST ? EVERY_MOST : (int)every + 1;
    s->left[t.cls] = s->every[t.cls] - 1;
}
