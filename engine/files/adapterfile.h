/* Files of adapters: pairs of small matrices that are added to those of a model (LoRA), and vectors that are added behind layers (control
 * vectors).
 *
 *     GGUF    general.type adapter, adapter.type lora, adapter.lora.alpha; NAME.lora_a [r][k] and NAME.lora_b [n][r] of the model's tensor
 *             NAME, of experts [expert][r][k] and [expert][n][r]; or general.architecture controlvector: direction.N, behind layer N
 *     PEFT    a folder with adapter_config.json and adapter_model.safetensors: MODULE.lora_A.weight [r][k], MODULE.lora_B.weight [n][r]
 *
 * sources: llama.cpp's script for such files and its control vectors, for the names of GGUF; the documentation of PEFT (LoraConfig); Hu et
 * al. 2021 (arXiv 2106.09685); Kalajdzievski 2023 (arXiv 2312.03732): alpha / sqrt(r). */
#pragma once
#include "arch/arch.h"
#include "files/tensorfile.h"

struct strmap;
struct adapter_pair {
    const char *name; /* GGUF's of the tensor that B A is added to: "blk.0.attn_q.weight" */
    int expert;       /* the one of a stack; -1: a and b are stacks themselves, or the tensor is none */
    float scale;      /* what B A is times: alpha / r, or as use_rslora says */
    const struct tensor *a, *b;
};
struct adapter_vector {
    int layer;
    const struct tensor *t;
};

struct adapterfile {
    const char *path;
    bool folder; /* rows of q and k are those of Hugging Face */
    struct adapter_pair *pair;
    struct adapter_vector *vector;
    size_t n_pair, n_vector;
    /* private */
    struct tensorfile *gguf;
    struct mapfile map;
    struct tensor *tensor;
    size_t n_tensor;
    struct arena arena;
};

/* a: the architecture of the model that it is for, of n_layer layers. errors: INFER_E_IO, INFER_E_INPUT (broken; of another architecture; a
 * matrix without its partner), INFER_E_UNSUPPORTED (names what it asks for beyond pairs: DoRA, modules_to_save ..), INFER_E_MEMORY */
enum infer_status adapterfile_open(struct adapterfile **out, const char *path, const struct arch *a,
                                   int n_layer);
void adapterfile_close(struct adapterfile *f);

/* ---- private to adapterfile.c and peft.c ---- */

/* t is one half of the pair of that tensor (and expert), which is made where it is not there yet; pair has room. errors: INFER_E_INPUT
 * (the half is there) */
enum infer_status adapterfile_put(struct adapterfile *f, struct strmap *index, const char *name, int expert,
                                  bool is_b, const struct tensor *t, struct adapter_pair **out);
/* f->path is a folder: its pairs into f. */
enum infer_status peft_read(struct adapterfile *f, const struct arch *a, int n_layer);
