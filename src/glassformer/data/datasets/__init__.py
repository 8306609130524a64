"""The built-in data sets, and files of your own: a module each, found by `loading.load_text_data`."""
