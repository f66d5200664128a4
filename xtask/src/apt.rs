// SPDX-License-Identifier: Apache-2.0

//! Debian packages for the test environment: downloaded and unpacked. Only [`install`] changes the system.
//!
//! Packages of the machine's own release come by its own lists. Those of the unstable release come by lists of their
//! own, made from the archive that the machine is configured with, so that the system's stay as they are.

use crate::{Outcome, process};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Debian's name of the release that is always the newest.
const UNSTABLE: &str = "sid";

/// Debian's own keys where it keeps them for sources that name theirs; else apt's trusted ones are tried.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Another installation may hold the lock of the system for some seconds.
const LOCK_WAIT: &str = "-oDPkg::Lock::Timeout=120";

/// Whether this process has renewed the lists of the machine's release.
static RENEWED: Mutex<bool> = Mutex::new(false);

/// Renews the lists of the machine's release, unless this process has done so. All parts that need it wait: `apt-get`
/// fails while another renewal runs.
pub(crate) fn renew_lists() -> Outcome {
    let mut is_renewed = RENEWED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_renewed {
        Apt { options: Vec::new() }.update()?;
        *is_renewed = true;
    }
    Ok(())
}

/// Unpacks packages of the machine's release into `directory`; an empty or old package list is renewed.
pub(crate) fn unpack(packages: &[&str], directory: &Path) -> Outcome {
    let apt = Apt { options: Vec::new() };
    apt.download(packages, directory).or_else(|_| {
        renew_lists()?;
        apt.download(packages, directory)
    })?;
    extract(directory)
}

/// Unpacks packages of the machine's release, also those that it has, and the packages they need that it lacks.
pub(crate) fn unpack_with_needs(packages: &[&str], directory: &Path) -> Outcome {
    let apt = Apt { options: Vec::new() };
    let missing = apt.missing(packages).or_else(|_| {
        renew_lists()?;
        apt.missing(packages)
    })?;
    let named = packages.iter().copied();
    let all: BTreeSet<_> = named.chain(missing.iter().map(String::as_str)).collect();
    let all: Vec<_> = all.into_iter().collect();
    unpack(&all, directory)
}

/// Unpacks packages of the machine's release with all that they need, as the root of a system on which dpkg has them
/// installed. No script of a package runs.
pub(crate) fn unpack_root(packages: &[&str], directory: &Path) -> Outcome {
    let describe = |error| format!("{}: {error}", directory.display());
    let status = directory.join("var/lib/dpkg/status");
    fs::create_dir_all(directory.join("var/lib/dpkg"))
        .and_then(|()| fs::write(&status, ""))
        .map_err(describe)?;
    let mut nothing_installed = OsString::from("-oDir::State::Status=");
    nothing_installed.push(&status);
    let empty = Apt {
        options: vec![nothing_installed],
    };
    let apt = Apt { options: Vec::new() };
    let all = empty.missing(packages).or_else(|_| {
        renew_lists()?;
        empty.missing(packages)
    })?;
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    apt.download(&all, directory).or_else(|_| {
        renew_lists()?;
        apt.download(&all, directory)
    })?;
    let mut entries = String::new();
    for package in packages_in(directory)? {
        let (fields, ended) = process::printed(Command::new("dpkg-deb").arg("--field").arg(&package))?;
        ended?;
        entries.push_str(&format!(
            "{}\nStatus: install ok installed\n\n",
            fields.trim_end()
        ));
    }
    extract(directory)?;
    // The script of base-passwd would do this.
    let masters = directory.join("usr/share/base-passwd");
    fs::write(&status, entries)
        .and_then(|()| fs::copy(masters.join("passwd.master"), directory.join("etc/passwd")))
        .and_then(|_| fs::copy(masters.join("group.master"), directory.join("etc/group")))
        .map(|_| ())
        .map_err(describe)
}

/// Unpacks packages of the unstable release into `directory`.
pub(crate) fn unpack_unstable(packages: &[&str], directory: &Path) -> Outcome {
    let state = directory.join(".apt");
    let apt = Apt::unstable(&state)?;
    apt.update()?;
    apt.download(packages, directory)?;
    fs::remove_dir_all(&state).map_err(|error| format!("{}: {error}", state.display()))?;
    extract(directory)
}

/// Installs packages of the machine's release on the system, with those they need. It needs root.
pub(crate) fn install(packages: &[&str]) -> Outcome {
    let apt = Apt { options: Vec::new() };
    apt.install(packages).or_else(|_| {
        renew_lists()?;
        apt.install(packages)
    })
}

/// `apt-get` with options that say which lists it looks at.
struct Apt {
    options: Vec<OsString>,
}

impl Apt {
    /// With lists of the unstable release, all of them below `state`.
    fn unstable(state: &Path) -> Result<Self, String> {
        let source = source_of_unstable(&archive()?, Path::new(KEYRING).exists());
        let (list, status) = (state.join("sources.list"), state.join("status"));
        fs::create_dir_all(state.join("lists/partial"))
            .and_then(|()| fs::create_dir_all(state.join("cache/archives/partial")))
            .and_then(|()| fs::write(&list, source))
            .and_then(|()| fs::write(&status, ""))
            .map_err(|error| format!("{}: {error}", state.display()))?;
        let place = |name: &str, path: &Path| {
            let mut option = OsString::from(format!("-oDir::{name}="));
            option.push(path);
            option
        };
        Ok(Self {
            options: vec![
                place("Etc::SourceList", &list),
                place("Etc::SourceParts", Path::new("-")),
                place("State", state),
                place("State::Status", &status),
                place("Cache", &state.join("cache")),
                "-oAcquire::Languages=none".into(),
                // Its user for downloads may not read our directories.
                "-oAPT::Sandbox::User=root".into(),
            ],
        })
    }

