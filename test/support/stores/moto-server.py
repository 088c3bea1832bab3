"""The S3 of moto, one request at a time: its own server looks at the condition of a write and then writes, in several threads."""

import logging
import sys
import threading

from moto.moto_server.threaded_moto_server import MotoRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

logging.getLogger("werkzeug").setLevel(logging.ERROR)
application = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def serve_alone(environ, start_response):
    with lock:
        return list(application(environ, start_response))


run_simple("127.0.0.1", int(sys.argv[1]), serve_alone, threaded=True, request_handler=MotoRequestHandler)
