/* One URI in the light of another. source: RFC 3986, 5.2 and 5.3 */
#include "base/mem.h"
#include "text/schema/schema_int.h"

#include <string.h>

struct span {
    const char *p; /* NULL: the part is not there */
    size_t n;
};
struct uri {
    struct span scheme, authority, path, query, fragment;
};

/* Takes what stands before one of the marks (or the end) off *p. */
static struct span until(const char **p, const char *marks) {
    struct span s = {*p, strcspn(*p, marks)};
    *p += s.n;
    return s;
}

static struct uri parse(const char *p) {
    struct uri u = {0};
    const char *rest = p;
    struct span first = until(&rest, ":/?#");
    if (first.n && *rest == ':') u.scheme = first, p = rest + 1;
    if (p[0] == '/' && p[1] == '/') p += 2, u.authority = until(&p, "/?#");
    u.path = until(&p, "?#");
    if (*p == '?') p++, u.query = until(&p, "#");
    if (*p == '#') u.fragment = (struct span){p + 1, strlen(p + 1)};
    return u;
}

/* Writes path[n] to out without its segments "." and "..", each of which takes the one before it along; returns the length. */
static size_t put_path(char *out, const char *path, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        size_t end = i + (path[i] == '/');
        while (end < n && path[end] != '/') end++;
        const char *name = path + i + (path[i] == '/');
        size_t length = (size_t)(path + end - name);
        bool up = length == 2 && memcmp(name, "..", 2) == 0, here = length == 1 && *name == '.';
        if (up)
            while (at && out[--at] != '/') {
            }
        if (!up && !here) memmove(out + at, path + i, end - i), at += end - i;
        if ((up || here) && end == n && (path[i] == '/' || at)) out[at++] = '/';
        i = end;
    }
    return at;
}

char *schema_uri(const char *base, const char *ref) {
    const struct uri b = parse(base), r = parse(ref);
    char *out = mem_piece(strlen(base) + strlen(ref) + 8), *p = out;
    if (!out) return NULL;
    const bool own = r.scheme.p, from_root = own || r.authority.p, same = !from_root && r.path.n == 0;
    const struct span scheme = own ? r.scheme : b.scheme, authority = from_root ? r.authority : b.authority,
                      query = same && !r.query.p ? b.query : r.query;
    if (scheme.p) memcpy(p, scheme.p, scheme.n), p += scheme.n, *p++ = ':';
    if (authority.p) memcpy(p, "//", 2), memcpy(p + 2, authority.p, authority.n), p += 2 + authority.n;
    char *path = p; /* joined here, then shortened in place: put_path never writes beyond what it has read */
    if (!from_root && r.path.n && *r.path.p != '/') {
        size_t folder = b.path.n;
        while (folder && b.path.p[folder - 1] != '/') folder--;
        if (!folder && b.authority.p) *p++ = '/';
        memcpy(p, b.path.p, folder), p += folder;
    }
    const struct span last = same ? b.path : r.path;
    memcpy(p, last.p, last.n), p += last.n;
    if (!same) p = path + put_path(path, path, (size_t)(p - path));
    if (query.p) *p++ = '?', memcpy(p, query.p, query.n), p += query.n;
    if (r.fragment.p) *p++ = '#', memcpy(p, r.fragment.p, r.fragment.n), p += r.fragment.n;
    *p = 0;
    return out;
}
