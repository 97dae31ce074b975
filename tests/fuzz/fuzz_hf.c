/* A folder of Hugging Face: the first byte says which of its files the rest is (config.json, the index, a file of
 * tensors), and by which method its weights are quantised; the others are whole. */
#include "files/json.h"
#include "base/mem.h"
#include "files/tensorfile.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[3] = {"config.json", "model.safetensors.index.json", "a.safetensors"};
static const char *const methods[] = {
    "",
    ", \"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}",
    ", \"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}",
    ", \"quantization_config\": {\"quant_method\": \"fp8\"}",
    ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\"}",
    ", \"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}",
    (", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
     "\"pack-quantized\", \"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4}}}}")};
enum { N_METHOD = sizeof methods / sizeof *methods };
static const char config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"intermediate_size\": 8,"
    " \"vocab_size\": 4, \"num_attention_heads\": 2, \"max_position_embeddings\": 64, \"rms_norm_eps\": "
    "1e-5%s}";
static const char index_text[] = "{\"weight_map\": {\"a\": \"a.safetensors\"}}";
static const char tensors[] =
    "\x37\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}} 12345678";

static volatile uint64_t sink;
static char folder[64];

static void remove_folder(void) {
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void put(int i, const void *data, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n) abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (!*folder) {
        json_use_mem();
        strcpy(folder,
               access("/dev/shm", W_OK) == 0 ? "/dev/shm/infer-fuzz-XXXXXX" : "/tmp/infer-fuzz-XXXXXX");
        if (!mkdtemp(folder)) abort();
        atexit(remove_folder);
    }
    static int last = -1; /* the file that is not whole, and the method */
    int which = data[0] % 3, now = data[0] % (3 * N_METHOD);
    if (last != now) {
        char text[sizeof config + 256];
        put(0, text, (size_t)snprintf(text, sizeof text, config, methods[now / 3]));
        put(1, index_text, sizeof index_text - 1);
        put(2, tensors, sizeof tensors - 1);
        last = now;
    }
    put(which, data + 1, size - 1);
    struct tensorfile *f;
    const struct tensorfile_options options = {.no_mmap = true};
    if (tensorfile_open(&f, folder, &options) != INFER_OK) {
        if (!*err_message() || strchr(err_message(), '\n')) __builtin_trap();
        return 0;
    }
    for (size_t i = 0; i < f->n_tensor; i++) {
        if (tensorfile_find(f, f->tensor[i].name) != &f->tensor[i]) __builtin_trap();
        for (size_t k = 0; k < f->tensor[i].bytes; k++) sink += ((const unsigned char *)f->tensor[i].data)[k];
        for (int64_t k = 0; f->tensor[i].columns && k < f->tensor[i].shape[3]; k++)
            if (f->tensor[i].columns[k] < 0 || f->tensor[i].columns[k] >= f->tensor[i].shape[3])
                __builtin_trap();
    }
    for (size_t i = 0; i < f->n_meta; i++)
        if (f->meta[i].type != META_STRING) sink += (uint64_t)meta_elem_i64(&f->meta[i], 0);
    tensorfile_close(f);
    return 0;
}
