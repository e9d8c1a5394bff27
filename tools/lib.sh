# Shared by the scripts in tools/: messages, steps with logs, and the end message of a failed step.
# Progress goes to stderr, so that stdout holds only what a command is asked for.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
logs=$root/build/logs
started=$SECONDS
mkdir -p "$logs"

say() { printf '%s\n' "$*" >&2; }

# step "Title" LOG COMMAND...: runs the command with all output in build/logs/LOG, shows what share
# of it is done when it prints "[n/m]" lines, and ends the script with the log's end when it fails.
step() {
  local title=$1 log=$logs/$2 from=$SECONDS status
  shift 2
  say "==> $title"
  set +e
  ("$@") 2>&1 | tee "$log" | awk '
    match($0, /^\[[0-9]+\/[0-9]+\]/) {
      split(substr($0, 2, RLENGTH - 2), part, "/")
      share = int(part[1] * 10 / part[2])
      if (share > shown) { shown = share; printf "    %d%% (%d of %d)\n", share * 10, part[1], part[2]; fflush() }
      next
    }
    /^    [^ ]/ { print "    " $0; fflush() }' >&2
  status=${PIPESTATUS[0]}
  set -e
  if [ "$status" -ne 0 ]; then
    say ""
    say "---- last lines of $log"
    tail -n 40 "$log" >&2
    say "----"
    say "FAILED: $title (exit status $status). The whole log: $log"
    exit 1
  fi
  say "    done in $((SECONDS - from)) s"
}

# peer_environment NAME MODULE WHEEL...: makes $BATON_CACHE/peers/NAME, a Python environment with the
# wheels and the loop that drives them, and prints its folder. System libraries that MODULE lacks are
# installed.
peer_environment() {
  local name=$1 module=$2 folder=${BATON_CACHE:-$HOME/.cache/baton}/peers/$1 as_root=
  shift 2
  if ! "$folder/bin/python3" -c "import $module" 2> /dev/null; then
    mkdir -p "$(dirname "$folder")"
    step "Making $folder" "peer-$name.log" python3 -m venv --clear "$folder"
    step "Fetching $*" "peer-$name.log" \
      "$folder/bin/python3" -m pip install --disable-pip-version-check --no-deps "$@"
    if ! "$folder/bin/python3" -c "import $module" 2> /dev/null; then
      [ "$(id -u)" -eq 0 ] || as_root=sudo
      step "Installing system libraries" "peer-$name.log" $as_root apt-get \
        -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
        libibverbs1 librdmacm1 libnuma1 libcurl4
      step "Trying $module" "peer-$name.log" "$folder/bin/python3" -c "import $module"
    fi
  fi
  cp "$root/tools/peers/transfer_loop.py" "$folder/"
  say "$name is there:"
  echo "$folder"
}
