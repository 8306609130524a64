"""The built-in data sets, and files of your own: a module each, found by `local_files.load_text_data`."""
