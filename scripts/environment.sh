# Sourced by the other scripts, in the root of the repository: makes .venv from requirements.lock if there is none,
# and brings it up to date if requirements.lock, pyproject.toml or the version changed. Touches nothing outside the
# repository.
# PYTHON names the interpreter to make it with; the default is python3.

readonly UV_VERSION=0.13.8
readonly PYTHONS="3.11 to 3.13"

# What scripts/version.py --without-commit goes by, in a tenth of the time.
describe_changelog() {
    awk '/^- / { more = "more" } /^## [0-9]/ { print $2, more; exit }' CHANGELOG.md
}

environment_is_current() {
    cmp -s requirements.lock .venv/installed/requirements.lock && cmp -s pyproject.toml .venv/installed/pyproject.toml &&
        describe_changelog | cmp -s - .venv/installed/changelog
}

check_python() {
    if ! command -v "$1" >/dev/null; then
        echo "There is no $1. Install Python $PYTHONS, or name it: PYTHON=/path/to/python $0" >&2
        exit 2
    fi
    if ! "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'; then
        echo "$1 is not Python $PYTHONS, which is needed. Name another one: PYTHON=/path/to/python $0" >&2
        exit 2
    fi
    if ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        echo "$1 cannot make virtual environments. Install its venv module (on Debian: apt install python3-venv)." >&2
        exit 2
    fi
}

make_environment() {
    check_python "${PYTHON:-python3}"
    echo "Installing the pinned environment into .venv (about 5 GB with torch; once) ..." >&2
    # An interrupted installation is taken up again, an environment without a working interpreter is replaced.
    [[ -d .venv ]] && .venv/bin/python -m pip --version >/dev/null 2>&1 || "${PYTHON:-python3}" -m venv --clear .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
    .venv/bin/uv pip install --python .venv/bin/python --require-hashes -r requirements.lock
    # What is installed follows the checkout, so its version names no commit.
    BUILD_VERSION=$(.venv/bin/python scripts/version.py --without-commit) \
        .venv/bin/uv pip install --python .venv/bin/python --no-deps -e .
    mkdir -p .venv/installed
    cp requirements.lock pyproject.toml .venv/installed/
    describe_changelog >.venv/installed/changelog
}

environment_is_current || make_environment

# Where a surrounding environment forbids compiled files, every process would compile torch again.
export PYTHONDONTWRITEBYTECODE=
