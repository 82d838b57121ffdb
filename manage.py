#!/usr/bin/env python3
"""The one entry: `demo`, `up`, `test`, `bench`, and Django's own commands. Builds its environments when needed."""

import os
import sys


def main():
    if sys.version_info < (3, 11):
        sys.exit("Python 3.11 or newer is needed; this is %d.%d. Try: python3.11 manage.py" % sys.version_info[:2])
    from controlplane.setup.bootstrap import ensure

    ensure(sys.argv)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from django.core.management import execute_from_command_line

    from controlplane.platform.datafolder import DataFolderUnusable
    from controlplane.platform.environment import EnvironmentUnusable

    try:
        execute_from_command_line(sys.argv)
    except (DataFolderUnusable, EnvironmentUnusable) as error:
        sys.exit(str(error))
    except Exception as error:
        from controlplane.platform.http.outage import is_away

        if not is_away(error):
            raise
        sys.exit("The database can't be reached: %s" % str(error).strip())


if __name__ == "__main__":
    main()
