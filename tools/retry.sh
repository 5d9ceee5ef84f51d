#!/bin/sh
# Usage: retry.sh COMMAND ...
# Run a command that needs the network up to five times, with pauses of 5, 10, 20 and 40 seconds.
pause=5
for attempt in 1 2 3 4; do
    "$@" && exit 0
    echo "harken: attempt $attempt of 5 failed, retrying in $pause s" >&2
    sleep "$pause"
    pause=$((pause * 2))
done
"$@" && exit 0
echo "harken: could not install the packages (5 attempts); check the network and run make again" >&2
exit 1
