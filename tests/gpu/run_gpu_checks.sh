#!/bin/bash
# Checks Meshift on this machine's GPU, in stages with separate limits: facts; the CUDA kernels
# against the CPU and against a copy; their sanitizer; the conformance cases on NCCL with 2, 4 and 8
# ranks on one device; and properties of NCCL that only a device shows. Needs the programs beside
# it, NVIDIA's driver, and libnccl.so.2, which may be part of a Python installation.
#
#   ./run_gpu_checks.sh [--minutes 8] [--only STAGE[,STAGE]] [--out FOLDER]
#                       [--ranks 2,4,8] [--cases 100] [--copies 50] [--rounds 1] [--mib 512]
#
# --minutes: the limit for all stages; a stage that does not fit is not begun. --only: these stages,
# such as the wrong ones of a first run; --list prints all. --cases: for each number of ranks;
# --copies, --rounds: cases of copies and of the other kernels; --mib: size of the timed buffers.
#
# Results are lines of FOLDER/results.txt ($OUT by default, else ./gpu-results), each written as
# soon as it is known, so that a run that is cut off leaves its results: "begin STAGE", then the
# stage's output, each line after "STAGE | ", then "end STAGE: right, 12 s", or wrong, or skipped
# with the reason. Another run appends its lines. FOLDER/logs.tar.gz has the logs of all ended
# stages.
#
# MESHIFT_CUDA_LIBRARY, MESHIFT_NCCL_LIBRARY: used instead of libcuda.so.1 and libnccl.so.2.
# MESHIFT_PYTHON: a Python with PyTorch.
# Exit codes: 0 all is right; 1 something is wrong; 2 bad usage; 3 some or all stages could not be
# checked, without a GPU or NCCL.
set -u

PATH=$PATH:/usr/sbin:/sbin # for ldconfig
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
all_stages=(facts kernels_first memcheck racecheck ranks2_first ranks2 ranks2_4ctas invariant probe kernels ranks4 ranks8 mps)
minutes=8 only='' out=${OUT:-gpu-results} ranks=2,4,8 cases=100 copies=50 rounds=1 mib=512

bad_usage() {
  echo "run_gpu_checks: $1" >&2
  exit 2
}

while (($#)); do
  case $1 in
    --list)
      printf '%s\n' "${all_stages[@]}"
      exit 0
      ;;
    --minutes | --only | --out | --ranks | --cases | --copies | --rounds | --mib)
      (($# >= 2)) || bad_usage "$1 wants a value"
      form='[1-9][0-9]{0,8}' what='a number from 1 on'
      case $1 in
        --minutes) form='[1-9][0-9]{0,2}' what='a number from 1 to 999' ;;
        --ranks) form='([2-9]|1[0-6])(,([2-9]|1[0-6]))*' what='numbers from 2 to 16, with commas between them' ;;
        --out) form='.+' what='a folder' ;;
        --only)
          one=$(IFS='|' && echo "${all_stages[*]}")
          form="($one)(,($one))*" what="stages (${all_stages[*]}), with commas between them"
          ;;
      esac
      [[ $2 =~ ^$form$ ]] || bad_usage "$1 wants $what, not '$2'"
      declare "${1#--}=$2"
      shift
      ;;
    *) bad_usage "unknown option $1" ;;
  esac
  shift
done

mkdir -p "$out" 2> /dev/null || bad_usage "cannot make the folder $out"
out=$(readlink -f "$out")
results=$out/results.txt
{ : >> "$results"; } 2> /dev/null || bad_usage "cannot write $results"

# --- Results and time.

# The archive is rebuilt at the end of each stage, which takes time too.
deadline=$((SECONDS + minutes * 60 - 5))
left() { echo $((deadline - SECONDS)); }

# Each line is written at once, in one write.
say() { printf '%s\n' "$1" | tee -a "$results"; }

run=$(($(grep -c '^run ' "$results") + 1))
logs=$out/logs
work=$(mktemp -d) || exit 1
cleanup() { rm -rf "$work"; }
trap cleanup EXIT
if [[ -f $out/logs.tar.gz && ! -d $logs ]]; then tar -C "$out" -xzf "$out/logs.tar.gz" 2> /dev/null; fi
mkdir -p "$logs/$run"

archive() {
  tar -C "$out" -czf "$out/logs.tar.gz.new" logs 2> /dev/null && mv "$out/logs.tar.gz.new" "$out/logs.tar.gz"
}

stage='' child=''
# Ends the running stage, and keeps the results.
on_signal() {
  trap '' TERM INT HUP
  if [[ -n $child ]]; then kill -KILL -- "-$child" 2> /dev/null || kill -KILL "$child" 2> /dev/null; fi
  [[ -n $stage ]] && say "end $stage: cut off by a signal"
  archive
  exit 1
}
trap on_signal TERM INT HUP

