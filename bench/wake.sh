#!/bin/sh
# bench/wake.sh - how long a model takes to wake from main memory, and its GB/s against a plain copy
# from pinned memory on the same card.
#
#   bench/wake.sh GODWIT SYNTH [SHAPE [FORMAT [DEVICE]]]
#
# GODWIT: the program. SYNTH writes models: SYNTH SHAPE FORMAT FILE. 8b, q4_k and hip unless said
# otherwise. The model goes to GODWIT_TMP (default: a fresh folder, removed at the end). Five times:
# POST /sleep, POST /wake_up. A row each: seconds until it answers (copies, plans), of these those of
# the weights, their GB/s, seconds until a request for one token has its answer. Then the plain copy.
set -eu
[ $# -ge 2 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
bin=$1 synth=$2 shape=${3:-8b} format=${4:-q4_k} device=${5:-hip}
python=${PYTHON:-python3}
here=$(dirname "$0")
tmp=${GODWIT_TMP:-$(mktemp -d)}
[ -n "${GODWIT_TMP:-}" ] || trap 'rm -rf "$tmp"' EXIT
file=$tmp/$shape-$format.gguf
[ -f "$file" ] || "$python" "$synth" "$shape" "$format" "$file" > /dev/null
"$python" "$here/wake.py" "$bin" "$file" "$device"
