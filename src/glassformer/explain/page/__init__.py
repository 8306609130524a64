"""The page: served on this machine, saved as one file, or shown in a notebook; its sources are in `web/`."""
