/* Types of the members of tokenizer.json and tokenizer_config.json. */
#pragma once
#include <jansson.h>
#include "base/status.h"

/* Every member that is read, or stands beside such, is of the type that the format has or null; vocab and merges may be cut out.
 * errors: INFER_E_INPUT names the member, where it stands and its type */
enum infer_status tok_types_json(const json_t *root);
enum infer_status tok_types_config(const json_t *config); /* NULL: none */
