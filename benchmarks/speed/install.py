"""Install every peer into an environment of its own.

`make bench-peers`, or `python -m benchmarks.speed.install NAME …`.

What is installed is exactly what its lock file names, `peers/locks/NAME.txt`, which is `pip freeze` of an environment
in which the peer ran. One that does not install leaves the reason in `failed.txt`, and the table says "not run".
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from benchmarks.speed.registry import ENVIRONMENTS, LOCKS, PEERS


def install(name: str) -> bool:
    """Make one environment, unless it was made from the current lock file."""
    folder, lock = ENVIRONMENTS / name, LOCKS / f"{name}.txt"
    made_from = folder / "lock.txt"
    if made_from.exists() and made_from.read_bytes() == lock.read_bytes():
        print(f"{name}: installed")
        return True
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: installing", flush=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(lock)], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        lines = [line for line in (error.stderr or "").splitlines() if line.strip()] or [str(error)]
        reason = next((line for line in lines if line.startswith("ERROR")), lines[-1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "failed.txt").write_text(f"does not install: {reason}\n", encoding="utf-8")
        print(f"{name}: {reason}", file=sys.stderr)
        return False
    shutil.copy(lock, made_from)
    return True


def main() -> int:
    """Install those named, or all; 0 even if some could not be, for the table says which."""
    wanted = sys.argv[1:] or sorted({peer.environment for peer in PEERS.values() if peer.environment})
    done = [install(name) for name in wanted]
    print(f"{sum(done)} of {len(done)} environments are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
