/* How far a model's predictions are from those of another one, its base: what the base said of every counted token of a text is kept in
 * a file, in 16 bits a logit.
 *
 *     header   struct kl_header
 *     rows     for each counted token: struct kl_row, then u16 code[n_vocab] (and one more where n_vocab is odd)
 *
 *     log p[i] = least + step * code[i]      code 0: below exp(-16) of the likeliest, taken for 0
 *
 * source: llama.cpp's --kl-divergence-base has codes alike. Little endian. */
#pragma once
#include "files/outfile.h"
#include "files/tensorfile.h"

struct kl_header {
    char magic[8]; /* "INFERKL1" */
    uint32_t n_vocab, window, first, n_window;
};
struct kl_row {
    float least, step;
    float log_p; /* of the token that came */
    int32_t id;  /* that token */
};

/* Sums over the tokens that were compared. With p of the base and q of the model: KL = sum_i p[i] (log p[i] - log q[i]). */
struct kl {
    struct outfile *out; /* of a base that is made; NULL: none */
    struct mapfile base; /* of one that is there */
    struct kl_header header;
    uint16_t *code;                    /* [n_vocab + 1] */
    double *each;                      /* KL of each token */
    size_t n, n_max;                   /* of them; counted tokens in the file */
    double sum, sum2, change, change2; /* KL; q - p of the tokens that came */
    double base_sum;                   /* of -log p of those */
    long same;                         /* tokens that both hold for the likeliest */
};

/* A base to be written to path; header as the text has it. errors: those of outfile_open and outfile_write */
enum infer_status kl_make(struct kl *k, const char *path, const struct kl_header *header);
/* A base to compare with; header: what it must be, but for n_window, which becomes the file's. errors: INFER_E_IO, INFER_E_INPUT (no such
 * file, cut, of another vocabulary), INFER_E_MEMORY */
enum infer_status kl_open(struct kl *k, const char *path, struct kl_header *header);
/* -log of the softmax of logits[n_vocab] at id */
double kl_surprise(const float *logits, int n_vocab, int32_t id);
/* The next counted token: logits[n_vocab] of the model, whose -log q of token id is surprise (of the sum over all exp). errors:
 * INFER_E_INPUT (the base had another token there), INFER_E_WRITE */
enum infer_status kl_token(struct kl *k, const float *logits, int32_t id, double surprise);
/* KL so that a share of the tokens has less; sorts. */
double kl_quantile(struct kl *k, double share);
/* Puts a base that was made in its place. errors: INFER_E_WRITE */
enum infer_status kl_done(struct kl *k);
/* Also after an error: an unfinished base is removed. */
void kl_close(struct kl *k);
