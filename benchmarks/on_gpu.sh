#!/bin/sh
# Everything that needs a GPU, in one go: the tests marked `gpu`, then the benchmarks.
#
#   benchmarks/on_gpu.sh OUT [options of `ostinato bench graphs`]
#
# Runs from a checkout, installed or not. Into the folder OUT go gpu-tests.json, tuned.json and
# <part>_<gpu>_<date>.json, each written as its part goes on, and logs.tar.gz with what all of them
# printed and what the doctor's recorders saw, written after each part. A part runs whatever becomes
# of the others, and for so many seconds at most; without a word a run takes 12 minutes at most.
# README.md beside this says how to have everything within half an hour.
#
#   PYTHON   interpreter (python3)
#   TEST_S   seconds for the tests (240); 0 leaves them out
#   TESTS    what to test, first what matters most (tests)
#   WORKERS  test files that run at a time (8)
#   BENCH_S  seconds for `bench graphs` (450); 0 leaves it out. A minute before the end it begins
#            nothing new, and reports what remains as not run.
#   TUNE_S   seconds for `tune_decode.py` (0), TUNE its options
#   SHIP     1: what tuning found is put into the checkout's plans, and measured by what follows (0)
#   DECODE_S, OFFLINE_S, SERVE_S   seconds for `bench decode`, `bench offline`, `bench serve` (0)
#   DECODE, OFFLINE, SERVE         their options; DECODE is --no-peers if not given
#   RECORD_S  seconds for each of two recorders of the evidence that the doctor's tests replay (0)
#   LONG_S    seconds for `long_context.py` (0), LONG its options
#   WATCH_S   seconds for the cost of a watch (0): 150 settle most of it
set -u

OUT=${1:?usage: benchmarks/on_gpu.sh OUT [options of ostinato bench graphs]}
shift
mkdir -p "$OUT" && OUT=$(cd "$OUT" && pwd) || exit
cd "$(dirname "$0")/.." || exit
PYTHON=${PYTHON:-python3}
TEST_S=${TEST_S:-240}
TESTS=${TESTS:-tests}
WORKERS=${WORKERS:-8}
BENCH_S=${BENCH_S:-450}
TUNE_S=${TUNE_S:-0}
DECODE_S=${DECODE_S:-0}
DECODE=${DECODE:---no-peers}
OFFLINE_S=${OFFLINE_S:-0}
SERVE_S=${SERVE_S:-0}
RECORD_S=${RECORD_S:-0}
LONG_S=${LONG_S:-0}
WATCH_S=${WATCH_S:-0}
PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1

LOGS=$(mktemp -d) || exit
# pack: a run that is ended half-way leaves the logs of the parts before.
pack() {
  tar -C "$LOGS" -czf "$LOGS.tar.gz" . && mv -f "$LOGS.tar.gz" "$OUT/logs.tar.gz"
}
trap 'pack; rm -rf "$LOGS"' EXIT

# The compiled check of watched places is optional, but it decides what a call costs on the host.
# The flags are those of pyproject.toml; a build that fails leaves an existing one as it was.
BUILT=$LOGS/_unchanged.so
if "${CC:-gcc}" -shared -fPIC -O2 -DPy_LIMITED_API=0x030B0000 \
    "-I$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
    src/ostinato/graphs/_unchanged.c -o "$BUILT" 2>"$LOGS/build.log"; then
  mv "$BUILT" src/ostinato/graphs/_unchanged.abi3.so
fi
if "$PYTHON" -c 'import ostinato.graphs._unchanged'; then
  echo "the compiled check of watched places is there"
else
  echo "the compiled check of watched places could not be built; its Python twin is measured:"
  tail -n 3 "$LOGS/build.log"
fi
rm -f "$BUILT"

# torch.compile and Triton keep what they compiled on disk. Compiled while the tests run, or side by
# side, it costs the benchmarks no time of their own; nothing is measured here.
compile_s=$TEST_S
[ "$compile_s" -gt 0 ] || compile_s=90
if [ "$BENCH_S" -gt 0 ]; then
  for model in bert-128 bert-512 resnet50 gpt2 minilm; do
    timeout -k 10 "$compile_s" "$PYTHON" -m ostinato.cli bench graphs --quick --models "$model" \
      --contenders compile,reduce-overhead,inside >/dev/null 2>&1 &
  done
fi
if [ "$((DECODE_S + SERVE_S))" -gt 0 ]; then
  case $DECODE in
    *--models*) models="" ;; # those, as they are to be measured
    *) models="llama3-8b llama3.2-1b smollm2-135m" ;;
  esac
  for model in ${models:-as-said}; do
    # The largest batch will do: an engine records, and so compiles, for all smaller ones.
    # shellcheck disable=SC2086 # a list of options
    timeout -k 10 "$compile_s" "$PYTHON" -m ostinato.cli bench decode ${models:+--models "$model"} \
      --batches 256 --no-kernels $DECODE >/dev/null 2>&1 &
  done
