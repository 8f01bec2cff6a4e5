#!/bin/sh
# Fetches the texts of the cache's measurement from Debian's packages into models/texts/: two that are measured (the
# Debian FAQ and the Jargon File), and one to calibrate on, put together from others (Jane Austen's novels, the constitution
# of the United States, a history of Debian). Nothing is installed; needs apt-get, dpkg-deb and Python 3.
set -e
cd "$(dirname "$0")/../.."
into=models/texts
[ -f $into/calibration.txt ] && [ -f $into/debian-faq.txt ] && [ -f $into/jargon.txt ] && { echo "$into is there"; exit 0; }
for tool in apt-get dpkg-deb python3; do
    command -v $tool >/dev/null || { echo "$tool is missing: run this on Debian or Ubuntu, or put debian-faq.txt, jargon.txt and calibration.txt into $into" >&2; exit 1; }
done
mkdir -p $into
part=$(mktemp -d $into/fetch.XXXXXX)
trap 'rm -rf "$part"' EXIT
(cd "$part" && apt-get -qq -o APT::Sandbox::User=root download debian-faq jargon-text miscfiles debian-history r-cran-janeaustenr) ||
    { echo "apt-get cannot download: run apt-get update first" >&2; exit 1; }
for package in "$part"/*.deb; do dpkg-deb -x "$package" "$part/root"; done
python3 - "$part/root/usr" $into <<'EOF'
import gzip, pathlib, re, sys, zlib
root, into = map(pathlib.Path, sys.argv[1:])
unzip = lambda path: gzip.decompress((root / path).read_bytes()).decode()

def novel(number):
    """The lines of a novel, strings in a serialised R vector: 00 04 00 09, a length, the bytes."""
    data, at = (root / "lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes(), 0
    for _ in range(number + 1):
        inflate = zlib.decompressobj()
        raw = inflate.decompress(data[at + 4:])
        at = len(data) - len(inflate.unused_data)
    lines, at = [], raw.index(b"\0\4\0\t")
    while raw[at:at + 4] == b"\0\4\0\t":
        size = int.from_bytes(raw[at + 4:at + 8], "big")
        lines.append(raw[at + 8:at + 8 + size].decode())
        at += 8 + size
    return "\n".join(lines)

# The tables of contents are no prose: the texts begin behind them.
body = lambda text, start: text[re.search(start, text).start():]
(into / "debian-faq.txt").write_text(body(unzip("share/doc/debian/FAQ/debian-faq.en.txt.gz"), r"Chapter\s1\.\s+Definitions"))
(into / "jargon.txt").write_text(body(unzip("share/doc/jargon-text/jargon.txt.gz"), "This document is a collection"))
parts = [novel(0)[3000:33000], unzip("share/state/us-constitution.gz")[2000:16000], novel(3)[100000:130000],
         unzip("share/doc/debian-history/docs/project-history.en.txt.gz")[6000:26000]]
(into / "calibration.txt").write_text("\n\n".join(parts))
EOF
echo "$into is there"
