// SPDX-License-Identifier: Apache-2.0

use std::collections::BTreeSet;
use std::time::Instant;

use super::*;
use crate::{CallId, ReadScope, StoreEvent, StoreMessage};

fn message(subject: &str) -> StoreMessage {
    StoreMessage {
        subject: subject.to_owned(),
        headers: Vec::new(),
        body: "body".into(),
    }
}

/// The subjects of the next messages that a session reads.
async fn read_subjects(session: &mut StoreSession, count: usize) -> Vec<String> {
    let mut subjects = Vec::new();
    while subjects.len() < count {
        if let StoreEvent::Read(_, stored) = session.events.recv().await.unwrap() {
            subjects.push(stored.message.subject);
        }
    }
    subjects
}

async fn wait_until_current(session: &mut StoreSession) {
    while !matches!(
        session.events.recv().await.unwrap(),
        StoreEvent::Current(CallId(1), ..)
    ) {}
}

/// Waits until no more events fit into the channel of a session.
async fn wait_until_full(session: &StoreSession) {
    while session.events.len() < session.events.max_capacity() {
        tokio::task::yield_now().await;
    }
}

/// Waits for an event.
async fn wait_for(session: &mut StoreSession, wanted: StoreEvent) {
    while session.events.recv().await.unwrap() != wanted {}
}

#[tokio::test]
async fn a_session_reads_all_messages_and_then_the_new_ones() {
    let engine = LocalEngine::new();
    let mut reader = engine.open();
    assert_eq!(reader.events.recv().await, Some(StoreEvent::Connected));
    let mut writer = engine.open();
    let subjects: Vec<_> = (0..200).map(|page| format!("tg.c.p.00.p.1.{page}")).collect();
    for (number, subject) in subjects.iter().enumerate() {
        let call = StoreCall::Publish(message(subject));
        writer.store.start(CallId(number as u64), call);
    }
    let mut answers = 0;
    while answers < subjects.len() {
        answers += usize::from(matches!(
            writer.events.recv().await,
            Some(StoreEvent::Done(_, Ok(_)))
        ));
    }
    let read = StoreCall::ReadAll(ReadScope::Everything);
    reader.store.start(CallId(1), read);
    let mut read = read_subjects(&mut reader, subjects.len()).await;
    read.sort_unstable();
    let mut expected = subjects;
    expected.sort_unstable();
    assert_eq!(read, expected);
    wait_until_current(&mut reader).await;

    let record = "tg.c.r.00.p";
    let call = StoreCall::CompareAndSet(message(record), 0);
    writer.store.start(CallId(900), call);
    assert_eq!(read_subjects(&mut reader, 1).await, [record]);

    reader
        .store
        .start(CallId(2), StoreCall::ReadAll(ReadScope::Retained));
    assert_eq!(read_subjects(&mut reader, 1).await, [record]);
    wait_for(&mut reader, StoreEvent::Done(CallId(2), Ok(StoreReply::ReadEnd))).await;
}

