#!/usr/bin/env bash
# Train gpt-oss-20b to search a folder of documents, on one GPU of 141 GB. --dry-run makes the data and prints the plan.
#
#     bash recipes/gpt-oss-20b/run.sh [--dry-run] DOCUMENTS RUN
set -euo pipefail
dry_run=
if [ "${1:-}" = --dry-run ]; then dry_run=1; shift; fi
[ $# = 2 ] || { sed -n 2,4p "$0"; exit 2; }
configs=$(cd "$(dirname "$0")/../../configs" && pwd) documents=$1 run=$2
mkdir -p "$run"

ctx1 index "$documents" --path "$run/index"
[ -f "$run/tasks.jsonl" ] || ctx1 synth tasks --path "$run/index" --out "$run/tasks.jsonl"
[ -f "$run/set/split.json" ] || ctx1 synth split "$run/tasks.jsonl" --out "$run/set"
ctx1 synth trajectories "$run/set/queries.train.jsonl" --path "$run/index" --out "$run/lessons" --window 32768

lessons=(--run "$configs/gpt-oss-20b-sft.toml" --out "$run/sft" --set "data.trajectories=$run/lessons")
rewards=(--run "$configs/gpt-oss-20b-1gpu.toml" --out "$run/rl" --set "data.path=$run/index"
    --set "data.questions=[\"$run/set/queries.train.jsonl\"]" --set "data.dev=[\"$run/set/queries.dev.jsonl\"]")
if [ -n "$dry_run" ]; then
    ctx1 train sft "${lessons[@]}" --dry-run
    ctx1 train rl "${rewards[@]}" --from base --dry-run
    exit
fi

[ -d "$run/sft/final" ] || ctx1 train sft "${lessons[@]}" --resume

export VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
vllm serve openai/gpt-oss-20b --dtype bfloat16 --enable-lora --max-lora-rank 32 --max-loras 2 \
    --gpu-memory-utilization 0.40 --enable-prefix-caching --generation-config vllm --max-model-len 32768 \
    >"$run/vllm.log" 2>&1 &
server=$!
trap 'kill $server' EXIT
until curl -sf http://localhost:8000/health >/dev/null; do
    kill -0 $server || { tail "$run/vllm.log"; exit 1; }
    sleep 5
done
[ -d "$run/rl/final" ] || ctx1 train rl "${rewards[@]}" --from "$run/sft" --resume
kill $server
wait $server || true
trap - EXIT

test=(--path "$run/index" --questions "$run/set/queries.test.jsonl" --train-questions "$run/set/queries.train.jsonl")
ctx1 eval "${test[@]}" --systems hybrid,agent --out "$run/shipped"
ctx1 eval "${test[@]}" --systems agent --policy tokens --model "$run/rl" --out "$run/trained"
