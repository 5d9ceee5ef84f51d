#!/bin/sh
# Run a command up to five times, with growing delays, because a server may be busy.
wait=5
for attempt in 1 2 3 4; do
    "$@" && exit 0
    echo "harken: attempt $attempt failed, trying again in $wait s" >&2
    sleep "$wait"
    wait=$((wait * 2))
done
"$@" && exit 0
echo "harken: the packages cannot be installed; check the network and run make again" >&2
exit 1
