#!/bin/sh
# bench/kv_bits.sh - KV caches of 16, 8, 5 and 4 bits: how fast tokens are generated after a long text,
# and whether a card has the processor's bits. Two tables; exit code 1 where bits differ or nothing came.
#
#   bench/kv_bits.sh GODWIT DEVICE LARGE [SMALL]
#
# LARGE: a GGUF of the shape to time (random weights do, as tools of this kind make); SMALL: a model
# for bits. CACHES: what --kv-type is to be (f16 q8_0 q5_0 q4_0), also pairs, q8_0,q4_0.
# DEPTH tokens (32768), N generated (64), R times (3). A command may take SECONDS_EACH (300).
set -u

if [ $# -lt 3 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
godwit=$1 device=$2 large=$3 small=${4:-}
depth=${DEPTH:-32768} n=${N:-64} r=${R:-3} limit=${SECONDS_EACH:-300} wrong=0

speed_of() { # CACHE
    timeout "$limit" "$godwit" bench -q -m "$large" --device "$device" --kv-type "$1" -p 0 -n "$n" -d "$depth" \
        -r "$r" -o json 2>&1 | sed -n 's/.*"avg_ts": *\([0-9.]*\).*/\1/p; s/^godwit: //p' | tail -n 1
}

echo "| cache | tok/s after $depth tokens | times f16 |"
echo "|---|---|---|"
first=
for kv in ${CACHES:-f16 q8_0 q5_0 q4_0}; do
    speed=$(speed_of $kv)
    case $speed in
    *[!0-9.]* | "") wrong=1 ;;
    esac
    first=${first:-$speed}
    echo "| $kv | ${speed:-nothing in $limit s} | $(echo "$speed $first" | awk '$2 > 0 { printf("%.2f", $1 / $2) }') |"
done
[ -n "$small" ] || exit $wrong

hash_of() { # DEVICE CACHE ROWS TOKENS
    ids=$(awk -v n="$4" 'BEGIN { for (i = 0; i < n; i++) printf("%s%d", (i > 0 ? "," : ""), (i * 37 + 11) % 997 + 1) }')
    timeout "$limit" "$godwit" logits -q --exact -m "$small" --device "$1" --kv-type "$2" --rows "$3" --ids "$ids" 2>&1 |
        sed -n 's/^hash: \(.\{16\}\).*/\1/p; s/^godwit: //p' | head -n 1
}

echo
echo "| cache | rows | tokens | cpu | $device | equal |"
echo "|---|---|---|---|---|---|"
for kv in ${CACHES:-q8_0 q5_0 q4_0}; do
    for rows in prefill decode 5; do
        tokens=1300 # more than a group of pages
        want=$(hash_of cpu $kv $rows $tokens)
        got=$(hash_of "$device" $kv $rows $tokens)
        same=yes
        case $want in
        *[!0-9a-f]* | "") same=NO wrong=1 ;; # an error, or nothing
        "$got") ;;
        *) same=NO wrong=1 ;;
        esac
        echo "| $kv | $rows | $tokens | $want | ${got:-nothing in $limit s} | $same |"
    done
done
exit $wrong
