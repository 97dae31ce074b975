/* How near a word is to a name. */
#include <string.h>
#include "tools/options.h"

static int least(int a, int b) { return a < b ? a : b; }

/* Letters that are missing, too many, others, or two that changed places; long words count as far apart. source: optimal string
 * alignment, after Damerau 1964 */
static int distance(const char *a, const char *b) {
    enum { MAX = 40 };
    int na = (int)strnlen(a, MAX), nb = (int)strnlen(b, MAX), row[3][MAX + 1];
    if (na == MAX || nb == MAX) return MAX;
    for (int j = 0; j <= nb; j++) row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            now[j] = least(last[j - 1] + (a[i - 1] != b[j - 1]), least(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[na % 3][nb];
}

/* A typing mistake is at most a third of the word away; a beginning of the word is near, too, and so is the word with more
 * behind it ("temperature"). */
bool option_nearer(const char *given, const char *name, int *best) {
    int n = least((int)strlen(given), (int)strlen(name)), d = distance(given, name),
        limit = n < 3   ? 0
                : n < 6 ? 1
                        : n / 3;
    if (strlen(given) >= 2 && strncmp(name, given, strlen(given)) == 0) d = 1;
    if (strlen(name) >= 3 && strncmp(name, given, strlen(name)) == 0) d = 1;
    if (d > limit || d >= *best) return false;
    *best = d;
    return true;
}
