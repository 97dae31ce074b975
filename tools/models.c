/* infer help models: what runs, from the tables of architectures and element types. */
#include "models/registry.h"
#include "quant/quant.h"
#include "tools/options.h"

#include <string.h>

static void print_classes(FILE *out, const struct arch *a) {
    const char *last = "";
    for (const struct arch_hf *hf = a->hf; hf->model_type; hf++) {
        if (strcmp(hf->model_type, last) != 0) fprintf(out, "%s%s", *last ? ", " : "", hf->model_type);
        last = hf->model_type;
    }
}

void help_models(FILE *out) {
    const struct arch *a;
    fputs("Architectures (general.architecture of a GGUF file; 'infer inspect FILE' prints it):\n", out);
    for (int i = 0; (a = arch_at(i)); i++) fprintf(out, "    %-13s %s\n", a->name, a->families);
    fputs("\nFolders of Hugging Face: config.json with one of these under model_type, *.safetensors in F32, "
          "F16 or\n"
          "BF16, or quantised by GPTQ, AWQ, AutoRound, compressed-tensors, FP8, bitsandbytes or modelopt;\n"
          "tokenizer.json or tokenizer.model:\n",
          out);
    for (int i = 0; (a = arch_at(i)); i++) {
        fprintf(out, "    %-13s ", a->name);
        print_classes(out, a);
        fputc('\n', out);
    }
    fputs("\nFiles: GGUF version 2 and 3, whole or split. Element types:\n   ", out);
    for (int q = 0; q < QUANT_COUNT; q++) fprintf(out, " %s", quant_info((enum quant_type)q)->name);
    fputs("\n\nA file with a key that is not known here is refused by name, see --ignore-key.\n", out);
}
