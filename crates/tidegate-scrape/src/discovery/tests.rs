// SPDX-License-Identifier: Apache-2.0

use std::time::Duration;

use super::group::{Language, ListError, Listed, from_json, from_yaml};
use super::*;
use crate::config::PrometheusReceiverConfig;
use tidegate_pipeline::batch::Signal;
use tidegate_pipeline::component::testing::{Sink, settings};
use tidegate_pipeline::component::{Ceiling, Held};

/// The discoveries of a job, running.
struct Running {
    findings: mpsc::Receiver<(usize, DiscoveredTargets)>,
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    fn start(yaml: &str) -> Self {
        let yaml = format!("config: {{scrape_configs: [{{job_name: j, {yaml}}}]}}");
        let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
        let discoveries = Discoveries::new(&config.config.scrape_configs[0]).unwrap();
        let metrics = ScrapeMetrics::new("r".into(), "j".into(), Sink::new().entry(Signal::Metrics));
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let findings = discoveries.start(&Arc::new(metrics), &Arc::default(), &stopping, &tasks);
        Self {
            findings,
            stopping,
            tasks,
        }
    }

    /// The next finding of a discovery, as `a=1,b=2`.
    async fn next(&mut self, source: usize) -> Vec<String> {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(60), self.findings.recv());
            let (from, found) = next.await.expect("a finding in time").expect("it runs");
            if from == source {
                return found.labels.iter().map(Labels::pairs).collect();
            }
        }
    }

    async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[test]
fn lists_are_read_in_both_languages() {
    let json = br#"[{"targets": ["a:1", "b:1"], "labels": {"env": "dev"}}, {"targets": ["c:1"]}]"#;
    let yaml = "- targets: ['a:1', 'b:1']\n  labels: {env: dev}\n- targets: ['c:1']\n";
    assert_eq!(from_json(json), from_yaml("t.yml", yaml));
    assert_eq!(from_yaml("t.yml", "# nothing\n"), Ok(Vec::new()));
    let mistakes = [
        from_json(b"[{\"target\": []}]"),
        from_json(b"{}"),
        from_yaml("t.yml", "- target: []"),
        from_yaml("t.yml", "- targets: [a: 1"),
    ];
    for mistake in mistakes {
        assert!(mistake.is_err(), "{mistake:?}");
    }
}

#[tokio::test]
async fn fixed_targets_are_found_at_once() {
    let mut running =
        Running::start("static_configs: [{targets: ['a:1', 'b:1'], labels: {env: dev}}, {targets: ['c:1']}]");
    let found = running.next(0).await;
    assert_eq!(
        found,
        [
            "__address__=a:1,env=dev",
            "__address__=b:1,env=dev",
            "__address__=c:1"
        ]
    );
    running.stop().await;
}

