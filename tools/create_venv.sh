#!/bin/sh
# Creates a virtual environment with the first Python that is new enough: tools/create_venv.sh FOLDER
#
# PYTHON=/path/to/python3.12 chooses one. Says what is missing when there is none.
set -eu

folder=$1
wanted="Python 3.11 or newer with the modules venv and ensurepip"

# Shims of version managers are on PATH for versions that are not there, so each candidate is tried.
found_but_old=""
found_but_bare=""
for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        found_but_old="$found_but_old $python ($version)"
    elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
        found_but_bare="$found_but_bare $python ($version)"
    elif "$python" -m venv --clear "$folder"; then
        exit 0
    else
        echo "make: $python could not create a virtual environment in $(pwd)/$folder; the reason stands above." >&2
        exit 1
    fi
done

echo "make: sharedmem needs $wanted." >&2
[ -z "${PYTHON:-}" ] || echo "  PYTHON=$PYTHON was asked for." >&2
[ -z "$found_but_old" ] || echo "  Too old:$found_but_old" >&2
if [ -n "$found_but_bare" ]; then
    echo "  Without venv or pip:$found_but_bare" >&2
    echo "  On Debian and Ubuntu: sudo apt install python3-venv" >&2
fi
echo "  With another one: make PYTHON=/path/to/python3.12 $(printf %s "${GOAL:-test}")" >&2
exit 1
