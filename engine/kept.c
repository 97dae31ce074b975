/* Pages and states in the files of .kv_store (disk.h): out of the backend into them between steps, and back for a sequence that begins
 * alike, in this process or another one. */
#include "engine_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/host.h"
#include "cache/disk.h"
#include "cache/read_ahead.h"
#include "cache/snapshot.h"
#include "seam/page_room.h"

static const uint64_t MOST = (uint64_t)16 << 30;
static const double LAST_SECONDS = 5; /* for what was not written when the engine is closed, each time */
enum { READERS = 16, SENT = 4 };      /* threads; areas more, whose bytes are on their way to a device */
static const size_t ROOM = (size_t)160 << 20; /* bytes of all areas, where two fit */

struct kept {
    struct disk *disk;
    const char *folder;
    size_t page_bytes[KV_GROUPS], state_bytes;
    void *bytes; /* of all states */
    struct read_ahead *reader;
    struct page_room *room; /* the reader's */
    size_t area_bytes;
    /* What was loaded lately took so long: without waiting for others between two calls. */
    double seconds, load_bytes;
    /* One sequence at a time takes over pages .. end - 1: those before `at` are there, of each group from[] on; files are asked for up to
     * group next_group of page next. */
    struct {
        int seq, at, end, from[KV_GROUPS]; /* seq -1: none does */
        int next, next_group;
        struct prefix_key *key; /* key[max_pages], kind[max_pages] */
        uint8_t *kind;
    } load;
};

/* ---- opening --------------------------------------------------------------------------------------------------------- */

/* All that the bits of a page hang on, in words. */
static struct disk_identity identity_of(struct infer_engine *e, const struct infer_engine_options *o) {
    const struct plan_part *part = last_part(e);
    const struct prefix_secret none = {0};
    struct backend_info info;
    char text[1024] = {0}, types[KV_TYPES_NAME];
    int32_t words[sizeof text / 4];
    e->backend->type->info(e->backend, &info);
    if (!e->fingerprint) e->fingerprint = snapshot_fingerprint(e->model->m->file);
    snprintf(text, sizeof text,
             "%s|%016llx|%d %d %d|%s|%s|%s|%s|long %d|ranks %d %d|stages %d|layers %d of %d|host %d|grid %d|"
             "%d %d %d %s %s %d",
             infer_version(), (unsigned long long)e->fingerprint, KV_PAGE, KV_TILE, e->model->m->n_layer,
             part->type->name, info.device_name ? info.device_name : "", info.isa ? info.isa : "",
             kv_types_name(types, e->whole.store, e->whole.n_store),
             e->model->m->n_ctx_short && e->plan.set.n_ctx > e->model->m->n_ctx_short, e->n_rank, o->ep,
             e->plan.set.n_stage, part->range.first, part->range.end, part->range.n_remote, e->grid,
             o->no_fuse, o->strict_fp32, o->blas, o->block_scaled ? o->block_scaled : "",
             o->kernels ? o->kernels : "", o->sm_emulate);
    memcpy(words, text, sizeof words);
    struct prefix_key key = prefix_extend(&none, (struct prefix_key){0}, words,
                                          (int)(sizeof words / sizeof *words), PREFIX_PROMPT);
    const struct tensorfile *f = e->model->m->file;
    for (int i = 0; i < f->n_part; i++) {
        struct stat
            st; /* the fingerprint reads a part of the weights: a file that was changed is another one */
        int64_t of[3] = {(int64_t)f->part[i].size};
        if (stat(f->part[i].path, &st) == 0) of[1] = st.st_mtim.tv_sec, of[2] = st.st_mtim.tv_nsec;
        memcpy(words, of, sizeof of);
        key = prefix_extend(&none, key, words, (int)sizeof of / (int)sizeof *words, PREFIX_PROMPT);
    }
    return (struct disk_identity){key.a, key.b};
}

static enum infer_status take_memory(struct infer_engine *e, struct kept *k) {
    const struct backend_config *c = &e->whole;
    for (int i = 0; i < c->n_store; i++) k->page_bytes[c->store[i].group] += kv_page_bytes(&c->store[i]);
    for (int i = 0; i < c->n_state; i++) k->state_bytes += (size_t)c->state[i].n_elem * sizeof(float);
    for (int g = 0; g < e->kv.n_group; g++)
        if (k->page_bytes[g] > k->area_bytes) k->area_bytes = k->page_bytes[g];
    k->bytes = arena_alloc(&e->arena, k->state_bytes + 1);
    k->load.key = arena_alloc(&e->arena, (size_t)e->kv.max_pages * sizeof *k->load.key);
    k->load.kind = arena_alloc(&e->arena, (size_t)e->kv.max_pages);
    if (k->bytes && k->load.key && k->load.kind) return INFER_OK;
    return err_set(INFER_E_MEMORY, "out of memory for pages from files");
}

