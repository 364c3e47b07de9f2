"""What a host of a federation needs before its SuperLink or SuperNode starts: `accord deploy check`."""

from accord.deploy.checks.finding import Finding
from accord.deploy.checks.host import Host, check_node, check_server

__all__ = ["Finding", "Host", "check_node", "check_server"]
