#!/usr/bin/env bash
# What cmake --install lays down, and the library as a program of others meets it: the example at the top of infer.h is built from the
# installed tree as C and as C++, alone and beside functions with every name that is used inside, and answers.
# usage: library.sh BUILD TESTS CC
set -eu -o pipefail
build=$1 tests=$2 cc=$3
for tool in cmake "$cc" c++ pkg-config nm; do
    command -v "$tool" >/dev/null || { echo "no $tool here"; exit 77; }
done
pkg-config --exists jansson libpcre2-8 libutf8proc libjpeg libpng libwebpdemux || { echo "no development files of the libraries here"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

# ---- files: with DESTDIR, then another prefix; an unusual place for libraries is the build's own
DESTDIR=$dir/dest cmake --install "$build" --prefix /usr >/dev/null
cmake --install "$build" --prefix "$dir/prefix" >/dev/null
(cd "$dir/dest/usr" && find . -type f | sort) >"$dir/a"
(cd "$dir/prefix" && find . -type f | sort) >"$dir/b"
cmp "$dir/a" "$dir/b" || fail "DESTDIR and prefix give other files"
root=$dir/dest/usr
for file in bin/infer include/infer.h include/infer_options.def include/infer_status.h include/infer_request.h include/infer_sample.h include/infer_sample.def share/man/man1/infer.1 share/bash-completion/completions/infer share/zsh/site-functions/_infer share/fish/vendor_completions.d/infer.fish; do
    [ -s "$root/$file" ] || fail "$file is not installed"
done
# ---- the unit of systemd names the program where it was installed
unit=lib/systemd/system/infer.service
grep -q '^ExecStart=/usr/bin/infer serve ' "$root/$unit" || fail "DESTDIR: $(grep ^ExecStart= "$root/$unit")"
grep -q "^ExecStart=$dir/prefix/bin/infer serve " "$dir/prefix/$unit" || fail "prefix: $(grep ^ExecStart= "$dir/prefix/$unit")"
! grep -q '@[A-Z_]*@' "$root/$unit" || fail "the unit has places that were not filled in"
if command -v systemd-analyze >/dev/null; then # (it also looks at other units of this machine: what it says of ours counts)
    said=$(SYSTEMD_UNIT_PATH=$dir/prefix/lib/systemd/system: systemd-analyze verify --man=no "$dir/prefix/$unit" 2>&1 | grep -F infer. || true)
    [ -z "$said" ] || fail "systemd-analyze verify: $said"
    said=$(systemd-analyze security --offline=true --threshold=20 --no-pager "$dir/prefix/$unit" | tail -n 1) || fail "over 2.0: $said"
fi
grep -q '^u infer ' "$root/lib/sysusers.d/infer.conf" && grep -q '^User=infer$' "$root/$unit" || fail "the service has no user"

lib=$(find "$root" -name libinfer.a)
PKG_CONFIG_PATH=$(dirname "$(find "$root" -name infer.pc)")
export PKG_CONFIG_PATH
[ "$("$root/bin/infer" --version | cut -d' ' -f2)" = "$(pkg-config --modversion infer)" ] || fail "two versions"
! nm -g --defined-only "$lib" | awk 'NF == 3 && $3 !~ /^infer_/' | grep . || fail "global names without infer_"
for name in $(nm -g --defined-only "$lib" | awk 'NF == 3 {print $3}'); do
    grep -qhE "[ *]$name\(" "$root"/include/infer*.h || fail "$name is in no public header"
done

# ---- the headers: usable from both languages without a warning
for std in c11 c17; do
    echo '#include <infer_request.h>' | "$cc" -std=$std -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$root/include" -x c -
done
for std in c++11 c++17 c++20; do
    echo '#include <infer_request.h>' | c++ -std=$std -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$root/include" -x c++ -
done

# ---- the example, and the same with a function of every name that the library uses inside
cp "$root/share/doc/infer/examples/answer.c" "$dir/"
nm -g --defined-only "$build/libinfer_engine.a" 2>/dev/null |
    awk 'NF == 3 && $3 ~ /^[a-z][a-z0-9_]*$/ && $3 !~ /^infer_/ {print "void " $3 "(void) { abort(); }"}' |
    sort -u | sed '1i #include <stdlib.h>' >"$dir/names.c"
[ "$(wc -l <"$dir/names.c")" -gt 400 ] || fail "the names of the library were not found"
read -ra flags <<<"$(pkg-config --cflags --libs --static infer)"
strict=(-O1 -Wall -Wextra -pedantic -Werror)
"$cc" -std=c11 "${strict[@]}" -o "$dir/c" "$dir/answer.c" "${flags[@]}"
c++ -std=c++17 "${strict[@]}" -o "$dir/cxx" -x c++ "$dir/answer.c" -x none "${flags[@]}"
"$cc" -w -fno-builtin -c -o "$dir/names.o" "$dir/names.c"
"$cc" -std=c11 "${strict[@]}" -o "$dir/clash" "$dir/answer.c" "$dir/names.o" "${flags[@]}"
prompt=$'<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n'
for program in c cxx clash; do
    answer=$("$dir/$program" "$tests/golden/chat/chat-llama.gguf" "$prompt") || fail "$program: exit code $?"
    [ "$answer" = "hi there!" ] || fail "$program answers '$answer'"
done
! "$dir/c" "$dir/none.gguf" x 2>"$dir/err" || fail "a missing file is no error"
grep -q "none.gguf" "$dir/err" || fail "the message does not name the file"

# ---- the program of docs/requests.md
"$cc" -std=c11 "${strict[@]}" -o "$dir/requests" "$root/share/doc/infer/examples/two_requests.c" "${flags[@]}"
[ "$("$dir/requests" "$tests/golden/chat/chat-llama.gguf")" = $'hi there!\none two three four five six seven eight nine ten' ] || fail "requests: another answer"

# ---- the manual page
if command -v man >/dev/null; then
    MANWIDTH=80 man -l --warnings "$root/share/man/man1/infer.1" >"$dir/man" 2>"$dir/err"
    [ ! -s "$dir/err" ] || fail "manual page: $(head -1 "$dir/err")"
    for name in $("$root/bin/infer" help --markdown | sed "/^## Flags of other programs/,\$d" | grep -oE '^\| `[^`]*--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u); do
        grep -q -- "$name" "$dir/man" || fail "the manual page lacks $name"
    done
fi
echo "library: all well"
