"""Packages of others that run in an interpreter of their own, since their pins fit no other: where it is, and how it is
asked.

reasoning-gym and TextArena run in workers.sandbox, each request in a fresh fork, because they get what a model wrote:
nothing that an answer does outlives it. OpenEnv's client needs the network and runs as a process (`process`); it gets
text alone, and evaluates none. `inside/` is what the other interpreter imports: standard library and its package only.
"""
