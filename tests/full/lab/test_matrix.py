import subprocess

from lab.matrix.__main__ import interpreter


def test_a_python_that_is_fetched_can_make_an_environment() -> None:
    probe = "import ensurepip, sys, venv; print(*sys.version_info[:2])"

    result = subprocess.run(
        [interpreter("3.14"), "-c", probe],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/nowhere"},
    )

    assert result.stdout == "3 14\n"
