"""Fused equivalents of readable functions: fewer reads and writes of memory. Each is tested against its original."""
