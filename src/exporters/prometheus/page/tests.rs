// SPDX-License-Identifier: Apache-2.0

//! Tests of sharing, compressing and forgetting pages.

use tidegate_engine::{Limits, Rule, Table};

use super::*;
use crate::component::testing::settings;

#[tokio::test]
async fn an_unchanged_page_is_compressed_once() {
    let exposition = |body, version| {
        let body = Bytes::from_static(body);
        Arc::new(Exposition { body, version })
    };
    let unread = Arc::new(AtomicUsize::new(0));
    let first = RenderedPage::new(exposition(b"a 1\n", 1), None, &unread);
    let packed = first.coded(Coding::Gzip).await.unwrap();
    let same = RenderedPage::new(exposition(b"a 1\n", 1), Some(&first.variants), &unread);
    let again = same.coded(Coding::Gzip).await.unwrap();
    assert_eq!(packed.as_ptr(), again.as_ptr(), "the very same bytes");
    assert_ne!(same.coded(Coding::Zstd).await.unwrap(), packed);
    assert_eq!(same.coded(Coding::Identity).await.unwrap(), "a 1\n");

    let other = RenderedPage::new(exposition(b"a 2\n", 2), Some(&same.variants), &unread);
    assert_ne!(other.coded(Coding::Gzip).await.unwrap(), packed);
    assert_eq!(unread.load(Relaxed), 8, "each content once");
    drop((first, same, again));
    assert_eq!(unread.load(Relaxed), 8, "a scraper has not read it yet");
    drop(packed);
    assert_eq!(unread.load(Relaxed), 4);
}

fn pages() -> Pages {
    let own = Table::new("test", vec![Rule::newest()], Limits::default());
    let views = ExporterTables::new(Arc::new(own));
    let config = settings::<PrometheusExporterConfig>("{endpoint: '127.0.0.1:0'}").get();
    Pages::new(config, Arc::new(views), "prometheus".into(), Arc::default())
}

fn formats(pages: &Pages) -> Vec<Format> {
    pages.renderers().iter().map(|renderer| renderer.format).collect()
}

#[tokio::test]
async fn an_unused_format_is_returned_to_the_caller_to_drop() {
    let pages = pages();
    for format in [Format::Text, Format::Protobuf] {
        pages.page(format, Escaping::default()).await.unwrap();
    }
    assert_eq!(pages.forget().len(), 0, "both have just been asked for");
    let before = Instant::now().checked_sub(FORGET_AFTER).unwrap();
    pages.renderers()[0].asked = Some(before);
    let forgotten = pages.forget();
    assert_eq!(forgotten.len(), 1);
    assert_eq!(forgotten[0].format, Format::Text);
    assert_eq!(
        Arc::strong_count(&forgotten[0].job),
        2,
        "its text still exists, and only here"
    );
    pages.renderers()[0].asked = Some(before);
    assert_eq!(
        pages.forget().len(),
        0,
        "one format must remain, to find what can't be shown"
    );
    assert_eq!(formats(&pages), [Format::Protobuf]);
}

#[tokio::test]
async fn text_is_kept_until_another_format_is_requested() {
    let pages = pages();
    pages.register_series();
    assert_eq!(formats(&pages), [Format::Text]);
    pages.page(Format::Protobuf, Escaping::default()).await.unwrap();
    assert_eq!(
        formats(&pages),
        [Format::Text, Format::Protobuf],
        "a request drops nothing, because that could take long"
    );
    pages.register_series();
    assert_eq!(formats(&pages), [Format::Protobuf]);
}
