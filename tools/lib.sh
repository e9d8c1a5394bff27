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
