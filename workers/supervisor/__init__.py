"""One detached process per attempt: it claims, starts, watches, reports, stops and proves the end.

The main thread alone spawns, signals and reaps, and never waits on the network or on NVML; those have threads of
their own that hand results over in a queue.
"""
