#include "serve/json_put.h"
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* In front of a name or a value: a comma, where it follows a value. */
static void comma(struct buf *b) {
    if (b->n && !memchr("{[:, \n", b->p[b->n - 1], 6)) buf_add(b, ",", 1);
}

static void quoted(struct buf *b, const char *text, size_t n) {
    buf_add(b, "\"", 1);
    buf_add(b, text, n);
    buf_add(b, "\"", 1);
}

/* One conversion of shape; how[n]: what stands behind its %. */
static void value(struct buf *b, const char *how, size_t n, va_list *ap) {
    char format[16] = "%";
    if (n == 1 && *how == 's') {
        buf_json_text(b, va_arg(*ap, const char *));
    } else if (how[n - 1] == 's') {
        const int bytes = va_arg(*ap, int);
        const char *text = va_arg(*ap, const char *);
        buf_json(b, text ? text : "", text ? (size_t)bytes : 0);
    } else if (*how == 'h') {
        buf_text(b, va_arg(*ap, int) ? "true" : "false");
    } else if (n == 1 && *how == 'd') {
        buf_printf(b, "%d", va_arg(*ap, int));
    } else if (*how == 'l' && how[n - 1] == 'd') {
        buf_printf(b, "%ld", va_arg(*ap, long));
    } else if (*how == 'l') {
        buf_printf(b, "%llu", va_arg(*ap, unsigned long long));
    } else if (*how == 'z') {
        buf_printf(b, "%zu", va_arg(*ap, size_t));
    } else {
        const double x = va_arg(*ap, double);
        memcpy(format + 1, how, n < sizeof format - 2 ? n : 0);
        if (n == 1 || !isfinite(x))
            buf_json_float(b, (float)x);
        else
            buf_printf(b, format, x);
    }
}

void json_put(struct buf *out, const char *shape, ...) {
    va_list ap;
    va_start(ap, shape);
    for (const char *p = shape; *p;) {
        size_t n = 1;
        if (!strchr(" \n:]}", *p)) comma(out);
        if (*p == '%') {
            n = strcspn(p + 1, "sdufg") + 1;
            value(out, p + 1, n++, &ap);
        } else if (*p == '\'') {
            n = strcspn(p + 1, "'");
            quoted(out, p + 1, n);
            n += 2;
        } else if (strchr("\n:[]{}", *p)) {
            buf_add(out, p, 1);
        } else if (*p != ' ') {
            n = strcspn(p, " \n:[]{}");
            if (p[n] == ':')
                quoted(out, p, n);
            else
                buf_add(out, p, n);
        }
        p += n;
    }
    va_end(ap);
}