/// A new message of a subject takes the place of the old one. A read that is on its way to the old one finds nothing there.
#[tokio::test]
async fn a_read_is_current_only_when_it_has_given_all_subjects() {
    let engine = LocalEngine::new();
    let mut writer = engine.open();
    assert_eq!(writer.events.recv().await, Some(StoreEvent::Connected));
    let mut id = 0;
    let mut publish = async |number: u64| {
        id += 1;
        let call = StoreCall::Publish(message(&format!("tg.c.p.00.p.1.{number}")));
        writer.store.start(CallId(id), call);
        let answer = writer.events.recv().await;
        assert!(matches!(answer, Some(StoreEvent::Done(_, Ok(_)))));
    };
    for number in 0..2_000 {
        publish(number).await;
    }
    let mut reader = engine.open();
    reader
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    let mut given: BTreeSet<_> = read_subjects(&mut reader, 1).await.into_iter().collect();
    for number in 1_900..2_000 {
        publish(number).await;
    }
    loop {
        match reader.events.recv().await {
            Some(StoreEvent::Read(_, stored)) => {
                given.insert(stored.message.subject);
            }
            Some(StoreEvent::Current(..)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given.len(), 2_000);
}

/// A read that is slower than the writers never reaches the messages that are replaced all the time.
#[tokio::test]
async fn a_current_read_has_what_was_replaced_on_its_way() {
    const HOT: &str = "tg.c.p.00.p.1.0";
    let engine = LocalEngine::new();
    let (mut writer, mut reader) = (engine.open(), engine.open());
    assert_eq!(writer.events.recv().await, Some(StoreEvent::Connected));
    let (mut id, mut others) = (0, (1..=2_000).cycle());
    let mut publish = async |subject: &str| {
        id += 1;
        writer
            .store
            .start(CallId(id), StoreCall::Publish(message(subject)));
        let answer = writer.events.recv().await;
        assert!(matches!(answer, Some(StoreEvent::Done(_, Ok(_)))));
    };
    let mut next = || format!("tg.c.p.00.p.1.{}", others.next().unwrap_or_default());
    reader
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    wait_until_current(&mut reader).await;
    for _ in 0..2_000 {
        publish(&next()).await;
    }
    // Goals of the start may come before the first message of `HOT`: they say nothing of it.
    let mut early_goals = 0;
    loop {
        for _ in 0..3 {
            publish(&next()).await;
        }
        publish(HOT).await;
        match reader.events.recv().await {
            Some(StoreEvent::Read(_, stored)) if stored.message.subject == HOT => break,
            Some(StoreEvent::Read(..)) => {}
            Some(StoreEvent::Current(..)) => early_goals += 1,
            other => panic!("{other:?}"),
        }
        assert!(early_goals < 3, "{HOT} was not read");
    }
}

#[tokio::test]
async fn a_full_reader_does_not_stop_other_sessions() {
    let engine = LocalEngine::new();
    let mut slow = engine.open();
    slow.store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    let mut writer = engine.open();
    assert_eq!(writer.events.recv().await, Some(StoreEvent::Connected));
    for number in 0..2_000 {
        let call = StoreCall::Publish(message(&format!("tg.c.p.00.p.1.{number}")));
        writer.store.start(CallId(number), call);
        let answer = writer.events.recv().await;
        assert!(matches!(answer, Some(StoreEvent::Done(CallId(id), Ok(_))) if id == number));
    }
    assert_eq!(read_subjects(&mut slow, 2_000).await.len(), 2_000);
}

/// `Current` waits behind messages that a slow reader takes later.
#[tokio::test]
async fn a_slow_reader_learns_when_it_was_current() {
    let engine = LocalEngine::new();
    let publish = |number: usize| {
        let new = message(&format!("tg.c.p.00.p.1.{number}"));
        let stored = engine.store().change(|store| store.put(new, clock::now()));
        assert!(stored.is_ok(), "{stored:?}");
    };
    let mut reader = engine.open();
    let room = reader.events.max_capacity();
    for number in 0..room {
        publish(number);
    }
    reader
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    // `Connected` takes the room of the last message, and so the session has not reached its goal.
    wait_until_full(&reader).await;
    // These lie behind the goal, and fill the channel again.
    for number in room..2 * room {
        publish(number);
    }
    let before = Instant::now();
    assert_eq!(reader.events.recv().await, Some(StoreEvent::Connected));
    wait_until_full(&reader).await;
    let after = Instant::now();
    let mut taken = 0;
    let said = loop {
        match reader.events.recv().await {
            Some(StoreEvent::Read(..)) => taken += 1,
            Some(StoreEvent::Current(_, _, said)) => break said,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(taken, 2 * room);
    assert!((before..=after).contains(&said), "{before:?} {said:?} {after:?}");
}

#[tokio::test]
async fn sessions_end_with_their_engine() {
    let engine = LocalEngine::new();
    let mut session = engine.open();
    assert_eq!(session.events.recv().await, Some(StoreEvent::Connected));
    drop(engine);
    assert_eq!(session.events.recv().await, None);
}

/// A backend whose calls panic.
struct PanickingBackend;

impl SessionBackend for PanickingBackend {
    fn store(&self) -> Option<&SharedStore> {
        None
    }

    async fn call(self: Arc<Self>, _call: StoreCall) -> Result<StoreReply, StoreError> {
        panic!("a bug in the engine");
    }
}

#[tokio::test]
async fn a_call_that_panics_fails_and_the_session_goes_on() {
    let lifetime = watch::Sender::new(());
    let mut session = open_session(Arc::new(PanickingBackend), lifetime.subscribe());
    assert_eq!(session.events.recv().await, Some(StoreEvent::Connected));
    for number in 1..=2 {
        let call = StoreCall::Publish(message("tg.c.p.00.p.1.1"));
        session.store.start(CallId(number), call);
        let answer = session.events.recv().await;
        assert!(
            matches!(&answer, Some(StoreEvent::Done(CallId(id), Err(StoreError::Unavailable(text))))
                if *id == number && text.contains("panicked")),
            "{answer:?}"
        );
    }
}

/// A backend that makes a new connection for each call.
struct ReconnectingBackend(watch::Sender<u64>);

impl SessionBackend for ReconnectingBackend {
    fn store(&self) -> Option<&SharedStore> {
        None
    }

    async fn call(self: Arc<Self>, _call: StoreCall) -> Result<StoreReply, StoreError> {
        self.0.send_modify(|connections| *connections += 1);
        Ok(StoreReply::Purged)
    }

    fn connections(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.subscribe())
    }
}

/// A sender that gets them in the other order takes its goodbye as one of the earlier connection.
#[tokio::test]
async fn an_answer_of_a_new_connection_comes_after_its_event() {
    let lifetime = watch::Sender::new(());
    let backend = ReconnectingBackend(watch::Sender::new(0));
    let mut session = open_session(Arc::new(backend), lifetime.subscribe());
    assert_eq!(session.events.recv().await, Some(StoreEvent::Connected));
    for number in 0..200 {
        let call = StoreCall::Publish(message("tg.c.p.00.p.1.1"));
        session.store.start(CallId(number), call);
        assert_eq!(session.events.recv().await, Some(StoreEvent::Connected));
        let answer = StoreEvent::Done(CallId(number), Ok(StoreReply::Purged));
        assert_eq!(session.events.recv().await, Some(answer));
    }
}

#[tokio::test]
async fn a_question_is_answered_after_all_messages_of_then() {
    let engine = LocalEngine::new();
    let (mut reader, mut writer) = (engine.open(), engine.open());
    reader
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    wait_until_current(&mut reader).await;
    for question in 1..=20 {
        let call = StoreCall::Publish(message(&format!("tg.c.p.00.p.1.{question}")));
        writer.store.start(CallId(question), call);
        while !matches!(writer.events.recv().await.unwrap(), StoreEvent::Done(..)) {}
        assert_eq!(engine.questions().unwrap().ask(), question);
        let mut read = 0;
        loop {
            match reader.events.recv().await.unwrap() {
                StoreEvent::Read(..) => read += 1,
                StoreEvent::Confirmed(_, _, answered) if answered == question => break,
                _ => {}
            }
        }
        assert_eq!(read, 1, "the message of question {question}");
    }
}

#[tokio::test]
async fn questions_that_come_together_have_one_answer() {
    let engine = LocalEngine::new();
    let mut reader = engine.open();
    reader
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    wait_until_current(&mut reader).await;
    let mut last = 0;
    for _ in 0..100 {
        last = engine.questions().unwrap().ask();
    }
    loop {
        if let StoreEvent::Confirmed(_, _, answered) = reader.events.recv().await.unwrap() {
            assert_eq!(answered, last);
            break;
        }
    }
}
