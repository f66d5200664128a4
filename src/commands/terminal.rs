// SPDX-License-Identifier: Apache-2.0

//! The terminal of the live views `top` and `quickstart`. It is restored on drop.

use std::io::{IsTerminal, Read, Write, stdin, stdout};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc;

use crate::telemetry::refuses_colours;

/// The alternate screen of a terminal, and input without echo and line editing.
pub(super) struct Screen {
    before: Option<Termios>,
    has_style: bool,
}

impl Screen {
    pub(super) fn open() -> std::io::Result<Self> {
        // Without a terminal as input there are no keys: signals end the view.
        let before = tcgetattr(stdin()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            tcsetattr(stdin(), OptionalActions::Now, &keys)?;
        }
        let has_style = !refuses_colours();
        let screen = Self { before, has_style };
        print("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    /// Whether standard output is a terminal that this process may draw on. The system stops a job in the background that
    /// changes its terminal.
    pub(super) fn is_possible() -> bool {
        let is_background = tcgetpgrp(stdout()).is_ok_and(|group| group != getpgrp());
        stdout().is_terminal() && !is_background
    }

    /// Columns and rows; 80 and 24 if the terminal does not tell.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => (80, 24),
        }
    }

    /// Replaces the frame; the line `title` is reversed.
    pub(super) fn draw(&self, lines: &[String], title: usize) -> std::io::Result<()> {
        print(&frame(lines, self.has_style.then_some(title)))
    }
}

/// The text that replaces the frame; the line `reversed` is reversed.
fn frame(lines: &[String], reversed: Option<usize>) -> String {
    let mut frame = "\x1b[H".to_owned();
    for (at, line) in lines.iter().enumerate() {
        let (on, off) = if reversed == Some(at) {
            ("\x1b[7m", "\x1b[0m")
        } else {
            ("", "")
        };
        let end = if at == 0 { "" } else { "\r\n" };
        // It clears before it writes: after a full line, the cursor is still on the last character.
        let clear = if at + 1 == lines.len() { "\x1b[J" } else { "\x1b[K" };
        frame.push_str(&format!("{end}{clear}{on}{line}{off}"));
    }
    frame
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = print("\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The bytes of the keys. The thread ends with the process or the input.
pub(super) fn keys() -> mpsc::Receiver<u8> {
    let (sender, keys) = mpsc::channel(64);
    std::thread::spawn(move || {
        for byte in stdin().lock().bytes() {
            let Ok(byte) = byte else { return };
            if sender.blocking_send(byte).is_err() {
                return;
            }
        }
    });
    keys
}

/// At most `width` characters; `~` marks a cut.
pub(super) fn clip(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain((width > 0).then_some('~')).collect()
}

/// The lines of a screen: `head` stays, the rest scrolls.
pub(super) fn screen(
    head: Vec<String>,
    table: Vec<String>,
    scroll: &mut usize,
    height: usize,
) -> Vec<String> {
    let room = height.saturating_sub(head.len() + 1);
    let mut table = table.into_iter();
    let names = table.next();
    *scroll = (*scroll).min(table.len().saturating_sub(room));
    let shown = table.skip(*scroll).take(room);
    head.into_iter().chain(names).chain(shown).take(height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_cleared_after_a_line_that_may_be_full() {
        let lines = ["title", "full"].map(str::to_owned);
        assert_eq!(
            frame(&lines, Some(0)),
            "\x1b[H\x1b[K\x1b[7mtitle\x1b[0m\r\n\x1b[Jfull"
        );
        assert_eq!(frame(&lines[1..], None), "\x1b[H\x1b[Jfull");
    }
}
