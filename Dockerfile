# One image for api, workers and migration; CPU only. Its steps are those of .ci/run: locked requirements with hashes,
# then the project itself without an index. A folder wheelhouse/ in the context is looked at first: `make airgap` makes one,
# and with --build-arg PIP_NO_INDEX=1 nothing else is asked. BASE may name a registry of your own.
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE} AS build
ARG PIP_NO_INDEX=""
WORKDIR /src
COPY requirements/cluster.txt requirements/cluster.txt
# The file is named again because a pattern alone may match nothing.
COPY requirements/cluster.txt wheelhouse* wheelhouse/
RUN python -m venv /opt/blendex \
    && /opt/blendex/bin/python -m pip install --no-cache-dir --disable-pip-version-check --find-links wheelhouse \
        --require-hashes --requirement requirements/cluster.txt
COPY pyproject.toml README.md LICENSE ./
COPY blendex blendex
COPY service service
COPY workers workers
COPY migrations migrations
RUN /opt/blendex/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --no-index --no-deps --no-build-isolation .

FROM ${BASE}
LABEL org.opencontainers.image.title="Blendex" \
      org.opencontainers.image.licenses="Apache-2.0"
# Numbers, so that a cluster can see that it is not root. Mount the root writable for 10001.
RUN groupadd --gid 10001 blendex \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/blendex --create-home --shell /usr/sbin/nologin blendex
COPY --from=build /opt/blendex /opt/blendex
ENV PATH=/opt/blendex/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/var/lib/blendex \
    BLENDEX_ROOT=/blendex \
    BLENDEX_LOG_FORMAT=json \
    CUDA_VISIBLE_DEVICES="" \
    NVIDIA_VISIBLE_DEVICES=void
USER 10001:10001
WORKDIR /var/lib/blendex
EXPOSE 8765 9100
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ.get('BLENDEX_HEALTH', 'http://127.0.0.1:8765/healthz'), timeout=4)"]
ENTRYPOINT ["blendex"]
CMD ["serve", "--host", "0.0.0.0"]
