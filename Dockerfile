# Three images; docker-compose.yml and deploy/kubernetes say which container runs which.
#   api          no torch: serves what jobs made, and answers 503 where images are drawn or predicted anew
#   worker-cpu   torch without CUDA
#   worker-cuda  torch with its CUDA libraries; runs without a GPU as well. The default of `docker build .`

# scripts/pin-images compares the digest with what the registry says.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

FROM ${PYTHON_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/datalens
WORKDIR /source
# Dependencies first: they change less often than the code. Versions and hashes are those of requirements.lock;
# development tools, which it also pins, are left out.
COPY pyproject.toml requirements.lock deploy/docker/requirements.py ./
# Constraints with hashes need a newer pip than the one in the image.
RUN <<'EOF'
set -eu
echo 'pip==26.3 --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13' > pip.txt
/opt/datalens/bin/pip install --require-hashes --requirement pip.txt
EOF


FROM build AS wheel

COPY README.md LICENSE CHANGELOG.md ./
COPY scripts/version.py scripts/long_description.py scripts/
COPY datalens_service datalens_service
COPY api api
COPY workers workers
COPY migrations migrations
# Of the source, which has no git here: --build-arg VERSION=$(scripts/version.py). Without it, the commit is not named.
ARG VERSION=
RUN BUILD_VERSION="$VERSION" /opt/datalens/bin/pip wheel --no-deps --wheel-dir /wheel .


FROM build AS build-api

RUN python requirements.py production onnx c2pa dicom diffusers timestamp > requirements.txt \
    && /opt/datalens/bin/pip install --require-hashes --constraint requirements.lock --requirement requirements.txt
COPY --from=wheel /wheel /wheel
RUN /opt/datalens/bin/pip install --no-deps /wheel/*.whl && python -m compileall -q /opt/datalens/lib


FROM build AS build-worker-cpu

# PyPI has no build without CUDA. These two come from an index of their own, in the versions of the lock, without hashes.
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
RUN python requirements.py --torch-cpu > torch.txt \
    && /opt/datalens/bin/pip install --no-deps --index-url "$TORCH_CPU_INDEX" --requirement torch.txt \
    && python requirements.py worker production onnx imagenet c2pa dicom diffusers timestamp > requirements.txt \
    && /opt/datalens/bin/pip install --require-hashes --constraint requirements.lock --requirement requirements.txt
COPY --from=wheel /wheel /wheel
RUN /opt/datalens/bin/pip install --no-deps /wheel/*.whl && python -m compileall -q /opt/datalens/lib


FROM build AS build-worker-cuda

RUN python requirements.py worker production onnx imagenet c2pa dicom diffusers timestamp > requirements.txt \
    && /opt/datalens/bin/pip install --require-hashes --constraint requirements.lock --requirement requirements.txt
COPY --from=wheel /wheel /wheel
RUN /opt/datalens/bin/pip install --no-deps /wheel/*.whl && python -m compileall -q /opt/datalens/lib


FROM ${PYTHON_IMAGE} AS runtime

# Of the source, for reports: --build-arg COMMIT=$(git rev-parse HEAD). Without it they name the digest of the files.
ARG COMMIT=
ENV DATALENS_COMMIT=${COMMIT}

LABEL org.opencontainers.image.title="DataLens Service" \
      org.opencontainers.image.description="Private images in, differentially private synthetic images out." \
      org.opencontainers.image.licenses="Apache-2.0"

# A user without a name elsewhere, without a shell and without a home it could write to.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin datalens \
    && install --directory --owner datalens --group datalens --mode 0700 /data /ledger

ENV PATH=/opt/datalens/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DATALENS_DATA_DIR=/data \
    DATALENS_LEDGER_LOG=/ledger/ledger.log \
    DATALENS_HOST=0.0.0.0 \
    DATALENS_PORT=8000

USER 10001:10001
WORKDIR /data
VOLUME ["/data", "/ledger"]
EXPOSE 8000

HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=4)"]

CMD ["datalens", "serve"]


FROM runtime AS api
COPY --from=build-api /opt/datalens /opt/datalens

FROM runtime AS worker-cpu
COPY --from=build-worker-cpu /opt/datalens /opt/datalens

FROM runtime AS worker-cuda
COPY --from=build-worker-cuda /opt/datalens /opt/datalens
