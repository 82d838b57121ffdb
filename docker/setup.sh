#!/bin/sh
# Run before the first `docker compose up`. Creates docker/.env with passwords, and a first certificate. Existing files are
# not changed.
#
#     docker/setup.sh grpo.example.org
set -eu
cd "$(dirname "$0")"
umask 077

domain=${1:-}
case $domain in
  '' | *[!A-Za-z0-9.-]*) echo "usage: docker/setup.sh NAME, as people and hosts will write it: grpo.example.org" >&2; exit 2 ;;
esac
command -v openssl >/dev/null || { echo "openssl is needed: apt-get install openssl" >&2; exit 1; }

if [ -e .env ]; then
  echo ".env already exists and was not changed."
else
  sed -e "s/^GRPO_DOMAIN=\$/GRPO_DOMAIN=$domain/" \
    -e "s/^POSTGRES_PASSWORD=\$/POSTGRES_PASSWORD=$(openssl rand -hex 24)/" \
    -e "s/^REDIS_PASSWORD=\$/REDIS_PASSWORD=$(openssl rand -hex 24)/" .env.example >.env.new
  mv .env.new .env
  echo "Wrote .env with new passwords."
fi

if [ -e tls/fullchain.pem ]; then
  echo "tls/fullchain.pem already exists and was not changed."
else
  mkdir -p tls
  # Our own root and a certificate signed by it. Browsers and hosts need the root until a public certificate replaces it.
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=GRPO control plane of $domain" \
    -addext basicConstraints=critical,CA:TRUE,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout tls/root.key -out tls/root.pem 2>/dev/null
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$domain" \
    -keyout tls/privkey.pem -out tls/request.pem 2>/dev/null
  kind=DNS
  case $domain in *[!0-9.]*) ;; *) kind=IP ;; esac
  printf 'subjectAltName=%s:%s\nextendedKeyUsage=serverAuth\n' "$kind" "$domain" >tls/extensions
  openssl x509 -req -in tls/request.pem -CA tls/root.pem -CAkey tls/root.key -days 397 -extfile tls/extensions -out tls/leaf.pem 2>/dev/null
  cat tls/leaf.pem tls/root.pem >tls/fullchain.pem
  rm -f tls/request.pem tls/extensions tls/leaf.pem
  echo "Wrote tls/: a certificate signed by a new root, tls/root.pem. To use a public certificate instead, see README.md, \"TLS\"."
fi
