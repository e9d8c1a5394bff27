# One request through a cluster of three processes, first over tcp, then over verbs. Prints the answers
# as "answer LANE JSON" for the host to compare.
. /guest/cluster.sh
make_tiny_model llama /tmp/tiny.gguf || exit 1
prompt="What one node computes another node goes on from: keys and values of each block travel once, each is
counted, and none of them is computed a second time by whoever gets them."
prompt=$(echo "$prompt" | tr '\n' ' ')
for lane in tcp rdma; do
  config $lane
  start gateway decode-0 prefill-0
  ready 2
  post answer "{\"model\": \"tiny\", \"prompt\": \"$prompt\", \"max_tokens\": 16, \"temperature\": 0,
    \"ignore_eos\": true, \"return_token_ids\": true}" || fail "no answer over $lane"
  echo "answer $lane $(cat answer)"
  stop gateway decode-0 prefill-0
done
