# The transfer's tests over verbs: everything in one process, then between two, one of which is killed.
export BATON_TEST_TRANSPORT=rdma
filter=${1:-*}
status=0
for test in transfer_conformance_test transfer_process_test; do
  "$test" --gtest_color=no --gtest_brief=0 --gtest_filter="$filter" || status=1
done
exit $status
