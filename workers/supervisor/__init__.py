"""The supervisor: one detached process per attempt that claims, starts, watches, reports, stops, and proves the end.

Only the main thread spawns, signals and reaps, and it never waits on the network or on NVML; separate threads handle
those and pass results through a queue.
"""
