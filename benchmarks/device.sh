#!/usr/bin/env bash
# What only a machine with a GPU can tell, in eight minutes at most: whether the planes are exact on
# the device, how much of the bare loop's pace the real one keeps with a large network in bfloat16,
# how long the device waits for input, and what the evaluators answer.
#
# From the root of a checkout after `make train GPU=1` and `make test`:
#
#     bash benchmarks/device.sh [FOLDER]
#
# FOLDER (device-results by default) gets one file a part: the JSON object, or what went wrong.
# A part that fails or takes too long does not end the others.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
folder=${1:-device-results}
mkdir -p "$folder"
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} TF_CPP_MIN_LOG_LEVEL=2
failed=0

part() { # name, seconds at most, command …
    local name=$1 limit=$2
    shift 2
    echo "== $name"
    if timeout "$limit" "$@" >"$folder/$name.out" 2>"$folder/$name.err"; then
        tail -n 1 "$folder/$name.out"
    else
        failed=1
        echo "failed with status $?; the end of $folder/$name.err:"
        tail -n 5 "$folder/$name.err"
    fi
}

"$python" -c '
import sys
import tensorflow as tf
found = tf.config.list_physical_devices("GPU")
print(*found, sep="\n")
sys.exit(0 if found else "error: TensorFlow sees no GPU here; install it with make train GPU=1")
' || exit 1
part planes 90 "$python" -m pytest -q tests/test_features_vs_cshogi.py tests/test_ginkgo148.py
part training 150 "$python" benchmarks/training.py --network b10c192 --batch-size 1024 --steps 150
part starvation 90 "$python" benchmarks/starvation.py --rate 90000 --workers 8 --seconds 20
part evaluator 120 "$python" benchmarks/evaluator.py --batch-sizes 1 64 256
exit $failed