# A child does not outlive this script, however the script ends.
bound=()
if command -v setpriv > /dev/null && setpriv --pdeathsig KILL true 2> /dev/null; then bound=(setpriv --pdeathsig KILL); fi

right=() wrong=() skipped=()
declare -A verdict=()
nothing= # set if a program found nothing to check

wanted() { [[ -z $only || ,$only, == *,$1,* ]]; }

skip() {
  say "begin $1"
  say "end $1: skipped: $2"
  verdict[$1]=skipped
  skipped+=("$1")
}

# run_stage <stage> <least seconds> <most seconds> <command...>: sets code. "@" in an argument is
# the limit, in seconds; "%" the folder for its logs.
run_stage() {
  local least=$2 most=$3 begin=$SECONDS limit line arguments=() argument
  stage=$1
  shift 3
  limit=$(left)
  ((limit > most)) && limit=$most
  if ((limit < least)); then
    skip "$stage" "it needs $least s, and $(left) s are left"
    stage='' code=-1
    return
  fi
  say "begin $stage"
  local folder=$logs/$run/$stage
  mkdir -p "$folder"
  for argument in "$@"; do
    argument=${argument//%/$folder}
    if [[ $argument =~ ^(.*)@-([0-9]+)$ ]]; then argument=${BASH_REMATCH[1]}$((limit - BASH_REMATCH[2])); fi
    arguments+=("${argument//@/$limit}")
  done
  : > "$folder/output"
  # The process group of timeout contains all that it starts.
  "${bound[@]}" timeout -k 2 $((limit - 2)) "${bound[@]}" "${arguments[@]}" > "$folder/output" 2>&1 &
  child=$!
  # Each line of output is a result as soon as it is printed.
  local seen=0
  follow() {
    local now
    now=$(wc -l < "$folder/output")
    if ((now > seen)); then
      while IFS= read -r line; do
        say "$stage | ${line:0:400}"
      done < <(sed -n "$((seen + 1)),${now}p" "$folder/output" | tr -d '\000-\010\013-\037\177')
      seen=$now
    fi
  }
  while kill -0 "$child" 2> /dev/null; do
    follow
    sleep 0.2
  done
  wait "$child"
  code=$?
  child=
  [[ -n $(tail -c 1 "$folder/output") ]] && echo >> "$folder/output"
  follow
  local took=$((SECONDS - begin))
  case $code in
    0)
      verdict[$stage]=right right+=("$stage")
      say "end $stage: right, $took s"
      ;;
    3)
      verdict[$stage]=skipped skipped+=("$stage") nothing=1
      say "end $stage: skipped: there is nothing to check with"
      ;;
    *)
      verdict[$stage]=wrong wrong+=("$stage")
      if ((code == 124 || code == 137)); then line="not ended within $limit s"; else line="exit code $code"; fi
      say "end $stage: wrong, $took s: $line"
      ;;
  esac
  archive
  stage=
}

# --- The installed software.

