"""python -m tests.lab.line_coverage: which lines of worker/pgwake do the tests run?

Of all processes that the tests start, killed ones apart. Words are pytest's arguments;
none: the core. Coverage.py is no package of the tests: it is fetched into .cache.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGE = "coverage==7.17.5"
FOLDER = CHECKOUT / ".cache" / PACKAGE
SETTINGS = """
[run]
source = pgwake
parallel = true
patch = _exit
[report]
sort = Miss
skip_covered = true
precision = 1
"""


def main(*words: str) -> int:
    """Run tests, and print the lines that were not run, worst files last."""
    if not FOLDER.exists():
        pip = (sys.executable, "-m", "pip", "install", "-qq", "--target", str(FOLDER))
        subprocess.run([*pip, PACKAGE], check=True)
        startup = "import coverage\n\ncoverage.process_startup()\n"
        (FOLDER / "sitecustomize.py").write_text(startup)  # of each process
    with TemporaryDirectory() as folder:
        settings = Path(folder, "settings")
        settings.write_text(SETTINGS)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(FOLDER), os.environ.get("PYTHONPATH", "")]
            ),
            "COVERAGE_RCFILE": str(settings),
            "COVERAGE_PROCESS_START": str(settings),
            "COVERAGE_FILE": str(Path(folder, "data")),
        }

        def coverage(*arguments: str) -> int:
            command = [sys.executable, "-m", "coverage", *arguments]
            return subprocess.run(
                command, check=False, env=environment, cwd=CHECKOUT
            ).returncode

        tests = ("-m", "pytest", "-q", "-n", str(2 * (os.cpu_count() or 1)))
        code = coverage("run", *tests, "--dist=loadfile", *(words or ("tests/core",)))
        coverage("combine", "-q")
        coverage("report")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
