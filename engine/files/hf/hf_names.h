/* The names of Hugging Face's tensors: which of GGUF's each stands for, and what is to be done with its elements. */
#pragma once
#include "arch/arch.h"

struct hf_target {
    char name[320]; /* GGUF's; "" where nothing is computed with the tensor; its own where it is not known */
    enum hf_op op;
    int layer; /* -1: outside of the layers */
    int index; /* HF_STACK: which row */
    bool known;
    bool other;  /* of images or sound */
    bool drafts; /* of layers that draft, which the architecture does not read */
};
/* Tensors of whole numbers that something is computed with: experts of ids, what runs of tokens are hashed with. */
bool hf_whole_numbers(const char *name);
/* a NULL: by the common names alone. n_layer: of the model, behind which those are that draft. */
void hf_target(struct hf_target *out, const struct arch *a, const char *name, int n_layer);