    fn update(&self) -> Outcome {
        // Without this an archive that can't be reached is only a warning.
        process::run(
            self.command()
                .args(["update", "--quiet", "-oAPT::Update::Error-Mode=any"]),
        )
    }

    fn download(&self, packages: &[&str], directory: &Path) -> Outcome {
        process::run(
            self.command()
                .args(["download", "--quiet"])
                .args(packages)
                .current_dir(directory),
        )
    }

    fn install(&self, packages: &[&str]) -> Outcome {
        process::run(
            self.command()
                .args([
                    "install",
                    "--quiet",
                    "--yes",
                    "--no-install-recommends",
                    LOCK_WAIT,
                ])
                .args(packages)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    }

    /// The packages that an installation of these packages would install. Nothing is installed.
    fn missing(&self, packages: &[&str]) -> Result<Vec<String>, String> {
        let simulated = self
            .command()
            .args(["install", "--simulate", "--no-install-recommends"])
            .args(packages)
            .output()
            .map_err(|error| format!("apt-get: {error}"))?;
        if simulated.status.success() {
            Ok(installed(&String::from_utf8_lossy(&simulated.stdout)))
        } else {
            Err(String::from_utf8_lossy(&simulated.stderr).into_owned())
        }
    }

    fn command(&self) -> Command {
        let mut apt = Command::new("apt-get");
        apt.args(&self.options);
        apt
    }
}

/// A line of a simulation is `Inst NAME (VERSION ARCHIVE)`.
fn installed(simulation: &str) -> Vec<String> {
    let names = simulation.lines().filter_map(|line| {
        let rest = line.strip_prefix("Inst ")?;
        rest.split(' ').next()
    });
    names.map(str::to_owned).collect()
}

/// The address of the archive that the machine's release comes from.
fn archive() -> Result<String, String> {
    let release =
        fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let codename =
        codename(&release).ok_or("/etc/os-release has no VERSION_CODENAME: this is not a Debian release")?;
    // Only prints what an update would fetch: that works before the first one as well.
    let addresses = Command::new("apt-get")
        .args(["update", "--print-uris"])
        .output()
        .map_err(|error| format!("apt-get: {error}"))?;
    let addresses = String::from_utf8_lossy(&addresses.stdout).into_owned();
    let found = archive_of(&addresses, codename);
    found.ok_or_else(|| format!("apt has no source of `{codename}` to derive the one of `{UNSTABLE}` from"))
}

fn codename(release: &str) -> Option<&str> {
    let mut lines = release.lines();
    let value = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(value.trim_matches('"'))
}

/// A line of `addresses` is `'ADDRESS' FILE SIZE`.
fn archive_of(addresses: &str, codename: &str) -> Option<String> {
    let end = format!("/dists/{codename}/InRelease'");
    let mut first_words = addresses.lines().filter_map(|line| line.split(' ').next());
    first_words.find_map(|word| Some(word.strip_prefix('\'')?.strip_suffix(&end)?.to_owned()))
}

fn source_of_unstable(archive: &str, has_keyring: bool) -> String {
    let keys = if has_keyring {
        format!("[signed-by={KEYRING}] ")
    } else {
        String::new()
    };
    format!("deb {keys}{archive} {UNSTABLE} main\n")
}

/// Unpacks every package in `directory` there and removes it.
fn extract(directory: &Path) -> Outcome {
    for package in packages_in(directory)? {
        process::run(
            Command::new("dpkg-deb")
                .arg("--extract")
                .args([&package, directory]),
        )?;
        fs::remove_file(&package).map_err(|error| format!("{}: {error}", package.display()))?;
    }
    Ok(())
}

fn packages_in(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == "deb"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_simulation_are_named() {
        let simulation = "Reading package lists...\nInst libre2-9 (20220601 Debian:12 [amd64])\n\
                          Inst libgrpc29 [1.0] (1.51.1 Debian:12 [amd64])\nConf libre2-9 (20220601)\n";
        assert_eq!(installed(simulation), ["libre2-9", "libgrpc29"]);
    }

    #[test]
    fn the_archive_is_the_one_of_the_machines_release() {
        let addresses = "'http://a.example/security/dists/solid-security/InRelease' a_InRelease 0 
'http://b.example/debian/dists/solid/InRelease' b_InRelease 0 
'http://b.example/debian/dists/solid/main/binary-amd64/Packages.xz' b_Packages 0 
";
        let archive = archive_of(addresses, "solid");
        assert_eq!(archive.as_deref(), Some("http://b.example/debian"));
        assert_eq!(archive_of(addresses, "liquid"), None);
        assert_eq!(archive_of("", "solid"), None);
    }

    #[test]
    fn the_release_is_read_with_and_without_quotes() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=solid\n"), Some("solid"));
        assert_eq!(codename("VERSION_CODENAME=\"solid\""), Some("solid"));
        assert_eq!(codename("ID=other"), None);
    }

    #[test]
    fn the_source_names_debians_keys_where_they_are() {
        let keyless = source_of_unstable("http://c.example/debian", false);
        assert_eq!(keyless, "deb http://c.example/debian sid main\n");
        let signed = source_of_unstable("http://c.example/debian", true);
        assert!(
            signed.starts_with("deb [signed-by=/usr/share/keyrings/"),
            "{signed}"
        );
    }
}
