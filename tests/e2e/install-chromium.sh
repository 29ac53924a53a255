#!/usr/bin/env bash
# Debian's Chromium for the browser tests, where it is missing and this user may install it.
set -u
for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null 2>&1 && exit 0
done
run=""
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then run="sudo -n"; else
        echo "Chromium is missing and this user may not install it: the browser tests will be skipped." >&2
        exit 0
    fi
fi
$run apt-get update -qq && DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
