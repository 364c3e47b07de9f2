"""The commands `accord deploy ...`. Like all commands they import what they need when they run."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from accord.cli.shared import AsJson
from accord.core.errors import AccordError

deploy_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""Deployments: a federation of several hosts, with Flower.

docs/how-to/deploy.md goes through one command by command.
""",
)


class Role(StrEnum):
    server = "server"
    node = "node"


# Files as docs/how-to/deploy.md places them, and ports as Flower has them.
_CERTIFICATE = Path("/etc/accord/server.crt")
_KEYS = {Role.server: Path("/etc/accord/server.key"), Role.node: Path("/etc/accord/node.key")}
_LISTEN = {Role.server: "127.0.0.1:8000", Role.node: "127.0.0.1:9094"}


# A group with one command would lose its name: `accord deploy` alone would be the check.
@deploy_app.callback()
def _deploy() -> None:
    pass


@deploy_app.command()
def check(
    role: Annotated[
        Role, typer.Option("--role", help="What this host is: `server` (SuperLink) or `node` (SuperNode).")
    ],
    superlink: Annotated[
        str, typer.Option("--superlink", metavar="HOST:PORT", help="The address that nodes connect to.")
    ],
    ca: Annotated[
        Path, typer.Option("--ca", metavar="FILE", help="The certificate of the authority, as every host has it.")
    ] = Path("/etc/accord/ca.crt"),
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            show_default=False,
            help=f"On the server: the SuperLink's certificate; left out, {_CERTIFICATE}.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            show_default=False,
            help=(
                f"The private key: on the server the certificate's (left out, {_KEYS[Role.server]}), on a node the"
                f" node's own ({_KEYS[Role.node]})."
            ),
        ),
    ] = None,
    state: Annotated[
        Path,
        typer.Option(
            "--state", metavar="FOLDER", help="Where the server records runs, or a node's clients remember theirs."
        ),
    ] = Path("/var/lib/accord"),
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            show_default=False,
            help=(
                f"Where this host's own service listens; left out, {_LISTEN[Role.server]} (server) or"
                f" {_LISTEN[Role.node]} (node)."
            ),
        ),
    ] = None,
    app: Annotated[
        Path | None,
        typer.Option(
            "--app",
            metavar="FOLDER",
            show_default=False,
            help="The Flower app: its code is imported, to see that it can be.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a host of a federation: what is missing, in sentences.

    Run it on every host, as the user that runs the service, before the service starts and once a day after. It looks
    at versions, certificates (that they fit the host's name, and last for two weeks more), keys and who can read them,
    ports, folders and disks. On a node it connects to the SuperLink over TLS, compares clocks, and makes sure that
    this node cannot start code on others. It changes nothing. The exit code is 0 if all is well, and 2 if not.

    Examples:

    * `accord deploy check --role server --superlink fed.example.org:9092`

    * `accord deploy check --role node --superlink fed.example.org:9092 --app examples/flower`

    * `accord deploy check --role node --superlink fed.example.org:9092 --ca ca.crt --key clinic-1 --state state --json`
    """
    from accord.deploy.checks import Host, check_node, check_server

    if certificate is not None and role is Role.node:
        raise AccordError("a node has no certificate of its own: give --certificate on the server alone")
    host = Host(
        superlink,
        listen or _LISTEN[role],
        ca,
        key or _KEYS[role],
        state,
        (certificate or _CERTIFICATE) if role is Role.server else None,
        app,
    )
    findings = check_server(host) if role is Role.server else check_node(host)
    failed = sum(not finding.ok for finding in findings)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            print(f"{'ok    ' if finding.ok else 'FAILED'}  {finding.about}: {finding.sentence}")
        print(f"{failed} of {len(findings)} checks failed." if failed else "All is well.")
    if failed:
        raise typer.Exit(2)
