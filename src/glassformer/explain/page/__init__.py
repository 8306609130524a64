"""The page: served on this machine or saved as one file; its sources are in `web/`."""
