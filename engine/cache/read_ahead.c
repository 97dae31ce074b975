#include "cache/read_ahead.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include "base/mem.h"

enum { MOST_THREADS = 32 };
struct area {
    struct disk_item item;
    int32_t ids[READ_AHEAD_IDS];
    size_t n;
    bool read, there;
};
struct read_ahead {
    struct disk *disk;
    unsigned char *room;
    size_t bytes;
    int n_area, n_thread;
    pthread_t thread[MOST_THREADS];
    uint64_t begun, taken; /* items */

    pthread_mutex_t lock; /* of what follows, and of an area from its beginning until it was read */
    pthread_cond_t news, done;
    uint64_t offered, given; /* items to threads, and those that one has */
    bool stopping;
    struct area area[]; /* [n_area] */
};

static void *read_items(void *user) {
    struct read_ahead *r = user;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->given == r->offered && !r->stopping) pthread_cond_wait(&r->news, &r->lock);
        if (r->stopping) break;
        const size_t i = r->given++ % (size_t)r->n_area;
        struct area *a = &r->area[i];
        pthread_mutex_unlock(&r->lock);
        const bool there = disk_get(r->disk, &a->item, r->room + i * r->bytes, a->n);
        pthread_mutex_lock(&r->lock);
        a->there = there;
        a->read = true;
        pthread_cond_signal(&r->done);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

enum infer_status read_ahead_open(struct read_ahead **out, struct disk *d, unsigned char *room, size_t bytes,
                                  int n_area, int n_thread) {
    struct read_ahead *r;
    sigset_t all, before;
    *out = NULL;
    TRY(mem_new(&r, sizeof *r + (size_t)n_area * sizeof *r->area, "files that are read ahead"));
    *r = (struct read_ahead){.disk = d, .room = room, .bytes = bytes, .n_area = n_area};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->news, NULL);
    pthread_cond_init(&r->done, NULL);
    sigfillset(&all); /* signals go to the others */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r->n_thread < n_thread && r->n_thread < MOST_THREADS &&
           pthread_create(&r->thread[r->n_thread], NULL, read_items, r) == 0)
        r->n_thread++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!r->n_thread) {
        read_ahead_close(r);
        return err_set(INFER_E_MEMORY, "no thread to read pages");
    }
    *out = r;
    return INFER_OK;
}

void read_ahead_close(struct read_ahead *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_broadcast(&r->news);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_thread; i++) pthread_join(r->thread[i], NULL);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->news);
    pthread_cond_destroy(&r->done);
    mem_free(r);
}

int read_ahead_n(const struct read_ahead *r) { return (int)(r->begun - r->taken); }
int read_ahead_next(const struct read_ahead *r) { return (int)(r->begun % (uint64_t)r->n_area); }
int read_ahead_first(const struct read_ahead *r) { return (int)(r->taken % (uint64_t)r->n_area); }

void read_ahead_begin(struct read_ahead *r, const struct disk_item *item, size_t n) {
    struct area *a = &r->area[read_ahead_next(r)];
    a->item = *item;
    a->item.ids = a->ids;
    if (item->n_ids) memcpy(a->ids, item->ids, (size_t)item->n_ids * sizeof *a->ids);
    a->n = n;
    a->read = a->there = false;
    pthread_mutex_lock(&r->lock);
    r->begun++;
    r->offered++;
    pthread_cond_signal(&r->news);
    pthread_mutex_unlock(&r->lock);
}

bool read_ahead_take(struct read_ahead *r) {
    const struct area *a = &r->area[read_ahead_first(r)];
    pthread_mutex_lock(&r->lock);
    while (!a->read) pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
    r->taken++;
    return a->there;
}
