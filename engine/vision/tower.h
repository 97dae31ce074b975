/* A vision tower: a picture becomes rows that stand in the place of a text model's embeddings (infer_row.embed).
 *
 * A tower is a file of its own beside the text model (mmproj-*.gguf, general.type mmproj) or a part of its Hugging Face folder. It is written
 * down as a list of operations and run by a backend, as a text model is. How large a picture becomes, how many rows it has, and what
 * text stands around them follow from width and height alone (tower_fit): nothing is computed for a count of tokens.
 *
 *     tower_open -> tower_info -> tower_fit (size, rows, parts) -> tower_encode (rows) -> tower_positions
 *
 * One picture at a time: calls on one tower are the caller's to order. */
#pragma once
#include "files/model_keys.h"
#include "seam/backend.h"
#include "vision/image.h"

struct tower;

/* Whether a tower is opened to be used, or to know what it would take of a host or a card: nothing is taken, nothing is seen. */
enum tower_plan { TOWER_USED, TOWER_PLAN_HOST, TOWER_PLAN_CARD };
struct tower_options {
    enum tower_plan plan;
    const struct backend_type *backend; /* NULL: the CPU's */
    struct cpu_options cpu;
    struct cuda_options cuda;
    int card;        /* as in backend_config */
    int n_embd;      /* of the text model; another one is refused as a wrong mmproj. 0: any */
    int n_deepstack; /* of the text model; not looked at where n_embd is 0 */
    int min_tokens,
        max_tokens; /* rows of a picture; 0: the family's own. max_tokens also bounds what is taken of memory */
    bool strict_fp32, no_mmap;
    struct key_ignore ignore;
};

struct tower_info {
    const char *projector; /* "qwen3vl_merger": its name in GGUF */
    const char *path;
    int n_embd; /* of a row, as the text model's embeddings; rows are n_embd * (1 + n_deepstack) wide */
    int n_deepstack; /* parts behind the first n_embd numbers, which the text model adds to its residual stream later */
    int min_tokens, max_tokens;
    /* Rows have a place in the picture (tower_positions); else positions go on as those of texts. */
    bool three_positions;
    bool both_ways; /* rows of a picture see each other, before and behind */
    /* What a chat template writes for a picture, which becomes the picture's parts: "<|image_pad|>". before and after: what a template that
     * has pictures writes around that, for those that have none ("" where it is in the parts). */
    const char *placeholder, *before, *after;
    size_t weight_bytes; /* of the file, read in the map */
    /* Taken by tower_open: weights that were changed, activations of the largest picture. */
    size_t memory_bytes;
    size_t device_bytes; /* of these, on a card */
};

/* Opens mmproj file or folder and takes all memory.
 * errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (one line names the projector, key or tensor), INFER_E_MEMORY, INFER_E_IO, INFER_E_DEVICE */
enum infer_status tower_open(struct tower **out, const char *path, const struct tower_options *options);
void tower_close(struct tower *t);
void tower_info(const struct tower *t, struct tower_info *out);
/* Whether a folder or file has a tower that tower_open knows by name; reads keys alone. *projector: NULL where there is none. */
enum infer_status tower_probe(const char *path, char projector[64], bool *there);

/* How a picture of some width and height is seen. */
struct tower_fit {
    int width, height;         /* of the picture, 1 .. */
    int mid_width, mid_height; /* to which it is resized before; 0: at once */
    bool padded; /* behind that black pixels are added on the right and below, it is not resized again */
    int to_width, to_height;     /* resized to; with tiles: all of them together */
    int tiles_x, tiles_y;        /* pieces of it; 0: the picture is one */
    int over_width, over_height; /* beside tiles the whole, small; 0: not */
    int grid_x, grid_y;          /* rows of a tile, else of the picture: columns and lines of them */
    int n_piece; /* that are encoded, one after the other: tiles line by line, and the overview */
    int n_token; /* rows of all */
    int n_part;  /* tower_part */
};
/* errors: INFER_E_INPUT (no size of a picture; more tokens than max_tokens is shrunk, not refused; a picture that cannot be shrunk so) */
enum infer_status tower_fit(const struct tower *t, int width, int height, struct tower_fit *out);

/* A picture stands in a text as parts, one after the other: text, then rows. */
struct tower_part {
    char text[96]; /* of special tokens, and of line ends, before the rows; "" none */
    int first_row, n_row;
};
void tower_part(const struct tower *t, const struct tower_fit *f, int part, struct tower_part *out);

/* Positions of a part's rows, the first at pos: axis[n_row][3] (time, line, column); *next: of the token behind. Rows of towers without
 * three_positions count on, all three alike. */
void tower_positions(const struct tower *t, const struct tower_fit *f, int part, int pos, int32_t (*axis)[3],
                     int *next);

/* Rows of a picture, resized as the family's processor does: rows[n_token][n_embd * (1 + n_deepstack)].
 * tower_begin takes the picture (which may go then), tower_step goes on with it for about so many seconds where the backend can pause, else
 * with a whole piece of it (tower_fit.n_piece); tower_encode computes all. The same bits for any cut.
 * errors: INFER_E_CANCEL, INFER_E_MEMORY, INFER_E_NAN, INFER_E_DEVICE */
enum infer_status tower_begin(struct tower *t, const struct image *image, const struct tower_fit *f);
enum infer_status tower_step(struct tower *t, double seconds, float *rows, bool *done);
enum infer_status tower_encode(struct tower *t, const struct image *image, const struct tower_fit *f,
                               float *rows);
void tower_cancel(struct tower *t); /* async-signal-safe */
