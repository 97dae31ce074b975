#!/usr/bin/env bash
# The program as a user meets it: exit codes, what goes to stdout and to stderr, bad flags and files, pipes, UTF-8.
# usage: cli.sh INFER TESTS      (ctest gives both: the program and the folder tests/)
set -u
infer=$(realpath "$1") tests=$(realpath "$2")
llama=$tests/golden/chat/chat-llama.gguf
dir=$(mktemp -d) failed=0 count=0
trap 'rm -rf "$dir"' EXIT
unset INFER_MODEL
export HOME=$dir XDG_CACHE_HOME=$dir/cache XDG_STATE_HOME=$dir/state

fail() { echo "FAILED: $name: $*"; sed 's/^/    stderr: /' "$dir/err" | head -5; failed=$((failed + 1)); }
# run NAME CODE COMMAND...: runs it with stdin from $input (default: nothing), checks the exit code
run() {
    name=$1 want=$2; shift 2
    count=$((count + 1))
    printf '%s' "${input-}" | timeout 60 "$@" >"$dir/out" 2>"$dir/err"
    local code=${PIPESTATUS[1]}
    [ "$code" = "$want" ] || fail "exit code $code, not $want"
}
out() { printf '%s' "$1" | cmp -s - "$dir/out" || fail "stdout is '$(head -c 200 "$dir/out")', not '$1'"; }
answer() { out "$1"$'\n'; }
out_has() { grep -qF -- "$1" "$dir/out" || fail "stdout lacks '$1'"; }
err_has() { grep -qF -- "$1" "$dir/err" || fail "stderr lacks '$1'"; }
err_lines() { [ "$(wc -l <"$dir/err")" = "$1" ] || fail "$(wc -l <"$dir/err") lines on stderr, not $1"; }
out_lacks() { ! grep -qF -- "$1" "$dir/out" || fail "stdout has '$1'"; }
out_empty() { [ ! -s "$dir/out" ] || fail "stdout is not empty"; }
err_empty() { [ ! -s "$dir/err" ] || fail "stderr is not empty"; }

