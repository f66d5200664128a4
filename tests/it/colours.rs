// SPDX-License-Identifier: Apache-2.0

//! Colours are for terminals, and for those who do not refuse them (<https://no-color.org>).

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs the command of its arguments in a pseudo-terminal, and writes what it writes. A gateway ends when it runs.
const TERMINAL: &str = r#"
import os, pty, select, subprocess, sys, time
master, slave = pty.openpty()
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave)
os.close(slave)
seen, is_asked, deadline = b"", False, time.monotonic() + 60
while select.select([master], [], [], max(0, deadline - time.monotonic()))[0]:
    try:
        seen += os.read(master, 65536)
    except OSError:
        break
    if b"running and processing data" in seen and not is_asked:
        child.terminate()
        is_asked = True
else:
    child.kill()
    sys.exit(f"no end: {seen!r}")
child.wait()
sys.stdout.buffer.write(seen)
"#;

/// What a command writes to a terminal.
fn on_terminal(arguments: &[&str], config: &Path, no_color: Option<&str>) -> String {
    let mut command = Command::new("python3");
    command
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_tidegate")])
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env("TERM", "xterm");
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TIDEGATE_LOG"] {
        command.env_remove(name);
    }
    command.envs(no_color.map(|value| ("NO_COLOR", value)));
    let output = command.output().expect("Python runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn colours_are_on_a_terminal_unless_no_color_is_set() {
    let directory = TempDir::new().expect("a temporary directory");
    let config = directory.path().join("gateway.yaml");
    let text = "receivers: {nop: }
exporters: {nop: }
service: {telemetry: {metrics: {level: none}}, pipelines: {logs: {receivers: [nop], exporters: [nop]}}}
";
    fs::write(&config, text).expect("a file");
    // An empty value is as good as none.
    for (no_color, has_colours) in [(None, true), (Some(""), true), (Some("1"), false)] {
        for (arguments, part) in [
            (&["run"][..], "running and processing data"),
            (&["run", "--help"], "Usage:"),
        ] {
            let said = on_terminal(arguments, &config, no_color);
            assert!(said.contains(part), "{said:?}");
            assert_eq!(said.contains('\x1b'), has_colours, "{no_color:?} {said:?}");
        }
    }
}

#[test]
fn problems_of_a_configuration_have_no_escape_sequences() {
    let directory = TempDir::new().expect("a temporary directory");
    let config = directory.path().join("gateway.yaml");
    fs::write(&config, "receivers: {nosuch: }\n").expect("a file");
    for no_color in [None, Some("1")] {
        let said = on_terminal(&["validate"], &config, no_color);
        assert!(said.contains("nosuch"), "{said:?}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
}
