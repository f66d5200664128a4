// SPDX-License-Identifier: Apache-2.0

//! Descriptions of errors, for the reference.

/// An error of a component type: the case, the answer to the peer, the line of the log, and the next step of the reader.
#[derive(Clone, Copy, Debug)]
pub struct ErrorDoc {
    /// The case, in sentences.
    pub case: &'static str,
    /// The answer to the peer, with its HTTP status and gRPC code. Empty: the error has no peer.
    pub answer: &'static str,
    /// A part of the line in the log, or of the error at the start, as it is in the code. Empty: there is no line.
    pub log: &'static str,
    /// The next step of the reader, in sentences.
    pub remedy: &'static str,
}

impl ErrorDoc {
    /// An error that the peer gets.
    pub const fn answered(case: &'static str, answer: &'static str, remedy: &'static str) -> Self {
        Self {
            case,
            answer,
            log: "",
            remedy,
        }
    }

    /// An error that is in the log.
    pub const fn logged(case: &'static str, log: &'static str, remedy: &'static str) -> Self {
        Self {
            case,
            answer: "",
            log,
            remedy,
        }
    }

    /// The same error, which is also in the log.
    pub const fn logged_as(self, log: &'static str) -> Self {
        Self { log, ..self }
    }
}
