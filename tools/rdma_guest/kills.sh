# Two nodes of each role over verbs. A node is killed while it works on a request; the request goes on
# with the others, its text is the undisturbed one's, and no block stays held.
. /guest/cluster.sh
make_tiny_model llama /tmp/tiny.gguf || exit 1
config rdma
all="decode-0 decode-1 prefill-0 prefill-1"
start gateway $all
ready 4
long=$(seq -s ' ' 1 400)

text_of() { sed -n 's/^data: .*"text":"\([^"]*\)".*/\1/p' "$1" | tr -d '\n'; }
stream() {  # stream FILE PROMPT TOKENS
  post "$1" "{\"model\": \"tiny\", \"prompt\": \"$2\", \"max_tokens\": $3, \"temperature\": 0, \"ignore_eos\": true,
    \"stream\": true}"
}
lines_in() { [ "$(grep -c '^data: {' "$1")" -ge "$2" ]; }
busy() {  # the ROLE's node that works on a request
  nodes | grep "\"role\":\"$1\"" | grep -v "\"$([ "$1" = decode ] && echo running || echo credits_used)\":0," |
    sed -n 's/^"name":"\([^"]*\)".*/\1/p' | head -n 1
}
is_busy() { [ -n "$(busy "$1")" ]; }
is_quiet() { count_is 4 && [ "$(nodes | grep -c '"blocks_granted":0,"blocks_in_use":0,')" = 4 ]; }

for role in decode prefill; do
  case $role in
    decode) prompt="Once more, from the beginning" tokens=150 ;;
    prefill) prompt=$long tokens=20 ;;
  esac
  : > killed
  stream killed "${prompt}" $tokens & request=$!
  if [ $role = decode ]; then wait_for 600 lines_in killed 10 || fail "no stream"; fi
  wait_for 600 is_busy $role || fail "no $role node works"
  victim=$(busy $role)
  kill -9 "$(cat "$victim.pid")"
  wait $request || fail "the request ended with status $? when $victim was killed"
  start "$victim"
  ready 4
  stream undisturbed "$prompt" $tokens || fail "no undisturbed answer"
  [ -n "$(text_of killed)" ] && [ "$(text_of killed)" = "$(text_of undisturbed)" ] ||
    fail "another text when $victim was killed: $(tail -n 3 killed)"
  echo "killed $victim: the text is the same"
  wait_for 600 is_quiet || fail "blocks stay held: $(nodes)"
done
stop gateway $all
