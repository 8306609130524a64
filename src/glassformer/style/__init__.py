"""How numbers, tables and plots look wherever they are shown. Nothing here knows a run or a task."""
