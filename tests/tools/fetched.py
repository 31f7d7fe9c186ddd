"""What integration tests run beside, fetched once into target/kafka: jars by Ivy, as PySpark brings it, and packages by pip.

What cannot be fetched is an error that says so: these tests are run by who asks for them, and never pass by being left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
FETCHED: Final = ROOT / "target" / "kafka"


class NotThere(Exception):
    """Something could not be fetched."""


def fetch(organisation: str, module: str, revision: str) -> list[Path]:
    """Return the jars of a module and of what it needs, from Maven Central. Raises NotThere."""
    folder = FETCHED / f"{module}-{revision}"
    if not folder.is_dir():
        if shutil.which("java") is None:
            raise NotThere("there is no java (JRE 17 or later)")
        import pyspark

        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        with _whole(folder) as new:
            command = ["java", "-jar", str(ivy), "-warn", "-cache", str(FETCHED / "ivy"), "-confs", "default"]
            command += ["-types", "jar", "bundle", "-dependency", organisation, module, revision]
            command += ["-retrieve", f"{new}/[artifact]-[revision].[ext]"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode or not list(new.glob(f"{module}-*.jar")):
                lines = (ran.stdout + ran.stderr).splitlines()
                told = [line.strip() for line in lines if "not found" in line or "xception" in line]
                where = f"{organisation}:{module}:{revision} is not to be had from Maven Central"
                raise NotThere(f"{where}: {'; '.join(told[-3:])}")
    return sorted(folder.glob("*.jar"))


def fetch_archive(organisation: str, module: str, revision: str) -> Path:
    """Return the archive of a module with all that it needs, which its publisher calls `all`. Raises NotThere."""
    folder = FETCHED / f"{module}-{revision}"
    if not folder.is_dir():
        if shutil.which("java") is None:
            raise NotThere("there is no java (JRE 17 or later)")
        import pyspark

        (ivy,) = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
        with _whole(folder) as new:
            new.mkdir(parents=True)
            asked = new / "ivy.xml"
            asked.write_text(
                '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
                '<info organisation="streamer" module="tests"/><dependencies>'
                f'<dependency org="{organisation}" name="{module}" rev="{revision}" transitive="false">'
                f'<artifact name="{module}" type="tar.gz" ext="tar.gz" m:classifier="all"/></dependency>'
                "</dependencies></ivy-module>"
            )
            command = ["java", "-jar", str(ivy), "-warn", "-cache", str(FETCHED / "ivy"), "-ivy", str(asked), "-types", "tar.gz"]
            ran = subprocess.run(
                [*command, "-retrieve", f"{new}/[artifact]-[revision].[ext]"], capture_output=True, text=True, check=False
            )
            if ran.returncode or not list(new.glob("*.tar.gz")):
                where = f"{organisation}:{module}:{revision} is not to be had from Maven Central"
                raise NotThere(f"{where}: {(ran.stdout + ran.stderr)[-500:]}")
    (found,) = folder.glob("*.tar.gz")
    return found


def install(requirement: str, folder: Path) -> Path:
    """Return the folder, which has a package and what it needs, alone. Raises NotThere."""
    if not folder.is_dir():
        with _whole(folder) as new:
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(new), requirement]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                raise NotThere(f"{requirement} is not to be had: {ran.stderr[-500:]}")
    return folder


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes its place when it is whole."""
    new = folder.with_name(f".{folder.name.lstrip('.')}.{os.getpid()}")
    shutil.rmtree(new, ignore_errors=True)
    try:
        yield new
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