# The NCCL of a Python installation, active or not.
nccl_of_python() {
  local python folder file
  for python in "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python3}" python3 python; do
    [[ -n $python ]] && command -v "$python" > /dev/null || continue
    while read -r folder; do
      file=$folder/nvidia/nccl/lib/libnccl.so.2
      [[ -f $file ]] && echo "$file"
    done < <("$python" -c 'import site, sys; print("\n".join(dict.fromkeys(sys.path + site.getsitepackages() + [site.getusersitepackages()])))' 2> /dev/null)
  done
  # MESHIFT_OPT: replaces /opt in tests.
  for file in "${MESHIFT_OPT:-/opt}"/{*,*/.venv,*/*}/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2 \
    /usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2; do
    [[ -f $file ]] && echo "$file"
  done
}

# All installed libraries, the dynamic linker's choice first.
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

# The first usable one; else the first, so that nccl_check can print the error.
find_nccl() {
  local file first=
  while read -r file; do
    MESHIFT_NCCL_LIBRARY=$file timeout 30 "$here/nccl_check" --probe > /dev/null 2>&1 && echo "$file" && return
    first=${first:-$file}
  done < <(all_nccl | awk '!seen[$0]++')
  echo "$first"
}

# The first Python whose files include PyTorch; the one that contains NCCL comes first.
find_python() {
  local python site=${MESHIFT_NCCL_LIBRARY:-}
  for python in "${site%/lib/python3*}/bin/python3" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" python3 /opt/{*,*/.venv,*/*}/bin/python3; do
    [[ -n $python ]] && command -v "$python" > /dev/null || continue
    timeout 10 "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2> /dev/null && echo "$python" && return
  done
}

print_facts() {
  fact() { printf '%s: %s\n' "$1" "${2:-none}"; }
  fact date "$(date -u '+%F %T UTC')"
  fact system "$(uname -sr), $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2> /dev/null), glibc $(ldd --version 2> /dev/null | sed -n '1s/.* //p')"
  fact processors "$(nproc) of $(nproc --all), cgroup cpu.max $(cat /sys/fs/cgroup/cpu.max 2> /dev/null)"
  fact memory "$(sed -n 's/^MemTotal: *//p' /proc/meminfo), cgroup memory.max $(cat /sys/fs/cgroup/memory.max 2> /dev/null)"
  fact /dev/shm "$(df -h --output=size,avail /dev/shm 2> /dev/null | tail -1 | tr -s ' ')"
  fact limits "open files $(ulimit -n), processes $(ulimit -u), locked memory $(ulimit -l)"
  if command -v nvidia-smi > /dev/null; then
    timeout 10 nvidia-smi --query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current,clocks.max.sm --format=csv,noheader 2>&1 | sed 's/^/gpu: /'
    timeout 10 nvidia-smi -q > "$1/nvidia-smi-q" 2>&1
    timeout 10 nvidia-smi topo -m > "$1/nvidia-smi-topo" 2>&1
  else
    fact gpu "no nvidia-smi"
  fi
  fact MPS "$(command -v nvidia-cuda-mps-control)"
  fact compute-sanitizer "$(find_sanitizer)"
  fact libcuda "${MESHIFT_CUDA_LIBRARY:-$(ldconfig -p 2> /dev/null | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -1)}"
  fact NCCL "${MESHIFT_NCCL_LIBRARY:-}"
  fact plugins "$(ldconfig -p 2> /dev/null | sed -n 's/.*\(libnccl-[a-z]*[^ ]*\.so[^ ]*\) .*=> \(.*\)/\2/p' | tr '\n' ' ')"
  [[ -f /etc/nccl.conf ]] && sed 's/^/\/etc\/nccl.conf, which NCCL always reads: /' /etc/nccl.conf
  fact Python "${MESHIFT_PYTHON:-}"
  if [[ -n ${MESHIFT_PYTHON:-} ]]; then
    fact PyTorch "$(timeout 10 "$MESHIFT_PYTHON" -c 'import importlib.metadata as m; print(m.version("torch"))' 2> /dev/null)"
  fi
  ldconfig -p > "$1/ldconfig" 2> /dev/null
  ulimit -a > "$1/ulimit"
  env | sed 's/=.*//' | sort > "$1/names-of-variables"
  return 0
}

find_sanitizer() {
  local file
  for file in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer \
    "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer; do
    [[ -x $file ]] && echo "$file" && return
  done
}

# --- The stages.

say "run $run: $(date -u '+%F %T UTC'), $minutes minutes${only:+, only $only}"

if [[ -z ${MESHIFT_NCCL_LIBRARY:-} ]]; then
  MESHIFT_NCCL_LIBRARY=$(find_nccl)
  if [[ -n $MESHIFT_NCCL_LIBRARY ]]; then
    export MESHIFT_NCCL_LIBRARY
    say "NCCL: $MESHIFT_NCCL_LIBRARY"
  else
    unset MESHIFT_NCCL_LIBRARY
  fi
fi
# PyTorch cannot run on a stand-in for the driver.
if [[ -z ${MESHIFT_PYTHON:-} && -z ${MESHIFT_CUDA_LIBRARY:-} ]]; then
  MESHIFT_PYTHON=$(find_python)
  [[ -n $MESHIFT_PYTHON ]] && export MESHIFT_PYTHON || unset MESHIFT_PYTHON
fi

if wanted facts; then
  export -f print_facts find_sanitizer
  run_stage facts 5 20 bash -c 'print_facts "$1"' facts %
fi

no_gpu=
if wanted kernels_first; then
  # Fewer cases than in a later stage.
  run_stage kernels_first 30 60 "$here/kernel_check" $((copies < 3 ? copies : 3)) 1 $((mib < 4 ? mib : 4)) @-25
  ((code == 3)) && no_gpu="there is no GPU"
fi

for tool in memcheck racecheck; do
  wanted $tool || continue
  sanitizer=$(find_sanitizer)
  if [[ -n $no_gpu ]]; then
    skip $tool "$no_gpu"
  elif [[ -n ${MESHIFT_CUDA_LIBRARY:-} ]]; then
    skip $tool "the driver is $MESHIFT_CUDA_LIBRARY, not NVIDIA's"
  elif [[ -z $sanitizer ]]; then
    skip $tool "there is no compute-sanitizer"
  else
    run_stage $tool 20 40 "$sanitizer" --tool $tool --error-exitcode 9 "$here/kernel_check" 1 1 0 @-15
  fi
done

# The number of ranks after which more ranks would find nothing new.
stopped=
# nccl_stage <stage> <at least> <at most> <options of nccl_check...>
nccl_stage() {
  local name=$1
  wanted "$name" || return
  if [[ -n $no_gpu ]]; then
    skip "$name" "$no_gpu"
  elif [[ -z ${MESHIFT_NCCL_LIBRARY:-} ]]; then
    skip "$name" "there is no libnccl.so.2 on the linker's path, in the CUDA toolkit or in a Python installation; MESHIFT_NCCL_LIBRARY names it"
  elif [[ -n $stopped ]]; then
    skip "$name" "$stopped was wrong"
  else
    local least=$2 most=$3
    shift 3
    run_stage "$name" "$least" "$most" "$here/nccl_check" "$@" --out %
    [[ ${verdict[$name]} == wrong ]] && stopped=$name
  fi
}
has_ranks() { [[ ,$ranks, == *,$1,* ]]; }
few=$((cases < 10 ? cases : 10)) half=$((cases < 50 ? cases : cases / 2))

if has_ranks 2; then
  nccl_stage ranks2_first 30 40 --ranks 2 --cases $few --seconds @-24 --slack 20 --times 0
  nccl_stage ranks2 60 75 --ranks 2 --cases "$cases" --seconds @-54 --slack 50
  nccl_stage ranks2_4ctas 30 40 --ranks 2 --cases $half --seconds @-24 --slack 20 --max-ctas 4 --times 0
  nccl_stage invariant 30 40 --ranks 2 --cases $half --seconds @-24 --slack 20 --promise batch-invariant --times 0
fi

if wanted probe; then
  if [[ -n $no_gpu ]]; then
    skip probe "$no_gpu"
  elif [[ -z ${MESHIFT_NCCL_LIBRARY:-} ]]; then
    skip probe "there is no libnccl.so.2"
  else
    run_stage probe 15 110 "$here/nccl_probe" --seconds @-4 --out %
  fi
fi

if wanted kernels; then
  if [[ -n $no_gpu ]]; then skip kernels "$no_gpu"; else run_stage kernels 45 120 "$here/kernel_check" "$copies" "$rounds" "$mib" @-40; fi
fi

# All remaining numbers.
for number in ${ranks//,/ }; do
  ((number == 2)) && continue
  nccl_stage "ranks$number" 40 75 --ranks "$number" --cases "$cases" --seconds @-34 --slack 30 --times 0
done

# With MPS the kernels of all ranks are on the device at once, and many more cases fit.
if wanted mps; then
  if [[ -n $no_gpu ]]; then
    skip mps "$no_gpu"
  elif [[ -n ${MESHIFT_CUDA_LIBRARY:-} ]]; then
    skip mps "the driver is $MESHIFT_CUDA_LIBRARY, not NVIDIA's"
  elif ! command -v nvidia-cuda-mps-control > /dev/null; then
    skip mps "there is no nvidia-cuda-mps-control"
  elif [[ -n $stopped ]]; then
    skip mps "$stopped was wrong"
  else
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$logs/$run/mps-daemon
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    "${bound[@]}" nvidia-cuda-mps-control -f > "$CUDA_MPS_LOG_DIRECTORY/output" 2>&1 &
    daemon=$!
    sleep 2
    if kill -0 $daemon 2> /dev/null; then
      nccl_stage mps 40 90 --ranks 8 --cases $((10 * cases)) --seconds @-34 --slack 30 --times 0
      echo quit | timeout 5 nvidia-cuda-mps-control > /dev/null 2>&1
      kill $daemon 2> /dev/null
      wait $daemon 2> /dev/null
    else
      skip mps "nvidia-cuda-mps-control does not start: $(tail -1 "$CUDA_MPS_LOG_DIRECTORY/output")"
    fi
  fi
fi

# --- The end.

archive && rm -rf "$logs"
# Whether a stage needs NCCL.
needs_nccl() { [[ $1 == ranks* || $1 == invariant || $1 == probe || $1 == mps ]]; }
for name in "${skipped[@]}"; do
  if needs_nccl "$name" && [[ -z ${MESHIFT_NCCL_LIBRARY:-} ]]; then nothing=1; fi
done
summary="right: ${right[*]:-none}; wrong: ${wrong[*]:-none}; skipped: ${skipped[*]:-none}"
if [[ -n $no_gpu ]]; then
  say "nothing was checked: $no_gpu"
  exit 3
elif ((${#wrong[@]})); then
  say "something is wrong; $summary"
  exit 1
elif [[ -n $nothing ]]; then
  say "not all could be checked; $summary"
  exit 3
fi
say "all is right; $summary"
