#!/bin/sh
# bench/bloom_products.sh - the products of a GPTQ folder of the bloom family (K = 14336, N = 21504, and
# the other way round) for 1 to 320 rows, beside cuBLAS in fp16, in one run on one GPU.
#
#   bench/bloom_products.sh GODWIT [DEVICE]
#
# GODWIT: the program. DEVICE: hip unless given. q4_0 is what symmetric GPTQ is in memory, int4-g128 a
# group's scale and zero, e4m3 FP8. cuBLAS needs PyTorch (bench/cublas.py); without it that column is left
# out. Three runs of each, in turn, so that what changes with the clock is seen. Within three minutes.
set -u

case $# in 1 | 2) ;; *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
godwit=$1 device=${2:-hip} rows=1,2,4,8,16,32,64,128,160,192,256,320
here=$(dirname "$0")

failed=0
for shape in 14336:21504 21504:14336; do
    k=${shape%:*} n=${shape#*:}
    for round in 1 2 3; do
        for format in q4_0 int4-g128 e4m3; do
            echo "# round $round"
            "$godwit" bench --gemm "$format:K=$k,N=$n,M=$rows" --device "$device" || failed=1
        done
        if python3 -c 'import torch; raise SystemExit(not torch.cuda.is_available())' 2> /dev/null; then
            python3 "$here/cublas.py" "$k" "$n" "$rows" || failed=1
        fi
    done
done
exit $failed
