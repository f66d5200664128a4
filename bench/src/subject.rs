// SPDX-License-Identifier: Apache-2.0

//! The measured programs: folders with a `subject.json` and a configuration for each task, under `tidegate`, `floors`
//! and `peers`. A new peer is a new folder.
//!
//! A configuration is named after its task: `grpc.yaml` is handed over as `${CONFIG}`, `grpc.args` holds arguments, one
//! or more a line. In both, and in the arguments of `subject.json`, `${IN}`, `${OUT}`, `${SHOWN}`, `${SPARE}` and `${DIR}` stand
//! for ports and a directory. A task without one is not done, and `cannot` says why; `remarks`
//! are printed beside the results.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::BenchError;
use crate::gateway::free_port;
use crate::process::Process;

/// The role of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubjectRole {
    Ours,
    Floor,
    Peer,
}

/// Where they are, in the order in which they are measured.
const FOLDERS: [(SubjectRole, &str); 3] = [
    (SubjectRole::Ours, "tidegate"),
    (SubjectRole::Floor, "floors"),
    (SubjectRole::Peer, "peers"),
];

/// A program and its configurations.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) role: SubjectRole,
    /// It is written in Rust.
    pub(crate) is_rust: bool,
    /// HTTP/2 frames that its destination asks for, in bytes.
    pub(crate) frame: Option<u32>,
    folder: PathBuf,
    binary: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    version: Vec<String>,
    cannot: BTreeMap<String, String>,
    remarks: BTreeMap<String, String>,
}

/// A started subject: its process and its ports.
pub(crate) struct Started {
    pub(crate) process: Process,
    pub(crate) port: u16,
    /// Where it shows a page, if it does.
    pub(crate) shown: u16,
}

/// Those that are there, and why others are not.
pub(crate) fn all(tidegate: &Path) -> Result<(Vec<Subject>, Vec<String>), BenchError> {
    let (mut subjects, mut missing) = (Vec::new(), Vec::new());
    for (role, folder) in FOLDERS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut folders = std::fs::read_dir(folder)?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<PathBuf>, BenchError>>()?;
        folders.sort();
        for folder in folders {
            match Subject::read(role, &folder, tidegate)? {
                Ok(subject) => subjects.push(subject),
                Err(why) => missing.push(why),
            }
        }
    }
    Ok((subjects, missing))
}

/// The program of this name, if it is on PATH.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|binary| binary.is_file())
}

impl Subject {
    /// The subject of a folder; the inner error says why it is not there.
    fn read(role: SubjectRole, folder: &Path, tidegate: &Path) -> Result<Result<Self, String>, BenchError> {
        let file = folder.join("subject.json");
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let description: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let binaries = strings(&description["binaries"]);
        let binary = match role {
            SubjectRole::Ours => tidegate.to_owned(),
            SubjectRole::Floor => std::env::current_exe()?,
            SubjectRole::Peer => match binaries.iter().find_map(|binary| on_path(binary)) {
                Some(binary) => binary,
                None => return Ok(Err(format!("{name} is not on PATH"))),
            },
        };
        Ok(Ok(Self {
            name,
            role,
            is_rust: description["language"] == "rust",
            frame: description["frame"].as_u64().map(u32::try_from).transpose()?,
            folder: folder.to_owned(),
            binary,
            arguments: strings(&description["arguments"]),
            environment: map(&description["environment"]),
            version: strings(&description["version"]),
            cannot: map(&description["cannot"]),
            remarks: map(&description["remarks"]),
        }))
    }

    /// The configuration of a task, or why there is none.
    pub(crate) fn config(&self, task: &str) -> Result<PathBuf, String> {
        let files = std::fs::read_dir(&self.folder).map_err(|error| error.to_string())?;
        let file = files
            .filter_map(|file| Some(file.ok()?.path()))
            .find(|file| file.file_stem().is_some_and(|stem| stem == task));
        file.ok_or_else(|| {
            let why = self.cannot.get(task).or_else(|| self.cannot.get("*"));
            why.cloned().unwrap_or_else(|| "no configuration".to_owned())
        })
    }