static enum infer_status open_reader(struct infer_engine *e, struct kept *k) {
    const int cores = host_threads_pick(0), threads = cores > READERS ? READERS : cores > 1 ? cores - 1 : 1;
    const size_t fit = k->area_bytes ? ROOM / k->area_bytes : 2;
    const int n = threads + SENT < (int)fit ? threads + SENT : fit > 2 ? (int)fit : 2;
    TRY(page_room_open(&k->room, e->backend, &e->whole, k->area_bytes, n));
    return read_ahead_open(&k->reader, k->disk, k->room->bytes, k->area_bytes, n, threads);
}

enum infer_status engine_kept_open(struct infer_engine *e, const struct infer_engine_options *o) {
    struct kept *k;
    if (!o || !o->kv_store) return INFER_OK;
    if (!*o->kv_store) return err_set(INFER_E_INPUT, ".kv_store is empty, must be a folder");
    if (e->rows)
        return err_set(INFER_E_UNSUPPORTED, ".kv_store: what a model that drafts computes is not kept");
    if (!(k = arena_alloc(&e->arena, sizeof *k)) ||
        !(k->folder = arena_strndup(&e->arena, o->kv_store, strlen(o->kv_store))))
        return err_set(INFER_E_MEMORY, "out of memory for pages from files");
    k->load.seq = -1;
    TRY(take_memory(e, k));
    TRY(disk_open(&k->disk, o->kv_store, o->kv_store_max ? o->kv_store_max : MOST, identity_of(e, o)));
    e->kept = k;
    TRY(open_reader(e, k));
    return kv_keep_pages(&e->kv, &e->arena, disk_secret(k->disk));
}

void engine_kept_close(struct infer_engine *e) {
    if (!e->kept) return;
    const double until = host_seconds() + LAST_SECONDS;
    while (e->n_submit == e->n_wait && host_seconds() < until && infer_keep(e, LAST_SECONDS))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    read_ahead_close(e->kept->reader);
    page_room_close(e->kept->room);
    disk_close(e->kept->disk, LAST_SECONDS);
    e->kept = NULL;
}

void infer_kept_info(const struct infer_engine *e, struct infer_kept_info *out) {
    struct disk_figures f;
    *out = (struct infer_kept_info){0};
    if (!e->kept) return;
    disk_figures(e->kept->disk, &f);
    *out = (struct infer_kept_info){e->kept->folder, f.bytes,     f.most,   f.n_read,
                                    f.n_written,     f.n_damaged, f.n_gone, f.n_failed};
}

/* ---- into files ------------------------------------------------------------------------------------------------------ */

/* The bytes of a page in all stores of its group. */
static enum infer_status read_page(struct infer_engine *e, int group, int page, unsigned char *bytes) {
    const struct backend_config *c = &e->whole;
    for (int i = 0; i < c->n_store; i++) {
        if (c->store[i].group != group) continue;
        TRY(e->backend->type->kv_page(e->backend, i, page, bytes, false));
        bytes += kv_page_bytes(&c->store[i]);
    }
    return INFER_OK;
}

/* Of a state, slot; of a page (slot -1), group and page. */
static enum infer_status keep(struct infer_engine *e, const struct disk_item *item, size_t n, int slot,
                              int group, int page) {
    struct disk *d = e->kept->disk;
    if (disk_has(d, item->key, item->part)) return INFER_OK;
    struct disk_write *w = disk_begin(d, item, n);
    if (!w) return INFER_OK;
    enum infer_status st =
        slot < 0 ? read_page(e, group, page, disk_bytes(w)) : engine_read_state(e, slot, disk_bytes(w));
    if (st)
        disk_drop(d, w);
    else
        disk_put(d, w);
    return st;
}

bool infer_keep(struct infer_engine *e, double seconds) {
    struct kept *k = e->kept;
    const double until = host_seconds() + seconds;
    if (!k || e->poisoned || e->n_submit != e->n_wait) return false;
    const size_t most =
        (k->state_bytes > k->area_bytes ? k->state_bytes : k->area_bytes) + KV_PAGE * sizeof(int32_t);
    do {
        struct disk_item item = {.part = DISK_ALL_STATES};
        const enum disk_state state = disk_state(k->disk, most); /* what is taken off the list must fit */
        if (state != DISK_READY) return state == DISK_BUSY;
        enum infer_status st;
        int group = 0, page = 0;
        const int slot = kv_unkept_state(&e->kv, &item.key);
        if (slot < 0) {
            if (!kv_unkept(&e->kv, &group, &page)) return false;
            const struct kv_pool *pool = &e->kv.pool[group];
            item = (struct disk_item){pool->page[page].key, pool->origin[page].before, group,
                                      pool->origin[page].ids, KV_PAGE};
        }
        st = keep(e, &item, slot < 0 ? k->page_bytes[group] : k->state_bytes, slot, group, page);
        if (st) engine_poison(e, st);
        if (st) return false;
    } while (host_seconds() < until);
    return true;
}

