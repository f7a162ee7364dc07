#!/bin/bash
# PyTorch's own analyser reads the records of a job with one missing rank, and names the rank, even
# if that rank has left no record.
#
#   flight_recorder_test.sh MESHIFT MISSING_RANK      # MESHIFT_TORCH_PYTHON: a Python that has PyTorch 2.10 or later, and must have it
set -u
meshift=$1 missing_rank=$2
python=${MESHIFT_TORCH_PYTHON:-python3}
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/fr.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! "$python" -c 'import torch.distributed.flight_recorder.fr_trace' > "$work/import" 2>&1; then
  echo "skipped: $python has no torch.distributed.flight_recorder (PyTorch 2.10 or later): $(tail -n 1 "$work/import")"
  [[ -z ${MESHIFT_TORCH_PYTHON:-} ]]
  exit
fi
"$python" -c 'import torch; print("PyTorch", torch.__version__)'
for missing in 2 0; do
  rm -rf "$work/dump" "$work/fr"
  "$missing_rank" "$work/dump" $missing || exit 1
  for without_record in 0 1; do
    ((without_record == 0)) || rm "$work/dump/"*"rank0000$missing.json"
    "$meshift" dump "$work/dump" --flight-recorder "$work/fr" || exit 1
    "$python" -m torch.distributed.flight_recorder.fr_trace "$work/fr" > "$work/said" 2>&1
    code=$?
    grep -E 'Not all ranks joining|missing ranks|expected ranks|collective:|error' "$work/said"
    if ((code != 0)) || ! grep -q "missing ranks: {$missing}" "$work/said" ||
      grep -qi 'mismatch\|has errors\|Traceback' "$work/said"; then
      echo "the analyser (exit code $code) does not name rank $missing alone:"
      cat "$work/said"
      exit 1
    fi
  done
done