# ---- help and flags
run "no arguments, nothing on stdin" 2 "$infer"; out_empty; err_has "there is no prompt: -p TEXT"; err_lines 1
run "no arguments, /dev/null" 2 bash -c '"$1" </dev/null' - "$infer"; out_empty; err_has "there is no prompt"; err_lines 1
run "help" 0 "$infer" help; out_has "run"
run "help of a command" 0 "$infer" help run; out_has "--temp X"; out_has "greedy"
run "help: what runs" 0 "$infer" help models; out_has "SmolLM2"; out_has "mistral"; out_has " iq4_nl"; err_empty
run "--help of a command" 0 "$infer" run --help; out_has "--temp X"; out_has "'infer help run --all' lists "
out_lacks "--min-p X"
run "--help of a command: all" 0 "$infer" run --help --all; out_has "--min-p X"
run "help of a command: all" 0 "$infer" help run --all; out_has "--min-p X"; out_lacks "lists "
[ "$(sed -n '/^Common options:$/,/^$/p' "$dir/out" | wc -l)" -gt 10 ] || fail "the common options do not come first"
for c in help "help models" "help --all" $("$infer" help | sed -n 's/^    \([a-z]*\)  .*/help_\1 help_\1_--all/p'); do
    run "infer ${c//_/ }: 80 columns" 0 "$infer" ${c//_/ }
    [ "$(wc -L <"$dir/out")" -le 80 ] || fail "a line of $(wc -L <"$dir/out") columns"
done
run "markdown" 0 "$infer" help --markdown; out_has '| `-m, --model FILE` |'
for flag in --version -v version; do run "$flag" 0 "$infer" $flag; out_has "infer 0."; done
run "help of nothing" 2 "$infer" help nosuch; out_empty; err_has "'infer help' lists them"; err_lines 1
run "unknown command" 2 "$infer" chta; out_empty; err_has "did you mean 'chat'"; err_lines 1
run "unknown flag" 2 "$infer" run --tmep 1; out_empty; err_has "did you mean '--temp'"; err_lines 1
run "flag of another command" 2 "$infer" plan --temp 1; err_has "plan takes no --temp ('infer run' does)"; err_lines 1
run "a longer flag" 2 "$infer" run --top-kk 1; err_has "did you mean '--top-k'"
run "nothing is near" 2 "$infer" run --xy; err_has "no flag '--xy'; 'infer help run' lists them"
run "nothing is near: a short one" 2 "$infer" run -xa on; err_has "no flag '-xa'; 'infer help run' lists them"
run "a file for a command" 2 "$infer" "$llama"; err_has "infer -m $llama"; err_lines 1
run "quantize without a type" 2 "$infer" quantize "$llama" "$dir/q.gguf"; err_has "TYPE or --bpw X is missing"; err_lines 1
run "quantize: the type before the file" 2 "$infer" quantize "$llama" q8_0 "$dir/q.gguf"; err_has "the type comes last"; err_lines 1
run "quantize: two types" 2 "$infer" quantize "$llama" "$dir/q.gguf" q8_0 --type q8_0; err_has "given twice"; err_lines 1
run "quantize: the type behind the files" 0 "$infer" quantize "$llama" "$dir/q.gguf" Q4_K_M -q; err_empty
cp "$dir/q.gguf" "$dir/q1.gguf"
run "quantize: a type in capitals" 0 "$infer" quantize "$llama" "$dir/q.gguf" --type Q4_K_M -q; cmp -s "$dir/q.gguf" "$dir/q1.gguf" || fail "another file"
run "convert: the type behind the files" 0 "$infer" convert "$llama" "$dir/q.gguf" q4_k_m -q; cmp -s "$dir/q.gguf" "$dir/q1.gguf" || fail "another file"
run "quantize to an unknown type" 2 "$infer" quantize "$llama" "$dir/q.gguf" --type q9; err_has "'q9' is none of f32|f16"
run "synth without a shape" 2 "$infer" synth --type q8_0 -o "$dir/s.gguf"; err_has "--shape NAME is missing"; err_has "llama-8b"; err_lines 1
run "logits without tokens" 2 "$infer" logits -o "$dir/l.npy"; err_has "--tokens ID,.. is missing"; err_lines 1
run "imatrix without a text" 2 "$infer" imatrix -o "$dir/i.gguf"; err_has "--file FILE is missing"; err_lines 1
run "perplexity without a text" 2 "$infer" perplexity; err_has "--file FILE is missing"; err_lines 1
run "template without a case" 2 "$infer" template; err_has "--input FILE is missing"; err_lines 1
run "bench of nothing" 2 "$infer" bench -m "$llama" -p 0 -n 0,0; out_empty; err_has "nothing to measure"; err_lines 1
run "value missing" 2 "$infer" run --temp; err_has "--temp needs a value"
run "value not a number" 2 "$infer" run --temp warm -p x; err_has "'warm' is not a number"
run "value out of range" 2 "$infer" run --top-p 1.5 -p x; err_has "0 to 1"
run "value not among the choices" 2 "$infer" run --device gpu -p x; err_has "auto|cpu|cuda|cuda:N|ref"
run "flag takes no value" 2 "$infer" run --raw=1 -p x; err_has "takes no value"
run "argument too many" 2 "$infer" run hello you; err_has "too many"
# flags of other programs
run "--port" 2 "$infer" serve --port 8080; err_has "--listen 127.0.0.1:PORT"; err_lines 1
run "-cnv" 2 "$infer" -m "$llama" -cnv; err_has "'infer chat' talks"; err_lines 1
run "-b" 2 "$infer" run -b 512; err_has "--batch N"; err_lines 1
run "-fa off" 2 "$infer" run -fa off; err_has "-fa cannot be switched off here"; err_lines 1
run "--flash-attn=off" 2 "$infer" run --flash-attn=off; err_has "cannot be switched off"; err_lines 1
run "-ngl where no model runs" 2 "$infer" inspect "$llama" -ngl 4; err_has "-ngl is --gpu-layers here, and inspect does not take that"; err_lines 1
for flag in --lora-scaled --threads-batch -np -hff --api-key -ctk -ctv; do run "$flag" 2 "$infer" serve $flag x; err_has "$flag: here "; err_lines 1; done
run "an adapter of another model" 2 "$infer" run -m "$llama" -p x --lora "$tests/golden/adapter/phi3:0.5"; err_has "it is of another model"; err_lines 1
run "an adapter that is not there" 2 "$infer" run -m "$llama" -p x --lora none.gguf:2; err_has "none.gguf: No such file"; err_lines 1
run "merge without an adapter" 2 "$infer" merge "$llama" out.gguf; err_has "--lora FILE[:SCALE] is missing"; err_lines 1
run "flags that mean the same" 0 "$infer" -m "$llama" -p hello -q -ngl 0 --ctx-size 100 -ub 64 --predict 20 --n_predict 20 -n -1 --temperature 0 -s 3 -fa --jinja -fa on --no-display-prompt --repeat-last-n=32
answer "hi there!"; err_empty
run "a flag that means the same: its value" 2 "$infer" run --ctx-size x; err_has "--ctx: 'x' is not a whole number"; err_lines 1
run "beams" 2 "$infer" run -m "$llama" -p x --beams 4; err_has "beam search is not done here"; err_lines 1
run "escape in a flag" 2 "$infer" run --$'\e[31m'; err_has '\x1b'; err_lines 1

# ---- which model
run "no model" 2 "$infer" -p hello; out_empty; err_has "scripts/get-model"; err_lines 1
run "missing file" 2 "$infer" -m "$dir/none.gguf" -p hello; err_has "none.gguf"; err_lines 1
run "a folder" 2 "$infer" -m "$dir" -p hello; err_has "no config.json"; err_lines 1
run "an address" 2 "$infer" -m https://example.org/a/model.gguf -p hello; err_has "nothing is downloaded here"; err_lines 1
printf '\2\0\0\0\0\0\0\0{}' >"$dir/model.safetensors"
run "weights alone" 2 "$infer" -m "$dir/model.safetensors" -p hello; err_has "name the folder"; err_lines 1
mkdir "$dir/exl3"
sed '/"quant_method"/s/"gptq"/"exl3"/' "$tests/golden/hf/packed-gptq/config.json" >"$dir/exl3/config.json"
run "a folder of another method" 2 "$infer" -m "$dir/exl3" -p hello; out_empty; err_has "'exl3' are not supported; take a GGUF file"; err_lines 1
head -c 3000 "$llama" >"$dir/cut.gguf"
run "file cut short" 2 "$infer" -m "$dir/cut.gguf" -p hello; out_empty; err_has "cut.gguf"; err_lines 1
echo "not a model" >"$dir/text.gguf"
run "no model file" 2 "$infer" -m "$dir/text.gguf" -p hello; err_has "text.gguf"; err_lines 1
: >"$dir/empty.gguf"
"$infer" synth --shape tiny-tower --type f16 -o "$dir/tower.gguf" -q
run "empty file" 2 "$infer" -m "$dir/empty.gguf" -p hello; err_lines 1
mkdir -p "$dir/cache/infer/models"
ln -s "$llama" "$dir/cache/infer/models/SmolLM2-135M-Instruct.Q4_1.gguf"
sed 's/llama/llamb/g' "$llama" >"$dir/other.gguf"
run "another architecture" 2 "$infer" -m "$dir/other.gguf" -p hello; err_has "'llamb' is not supported"; err_has "nearest that is: llama, Llama 1"
err_has "infer help models"; err_lines 1
sed 's/llama.context_length/llama.kontext_length/' "$llama" >"$dir/key.gguf"
run "a key missing" 2 "$infer" -m "$dir/key.gguf" -p hello; err_lines 1
sed 's/llama.rope.freq_base/llama.rope.freq_bass/' "$llama" >"$dir/key.gguf"
run "a key unknown" 2 "$infer" -m "$dir/key.gguf" -p hello; out_empty; err_has "llama.rope.freq_bass"; err_has "--ignore-key"; err_lines 1
run "a key unknown to us alone" 0 "$infer" -m "$dir/key.gguf" -p hello --ignore-key llama.rope.freq_bass -q; answer "hi there!"; err_has "llama.rope.freq_bass"; err_lines 1
run "default model" 0 "$infer" -p hello -q; answer "hi there!"
export INFER_MODEL=$dir/none.gguf
run "INFER_MODEL wins over the default" 2 "$infer" -p hello; err_has "none.gguf"
run "-m wins over INFER_MODEL" 0 "$infer" -m "$llama" -p hello -q; answer "hi there!"
export INFER_MODEL=$llama

# ---- answers
run "an answer" 0 "$infer" run -p hello; answer "hi there!"; err_has "tok/s"; err_lines 1
run "quiet" 0 "$infer" -p hello --quiet; answer "hi there!"; err_empty
run "flags with =" 0 "$infer" --prompt=hello --quiet; answer "hi there!"
input=$'hello\n' run "no arguments, a text on stdin" 0 "$infer"; answer "hi there!"
input=$'hello\n' run "stdin" 0 "$infer" -q; answer "hi there!"
printf 'hello' >"$dir/prompt"
run "-f" 0 "$infer" -f "$dir/prompt" -q; answer "hi there!"
run "-p and -f" 2 "$infer" -f "$dir/prompt" -p x; err_lines 1
run "an argument is the prompt" 0 "$infer" run hello -q; answer "hi there!"
run "an argument behind --" 0 "$infer" run --show-prompt -n 1 -- -hello; err_has "-hello<|im_end|>"
run "an argument and -p" 2 "$infer" run hello -p x; err_has "both given"; err_lines 1
run "an argument and -f" 2 "$infer" run hello -f "$dir/prompt"; err_has "both given"; err_lines 1
run "a model for the prompt" 2 "$infer" run "$llama"; err_has "infer run -m $llama"; err_lines 1
run "a prompt for the command" 2 "$infer" "hello there"; err_has "infer run "; err_lines 1
rendered() { printf '%s\n' "<|im_start|>user" "$@" | cmp -s - <(sed -n '2,/<|im_end|>/p' "$dir/err") || fail "the prompt is $(sed -n '2,/<|im_end|>/p' "$dir/err")"; }
input=$'of stdin\n' run "a text on stdin comes before -p" 0 "$infer" -p "the prompt" --show-prompt -n 1; rendered "of stdin" "" "the prompt<|im_end|>"
input=$'of stdin' run "a text on stdin comes before an argument" 0 "$infer" run "the prompt" --show-prompt -n 1; rendered "of stdin" "" "the prompt<|im_end|>"
input=$'of stdin' run "-f - and -p" 0 "$infer" run "the prompt" -f - --show-prompt -n 1; rendered "of stdin" "" "the prompt<|im_end|>"
input=$'\n' run "nothing on stdin" 0 "$infer" -p "the prompt" --show-prompt -n 1; rendered "the prompt<|im_end|>"
printf 'one\ntwo\nthree\n' >"$dir/lines"
run "a file on stdin" 0 bash -c '"$1" -p "$2" --show-prompt -n 1 <"$3"' - "$infer" "the prompt" "$dir/lines"; rendered one two three "" "the prompt<|im_end|>"
run "a loop reads lines of its file" 0 bash -c 'while read -r line; do "$1" -p "$line" --show-prompt -n 1; done <"$2"' - "$infer" "$dir/lines"
[ "$(grep -c "^--- prompt:" "$dir/err")" = 3 ] || fail "not three prompts"
rendered "one<|im_end|>"
run "a writer that takes its time" 0 bash -c '{ sleep 1; echo of stdin; } | "$1" -p "$2" --show-prompt -n 1' - "$infer" "the prompt"; rendered "of stdin" "" "the prompt<|im_end|>"
mkfifo "$dir/open"
run "an open pipe that nobody writes to" 0 bash -c '"$1" -p hello -q <>"$2"' - "$infer" "$dir/open"; answer "hi there!"; err_has "nothing came from it"; err_lines 1
run "-f missing" 2 "$infer" -f "$dir/nothing"; err_has "nothing"
run "empty prompt" 2 "$infer" -q -p ""; err_has "the prompt is empty"
run "--raw: the bytes alone" 0 "$infer" -p "a b c a b c a b" -q --raw -n 4; out "iiii"
printf 'root ::= "\\n\\nyes\\n\\n\\n"' >"$dir/lines.gbnf"
run "one newline at the end" 0 "$infer" -p hello -q --grammar "$dir/lines.gbnf"; answer $'\n\nyes'
run "--raw: all newlines" 0 "$infer" -p hello -q --raw --grammar "$dir/lines.gbnf"; out $'\n\nyes\n\n\n'
printf 'start: "a"~2 B\nB: /[b-b]/\n' >"$dir/two.lark"
printf '{"type": "tag", "begin": "<", "content": {"type": "const_string", "value": "x"}, "end": ">"}' >"$dir/tag.json"
run "--regex" 0 "$infer" -p hello -q --regex '(ab){2}|(ab){2}'; answer abab
run "--regex: no such" 2 "$infer" -p hello -q --regex 'a(b'; err_has "--regex: regex, character 3: a group has no end"; err_lines 1
run "--lark-file" 0 "$infer" -p hello -q --temp 0 --lark-file "$dir/two.lark"; answer aab
run "--grammar: Lark" 0 "$infer" -p hello -q --temp 0 --grammar "$dir/two.lark"; answer aab
run "--structural-tag" 0 "$infer" -p hello -q --structural-tag "$dir/tag.json"; answer "<x>"
run "--regex beside --grammar" 2 "$infer" -p hello -q --regex a --grammar "$dir/lines.gbnf"; err_has "--grammar and --regex are both given"; err_lines 1
run "UTF-8" 0 "$infer" -p greet -q; answer "Grüße für 5 € 😀."
run "-f without end" 2 "$infer" -f /dev/zero -q; err_has "64 MiB, the most that a prompt may have"; err_lines 1
run "--template without end" 2 "$infer" -p x --template /dev/zero; err_has "1 MiB, the most that a chat template may have"; err_lines 1
run "--grammar without end" 2 "$infer" -p x --grammar /dev/zero; err_has "4 MiB, the most that a grammar may have"; err_lines 1
run "--json-schema without end" 2 "$infer" -p x --json-schema /dev/zero; err_has "16 MiB, the most that a JSON schema may have"
run "template --input without end" 2 "$infer" template --input /dev/zero; err_has "64 MiB, the most"; err_lines 1
run "a prompt that is no UTF-8" 2 "$infer" -q -p $'a\xff'; err_has "offset 1"
run "logprobs" 0 "$infer" -p hello --logprobs 2 -q -t 1; answer "hi there!"; err_has '100.0%  "h"  of  100.0% "h", '; mv "$dir/err" "$dir/err1"
run "logprobs: other threads" 0 "$infer" -p hello --logprobs 2 -q -t 2; answer "hi there!"
cmp -s <(grep -v 'threads asked for' "$dir/err") "$dir/err1" || fail "other figures with two threads"
run "logprobs: json" 0 "$infer" -p hello --logprobs 3 --json -q; out_has '"logprobs":[{"id":'; out_has '"top":[{"id":'
run "lookup with logprobs" 0 "$infer" -p hello --logprobs 0 --lookup -q; answer "hi there!"
run "several lines" 0 "$infer" -p lines -q; answer $'first\nsecond\n  third'
run "stop" 0 "$infer" -p count -q --stop four --stop nine; answer "one two three "
run "stop at the beginning" 0 "$infer" -p hello -q --stop hi; out ""
run "-n" 0 "$infer" -p count -q -n 3; [ "$(wc -c <"$dir/out")" -lt 12 ] || fail "more than 3 tokens"
run "-n 0" 0 "$infer" -p count -q -n0; out ""
run "one thread, ref" 0 "$infer" -p hello -q --device ref; answer "hi there!"
run "show the prompt" 0 "$infer" -p hello --show-prompt; answer "hi there!"; err_has "<|im_start|>"; err_has "279 277"
err_has "what ends an answer"; err_has "<|im_end|> (of the template)"
printf '%s' '{{ bos_token }}{{ bos_token }}{% for m in messages %}<|header|>{{ m.content }}<|done|>{% endfor %}' >"$dir/other.jinja"
sed 's/tokenizer.ggml.eos_token_id/tokenizer.ggml.bos_token_id/' "$llama" >"$dir/bos.gguf"
run "a template for another vocabulary" 0 "$infer" -m "$dir/bos.gguf" -p hello --show-prompt --template "$dir/other.jinja" --thinking off -n 1
err_has "two BOS"; err_has "(BOS) at 0 1"; err_has "as text: <|header|>, <|done|>"; err_has "with <|done|>, which is no token"; err_has "does not read enable_thinking"
run "a typed control token is text" 0 "$infer" -p '<|im_end|>' --show-prompt -n 1; err_has "[<]"
printf 'root ::= "<think>\\nhm\\n</think>\\n\\nyes"' >"$dir/think.gbnf"
run "thinking" 0 "$infer" -p hello --grammar "$dir/think.gbnf"; answer "yes"; err_has "hm"
run "thinking: folded" 0 "$infer" -p hello --grammar "$dir/think.gbnf" --thinking fold; answer "yes"; err_lines 1
run "thinking: shown" 0 "$infer" -p hello --grammar "$dir/think.gbnf" --thinking show -q; answer $'\nhm\n\nyes'; err_empty
run "thinking: json" 0 "$infer" -p hello --grammar "$dir/think.gbnf" --json -q; out_has '"answer":"yes"'; out_has '"thinking":"\nhm\n"'
input=$'hello\n/thoughts\n' run "chat: thinking" 0 "$infer" chat --grammar "$dir/think.gbnf" --thinking fold; out $'yes\n'; err_has "hm"
input=$'hello\n' run "chat: thinking shown" 0 "$infer" chat --grammar "$dir/think.gbnf" --thinking show; out $'\nhm\n\nyes\n'
run "json" 0 "$infer" -p hello --json -q; out_has '"answer":"hi there!"'; out_has '"ended_by":"turn"'
run "prompt longer than the context" 1 "$infer" -p "$(printf 'word %.0s' {1..500})" -q; out_empty; err_has "the context holds"
run "beyond the trained length" 0 "$infer" -p hello -q -c 1000; answer "hi there!"; err_has "beyond the 256"; err_lines 1
run "logits beyond it" 0 "$infer" logits --tokens "$(seq -s, 0 270)" -o "$dir/far.npy" -q; err_has "beyond the 256"; err_lines 1
run "bench beyond it" 0 "$infer" bench -p 400 -n 1 -r 1 -q; err_has "beyond the 256"; err_lines 1
run "context full" 1 "$infer" -p count -q --ctx 24; out_has "one two"; err_has "full"; err_lines 1
run "context shifted" 0 "$infer" -p count -q --ctx 24 --overflow shift -n 40; err_has "older half"
run "lookup: the same answer" 0 "$infer" -p count --lookup; answer "one two three four five six seven eight nine ten"; err_has "lookup"
run "lookup: the same tokens" 0 "$infer" -p "a b c a b c a b c a b" --raw -q -n 40; cp "$dir/out" "$dir/first"
run "lookup: the same tokens, again" 0 "$infer" -p "a b c a b c a b c a b" --raw -q -n 40 --lookup
cmp -s "$dir/out" "$dir/first" || fail "other text"
run "lookup: a seed's tokens" 0 "$infer" -p "a b c a b c a b c a b" --raw -q -n 40 --temp 2 --seed 5; cp "$dir/out" "$dir/first"
run "lookup: a seed's tokens, again" 0 "$infer" -p "a b c a b c a b c a b" --raw -q -n 40 --temp 2 --seed 5 --lookup
cmp -s "$dir/out" "$dir/first" || fail "other text"
run "draft: the same answer" 0 "$infer" -p count --draft "$llama"; answer "one two three four five six seven eight nine ten"; err_has "; draft "; err_has " tokens a step"
run "draft: json" 0 "$infer" -p count --draft "$llama" --json -q; out_has '"draft":{"guessed":'
input=$'count\n/stats\n' run "draft: chat" 0 "$infer" chat --draft "$llama"; err_has "; draft "; err_has " tokens a step"
run "draft: missing file" 2 "$infer" -p count --draft "$dir/none.gguf"; err_has "none.gguf"; err_lines 1
run "draft and lookup" 2 "$infer" -p count --draft "$llama" --lookup; err_has "one can guess"; err_lines 1
run "draft twice" 2 "$infer" -p count --draft "$llama" --draft "$llama"; err_has "--draft is given 2 times"; err_lines 1
head=$tests/golden/head/chat
for h in "$head" "$head.gguf"; do
    run "draft: a head" 0 "$infer" -p count --draft "$h" --device cpu --json -q; out_has '"answer":"one two three four five six seven eight nine ten"'; out_has '"draft":{"guessed":'
done
input=$'count\n/stats\n' run "draft: a head in chat" 0 "$infer" chat --draft "$head" --device ref; out_has "one two three four five"; err_has "; draft "
run "draft: a head, plan" 0 "$infer" plan --draft "$head"; out_has "--draft, beside it: eagle3 on "
run "draft: layers of its own on a card" 0 "$infer" plan -m "$tests/golden/hf/glm4_moe-draft" --draft mtp --as rtx-5090; out_has "--draft, beside it: glm4moe on cuda"
"$infer" synth --shape tiny-delta-moe-128 --type q8_0 --draft-layer -q -o "$dir/mtp.gguf"
run "draft: a layer that synth made" 0 "$infer" -m "$dir/mtp.gguf" -p hello --raw -q -n 40 --device cpu; cp "$dir/out" "$dir/first"
run "draft: it guesses" 0 "$infer" -m "$dir/mtp.gguf" -p hello --raw -q -n 40 --device cpu --draft mtp
cmp -s "$dir/out" "$dir/first" || fail "other text"
run "synth: no layer that drafts" 2 "$infer" synth --shape tiny --type q8_0 --draft-layer -o "$dir/none.gguf"; out_empty; err_has "shape tiny has no layer that drafts"; err_lines 1
run "draft: a head on a card" 2 "$infer" plan --draft "$head" --as rtx-5090; err_has "with a head (EAGLE-3) is not computed on a card yet"; err_lines 1
run "draft: another model's head" 2 "$infer" -p count --draft "$tests/golden/head/llama"; out_empty; err_has "drafts for a model whose rows have 32 numbers; those of "; err_lines 1
run "a head is no model" 2 "$infer" -m "$head" -p count; err_has "a head that drafts for another model"; err_lines 1
run "a head is not converted" 2 "$infer" convert "$head" "$dir/head.gguf" f32; err_has "a head that drafts for another model"; err_lines 1
run "nor quantised" 2 "$infer" quantize "$head.gguf" "$dir/head.gguf" q8_0; err_has "a head that drafts for another model"; err_lines 1
run "draft: plan" 0 "$infer" plan --draft "$llama"; out_has "--draft, beside it: llama on "; out_has "both together"
run "draft: plan as JSON" 0 "$infer" plan --draft "$llama" --json; out_has '"draft": {'
# token 97 is "a", and nothing else comes
same="--logit-bias 97=1000 -c 1024"
run "a loop is ended" 1 "$infer" -p hello $same; [ "$(wc -c <"$dir/out")" = 257 ] || fail "not 256 tokens"
err_has "repeats its last 1 token"; err_has "--repeat-penalty 1.1 may do better"; err_has "--loop-stop off"
run "a loop is ended: json" 1 "$infer" -p hello $same --json -q; out_has '"ended_by":"loop"'
run "a loop: -n" 0 "$infer" -p hello $same -n 400 -q; [ "$(wc -c <"$dir/out")" = 401 ] || fail "not 400 tokens"
run "a loop: --loop-stop off" 1 "$infer" -p hello $same --loop-stop off -q; err_has "the context of 1024 tokens is full"
printf 'root ::= "ab " root' >"$dir/loop.gbnf"
run "a loop of three tokens" 1 "$infer" -p hello -c 1024 --grammar "$dir/loop.gbnf"; err_has "its last 3 tokens"
input=$'hello\n/set loop-stop off\nhello\n' run "chat: a loop is ended" 1 "$infer" chat $same --temp 0
err_has "/set repeat-penalty 1.1 may do better"; err_has "context of 1024 tokens is full"
[ "$(head -n 1 "$dir/out" | wc -c)" = 257 ] || fail "not 256 tokens"
run "raw and system" 2 "$infer" -p x --raw --system y; err_lines 1
"$infer" synth --shape tiny --type f32 -o "$dir/f32.gguf" >/dev/null 2>&1
run "draft: another vocabulary" 2 "$infer" -p count --draft "$dir/f32.gguf"; out_empty; err_has "--draft: the vocabularies differ: token "; err_lines 1
drawn=(-m "$dir/f32.gguf" -p hello -q --raw --temp 0.8 --top-p 0.95 --seed 7 -n 20)
run "a seed's text" 0 "$infer" "${drawn[@]}" --device ref; cp "$dir/out" "$dir/first"
run "a seed's text, other backend" 0 "$infer" "${drawn[@]}" --device cpu; cmp -s "$dir/out" "$dir/first" || fail "other text"
run "a seed's text, with log probabilities" 0 "$infer" "${drawn[@]}" --logprobs 2; cmp -s "$dir/out" "$dir/first" || fail "other text"
run "seeds repeat" 0 "$infer" -p hello -q --temp 1.5 --seed 3 --raw -n 20; cp "$dir/out" "$dir/first"
run "seeds repeat, again" 0 "$infer" -p hello -q --temp 1.5 --seed 3 --raw -n 20; cmp -s "$dir/out" "$dir/first" || fail "other text"
if [ ! -e /proc/driver/nvidia ]; then
    for c in "-p hello" plan; do
        run "layers on a card that is not there: $c" 1 "$infer" ${c/-p/run -p} --gpu-layers 2; out_empty; err_has "--gpu-layers 2: this machine has no NVIDIA card"; err_lines 1
        run "experts beside a card that is not there: $c" 1 "$infer" ${c/-p/run -p} --cpu-experts 2; out_empty; err_has "--cpu-experts 2: this machine has no NVIDIA card"; err_lines 1
    done
    run "no layers on a card that is not there" 0 "$infer" -p hello --gpu-layers 0 -q; answer "hi there!"; err_empty
fi
run "layers on a card with --device cpu" 2 "$infer" -p hello --gpu-layers 2 --device cpu; err_has "--gpu-layers 2 goes with --device auto"; err_lines 1
run "a device in capitals" 0 "$infer" -p hello --device CPU -q; answer "hi there!"
cp "$llama" "$dir/kv.gguf"
run "kvtune: no table" 2 "$infer" -m "$dir/kv.gguf" -p hello --kv-type auto -q; err_has "infer kvtune -m $dir/kv.gguf -f TEXT"
for device in ref cpu; do
    run "kvtune on $device" 0 "$infer" kvtune -m "$dir/kv.gguf" -f "$tests/../docs/memory.md" -c 200 --kl 0.0005 --device $device -q; err_empty; out_has TAKEN
    grep -o '"kv_type[^}]*' "$dir/kv.gguf.kv.json" >"$dir/kv.$device"; grep TAKEN "$dir/out" | sed 's/.* f16/f16/' >>"$dir/kv.$device"
done
cmp "$dir/kv.ref" "$dir/kv.cpu" || fail "ref and cpu choose other types"
run "kvtune: used" 0 "$infer" -m "$dir/kv.gguf" -p hello --kv-type auto -q; err_empty
run "kvtune: planned" 0 "$infer" plan -m "$dir/kv.gguf" --kv-type auto:0.01; out_has "f8, pages of 64"
cp "$tests/golden/chat/chat-qwen2.gguf" "$dir/other.gguf"; cp "$dir/kv.gguf.kv.json" "$dir/other.gguf.kv.json"
run "kvtune: of another file" 2 "$infer" -m "$dir/other.gguf" -p hello --kv-type auto -q; err_has "is of another file"
run "kvtune with types" 2 "$infer" kvtune -m "$dir/kv.gguf" -f "$tests/../docs/memory.md" --kv-type f16; err_has "kvtune chooses the types"
# a folder whose attention chooses 12 positions, with a letter for each of its 61 tokens
mkdir "$dir/index"; cp "$tests"/golden/hf/glm_moe_dsa/{config.json,model.safetensors} "$dir/index"
letters=$(printf %s {a..z} {A..Z} {0..8})
for ((i = 0; i < 61; i++)); do printf '%s"%s":%d' "${i/#[1-9]*/,}" "${letters:i:1}" "$i"; done | sed 's/^0//' >"$dir/letters"
printf '{"version":"1.0","added_tokens":[],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{%s},"merges":[]}}' "$(cat "$dir/letters")" >"$dir/index/tokenizer.json"
for ((i = 0; i < 90; i++)); do printf %s "${letters:i * i % 59:2}"; done >"$dir/chosen"
run "kvtune of index keys" 0 "$infer" kvtune -m "$dir/index" -f "$dir/chosen" --kl 0.001 -q; err_empty; out_has TAKEN; out_has index.0-3:q5_0/q5_0; out_lacks "stay f16"
run "kvtune of index keys: used" 0 "$infer" plan -m "$dir/index" -c 64 --kv-type auto:50; out_has "MiB"
sed -i 's/"index_topk": 12/"index_topk": 64/' "$dir/index/config.json"
run "kvtune where all positions are chosen" 0 "$infer" kvtune -m "$dir/index" -f "$dir/chosen" -c 64 --kl 100 -q; err_empty; out_has "index keys of 3 layers stay f16: at 64 positions all are chosen"; out_lacks "index.0"
run "a longer context by yarn" 0 "$infer" plan -m "$llama" --ctx 1000 --rope-scaling yarn --rope-scale 4; out_has "1000 positions"
err_has "turned as asked, not as the file says: yarn scaling by 4 of 256 positions"; err_lines 1
run "by linear scaling, other words" 0 "$infer" -m "$llama" -p hello --ctx 1000 --rope-scaling linear --rope-scale 4 -q; err_has "linear scaling by 4"; err_lines 1; out_lacks "hi there!"
run "an own base" 0 "$infer" -m "$llama" -p hello --rope-freq-base 10 -q; err_has "base 10"; out_lacks "hi there!"
run "a scaling of no name" 2 "$infer" plan -m "$llama" --rope-scaling ntk; err_has "none of none|linear|yarn"
run "what is of yarn alone" 2 "$infer" plan -m "$llama" --yarn-beta-fast 3; err_has "are of --rope-scaling yarn"; err_lines 1
run "a KV type in capitals" 0 "$infer" -p hello --kv-type Q8_0 -q; err_empty
run "cuda is refused where there is none" 1 env INFER_MODEL="$llama" "$infer" -p hello --device CUDA -q
[ ! -s "$dir/out" ] || fail "an answer"
grep -q . "$dir/err" || fail "no reason"
if [ -e /proc/driver/nvidia ]; then count=$((count - 1)) failed=0; echo "(a card is here: the refusal of --device cuda is not tested)"; fi

# ---- pipes and full disks
name="closed pipe"; count=$((count + 1))
{ "$infer" -p count -q; echo "$?" >"$dir/code"; } 2>"$dir/err" | head -c 0 >"$dir/out"
err_empty
run "full disk" 1 bash -c '"$1" -p hello -q >/dev/full' - "$infer"; err_has "No space left"
run "stderr closed" 0 bash -c '"$1" -p hello 2>&-' - "$infer"; answer "hi there!"

# ---- a terminal
if script -qec true /dev/null >/dev/null 2>&1; then
    run "a terminal" 0 script -qec "$infer -p hello -q 2>/dev/null" /dev/null
    grep -q "hi there!" "$dir/out" || fail "no answer on a terminal"
    ! grep -q $'\x1b' "$dir/out" || fail "an escape on the terminal"
    run "a terminal, no arguments: help" 0 script -qec "$infer" /dev/null; out_has "Commands"
fi

# ---- scripts/run, with stand-ins for what it calls; they would eat the prompt
mkdir -p "$dir/top/scripts" "$dir/top/build"
cp "$tests/../scripts/run" "$dir/top/scripts/"
for part in setup build get-model; do printf '#!/bin/sh\ncat >/dev/null\necho %s >>"%s/called"\n' $part "$dir" >"$dir/top/scripts/$part"; done
chmod +x "$dir"/top/scripts/*
ln -s "$infer" "$dir/top/build/infer"
called() { [ "$(tr '\n' ' ' <"$dir/called")" = "$1" ] || fail "called $(tr '\n' ' ' <"$dir/called"), not $1"; rm -f "$dir/called"; }
input=$'hello\n' run "scripts/run: a pipe" 0 env -u INFER_MODEL "$dir/top/scripts/run"; answer "hi there!"; called "setup build get-model "
run "scripts/run: nothing" 2 bash -c 'exec "$1" </dev/null' - "$dir/top/scripts/run"; err_has "there is no prompt"; called "setup build "
run "scripts/run: help" 0 env -u INFER_MODEL "$dir/top/scripts/run" help; out_has "Commands"; called "setup build "

# ---- chat
input=$'hello\nand you?\n' run "chat" 0 "$infer" chat; out $'hi there!\nfine, thanks.\n'
input=$'hello\n/save '"$dir"$'/c.json\n/clear\n/load '"$dir"$'/c.json\nand you?\n' run "chat: save and load" 0 "$infer" chat -q
out $'hi there!\nfine, thanks.\n'; err_empty
input=$'/load '"$dir"$'/c.json\nand you?\n/stats\n' run "chat: nothing is computed again" 0 "$infer" chat
out $'fine, thanks.\n'; err_has "more were there"
input=$'/load '"$dir"$'/c.json\nand you?\n' run "chat: another KV type" 0 "$infer" chat --kv-type f32
out $'fine, thanks.\n'; err_has "computed again"; err_has "this is cpu"
head -c 1000 "$dir/c.json.kv" >"$dir/cut"; mv "$dir/cut" "$dir/c.json.kv"
input=$'/load '"$dir"$'/c.json\nand you?\n' run "chat: a broken cache" 0 "$infer" chat; out $'fine, thanks.\n'; err_has "broken"
input=$'hello\nhello\n/undo\nand you?\n/regen\n/quit\nhello\n' run "chat: undo, regen, quit" 0 "$infer" chat
[ "$(tail -n 2 "$dir/out")" = $'fine, thanks.\nfine, thanks.' ] || fail "stdout is $(cat "$dir/out")"
input=$'hello\n/stats\n/mem\n/help\n' run "chat: figures" 0 "$infer" chat; out $'hi there!\n'; err_has "context:"; err_has "/regen"
input=$'hello\n/edit hello\n/thoughts\n' run "chat: edit" 0 "$infer" chat; out $'hi there!\nhi there!\n'; err_has "nothing was thought"
input=$'/edit hello\n' run "chat: nothing to edit" 0 "$infer" chat; out ""; err_has "no message to edit yet"
input=$'hello\n/edit\n' run "chat: nobody can edit" 2 "$infer" chat; out $'hi there!\n'; err_has "/edit needs a text"
input=$'/save\n' run "chat: save needs a name" 2 "$infer" chat; err_has "/save needs a name: "
input=$'hello\n/save '"$dir"$'/d.json\nand you?\n/save\n' run "chat: saved again" 0 "$infer" chat; grep -q "and you?" "$dir/d.json" || fail "not saved again"
input=$'/nope\n' run "chat: unknown command" 2 "$infer" chat; err_has "no command '/nope'"
input=$'/load /nowhere\n' run "chat: file missing" 2 "$infer" chat; err_has "/nowhere"
input=$'/set temp -1\n' run "chat: bad setting" 2 "$infer" chat; err_has "0 to 100"
input=$'/set tmep 1\n' run "chat: unknown setting" 2 "$infer" chat; err_has "did you mean 'temp'"
input=$'/set temperature 1\n' run "chat: a longer name" 2 "$infer" chat; err_has "did you mean 'temp'"
input=$'/set temp\n/set n\n' run "chat: what a setting means" 0 "$infer" chat --temp 0.5; out ""
err_has "temp 0.5: temperature; 0 is greedy"; err_has "n-predict inf: most tokens"; err_has "0 to 1000000000 or inf"
input=$'/help se\n/hlep\n' run "chat: help of one" 2 "$infer" chat; err_has "/set [NAME [VALUE]]"; err_has "did you mean '/help'"
# what the file recommends: keys for a temperature of 0.6 and a top-p of 0.9, and one that fills up to 32 bytes
{
    head -c 16 "$llama"
    printf '\033\0\0\0\0\0\0\0\025\0\0\0\0\0\0\0general.sampling.temp\006\0\0\0\232\231\031\077'
    printf '\026\0\0\0\0\0\0\0general.sampling.top_p\006\0\0\0\146\146\146\077\001\0\0\0\0\0\0\0x\010\0\0\0\0\0\0\0\0\0\0\0'
    tail -c +25 "$llama"
} >"$dir/sampling.gguf"
input=$'/set temp\n/set top-p\n/set min-p\n' run "chat: as the file recommends" 0 "$infer" chat -m "$dir/sampling.gguf"
err_has "sampling: temp 0.6, top-p 0.9 (recommended by the file; --temp 0 for greedy)"; err_has "temp 0.6:"; err_has "top-p 0.9:"; err_has "min-p 0:"
input=$'/set temp\n/set top-p\n' run "chat: options win" 0 "$infer" chat -m "$dir/sampling.gguf" --top-p 0.5
err_has "sampling: temp 0.6 (recommended"; err_has "top-p 0.5:"
input=$'/set temp\n/set top-p\n' run "chat: greedy" 0 "$infer" chat -m "$dir/sampling.gguf" --temp 0; err_has "temp 0:"; err_has "top-p 1:"; err_lines 2
input=$'/set temp\n/set repeat-penalty\n' run "chat: nothing is recommended" 0 "$infer" chat; err_has "the file recommends nothing"; err_has "temp 0.5:"; err_has "repeat-penalty 1.1:"
told() { sed -n 's/.*; seed \([0-9]*\).*/\1/p' "$dir/err" | tail -n 1; }
hot=(run -m "$llama" -p "a b c" --raw -n 20)
run "a seed that nobody chose is told" 0 "$infer" "${hot[@]}" --temp 5; seed=$(told); cp "$dir/out" "$dir/first"; [ -n "$seed" ] || fail "no seed"
run "and another one is drawn each time" 0 "$infer" "${hot[@]}" --temp 5 --seed Random; [ -n "$(told)" ] && [ "$(told)" != "$seed" ] || fail "the same seed"
run "with it the answer is the same" 0 "$infer" "${hot[@]}" --temp 5 --seed "$seed"; [ "$(told)" = "$seed" ] && cmp -s "$dir/out" "$dir/first" || fail "another answer"
run "a seed: json" 0 "$infer" -p hello --grammar "$dir/lines.gbnf" --temp 5 --seed 7 --json -q; out_has '"seed":7'
run "greedy has no seed" 0 "$infer" "${hot[@]}" --seed 7; [ -z "$(told)" ] || fail "a seed"
input=$'hello\n/stats\n/set seed 5\nhello\n/stats\n/set seed random\nhello\n/stats\n' run "chat: the seed" 0 "$infer" chat --temp 5 -n 8
[ "$(grep -c '; seed [0-9]*$' "$dir/err")" = 3 ] && grep -q '; seed 5$' "$dir/err" && [ "$(told)" != 5 ] || fail "other seeds"
run "synth has a seed of its own" 0 "$infer" synth --shape tiny --type f32 -o "$dir/seed.gguf" -q; cmp -s "$dir/seed.gguf" "$dir/f32.gguf" || fail "another file"
run "synth writes an adapter" 0 "$infer" synth --adapter-of "$dir/f32.gguf" --lora-rank 3 -o "$dir/lora.gguf" -q
run "and one sequence has it, another another" 0 "$infer" bench -m "$dir/f32.gguf" --device cpu --threads 1 -p 0 -n 2 -b 2 -r 1 --lora "$dir/lora.gguf" --lora "$dir/lora.gguf:0.5" --lora-each
run "an adapter has its model's shapes" 2 "$infer" synth --adapter-of "$dir/f32.gguf" --shape tiny -o "$dir/lora.gguf"; err_has "not with --shape"; err_lines 1
run "run is greedy all the same" 0 "$infer" -m "$dir/sampling.gguf" -p hello; answer "hi there!"; err_lines 1
unset -v XDG_STATE_HOME
input=$'hello\n' run "chat: no home" 0 env -u HOME -u XDG_CACHE_HOME "$infer" chat -q; out $'hi there!\n'; err_empty
export XDG_STATE_HOME=$dir/state
if script -qec true /dev/null >/dev/null 2>&1; then
    on_terminal() { run "$1" "$2" env TERM=xterm script -qec "stty cols ${3}; $infer chat" /dev/null; }
    input=$'/sta\t\r/set ov\ts\t\rhello\r/undo\r/clear\r/system x\r/system none\r/se\tthinki\th\t\r' on_terminal "chat on a terminal" 0 80
    out_has "no answer yet"; out_has "overflow is shift (it was error)"; out_has "your last message and its answer are taken back; none is left"; out_has "conversation is empty"
    out_has "the system message is set"; out_has "there is no system message now"; out_has "thinking is hide"
    input=$'hello\rhello\r/undo\r' on_terminal "chat on a terminal: undo" 0 80; out_has "taken back; 1 of yours is left"
    run "help in the window's width" 0 script -qec "stty cols 60; $infer help run" /dev/null; out_has "answer a prompt"
    [ "$(tr -d '\r' <"$dir/out" | wc -L)" -le 60 ] || fail "a line of over 60 columns"
    input=$'/set xtc-threshold\r' on_terminal "chat: words are whole" 0 40; out_has $'on a token is likely for that; 0 \r\nto 1'
    input=$'hello\r' HOME=/nowhere XDG_STATE_HOME= on_terminal "chat on a terminal: no home" 0 80; out_has "hi there!"
fi
input=$'/set n-predict 2\n/set\nhello\n' run "chat: setting" 0 "$infer" chat; out $'hi\n'; err_has "n-predict 2"
input=$'hello\nand you?\nhello\nand you?\nhello\nand you?\n' run "chat: oldest turns are dropped" 0 "$infer" chat --ctx 64 --overflow shift
err_has "oldest"; [ "$(wc -l <"$dir/out")" -ge 6 ] || fail "not 6 answers"
input=$'hello\nand you?\n' run "chat: a full context is said before" 0 "$infer" chat --ctx 56; err_has "/set overflow shift"
input=$'/set overflow shift\nhello\nand you?\nhello\nand you?\nhello\nand you?\n' run "chat: overflow is set" 0 "$infer" chat --ctx 64; err_has "oldest"
input=$'"""\nhello\n"""\n' run "chat: block" 0 "$infer" chat; out $'hi there!\n'
input= run "chat: nothing" 0 "$infer" chat; out ""
input=$'hello\nand you?\n' run "chat: the beginning is not computed again" 0 "$infer" chat --show-prompt
input=$'hello\nand you?\n/stats\n' run "chat: reuse" 0 "$infer" chat; err_has "more were there"
unset input

# ---- figures
run "doctor" 0 "$infer" doctor; out_has "processor"; out_has "auto"; err_empty
out_has "self test  cpu computes what the reference does"
run "doctor: no room for a tiny model" 0 env TMPDIR="$dir/none" "$infer" doctor; out_has "of cpu: not made: $dir/none/infer-doctor-"; out_has "to do      make room for tiny models in $dir/none,"
run "doctor: json" 0 "$infer" doctor --json; out_has '"features"'
: >"$dir/empty.gguf"
"$infer" synth --shape tiny-tower --type f16 -o "$dir/tower.gguf" -q
run "doctor: a model that is none" 2 "$infer" doctor -m "$dir/empty.gguf"; out_has "model      $dir/empty.gguf: the file is empty"; out_has "infer inspect --check $dir/empty.gguf"
run "a tower is no model" 2 "$infer" run -m "$dir/tower.gguf" -p x; out_empty; err_has "a tower for pictures (architecture 'clip'): it goes beside a text model"; err_lines 1
if [ ! -e /proc/driver/nvidia ]; then run "monitor without a card" 1 "$infer" monitor -n 1; out_has processors; err_lines 1; fi
run "plan" 0 "$infer" plan; out_has "key/value cache"; err_empty
run "plan: json" 0 "$infer" plan --device cpu --json; out_has '"available"'; out_has '"tok_s_at_4096"'
run "plan: of this processor" 0 "$infer" plan --device cpu; out_has "not measured: upper bounds at"; out_has "at most"; out_has "probed now"; err_empty
run "plan: of a card that nobody knows" 0 "$infer" plan --as 24,sm_89 --json; out_has '"prediction": null'
run "plan: a card that is not here" 0 "$infer" plan --as rtx-5090; out_has "on cuda (rtx-5090)"; out_has "not measured"; err_empty
run "plan: a card by its size" 0 "$infer" plan --as 24,sm_89; out_has "22118.4 MiB"
run "plan: limits of the card's memory" 0 "$infer" plan --as 24,sm_89 --vram-limit 8G; out_has "8192.0 MiB  fits"
"$infer" synth --shape tiny-moe --type q8_0 -q -o "$dir/mixture.gguf"
run "plan: steps of a mixture" 0 "$infer" plan -m "$dir/mixture.gguf" --as h200 --ctx 8192; out_has ", 4096 prompt rows"
run "plan: where nothing is left" 0 "$infer" plan -m "$dir/mixture.gguf" --as h200 --ctx 8192 --vram-limit 700M; out_has ", 2048 prompt rows"; out_has "  fits"
run "plan: steps as they are asked for" 0 "$infer" plan -m "$dir/mixture.gguf" --as h200 --ctx 8192 --batch 1024; out_has ", 1024 prompt rows"
run "plan: reserve" 0 "$infer" plan --as 24,sm_89 --vram-fraction 1 --vram-reserve 4G; out_has "20480.0 MiB  fits"
run "plan: pictures on a card" 0 "$infer" plan -m "$tests/golden/tower/qwen3vl" --as 24,sm_89; out_has "pictures, on the card:"; out_has "left beside the model"
run "plan: pictures beside it" 0 "$infer" plan -m "$tests/golden/tower/qwen3vl" --as 24,sm_89 --mmproj-device cpu --json; out_has '"of_card": 0'
run "plan: the cards" 0 "$infer" plan --as list; out_has "rtx-3060 "; out_has "rtx-pro-6000-max-q"; err_empty
run "plan: the cards as JSON" 0 "$infer" plan --as list --json; out_has '"multiprocessors"'
run "plan: a card as its driver calls it" 0 "$infer" plan --as "NVIDIA GeForce RTX 4070 Ti SUPER"; out_has "rtx-4070-ti-super"
run "plan: a card has no types by layer" 2 "$infer" plan --as h100-sxm -m "$llama" --kv-type f16/q8_0; err_has "differ between layers, or between keys and values"; err_lines 1
run "plan: few bits of one type" 0 "$infer" plan --as h100-sxm -m "$llama" --kv-type q4_0; out_has "q4_0, pages of 64"; out_has "one layer's keys and values in f16"
run "plan: a type said twice is one" 0 "$infer" plan --as h100-sxm -m "$llama" --kv-type q8_0/q8_0; out_has "q8_0, pages of 64"
run "plan: kernels are counted" 0 "$infer" plan --as h100-sxm; out_has "kernels a token"; out_has "as measured   some"
run "plan: a card with its memory" 0 "$infer" plan --as "RTX 3060 12GB"; out_has "on cuda (rtx-3060)"
run "plan: SXM4" 0 "$infer" plan --as A100-SXM4-80GB; out_has "a100-sxm-80gb"
run "plan: unknown card" 2 "$infer" plan --as rtx-4099; err_has "near it: rtx-4090"; err_has "--as list"; err_lines 1
run "plan: several of that name" 2 "$infer" plan --as a100; err_has "a100-pcie-40gb, a100-sxm-40gb, a100-pcie-80gb, a100-sxm-80gb"
run "plan: too old a card" 2 "$infer" plan --as T4; err_has "sm_75"
run "plan: old chip" 2 "$infer" plan --as 8,sm_75; err_has "sm_80"
run "plan: too small a card" 1 "$infer" plan --as 0.1,sm_89; out_has "DOES NOT FIT"
run "plan: does not fit" 1 "$infer" plan --as 0.716,sm_89 --ctx 200000; out_has "would fit: --ctx"; out_has "in a smaller type"
if grep "would fit" "$dir/out" | head -1 | grep -q -- "fit: --ctx"; then fail "a shorter context is proposed first"; fi
ctx=$(sed -n 's/.*would fit: --ctx \([0-9]*\)$/\1/p' "$dir/out")
run "plan: what would fit fits" 0 "$infer" plan --as 0.716,sm_89 --ctx "$ctx"
run "plan: and no step more" 1 "$infer" plan --as 0.716,sm_89 --ctx $((ctx + 256))
run "plan: no context too short to be of use" 1 "$infer" plan --as 0.668,sm_89 --ctx 200000; if ! awk '/would fit/ && $NF < 2048 {exit 1}' "$dir/out"; then fail "a context under 2048"; fi
run "plan: the most positions" 0 "$infer" plan --as 0.716,sm_89 --ctx max; out_has " positions"
run "bench serve: nobody there" 2 "$infer" bench serve --url http://127.0.0.1:1; err_has "127.0.0.1:1: Connection refused"; err_lines 1
run "bench serve: TLS" 2 "$infer" bench serve --url https://localhost; err_has "plain HTTP"; err_lines 1
run "bench serve: no goal" 2 "$infer" bench serve --find-batch; err_has "needs a goal"; err_lines 1
run "bench serve: no lengths" 2 "$infer" bench serve --lengths /dev/null; err_has "/dev/null has no lengths"; err_lines 1
run "plan: a pool" 0 "$infer" plan --slots 32 --ctx 4096 --kv-tokens 20000 --json; out_has '"kv_tokens": 20032'
run "plan: a pool in words" 0 "$infer" plan --slots 32 --ctx 4096 --kv-tokens 20000; out_has "32 slots with 20032 positions in all"; out_has "layers: 313"
run "plan: no pool is larger than all contexts" 0 "$infer" plan --slots 2 --ctx 512 --kv-tokens 1000000; out_has "layers: 18"
run "plan: the greatest pool" 0 "$infer" plan --as 0.716,sm_89 --slots 64 --ctx 8192 --kv-tokens max --json
pool=$(sed -n 's/.*"kv_tokens": \([0-9]*\),/\1/p' "$dir/out")
run "plan: that one fits" 0 "$infer" plan --as 0.716,sm_89 --slots 64 --ctx 8192 --kv-tokens "$pool"
run "plan: a greater one does not" 1 "$infer" plan --as 0.716,sm_89 --slots 64 --ctx 8192 --kv-tokens $((pool + 1024)); out_has "would fit: --kv-tokens $pool"
run "plan: too small a pool" 2 "$infer" plan --kv-tokens 5; err_has "--kv-tokens is 5, must be 64"; err_lines 1
run "plan: most sequences" 0 "$infer" plan --as 1,sm_89 --ctx 4096 --max-batch --json
slots=$(sed -n 's/ "slots": \([0-9]*\),/\1/p' "$dir/out")
run "plan: that many fit" 0 "$infer" plan --as 1,sm_89 --ctx 4096 --slots "$slots"
run "plan: one more does not" 1 "$infer" plan --as 1,sm_89 --ctx 4096 --slots $((slots + 1))
run "plan: layers on both" 0 "$infer" plan --as 24,sm_89 --gpu-layers 1; out_has "on cpu"; out_has "on cuda"; out_has "layers on the CPU"; out_has "1 of 2 layers"
"$infer" synth --shape llama-135m --layers 8 --type q4_0 -o "$dir/deep.gguf" >/dev/null 2>&1
all=$("$infer" plan -m "$dir/deep.gguf" --as rtx-4090 --ctx 2048 --batch 32 --json | sed -n 's/.*"taken": \([0-9]*\),/\1/p')
run "plan: what a split comes to" 1 "$infer" plan -m "$dir/deep.gguf" --as rtx-4090 --ctx 2048 --batch 32 --device cuda --vram-limit $((all - 1))
if ! grep -Eq 'would fit: --device auto --gpu-layers [0-9]+  \([0-9.]+ tok/s at most as predicted\)$' "$dir/out"; then fail "no prediction of it"; fi
layers=$(sed -n 's/.*--device auto --gpu-layers \([0-9]*\) .*/\1/p' "$dir/out")
run "plan: auto by name takes that split" 0 "$infer" plan -m "$dir/deep.gguf" --as rtx-4090 --ctx 2048 --batch 32 --device auto --vram-limit $((all - 1)); out_has "layers $((8 - layers)) to 7 on cuda"; out_has "TAKEN"
run "plan: auto by name, no room at all" 1 "$infer" plan -m "$dir/deep.gguf" --as rtx-4090 --ctx 2048 --batch 32 --device auto --vram-limit 1M; out_has "DOES NOT FIT"
if grep -q -- "--device auto" "$dir/out"; then fail "what was asked for is proposed"; fi
run "plan: no device by name" 1 "$infer" plan -m "$dir/deep.gguf" --as rtx-4090 --ctx 2048 --batch 32 --vram-limit $((all - 1)); out_has "would fit: --device auto --gpu-layers $layers"
"$infer" synth --shape tiny-moe --type q8_0 -o "$dir/moe.gguf" >/dev/null 2>&1
"$infer" synth --shape tiny-llama4 --type q4_k -o "$dir/llama4.gguf" >/dev/null 2>&1
run "plan: pages behind a chunk are not kept" 0 "$infer" plan -m "$dir/llama4.gguf" --ctx 65536; out_has "window 8192"
run "plan: experts on the CPU" 0 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --cpu-experts 1; out_has "experts of layers 0 to 0 on cpu"; out_has "experts on the CPU"; out_has "TAKEN"
run "plan: experts on the CPU, as JSON" 0 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --cpu-experts 1 --json; out_has '"cpu_experts": 1'; out_has '"host_weight_bytes"'
run "plan: all on the card" 0 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090; if grep -q "on the CPU" "$dir/out"; then fail "shared"; fi
all=$("$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --batch 2048 --json | sed -n 's/.*"taken": \([0-9]*\),/\1/p')
run "plan: one byte less is shared" 0 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --batch 2048 --vram-limit $((all - 1)); out_has "experts on the CPU"; out_has "layers on the CPU"; out_has "TAKEN"
run "plan: which a card alone does not do" 1 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --batch 2048 --device cuda --vram-limit $((all - 1)); out_has "would fit: --device auto --cpu-experts"
run "plan: experts of a dense model" 2 "$infer" plan --as rtx-4090 --cpu-experts 1; err_has "--cpu-experts 1: this model has no experts"; err_lines 1
run "plan: experts and layers" 2 "$infer" plan -m "$dir/moe.gguf" --as rtx-4090 --cpu-experts 1 --gpu-layers 1; err_has "not with --gpu-layers 1"; err_lines 1
run "more than this machine has" 1 "$infer" -p hello --device cpu --ctx 67000000 --slots 64; out_empty; err_has "DOES NOT FIT"; err_has "would fit: --ctx"
run "logits" 0 "$infer" logits --tokens 1,5,9 --all -o "$dir/l.npy" -q
[ "$(head -c 6 "$dir/l.npy" | tail -c 5)" = NUMPY ] || fail "no npy file"
grep -q "'shape': (3, " "$dir/l.npy" || fail "not 3 rows"
run "logits: last row" 0 "$infer" logits --tokens 1,5,9 -o "$dir/one.npy" -q
rows=$(($(stat -c %s "$dir/l.npy") - 128)) one=$(($(stat -c %s "$dir/one.npy") - 128))
[ "$rows" = $((3 * one)) ] || fail "$rows and $one bytes"
tail -c "$one" "$dir/l.npy" | cmp -s - <(tail -c "$one" "$dir/one.npy") || fail "the last rows differ"
run "logits: id out of range" 2 "$infer" logits --tokens 1,999999 -o "$dir/x.npy"; err_lines 1
[ ! -e "$dir/x.npy" ] || fail "half a file is left"
run "logits: without tokenizer" 0 "$infer" logits -m "$tests/golden/forward/qwen3.gguf" --tokens 1,2 -o "$dir/q.npy"
run "run: without tokenizer" 2 "$infer" -m "$tests/golden/forward/qwen3.gguf" -p x; err_lines 1
head -c 1500 "$tests/data/text.txt" >"$dir/text"
run "imatrix: too little text" 2 "$infer" imatrix -f "$dir/prompt" -o "$dir/i.gguf"; err_has "one chunk takes 512"
[ ! -e "$dir/i.gguf" ] || fail "half a file is left"
run "imatrix" 0 "$infer" imatrix -m "$llama" -f "$dir/text" -o "$dir/i.gguf"; err_has "14 matrices, 2 chunks of 512 tokens"
run "quantize: importance, errors" 0 "$infer" quantize "$llama" "$dir/q.gguf" --type q4_0 --imatrix "$dir/i.gguf" --check -q; out_has "blk.1.ffn_down.weight"; out_has "all that changed"; err_empty
run "quantize: a size" 0 "$infer" quantize "$llama" "$dir/q6.gguf" --bpw 6; err_has "bits a weight"; err_has "ffn_down.weight "
run "quantize: a size and a type" 2 "$infer" quantize "$llama" "$dir/q7.gguf" --bpw 6 --type q8_0; err_lines 1
run "quantize: nf4" 0 "$infer" quantize "$llama" "$dir/nf4.gguf" --type nf4 --quiet
run "perplexity: a base" 0 "$infer" perplexity -m "$llama" -f "$dir/text" --ctx 512 --save-logits "$dir/base" -q
run "perplexity: beside itself" 0 "$infer" perplexity -m "$llama" -f "$dir/text" --ctx 512 --kl "$dir/base" --json; out_has '"same_top":1,'
run "perplexity: nf4 beside the base" 0 "$infer" perplexity -m "$dir/nf4.gguf" -f "$dir/text" --ctx 512 --kl "$dir/base"; out_has "KL divergence, mean"
run "perplexity: no base in that" 2 "$infer" perplexity -m "$llama" -f "$dir/text" --kl "$dir/text"; err_has "--save-logits"
run "quantize: no importance in that" 2 "$infer" quantize "$llama" "$dir/q.gguf" --type q4_0 --imatrix "$dir/q.gguf"; err_lines 1
run "perplexity: too little text" 2 "$infer" perplexity -f "$dir/prompt"; err_lines 2; err_has "beyond the 256"
run "perplexity" 0 "$infer" perplexity -f "$dir/text" --ctx 512 --json
if run "bench" 0 "$infer" bench -p 8 -n 8 -d 0,16 -b 1,2 -r 2 --save "$dir/b.json"; then out_has "tg8x2@d16"; fi
# ---- where the time goes
run "what is wrong beside --profile" 2 "$infer" run -m "$llama" hello -q --profile --tp 2 --ep; err_has "no experts"
run "profile" 0 "$infer" run -m "$llama" hello -n 4 --temp 0 -q --profile --trace "$dir/t.json"; err_has "decode: "; err_has "ffn_down"; err_has "roofs, measured now"
run "the trace" 0 python3 -c '
import json, sys
e = json.load(open(sys.argv[1]))["traceEvents"]
steps = [x for x in e if x["ph"] == "X" and x["tid"] == 1]
inside = [x for x in e if x["ph"] == "X" and x["tid"] == 2]
assert {x["name"] for x in steps} == {"prompt", "decode"} and len(inside) > 10 * len(steps), steps
assert all(any(s["ts"] <= x["ts"] and x["ts"] + x["dur"] <= s["ts"] + s["dur"] + 1 for s in steps) for x in inside)
names = {x["tid"]: x["args"]["name"] for x in e if x["name"] == "thread_name"}
assert {"steps", "operations", "thread 1"} <= set(names.values()) and {x["tid"] for x in e if x["ph"] == "X"} <= set(names), names' "$dir/t.json"
run "a trace nowhere" 2 "$infer" run -m "$llama" hello -n 4 --trace "$dir/none/t.json"; out_empty; err_has "none/t.json: there is no folder"; err_lines 1
run "a trace on a full disk" 1 "$infer" run -m "$llama" hello -n 4 -q --trace /dev/full; err_has "the trace is not written: /dev/full: No space left on device"; err_lines 1
cp "$llama" "$dir/read.gguf"
"$infer" synth --adapter-of "$llama" -o "$dir/lora.gguf" -q
for c in "-m $dir/read.gguf" "-m $llama --lora $dir/read.gguf:0.5" "-m $llama --draft $dir/read.gguf"; do
    case $c in *lora*) cp "$dir/lora.gguf" "$dir/read.gguf" ;; *) cp "$llama" "$dir/read.gguf" ;; esac
    cp "$dir/read.gguf" "$dir/kept.gguf"
    run "a trace over what is read, ${c##*/}" 2 "$infer" run $c hello -n 4 -q --trace "$dir/read.gguf"; out_empty; err_has "it is not overwritten"; err_lines 1
    cmp -s "$dir/read.gguf" "$dir/kept.gguf" || fail "it is lost"
