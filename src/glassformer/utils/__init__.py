"""What every package may use: atomic files, the console, CPU threads, devices, formatting and plots."""
