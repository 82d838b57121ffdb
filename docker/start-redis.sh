#!/bin/sh
# Starts Valkey with users from a file: `default` is off, `controlplane` has the password from .env, and the users of hosts,
# which the control plane creates, are kept. The password itself is not in any file or process list.
set -eu
umask 077
users=/data/users.acl
hash=$(printf %s "$REDIS_PASSWORD" | sha256sum | cut -d ' ' -f 1)
{
  echo "user default off"
  echo "user controlplane on #$hash ~* &* +@all"
  if [ -f "$users" ]; then grep -v -e '^user default ' -e '^user controlplane ' "$users" || true; fi
} >"$users.new"
mv "$users.new" "$users"
unset REDIS_PASSWORD REDISCLI_AUTH
# Queued commands survive a restart. Nothing is evicted: at full memory commands are refused, and the control plane retries.
# The image's entry point drops root.
entry=$(command -v docker-entrypoint.sh || true)
exec $entry valkey-server --dir /data --aclfile "$users" --appendonly yes --save "" --maxmemory-policy noeviction --protected-mode no "$@"
