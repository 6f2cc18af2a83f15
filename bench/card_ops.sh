#!/bin/sh
# bench/card_ops.sh - the op table on this machine's first card against the scalar CPU, in pieces side
# by side: the CPU's results take most of the time. What failed, and how many pieces that were; exit
# code 1 where one did.
#
#   bench/card_ops.sh TEST_HIP_OPS [JOBS]
#
# TEST_HIP_OPS: the program of the build with tests. JOBS: 8. A piece may take SECONDS_EACH (200).
set -u

if [ $# -lt 1 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
cases=1200 each=12 # 925 cases on 2026-11-28; pieces behind the last have nothing to do
export TEST="$1" LIMIT="${SECONDS_EACH:-200}" EACH=$each GODWIT_HIP_DRIVER=system GODWIT_TEST=check_table
one='
    said=$(GODWIT_OP_CASES=$1-$(($1 + EACH - 1)) timeout "$LIMIT" "$TEST" 2>&1) ||
        echo "cases from $1 on: $(echo "$said" | grep ^ERROR || echo "nothing in $LIMIT s, or lost")"'
wrong=$(seq 0 $each $((cases - 1)) | xargs -P "${2:-8}" -I{} sh -c "$one" one {})
[ -z "$wrong" ] || echo "$wrong"
failed=$(printf '%s' "$wrong" | grep -c '^cases')
echo "pieces of $each cases that failed: $failed"
[ "$failed" -eq 0 ]
