/* The greatest scores by counting their keys' bits from the top, some at a time: three passes whatever the scores are. */
#include "seam/choose.h"

#include "seam/router.h"

#include <float.h>
#include <math.h>

/* The key that the k-th greatest of n scores has, 0 < k <= n; *equal: how many of that key are among the k. */
static uint32_t key_of(const float *score, int n, int k, int *equal) {
    static const struct {
        int shift;
        uint32_t mask;
    } part[] = {{21, 0x7ff}, {10, 0x7ff}, {0, 0x3ff}};
    uint32_t found = 0, known = 0; /* bits of the key, and which of them are */
    for (int i = 0; i < 3; i++) {
        int count[0x800] = {0};
        uint32_t bits = part[i].mask;
        for (int p = 0; p < n; p++) {
            const uint32_t key = router_key(score[p]);
            if ((key & known) == found) count[key >> part[i].shift & part[i].mask]++;
        }
        while (count[bits] < k) k -= count[bits--];
        found |= bits << part[i].shift;
        known |= part[i].mask << part[i].shift;
    }
    *equal = k;
    return found;
}

void choose_top(const float *score, int n, float *out, int k) {
    uint32_t least = 0;
    int at = 0, equal = n;
    if (n > k) least = key_of(score, n, k, &equal);
    for (int p = 0; p < n && at < k; p++) {
        const uint32_t key = router_key(score[p]);
        if (key > least || (key == least && equal-- > 0)) out[at++] = (float)p;
    }
    while (at < k) out[at++] = -1;
}

/* In score[run] the score of each run. */
static void runs_of(const struct choice *c, float *score, int n_run, int pos) {
    const int n = choice_block(c);
    for (int b = 0; b < n_run; b++) {
        const int last = (b + 1) * n - 1 < pos ? (b + 1) * n - 1 : pos;
        float best = score[last];
        for (int p = b * n; p < last && !c->whole && !c->ends; p++)
            if (router_key(score[p]) > router_key(best)) best = score[p];
        score[b] = b >= n_run - c->n_local ? INFINITY : best > FLT_MAX ? FLT_MAX : best;
    }
}

void choose_positions(const struct choice *c, float *score, int pos, float *out) {
    const int n = choice_block(c), n_run = choice_runs(c, pos), count = choice_count(c, pos),
              room = choice_room(c), n_list = n_run < c->n_top ? n_run : c->n_top;
    float *run = out + room - c->n_top;
    int at = 0;
    if (n == 1) {
        choose_top(score, pos + 1, out, c->n_top);
        return;
    }
    runs_of(c, score, n_run, pos);
    choose_top(score, n_run, run, c->n_top);
    if (c->ends) {
        for (int j = 0; j < n_list; j++) run[j] = run[j] * (float)n + (float)(n - 1);
        return;
    }
    for (int j = 0; j < n_list; j++) { /* positions of a run never reach runs that are still to be read */
        const int first = (int)run[j] * n;
        for (int p = first; p < first + n && p <= pos; p++) out[at++] = (float)p;
    }
    for (int p = n_run * n; c->whole && p <= pos; p++) out[at++] = (float)p;
    if (at != count) infer_bug("%d positions are chosen, not %d", at, count);
    while (at < room) out[at++] = -1;
}
