# SPDX-License-Identifier: Apache-2.0

"""The workflows, read by actionlint, and what the one of a release relies on."""

import re
from pathlib import Path
from typing import Any

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
        # A workflow that is called limits its own jobs.
        assert "uses" in job or job["timeout-minutes"] <= 180, name
        rights = job.get("permissions", {})
        assert rights.get("contents") != "write" or name == "publish", name


def jobs() -> dict[str, Any]:
    return yaml.safe_load(RELEASE.read_text())["jobs"]


def steps(job: str) -> list[dict[str, Any]]:
    return jobs()[job]["steps"]


def uses(job: str, action: str) -> list[dict[str, Any]]:
    """The options of each step that uses an action."""
    return [step["with"] for step in steps(job) if step.get("uses", "").startswith(f"{action}@")]


def script(job: str) -> str:
    """All commands of a job."""
    return "\n".join(step["run"] for step in steps(job) if "run" in step)


def test_files_are_for_both_processors_and_built_twice_for_one() -> None:
    builds = {build["name"]: build["runner"] for build in jobs()["packages"]["strategy"]["matrix"]["include"]}
    assert builds["again"] == builds["x86_64"] and builds["aarch64"].endswith("-arm")
    assert "cargo xtask dist" in script("packages")
    assert "diff artifacts/packages-x86_64/SHA256SUMS artifacts/packages-again/SHA256SUMS" in script("publish")
    assert "artifacts/packages-x86_64/* artifacts/packages-aarch64/*" in script("publish")


def needed(job: str) -> set[str]:
    """The jobs that must succeed before a job begins."""
    needs = jobs()[job].get("needs", [])
    direct = {needs} if isinstance(needs, str) else set(needs)
    return direct.union(*(needed(other) for other in direct))


def test_nothing_is_built_before_the_checks_of_a_change_have_passed() -> None:
    ours = "./.github/workflows/ci.yml"
    assert jobs()["tests"]["uses"] == ours
    called = (kit.ROOT / ours).read_text()
    assert "\n  workflow_call:\n" in called and "run: .ci/run\n" in called
    assert all("tests" in needed(job) for job in ("packages", "image", "index", "publish", "libraries"))


def test_the_packages_are_installed_before_they_are_uploaded() -> None:
    names: list[str] = [step.get("run") or step["uses"] for step in steps("packages")]
    (deb,) = [index for index, run in enumerate(names) if "dpkg --install" in run and "tidegate version" in run]
    (wheel,) = [index for index, run in enumerate(names) if "pip install" in run and "import tidegate" in run]
    (upload,) = [index for index, run in enumerate(names) if run.startswith("actions/upload-artifact@")]
    assert names.index("cargo xtask dist --zig") < min(deb, wheel) and max(deb, wheel) < upload
    # Each of them fails if the version is another one.
    assert all("grep" in names[index] and "GITHUB_REF_NAME#v" in names[index] for index in (deb, wheel))


def test_users_can_begin_with_the_files_before_they_are_uploaded() -> None:
    names: list[str] = [step.get("run") or step["uses"] for step in steps("packages")]
    upload = next(index for index, run in enumerate(names) if run.startswith("actions/upload-artifact@"))
    assert names.index("cargo xtask dist --zig") < names.index("cargo xtask first-minutes") < upload
    # The container has the rights of the one that runs these tests for each change.
    container = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["test"]["container"]
    assert jobs()["packages"]["container"] == container


def test_the_site_of_the_documents_is_a_file_of_the_release() -> None:
    assert "cargo xtask site" in script("site") and "-site.tar.gz" in str(steps("site"))
    assert "site" in needed("publish") and "needs.site.result == 'success'" in jobs()["publish"]["if"]
    assert "cp artifacts/site/* release/" in script("publish")


def test_images_are_for_both_processors_with_one_name() -> None:
    images = {image["name"]: image for image in jobs()["image"]["strategy"]["matrix"]["include"]}
    assert {name: image["packages"] for name, image in images.items()} == {"amd64": "x86_64", "arm64": "aarch64"}
    assert images["arm64"]["runner"].endswith("-arm")
    # The root is of the Debian release that the Containerfile names.
    (debian,) = re.findall("^ARG DEBIAN_IMAGE=(.+)$", (kit.ROOT / "deploy/container/Containerfile").read_text(), re.MULTILINE)
    assert jobs()["image"]["container"] == debian
    commands = script("image")
    assert "deploy/container/root.sh" in commands and "deploy/container/pack.py" in commands
    assert "--preserve-digests" in commands and "-${{ matrix.name }}" in commands
    assert all(f'"$name-{name}"' in script("index") for name in images)


def test_files_and_images_have_an_sbom_and_provenance() -> None:
    for job in ("image", "publish"):
        rights = jobs()[job]["permissions"]
        assert rights["attestations"] == rights["id-token"] == "write", job
        (listed,) = uses(job, "anchore/sbom-action")
        (provenance,) = uses(job, "actions/attest-build-provenance")
        (sbom,) = uses(job, "actions/attest-sbom")
        assert sbom["sbom-path"] == listed["output-file"] and listed["format"] == "spdx-json"
        if job == "image":
            subject: dict[str, Any] = {"subject-name": "${{ vars.IMAGE }}", "subject-digest": "${{ steps.push.outputs.digest }}"}
            subject |= {"push-to-registry": True}
            assert provenance == subject and sbom == subject | {"sbom-path": listed["output-file"]}
        else:
            assert provenance["subject-path"] == sbom["subject-path"] == "release/*"
    assert "sha256sum" in script("publish") and "SHA256SUMS" in script("publish")


def test_an_sbom_has_the_crates_of_the_programs_and_no_others() -> None:
    (image,), (files,) = uses("image", "anchore/sbom-action"), uses("publish", "anchore/sbom-action")
    # A directory with packages of Debian, and one with the lock file alone. Other lock files are of measurements and tests.
    assert image["path"] == "rootfs" and "cp Cargo.lock rootfs/" in script("image")
    assert files["path"] == "source" and "mkdir source\ncp Cargo.lock source/\n" in script("publish")
