/* Fields of the APIs of others that change an answer and are not done here: of vLLM, SGLang, llama.cpp's server, TGI, ollama and OpenAI. Each
 * is let through with the value that asks for nothing, and refused by its name with any other: an answer that leaves it out would be
 * another one than was asked for. */
#include <math.h>
#include <string.h>
#include "serve/api/fields.h"

/* What is true where nobody says anything. */
static enum infer_status read_true(struct job *j, const char *at, const json_t *v) {
    return json_is_true(v)
               ? INFER_OK
               : job_refuse(j, 400, "unsupported_parameter", at, "'%s' can only be true here", at);
}

/* DRY stops at the texts that it stops at where nobody says anything. */
static enum infer_status read_breakers(struct job *j, const char *at, const json_t *v) {
    static const char *const own[] = {"\n", ":", "\"", "*"};
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        for (size_t k = 0; s && k < 4; k++) n += strcmp(own[k], s) == 0;
    }
    return json_is_array(v) && (json_array_size(v) == 0 || (n == 4 && json_array_size(v) == 4))
               ? INFER_OK
               : job_refuse(j, 400, "unsupported_parameter", at,
                            "'%s' can only be the usual four: newline, colon, quote, star", at);
}

/* Two numbers that ask for nothing, beside false, "", [] and {}. */
#define UNDONE(name, a, b)                                                                                   \
    { name, FIELD_NEUTRAL, a, b, 0, false, NULL, NULL }
#define UNDONE_FOR(name, a, b, why)                                                                          \
    { name, FIELD_NEUTRAL, a, b, 0, false, NULL, why }

const struct field fields_undone[] = {
    /* how tokens are chosen */
    UNDONE_FOR("use_beam_search", 0, 0, "is not done here: an answer is drawn token by token"),
    UNDONE("length_penalty", 1, 0),
    UNDONE("early_stopping", 0, 0),
    UNDONE_FOR("best_of", 1, 1, "is not done here: ask for 'n' and choose"),
    UNDONE("logits_processors custom_logit_processor custom_params", NAN, NAN),
    UNDONE("watermark min_keep", 0, 0),
    UNDONE("tfs_z", 1, 1),
    UNDONE("adaptive_target", -1, -1),
    UNDONE("top_a eta_cutoff epsilon_cutoff smoothing_factor", 0, 0),
    UNDONE("guidance_scale", 1, 0),
    UNDONE("repetition_detection", NAN, NAN),
    {"dry_sequence_breakers", FIELD_HAND, .hand = read_breakers},
    /* another model */
    UNDONE_FOR("lora_path lora_request adapter adapter_id", NAN, NAN,
               "is not done here: 'lora' [{id, scale}] is, of the adapters of /lora-adapters"),
    UNDONE("rope_frequency_base", 0, 0),
    UNDONE("rope_frequency_scale", 0, 1),
    /* the prompt */
    UNDONE_FOR("truncate_prompt_tokens", -1, -1, "is not done here: nothing of a prompt is cut off"),
    UNDONE_FOR("truncate", 0, 0, "is not done here: nothing of a prompt is cut off"),
    UNDONE("prompt_embeds image_data multimodal_data documents mm_processor_kwargs tool_prompt", NAN, NAN),
    UNDONE("n_indent", 0, 0),
    /* how the answer ends, and its form */
    UNDONE("include_stop_str_in_output no_stop_trim stop_regex", NAN, NAN),
    UNDONE_FOR("regex", NAN, NAN, "is not done here: a grammar or a schema is"),
    UNDONE_FOR("ebnf", NAN, NAN, "is not done here: 'grammar' in GBNF is"),
    UNDONE("structural_tag guided_whitespace_pattern whitespace_pattern", NAN, NAN),
    UNDONE("grammar_lazy", 0, 0),
    UNDONE("grammar_triggers", NAN, NAN),
    UNDONE("thinking_forced_open", 0, 0),
    {"spaces_between_special_tokens detokenize parse_tool_calls separate_reasoning", FIELD_HAND,
     .hand = read_true},
    /* what is told of it */
    UNDONE_FOR("prompt_logprobs", NAN, NAN,
               "is not done here: 'echo' with 'logprobs' of /v1/completions scores a prompt"),
    UNDONE("logprob_token_ids", NAN, NAN),
    UNDONE("decoder_input_details top_n_tokens return_tokens_as_token_ids flat_logprobs", 0, 0),
    UNDONE("post_sampling_probs return_full_text return_hidden_states debug_render_only", 0, 0),
    /* elsewhere */
    UNDONE("kv_transfer_params vllm_xargs mcp_servers", NAN, NAN),
    UNDONE_FOR("web_search_options", NAN, NAN, "is not done here: nothing is searched"),
    {.name = NULL},
};
