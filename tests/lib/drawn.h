/* Pictures that are drawn here: words of 8 to 40 pixels at places that are told, shapes, charts, some of it turned, in twenty sizes. Whole numbers
 * alone, so that every machine draws the same. A place is in sixteenths of a pixel. */
#pragma once
#include "tests/lib/test.h"
#include "vision/image.h"

enum { DRAWN = 20, DRAWN_WORDS = 24, DRAWN_UNIT = 16 };
static const int drawn_size[DRAWN][2] = {{64, 48},   {40, 200},  {97, 101},  {128, 128}, {160, 90},
                                         {224, 224}, {255, 257}, {300, 80},  {320, 240}, {336, 336},
                                         {401, 299}, {448, 448}, {500, 333}, {512, 384}, {600, 150},
                                         {640, 480}, {150, 700}, {720, 405}, {800, 600}, {1024, 768}};

struct drawn_word {
    const char *text;
    int height, angle, box[4]; /* of letters; of drawn_turn; left, top, right, bottom in pixels */
};
struct drawn {
    struct image image;
    struct drawn_word word[DRAWN_WORDS];
    int n_word;
    uint32_t seed;
};

/* ---- what covers a point ---- */

struct drawn_point {
    int64_t x, y;
};
/* A stroke from a to b, r to both sides; a disc around a; a part of it, from the direction of a to that of b; what is left of all edges. */
enum drawn_kind { DRAWN_STROKE, DRAWN_DISC, DRAWN_WEDGE, DRAWN_CORNERS };
struct drawn_shape {
    enum drawn_kind kind;
    struct drawn_point p[5], centre;
    int n;
    int64_t r;
};

static inline int64_t drawn_cross(struct drawn_point a, struct drawn_point b) {
    return a.x * b.y - a.y * b.x;
}
static inline int64_t drawn_dot(struct drawn_point a, struct drawn_point b) { return a.x * b.x + a.y * b.y; }
static inline struct drawn_point drawn_from(struct drawn_point a, struct drawn_point b) {
    return (struct drawn_point){b.x - a.x, b.y - a.y};
}

static inline bool drawn_covers(const struct drawn_shape *s, struct drawn_point at) {
    const struct drawn_point d = drawn_from(s->p[0], s->p[1]), v = drawn_from(s->p[0], at),
                             c = drawn_from(s->centre, at);
    switch (s->kind) {
    case DRAWN_STROKE: {
        const int64_t along = drawn_dot(d, v), all = drawn_dot(d, d), off = drawn_cross(d, v);
        if (along <= 0) return drawn_dot(v, v) <= s->r * s->r;
        if (along < all) return off * off <= s->r * s->r * all;
        const struct drawn_point w = drawn_from(s->p[1], at);
        return drawn_dot(w, w) <= s->r * s->r;
    }
    case DRAWN_DISC:
        return drawn_dot(c, c) <= s->r * s->r;
    case DRAWN_WEDGE:
        return drawn_dot(c, c) <= s->r * s->r && drawn_cross(s->p[0], c) >= 0 && drawn_cross(c, s->p[1]) > 0;
    default:
        for (int i = 0; i < s->n; i++)
            if (drawn_cross(drawn_from(s->p[i], s->p[(i + 1) % s->n]), drawn_from(s->p[i], at)) < 0)
                return false;
        return true;
    }
}

/* In a colour, edges by sixteen points of a pixel; left, top, right, bottom: pixels that it may touch. */
static inline void drawn_put(struct drawn *d, const struct drawn_shape *s, const int box[4],
                             uint32_t colour) {
    for (int y = box[1] < 0 ? 0 : box[1]; y < d->image.height && y <= box[3]; y++)
        for (int x = box[0] < 0 ? 0 : box[0]; x < d->image.width && x <= box[2]; x++) {
            int n = 0;
            for (int i = 0; i < 16; i++)
                n += drawn_covers(s, (struct drawn_point){x * DRAWN_UNIT + 2 + 4 * (i % 4),
                                                          y * DRAWN_UNIT + 2 + 4 * (i / 4)});
            unsigned char *p = d->image.rgb + ((size_t)y * (size_t)d->image.width + (size_t)x) * 3;
            for (int c = 0; n && c < 3; c++)
                p[c] = (unsigned char)((p[c] * (16 - n) + (int)(colour >> (16 - 8 * c) & 255) * n + 8) / 16);
        }
}

