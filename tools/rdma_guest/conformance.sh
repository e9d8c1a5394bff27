# The transfer's tests over verbs: everything in one process; between two, one of which is killed or
# stopped; between two that cannot watch each other's process, like those of two hosts. Bytes are put
# where the transport chooses so; the last two runs send them by active messages.
export BATON_TEST_TRANSPORT=rdma
only=$1
status=0
tests() {  # tests WHAT PROGRAM FILTER
  echo "== $1"
  "$2" --gtest_color=no --gtest_filter="${only:-$3}" || status=1
}
tests "one process" transfer_conformance_test 'Ucx*:Paths/*'
tests "two processes" transfer_process_test '*'
cp /guest/other_host.sh "$(cat /guest/peer)"
tests "two hosts" transfer_process_test \
  '*/Processes.ASenderKilled*:*.AStoppedReceiver*:*.AKilledWriter*:*.ALostWriter*'
export BATON_TEST_PATH=am
tests "two hosts, active messages" transfer_process_test '*/Processes.AReceiverKilled*'
tests "one process, active messages" transfer_conformance_test \
  '*/Conformance.BytesLand*:*.LargeMessages*:*.ManySmall*:*.AfterRevoke*:*.AbortDrains*:*.TheSameBlock*'
exit $status
