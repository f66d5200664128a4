//! The little HTTP server of tidegate's own metrics. Separate from every receiver, so that it answers when they don't.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::books::Page;

/// A scrape that is under way when the gateway stops may take this long to finish.
const FINISH: Duration = Duration::from_millis(200);

/// A running server.
pub(super) struct Server {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(endpoint: &str, page: Arc<Page>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(endpoint).await?;
        let (stop, mut stopped) = watch::channel(false);
        let show = move || async move {
            (
                [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
                page.render(),
            )
        };
        let router = Router::new().route("/metrics", get(show));
        let task = tokio::spawn(async move {
            let stopped = async move { drop(stopped.changed().await) };
            if let Err(error) = axum::serve(listener, router)
                .with_graceful_shutdown(stopped)
                .await
            {
                tracing::error!(%error, "tidegate's own metrics are no longer served");
            }
        });
        Ok(Self { stop, task })
    }

    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(FINISH, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
