// SPDX-License-Identifier: Apache-2.0

//! `tidegate top`: the components or the edges of a running gateway, with their rates.

mod edges;
mod snapshot;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::edges::edge_table;
use self::snapshot::GraphSnapshot;
use self::view::{SortColumn, table, wrapped};
use super::client::{self, Client, GatewayArgs, printable};
use super::terminal::{self, Screen, clip, screen};
use super::{Failure, output};
use crate::print_line;

/// Arguments of `tidegate top`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Keys: q quit, p pause, e edges or components, s sort column, arrows or j and k scroll"
)]
pub struct TopArgs {
    /// Time between two readings, at least 100ms
    #[arg(long, default_value = "1s")]
    interval: humantime::Duration,
    /// Print one table after one interval, and exit
    #[arg(long)]
    once: bool,
    /// Begin with the edges between components instead of the components
    #[arg(long)]
    edges: bool,
    /// Print the names that `tidegate tap` takes, those that a shell needs not quote, and exit
    #[arg(long, hide = true)]
    names: bool,
    #[command(flatten)]
    place: GatewayArgs,
}

const PATH: &str = "/api/v1/status/graph";

/// The width of tables that no terminal shows.
const PLAIN_WIDTH: usize = 200;

/// The most components in trouble that have lines above the table.
const MOST_TROUBLES: usize = 4;

/// The least patience with an answer.
const PATIENCE: Duration = Duration::from_secs(5);

type TopAnswer = Result<GraphSnapshot, Failure>;

/// The state of the view.
struct TopState {
    endpoint: String,
    interval: Duration,
    now: Option<GraphSnapshot>,
    before: Option<GraphSnapshot>,
    received: Instant,
    /// The reason why `now` is old.
    stale: Option<String>,
    is_paused: bool,
    shows_edges: bool,
    sort: SortColumn,
    scroll: usize,
    last_key: u8,
}

/// Shows the view until it has been asked to end.
///
/// # Errors
/// The interval is too short, or the gateway can't be reached with `--once`.
pub fn run(args: &TopArgs) -> Result<(), Failure> {
    if *args.interval < Duration::from_millis(100) {
        return Err(Failure::Message("--interval: must be at least 100ms".to_owned()));
    }
    if args.names {
        return client::run(&args.place, list_names);
    }
    client::run(&args.place, |client| show(args, client))
}

async fn list_names(client: Client) -> Result<(), Failure> {
    for name in names(&client.data(PATH, &[]).await?) {
        print_line!("{name}");
    }
    Ok(())
}

/// The paths of components, and the ids that only one class has.
fn names(page: &Value) -> BTreeSet<String> {
    let mut classes = BTreeMap::<&str, BTreeSet<&str>>::new();
    for component in page["components"].as_array().into_iter().flatten() {
        if let (Some(class), Some(id)) = (component["class"].as_str(), component["id"].as_str()) {
            classes.entry(id).or_default().insert(class);
        }
    }
    let is_plain = |id: &str| {
        id.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte))
    };
    let mut names = BTreeSet::new();
    for (id, classes) in classes.into_iter().filter(|(id, _)| is_plain(id)) {
        if classes.len() == 1 {
            names.insert(id.to_owned());
        }
        names.extend(classes.into_iter().map(|class| format!("{class}s::{id}")));
    }
    names
}

async fn show(args: &TopArgs, client: Client) -> Result<(), Failure> {
    let mut state = TopState::new(args);
    if args.once {
        for _ in 0..2 {
            if state.now.is_some() {
                tokio::time::sleep(state.interval).await;
            }
            state.accept(read(&client, state.interval).await);
            if let Some(why) = state.stale.take() {
                return Err(Failure::Message(why));
            }
        }
        state.print();
        return Ok(());
    }
    let (sender, answers) = mpsc::channel(1);
    let every = state.interval;
    output::while_read(async {
        tokio::select! {
            () = poll(&client, every, sender) => Ok(()),
            ended = follow(state, answers) => ended,
        }
    })
    .await
}

async fn read(client: &Client, every: Duration) -> TopAnswer {
    match timeout(every.max(PATIENCE), client.data(PATH, &[])).await {
        Ok(page) => Ok(GraphSnapshot::read(&page?)),
        Err(_) => Err(client.failure("no answer")),
    }
}

/// Reads at each interval, until nobody takes the answers.
async fn poll(client: &Client, every: Duration, answers: mpsc::Sender<TopAnswer>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if answers.send(read(client, every).await).await.is_err() {
            return;
        }
    }
}