/* ---- letters ---- */

/* Strokes on a field of 4 by 6, the baseline 0: "xyxyxy xyxy". */
static const char *const drawn_letter[128] = {['A'] = "002640 1232",
                                              ['B'] = "00063645343303 3342413000",
                                              ['C'] = "45361605011030 3041",
                                              ['D'] = "00062645412000",
                                              ['E'] = "46060040 0333",
                                              ['F'] = "460600 0333",
                                              ['G'] = "4536160501103041 414323",
                                              ['H'] = "0006 4046 0343",
                                              ['I'] = "2026",
                                              ['K'] = "0006 4602 1340",
                                              ['L'] = "060040",
                                              ['M'] = "0006234640",
                                              ['N'] = "00064046",
                                              ['O'] = "1030414536160501 0110",
                                              ['P'] = "000636453403",
                                              ['R'] = "00063645433303 2340",
                                              ['S'] = "453616050413334241301001",
                                              ['T'] = "0646 2620",
                                              ['U'] = "06011030414640",
                                              ['V'] = "062046",
                                              ['W'] = "0610233046",
                                              ['X'] = "0046 0640",
                                              ['Y'] = "062346 2320",
                                              ['0'] = "1030414536160501 0110 0145",
                                              ['1'] = "052620 1030",
                                              ['2'] = "0516364544000040",
                                              ['3'] = "064623334241301001",
                                              ['4'] = "36024230 3036",
                                              ['5'] = "460604344341301001",
                                              ['6'] = "4536160501103041433303",
                                              ['7'] = "064610",
                                              ['8'] = "133342413010010213040516364544 4433",
                                              ['9'] = "013041453616050413 1343"};

/* Cosine and sine as quotients. */
static const int drawn_turn[6][3] = {{1, 0, 1}, {12, 5, 13}, {4, -3, 5}, {0, 1, 1}, {-1, 0, 1}, {0, -1, 1}};

/* Where x, y of the field lies, the word's first letter beginning at from. */
static inline struct drawn_point drawn_at(struct drawn_point from, int height, int angle, int x, int y) {
    const int *t = drawn_turn[angle];
    const int64_t u = (int64_t)x * height * DRAWN_UNIT, v = -(int64_t)y * height * DRAWN_UNIT, d = 6 * t[2];
    return (struct drawn_point){from.x + (u * t[0] - v * t[1]) / d, from.y + (u * t[1] + v * t[0]) / d};
}

static inline void drawn_stroke(struct drawn *d, struct drawn_point a, struct drawn_point b, int64_t r,
                                uint32_t colour) {
    const struct drawn_shape s = {.kind = DRAWN_STROKE, .p = {a, b}, .r = r};
    const int64_t x0 = a.x < b.x ? a.x : b.x, y0 = a.y < b.y ? a.y : b.y, x1 = a.x + b.x - x0,
                  y1 = a.y + b.y - y0;
    drawn_put(d, &s,
              (const int[]){(int)((x0 - r) / DRAWN_UNIT) - 1, (int)((y0 - r) / DRAWN_UNIT) - 1,
                            (int)((x1 + r) / DRAWN_UNIT) + 1, (int)((y1 + r) / DRAWN_UNIT) + 1},
              colour);
}

static inline void drawn_text(struct drawn *d, const char *text, struct drawn_point from, int height,
                              int angle, uint32_t colour) {
    for (int k = 0; text[k]; k++) {
        const char *s = drawn_letter[text[k] & 127];
        for (; s && s[0] && s[1]; s += s[2] == ' ' ? 3 : s[2] ? 2 : 1) {
            if (!s[2] || s[2] == ' ' || !s[3]) continue;
            drawn_stroke(d, drawn_at(from, height, angle, 6 * k + s[0] - '0', s[1] - '0'),
                         drawn_at(from, height, angle, 6 * k + s[2] - '0', s[3] - '0'),
                         (int64_t)height * DRAWN_UNIT / 14, colour);
        }
    }
}

