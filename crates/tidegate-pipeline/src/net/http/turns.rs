// SPDX-License-Identifier: Apache-2.0

//! A connection that yields to others after a number of bytes. The runtime lets it yield after 128 reads of any
//! length. The heads in them may take tens of milliseconds to decode, while a health check waits.

use std::io;
use std::task::{Context, Poll};

use tokio::task::coop;

use super::reads::Reads;

/// The budget of a task in the runtime.
const UNITS: usize = 128;

pub(super) struct Turns {
    /// The bytes read for each unit of the budget.
    unit_bytes: usize,
}

impl Turns {
    /// Creates a limit that yields after `bytes` read bytes.
    pub(super) fn of(bytes: usize) -> Self {
        let unit_bytes = (bytes / UNITS).max(1);
        Self { unit_bytes }
    }
}

impl Reads for Turns {
    fn observe(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..bytes.len() / self.unit_bytes {
            // Without budget the next read is pending, and wakes the task.
            let Poll::Ready(unit) = coop::poll_proceed(cx) else {
                break;
            };
            unit.made_progress();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

    use super::super::reads::ObservedStream;
    use super::*;

    #[tokio::test]
    async fn others_have_their_turn_after_so_many_bytes() {
        const TURN_BYTES: usize = 64 << 10;
        let endless = tokio::io::repeat(7);
        let mut turns = ObservedStream::new(endless, Turns::of(TURN_BYTES));
        let mut bytes = [0; 4 << 10];
        let mut read_in_turn = 0;
        poll_fn(|cx| {
            // Counts the bytes that one poll reads.
            while coop::has_budget_remaining() {
                let mut buffer = ReadBuf::new(&mut bytes);
                assert!(Pin::new(&mut turns).poll_read(cx, &mut buffer).is_ready());
                read_in_turn += buffer.filled().len();
            }
            Poll::Ready(())
        })
        .await;
        assert!(read_in_turn <= TURN_BYTES, "{read_in_turn}");
        assert!(read_in_turn > TURN_BYTES / 2, "{read_in_turn}");
        turns.read_exact(&mut bytes).await.unwrap();
    }
}