    /// Starts it with this configuration and its destination on port `to`.
    pub(crate) fn start(&self, template: &Path, to: u16) -> Result<Started, BenchError> {
        let directory = directory()?;
        let (port, shown) = (free_port()?, free_port()?);
        let text = std::fs::read_to_string(template)?;
        let places = [
            ("${IN}", port.to_string()),
            ("${OUT}", to.to_string()),
            ("${SHOWN}", shown.to_string()),
            ("${SPARE}", free_port()?.to_string()),
            ("${DIR}", directory.path().to_string_lossy().into_owned()),
        ];
        let config = directory.path().join(template.file_name().unwrap_or_default());
        std::fs::write(&config, filled(&text, &places))?;
        let mut command = Command::new(&self.binary);
        for argument in self.all_arguments(template)? {
            let argument = argument.replace("${CONFIG}", &config.to_string_lossy());
            command.arg(filled(&argument, &places));
        }
        command.envs(&self.environment).current_dir(directory.path());
        Ok(Started {
            process: Process::start(command, directory)?,
            port,
            shown,
        })
    }

    fn all_arguments(&self, template: &Path) -> Result<Vec<String>, BenchError> {
        let mut arguments = self.arguments.clone();
        if template.extension().is_some_and(|extension| extension == "args") {
            let text = std::fs::read_to_string(template)?;
            arguments.extend(text.split_whitespace().map(str::to_owned));
        }
        Ok(arguments)
    }

    /// A remark on how it does a task.
    pub(crate) fn remark(&self, task: &str) -> Option<&str> {
        self.remarks.get(task).map(String::as_str)
    }

    /// How it is started for a task, for readers who want to repeat it.
    pub(crate) fn command_line(&self, template: &Path) -> Result<String, BenchError> {
        let environment = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let program = match self.role {
            SubjectRole::Floor => "tidegate-bench".into(),
            _ => self.binary.file_name().unwrap_or_default().to_string_lossy(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = template.strip_prefix(root).unwrap_or(template).to_string_lossy();
        let arguments = self.all_arguments(template)?;
        let arguments = arguments
            .iter()
            .map(|argument| argument.replace("${CONFIG}", &config));
        let words: Vec<String> = environment
            .chain([program.into_owned()])
            .chain(arguments)
            .collect();
        Ok(words.join(" "))
    }

    /// Its version.
    pub(crate) fn version(&self) -> String {
        match self.version.as_slice() {
            [] => env!("CARGO_PKG_VERSION").to_owned(),
            arguments => version(&self.binary, arguments),
        }
    }
}

/// The version that a program prints when it is started with these arguments: the first line that has a digit.
pub(crate) fn version(binary: &Path, arguments: &[impl AsRef<OsStr>]) -> String {
    let output = Command::new(binary).args(arguments).output();
    let said = output
        .map(|output| [output.stdout, output.stderr].concat())
        .unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let line = said
        .lines()
        .find(|line| line.contains(|c: char| c.is_ascii_digit()));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

/// On a disk where there is one: the system's directory for temporary files may be memory.
fn directory() -> std::io::Result<TempDir> {
    let target = std::env::current_dir()?.join("target");
    if target.is_dir() {
        TempDir::new_in(target)
    } else {
        TempDir::new()
    }
}

fn filled(text: &str, places: &[(&str, String)]) -> String {
    let fill = |text: String, (place, value): &(&str, String)| text.replace(place, value);
    places.iter().fold(text.to_owned(), fill)
}

fn strings(value: &Value) -> Vec<String> {
    let values = value.as_array().into_iter().flatten();
    values
        .filter_map(|value| Some(value.as_str()?.to_owned()))
        .collect()
}

fn map(value: &Value) -> BTreeMap<String, String> {
    let values = value.as_object().into_iter().flatten();
    values
        .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect()
}
