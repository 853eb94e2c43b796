"""No test may reach the real hub: whoever wants one starts a stand-in and says so."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"
