// SPDX-License-Identifier: Apache-2.0

//! Calling a plugin. The one place where functions of a plugin's table are called.

use std::ffi::c_void;
use std::ptr;
use std::time::Duration;

use super::batch::ExportBatch;
use super::library::{Functions, Library};
use super::view::{View, text};
use super::{Refusal, Setup};
use crate::abi::{self, status};
use crate::response::Answer;

/// The most bytes of a message in one answer.
const MESSAGE_BYTES: usize = 1024;

/// An instance of a plugin. It can't leave the thread that created it (a raw pointer is not `Send`), and `&mut` means
/// one call at a time: the header's rules.
pub struct Instance {
    functions: Functions,
    raw: *mut c_void,
}

impl Instance {
    /// Creates one.
    ///
    /// # Errors
    /// The plugin refuses.
    pub fn create(library: &Library, setup: &Setup) -> Result<Self, Refusal> {
        let functions = library.functions;
        let given = abi::Setup {
            struct_size: size_of::<abi::Setup>(),
            id: text(&setup.id),
            config: text(&setup.config),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a function of a checked table, called with structs of ours that live until it returns. The header
        // forbids it to unwind.
        let answer = asked(|answer| unsafe { (functions.create)(&raw const given, &raw mut raw, answer) });
        match answer {
            Answer::Ok => Ok(Self { functions, raw }),
            other => Err(Refusal::Create {
                name: library.description().name.clone(),
                version: library.description().version.clone(),
                why: match other.why() {
                    "" => "it does not say why".to_owned(),
                    why => why.to_owned(),
                },
            }),
        }
    }

    /// Exports a batch.
    pub fn export(&mut self, batch: &ExportBatch) -> Answer {
        let view = View::new(batch);
        let given = view.batch();
        // SAFETY: as for `create`; `raw` is what it stored, and not destroyed before `drop`. `view` keeps what `given`
        // points to until after the call.
        asked(|answer| unsafe { (self.functions.export)(self.raw, &raw const given, answer) })
    }

    /// Has it bring out what it holds.
    pub fn flush(&mut self) -> Answer {
        match self.functions.flush {
            // SAFETY: as for `export`.
            Some(flush) => asked(|answer| unsafe { flush(self.raw, answer) }),
            None => Answer::Ok,
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: as for `export`; no call follows.
        unsafe { (self.functions.destroy)(self.raw) }
    }
}

/// Calls with an answer to fill in, and reads it. Nothing that the plugin may have written into it is trusted.
fn asked(call: impl FnOnce(&mut abi::Answer) -> i32) -> Answer {
    let mut message = [0u8; MESSAGE_BYTES];
    let mut answer = abi::Answer {
        struct_size: size_of::<abi::Answer>(),
        retry_after_ns: 0,
        lost_items: 0,
        message: message.as_mut_ptr().cast(),
        message_capacity: MESSAGE_BYTES,
        message_length: 0,
    };
    let status = call(&mut answer);
    let said = message.get(..answer.message_length).unwrap_or(&message);
    let why = String::from_utf8_lossy(said);
    answer_of(status, answer.lost_items, answer.retry_after_ns, &why)
}

/// The text of an answer up to its first NUL, with control characters escaped: logs and terminals get no sequences of a
/// plugin's choice.
pub(super) fn printable(text: &str) -> String {
    let text = text.split('\0').next().unwrap_or_default();
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            printable.extend(c.escape_default());
        } else {
            printable.push(c);
        }
    }
    printable
}

/// An answer out of its parts.
pub(super) fn answer_of(status: i32, lost_items: u64, retry_after_ns: u64, why: &str) -> Answer {
    let why = printable(why);
    match status {
        status::OK => Answer::Ok,
        status::PARTIAL => Answer::Partial { lost_items, why },
        status::RETRY => Answer::Retry {
            after: Some(Duration::from_nanos(retry_after_ns)).filter(|after| !after.is_zero()),
            why,
        },
        status::REFUSED => Answer::Refused { why },
        status::INVALID => Answer::Invalid { why },
        status::TOO_LARGE => Answer::TooLarge { why },
        unknown => Answer::Refused {
            why: format!("it answered with the unknown status {unknown}: {why}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_answer_is_printable() {
        for (said, shown) in [
            ("plain \u{e9} text", "plain \u{e9} text"),
            ("\u{1b}[31mred\u{7}", "\\u{1b}[31mred\\u{7}"),
            ("two\nlines\ttab", "two\\nlines\\ttab"),
            ("cut\0here", "cut"),
            ("\0\0\0", ""),
            ("\u{9b}31m", "\\u{9b}31m"),
        ] {
            let answer = answer_of(status::REFUSED, 0, 0, said);
            assert_eq!(answer.why(), shown, "{said:?}");
        }
    }
}
