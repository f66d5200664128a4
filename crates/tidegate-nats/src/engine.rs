// SPDX-License-Identifier: Apache-2.0

//! The engine: it connects, and connects again after each loss.

use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::{ClusterEngine, EngineStatus, StoreQuestions, StoreSession};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::link::NatsLink;
use crate::session::open_session;
use crate::shared::NatsShared;
use crate::{NatsConfig, NatsError};

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// The connection; `None`: there is none now.
pub(crate) type CurrentLink = Option<Arc<NatsLink>>;

/// A connection to NATS JetStream for the state machines of a process. Its tasks end when it is dropped.
pub struct NatsEngine {
    shared: Arc<NatsShared>,
    links: watch::Receiver<CurrentLink>,
    runtime: Handle,
    connector: AbortHandle,
}

impl NatsEngine {
    /// Starts an engine on the current tokio runtime. It connects in the background.
    ///
    /// # Errors
    /// Options that contradict each other, or no runtime.
    pub fn start(config: NatsConfig, cluster: &str) -> Result<Self, NatsError> {
        config.validate()?;
        let runtime = Handle::try_current().map_err(|_| NatsError::Runtime)?;
        let shared = Arc::new(NatsShared::new(config, cluster));
        let (sender, links) = watch::channel(None);
        let connector = runtime.spawn(keep_connected(shared.clone(), sender));
        Ok(Self {
            shared,
            links,
            connector: connector.abort_handle(),
            runtime,
        })
    }
}

impl ClusterEngine for NatsEngine {
    fn open(&self) -> StoreSession {
        open_session(self.shared.clone(), self.links.clone(), &self.runtime)
    }

    fn status(&self) -> EngineStatus {
        self.shared.status()
    }

    fn questions(&self) -> Option<&StoreQuestions> {
        Some(&self.shared.questions)
    }
}

impl Drop for NatsEngine {
    fn drop(&mut self) {
        self.connector.abort();
    }
}

/// Sessions end when this task does: it has the sending half of `links`.
async fn keep_connected(shared: Arc<NatsShared>, links: watch::Sender<CurrentLink>) {
    let mut backoff = MIN_BACKOFF;
    loop {
        match NatsLink::connect(&shared).await {
            Ok(link) => {
                let link = Arc::new(link);
                shared.note_connected(&link.connection.server());
                links.send_replace(Some(link.clone()));
                let begun = Instant::now();
                link.lost().await;
                if begun.elapsed() >= MAX_BACKOFF {
                    backoff = MIN_BACKOFF;
                }
                links.send_replace(None);
                shared.note_lost();
            }
            Err(error) => shared.note_failed(&error),
        }
        tokio::time::sleep(backoff.mul_f64(rand::random_range(0.5..=1.0))).await;
        backoff = (backoff * 2).min(MAX_BACKOFF);
    }
}
