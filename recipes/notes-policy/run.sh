#!/usr/bin/env bash
# Adapt the shipped policy to a folder of notes, and compare it with the shipped one.
#
#     bash recipes/notes-policy/run.sh NOTES RUN
set -euo pipefail
[ $# = 2 ] || { sed -n 2,4p "$0"; exit 2; }
notes=$1 run=$2
settings=(--config "$(dirname "$0")/recipe.toml")
mkdir -p "$run"

ctx1 index "$notes" --path "$run/index"
[ -f "$run/tasks.jsonl" ] || ctx1 synth tasks "${settings[@]}" --path "$run/index" --out "$run/tasks.jsonl"
rm -rf "$run/set"
ctx1 synth split "${settings[@]}" "$run/tasks.jsonl" --out "$run/set"
train=$run/set/queries.train.jsonl test=$run/set/queries.test.jsonl

ctx1 train bridge "${settings[@]}" "$run/index" "$train" --out "$run/mine.safetensors"

held_back=("${settings[@]}" --path "$run/index" --questions "$test" --train-questions "$train")
echo "The shipped policy:"
ctx1 eval "${held_back[@]}" --out "$run/shipped"
echo "Your policy:"
ctx1 eval "${held_back[@]}" --systems agent --weights "$run/mine.safetensors" --out "$run/mine"
