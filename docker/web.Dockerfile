# syntax=docker/dockerfile:1
# The control plane: web, worker and their preparation (`manage.py serve`). No torch, no compiler, no root.
#
#     docker build -f docker/web.Dockerfile -t grpo-web .

# Debian 12 has the Python that the locks are made for, and what the tests run on. Pin its digest where your registry
# shows one: --build-arg BASE=debian:12.11-slim@sha256:…
ARG BASE=debian:12.11-slim

FROM ${BASE} AS build
# python3-pip      fills the environment from the lock; only in this stage
# ca-certificates  the package index's certificate
# npm              fetches Plotly's basic build for the pages
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-pip ca-certificates npm \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY controlplane/setup/bootstrap/locks/web.lock /tmp/
# The lock has every hash. The environment has no pip: the one outside fills it.
RUN python3 -m venv --without-pip /opt/venv \
    && python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --require-hashes --no-deps -r /tmp/web.lock
COPY frontend/package.json frontend/package-lock.json ./frontend/
# A quarter of the size that browsers would load otherwise. Without npm's registry the image has the full build.
RUN npm ci --prefix frontend --ignore-scripts --no-audit --no-fund || echo "Plotly's basic build could not be fetched."
COPY . .
# Modules are compiled once here, because the running user can't write beside them.
RUN /opt/venv/bin/python -m compileall -q controlplane runs workers

FROM ${BASE} AS web
# python3          the interpreter that the environment was made with
# ca-certificates  certificates of model hubs, judges and webhooks
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin grpo \
    && install -d -o grpo -g grpo -m 0700 /data
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CONTROLPLANE_BOOTSTRAP=off \
    CONTROLPLANE_DATA=/data
USER 10001:10001
VOLUME /data
EXPOSE 8000
# The worker overrides it in compose.yaml; an image has one check.
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 CMD ["python", "docker/healthcheck.py", "web"]
ENTRYPOINT ["python", "manage.py"]
CMD ["serve", "web", "--bind", "0.0.0.0"]