#[tokio::test]
async fn files_are_read_again_when_they_change_and_kept_when_they_break() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        // Replaced as a whole, as those who write such files do.
        let temporary = directory.path().join("tmp");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, directory.path().join(name)).unwrap();
    };
    let path = |name: &str| directory.path().join(name).display().to_string();
    write("one.json", r#"[{"targets": ["a:1"]}]"#);
    let pattern = path("*.json");
    let mut running = Running::start(&format!(
        "file_sd_configs: [{{files: ['{pattern}', '{}']}}]",
        path("t.yml")
    ));
    let (one, two, yaml) = (path("one.json"), path("two.json"), path("t.yml"));
    assert_eq!(
        running.next(1).await,
        [format!("__address__=a:1,__meta_filepath={one}")]
    );
    write("two.json", r#"[{"targets": ["b:1"], "labels": {"x": "y"}}]"#);
    let both = [
        format!("__address__=a:1,__meta_filepath={one}"),
        format!("__address__=b:1,__meta_filepath={two},x=y"),
    ];
    assert_eq!(running.next(1).await, both);
    // The earlier targets of a broken file stay. A file that is gone takes its targets along.
    write("one.json", "[{");
    write("t.yml", "- targets: ['c:1']");
    let mut found = running.next(1).await;
    if found == both {
        found = running.next(1).await;
    }
    let third = format!("__address__=c:1,__meta_filepath={yaml}");
    found.sort();
    assert_eq!(found, [both[0].clone(), both[1].clone(), third.clone()]);
    std::fs::remove_file(&two).unwrap();
    let found = running.next(1).await;
    assert!(
        found.contains(&both[0]) && found.contains(&third) && found.len() == 2,
        "{found:?}"
    );
    running.stop().await;
}

#[tokio::test]
async fn an_answer_of_a_service_is_on_the_account_of_the_gateway() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let targets = vec!["\"a:1\""; 100_000].join(",");
            let body = format!(r#"[{{"targets": [{targets}]}}]"#);
            let _ = stream.read(&mut [0; 4096]).await;
            let length = body.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            );
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    let yaml = format!(
        "config: {{scrape_configs: [{{job_name: j, http_sd_configs: [{{url: 'http://127.0.0.1:{port}/'}}]}}]}}"
    );
    let config = settings::<PrometheusReceiverConfig>(&yaml).get::<PrometheusReceiverConfig>();
    let service = http::HttpDiscovery::new(&config.config.scrape_configs[0].http_sd_configs[0]).unwrap();
    let memory = Arc::<Account>::default();
    let timeout = Duration::from_secs(60);
    let found = service.ask(timeout, &memory).await.unwrap();
    assert_eq!(found.labels.len(), 100_000);
    assert!(
        memory.reserved_bytes() > 20 << 20,
        "they take room while they are in force"
    );
    assert!(
        memory.filled_bytes() < memory.reserved_bytes(),
        "no target is made of them yet"
    );
    found.room.fill();
    assert_eq!(memory.filled_bytes(), memory.reserved_bytes());
    drop(found);
    assert_eq!(memory.reserved_bytes(), 0);
    for limit in [500_000, 2_000_000] {
        memory.add_limit(tidegate_pipeline::component::Limit::of(limit));
        let refused = service.ask(timeout, &memory).await.unwrap_err();
        assert!(refused.contains("memory limit"), "{refused}");
        assert_eq!(memory.reserved_bytes(), 0);
        memory.remove_limit(tidegate_pipeline::component::Limit::of(limit));
    }
}

#[tokio::test]
async fn a_short_list_that_becomes_large_is_refused_before_it_does() {
    let numbers = || (0..2_000).map(|number| format!("\"n{number}\""));
    let targets = numbers().collect::<Vec<_>>().join(",");
    let labels = numbers().map(|name| format!("{name}: \"x\""));
    let labels = labels.collect::<Vec<_>>().join(",");
    let list = format!("[{{\"targets\": [{targets}], \"labels\": {{{labels}}}}}]");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("list.json");
    std::fs::write(&path, &list).unwrap();
    let memory = Arc::<Account>::default();
    memory.add_limit(tidegate_pipeline::component::Limit::of(100 << 20));
    let read = |list: &[u8]| Listed::read(("list", list), Language::Json, &[], Held::new(memory.clone()));
    for refused in [file::read(&path, &memory), read(list.as_bytes())] {
        assert!(matches!(refused.unwrap_err(), ListError::NeverFits));
    }
    assert!(
        !memory.is_short(Ceiling::Soft),
        "a list that never fits does not make memory short"
    );
    // Spaces cost as much as groups before they are read.
    let wide = [&br#"[{"targets": ["a:1"]}]"#[..], &vec![b' '; 400_000]].concat();
    memory.hold(90 << 20);
    assert!(matches!(read(&wide).unwrap_err(), ListError::NoRoom(_)));
    memory.release(90 << 20);
    assert_eq!(read(&wide).unwrap().labels.len(), 1);
    assert_eq!(memory.reserved_bytes(), 0);
}

#[tokio::test]
async fn a_pipe_among_the_files_is_an_error_and_the_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let [list, pipe] = ["a.json", "b.json"].map(|name| directory.path().join(name));
    std::fs::write(&list, r#"[{"targets": ["a:1"]}]"#).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let pattern = directory.path().join("*.json").display().to_string();
    let mut running = Running::start(&format!("file_sd_configs: [{{files: ['{pattern}']}}]"));
    let found = running.next(1).await;
    assert_eq!(
        found,
        [format!("__address__=a:1,__meta_filepath={}", list.display())]
    );
    running.stop().await;
}
