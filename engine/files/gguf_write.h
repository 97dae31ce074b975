/* Writes a GGUF v3 file as a stream: keys, then the list of tensors, then their data in the order of the list.
 *
 *     struct gguf_writer *w;
 *     TRY(gguf_writer_open(&w, "out.gguf"));
 *     gguf_writer_u32(w, "llama.block_count", 32);          keys and tensors: a failure is kept until begin
 *     gguf_writer_tensor(w, "token_embd.weight", QUANT_Q8_0, 2, (int64_t[4]){1, 1, n_vocab, n_embd});
 *     status = gguf_writer_begin(w);
 *     status = gguf_writer_data(w, bytes, n);               as often as wanted, the pieces as they come
 *     status = gguf_writer_close(w);                        or gguf_writer_abort(w)
 *
 * Tensors are aligned to 4096 bytes (general.alignment says so and is written first). The file is an outfile.h: path is
 * never half a file.
 * Memory: the keys and the list, not the data. source: the GGUF specification. */
#pragma once
#include "files/tensorfile.h"

struct gguf_writer;

enum { GGUF_WRITE_ALIGNMENT = 4096 };

/* errors: those of outfile_open. */
enum infer_status gguf_writer_open(struct gguf_writer **out, const char *path);

/* Keys, before gguf_writer_begin. raw: little endian, n elements of the type. */
void gguf_writer_value(struct gguf_writer *w, const char *key, enum meta_type type, const void *raw);
void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float value);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value);
void gguf_writer_array(struct gguf_writer *w, const char *key, enum meta_type elem, const void *raw,
                       uint64_t n);
void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct str *strings, uint64_t n);
/* A key as it was read; general.alignment is left out. */
void gguf_writer_meta(struct gguf_writer *w, const struct meta *m);

/* The next tensor. shape[4] in C order, ones in front (as struct tensor has it). */
void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum quant_type type, int n_dim,
                        const int64_t *shape);

/* Takes the room for the file and writes all that stands before the data. errors: also those of the calls above. */
enum infer_status gguf_writer_begin(struct gguf_writer *w);
/* Bytes of the whole file, from gguf_writer_begin on. */
uint64_t gguf_writer_bytes(const struct gguf_writer *w);
/* The next n bytes of tensor data; one call stays within one tensor. Padding is added where a tensor ends. */
enum infer_status gguf_writer_data(struct gguf_writer *w, const void *data, size_t n);
/* Checks that all data came, closes, renames; frees w in any case (a failure removes the file). */
enum infer_status gguf_writer_close(struct gguf_writer *w);
/* Removes the unfinished file and frees w; this thread's message stays. NULL does nothing. */
void gguf_writer_abort(struct gguf_writer *w);
