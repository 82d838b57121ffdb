"""Third-party packages that need a separate interpreter, because their dependencies conflict with other environments.

reasoning-gym and TextArena run in workers.sandbox, each request in a fresh fork, because they handle text written by a
model, whose effects must not outlive the request. OpenEnv's client needs the network and runs as a process
(`process`); it gets only text, which it never evaluates. The other interpreter imports `inside/`, whose modules use
only the standard library and their package.
"""
