// SPDX-License-Identifier: Apache-2.0

//! Whether a read has all that the stream had when somebody asked.
//!
//! The leader of the stream says what its last message is: the server of the consumer may lag behind. Two such goals in a
//! row, because a message that is replaced on the way to the first one has a successor before the second one (see `goals`).

use std::future::pending;
use std::time::Duration;

use async_nats::jetstream::stream::Stream;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// A question that the read has not answered.
#[derive(Debug)]
struct OpenQuestion {
    number: u64,
    /// When the first goal was asked for.
    begun: Instant,
    /// The last sequence of the stream; `None`: it is being asked for.
    goal: Option<u64>,
    is_second: bool,
}

/// What the messages that were given say of the open question.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Waiting,
    /// The first goal is reached.
    AskAgain,
    /// All messages until the question with this number are given. The time is that of both goals.
    Confirmed(u64, Duration),
}

impl OpenQuestion {
    fn reach(&mut self, given: u64, now: Instant) -> Progress {
        match self.goal {
            Some(goal) if given >= goal && self.is_second => {
                Progress::Confirmed(self.number, now.saturating_duration_since(self.begun))
            }
            Some(goal) if given >= goal => {
                (self.goal, self.is_second) = (None, true);
                Progress::AskAgain
            }
            _ => Progress::Waiting,
        }
    }
}

/// The answers of a read, one question after the other.
pub(super) struct Confirmation<'a> {
    stream: &'a Stream<()>,
    questions: watch::Receiver<u64>,
    open: Option<OpenQuestion>,
    answer: Option<BoxFuture<'a, Result<u64, String>>>,
}

impl<'a> Confirmation<'a> {
    pub(super) fn new(stream: &'a Stream<()>, mut questions: watch::Receiver<u64>) -> Self {
        // The read before may have left a question open.
        if *questions.borrow() > 0 {
            questions.mark_changed();
        }
        Self {
            stream,
            questions,
            open: None,
            answer: None,
        }
    }

    /// Asks for the goals of the next question, and returns when there is one. If the call is dropped, the next one goes on.
    pub(super) async fn next(&mut self) {
        if let Some(answer) = &mut self.answer {
            let goal = answer.await;
            self.answer = None;
            match goal {
                Ok(goal) => self.open.iter_mut().for_each(|open| open.goal = Some(goal)),
                // Those who wait ask again.
                Err(error) => {
                    tracing::debug!(error, "NATS does not say what the last message of the stream is");
                    self.open = None;
                }
            }
            return;
        }
        // Messages answer an open question. Without a sender, the engine is gone and ends the read.
        if self.open.is_some() || self.questions.changed().await.is_err() {
            return pending().await;
        }
        self.open = Some(OpenQuestion {
            number: *self.questions.borrow_and_update(),
            begun: Instant::now(),
            goal: None,
            is_second: false,
        });
        self.ask();
    }

    fn ask(&mut self) {
        let stream = self.stream;
        self.answer = Some(
            async move {
                let info = stream.get_info().await.map_err(|error| error.to_string())?;
                Ok(info.state.last_sequence)
            }
            .boxed(),
        );
    }

    /// Notes the stream sequence of the last message that was given. The number of the question that it answers, and the time
    /// for which the read was behind at most.
    pub(super) fn reach(&mut self, given: u64) -> Option<(u64, Duration)> {
        match self.open.as_mut()?.reach(given, Instant::now()) {
            Progress::Waiting => None,
            Progress::AskAgain => {
                self.ask();
                None
            }
            Progress::Confirmed(number, time) => {
                self.open = None;
                Some((number, time))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_when_two_goals_are_reached() {
        let begun = Instant::now();
        let mut open = OpenQuestion {
            number: 3,
            begun,
            goal: None,
            is_second: false,
        };
        assert_eq!(open.reach(100, begun), Progress::Waiting, "no goal is set yet");
        open.goal = Some(101);
        assert_eq!(open.reach(100, begun), Progress::Waiting);
        assert_eq!(open.reach(101, begun), Progress::AskAgain);
        assert_eq!(
            open.reach(109, begun),
            Progress::Waiting,
            "the second goal is another one"
        );
        open.goal = Some(110);
        let later = begun + Duration::from_millis(7);
        let confirmed = Progress::Confirmed(3, Duration::from_millis(7));
        assert_eq!(open.reach(110, later), confirmed);
    }
}
