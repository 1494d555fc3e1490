"""gunicorn without code of the current folder.

    python -P -m ureplicator_controller.api.serving OPTIONS MODULE:APPLICATION

By itself it puts that folder first in the list of places where modules are looked for, so that a `kafka.py`
there would take the place of the library, and runs a `gunicorn.conf.py` that lies there unless a
configuration is named (`rest_process` names one without settings).
"""

from __future__ import annotations

from gunicorn.app.wsgiapp import WSGIApplication


class RestApplication(WSGIApplication):
    def chdir(self) -> None:
        """Stay in the folder, and look for no modules there."""


if __name__ == "__main__":
    RestApplication(prog="gunicorn").run()
