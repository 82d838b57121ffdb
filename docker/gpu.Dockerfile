# syntax=docker/dockerfile:1
# A GPU host: the host's program, supervisors, and the trainer with torch, vLLM and CUDA's libraries from their wheels.
#
#     docker build -f docker/gpu.Dockerfile -t grpo-gpu .
#
# The driver is that of the machine (NVIDIA 580 or later), through the NVIDIA Container Toolkit.

ARG BASE=debian:12.11-slim

FROM ${BASE} AS build
# python3-pip      fills the environments from the locks; only in this stage
# ca-certificates  the package index's certificate
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-pip ca-certificates \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY controlplane/setup/bootstrap/locks/web.lock /tmp/
RUN python3 -m venv --without-pip /opt/venv \
    && python3 -m pip --python /opt/venv/bin/python install --no-cache-dir --require-hashes --no-deps -r /tmp/web.lock

FROM build AS trainer
# DeepSpeed has no wheel: it is built from its source archive, without compiled operations, which are built at first use.
ENV DS_BUILD_OPS=0
# For other drivers or cards, set another lock; prove.sh uses a small one.
ARG TRAINER_LOCK=controlplane/setup/bootstrap/locks/gpu.lock
COPY ${TRAINER_LOCK} trainer.lock
# Several gigabytes, in a separate layer that only changes with its lock.
RUN python3 -m venv --without-pip /opt/trainer \
    && python3 -m pip --python /opt/trainer/bin/python install --no-cache-dir --require-hashes --no-deps -r trainer.lock

FROM build AS source
COPY . .
RUN /opt/venv/bin/python -m compileall -q controlplane runs workers

FROM ${BASE} AS gpu
# python3            the interpreter that both environments were made with
# ca-certificates    certificates of the control plane and of model hubs
# gcc, g++           Triton compiles the launchers of its kernels, and DeepSpeed its CPU Adam, when a run first needs them
# libc6-dev          what gcc includes
# python3-dev        Python.h, which Triton's launchers include
# libnuma1           vLLM binds its workers to a GPU's memory node
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 ca-certificates gcc g++ libc6-dev python3-dev libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin grpo \
    && install -d -o grpo -g grpo -m 0700 /data /data/runs /data/models
COPY --from=build /opt/venv /opt/venv
COPY --from=trainer /opt/trainer /opt/trainer
COPY --from=source /app /app
WORKDIR /app
# GRPO_AT_STOP: all processes end with their container, so runs save first.
# NVIDIA_*: the parts of the driver that the toolkit provides: its library, and nvidia-smi's for the GPUs' memory.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CONTROLPLANE_BOOTSTRAP=off \
    GRPO_TRAINER_PYTHON=/opt/trainer/bin/python \
    GRPO_RUNS_DIR=/data/runs \
    GRPO_AT_STOP=save \
    HF_HOME=/data/huggingface \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
VOLUME /data
# The first complete announcement needs the trainer's abilities, and importing it takes a while.
HEALTHCHECK --interval=15s --timeout=6s --start-period=120s --retries=4 CMD ["python", "docker/healthcheck.py", "host"]
# `docker run IMAGE --only-join https://… CODE` joins; without arguments it works for the control plane that it has joined.
ENTRYPOINT ["python", "-m", "workers.host.join", "--data", "/data"]
