// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use super::*;
use crate::Mapping;

/// Tells a test that it is the child process which is expected to be killed.
const CHILD: &str = "TIDEGATE_SHM_GUARD_CHILD";

const PAGE: usize = 4096;

fn file_of(size: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(size).unwrap();
    file
}

#[test]
fn a_range_is_one_number() {
    for (start, len) in [
        (PAGE, 1),
        (0x7f12_3456_7000, 5 << 20),
        (0x0000_ffff_ffff_f000, 1 << 39),
    ] {
        let addresses = Range::new(start, len).unwrap().addresses();
        assert_eq!(addresses, start..start + len.next_multiple_of(PAGE));
    }
    assert!(Range::new(PAGE, 1 << 40).is_err() && Range::new(1 << 48, PAGE).is_err());
    for nothing in [Range::FREE, Range::RESERVED] {
        assert!(Range(nothing).addresses().is_empty());
    }
}

/// Runs the named test of this file again in a process of its own.
fn in_child(test: &str) -> Option<ExitStatus> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let name = format!("map::guard::tests::{test}");
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args(["--exact", &name, "--test-threads=1"]).env(CHILD, "1");
    let output = child.output().unwrap();
    // Without a test of this name, the child would succeed.
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "{name}: {printed}");
    Some(output.status)
}

/// A fault in memory that is none of ours.
fn fault_elsewhere() {
    let file = file_of(PAGE as u64);
    // SAFETY: a new mapping of our own.
    let start = unsafe {
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(ptr::null_mut(), PAGE, read, shared, file.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    // SAFETY: mapped above; the fault is the point.
    let value = unsafe { start.cast::<u64>().read_volatile() };
    unreachable!("read {value} beyond the end of a file");
}

extern "C" fn exit_42(_signal: c_int) {
    // SAFETY: ends the process without running anything.
    unsafe { libc::_exit(42) };
}

extern "C" fn chain_to_saved(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let saved = SAVED.get().unwrap().sa_sigaction;
    // SAFETY: the saved handler is ours, set with SA_SIGINFO.
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
        unsafe { std::mem::transmute(saved) };
    handler(signal, info, context);
}

static SAVED: OnceLock<libc::sigaction> = OnceLock::new();

fn set_handler(handler: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    sigaction(Some(&action)).unwrap()
}

#[test]
fn a_truncated_mapping_reads_as_zero_and_is_reported() {
    let file = file_of(PAGE as u64);
    let mapping = Mapping::new(&file, PAGE, true).unwrap();
    mapping.store_u64(8, 7, Ordering::Relaxed);
    assert_eq!(
        (mapping.load_u64(8, Ordering::Relaxed), mapping.faulted()),
        (7, false)
    );
    file.set_len(0).unwrap();
    assert_eq!(
        (mapping.load_u64(8, Ordering::Relaxed), mapping.faulted()),
        (0, true)
    );
    mapping.store_u64(8, 9, Ordering::Relaxed);
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn stores_and_exchanges_survive_truncation_too() {
    let file = file_of(PAGE as u64);
    let mut mapping = Mapping::new(&file, PAGE, true).unwrap();
    file.set_len(0).unwrap();
    assert!(!mapping.replace_u64(16, 5, 6));
    assert!(mapping.faulted());
    let mut other = Mapping::new(&file, PAGE, true).unwrap();
    other.write(100, &[1; 16]);
    mapping.write(100, &[1; 16]);
    assert!(other.faulted());
}

#[test]
fn every_page_of_a_large_mapping_is_guarded() {
    let file = file_of(16 * PAGE as u64);
    let mut mapping = Mapping::new(&file, 16 * PAGE, true).unwrap();
    file.set_len(PAGE as u64).unwrap();
    mapping.write(15 * PAGE, &[1; 8]);
    assert!(mapping.faulted());
    assert_eq!(
        mapping.load_u64(15 * PAGE, Ordering::Relaxed),
        u64::from_le_bytes([1; 8])
    );
}

#[test]
fn words_of_a_truncated_file_load_as_zero() {
    let file = file_of(2 * PAGE as u64);
    let writer = Mapping::new(&file, 2 * PAGE, true).unwrap();
    writer.store_u64(PAGE + 8, 7, Ordering::Relaxed);
    let reader = Mapping::new(&file, 2 * PAGE, false).unwrap();
    let words = reader.loads::<2>(PAGE / 8).unwrap();
    assert_eq!((words.load(1), reader.faulted()), (7, false));
    file.set_len(PAGE as u64).unwrap();
    assert_eq!((words.load(1), reader.faulted()), (0, true));
    assert!(reader.loads::<2>(2 * PAGE / 8 - 1).is_none());
}

#[test]
fn a_file_shorter_than_its_mapping_reads_as_zero() {
    let mapping = Mapping::new(&file_of(0), PAGE, false).unwrap();
    assert!(!mapping.faulted());
    assert_eq!(mapping.load_i32(4, Ordering::Relaxed), 0);
    assert!(mapping.faulted());
}

#[test]
fn threads_that_read_a_truncated_file_all_survive() {
    let file = file_of(PAGE as u64);
    let mapping = Mapping::new(&file, PAGE, false).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !mapping.faulted() {
                    assert_eq!(mapping.load_u64(8, Ordering::Relaxed), 0);
                }
            });
        }
        file.set_len(0).unwrap();
    });
}

#[test]
fn entries_are_used_again() {
    let file = file_of(PAGE as u64);
    for _ in 0..2 * MAX_MAPPINGS {
        Mapping::new(&file, PAGE, false).unwrap();
    }
}

#[test]
fn a_fault_elsewhere_kills_as_it_would_without_us() {
    let Some(status) = in_child("a_fault_elsewhere_kills_as_it_would_without_us") else {
        let _guarded = Mapping::new(&file_of(PAGE as u64), PAGE, false).unwrap();
        return fault_elsewhere();
    };
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn a_fault_elsewhere_goes_to_the_handler_that_was_there_before() {
    let Some(status) = in_child("a_fault_elsewhere_goes_to_the_handler_that_was_there_before") else {
        set_handler(exit_42 as *const () as usize, 0);
        let _guarded = Mapping::new(&file_of(PAGE as u64), PAGE, false).unwrap();
        return fault_elsewhere();
    };
    assert_eq!(status.code(), Some(42), "{status}");
}

#[test]
fn a_later_handler_that_chains_to_ours_neither_loops_nor_hides_our_faults() {
    let Some(status) = in_child("a_later_handler_that_chains_to_ours_neither_loops_nor_hides_our_faults")
    else {
        let file = file_of(PAGE as u64);
        let first = Mapping::new(&file, PAGE, false).unwrap();
        let ours = set_handler(chain_to_saved as *const () as usize, libc::SA_SIGINFO);
        SAVED.set(ours).unwrap();
        let _puts_ours_in_front = Mapping::new(&file, PAGE, false).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(first.load_u64(0, Ordering::Relaxed), 0);
        assert!(first.faulted());
        return fault_elsewhere();
    };
    assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
}

#[test]
fn a_signal_sent_to_an_ignoring_process_stays_ignored() {
    let Some(status) = in_child("a_signal_sent_to_an_ignoring_process_stays_ignored") else {
        set_handler(libc::SIG_IGN, 0);
        let _guarded = Mapping::new(&file_of(PAGE as u64), PAGE, false).unwrap();
        // SAFETY: no memory involved.
        unsafe { libc::raise(libc::SIGBUS) };
        return;
    };
    assert!(status.success(), "{status}");
}
