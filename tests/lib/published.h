/* config.json of published models, whole, but for the sizes, which are tiny; ' stands for ". source: the model pages */
#pragma once

/* clang-format off */
#define SIZES \
    "'hidden_size': 32, 'intermediate_size': 24, 'num_attention_heads': 2, 'num_hidden_layers': 2, " \
    "'num_key_value_heads': 1, 'vocab_size': 19, "

static const char *const published[] = {
    /* Llama 3.1 8B Instruct */
    "{'architectures': ['LlamaForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0, 'bos_token_id': 18, 'eos_token_id': [16, 17], "
    "'hidden_act': 'silu', 'initializer_range': 0.02, 'max_position_embeddings': 131072, 'mlp_bias': false, 'model_type': 'llama', "
    "'pretraining_tp': 1, 'rms_norm_eps': 1e-05, 'rope_scaling': {'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
    "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}, 'rope_theta': 500000.0, 'tie_word_embeddings': false, 'torch_dtype': "
    "'bfloat16', " SIZES
    "'transformers_version': '4.42.3', 'use_cache': true}",
    /* Llama 2 7B chat; no rope_theta */
    "{'_name_or_path': 'meta-llama/Llama-2-7b-chat-hf', 'architectures': ['LlamaForCausalLM'], 'bos_token_id': 1, 'eos_token_id': 2, "
    "'hidden_act': 'silu', 'initializer_range': 0.02, 'max_position_embeddings': 4096, 'model_type': 'llama', 'pretraining_tp': 1, "
    "'rms_norm_eps': 1e-05, 'rope_scaling': null, 'tie_word_embeddings': false, " SIZES
    "'torch_dtype': 'float16', 'transformers_version': '4.32.0.dev0', 'use_cache': true}",
    /* LLaMA 7B of 2023 */
    "{'architectures': ['LLaMAForCausalLM'], 'bos_token_id': 0, 'eos_token_id': 1, 'hidden_act': 'silu', 'initializer_range': 0.02, "
    "'max_position_embeddings': 2048, 'max_sequence_length': 2048, 'model_type': 'llama', 'pad_token_id': -1, 'rms_norm_eps': 1e-06, "
    "'torch_dtype': 'float16', " SIZES
    "'transformers_version': '4.27.0.dev0', 'use_cache': true}",
    /* SmolLM2 135M Instruct */
    "{'architectures': ['LlamaForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, "
    "'hidden_act': 'silu', 'initializer_range': 0.041666666666666664, 'is_llama_config': true, 'max_position_embeddings': 8192, 'mlp_bias': "
    "false, 'model_type': 'llama', 'pad_token_id': 2, 'pretraining_tp': 1, 'rms_norm_eps': 1e-05, 'rope_interleaved': false, 'rope_scaling': "
    "null, 'rope_theta': 100000, " SIZES
    "'tie_word_embeddings': true, 'torch_dtype': 'bfloat16', 'transformers.js_config': {'kv_cache_dtype': {'q4f16': 'float16', 'fp16': "
    "'float16'}}, 'transformers_version': '4.42.3', 'use_cache': true}",
    /* Llama 3.2 1B, as unsloth saves it; biases as in a few relatives */
    "{'_name_or_path': 'unsloth/Llama-3.2-1B', '_attn_implementation_autoset': true, 'architectures': ['LlamaForCausalLM'], 'attention_bias': "
    "true, 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, 'head_dim': 16, 'hidden_act': 'silu', 'initializer_range': 0.02, "
    "'max_position_embeddings': 131072, 'mlp_bias': false, 'model_type': 'llama', 'pad_token_id': 4, 'pretraining_tp': 1, 'rms_norm_eps': "
    "1e-05, 'rope_scaling': {'factor': 32.0, 'high_freq_factor': 4.0, 'low_freq_factor': 1.0, 'original_max_position_embeddings': 8192, "
    "'rope_type': 'llama3'}, 'rope_theta': 500000.0, 'tie_word_embeddings': true, 'torch_dtype': 'bfloat16', " SIZES
    "'transformers_version': '4.48.2', 'unsloth_fixed': true, 'unsloth_version': '2024.9', 'use_cache': true}",
    /* Mistral 7B v0.1 */
    "{'architectures': ['MistralForCausalLM'], 'bos_token_id': 1, 'eos_token_id': 2, 'hidden_act': 'silu', 'initializer_range': 0.02, "
    "'max_position_embeddings': 32768, 'model_type': 'mistral', 'rms_norm_eps': 1e-05, 'rope_theta': 10000.0, 'sliding_window': 4096, "
    "'tie_word_embeddings': false, 'torch_dtype': 'bfloat16', " SIZES
    "'transformers_version': '4.34.0.dev0', 'use_cache': true}",
    /* Mistral 7B v0.3 */
    "{'architectures': ['MistralForCausalLM'], 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, 'head_dim': 16, 'hidden_act': "
    "'silu', 'initializer_range': 0.02, 'max_position_embeddings': 32768, 'model_type': 'mistral', 'rms_norm_eps': 1e-05, 'rope_theta': "
    "1000000.0, 'sliding_window': null, 'tie_word_embeddings': false, " SIZES
    "'torch_dtype': 'bfloat16', 'transformers_version': '4.42.0.dev0', 'use_cache': true}",
    /* Qwen2.5 with the YaRN that its page tells to add */
    "{'architectures': ['Qwen2ForCausalLM'], 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, 'hidden_act': 'silu', "
    "'initializer_range': 0.02, 'max_position_embeddings': 32768, 'max_window_layers': 28, 'model_type': 'qwen2', 'rms_norm_eps': 1e-06, "
    "'rope_theta': 1000000.0, 'sliding_window': 131072, " SIZES
    "'tie_word_embeddings': false, 'torch_dtype': 'bfloat16', 'transformers_version': '4.43.1', 'use_cache': true, 'use_sliding_window': "
    "false, 'rope_scaling': {'factor': 4.0, 'original_max_position_embeddings': 32768, 'type': 'yarn'}}",
    /* DeepSeek-R1-Distill-Qwen 1.5B */
    "{'architectures': ['Qwen2ForCausalLM'], 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, 'hidden_act': 'silu', "
    "'initializer_range': 0.02, 'max_position_embeddings': 131072, 'max_window_layers': 21, 'model_type': 'qwen2', 'rms_norm_eps': 1e-06, "
    "'rope_theta': 10000, 'sliding_window': 4096, 'tie_word_embeddings': false, 'torch_dtype': 'bfloat16', 'transformers_version': '4.44.0', "
    "'use_cache': true, 'use_mrope': false, " SIZES
    "'use_sliding_window': false}",
    /* Qwen3 0.6B */
    "{'architectures': ['Qwen3ForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, "
    "'head_dim': 24, 'hidden_act': 'silu', 'initializer_range': 0.02, 'max_position_embeddings': 40960, 'max_window_layers': 28, 'model_type': "
    "'qwen3', 'rms_norm_eps': 1e-06, 'rope_scaling': null, 'rope_theta': 1000000, 'sliding_window': null, 'tie_word_embeddings': true, "
    "'torch_dtype': 'bfloat16', " SIZES
    "'transformers_version': '4.51.0', 'use_cache': true, 'use_sliding_window': false}",
    /* the same from transformers 5, with every parameter that YaRN has */
    "{'architectures': ['Qwen3ForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0, 'bos_token_id': null, 'dtype': 'bfloat16', "
    "'eos_token_id': 2, 'head_dim': 24, 'hidden_act': 'silu', 'initializer_range': 0.02, 'layer_types': ['full_attention', 'full_attention'], "
    "'max_position_embeddings': 40960, 'max_window_layers': 28, 'model_type': 'qwen3', 'pad_token_id': null, 'rms_norm_eps': 1e-06, "
    "'rope_parameters': {'rope_theta': 1000000, 'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 32768, 'beta_fast': "
    "32.0, 'beta_slow': 1.0, 'mscale': 0.8, 'mscale_all_dim': 0.5, 'truncate': true, 'partial_rotary_factor': 1.0}, " SIZES
    "'sliding_window': null, 'tie_word_embeddings': false, 'transformers_version': '5.2.0', 'use_cache': true, 'use_sliding_window': false}",
    /* DeepSeek-R1-0528-Qwen3 8B */
    "{'architectures': ['Qwen3ForCausalLM'], 'attention_bias': false, 'attention_dropout': 0.0, 'bos_token_id': 1, 'eos_token_id': 2, "
    "'head_dim': 24, 'hidden_act': 'silu', 'initializer_range': 0.02, 'max_position_embeddings': 131072, 'max_window_layers': 36, "
    "'model_type': 'qwen3', 'rms_norm_eps': 1e-06, 'rope_scaling': {'attn_factor': 0.8782488562869419, 'factor': 4.0, "
    "'original_max_position_embeddings': 32768, 'rope_type': 'yarn'}, 'rope_theta': 1000000, 'sliding_window': null, "
    "'tie_word_embeddings': false, 'torch_dtype': 'bfloat16', " SIZES
    "'transformers_version': '4.51.0', 'use_cache': true, 'use_sliding_window': false}",
};
/* clang-format on */
