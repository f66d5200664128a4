# SPDX-License-Identifier: Apache-2.0

"""The workflows, read by actionlint, and what the one of a release relies on."""

import re
from pathlib import Path

import kit
import yaml

WORKFLOWS = kit.ROOT / ".github/workflows"
RELEASE = WORKFLOWS / "release.yml"
NOTES = kit.ROOT / ".ci/release-notes"


def test_actionlint_has_no_complaint_about_the_workflows() -> None:
    files = sorted(WORKFLOWS.glob("*.yml"))
    # Without shellcheck, which not every machine has.
    result = kit.run(kit.directory("actionlint"), "-no-color", "-shellcheck=", *files)
    assert files and result.returncode == 0, result.stdout + result.stderr


def test_notes_are_the_section_of_the_version(tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## 1.2.0\n\n### Added\n\n- One.\n\n## 1.1.0\n\n- Two.\n\n## 1.0.0\n")
    assert kit.output(NOTES, "1.2.0", changelog).strip() == "### Added\n\n- One."
    assert kit.output(NOTES, "1.1.0", changelog).strip() == "- Two."
    # An empty section, and none.
    for version in ("1.0.0", "1.2"):
        refused = kit.run(NOTES, version, changelog)
        assert refused.returncode == 1 and version in refused.stderr, refused.stderr


def test_a_release_is_built_with_the_tested_tools() -> None:
    text = RELEASE.read_text()
    (oldest,) = re.findall(r'^rust-version = "(.+)"', (kit.ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    toolchain = yaml.safe_load(text)["env"]["RUSTUP_TOOLCHAIN"]
    assert toolchain == yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["test"]["env"]["RUSTUP_TOOLCHAIN"]
    assert toolchain.startswith(f"{oldest}."), oldest
    (uploader,) = re.findall(r"maturin==([0-9.]+)", text)
    assert f'"maturin=={uploader}"' in (kit.ROOT / "xtask/src/testenv/parts.rs").read_text()


def test_each_job_has_a_limit_of_time_and_few_rights() -> None:
    workflow = yaml.safe_load(RELEASE.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 180, name
        rights = job.get("permissions", {})
        assert rights.get("contents") != "write" or name == "publish", name
