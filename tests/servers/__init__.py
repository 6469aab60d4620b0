"""Real servers of each kind of store, on loopback, and proxies in front of them."""

from servers.azure import azure_server
from servers.faults import FAULTS, FaultyProxy
from servers.google import google_server
from servers.processes import free_port, relay, running
from servers.s3 import CREDENTIALS, moto_server, rclone_server
from servers.web import plain_web_server, web_server

__all__ = [
    "CREDENTIALS",
    "FAULTS",
    "FaultyProxy",
    "azure_server",
    "free_port",
    "google_server",
    "moto_server",
    "plain_web_server",
    "rclone_server",
    "relay",
    "running",
    "web_server",
]