async fn follow(mut state: TopState, mut answers: mpsc::Receiver<TopAnswer>) -> Result<(), Failure> {
    let listen = |kind| signal(kind).map_err(Failure::io("signals"));
    let (mut interrupt, mut terminate, mut hangup, mut resized) = (
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
        listen(SignalKind::hangup())?,
        listen(SignalKind::window_change())?,
    );
    let open = Screen::is_possible().then(Screen::open).transpose();
    let screen = open.map_err(Failure::io("the terminal"))?;
    let mut keys = screen.is_some().then(terminal::keys);
    loop {
        let is_new = tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
            _ = resized.recv() => false,
            Some(answer) = answers.recv() => { state.accept(answer); true }
            key = next(&mut keys) => {
                if key == b'q' {
                    return Ok(());
                }
                state.take_key(key);
                false
            }
        };
        match &screen {
            Some(screen) => state.draw(screen).map_err(Failure::io("the terminal"))?,
            None if is_new => state.print(),
            None => {}
        }
        if output::has_failed() {
            return Ok(());
        }
    }
}

/// The next key; never, if there are no keys.
async fn next(keys: &mut Option<mpsc::Receiver<u8>>) -> u8 {
    if let Some(open) = keys {
        if let Some(key) = open.recv().await {
            return key;
        }
        *keys = None;
    }
    std::future::pending().await
}

impl TopState {
    fn new(args: &TopArgs) -> Self {
        Self {
            endpoint: args.place.shown_endpoint(),
            interval: *args.interval,
            now: None,
            before: None,
            received: Instant::now(),
            stale: None,
            is_paused: false,
            shows_edges: args.edges,
            sort: SortColumn::default(),
            scroll: 0,
            last_key: 0,
        }
    }

    fn accept(&mut self, answer: TopAnswer) {
        match answer {
            Ok(_) if self.is_paused => {}
            Ok(snapshot) => {
                self.before = self.now.replace(snapshot);
                self.received = Instant::now();
                self.stale = None;
            }
            Err(failure) => self.stale = Some(failure.to_string()),
        }
    }

    fn take_key(&mut self, key: u8) {
        let is_arrow = matches!(self.last_key, b'[' | b'O');
        match key {
            b'p' => self.is_paused = !self.is_paused,
            b'e' => {
                self.shows_edges = !self.shows_edges;
                self.scroll = 0;
            }
            b's' => self.sort = self.sort.next(),
            b'j' => self.scroll = self.scroll.saturating_add(1),
            b'k' => self.scroll = self.scroll.saturating_sub(1),
            b'B' if is_arrow => self.scroll = self.scroll.saturating_add(1),
            b'A' if is_arrow => self.scroll = self.scroll.saturating_sub(1),
            _ => {}
        }
        self.last_key = key;
    }

    /// The lines above the table, of at most `width` characters.
    fn head(&self, width: usize) -> Vec<String> {
        let every = humantime::format_duration(self.interval);
        let mut view = vec![self.endpoint.clone(), format!("every {every}")];
        view.extend(self.shows_edges.then(|| "edges".to_owned()));
        view.push(format!("sort {:?}", self.sort));
        view.extend(self.is_paused.then(|| "paused".to_owned()));
        let mut head = wrapped(view, "  ", width);
        match &self.now {
            Some(now) => {
                let cpu = now.cpu(self.before.as_ref());
                let cpu = cpu.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}%"));
                let mut summary = vec![format!("cpu {cpu}")];
                summary.extend_from_slice(&now.summary);
                head.extend(wrapped(summary, "  ", width));
                if let Some(why) = &now.unready {
                    head.extend(wrapped(format!("not ready: {why}").split(' '), " ", width));
                }
                for trouble in now.troubles.iter().take(MOST_TROUBLES) {
                    head.extend(wrapped(format!("trouble: {trouble}").split(' '), " ", width));
                }
                let more = now.troubles.len().saturating_sub(MOST_TROUBLES);
                head.extend((more > 0).then(|| clip(format!("{more} more components in trouble"), width)));
            }
            None => head.push(clip("no answer yet".to_owned(), width)),
        }
        if let Some(why) = &self.stale {
            let age = self.received.elapsed().as_secs();
            head.push(clip(printable(&format!("stale for {age} s: {why}")), width));
        }
        head
    }

    fn table(&self, width: usize) -> Vec<String> {
        let before = self.before.as_ref();
        if self.shows_edges {
            let groups = self.now.as_ref().map(|now| now.edges(before));
            return edge_table(&groups.unwrap_or_default(), self.sort, width);
        }
        let groups = self.now.as_ref().map(|now| now.groups(before));
        table(&groups.unwrap_or_default(), self.sort, width)
    }

    fn draw(&mut self, terminal: &Screen) -> std::io::Result<()> {
        let (width, height) = Screen::size();
        let head = self.head(width);
        let title = head.len();
        let lines = screen(head, self.table(width), &mut self.scroll, height);
        terminal.draw(&lines, title)
    }

    fn print(&self) {
        let width = if Screen::is_possible() {
            Screen::size().0
        } else {
            PLAIN_WIDTH
        };
        for line in self.head(width).into_iter().chain(self.table(width)) {
            print_line!("{line}");
        }
    }
}
