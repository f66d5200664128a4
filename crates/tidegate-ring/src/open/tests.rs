// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn links_directories_and_pipes_are_refused_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for name in ["link", "pipe", "socket", "."] {
        for write in [false, true] {
            let error = open(&at(name), write).unwrap_err();
            assert_eq!(error.reason(), "not_regular", "{name}: {error}");
        }
    }
    assert_eq!(open(&at("none"), true).unwrap_err().reason(), "io");
}

#[test]
fn a_refused_permission_names_both_uids_and_the_cure() {
    let directory = tempfile::tempdir().unwrap();
    let ours = rustix::process::geteuid().as_raw();
    let refused = |consume| {
        let (operation, source) = ("open", ErrorKind::PermissionDenied.into());
        refusal(directory.path(), consume, OpenError::Io { operation, source })
    };
    let Error::PermissionDenied {
        owner_uid, our_uid, ..
    } = refused(true)
    else {
        panic!("{}", refused(true));
    };
    assert_eq!((owner_uid, our_uid), (ours, ours));
    let text = refused(true).to_string();
    let cure = format!("run as uid {ours}, or add CAP_DAC_OVERRIDE, or peek with `consume: false`");
    assert!(text.ends_with(&cure), "{text}");
    assert!(refused(false).to_string().ends_with("or add CAP_DAC_OVERRIDE"));
}
