#!/bin/bash
# Checks Meshift on this machine's GPU: the CUDA kernels against the CPU and against a device-to-device copy, and the conformance cases on
# NCCL with 2, 4 and 8 ranks on one device. Needs the programs beside it, NVIDIA's driver, and libnccl.so.2, which may also be part of a
# Python installation.
#
#   ./run_gpu_checks.sh                  about 20 minutes
#   ./run_gpu_checks.sh --quick          about 5
#   ./run_gpu_checks.sh [--ranks 2,4] [--cases 500] [--seconds 300] [--copies 150] [--rounds 3] [--mib 512]
#
# --cases, --seconds: of each number of ranks; --copies, --rounds: cases of the kernels, of copies and of others; --mib: of the buffers that
# are timed.
# MESHIFT_CUDA_LIBRARY, MESHIFT_NCCL_LIBRARY: other files than libcuda.so.1 and libnccl.so.2.
# Ends with 0: all is right; 1: something is wrong; 2: bad usage; 3: nothing could be checked, as there is no GPU or no NCCL.
set -u

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
ranks=2,4,8 cases=500 seconds=300 copies=150 rounds=3 mib=512
while (($#)); do
  case $1 in
    --quick) cases=100 seconds=60 copies=50 rounds=1 ;;
    --ranks | --cases | --seconds | --copies | --rounds | --mib)
      if (($# < 2)); then
        echo "run_gpu_checks: $1 wants a value" >&2
        exit 2
      fi
      form='[1-9][0-9]{0,8}' what='a number from 1 on'
      [[ $1 == --ranks ]] && form='([2-9]|1[0-6])(,([2-9]|1[0-6]))*' what='numbers from 2 to 16, with commas between them'
      if [[ ! $2 =~ ^$form$ ]]; then
        echo "run_gpu_checks: $1 wants $what, not '$2'" >&2
        exit 2
      fi
      declare "${1#--}=$2"
      shift
      ;;
    *)
      echo "run_gpu_checks: unknown option $1" >&2
      exit 2
      ;;
  esac
  shift
done

# Where a Python installation, active or not, keeps NCCL.
nccl_of_python() {
  local python folder file
  for python in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python3}" python3 python; do
    [[ -n $python ]] && command -v "$python" > /dev/null || continue
    while read -r folder; do
      file=$folder/nvidia/nccl/lib/libnccl.so.2
      [[ -f $file ]] && echo "$file"
    done < <("$python" -c 'import site, sys; print("\n".join(dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()])))' 2> /dev/null)
  done
  for file in /opt/*/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2 /usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2; do
    [[ -f $file ]] && echo "$file"
  done
}

# All that there are, the one first that the dynamic linker would take.
all_nccl() {
  local folder
  while read -r -d : folder; do
    [[ -n $folder && -f $folder/libnccl.so.2 ]] && echo "$folder/libnccl.so.2"
  done <<< "${LD_LIBRARY_PATH:-}:"
  ldconfig -p 2> /dev/null | sed -n 's/.*libnccl\.so\.2 .*=> //p'
  for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib "${CUDA_HOME:-/usr/local/cuda}"/lib64; do
    [[ -f $folder/libnccl.so.2 ]] && echo "$folder/libnccl.so.2"
  done
  nccl_of_python
}

# The first that can be used; else the first, for nccl_check to say what is wrong with it.
find_nccl() {
  local file first=
  while read -r file; do
    MESHIFT_NCCL_LIBRARY=$file "$here/nccl_check" --probe > /dev/null 2>&1 && echo "$file" && return
    first=${first:-$file}
  done < <(all_nccl)
  echo "$first"
}

if command -v nvidia-smi > /dev/null; then
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null
fi

"$here/kernel_check" "$copies" "$rounds" "$mib"
kernels=$?
if ((kernels == 3)); then
  echo "run_gpu_checks: nothing was checked" >&2
  exit 3
fi

if [[ -z ${MESHIFT_NCCL_LIBRARY:-} ]]; then
  MESHIFT_NCCL_LIBRARY=$(find_nccl)
  if [[ -z $MESHIFT_NCCL_LIBRARY ]]; then
    echo "run_gpu_checks: no libnccl.so.2 on the linker's path, in the CUDA toolkit or in a Python installation; MESHIFT_NCCL_LIBRARY names it" >&2
    exit $((kernels ? 1 : 3))
  fi
  export MESHIFT_NCCL_LIBRARY
fi
echo
echo "NCCL: $MESHIFT_NCCL_LIBRARY"
"$here/nccl_check" --ranks "$ranks" --cases "$cases" --seconds "$seconds"
nccl=$?

echo
if ((kernels == 0 && nccl == 0)); then
  echo "all is right"
  exit 0
fi
echo "kernels: $( ((kernels)) && echo wrong || echo right ), NCCL: $( ((nccl == 3)) && echo "not checked" || { ((nccl)) && echo wrong || echo right; })"
exit $((kernels == 0 && nccl == 3 ? 3 : 1))
