"""Third-party packages that need an interpreter of their own, because their dependencies fit no other environment.

reasoning-gym and TextArena run in workers.sandbox, each request in a fresh fork, because they handle text written by a
model: no effect of an answer outlives its fork. OpenEnv's client needs the network and runs as a process (`process`);
it gets only text, which it never evaluates. The other interpreter imports `inside/`, which uses the standard library
and its package only.
"""
