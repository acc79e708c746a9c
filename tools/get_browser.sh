#!/bin/sh
# See that the browser tests find a Chromium; PYTHON is the interpreter that has playwright.
# Usage: tools/get_browser.sh PYTHON
# Never fails: where nothing works it says so, and the browser tests say so again.
set -u
python=${1:-python3}

# `--version` and not only a name on PATH: some distributions have a stub that tells you to install a snap.
on_path() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        "$name" --version >/dev/null 2>&1 && return 0
    done
    return 1
}

from_playwright() {
    "$python" - >/dev/null 2>&1 <<'PY'
import os
import sys

from playwright.sync_api import sync_playwright

with sync_playwright() as p:
    sys.exit(not os.path.exists(p.chromium.executable_path))
PY
}

# Without a font the screenshots would be empty boxes.
apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        chromium fonts-dejavu-core </dev/null >/dev/null 2>&1
}

try_apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    # apt-get runs once at a time; whoever waits finds the browser installed.
    command -v flock >/dev/null 2>&1 && exec 9>"${TMPDIR:-/tmp}/get_browser.lock" && flock 9 && on_path && return 0
    echo "installing chromium with apt-get (a minute, the first time)"
    apt_install || { apt-get update </dev/null >/dev/null 2>&1; apt_install; }
    on_path
}

try_playwright() {
    echo "installing chromium with playwright (a minute, the first time)"
    "$python" -m playwright install chromium </dev/null >/dev/null 2>&1 && from_playwright
}

if [ -n "${JITMAGIC_CHROMIUM:-}" ] || on_path || from_playwright || try_apt || try_playwright; then
    exit 0
fi
echo "no browser: install chromium or set JITMAGIC_CHROMIUM to one; the browser tests will be skipped" >&2
