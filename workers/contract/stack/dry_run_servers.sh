
# responds ADDRESS NAME: succeeds if the server is healthy and serves NAME, if one is given.
responds() {
  "$TRAINER_PYTHON" - "$1" "$2" 2>/dev/null <<'END'
import json, sys, urllib.request

address, name = sys.argv[1:]
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
ask(address + "/health", timeout=5).read()
served = [model["id"] for model in json.load(ask(address + "/v1/models", timeout=5))["data"]]
sys.exit(0 if name in served or (served and not name) else 1)
END
}

# ready ADDRESS NAME SECONDS PID: waits for the server as long as its process is alive.
ready() {
  local deadline=$((SECONDS + $3))
  until responds "$1" "$2"; do
    if [[ -n $4 ]] && ! kill -0 "$4" 2>/dev/null; then
      echo "run.sh: the server for $1 exited before it responded; see logs/." >&2
      exit 1
    fi
    if ((SECONDS >= deadline)); then
      echo "run.sh: the server at $1 was not ready within $3 s; see logs/." >&2
      exit 1
    fi
    sleep 1
  done
  echo "run.sh: the server at $1 is ready."
}