/* ---- what is where ---- */

static inline int drawn_random(struct drawn *d, int n) {
    d->seed = d->seed * 1103515245u + 12345u;
    return n > 0 ? (int)(d->seed >> 16 & 0x7fff) % n : 0;
}

/* The box of a word whose first letter begins at 0, 0, with what its strokes are wide. */
static inline void drawn_box(const char *text, int height, int angle, int box[4]) {
    const int wide = 6 * (int)strlen(text) - 2, corner[4][2] = {{0, 0}, {wide, 0}, {wide, 6}, {0, 6}};
    box[0] = box[1] = INT32_MAX, box[2] = box[3] = INT32_MIN;
    for (int i = 0; i < 4; i++) {
        const struct drawn_point p =
            drawn_at((struct drawn_point){0, 0}, height, angle, corner[i][0], corner[i][1]);
        const int x = (int)(p.x / DRAWN_UNIT), y = (int)(p.y / DRAWN_UNIT), edge = height / 14 + 1;
        box[0] = x - edge < box[0] ? x - edge : box[0], box[1] = y - edge < box[1] ? y - edge : box[1];
        box[2] = x + edge > box[2] ? x + edge : box[2], box[3] = y + edge > box[3] ? y + edge : box[3];
    }
}

static inline bool drawn_apart(const int a[4], const int b[4]) {
    return a[2] < b[0] || b[2] < a[0] || a[3] < b[1] || b[3] < a[1];
}

/* A word somewhere where there is room, if there is. */
static inline void drawn_word(struct drawn *d, const char *text, int height, int angle, uint32_t colour) {
    int box[4];
    drawn_box(text, height, angle, box);
    const int w = box[2] - box[0] + 1, h = box[3] - box[1] + 1;
    for (int tries = 0; tries < 60 && w <= d->image.width && h <= d->image.height; tries++) {
        const int x = drawn_random(d, d->image.width - w + 1) - box[0],
                  y = drawn_random(d, d->image.height - h + 1) - box[1];
        struct drawn_word word = {text, height, angle, {box[0] + x, box[1] + y, box[2] + x, box[3] + y}};
        bool room = true;
        for (int i = 0; i < d->n_word; i++) room &= drawn_apart(word.box, d->word[i].box);
        if (!room) continue;
        d->word[d->n_word++] = word;
        drawn_text(d, text, (struct drawn_point){x * DRAWN_UNIT, y * DRAWN_UNIT}, height, angle, colour);
        return;
    }
}

/* Bars with a line over them, or a disc in parts, and its axes. */
static inline void drawn_chart(struct drawn *d, int x, int y, int side, bool bars) {
    static const struct drawn_point way[6] = {{1, 0}, {3, 4}, {-5, 12}, {-1, 0}, {-4, -3}, {1, -1}};
    static const uint32_t colour[6] = {0x4c78a8, 0xf58518, 0x54a24b, 0xe45756, 0x72b7b2, 0xb279a2};
    const int u = DRAWN_UNIT;
    struct drawn_point before = {0, 0};
    for (int i = 0; i < 6; i++) {
        const int h = side / 6 + drawn_random(d, side * 2 / 3), l = x + side * i / 6 + side / 24,
                  r = l + side / 9;
        const struct drawn_point top = {(l + r) * u / 2, (y + side - h) * u};
        struct drawn_shape s = {.kind = DRAWN_CORNERS,
                                .n = 4,
                                .p = {{l * u, (y + side - h) * u},
                                      {r * u, (y + side - h) * u},
                                      {r * u, (y + side) * u},
                                      {l * u, (y + side) * u}},
                                .centre = {(x + side / 2) * u, (y + side / 2) * u},
                                .r = side * u / 2 - u};
        if (!bars) s.kind = DRAWN_WEDGE, s.p[0] = way[i], s.p[1] = way[(i + 1) % 6];
        drawn_put(d, &s, (const int[]){x, y, x + side, y + side}, colour[i]);
        if (bars && i) drawn_stroke(d, before, top, u, 0x202020);
        before = top;
    }
    if (!bars) return;
    drawn_stroke(d, (struct drawn_point){x * u, y * u}, (struct drawn_point){x * u, (y + side) * u}, u / 2,
                 0);
    drawn_stroke(d, (struct drawn_point){x * u, (y + side) * u},
                 (struct drawn_point){(x + side) * u, (y + side) * u}, u / 2, 0);
}

