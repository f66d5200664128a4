// SPDX-License-Identifier: Apache-2.0

//! Every attack: its name, the configuration that it attacks, and the function that makes it.

mod bodies;
mod clocks;
mod connections;
mod elements;
mod frames;
mod many;
mod packed;
mod queries;
mod scrapes;
mod senders;
mod sockets;

use super::field::{AttackedGateway, Setup};
use super::refusals::{CHECKED, OTLP, Refusals, WRITE};
use super::wire::Harm;
use crate::BenchError;

/// An attack. Its function returns when it is over and its connections are closed.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) setup: Setup,
    /// Whether it is made with OTLP alone, so that it can be made against the Collector too.
    pub(super) is_otlp: bool,
    /// The counters of what is refused to the attacker.
    pub(super) refusals: &'static Refusals,
    pub(super) run: fn(&AttackedGateway) -> Result<Harm, BenchError>,
}

const fn otlp(
    name: &'static str,
    about: &'static str,
    setup: Setup,
    run: fn(&AttackedGateway) -> Result<Harm, BenchError>,
) -> Attack {
    Attack {
        name,
        about,
        setup,
        is_otlp: true,
        refusals: OTLP,
        run,
    }
}

const fn other(
    name: &'static str,
    about: &'static str,
    setup: Setup,
    run: fn(&AttackedGateway) -> Result<Harm, BenchError>,
) -> Attack {
    Attack {
        is_otlp: false,
        ..otlp(name, about, setup, run)
    }
}

impl Attack {
    /// The same, whose refusals are counted elsewhere.
    const fn counted(self, refusals: &'static Refusals) -> Self {
        Self { refusals, ..self }
    }
}

