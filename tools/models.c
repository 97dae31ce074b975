/* infer help models: what runs, from the tables of architectures and element types. */
#include "models/registry.h"
#include "quant/quant.h"
#include "tools/options.h"
#include "tools/term.h"

#include <string.h>

/* name and what it stands for, in lines of the window's width */
static void row(FILE *out, const char *name, const char *text) {
    fprintf(out, "    %-13s ", name);
    term_hang(out, text, 18, term_columns(out));
}
static void paragraph(FILE *out, const char *text) { term_hang(out, text, 0, term_columns(out)); }

static void print_classes(FILE *out, const struct arch *a) {
    char line[1024] = "";
    int n = 0;
    const char *last = "";
    for (const struct arch_hf *hf = a->hf.models; hf->model_type; hf++) {
        if (strcmp(hf->model_type, last) != 0 && n < (int)sizeof line)
            n += snprintf(line + n, sizeof line - (size_t)n, "%s%s", *last ? ", " : "", hf->model_type);
        last = hf->model_type;
    }
    row(out, a->name, line);
}

void help_models(FILE *out) {
    const struct arch *a;
    char types[1024] = "";
    int n = 0;
    paragraph(out, "Architectures (general.architecture of a GGUF file; 'infer inspect FILE' prints it):");
    for (int i = 0; (a = arch_at(i)); i++) row(out, a->name, a->families);
    fputc('\n', out);
    paragraph(
        out, "Folders of Hugging Face: config.json with one of these under model_type, *.safetensors in F32, "
             "F16 or "
             "BF16, or quantised by GPTQ, AWQ, AutoRound, compressed-tensors, FP8, bitsandbytes or modelopt; "
             "tokenizer.json or tokenizer.model:");
    for (int i = 0; (a = arch_at(i)); i++) print_classes(out, a);
    fputs("\nFiles: GGUF version 2 and 3, whole or split. Element types:\n    ", out);
    for (int q = 0; q < QUANT_COUNT && n < (int)sizeof types; q++)
        n += snprintf(types + n, sizeof types - (size_t)n, "%s%s", q ? " " : "",
                      quant_info((enum quant_type)q)->name);
    term_hang(out, types, 4, term_columns(out));
    fputc('\n', out);
    paragraph(out, "A file with a key that is not known here is refused by name, see --ignore-key.");
}
