#!/usr/bin/env bash
# What every command does when something is wrong, in tables of command lines: a bad option, a missing file, no room on
# stdout or for the file that it writes, output = input, Ctrl-C. docs/program.md has the exit codes.
# usage: exit_codes.sh INFER TESTS      (ctest gives both: the program and the folder tests/)
set -u -m # -m: a job in the background hears Ctrl-C
infer=$(realpath "$1") tests=$(realpath "$2")
dir=$(mktemp -d) failed=0 count=0
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
export HOME=$dir XDG_CACHE_HOME=$dir/cache XDG_STATE_HOME=$dir/state INFER_MODEL=$dir/MODEL
llvm_omp=$(ldd "$infer" | grep libomp || true)
umask 027
cp "$tests/golden/chat/chat-llama.gguf" MODEL
head -c 1500 "$tests/data/text.txt" >TEXT
echo '{"messages": [{"role": "user", "content": "hello"}]}' >CASE
echo '"hello"' >STDIN # a prompt, a message, a line of JSON
printf 'hello\n/save OUT\n' >SAVE
mkdir FOLDER
"$infer" synth --shape tiny --type q8_0 -q -o WIDE # trained for longer contexts

# What hangs is named and killed, so that the rest goes on: a check may take 100 s, also on a slow machine with sanitizers.
watch() {
    local last="" since=$SECONDS p
    while sleep 2 && kill -0 $$; do
        [ "$(cat "$dir/check")" = "$last" ] || { last=$(cat "$dir/check") since=$SECONDS; }
        ((SECONDS - since > 100)) || continue
        echo "FAILED: hung in check $last:" | tee -a "$dir/hung"
        for p in /proc/[0-9]*; do
            [ $p/exe -ef "$infer" ] && [ "$(readlink $p/cwd)" = "$dir" ] || continue
            tr '\0' ' ' <$p/cmdline
            echo "($(cat $p/wchan), $(grep -E '^(State|SigPnd|ShdPnd|SigCgt)' $p/status | tr '\n\t' '  '))"
            kill -KILL ${p#/proc/}
        done
        since=$SECONDS
    done
}
echo 0 >check
watch &
watcher=$!
# clang's OpenMP names a file after the process; where one was killed it stays, and if it is empty still, the next process of that number
# dies of SIGBUS when it starts
drop_omp_files() {
    local f pid
    for f in /dev/shm/__KMP_REGISTERED_LIB_*; do
        pid=${f#*_LIB_}
        [ ! -O "$f" ] || kill -0 "${pid%_*}" 2>/dev/null || rm -f "$f"
    done
}
trap '{ kill -- -$watcher; wait $watcher; } 2>/dev/null; drop_omp_files; rm -rf "$dir"' EXIT

fail() { echo "FAILED: $name: $*"; sed 's/^/    stderr: /' "$dir/err" | head -5; failed=$((failed + 1)); }
code() { count=$((count + 1)); echo "$count, behind '$name'" >check; [ "$1" = "$2" ] || fail "exit code $1, not $2"; }
is_old() { echo old | cmp -s - "$1"; }
err_has() { grep -q -- "$1" "$dir/err" || fail "stderr lacks '$1'"; }

# ---- stdout: every command, a disk without room, a closed stream, a pipe without a reader
printing=(help "help run" "help --markdown" --version --help "run --help" doctor "doctor --json" "doctor --routes" plan
    "plan --json" "inspect MODEL" "inspect MODEL --json" "inspect MODEL --check" tokenize "tokenize --jsonl"
    "template --input CASE" "perplexity -m WIDE -f TEXT" "run -p hello" "run -p hello --json" run "chat -q"
    "bench -p 0 -n 2 -r 1" "bench -p 0 -n 2 -r 1 --json" "bench mem -r 1 --device cpu" "logits --tokens 1,2 -o -" "verify --against ref --device ref")
mkfifo nobody
exec 7<>nobody 8>nobody 7<&-
for c in "${printing[@]}"; do
    name="infer $c, stdout is full"
    "$infer" $c <STDIN >/dev/full 2>err
    code $? 1; err_has "No space left on device"
    name="infer $c, stdout is closed"
    "$infer" $c <STDIN >&- 2>err
    code $? 1; err_has "Bad file descriptor"
    name="infer $c, nobody reads stdout"
    "$infer" $c <STDIN >&8 2>err
    code $? 141; [ ! -s err ] || fail "a word"
    case $c in *--help | -*) continue ;; esac
    name="infer $c --no-such-option"
    "$infer" $c --no-such-option <STDIN >out 2>err
    code $? 2; [ "$(wc -l <err)" = 1 ] && [ ! -s out ] || fail "not one line on stderr alone"
done
exec 8>&-

# ---- inputs that are not there
for c in "run -m NONE -p x" "chat -m NONE" "bench -m NONE" "plan -m NONE" "logits -m NONE --tokens 1 -o OUT" "verify -m NONE" "verify --record-file NONE" "verify --against-file NONE" \
    "perplexity -m NONE -f TEXT" "perplexity -f NONE" "imatrix -f NONE -o OUT" "quantize MODEL OUT --type q8_0 --imatrix NONE" "tokenize -m NONE" "template -m NONE --input CASE" \
    "template --input NONE" "template --template NONE --input CASE" "inspect NONE" "inspect NONE --check" "doctor -m NONE" \
    "doctor -m NONE --json" "quantize NONE OUT --type q8_0" "convert NONE OUT --type q8_0" "run -f NONE" \
    "run -p x --grammar NONE" "run -p x --json-schema NONE" "run -p x --template NONE" \
    "bench -p 0 -n 2 -r 1 --save OUT --targets NONE" "bench -p 0 -n 2 -r 1 --save OUT --compare NONE"; do
    name="infer $c"
    "$infer" $c <STDIN >out 2>err
    code $? 2; err_has "NONE"
    [ -z "$(compgen -G 'OUT*')" ] || { fail "OUT is there"; rm -f OUT*; }
done
name="the model of INFER_MODEL is missing"
INFER_MODEL=$dir/NONE "$infer" doctor >out 2>err
code $? 2

# ---- files that are written
writing=("logits --tokens 1,2,3 --all -o OUT" "synth --shape tiny --type q8_0 -o OUT" "quantize MODEL OUT --type q8_0"
    "convert MODEL OUT --type q8_0" "bench -p 0 -n 2 -r 1 --save OUT" chat)
cp MODEL model
mknod device c 1 7 2>/dev/null && { : >device; } 2>/dev/null || rm -f device # /dev/full, where one can be made
mkfifo pipe
for c in "${writing[@]}"; do
    only_out() { # no unfinished file; the snapshot of a conversation belongs there
        for f in OUT?*; do [ ! -e "$f" ] || [ "$f" = OUT.kv ] || fail "$f is left"; done
    }
    to() { # to FILE CODE: OUT is FILE
        sed "s|OUT|$1|" SAVE >save
        "$infer" ${c//OUT/$1} <"$stdin" >out 2>err
        code $? "$2"
    }
    private=640 stdin=STDIN
    [ "$c" != chat ] || private=600 stdin=save
    name="infer $c"
    to OUT 0; only_out
    [ -s OUT ] && [ "$(stat -c %a OUT)" = $private ] || fail "OUT has the permissions $(stat -c %a OUT)"
    [ ! -e OUT.kv ] || [ "$(stat -c %a OUT.kv)" = 600 ] || fail "OUT.kv has the permissions $(stat -c %a OUT.kv)"
    chmod 604 OUT
    name="infer $c, again"
    to OUT 0; only_out
    [ $private = 600 ] || private=604
    [ "$(stat -c %a OUT)" = $private ] || fail "OUT has the permissions $(stat -c %a OUT)"

    name="infer $c, a file may not grow"
    if [ -z "$llvm_omp" ]; then # (clang's OpenMP makes a file of its own when it starts, and ends without it)
        echo old >OUT; cp SAVE save
        bash -c 'ulimit -f 0; exec "$0" "$@" >/dev/null' "$infer" $c <"$stdin" 2>&1 | cat >err
        code "${PIPESTATUS[0]}" 1; err_has "File too large"; only_out
        is_old OUT || fail "the old file is lost"
    fi
    rm -f OUT*
    if [ -c device ]; then
        name="infer $c, to a device without room"
        to device 1; err_has "No space left on device"
        [ -c device ] || { fail "the device is gone"; rm -f device; mknod device c 1 7; }
    fi
    name="infer $c, to a pipe"
    timeout 20 cat pipe >got & to pipe 0; wait $!
    [ -s got ] && [ -p pipe ] || { fail "nothing came, or the pipe is gone"; rm -f pipe; mkfifo pipe; }
    rm -f pipe?*
    name="infer $c, to a folder that is not there"
    to NONE/OUT 2; err_has "no folder"; [ "$(wc -l <err)" = 1 ] || [ "$c" = chat ] || fail "more than one line"
    name="infer $c, to a folder"
    to FOLDER 2
    name="infer $c, through a link"
    echo old >target; ln -s target OUT
    to OUT 0
    if [ "$c" = chat ]; then # which may be planted
        is_old target && [ ! -L OUT ] || fail "the link was followed"
    else
        ! is_old target && [ -L OUT ] || fail "the link was not followed"
    fi
    rm -f OUT*
    case $c in synth*) continue ;; esac
    ln model hard; ln -s model soft
    export INFER_MODEL=$dir/model
    for out in model hard soft; do
        name="infer ${c/MODEL/model}, to $out"
        c=${c/MODEL/model} to $out 2; err_has "is not overwritten"
        cmp -s MODEL model || { fail "the model is lost"; cp MODEL model; }
    done
    export INFER_MODEL=$dir/MODEL
    rm -f hard soft ./*.kv
done
name="/save, planted links"
echo whole >victim
rm -f OUT*
bash -c 'for f in OUT OUT.kv OUT.part-$$ OUT.kv.part-$$ OUT.kv.$$; do ln -s victim $f; done; exec "$1" chat <SAVE' - "$infer" >out 2>err
code $? 0; [ "$(cat victim)" = whole ] || fail "a link was followed"
rm -f OUT*
name="/save, no room for the snapshot"
mkdir OUT.kv
"$infer" chat <SAVE >out 2>err
code $? 2; err_has "2 messages are in OUT, but"; grep -q hello OUT || fail "the conversation is not there"
rm -rf OUT*
name="--save into what --compare reads"
"$infer" bench -p 0 -n 2 -r 1 --save OUT >out 2>err
cp OUT old
"$infer" bench -p 0 -n 2 -r 1 --save OUT --compare OUT >out 2>err
code $? 2; cmp -s OUT old || fail "it is lost"
for c in "mem --device cpu" "--compare $infer"; do
    name="infer bench $c --save: there is nothing to save"
    "$infer" bench -r 1 $c --save NEW >out 2>err
    code $? 2; [ ! -e NEW ] || fail "NEW is there"
done
rm -f OUT*

# ---- signals
mkfifo fifo
holds_fifo() { readlink /proc/$pid/fd/* | grep -qx "$dir/fifo"; }
# ended PID CODE: waits for it; the shell's own word about a signal is not shown
ended() {
    { while wait "$1"; ended=$?; [ $ended = 147 ]; do :; done; } 2>/dev/null # 147: it was stopped
    code $ended "$2"
}
# signalled SIGNAL CODE READY COMMAND...: sends the signal when the program catches SIGINT and READY holds
signalled() {
    local signal=$1 want=$2 ready=$3 pid i; shift 3
    "$@" <"$stdin" >out 2>err 5>&- &
    pid=$!
    for ((i = 0; i < 1000; i++)); do
        kill -0 $pid 2>/dev/null || break
        [ /proc/$pid/exe -ef "$infer" ] && (($(sed -n 's/^SigCgt:\t/0x/p' /proc/$pid/status) & 2)) && $ready && break
        sleep 0.01
    done
    kill -"$signal" $pid
    ended $pid "$want"
    if [ "$signal" = INT ]; then
        grep -qx "infer: interrupted" err || fail "not 'interrupted' on a line of its own"
    elif [ -s err ]; then
        fail "a word"
    fi
    [ -z "$(compgen -G '*.part-*')" ] || { fail "$(echo ./*.part-*) is left"; rm -f ./*.part-*; }
}
echo old >OUT
ids=$(seq -s, 1 300)
exec 5<>fifo # who reads it waits for a text, who writes it for a reader
for signal in "INT 130" "TERM 143" "HUP 129"; do
    for c in tokenize run "chat -q" "template --input fifo" "perplexity -m WIDE -f fifo" "run -f fifo" \
        "bench -p 0 -n 2 -r 1 --save OUT --targets fifo" "synth --shape tiny --type q8_0 -o fifo" \
        "quantize MODEL fifo --type q8_0" "convert MODEL fifo --type q8_0" "logits -m WIDE --tokens $ids --all -o fifo"; do
        name="infer ${c/$ids/1,2,..}, SIG${signal% *}"
        case $c in *fifo*) stdin=/dev/null ;; *) stdin=fifo ;; esac
        signalled $signal holds_fifo "$infer" $c
        is_old OUT || fail "the old file is lost"
        exec 5<&-
        exec 5<>fifo # empty again
    done
    stdin=/dev/null
    name="infer run, SIG${signal% *} during the answer"
    signalled $signal "test -s out" "$infer" run -p hello --raw --temp 2 -n inf --overflow shift \
        --logit-bias 278=-inf --logit-bias 280=-inf -q
    # a file of 540 MB: stopped while it grows, so that the signal meets it there
    name="infer synth, SIG${signal% *} while the file grows"
    for try in 1 2 3 4 5; do
        "$infer" synth --shape llama-135m --type f32 -o big 2>err &
        pid=$!
        until compgen -G 'big.part-*' >part || ! kill -0 $pid 2>/dev/null; do :; done
        kill -STOP $pid 2>/dev/null
        [ ! -e "$(cat part)" ] || break
        kill -CONT $pid 2>/dev/null # it was stopped behind the last of its file
        wait $pid; rm -f big*
    done
    [ -e "$(cat part)" ] || fail "no unfinished file was seen"
    kill -"${signal% *}" $pid; kill -CONT $pid
    ended $pid "${signal#* }"
    [ -z "$(compgen -G 'big*')" ] || { fail "$(echo big*) is left"; rm -f big*; }
done

name="infer chat: what fails after an answer that Ctrl-C ended says why"
mkfifo TALK
rm -f out # what an earlier command left is no answer
"$infer" chat -q --raw --temp 2 -n inf --overflow shift --logit-bias 278=-inf --logit-bias 280=-inf <TALK >out 2>err 5>&- &
pid=$!
exec 6>TALK
echo hello >&6
until [ -s out ] || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
kill -INT $pid
echo "/set temp 300" >&6
exec 6>&-
ended $pid 130
err_has "300 is not within"

echo "$count checks, $failed failed"
[ "$failed" = 0 ] && [ ! -e hung ]
