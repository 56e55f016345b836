#!/usr/bin/env bash
# Compare two policies on the same questions.
#
#     bash recipes/compare-policies/run.sh INDEX QUESTIONS.jsonl RUN [A.toml B.toml]
set -euo pipefail
[ $# = 3 ] || [ $# = 5 ] || { sed -n 2,4p "$0"; exit 2; }
here=$(dirname "$0") index=$1 questions=$2 run=$3
a=${4:-$here/a.toml} b=${5:-$here/b.toml}

ctx1 eval --config "$a" --path "$index" --questions "$questions" --out "$run/a"
ctx1 eval --config "$b" --path "$index" --questions "$questions" --out "$run/b"
python "$here/difference.py" "$run/a" "$run/b"
