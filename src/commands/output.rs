// SPDX-License-Identifier: Apache-2.0

//! Standard output of the commands: failed writes, and the end of the program that reads it.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use tokio::sync::oneshot;

use super::Failure;

/// The error of the first write that failed. Later writes fail for the same reason.
static FIRST_ERROR: OnceLock<io::Error> = OnceLock::new();

/// Prints a line to standard output.
#[macro_export]
macro_rules! print_line {
    ($($arg:tt)*) => {
        $crate::commands::output::print(format_args!("{}\n", format_args!($($arg)*)))
    };
}

/// Prints a text to standard output. The command goes on after a failure, which is reported at its end.
pub fn print(text: fmt::Arguments<'_>) {
    note(io::stdout().lock().write_fmt(text));
}

/// Notes the result of a write to standard output.
pub(super) fn note(written: io::Result<()>) {
    if let Err(error) = written {
        let _ = FIRST_ERROR.set(error);
    }
}

/// Whether a write has failed. A command that prints until it is stopped ends then.
pub(super) fn has_failed() -> bool {
    FIRST_ERROR.get().is_some()
}

/// The same, also if nothing was written since the program that reads the output has ended.
pub(super) fn is_over() -> bool {
    has_failed() || has_no_reader(io::stdout(), Some(&Timespec::default()))
}

/// Runs a command that prints until it is stopped. It ends at once when the program that reads its output ends, because its
/// next write may be far away.
///
/// # Errors
/// Those of the command.
pub(super) async fn while_read(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let (sender, ended) = oneshot::channel();
    // The thread ends with the process: epoll, which a runtime waits with, refuses files.
    std::thread::spawn(move || {
        if has_no_reader(io::stdout(), None) {
            let _ = sender.send(());
        }
    });
    tokio::select! {
        result = command => result,
        Ok(()) = ended => Ok(()),
    }
}

/// Writes the rest of the output.
///
/// # Errors
/// A part of the output is not written, although the program that reads it (`| head`) has not ended.
pub(super) fn finish() -> Result<(), Failure> {
    note(io::stdout().flush());
    outcome_of(FIRST_ERROR.get())
}

/// Whether a failed write is a failure of the command.
fn outcome_of(error: Option<&io::Error>) -> Result<(), Failure> {
    match error {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Message(format!("can't write the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Waits until no program reads the output any more, for `limit` at most. Returns whether this is so.
fn has_no_reader(output: impl AsFd, limit: Option<&Timespec>) -> bool {
    // The system reports the end of the reader without being asked.
    let mut polled = [PollFd::new(&output, PollFlags::empty())];
    retry_on_intr(|| poll(&mut polled, limit)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_reader_is_not_a_failure() {
        let [ended, full] = [ErrorKind::BrokenPipe, ErrorKind::StorageFull].map(io::Error::from);
        assert!(outcome_of(None).is_ok() && outcome_of(Some(&ended)).is_ok());
        let failure = outcome_of(Some(&full)).unwrap_err().to_string();
        assert_eq!(failure, format!("can't write the output: {full}"));
    }

    #[test]
    fn the_end_of_a_reader_shows_although_nothing_is_written() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!has_no_reader(&writer, Some(&Timespec::default())));
        let waiting = std::thread::spawn(move || has_no_reader(writer, None));
        drop(reader);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn files_have_no_reader_that_ends() {
        let file = tempfile::tempfile().unwrap();
        assert!(!has_no_reader(file, Some(&Timespec::default())));
    }
}
