#!/usr/bin/env bash
# Run a coding agent with a pruned context, and write what was saved to SAVED.json.
#
#     bash recipes/coding-agent/run.sh SAVED.json AGENT [ARGUMENTS...]
set -euo pipefail
[ $# -ge 2 ] || { sed -n 2,4p "$0"; exit 2; }
saved=$1 agent=$2
shift 2
exec ctx1 wrap --config "$(dirname "$0")/prune.toml" --report "$saved" "$agent" -- "$@"
