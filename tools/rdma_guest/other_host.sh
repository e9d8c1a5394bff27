#!/bin/sh
# Stands in for transfer_peer: starts it with a boot id of its own, as if on another host, where nobody
# can watch its process. The process id stays this script's.
cat /proc/sys/kernel/random/uuid > /tmp/boot_id.$$
exec unshare -m sh -c 'mount --bind /tmp/boot_id.$$ /proc/sys/kernel/random/boot_id &&
  exec /usr/bin/transfer_peer "$@"' transfer_peer "$@"
