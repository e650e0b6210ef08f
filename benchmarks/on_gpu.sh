#!/bin/sh
# Everything that needs a GPU, in one go: the tests marked `gpu`, then the benchmarks.
#
#   benchmarks/on_gpu.sh OUT [options of `ostinato bench graphs`]
#
# Runs from a checkout, installed or not. Into the folder OUT go gpu-tests.json and gpu-tests.log,
# <part>_<gpu>_<date>.json and <part>.log of each benchmark, and what the doctor's recorders saw. Each
# part runs whatever becomes of the others. All of it takes about 25 minutes; in pieces:
#
#   TEST_S=300 DECODE_S=150 BENCH_S=0 RECORD_S=90 benchmarks/on_gpu.sh first
#   TEST_S=0 SERVE_S=150 WATCH_S=100 BENCH_S=300 benchmarks/on_gpu.sh second --quick
#
#   PYTHON   interpreter (python3)
#   TEST_S   seconds for the tests (240); 0 leaves them out
#   TESTS    what to test (tests)
#   WORKERS  test files that run at a time (8)
#   BENCH_S  seconds for `bench graphs` (450); 0 leaves it out. A minute before the end it begins
#            nothing new, and reports what remains as not run.
#   DECODE_S, OFFLINE_S, SERVE_S   seconds for `bench decode`, `bench offline`, `bench serve` (0)
#   DECODE, OFFLINE, SERVE         their options
#   RECORD_S  seconds for the evidence that the doctor's tests replay where there is no GPU (0)
#   WATCH_S   seconds for the cost of a watch (0)
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
DECODE_S=${DECODE_S:-0}
OFFLINE_S=${OFFLINE_S:-0}
SERVE_S=${SERVE_S:-0}
RECORD_S=${RECORD_S:-0}
WATCH_S=${WATCH_S:-0}
PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH HF_HUB_OFFLINE=1 PYTHONUNBUFFERED=1

# The compiled check of watched places is optional, but it decides what a call costs on the host.
# The flags are those of pyproject.toml; a build that fails leaves an existing one as it was.
BUILT=$OUT/_unchanged.so
if "${CC:-gcc}" -shared -fPIC -O2 -DPy_LIMITED_API=0x030B0000 \
    "-I$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
    src/ostinato/graphs/_unchanged.c -o "$BUILT" 2>"$OUT/build.log"; then
  mv "$BUILT" src/ostinato/graphs/_unchanged.abi3.so
fi
if "$PYTHON" -c 'import ostinato.graphs._unchanged'; then
  echo "the compiled check of watched places is there"
else
  echo "the compiled check of watched places could not be built; its Python twin is measured:"
  tail -n 3 "$OUT/build.log"
fi
rm -f "$BUILT"

# torch.compile keeps what it compiled on disk. Compiled while the tests run, it costs the benchmark
# no time of its own; nothing is measured here.
if [ "$BENCH_S" -gt 0 ]; then
  for model in bert-128 bert-512 resnet50 gpt2 minilm; do
    timeout "$TEST_S" "$PYTHON" -m ostinato.cli bench graphs --quick --models "$model" \
      --contenders compile,reduce-overhead,inside >/dev/null 2>&1 &
  done
fi

status=0
if [ "$TEST_S" -gt 0 ]; then
  # shellcheck disable=SC2086 # a list of paths
  timeout "$TEST_S" "$PYTHON" benchmarks/gpu_tests.py "$OUT/gpu-tests.json" \
    --workers "$WORKERS" $TESTS >"$OUT/gpu-tests.log" 2>&1 || status=$?
  echo "tests: exit status $status"
  grep -E '^E  ' "$OUT/gpu-tests.log" | sort | uniq -c | sort -rn | head -n 40
  tail -n 30 "$OUT/gpu-tests.log"
fi

gpu=$("$PYTHON" -c 'import torch
name = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
print(name.lower().replace("nvidia ", "").replace(" ", "-"))')
day=$(date -u +%Y-%m-%d)

# bench PART SECONDS OPTIONS...: stdout goes to a file of its own, so that what people read can be
# shown without the JSON.
bench() {
  part=$1 seconds=$2
  shift 2
  timeout "$seconds" "$PYTHON" -m ostinato.cli bench "$part" \
    --out "$OUT/${part}_${gpu}_$day.json" "$@" >"$OUT/$part.log" 2>"$OUT/$part-progress.log"
  ended=$?
  echo "bench $part: exit status $ended"
  [ "$ended" -eq 0 ] || { tail -n 20 "$OUT/$part-progress.log"; status=$ended; }
  grep -v '^{' "$OUT/$part.log"
}

# record NAME COMMAND...: a recorder of the doctor's; what it printed is shown where it failed.
record() {
  name=$1
  shift
  PYTHONPATH=$PYTHONPATH:tests timeout "$RECORD_S" "$PYTHON" "$@" >"$OUT/$name.log" 2>&1
  ended=$?
  echo "$name: exit status $ended"
  [ "$ended" -eq 0 ] || { tail -n 20 "$OUT/$name.log"; status=$ended; }
}

wait # the compilers share the GPU: what is measured has it alone
# shellcheck disable=SC2086 # lists of options
[ "$DECODE_S" -eq 0 ] || bench decode "$DECODE_S" --budget-s "$((DECODE_S - 30))" ${DECODE:-}
# shellcheck disable=SC2086
[ "$OFFLINE_S" -eq 0 ] || bench offline "$OFFLINE_S" ${OFFLINE:-}
# shellcheck disable=SC2086
[ "$SERVE_S" -eq 0 ] || bench serve "$SERVE_S" ${SERVE:---model llama3.2-1b --streams 1,8,32,128,256 --beside}
[ "$BENCH_S" -eq 0 ] || bench graphs "$BENCH_S" --budget-s "$((BENCH_S - 60))" "$@"
if [ "$WATCH_S" -gt 0 ]; then
  timeout "$WATCH_S" "$PYTHON" benchmarks/watch_overhead.py --out "$OUT/watch_${gpu}_$day.json" \
    --seconds "$((WATCH_S / 4))" >"$OUT/watch.log" 2>&1
  ended=$?
  echo "watch: exit status $ended"
  tail -n 12 "$OUT/watch.log"
fi
if [ "$RECORD_S" -gt 0 ]; then
  record seeded tests/doctor/seeded/record.py "$OUT/seeded.json"
  mkdir -p "$OUT/traces"
  record traces -m doctor.trace.record "$OUT/traces"
fi
exit "$status"
