# syntax=docker/dockerfile:1
# One image for the API and for workers; docker-compose.yml says what each container runs.
# torch comes with its CUDA libraries and runs without a GPU as well. A small image for the API alone has no torch, and
# answers 503 where images are drawn or predicted anew: --build-arg EXTRAS=production

ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Of pyproject.toml, with spaces between them.
ARG EXTRAS="worker production"
RUN python -m venv /opt/datalens
WORKDIR /source

# Dependencies first: they change less often than the code. Versions and hashes are those of requirements.lock;
# development tools, which it also pins, are left out.
COPY pyproject.toml requirements.lock ./
RUN <<'EOF'
set -eu
# Constraints with hashes need a newer pip than the one in the image.
echo 'pip==26.3 --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13' > pip.txt
/opt/datalens/bin/pip install --require-hashes --requirement pip.txt
EXTRAS="$EXTRAS" python - <<'PYTHON' > requirements.txt
import os, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = [name for extra in os.environ["EXTRAS"].split() for name in project["optional-dependencies"][extra]]
print("\n".join(project["dependencies"] + extras))
PYTHON
/opt/datalens/bin/pip install --require-hashes --constraint requirements.lock --requirement requirements.txt
EOF

COPY README.md LICENSE ./
COPY datalens_service datalens_service
COPY api api
COPY workers workers
COPY migrations migrations
RUN /opt/datalens/bin/pip install --no-deps . && python -m compileall -q /opt/datalens/lib


FROM ${PYTHON_IMAGE}

# Of the source, for reports: --build-arg COMMIT=$(git rev-parse HEAD)
ARG COMMIT=
ENV DATALENS_COMMIT=${COMMIT}

LABEL org.opencontainers.image.title="DataLens Service" \
      org.opencontainers.image.description="Private images in, differentially private synthetic images out." \
      org.opencontainers.image.licenses="Apache-2.0"

# A user without a name elsewhere, without a shell and without a home it could write to.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin datalens \
    && install --directory --owner datalens --group datalens --mode 0700 /data /ledger

COPY --from=build /opt/datalens /opt/datalens

ENV PATH=/opt/datalens/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DATALENS_DATA_DIR=/data \
    DATALENS_LEDGER_LOG=/ledger/ledger.log \
    DATALENS_HOST=0.0.0.0 \
    DATALENS_PORT=8000

USER datalens
WORKDIR /data
VOLUME ["/data", "/ledger"]
EXPOSE 8000

HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]

CMD ["datalens", "serve"]
