// SPDX-License-Identifier: Apache-2.0

//! A source that floods a table reaches its bound, and other sources still get series.

use super::*;

/// Says one more of a stream.
fn observe(table: &Table, pod: &str, user: usize, padding: usize) -> Outcome {
    let user = format!("{user}-{}", "x".repeat(padding));
    let series = series("m", DELTA, &[("pod", pod)], &[("user", &user)]);
    table.observe(&point(&series, NOW, NOW + 1, 1), NOW)
}

fn own_series(table: &Table, pod: &str) -> usize {
    let mut own = 0;
    table.read(NOW, &mut |reading| {
        let is_of = reading.series.resource.attributes == [("pod", pod)].into_iter().collect();
        let is_overflow = reading.series.attributes.get("otel.metric.overflow").is_some();
        own += usize::from(is_of && !is_overflow);
    });
    own
}

fn shared(most: usize, limits: Limits) -> Table {
    let most = bounds(most);
    Table::new("test", vec![Rule::newest()], limits)
        .bounded_by(most)
        .shared_by_sources()
}

#[test]
fn a_flooding_source_takes_half_of_the_bytes_and_others_get_their_series() {
    for padding in [0, 2000] {
        let most = 2_000_000;
        let table = shared(most, Limits::default());
        let said = (0..20_000).map(|user| observe(&table, "loud", user, padding));
        let refused = said.filter(|outcome| *outcome == Outcome::Rejected(Rejection::Limit));
        let refused = refused.count();
        let loud = own_series(&table, "loud");
        let stats = table.stats();
        let overflowed = stats.overflowed_streams[Overflow::Source as usize] as usize;
        assert_eq!(loud + overflowed + refused, 20_000, "nothing is uncounted");
        assert!(overflowed > 0 && refused > 0, "{stats:?}");
        assert!(loud > 30 && stats.bytes < most * 4 / 5, "{loud} {stats:?}");
        for user in 0..30 {
            assert_eq!(observe(&table, "quiet", user, padding), Outcome::Absorbed);
        }
        assert_eq!(own_series(&table, "quiet"), 30);
        // A known stream continues.
        assert_eq!(observe(&table, "loud", 0, padding), Outcome::Absorbed);
    }
}

#[test]
fn a_flooding_source_leaves_a_tenth_of_series_and_a_quarter_of_streams() {
    let limits = Limits {
        series: 1000,
        streams: 4000,
        ..Limits::default()
    };
    let table = shared(usize::MAX, limits);
    for user in 0..9000 {
        observe(&table, "loud", user, 0);
    }
    assert_eq!(own_series(&table, "loud"), 900);
    assert_eq!(table.stats().streams, 3000);
    (0..90).for_each(|user| assert_eq!(observe(&table, "quiet", user, 0), Outcome::Absorbed));
    assert_eq!(own_series(&table, "quiet"), 90);
}

#[test]
fn a_number_that_is_set_is_what_counts() {
    let limits = Limits {
        streams_per_source: 2000,
        ..Limits::default()
    };
    let table = shared(2_000_000, limits);
    for user in 0..1500 {
        observe(&table, "loud", user, 0);
    }
    assert_eq!(own_series(&table, "loud"), 1500);
    assert!(show(&table).len() >= 1500);
}