/* A disc, a triangle, a square on its corner. */
static inline void drawn_shapes(struct drawn *d) {
    const int u = DRAWN_UNIT, w = d->image.width, h = d->image.height, side = (w < h ? w : h) / 5;
    for (int i = 0; i < 3; i++) {
        const int x = side + drawn_random(d, w - 2 * side), y = side + drawn_random(d, h - 2 * side),
                  r = side / 2 + drawn_random(d, side / 2);
        const int box[4] = {x - r - 1, y - r - 1, x + r + 1, y + r + 1};
        const struct drawn_point c = {x * u, y * u}, top = {x * u, (y - r) * u}, right = {(x + r) * u, y * u},
                                 low = {x * u, (y + r) * u}, left = {(x - r) * u, y * u};
        const struct drawn_shape s =
            i == 0   ? (struct drawn_shape){.kind = DRAWN_DISC, .centre = c, .r = r * u}
            : i == 1 ? (struct drawn_shape){.kind = DRAWN_CORNERS,
                                            .n = 3,
                                            .p = {top, {right.x, low.y}, {left.x, low.y}}}
                     : (struct drawn_shape){.kind = DRAWN_CORNERS, .n = 4, .p = {top, right, low, left}};
        drawn_put(d, &s, box, i == 0 ? 0xd9e8f6 : i == 1 ? 0xf6e0c8 : 0xdcefd8);
    }
}

/* Picture n; free with image_free. */
static inline void drawn_make(struct drawn *d, int n) {
    static const char *const words[] = {"HELLO", "TOWER", "2048", "EXIT",  "PARIS",  "N1X", "3719", "WORLD",
                                        "OK",    "SMALL", "YES",  "FIG 6", "MUSEUM", "50",  "LINE", "WAVE"};
    static const int heights[] = {8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40};
    const int w = drawn_size[n][0], h = drawn_size[n][1], low = w < h ? w : h;
    memset(d, 0, sizeof *d);
    d->image = (struct image){w, h, mem_alloc((size_t)w * (size_t)h * 3)};
    assert_non_null(d->image.rgb);
    d->seed = (uint32_t)n * 7919u + 1;
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++) /* paper, lighter from the left to the right */
        for (int c = 0; c < 3; c++)
            d->image.rgb[3 * i + (size_t)c] =
                (unsigned char)(228 + (int)(i % (size_t)w) * 24 / w - 6 * (c == n % 3));
    drawn_shapes(d);
    if (low >= 80) {
        const int y = drawn_random(d, h - low / 2), x = drawn_random(d, w - low / 2);
        drawn_chart(d, x, y, low / 2, n % 2 == 0);
    }
    for (int i = 0; i < 3 + w * h / 16000 && i < DRAWN_WORDS; i++)
        drawn_word(d, words[(i * 5 + n) % 16], heights[(i * 7 + 3 * n) % 16], i % 3 ? 0 : (i / 3 + n) % 6,
                   i % 4 ? 0x101018 : 0x8c1414);
}

/* Of bytes, alike for who has vectors only: the sum of each, plus one, times an odd number of its place. */
static inline uint32_t drawn_mark(const unsigned char *p, size_t n) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += (p[i] + 1u) * ((uint32_t)i * 2654435761u | 1u);
    return sum;
}
