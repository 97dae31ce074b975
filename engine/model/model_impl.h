/* Inside the model room: open (model.c) reads the hyper-parameters (hparams.c) and binds the tensors (bind.c), among them those
 * that rotation needs (rope.c). */
#pragma once
#include "model/model.h"

enum { MODEL_MAX_CTX = 1 << 26, MODEL_MAX_HEAD_DIM = 1024 };

/* Key "<arch>.<name>" in buf. */
const char *model_key(const struct model *m, char *buf, size_t n, const char *name);
/* Reads an integer key and checks its range; absent: fallback, or an error when fallback is negative. */
enum infer_status model_read_int(const struct model *m, const char *name, int min, int max, int fallback,
                                 int *out);
/* An integer of each layer: one number for all, or a list of n_layer, or with those that draft. */
enum infer_status model_read_layers(const struct model *m, const char *name, int min, int max, int fallback,
                                    uint32_t *out);
/* The same for a number; a fallback of NAN stands for a key that must be there. */
enum infer_status model_read_float(const struct model *m, const char *name, float min, float max,
                                   float fallback, float *out);

/* What a file leaves out that its model has (quirks.c): scores of experts are sigmoids; q and k are not normalised; scores are times
 * (n_embd / n_head)^-0.5. After the sizes that a row asks for. */
enum quirk { QUIRK_SIGMOIDS, QUIRK_NO_QK_NORM, QUIRK_SCALE_OF_WIDTH };
bool model_quirk(const struct model *m, enum quirk quirk);

/* Every key in the architecture's own namespace is used, known to be harmless, or has a value that turns nothing on. */
enum infer_status model_check_keys(const struct model *m, const struct key_ignore *ignore);
enum infer_status model_read_hparams(struct model *m);
/* head.c: of a head that drafts for another model, its vocabulary and what it taps; after the width of a row and the number of layers. */
enum infer_status model_read_head(struct model *m);
/* Which layers have experts, their sizes and how they are chosen (expert_keys.c); after what else a layer has. */
enum infer_status model_read_experts(struct model *m);
/* Which layers have another mixer than attention, and their sizes (state_keys.c), for architectures that have some. */
enum infer_status model_read_mixers(struct model *m);
/* How often the layers are computed (loops.c), for architectures that say it. */
enum infer_status model_read_loops(struct model *m);
/* Of encoders, and how rows are pooled (encoder_keys.c); after the length of the context. */
enum infer_status model_read_encoder(struct model *m);
/* Sizes of latent attention (latent_keys.c), for architectures that have it. */
enum infer_status model_read_latent(struct model *m);
/* What chooses its positions (index_keys.c), for architectures that have that. */
enum infer_status model_read_index(struct model *m);
/* Entries of runs of positions, streams that are mixed, and experts that ids are told (entry_keys.c), for architectures that have them. */
enum infer_status model_read_entries(struct model *m);
/* Runs of positions that have the mean of their keys, streams that are read by gates, and what runs of tokens read (ngram_keys.c). */
enum infer_status model_read_gates(struct model *m);
/* The same of runs of positions (index_runs.c). */
enum infer_status model_read_index_runs(struct model *m);
/* [n_rot / 2]: of the frequencies; within and beyond: of contexts as long as the original one, and of longer ones. NULL: none. */
struct rope_divisors {
    const float *all, *within, *beyond;
};
/* Sets m->rope and the layers' rope; scaling may move n_ctx_train. */
enum infer_status model_bind_rope(struct model *m, const struct rope_divisors *divisor);
/* rope_given.c: sets the file's keys as the caller says, and tells so; and, of a bound model, how far it reaches by it. errors: INFER_E_INPUT
 * (fields that do not go together), INFER_E_UNSUPPORTED, INFER_E_MEMORY */
enum infer_status model_give_rope(struct model *m, const struct rope_given *g);
void model_reach_rope(struct model *m, const struct rope_given *g);
/* After the hyper-parameters. */
enum infer_status model_bind_tensors(struct model *m);
