#!/bin/sh
# Loads every view of this folder in GTKWave, without a display, and fails when GTKWave drops a line of it: it does so
# in silence when a signal is not in the waveform. Needs gtkwave and xvfb; waves/*.vcd come from `make waves`.
# With a folder as argument, a picture of each view is left there.
set -eu
cd "$(dirname "$0")"
pictures=${1:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
command -v gtkwave >/dev/null && command -v xvfb-run >/dev/null || {
    echo "check.sh: needs GTKWave and Xvfb (Debian: apt-get install gtkwave xvfb)" >&2
    exit 2
}

# Prints how many lines GTKWave shows of view $1, on waveform $2.
lines() {
    cat >"$scratch/count.tcl" <<'TCL'
set out [open $::env(COUNT) w]
puts $out [gtkwave::getTotalNumTraces]
close $out
if {$::env(PICTURE) ne ""} { gtkwave::/File/Grab_To_File $::env(PICTURE) }
gtkwave::/File/Quit
TCL
    rm -f "$scratch/count"
    PICTURE=${3:-} COUNT="$scratch/count" timeout 60 xvfb-run -a -s "-screen 0 1400x1000x24" \
        gtkwave -S "$scratch/count.tcl" "$2" "$1" >"$scratch/log" 2>&1 || true
    cat "$scratch/count" 2>/dev/null || { cat "$scratch/log" >&2; echo 0; }
}

check() {
    expected=$(grep -c '^[-+]' "$1")
    found=$(lines "$1" "$2" "${3:-}")
    echo "$1: $found of $expected lines shown"
    [ "$found" -eq "$expected" ]
}

failed=0
for view in *.gtkw; do
    name=${view%.gtkw}
    check "$view" "$name.vcd" "${pictures:+$pictures/$name.png}" || failed=1
done

# The check itself: a view with one signal that does not exist must fail.
sed 's/+{cycle} array\.cycle/+{cycle} array.no_such_signal/' array.gtkw >"$scratch/broken.gtkw"
if check "$scratch/broken.gtkw" array.vcd >/dev/null; then
    echo "check.sh: a missing signal went unnoticed" >&2
    failed=1
fi
exit $failed
