"""The client side: runs at every owner of data."""

from accord.deploy.flower import client_app
from digits.task import mine, model

app = client_app(model(), mine)
