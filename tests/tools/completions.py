#!/usr/bin/env python3
"""Completions as the shells themselves make them: bash, zsh and fish, each where it is installed, offer the same words for the same line.
usage: completions.py INFER TESTS"""
import os, shutil, subprocess, sys, tempfile

infer, tests = (os.path.realpath(a) for a in sys.argv[1:3])
chat = tests + "/golden/chat/chat-llama.gguf"

# words of a line, the last one to be completed; what comes, or (..., and others)
CASES = [
    (["infer", "ch"], ["chat"]),
    (["infer", "qua"], ["quantize"]),
    (["infer", "plan", "--kv-ty"], ["--kv-type"]),
    (["infer", "run", "--kv-type", "q"], ["q4_0", "q5_0", "q8_0"]),
    (["infer", "run", "--device", "c"], ["cpu", "cuda"]),
    (["infer", "--device", "c"], ["cpu", "cuda"]),
    (["infer", "run", "--thinking", ""], ["dim", "fold", "hide", "off", "show"]),
    (["infer", "help", "ben"], ["bench"]),
    (["infer", "help", "--completion", "z"], ["zsh"]),
    (["infer", "serve", "--loop"], []),  # an option of others
    (["infer", "run", "--loo"], ["--lookup", "--loop-stop"]),
    (["infer", "run", "-m", chat[:-3]], [chat]),
    (["infer", "inspect", chat[:-3]], [chat]),
]

BASH = """. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _infer 2>/dev/null; printf '%s\\n' "${COMPREPLY[@]}" """
FISH = """source $argv[1]; complete -C (string join -- ' ' $argv[2..])"""
# The words of each compadd that adds some: zsh completes in a line editor alone, so one runs in a terminal of its own, with what it finds in a file.
ZSH = r"""
autoload -Uz compinit; compinit -D; compdef _infer infer
compadd() {
    local -a found
    if [[ ${*%% -- *} != *-[OAD]* ]]; then builtin compadd -A found "$@"; print -rl -- $IPREFIX$^found >>$FOUND; fi
    builtin compadd "$@"
}
report() { : >$FOUND; zle complete-word; BUFFER=; print -r -- DONE >>$FOUND }
zle -N report; bindkey '^I' report; PROMPT=; LISTMAX=0; setopt no_beep no_always_last_prompt; unsetopt list_ambiguous auto_menu
"""


def zsh_words(folder, script):
    import pty, select, time
    os.makedirs(folder + "/functions")
    shutil.copy(script, folder + "/functions/_infer")
    with open(folder + "/rc", "w") as f: f.write("fpath=(%s/functions $fpath)\nFOUND=%s/found\n" % (folder, folder) + ZSH)
    pid, fd = pty.fork()
    if pid == 0: os.execvpe("zsh", ["zsh", "-f", "-i"], dict(os.environ, TERM="dumb", HOME=folder))
    os.write(fd, b"source %s/rc\n" % folder.encode())
    for words, _ in CASES:
        if os.path.exists(folder + "/found"): os.unlink(folder + "/found")
        os.write(fd, " ".join(words).encode() + b"\t")
        said, until = [], time.monotonic() + 30
        while "DONE" not in said:
            assert time.monotonic() < until, "zsh does not answer"
            if select.select([fd], [], [], 0.02)[0]: os.read(fd, 65536)
            if os.path.exists(folder + "/found"): said = open(folder + "/found").read().split("\n")
        yield [w for w in said if w not in ("DONE", "")]
    os.write(fd, b"\x03exit\n")
    os.close(fd)
    os.waitpid(pid, 0)


def answers(shell, folder, script):
    if shell == "zsh":
        yield from zsh_words(folder, script)
        return
    for words, _ in CASES:
        command = ["bash", "-c", BASH, script, *words] if shell == "bash" else ["fish", "--no-config", "-c", FISH, script, *words]
        got = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, HOME=folder, TERM="dumb"), timeout=60)
        assert got.returncode == 0 and not got.stderr, (shell, words, got.stderr)
        yield [line.split("\t")[0] for line in got.stdout.split("\n") if line]


def main():
    seen = 0
    for shell in "bash", "zsh", "fish":
        script = subprocess.run([infer, "help", "--completion", shell], capture_output=True, text=True, check=True).stdout
        assert script.count("--kv-type") or script.count("-l kv-type"), shell
        if not shutil.which(shell):
            print("completions: no %s here" % shell)
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/infer." + shell
            with open(path, "w") as f: f.write(script)
            for (words, want), got in zip(CASES, answers(shell, folder, path)):
                got = sorted({g.rstrip("= ") for g in got})
                if shell == "zsh": got = [os.path.join(os.path.dirname(words[-1]), g) for g in got]  # _files adds the name alone
                assert got == want, "%s: %s offers %s, not %s" % (shell, words, got, want)
        seen += 1
    bad = subprocess.run([infer, "help", "--completion", "tcsh"], capture_output=True, text=True)
    assert bad.returncode == 2 and "bash" in bad.stderr, bad
    print("completions: %d shells" % seen)


main()
