# One request through a cluster of three processes, first over tcp, then over verbs. Prints the answers
# as "answer LANE JSON" for the host to compare.
make_tiny_model llama /tmp/tiny.gguf || exit 1

wait_for() {  # wait_for TRIES COMMAND...: a try is a tenth of a second
  left=$1
  shift
  until "$@" > /dev/null 2>&1; do
    left=$((left - 1))
    [ $left -gt 0 ] || return 1
    usleep 100000
  done
}

config() {  # config LANE
  cat << YAML
cluster: {name: guest, token: guest, gateways: ["127.0.0.1:7000"], heartbeat_ms: 1000, suspect_after: 30, dead_after: 60}
model: {id: tiny, path: /tmp/tiny.gguf}
kv: {arena_mb: 16}
transfer: {transport: $1}
gateway: {listen: "127.0.0.1:8000", control_listen: "127.0.0.1:7000"}
prefill: {engine: {isa: scalar, threads: 1}, pool: [{name: prefill-0}]}
decode: {engine: {isa: scalar, threads: 1}, pool: [{name: decode-0}]}
YAML
}

request='{"model": "tiny", "prompt": "What one node computes another node goes on from: keys and values of each block travel once, each is counted, and none of them is computed a second time by whoever gets them.", "max_tokens": 16, "temperature": 0, "ignore_eos": true, "return_token_ids": true}'

for lane in tcp rdma; do
  config $lane > $lane.yaml
  baton-gateway --config $lane.yaml > gateway.log 2>&1 & gateway=$!
  baton-decode --config $lane.yaml --name decode-0 > decode.log 2>&1 & decode=$!
  baton-prefill --config $lane.yaml --name prefill-0 > prefill.log 2>&1 & prefill=$!
  if ! wait_for 600 wget -q -O /dev/null http://127.0.0.1:8000/readyz; then
    echo "the cluster over $lane is not ready"
    tail -n 20 gateway.log decode.log prefill.log
    exit 1
  fi
  if ! wget -q -O answer --header 'Content-Type: application/json' --header 'x-baton-figures: 1' \
      --post-data "$request" http://127.0.0.1:8000/v1/completions; then
    echo "no answer over $lane"
    tail -n 20 gateway.log decode.log prefill.log
    exit 1
  fi
  echo "answer $lane $(cat answer)"
  kill $gateway $decode $prefill
  for process in $gateway $decode $prefill; do
    wait $process || { echo "a process of the cluster over $lane ended with status $?"; tail -n 20 ./*.log; exit 1; }
  done
done