/// In the order in which they are made.
#[rustfmt::skip]
pub(super) const ATTACKS: &[Attack] = &[
    otlp("elements", "points of 30 M empty attributes, 5 KB of zstd each", Setup::AGGREGATE, elements::over_http),
    otlp("elements-grpc", "the same over gRPC", Setup::AGGREGATE, elements::over_grpc),
    otlp("elements-json", "15 M empty points as JSON", Setup::PLAIN, elements::as_json),
    other("elements-write", "a remote write of millions of empty labels", Setup::WRITE, elements::in_a_write).counted(WRITE),
    otlp("buckets", "points of millions of buckets and of exemplars", Setup::AGGREGATE, elements::buckets),
    other("write-parts", "remote writes of millions of exemplars and of histogram buckets", Setup::WRITE, elements::parts).counted(WRITE),
    other("symbols", "remote writes 2.0 that refer to long symbols again and again", Setup::WRITE, elements::symbols).counted(WRITE),
    otlp("pieces", "requests of a million empty metrics whose resource comes in pieces", Setup::PLAIN, elements::pieces),
    otlp("gzip", "100 bodies of 300 KB that unpack to 63 MiB each", Setup::PLAIN, packed::gzip),
    otlp("gzip-grpc", "bodies over gRPC of 300 KB of gzip that unpack to 63 MiB each", Setup::PLAIN, packed::gzip_over_grpc),
    otlp("zstd", "the same in zstd", Setup::PLAIN, packed::zstd),
    other("snappy", "the same as remote writes, in snappy", Setup::WRITE, packed::snappy).counted(WRITE),
    other("subqueries", "subqueries within subqueries that never end", Setup::PLAIN, queries::nested),
    other("hang-ups", "the same from clients that hang up at once", Setup::PLAIN, queries::hang_ups),
    other("unread", "150 clients that ask for megabytes and read nothing", Setup::PLAIN, queries::unread),
    other("match-all", "requests of 200 selectors that all accept every series", Setup::PLAIN, queries::match_all),
    other("parameters", "forms of a hundred thousand parameters", Setup::PLAIN, queries::parameters),
    other("watchers", "watchers of a composite that read nothing", queries::COMPOSITE, queries::watchers),
    otlp("cardinality", "1.5 M streams by a random attribute", Setup::AGGREGATE, many::streams),
    otlp("labels", "label values of 20 KB", Setup::PLAIN, many::labels),
    other("deltas", "counters with label values of 20 KB, for an exporter of deltas and a composite", many::DELTAS, many::deltas),
    otlp("names", "metric names of 64 KiB", Setup::PLAIN, many::names),
    otlp("sources", "many sources and addresses, each within its limit", many::SOURCES, many::sources),
    otlp("future", "a point of the honest stream from tomorrow", queries::COMPOSITE, clocks::future),
    other("future-everywhere", "points from tomorrow by every way in, two of them of the honest stream", clocks::EVERYWHERE, clocks::everywhere),
    otlp("clocks", "a stream that goes a day ahead and a day back", queries::COMPOSITE, clocks::alternating),
    other("idle-h2", "530 idle HTTP/2 connections to health, admin and the page", Setup::PLAIN, connections::idle_from_one),
    other("idle-everywhere", "the same from 249 addresses", Setup::PLAIN, connections::idle_from_many),
    other("idle-write", "2,000 idle connections to remote write, and an honest write", Setup::WRITE, connections::idle_writes).counted(WRITE),
    other("half-forms", "520 forms of which one byte came", Setup::PLAIN, connections::half_forms),
    other("forms", "forms of 255 KiB that do not end, seven on a connection", Setup::PLAIN, connections::forms),
    other("zero-window", "HTTP/2 connections that take no byte of their answers", connections::SHORT_STALL, connections::zero_window),
    other("unread-pages", "HTTP/2 connections that scrape and take no byte of a page", Setup::PLAIN, connections::unread_pages),
    otlp("descriptors", "1,100 half requests where 1,024 files may be open", connections::FEW, connections::descriptors),
    otlp("headers", "2,000 connections with headers that do not end", Setup::PLAIN, connections::headers),
    other("heads", "HTTP/2 requests with the largest heads allowed, whose bodies do not come", Setup::PLAIN, connections::heads),
    otlp("half-frames", "HTTP/2 connections that stop a byte before the end of a frame", Setup::PLAIN, frames::half_frames),
    otlp("half-heads", "HTTP/1.1 heads of 63 KiB that do not end, from 249 addresses", Setup::PLAIN, frames::half_heads),
    other("paths", "HTTP/2 requests whose paths stay in the HPACK table, each in its read buffer", Setup::PLAIN, frames::paths),
    otlp("byte-frames", "gRPC messages in DATA frames of a byte, each behind a frame of 16 KiB", Setup::PLAIN, frames::byte_frames),
    otlp("promises", "promises of 64 MiB of which nothing comes", Setup::PLAIN, bodies::promises),
    other("promises-write", "remote writes that promise up to 64 MiB of which nothing comes", Setup::WRITE, bodies::promised_writes).counted(WRITE),
    otlp("promises-grpc", "gRPC messages of up to 64 MiB of which only the length comes", Setup::PLAIN, bodies::promised_messages),
    otlp("promises-kept", "promises of 64 MiB that are all kept at once, late", Setup::PLAIN, bodies::kept_late),
    otlp("broken-off", "clients that hang up at every stage of a request", Setup::PLAIN, bodies::broken_off),
    otlp("slow-and-large", "bodies that trickle beside bodies of 30 MiB", Setup::PLAIN, bodies::slow_and_large),
    otlp("json", "JSON that nests without end, and numbers without end", Setup::PLAIN, bodies::json),
    otlp("grpc-lengths", "gRPC messages that are longer or shorter than they say", Setup::PLAIN, bodies::grpc_lengths),
    other("scrape-gzip", "a target with 2 GB of gzip beside a good one", scrapes::SETUP, scrapes::gzip),
    other("scrape-line", "a target with a line that does not end beside a good one", scrapes::SETUP, scrapes::line),
    other("scrape-proto", "a target with a million tiny series of protobuf, and a line of millions of labels", scrapes::SETUP, scrapes::proto),
    other("scrape-churn", "a target whose series are all new at every scrape", scrapes::SETUP, scrapes::churn),
    other("scrape-list", "a service that lists 6,000 targets of 6,000 labels in 200 KB", scrapes::LISTED, scrapes::listed),
    other("events", "a flood of event streams: new kinds, halves, rubbish", sockets::SETUP, sockets::events),
    other("idle-events", "512 silent connections to the socket of events, and an honest sender after them", sockets::SETUP, sockets::idle),
    other("half-events", "event streams that stop within messages of 4 MiB", sockets::SETUP, sockets::halves),
    other("statsd", "a flood of StatsD lines with new names", sockets::SETUP, sockets::statsd),
    other("spellings", "a StatsD line in thousands of spellings of 56 KB", sockets::SETUP, sockets::spellings),
    otlp("passwords", "a flood of wrong passwords", senders::PASSWORDS, senders::passwords).counted(CHECKED),
    other("slow-answers", "a destination that answers slowly, with megabytes", senders::DESTINATION, senders::slow_answers),
    other("byte-answers", "a destination that answers 1 MiB in chunks of a byte", senders::DESTINATION, senders::byte_answers),
    other("both", "elements and subqueries at once", Setup::AGGREGATE, senders::both),
];

/// Nanoseconds since 1970.
use crate::otlp::load::now_ns as now;