/* ---- out of files ---------------------------------------------------------------------------------------------------- */

static bool has(void *user, struct prefix_key key, int part) {
    const struct infer_engine *e = user;
    return disk_has(e->kept->disk, key, part == KV_STATE ? DISK_ALL_STATES : part);
}

void engine_kept_used(struct infer_engine *e, int seq) {
    const struct kv_seq *s = &e->kv.seq[seq];
    if (!s->alone) disk_use(e->kept->disk, s->key, s->n_key, e->kv.n_group);
}

void engine_kept_forget(struct infer_engine *e, int seq) {
    const struct kv_seq *s = &e->kv.seq[seq];
    for (int i = 0; i < s->n_key; i++) {
        for (int g = 0; g < e->kv.n_group; g++) disk_remove(e->kept->disk, s->key[i], g);
        disk_remove(e->kept->disk, s->key[i], DISK_ALL_STATES);
    }
}

/* What was begun in files is read to its end, by others. */
static void stop_load(struct kept *k) {
    while (read_ahead_n(k->reader)) (void)read_ahead_take(k->reader);
    k->load.seq = -1;
}

void engine_kept_leave(struct infer_engine *e, int seq) {
    if (e->kept && e->kept->load.seq == seq) stop_load(e->kept);
}

/* Whether to load n bytes takes less time than to compute so many tokens, by what both took lately. Each time that it does not the files are
 * thought a little faster, so that they are tried again. */
static bool pays(struct infer_engine *e, size_t n, int tokens) {
    struct kept *k = e->kept;
    if (k->load_bytes <= 0 || e->prompt_rows <= 0) return true;
    const bool pays = (double)n * k->seconds / k->load_bytes < tokens * e->prompt_seconds / e->prompt_rows;
    if (!pays) k->seconds *= 0.95;
    return pays;
}

/* false: there is nothing more for the sequence, or no room for it, or it is computed sooner. */
static bool begin(struct infer_engine *e, int seq, const int32_t *ids, int n, bool exact, int limit) {
    struct kept *k = e->kept;
    const int here = e->kv.seq[seq].length / KV_PAGE,
              end = kv_kept_probe(&e->kv, seq, ids, n, exact, limit, has, e);
    if (e->kv.seq[seq].length % KV_PAGE || end <= here) return false;
    size_t bytes = k->state_bytes;
    for (int g = 0; g < e->kv.n_group; g++) {
        const int first = kv_first_page(&e->kv, g, end * KV_PAGE);
        bytes += (size_t)(end - (first > here ? first : here)) * k->page_bytes[g];
    }
    if (!pays(e, bytes, (end - here) * KV_PAGE)) return false;
    memcpy(k->load.key, e->kv.match.key, (size_t)end * sizeof *k->load.key);
    memcpy(k->load.kind, e->kv.match.kind, (size_t)end);
    if (kv_kept_begin(&e->kv, seq, end, k->load.from)) return false;
    k->load.seq = seq;
    k->load.end = k->load.at = end;
    for (int g = 0; g < e->kv.n_group; g++)
        if (k->load.from[g] < k->load.at) k->load.at = k->load.from[g];
    k->load.next = k->load.at;
    k->load.next_group = 0;
    return true;
}

/* Asks for the files that come next, as far as there are areas that are not on their way to the device. errors: INFER_E_DEVICE */
static enum infer_status read_on(struct infer_engine *e, const int32_t *ids) {
    struct kept *k = e->kept;
    const int most = k->room->n_area - 1 - k->room->n_area / (SENT + 1);
    while (read_ahead_n(k->reader) < most && k->load.next < k->load.end) {
        const int i = k->load.next, g = k->load.next_group;
        if (i >= k->load.from[g]) {
            const struct disk_item item = {k->load.key[i],
                                           i ? k->load.key[i - 1] : e->kv.seq[k->load.seq].root, g,
                                           ids + i * KV_PAGE, KV_PAGE};
            TRY(page_room_sent(k->room, read_ahead_next(k->reader)));
            read_ahead_begin(k->reader, &item, k->page_bytes[g]);
        }
        k->load.next_group = (g + 1) % e->kv.n_group;
        k->load.next += !k->load.next_group;
    }
    return INFER_OK;
}