done
for c in "serve --save" "serve --compare" "serve --trace" "mem --save" "mem --plot" "gemm --targets"; do
    run "bench $c: of models" 2 "$infer" bench ${c% *} --device cpu -r 1 ${c#* } "$dir/b.json"; out_empty; err_has "is of models, not of bench ${c% *}"; err_lines 1
done
run "bench serve: no targets" 2 "$infer" bench serve --url http://127.0.0.1:1 --targets "$dir/none.json"; err_has "none.json: No such file"; err_lines 1
run "bench serve: no place for a drawing" 2 "$infer" bench serve --url http://127.0.0.1:1 --plot "$dir/none/x"; err_has "there is no folder"; err_lines 1
run "bench: no place for a drawing" 2 "$infer" bench -p 0 -n 4 -r 1 --plot "$dir/none/x.svg"; err_has "there is no folder"; err_lines 1; out_empty
run "bench: ceilings" 0 "$infer" bench gemm --device cpu -r 1; out_has "FMA"
run "bench: memory" 0 "$infer" bench mem --device cpu -r 1 --json; out_has "read_gb_s"
run "bench: attention is a card's" 2 "$infer" bench attn --device cpu; err_lines 1
run "doctor: kernels of cards" 0 "$infer" doctor --routes; out_has "gemm_wgmma_kernel"; out_has "block-scaled"
run "bench: unknown" 2 "$infer" bench memm; err_lines 1
run "bench: json" 0 "$infer" bench -p 8 -n 4 -r 1 --json; out_has '"test": "pp8"'; out_has '"share"'
run "bench: copied text" 0 "$infer" bench -p 0 -n 24 -r 1 -b 1,2 --lookup; out_has "tg24x2"; out_has "tok/step"; out_has "ms of a step, by its rows:"
run "bench: guesses by lot" 0 "$infer" bench -m "$tests/golden/hf/glm4_moe-draft" -p 0 -n 24 -r 1 --device cpu --draft mtp:2 --accept 0.5 --json; out_has '"tokens_a_step": '
run "bench: a lot without guesses" 2 "$infer" bench -p 0 -n 4 --lookup --accept 0.5; out_empty; err_has "goes with --draft"; err_lines 1
run "bench: prompts need no lot" 0 "$infer" bench -p 8 -n 0 -r 1 --lookup; out_has pp8
echo '{"tg4": 1e12}' >"$dir/t.json"
run "bench: targets" 3 "$infer" bench -p 0 -n 4 -r 2 --targets "$dir/t.json"; out_has BELOW
echo '{"tg4": 1e-3}' >"$dir/t.json"
run "bench: targets reached" 0 "$infer" bench -p 0 -n 4 -r 2 --targets "$dir/t.json"; out_has reached
run "bench: nothing to compare" 2 "$infer" bench -p 0 -n 4 -r 2 --compare "$dir/t.json"; err_has "no results"; out_empty
# what is wrong with a file is said before anything is measured
run "bench: nothing of that" 2 "$infer" bench -p 0 -n 4 -r 2 --compare "$dir/b.json"; err_has "none of its tests is asked for: it has pp8, tg8, tg8x2, pp8@d16"; out_empty
run "bench: no target of that" 2 "$infer" bench -p 0 -n 8 -r 2 --targets "$dir/t.json"; err_has "none of its tests is asked for"; out_empty
run "bench: another run" 0 "$infer" bench -t 1 -p 0 -n 8 -r 1 --kv-type q8_0 --compare "$dir/b.json" --json; err_has 'is of another run: '; err_has 'kv_type "f16", now "q8_0"'
run "bench: a drawing that is no PNG" 2 "$infer" bench -p 0 -n 8 -r 1 --plot "$dir/b.png"; err_has "name it $dir/b.svg"; out_empty
run "bench: a drawing that is no PDF" 2 "$infer" bench -p 0 -n 8 -r 1 --plot "$dir/b.PDF"; err_has "name it $dir/b.svg"; out_empty
run "bench: slower without turns" 2 "$infer" bench -p 0 -n 8 -r 1 --inject 5; err_has "goes with --compare PROGRAM"; out_empty
run "bench: no drawing over what is drawn" 2 "$infer" bench -p 0 -n 8 -r 1 --plot "$dir/b.json" --plot-with "$dir/none.json,$dir/b.json"; out_empty
run "bench: no drawing over what is drawn" 2 "$infer" bench -p 0 -n 8 -r 1 --plot "$dir/b.json" --plot-with "$dir/b.json"; err_has "it is not overwritten"; out_empty
run "bench: another reference" 0 "$infer" bench --device ref -p 0 -n 4 -r 1 --ablate --json
python3 -c '
import json, sys
rows = json.load(open(sys.argv[1]))
assert [r["name"] for r in rows] == ["as asked", "--kv-type f32", "--kv-type q8_0", "--nan-guard"], rows
assert all(r["error"] is None and len(r["results"]) == 1 and ("ratio" in r["results"][0]) == (i > 0) for i, r in enumerate(rows)), rows' "$dir/out" || fail "no table as JSON"
# what the verdict is depends on the machine; test_tools has the rule
name="bench: takes turns" count=$((count + 2))
"$infer" bench -t 1 -p 8 -n 4 -r 1 --compare "$infer" >"$dir/out" 2>"$dir/err"
case $? in 0 | 3) out_has "tok/s of processor time, speed"; out_has pp8; out_has tg4; err_empty ;; *) fail "exit code" ;; esac
name="bench: takes turns, json"
"$infer" bench -t 1 -p 0 -n 4 -r 1 --compare "$infer" --inject 5 --json >"$dir/out" 2>"$dir/err"
case $? in 0 | 3) out_has '"ratio"'; out_has '"time": "processor"' ;; *) fail "exit code" ;; esac
python3 -c '
import json, sys
r = json.load(open(sys.argv[1]))[0]
x = [v for one in r["rounds"] for v in one]
assert [len(one) for one in r["rounds"]] == [2] * 10 and min(x) <= r["ratio"] <= max(x) and r["ratio_least"] <= r["ratio"] <= r["ratio_most"], r' "$dir/out" || fail "not ten rounds of two blocks"
name="bench: takes turns, two threads" count=$((count + 1))
"$infer" bench -t 2 -p 0 -n 4 -r 1 --compare "$infer" --json >"$dir/out" 2>"$dir/err"
case $? in 0 | 3) out_has '"time": "clock"' ;; *) fail "exit code" ;; esac
run "bench: another program" 2 "$infer" bench -p 0 -n 4 --compare /bin/true; err_has "gives no answer"; err_lines 1
run "bench: context" 1 "$infer" bench -p 8 -n 4 -d 99999 --ctx 64; err_has "64"

echo "$count checks, $failed failed"
[ "$failed" = 0 ]
