"""The contract between the control plane and the hosts: the run spec, file names, and message lines.

Standard library only, imported by all three programs. Every name here is also the name used in the database, the API
and the pages.
"""
