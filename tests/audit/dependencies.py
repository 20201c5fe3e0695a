"""Known weaknesses of what kbcore installs, at the versions installed here, by pip-audit.

Ends with 0 where none is known, with 1 where one is. Where the advisory database cannot be asked it
says so and ends with 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

EXTRAS = ("postgres",)
UNREACHABLE = re.compile(
    r"ConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|HTTPError|NameResolution|Max retries|ServiceError"
)


def pinned() -> list[str]:
    """Every distribution that kbcore needs, directly or not, as `name==version`."""
    found: dict[str, str] = {}
    pending = ["kbcore"]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:  # needed on other systems only
            continue
        found[name] = one.version
        for line in one.requires or ():
            need, _, marker = line.partition(";")
            extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
            if extra is None or (name == "kbcore" and extra[1] in EXTRAS):
                pending.append(re.split(r"[\s\[<>=!~(]", need.strip(), maxsplit=1)[0].lower())
    return sorted(f"{name}=={version}" for name, version in found.items() if name != "kbcore")


def main() -> int:
    wanted = pinned()
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            "--no-deps",
            "--disable-pip",
            "-r",
            str(listed),
            "-f",
            "json",
        ]
        command += ["--progress-spinner", "off", "--timeout", "15"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if not done.stdout.strip():
        if UNREACHABLE.search(done.stderr):
            print(
                f"skipped: the advisory database cannot be reached; {len(wanted)} distributions were not looked at"
            )
            return 0
        sys.stderr.write(done.stderr)
        return 1
    report = json.loads(done.stdout)["dependencies"]
    weak = [
        (each["name"], each["version"], [v["id"] for v in each["vulns"]])
        for each in report
        if each.get("vulns")
    ]
    for name, version, known in weak:
        print(f"{name} {version}: {', '.join(known)}")
    unknown = [each["skip_reason"] for each in report if "skip_reason" in each]
    if len(unknown) == len(report):
        print(
            f"skipped: the advisory database told nothing of {len(report)} distributions: {unknown[0]}"
        )
        return 0
    print(
        f"{len(report) - len(unknown)} distributions looked at, {len(weak)} with known weaknesses, {len(unknown)} unknown"
    )
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
