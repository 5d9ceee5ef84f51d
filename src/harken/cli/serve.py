"""`harken serve`: serve runs to the browser and to programs on this machine."""

import argparse
import sys
import webbrowser
from dataclasses import replace

from harken.cli.output import print_note, print_result
from harken.errors import UserError


def run(options: argparse.Namespace) -> None:
    """Listen until the process is stopped."""
    try:
        from harken.serve import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "harken":
            raise
        problem = f"harken serve: the package {error.name!r} is not installed"
        raise UserError(problem, fix='install it with `pip install "harken[serve]"`') from None
    from harken.serve.settings import ServerSettings, choose_token

    if not 0 <= options.port < 2**16:
        raise UserError(f"--port: expected 0 to 65535, got {options.port}", fix="choose another")
    token = choose_token(options.host, options.token)
    address = {"host": options.host, "port": options.port}
    settings = ServerSettings(paths=options.paths, token=token, **address)
    with server.bind(settings) as listening:
        settings = replace(settings, port=listening.getsockname()[1])
        serving, link = server.make_server(settings), server.link(settings)
        print_result(link)
        sys.stdout.flush()  # another program may read the link
        print_note("stop with Ctrl-C")
        if options.open:
            webbrowser.open(link)
        serving.run(sockets=[listening])
