#!/bin/sh
# Run a command that a busy server may refuse, up to five times, waiting longer each time.
wait=5
for attempt in 1 2 3 4; do
    "$@" && exit 0
    echo "harken: attempt $attempt failed, trying again in $wait s" >&2
    sleep "$wait"
    wait=$((wait * 2))
done
"$@" && exit 0
echo "harken: found no way to install the packages, wanted pip's registry; check the network and run make again" >&2
exit 1