fi

status=0
if [ "$TEST_S" -gt 0 ]; then
  # shellcheck disable=SC2086 # a list of paths
  timeout -k 10 "$TEST_S" "$PYTHON" benchmarks/gpu_tests.py "$OUT/gpu-tests.json" \
    --workers "$WORKERS" --apart tests/llm/attention/test_triton_sizes.py \
    --apart tests/llm/kernels/test_paged_decode_few.py $TESTS >"$LOGS/gpu-tests.log" 2>&1 || status=$?
  echo "tests: exit status $status"
  grep -E '^E  ' "$LOGS/gpu-tests.log" | sort | uniq -c | sort -rn | head -n 40
  tail -n 30 "$LOGS/gpu-tests.log"
  pack
fi

gpu=$("$PYTHON" -c 'import torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
print(name.lower().replace("nvidia ", "").replace(" ", "-"))')
day=$(date -u +%Y-%m-%d)

# bench PART SECONDS OPTIONS...: stdout goes to a file of its own, so that what people read can be
# shown without the JSON. The server of `bench serve` needs a while to end.
bench() {
  part=$1 seconds=$2
  shift 2
  timeout -k 50 "$seconds" "$PYTHON" -m ostinato.cli bench "$part" \
    --out "$OUT/${part}_${gpu}_$day.json" "$@" >"$LOGS/$part.log" 2>"$LOGS/$part-progress.log"
  ended=$?
  echo "bench $part: exit status $ended"
  [ "$ended" -eq 0 ] || { tail -n 20 "$LOGS/$part-progress.log"; status=$ended; }
  grep -v '^{' "$LOGS/$part.log"
  pack
}

# script NAME SECONDS FILE OPTIONS...: a script of this folder; the end of what it printed is shown.
script() {
  name=$1 seconds=$2
  shift 2
  timeout -k 10 "$seconds" "$PYTHON" "$@" >"$LOGS/$name.log" 2>&1
  ended=$?
  echo "$name: exit status $ended"
  [ "$ended" -eq 0 ] || status=$ended
  tail -n 20 "$LOGS/$name.log"
  pack
}

# record NAME COMMAND...: a recorder of the doctor's; what it printed is shown where it failed.
record() {
  name=$1
  shift
  PYTHONPATH=$PYTHONPATH:tests timeout -k 10 "$RECORD_S" "$PYTHON" "$@" >"$LOGS/$name.log" 2>&1
  ended=$?
  echo "$name: exit status $ended"
  [ "$ended" -eq 0 ] || { tail -n 20 "$LOGS/$name.log"; status=$ended; }
  pack
}

wait # the compilers share the GPU: what is measured has it alone
if [ "$TUNE_S" -gt 0 ]; then
  # Shorter by what a trial may take that has begun.
  # shellcheck disable=SC2086 # lists of options, here and below
  script tune "$TUNE_S" benchmarks/tune_decode.py "$OUT/tuned.json" \
    --seconds "$((TUNE_S - 20))" ${TUNE:-}
  [ "${SHIP:-0}" != 1 ] || "$PYTHON" benchmarks/tune_decode.py "$OUT/tuned.json" --ship
fi
# shellcheck disable=SC2086
[ "$DECODE_S" -eq 0 ] || bench decode "$DECODE_S" --budget-s "$((DECODE_S - 30))" $DECODE
# shellcheck disable=SC2086
[ "$LONG_S" -eq 0 ] || script long "$LONG_S" benchmarks/long_context.py \
  "$OUT/long-context_${gpu}_$day.json" --budget-s "$((LONG_S - 25))" ${LONG:-}
# shellcheck disable=SC2086
[ "$OFFLINE_S" -eq 0 ] || bench offline "$OFFLINE_S" ${OFFLINE:-}
# shellcheck disable=SC2086
[ "$SERVE_S" -eq 0 ] || bench serve "$SERVE_S" ${SERVE:---model llama3.2-1b --streams 1,8,32,128,256 --beside}
[ "$BENCH_S" -eq 0 ] || bench graphs "$BENCH_S" --budget-s "$((BENCH_S - 60))" "$@"
[ "$WATCH_S" -eq 0 ] || script watch "$WATCH_S" benchmarks/watch_overhead.py \
  --out "$OUT/watch_${gpu}_$day.json" --seconds "$((WATCH_S - 12))"
if [ "$RECORD_S" -gt 0 ]; then
  record seeded tests/doctor/seeded/record.py "$LOGS/seeded.json"
  mkdir -p "$LOGS/traces"
  record traces -m doctor.trace.record "$LOGS/traces"
fi
exit "$status"
