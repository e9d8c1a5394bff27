# Functions for cases with a cluster; sourced. Logs and process numbers lie in the working folder.
url=http://127.0.0.1:8000

wait_for() {  # wait_for TRIES COMMAND...: a try is a tenth of a second and more
  left=$1
  shift
  until "$@" > /dev/null 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || return 1
    usleep 100000
  done
}

fail() {
  echo "FAILED: $*"
  tail -n 20 ./*.log
  exit 1
}

config() {  # config LANE: writes cluster.yaml
  cat > cluster.yaml << YAML
cluster: {name: guest, token: guest, gateways: ["127.0.0.1:7000"], heartbeat_ms: 250, suspect_after: 120, dead_after: 240}
model: {id: tiny, path: /tmp/tiny.gguf}
kv: {arena_mb: 16}
transfer: {transport: $1}
gateway: {listen: "127.0.0.1:8000", control_listen: "127.0.0.1:7000"}
prefill: {engine: {isa: scalar, threads: 1}, pool: [{name: prefill-0}, {name: prefill-1}]}
decode: {engine: {isa: scalar, threads: 1}, pool: [{name: decode-0}, {name: decode-1}]}
YAML
}

start() {  # start NAME...: gateway, prefill-N, decode-N
  for name in "$@"; do
    case $name in
      gateway) baton-gateway --config cluster.yaml > gateway.log 2>&1 & ;;
      *) "baton-${name%-*}" --config cluster.yaml --name "$name" > "$name.log" 2>&1 & ;;
    esac
    echo $! > "$name.pid"
  done
}

nodes() {  # one node a line
  wget -q -O - $url/baton/status | tr '{' '\n' | grep '"role"'
}

count_is() { [ "$(nodes | wc -l)" = "$1" ]; }

ready() {  # ready NODES
  wait_for 600 wget -q -O /dev/null $url/readyz && wait_for 600 count_is "$1" || fail "the cluster is not ready"
}

stop() {  # stop NAME...: each must end with status 0
  for name in "$@"; do kill "$(cat "$name.pid")"; done
  for name in "$@"; do wait "$(cat "$name.pid")" || fail "$name ended with status $?"; done
}

post() {  # post FILE JSON: the answer goes into FILE
  wget -q -O "$1" --header 'Content-Type: application/json' --header 'x-baton-figures: 1' \
    --post-data "$2" $url/v1/completions
}