/* One page of each group; *there false: a file was none. errors: INFER_E_DEVICE */
static enum infer_status load_page(struct infer_engine *e, const int32_t *ids, bool *there) {
    struct kept *k = e->kept;
    const int i = k->load.at, seq = k->load.seq;
    for (int g = 0; g < e->kv.n_group; g++) {
        const int page = e->kv.tables[g][(size_t)seq * (size_t)e->kv.max_pages + (size_t)i];
        if (i < k->load.from[g]) continue;
        TRY(read_on(e, ids));
        const int area = read_ahead_first(k->reader);
        if (!(*there = read_ahead_take(k->reader))) return INFER_OK;
        TRY(page_room_send(k->room, g, page, area));
        k->load_bytes += (double)k->page_bytes[g];
    }
    return INFER_OK;
}

static enum infer_status load_state(struct infer_engine *e, bool *there) {
    struct kept *k = e->kept;
    const struct backend_config *c = &e->whole;
    const struct disk_item item = {.key = k->load.key[k->load.end - 1], .part = DISK_ALL_STATES};
    const int slot = state_find(&e->kv.state, item.key), seq = k->load.seq;
    if (!e->kv.state.n_keep) return INFER_OK;
    if (slot >= 0) {
        state_use(&e->kv.state, slot);
        return engine_copy_state(e, slot, seq);
    }
    if (!(*there = disk_get(k->disk, &item, k->bytes, k->state_bytes))) return INFER_OK;
    const float *x = k->bytes;
    for (int i = 0; i < c->n_state; x += c->state[i++].n_elem)
        TRY(e->backend->type->state_write(e->backend, i, seq, x));
    return INFER_OK;
}

/* All is there: the sequence has it, and a copy of the state is known. errors: INFER_E_DEVICE */
static enum infer_status end_load(struct infer_engine *e, const int32_t *ids) {
    struct kept *k = e->kept;
    const int seq = k->load.seq;
    kv_kept_end(&e->kv, seq, ids, k->load.end, k->load.kind);
    k->load.seq = -1;
    e->last[seq] = -1;
    engine_kept_used(e, seq);
    const int to = kv_keep_state(&e->kv, seq, true);
    return to < 0 ? INFER_OK : engine_copy_state(e, seq, to);
}

/* Without what was begun: the sequence as infer_seq_prefix left it. errors: INFER_E_DEVICE */
static enum infer_status take_back(struct infer_engine *e, const int32_t *ids, int n,
                                   const struct kv_find *find) {
    struct kv_moves moves;
    const int seq = e->kept->load.seq;
    stop_load(e->kept);
    TRY(kv_rewind(&e->kv, seq, 0, KV_COMPUTED, &moves));
    kv_match(&e->kv, seq, ids, n, find, &moves);
    return engine_move(e, &moves);
}

static enum infer_status load(struct infer_engine *e, int seq, const int32_t *ids, int n,
                              const struct kv_find *find, double until, bool *done) {
    struct kept *k = e->kept;
    int limit = e->kv.max_pages;
    while (k->load.seq == seq || begin(e, seq, ids, n, find->exact, limit)) {
        bool there = true;
        const bool pages = k->load.at < k->load.end;
        TRY(pages ? load_page(e, ids, &there) : load_state(e, &there));
        if (!there) {
            limit = pages ? k->load.at : k->load.end - 1;
            TRY(take_back(e, ids, n, find));
        } else if (!pages) {
            return end_load(e, ids);
        } else {
            k->load.at++;
        }
        if (k->load.seq == seq && host_seconds() > until) {
            *done = false;
            return INFER_OK;
        }
    }
    return INFER_OK;
}

/* Of what was loaded before the last GB or so, half counts. */
static void measure(struct kept *k, double seconds) {
    static const double some = 1e9;
    if (k->load_bytes > 0) k->seconds += seconds;
    if (k->load_bytes > 2 * some) k->load_bytes /= 2, k->seconds /= 2;
}

enum infer_status infer_seq_kept(struct infer_engine *e, int seq, const int32_t *ids, int n,
                                 const struct infer_prefix *among, double seconds, int *n_shared,
                                 bool *done) {
    const struct kv_find find = engine_find(e, among);
    *done = true;
    if (!seq_is_open(e, seq) || e->n_submit != e->n_wait)
        return err_set(INFER_E_INPUT, "sequence %d is not open, or a step is in flight", seq);
    *n_shared = e->kv.seq[seq].length;
    if (!e->kept || e->poisoned || e->kv.seq[seq].alone) return INFER_OK;
    if (e->kept->load.seq >= 0 && e->kept->load.seq != seq) {
        *done = false;
        return INFER_OK;
    }
    const double from = host_seconds();
    enum infer_status st = load(e, seq, ids, n < e->kv.n_ctx ? n : e->kv.n_ctx, &find, from + seconds, done);
    measure(e->kept, host_seconds() - from);
    if (st) engine_poison(e, st);
    *n_shared = e->kv.seq[seq].length;
    return st;
}
