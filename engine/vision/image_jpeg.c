#include <stdio.h>
#include <setjmp.h>
#include <jpeglib.h>
#include <jerror.h>
#include "base/mem.h"
#include "vision/image_decode_impl.h"

/* A progressive file may say its coefficients again and again; real ones have about ten scans. */
enum { SCANS_MAX = 100 };

struct reader {
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    struct jpeg_source_mgr source;
    jmp_buf failed;
    char why[JMSG_LENGTH_MAX];
    bool no_memory;
    uint8_t *row; /* of four colours */
};

static void fail(j_common_ptr j) {
    struct reader *r = j->client_data;
    r->no_memory = j->err->msg_code == JERR_OUT_OF_MEMORY;
    if (!*r->why) j->err->format_message(j, r->why);
    longjmp(r->failed, 1);
}
static void fail_with(struct reader *r, const char *why) {
    snprintf(r->why, sizeof r->why, "%s", why);
    longjmp(r->failed, 1);
}
static void no_message(j_common_ptr j, int level) {
    (void)j;
    (void)level;
}

static void nothing(j_decompress_ptr j) { (void)j; }
static boolean no_more(j_decompress_ptr j) {
    fail_with(j->client_data, "it ends early");
    return FALSE;
}
static void skip(j_decompress_ptr j, long n) {
    if (n <= 0) return;
    if ((size_t)n > j->src->bytes_in_buffer) no_more(j);
    j->src->next_input_byte += n;
    j->src->bytes_in_buffer -= (size_t)n;
}
static void watch(j_common_ptr j) {
    if (((j_decompress_ptr)j)->input_scan_number > SCANS_MAX)
        fail_with(j->client_data, "it has more than 100 scans");
}

/* Colours of print, of four that are stored inverted (as Adobe does and everybody since). */
static void from_print(uint8_t *rgb, const uint8_t *cmyk, int width) {
    for (int x = 0; x < width; x++, rgb += 3, cmyk += 4)
        for (int c = 0; c < 3; c++) {
            const uint32_t product =
                (uint32_t)((255 - cmyk[c]) * cmyk[3]) + 128; /* rounded /255, as Pillow does */
            rgb[c] = (uint8_t)(cmyk[3] - (((product >> 8) + product) >> 8));
        }
}

static void read_rows(struct reader *r, struct image *out) {
    struct jpeg_decompress_struct *j = &r->j;
    jpeg_read_header(j, TRUE);
    if ((int)j->image_width != out->width || (int)j->image_height != out->height)
        fail_with(r, "it says two sizes");
    const bool print = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    j->out_color_space = print ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(j);
    if (print && !(r->row = mem_piece((size_t)out->width * 4))) {
        r->no_memory = true;
        fail_with(r, "no memory");
    }
    while (j->output_scanline < j->output_height) {
        uint8_t *rgb = out->rgb + (size_t)j->output_scanline * (size_t)out->width * 3;
        JSAMPROW row = print ? r->row : rgb;
        jpeg_read_scanlines(j, &row, 1);
        if (print) from_print(rgb, r->row, out->width);
    }
}

enum infer_status decode_jpeg(struct image *out, struct bytes b) {
    struct reader *r;
    TRY(mem_new(&r, sizeof *r, "a JPEG decoder"));
    r->j.err = jpeg_std_error(&r->error);
    r->j.client_data = r;
    r->error.error_exit = fail;
    r->error.emit_message =
        no_message; /* warnings: colours may be wrong somewhere, as every viewer shows them */
    enum infer_status e = INFER_OK;
    if (setjmp(r->failed)) {
        e = r->no_memory ? err_set(INFER_E_MEMORY, "no memory to decode a JPEG") : broken(IMAGE_JPEG, r->why);
    } else {
        jpeg_create_decompress(&r->j);
        r->j.mem->max_memory_to_use = (long)out->width * out->height * 8 + (16 << 20);
        r->source =
            (struct jpeg_source_mgr){b.at, b.n, nothing, no_more, skip, jpeg_resync_to_restart, nothing};
        r->j.src = &r->source;
        r->progress.progress_monitor = watch;
        r->j.progress = &r->progress;
        read_rows(r, out);
    }
    jpeg_destroy_decompress(&r->j);
    mem_free(r->row);
    mem_free(r);
    return e;
}
