// LINK_PLAIN: the programs run it themselves.
#include "cuda/run/decode_program_impl.h"
#include "cuda/run/prompt_program_impl.h"

const struct decode_code decode_plain = {};
const struct prompt_code prompt_plain = {};
