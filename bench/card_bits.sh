#!/bin/sh
# bench/card_bits.sh - has a card the processor's logits, bit for bit? A table; exit code 1 where a row
# of it differs or has no result.
#
#   bench/card_bits.sh GODWIT DEVICE MODEL...
#
# For each model: a prompt of TOKENS tokens (300), then 40 tokens by decode passes of 1, 2, 5, 9 and 16
# rows, between which kernels differ. A command may take SECONDS_EACH (120); the first one compiles.
set -u

if [ $# -lt 3 ]; then
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
godwit=$1 device=$2 tokens=${TOKENS:-300} limit=${SECONDS_EACH:-120} wrong=0
shift 2

ids() { # COUNT token ids, below 1,000
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf("%s%d", (i > 0 ? "," : ""), (i * 37 + 11) % 997 + 1) }'
}

hash_of() { # DEVICE MODEL ROWS
    count=40
    [ "$3" != prefill ] || count=$tokens
    timeout "$limit" "$godwit" logits -q --exact -m "$2" --device "$1" --rows "$3" --ids "$(ids "$count")" 2>&1 |
        sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit: //p' | head -n 1
}

echo "| model | rows | cpu | $device | equal |"
echo "|---|---|---|---|---|"
for model in "$@"; do
    for rows in prefill decode 2 5 9 16; do
        want=$(hash_of cpu "$model" $rows)
        got=$(hash_of "$device" "$model" $rows)
        same=yes
        case $want in
        *[!0-9a-f]* | "") same=NO wrong=1 ;; # an error, or nothing
        "$got") ;;
        *) same=NO wrong=1 ;;
        esac
        echo "| $(basename "$model") | $rows | $want | ${got:-nothing in $limit s} | $same |"
    done
done
exit $wrong
