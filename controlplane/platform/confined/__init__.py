"""Work on foreign input in child processes with limits on time and memory, so that no input can stop the web process.

`tasks.ConfinedTask` is the entry point: a function that is called as usual and runs in one of a few warm children.
"""
