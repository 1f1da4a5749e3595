"""How the page's files are served, and that they are all there."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from full.page.serving import Site, StartSite
from pgwake.http.assets import FILES, POLICY
from support import CHECKOUT

FOLDER = CHECKOUT / "worker" / "pgwake" / "http" / "page"


def test_the_files_are_served_to_everybody_and_nothing_else_is(site: Site) -> None:
    with httpx.Client(base_url=site.url) as client:
        for name in FILES:
            answer = client.get("/" if name == "index.html" else f"/page/{name}")
            assert answer.content == (FOLDER / name).read_bytes()
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-cache"
            again = {"If-None-Match": answer.headers["etag"]}
            assert client.get(answer.url, headers=again).status_code == 304
            other = {"If-None-Match": '"other"'}
            assert client.get(answer.url, headers=other).status_code == 200
        assert client.head("/").status_code == 200
        assert client.post("/").status_code == 405
        for name in ("", "x.js", "..%2Fassets.py", "index.html"):
            assert client.get(f"/page/{name}").status_code == 404


def test_without_a_token_there_is_no_page(start_site: StartSite) -> None:
    site = start_site(api_token=None)
    assert httpx.get(site.url).status_code == 404
    assert httpx.get(f"{site.url}page/main.js").status_code == 404


def test_the_list_of_files_is_whole() -> None:
    assert sorted(FILES) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", FILES)
def test_a_file_asks_for_nothing_from_elsewhere_and_makes_no_html(name: str) -> None:
    text = (FOLDER / name).read_text()
    code = re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE)
    elsewhere = re.findall(r"(?:https?:)?//[a-z][^\s\"')]*", code)
    assert set(elsewhere) <= {"http://www.w3.org/2000/svg"}
    made = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    )
    assert not re.search(made, code)
    assert not re.search(r"style=|<script>|<style|\bon[a-z]+=", code)


def test_the_wheel_carries_the_page(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    into = ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(CHECKOUT)]
    subprocess.run([*build, *into], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    carried = zipfile.ZipFile(wheel).namelist()
    assert {f"pgwake/http/page/{name}" for name in FILES} <= set(carried)
