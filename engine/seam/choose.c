/* The greatest scores by counting their keys' bits from the top, some at a time: three passes whatever the scores are. */
#include "seam/choose.h"

#include "seam/router.h"

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
